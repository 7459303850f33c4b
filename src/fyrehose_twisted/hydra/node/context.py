"""State that the components of a node share, and flooding of messages."""

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
    GUARDIAN_TAG,
    LEGACY_MAX_LINE,
    MAX_ID,
    NO_QUORUM_PREFIX,
    Drop,
    Knock,
    Message,
    Ping,
    Pong,
    Recv,
    Send,
)
from fyrehose_twisted.hydra.wire.ping_val import claimed_lease
from fyrehose_twisted.lru_set import LruSet

_VAL_SUFFIX = re.compile(r"/([0-9a-f]{4})\.([0-9]{1,2})$")
_MAX_DROPPED_IDS = 16
"""Number of former ids that a node remembers."""
_FRAMING_BYTES = 32
"""Largest framing of a RECV or SEND around its line, in bytes."""


class NodeContext:
    """Shared state of the components of a node.

    :ivar id: id of the node; ``None`` while it belongs to no network.
    :ivar leader: id of the leader that the node follows; its own id if it leads.
    :ivar val: token of the last PING that it accepted or sent.
    :ivar last_ping_at: time of that PING.
    :ivar member_since: time at which it joined the network.
    :ivar leader_since: time at which it began to follow :attr:`leader`.
    :ivar bootstrapping: whether it bootstrapped the network and has never had a quorum.
    :ivar quiet_until: time until which it makes no promise because it does not know its earlier ones.
    :ivar newly_inducted: whether it was inducted and has not followed a leader yet.
    :ivar deferred_ping: token of a PING that it may answer only after its promise to another leader ends.
    :ivar was_member: whether it ever belonged to a network.
    :ivar dropped_ids: former ids of the node that it dropped itself. It had no IRC connection under them by then.
    :ivar former_id: last of these ids.
    :ivar former_nodes: nodes of its last network, which may not have heard that it left under that id.
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
        """Suffix of the val of its PINGs: hash of the network name, and network size, 0 if unlimited."""
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
        self.dropped_ids = LruSet(_MAX_DROPPED_IDS)
        self.former_id = 0
        self.former_nodes: frozenset[int] = frozenset()
        self._roles = RoleMachine()

    # Role and quorum

    @property
    def role(self) -> Role:
        """Role of the node."""
        return self._roles.role

    @property
    def role_reason(self) -> str:
        """Reason of the last role change."""
        return self._roles.reason

    @property
    def has_fixed_quorum(self) -> bool:
        """Whether the quorum is a majority of the configured network size."""
        return self.config.quorum is Quorum.FIXED

    @property
    def quorum(self) -> int:
        """Number of votes that an election takes (rule S1)."""
        size = self.config.network_size if self.has_fixed_quorum else None
        return (len(self.registry) if size is None else size) // 2 + 1

    @property
    def in_term(self) -> bool:
        """Whether the network has a leader."""
        return self.leader is not None and self.role in (Role.COHORT, Role.LEADER)

    @property
    def has_no_quorum(self) -> bool:
        """Whether the network has too few nodes for a quorum."""
        return self.has_fixed_quorum and self.id is not None and len(self.registry) < self.quorum

    def knows_leader(self, leader: int) -> bool:
        """Return whether a node leads this network, led it, or belongs or belonged to it."""
        return leader in (self.id, self.durable.leader) or leader in self.registry or self.registry.was_dropped(leader)

    def network_mismatch(self, val: str) -> str | None:
        """Return the difference between the network of a PING and this one, ``None`` if there is none."""
        theirs, ours = _VAL_SUFFIX.search(val), _VAL_SUFFIX.search(self.val_suffix)
        assert ours is not None, "the suffix has this form"
        if theirs is None or theirs[0] == ours[0]:
            return None
        if theirs[1] != ours[1]:
            return f"is of another network than {self.config.network!r}"
        return f"says --network-size {theirs[2]}, and this node {ours[2]}"

    def has_room(self) -> bool:
        """Return whether the network may induct another node (rule S1)."""
        size = self.config.network_size
        return not self.has_fixed_quorum or size is None or self.registry.places_taken() < size

    def apply_role_input(self, name: str, reason: str) -> bool:
        """Apply an input of :class:`~fyrehose_twisted.hydra.node.roles.RoleInputs`.

        :returns: whether the role changed.
        """
        if not self._roles.apply(name, reason):
            return False
        self.output.emit(RoleChanged(self.role, reason))
        return True

    def new_id(self) -> int:
        """Return a random id that no known node has."""
        while True:
            node_id = self.rng.randint(1, MAX_ID)
            if node_id not in self.registry and node_id not in self.registry.reservations and node_id != self.id:
                return node_id

    def set_id(self, node_id: int | None) -> None:
        """Set the id of the node; ``None`` for none."""
        if node_id != self.id:
            self.id = node_id
            self.output.emit(IdChanged(node_id))

    def follow(self, leader: int | None, term: int, now: float) -> None:
        """Follow a leader in a term, or none."""
        if leader is not None:
            self.update_durable(term=term, leader=leader)
        if leader == self.leader and leader is None:
            return
        self.leader, self.leader_since = leader, now
        member = self.registry.get(leader)
        tag = self.config.tag if leader == self.id else "" if member is None else member.tag
        self.output.emit(LeaderChanged(term, leader, tag))

    # Promises

    def update_durable(self, **changes: Any) -> None:
        """Update the durable state; it is persisted before any later message is sent."""
        durable = self.durable._replace(**changes)
        if durable != self.durable:
            self.durable = durable
            self.output.persist(durable)

    def promised_to(self, now: float) -> int | None:
        """Return the leader that the node's current promise is for, ``None`` without one (rule S5)."""
        durable = self.durable
        return durable.promised if durable.promised and now < durable.until else None

    def may_help(self, node: int, now: float) -> bool:
        """Return whether no promise to another node forbids helping ``node`` to lead."""
        if not self.has_fixed_quorum:
            return True
        return now >= self.quiet_until and self.promised_to(now) in (None, node)

    def promise(self, node: int, now: float) -> None:
        """Promise a node to help no other one to lead for the promise time of the last PING."""
        timers, claimed = self.timers, claimed_lease(self.val)
        until = now + (timers.promise if claimed is None else timers.promise_for(claimed))
        if self.durable.promised == node:
            # An earlier PING may have given it a longer lease.
            until = max(until, self.durable.until)
        self.update_durable(promised=node, until=until)

    def promise_to_leader(self, leader: int, now: float) -> bool:
        """Make the promise that a PONG to the leader's last PING implies; return whether it is allowed."""
        if self.val.startswith(NO_QUORUM_PREFIX):
            return True
        if not self.may_help(leader, now):
            return False
        if (claimed_lease(self.val) or 0.0) > self.timers.lease:
            # After a restart without memory this node would stay quiet for too short a time.
            self.counters["leases_too_long"] += 1
            return False
        self.promise(leader, now)
        return True

    def release_promise(self, node: int) -> bool:
        """End the promise to a node that no longer leads; return whether there was one (rule S7)."""
        if self.durable.promised != node:
            return False
        self.update_durable(promised=0, until=0.0)
        return True

    def answer_deferred_ping(self, now: float) -> None:
        """Answer the deferred PING of the leader if no other promise forbids it."""
        if self.deferred_ping is None:
            return
        leader, me = self.leader, self.id
        if leader is None or me is None or leader == me:
            self.deferred_ping = None
        elif self.promise_to_leader(leader, now):
            self.flood(Pong(self.deferred_ping, me, 0, self.config.tag), now)
            self.deferred_ping = None

    def repeat_drop(self, former_id: int, link: PeerLink, now: float) -> None:
        """Send this node's DROP again to a peer that may still take its former id for a node (rule S7).

        A connection that breaks loses the DROP, and the peer would wait for the leader, or keep the place of the node.
        A KNOCK of a guardian binds the link to the id, as only the node itself or its guardian may send this DROP, and
        it never begins an induction.
        """
        self.counters["drops_repeated"] += 1
        self.links.write(link, Knock(former_id, GUARDIAN_TAG), now)
        self.links.write(link, Drop(former_id, "left before"), now)

    # Flooding

    def flood(self, message: Message, now: float, source: PeerLink | None = None) -> None:
        """Send a message to every neighbour except its source."""
        skip = None if source is None else source.node
        for node, link in self.links.primary.items():
            if node != skip and (link.line_rate is None or self._suits_slow_link(message, link, now)):
                self.links.write(link, message, now)

    def flood_ping(self, ping: Ping, now: float, source: PeerLink | None = None) -> None:
        """Flood a PING, and send it over unbound links too, to reveal the network to other peers."""
        self.flood(ping, now, source)
        for link in self.links:
            if not link.bound and link is not source and self._suits_slow_link(ping, link, now):
                self.links.write(link, ping, now)

    def _suits_slow_link(self, message: Message, link: PeerLink, now: float) -> bool:
        """Return whether a link with a rate carries a message: of the quick PINGs, as many as of the others."""
        if link.line_rate is None or not isinstance(message, Ping | Pong) or claimed_lease(message.val) is None:
            return True
        if isinstance(message, Pong):
            return message.val == link.quick_val
        if now < link.quick_ping_at + self.timers.ping_interval:
            return False
        link.quick_ping_at, link.quick_val = now, message.val
        return True

    def flood_line(self, message: Recv | Send, now: float, source: PeerLink | None = None) -> None:
        """Flood a line from or for IRC.

        A neighbour that reads too slowly misses the line. A legacy peer misses lines that it cannot process.
        """
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
                return  # Legacy peers know no IRC errors.
            for link in self.legacy_links():
                self.links.write(link, message, now)

    def legacy_links(self) -> list[PeerLink]:
        """Return the links to legacy peers."""
        return [link for link in self.links if link.legacy and link.node is not None] if self.has_legacy_peers else []

    has_legacy_peers = False
    """Whether a legacy peer ever connected."""

    def warn(self, text: str) -> None:
        """Emit a warning for the operator."""
        self.output.emit(OperatorWarning(text))
