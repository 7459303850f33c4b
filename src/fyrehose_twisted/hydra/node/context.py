"""Where a node stands: what all its parts know, and how messages reach everybody."""

from __future__ import annotations

import re
from collections import Counter
from math import inf
from random import Random
from typing import Any
from zlib import crc32

from fyrehose_twisted.hydra.config import NodeConfig, Quorum
from fyrehose_twisted.hydra.events import IdChanged, LeaderChanged, OperatorWarning, Role, RoleChanged
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.hydra.node.link_table import LinkTable, PeerLink
from fyrehose_twisted.hydra.node.output import NodeOutput
from fyrehose_twisted.hydra.node.registry import Registry
from fyrehose_twisted.hydra.node.roles import RoleMachine
from fyrehose_twisted.hydra.wire.lines import command_of
from fyrehose_twisted.hydra.wire.messages import (
    E_RECV,
    LEGACY_MAX_LINE,
    MAX_ID,
    NO_QUORUM_PREFIX,
    Message,
    Ping,
    Pong,
    Recv,
    Send,
)

_VAL_SUFFIX = re.compile(r"/([0-9a-f]{4})\.([0-9]{1,2})$")
_FRAMING_BYTES = 32
"""Bytes that a RECV or SEND has around its line, at most."""


class NodeContext:
    """What the parts of a node share.

    :ivar id: the node's id; ``None`` while it belongs to no network.
    :ivar leader: whom it follows; itself, where it leads.
    :ivar val: the last PING that it accepted, or sent.
    :ivar last_ping_at: when that was.
    :ivar member_since: since when it belongs to the network.
    :ivar leader_since: since when it follows :attr:`leader`.
    :ivar bootstrapping: whether it began the network, and never had a quorum.
    :ivar quiet_until: until when it helps nobody, for it does not know whom it promised what.
    :ivar newly_inducted: whether it was taken in, and has followed no leader yet.
    :ivar deferred_ping: a PING that it may answer only once what it promised to another is over.
    :ivar was_member: whether it ever belonged to a network.
    """

    def __init__(self, config: NodeConfig, rng: Random, now: float, durable: DurableState, *, remembers: bool) -> None:
        self.config = config
        self.timers = config.timers
        self.rng = rng
        self.counters: Counter[str] = Counter()
        self.output = NodeOutput()
        self.links = LinkTable(config.targets, config.timers, self.output, rng, now)
        self.registry = Registry()
        self.durable = durable
        self.val_suffix = f"/{crc32(config.network.encode()) & 0xFFFF:04x}.{config.network_size or 0}"
        """How the val of its PINGs ends: which network it is of, and how large that may be; 0 without a limit."""
        self.id: int | None = None
        self.leader: int | None = None
        self.val = ""
        self.last_ping_at = -inf
        self.member_since = now
        self.leader_since = now
        self.bootstrapping = False
        self.quiet_until = now if remembers else now + self.timers.promise
        self.newly_inducted = False
        self.deferred_ping: str | None = None
        self.was_member = False
        self._roles = RoleMachine()

    # Where it stands

    @property
    def role(self) -> Role:
        """What the node is."""
        return self._roles.role

    @property
    def role_reason(self) -> str:
        """What made the role change last."""
        return self._roles.reason

    @property
    def has_fixed_quorum(self) -> bool:
        """Whether the quorum is more than half of all nodes that there may be."""
        return self.config.quorum is Quorum.FIXED

    @property
    def quorum(self) -> int:
        """Votes that an election takes (rule S1)."""
        size = self.config.network_size if self.has_fixed_quorum else None
        return (len(self.registry) if size is None else size) // 2 + 1

    @property
    def in_term(self) -> bool:
        """Whether there is a leader."""
        return self.leader is not None and self.role in (Role.COHORT, Role.LEADER)

    @property
    def has_no_quorum(self) -> bool:
        """Whether the network cannot have one yet."""
        return self.has_fixed_quorum and self.id is not None and len(self.registry) < self.quorum

    def knows_leader(self, leader: int) -> bool:
        """Return whether somebody leads this network, or did."""
        return leader in (self.id, self.durable.leader) or leader in self.registry or self.registry.was_dropped(leader)

    def network_mismatch(self, val: str) -> str | None:
        """Return what a PING says of its network that is otherwise here; ``None`` if it says nothing like that."""
        theirs, ours = _VAL_SUFFIX.search(val), _VAL_SUFFIX.search(self.val_suffix)
        assert ours is not None, "it was made to match"
        if theirs is None or theirs[0] == ours[0]:
            return None
        if theirs[1] != ours[1]:
            return f"is of another network than {self.config.network!r}"
        return f"says --network-size {theirs[2]}, and this node {ours[2]}"

    def has_room(self) -> bool:
        """Return whether one more may become a node (rule S1)."""
        size = self.config.network_size
        return not self.has_fixed_quorum or size is None or self.registry.places_taken() < size

    def apply_role_input(self, name: str, reason: str) -> bool:
        """Something of :class:`~fyrehose_twisted.hydra.node.roles.RoleInputs` happened; returns whether the role
        changed."""
        if not self._roles.apply(name, reason):
            return False
        self.output.emit(RoleChanged(self.role, reason))
        return True

    def new_id(self) -> int:
        """Return an id that nobody has, as far as is known."""
        while True:
            one = self.rng.randint(1, MAX_ID)
            if one not in self.registry and one not in self.registry.reservations and one != self.id:
                return one

    def set_id(self, node_id: int | None) -> None:
        """Have another id, or none."""
        if node_id != self.id:
            self.id = node_id
            self.output.emit(IdChanged(node_id))

    def follow(self, leader: int | None, term: int, now: float) -> None:
        """Follow somebody, in a term, or nobody."""
        if leader is not None:
            self.update_durable(term=term, leader=leader)
        if leader == self.leader and leader is None:
            return
        self.leader, self.leader_since = leader, now
        member = self.registry.get(leader)
        tag = self.config.tag if leader == self.id else "" if member is None else member.tag
        self.output.emit(LeaderChanged(term, leader, tag))

    # Promises

    def update_durable(self, **what: Any) -> None:
        """Be bound by something; it becomes durable before anything is sent."""
        durable = self.durable._replace(**what)
        if durable != self.durable:
            self.durable = durable
            self.output.persist(durable)

    def promised_to(self, now: float) -> int | None:
        """Return whom the node helps to lead, and must not desert yet (rule S5)."""
        durable = self.durable
        return durable.promised if durable.promised and now < durable.until else None

    def may_help(self, node: int, now: float) -> bool:
        """Return whether nothing that was promised to somebody else stands against helping ``node`` to lead."""
        if not self.has_fixed_quorum:
            return True
        return now >= self.quiet_until and self.promised_to(now) in (None, node)

    def promise(self, node: int, now: float) -> None:
        """Help a node to lead, and nobody else for a while."""
        self.update_durable(promised=node, until=now + self.timers.promise)

    def promise_to_leader(self, leader: int, now: float) -> bool:
        """Promise what an answer to the last PING of a leader promises; return whether nothing stands against that."""
        if self.val.startswith(NO_QUORUM_PREFIX):
            return True
        if not self.may_help(leader, now):
            return False
        self.promise(leader, now)
        return True

    def release_promise(self, node: int) -> bool:
        """A node does not lead any more: what was promised to it ends (rule S7). Returns whether anything was."""
        if self.durable.promised != node:
            return False
        self.update_durable(promised=0, until=0.0)
        return True

    def answer_deferred_ping(self, now: float) -> None:
        """Answer the leader's PING, if nothing that was promised stands against it."""
        if self.deferred_ping is None:
            return
        leader, me = self.leader, self.id
        if leader is None or me is None or leader == me:
            self.deferred_ping = None
        elif self.promise_to_leader(leader, now):
            self.flood(Pong(self.deferred_ping, me, 0, self.config.tag), now)
            self.deferred_ping = None

    # Everybody

    def flood(self, message: Message, now: float, source: PeerLink | None = None) -> None:
        """Send a message to every neighbour, but not back to where it came from."""
        skip = None if source is None else source.node
        for node, link in self.links.primary.items():
            if node != skip:
                self.links.write(link, message, now)

    def flood_ping(self, ping: Ping, now: float, source: PeerLink | None = None) -> None:
        """The same with a PING, which goes over every link: so others learn that there is a network."""
        self.flood(ping, now, source)
        for link in self.links:
            if not link.bound and link is not source:
                self.links.write(link, ping, now)

    def flood_line(self, message: Recv | Send, now: float, source: PeerLink | None = None) -> None:
        """The same with a line. A neighbour that does not read fast enough misses it, and the reference what it cannot
        take."""
        skip = None if source is None else source.node
        write = self.output.write
        for node, link in self.links.primary.items():
            if node == skip:
                continue
            if (link.blocked or link.line_rate is not None) and not link.try_send_line(now):
                self.counters["lines_held_back"] += 1
                continue
            link.last_sent_at = now
            write(link.peer, message)
        if (
            self.has_legacy_peers
            and isinstance(message, Recv)
            and len(message.line) <= LEGACY_MAX_LINE - _FRAMING_BYTES
        ):
            if command_of(message.line) not in E_RECV:
                return  # The reference knows no errors of IRC.
            for link in self.legacy_links():
                self.links.write(link, message, now)

    def legacy_links(self) -> list[PeerLink]:
        """Return the links to the reference."""
        return [link for link in self.links if link.legacy and link.node is not None] if self.has_legacy_peers else []

    has_legacy_peers = False
    """Whether the reference was ever met."""

    def warn(self, text: str) -> None:
        """Let whoever runs the node know."""
        self.output.emit(OperatorWarning(text))
