"""Where a node stands: what all its parts know, and how messages reach everybody."""

from __future__ import annotations

import re
from collections import Counter
from math import inf
from random import Random
from typing import Any
from zlib import crc32

from fyrehose_twisted.hydra.config import NodeConfig, Quorum
from fyrehose_twisted.hydra.events import Complaint, IdChanged, LeaderChanged, Role, RoleChanged
from fyrehose_twisted.hydra.node.durable_state import Vow
from fyrehose_twisted.hydra.node.link_table import Tie, Ties
from fyrehose_twisted.hydra.node.output import Outbox
from fyrehose_twisted.hydra.node.registry import Registry
from fyrehose_twisted.hydra.node.roles import Roles
from fyrehose_twisted.hydra.wire.lines import command_of
from fyrehose_twisted.hydra.wire.messages import E_RECV, FOUNDING, LEGACY_LINE, MAX_ID, Message, Ping, Pong, Recv, Send

_MARK = re.compile(r"/([0-9a-f]{4})\.([0-9]{1,2})$")
_FRAME = 32
"""Bytes that a RECV or SEND has around its line, at most."""


class Standing:
    """What the parts of a node share.

    :ivar id: the node's id; ``None`` while it belongs to no network.
    :ivar leader: whom it follows; itself, where it leads.
    :ivar val: the last PING that it accepted, or sent.
    :ivar heard: when that was.
    :ivar member_since: since when it belongs to the network.
    :ivar led_since: since when it follows :attr:`leader`.
    :ivar founding: whether it began the network, and never had a quorum.
    :ivar quiet_until: until when it helps nobody, for it does not know whom it promised what.
    :ivar fresh: whether it was taken in, and has followed no leader yet.
    :ivar withheld: a PING that it may answer only once what it promised to another is over.
    :ivar was_member: whether it ever belonged to a network.
    """

    def __init__(self, config: NodeConfig, rng: Random, now: float, vow: Vow, *, remembers: bool) -> None:
        self.config = config
        self.timers = config.timers
        self.rng = rng
        self.counts: Counter[str] = Counter()
        self.out = Outbox()
        self.ties = Ties(config.targets, config.timers, self.out, rng, now)
        self.registry = Registry()
        self.vow = vow
        self.mark = f"/{crc32(config.network.encode()) & 0xFFFF:04x}.{config.network_size or 0}"
        """How the val of its PINGs ends: which network it is of, and how large that may be; 0 without a limit."""
        self.id: int | None = None
        self.leader: int | None = None
        self.val = ""
        self.heard = -inf
        self.member_since = now
        self.led_since = now
        self.founding = False
        self.quiet_until = now if remembers else now + self.timers.promise
        self.fresh = False
        self.withheld: str | None = None
        self.was_member = False
        self._roles = Roles()

    # Where it stands

    @property
    def role(self) -> Role:
        """What the node is."""
        return self._roles.role

    @property
    def why(self) -> str:
        """What made the role change last."""
        return self._roles.why

    @property
    def fixed(self) -> bool:
        """Whether the quorum is more than half of all nodes that there may be."""
        return self.config.quorum is Quorum.FIXED

    @property
    def quorum(self) -> int:
        """Votes that an election takes (rule S1)."""
        size = self.config.network_size if self.fixed else None
        return (len(self.registry) if size is None else size) // 2 + 1

    @property
    def in_term(self) -> bool:
        """Whether there is a leader."""
        return self.leader is not None and self.role in (Role.COHORT, Role.LEADER)

    @property
    def has_no_quorum(self) -> bool:
        """Whether the network cannot have one yet."""
        return self.fixed and self.id is not None and len(self.registry) < self.quorum

    def knows(self, leader: int) -> bool:
        """Return whether somebody leads this network, or did."""
        return leader in (self.id, self.vow.leader) or leader in self.registry or self.registry.was_dropped(leader)

    def mismatch(self, val: str) -> str | None:
        """Return what a PING says of its network that is otherwise here; ``None`` if it says nothing like that."""
        theirs, ours = _MARK.search(val), _MARK.search(self.mark)
        assert ours is not None, "it was made to match"
        if theirs is None or theirs[0] == ours[0]:
            return None
        if theirs[1] != ours[1]:
            return f"is of another network than {self.config.network!r}"
        return f"says --network-size {theirs[2]}, and this node {ours[2]}"

    def has_room(self) -> bool:
        """Return whether one more may become a node (rule S1)."""
        size = self.config.network_size
        return not self.fixed or size is None or self.registry.taken() < size

    def happened(self, what: str, why: str) -> bool:
        """Something of :class:`~fyrehose_twisted.hydra.node.roles.Turns` happened; returns whether the role changed."""
        if not self._roles.happened(what, why):
            return False
        self.out.tell(RoleChanged(self.role, why))
        return True

    def new_id(self) -> int:
        """Return an id that nobody has, as far as is known."""
        while True:
            one = self.rng.randint(1, MAX_ID)
            if one not in self.registry and one not in self.registry.pending and one != self.id:
                return one

    def take_id(self, one: int | None) -> None:
        """Have another id, or none."""
        if one != self.id:
            self.id = one
            self.out.tell(IdChanged(one))

    def follow(self, leader: int | None, term: int, now: float) -> None:
        """Follow somebody, in a term, or nobody."""
        if leader is not None:
            self.change(term=term, leader=leader)
        if leader == self.leader and leader is None:
            return
        self.leader, self.led_since = leader, now
        member = self.registry.get(leader)
        tag = self.config.tag if leader == self.id else "" if member is None else member.tag
        self.out.tell(LeaderChanged(term, leader, tag))

    # Promises

    def change(self, **what: Any) -> None:
        """Be bound by something; it becomes durable before anything is sent."""
        vow = self.vow._replace(**what)
        if vow != self.vow:
            self.vow = vow
            self.out.keep(vow)

    def promised(self, now: float) -> int | None:
        """Return whom the node helps to lead, and must not desert yet (rule S5)."""
        vow = self.vow
        return vow.promised if vow.promised and now < vow.until else None

    def may_help(self, node: int, now: float) -> bool:
        """Return whether nothing that was promised to somebody else stands against helping ``node`` to lead."""
        if not self.fixed:
            return True
        return now >= self.quiet_until and self.promised(now) in (None, node)

    def promise(self, node: int, now: float) -> None:
        """Help a node to lead, and nobody else for a while."""
        self.change(promised=node, until=now + self.timers.promise)

    def bind(self, leader: int, now: float) -> bool:
        """Promise what an answer to the last PING of a leader promises; return whether nothing stands against that."""
        if self.val.startswith(FOUNDING):
            return True
        if not self.may_help(leader, now):
            return False
        self.promise(leader, now)
        return True

    def release(self, node: int) -> bool:
        """A node does not lead any more: what was promised to it ends (rule S7). Returns whether anything was."""
        if self.vow.promised != node:
            return False
        self.change(promised=0, until=0.0)
        return True

    def answer_withheld(self, now: float) -> None:
        """Answer the leader's PING, if nothing that was promised stands against it."""
        if self.withheld is None:
            return
        leader, me = self.leader, self.id
        if leader is None or me is None or leader == me:
            self.withheld = None
        elif self.bind(leader, now):
            self.flood(Pong(self.withheld, me, 0, self.config.tag), now)
            self.withheld = None

    # Everybody

    def flood(self, message: Message, now: float, source: Tie | None = None) -> None:
        """Send a message to every neighbour, but not back to where it came from."""
        skip = None if source is None else source.node
        for node, tie in self.ties.primary.items():
            if node != skip:
                self.ties.write(tie, message, now)

    def flood_ping(self, ping: Ping, now: float, source: Tie | None = None) -> None:
        """The same with a PING, which goes over every link: so others learn that there is a network."""
        self.flood(ping, now, source)
        for tie in self.ties:
            if not tie.bound and tie is not source:
                self.ties.write(tie, ping, now)

    def flood_line(self, message: Recv | Send, now: float, source: Tie | None = None) -> None:
        """The same with a line. A neighbour that does not read fast enough misses it, and the reference what it cannot
        take."""
        skip = None if source is None else source.node
        write = self.out.write
        for node, tie in self.ties.primary.items():
            if node == skip:
                continue
            if (tie.blocked or tie.lines is not None) and not tie.takes_line(now):
                self.counts["lines_held_back"] += 1
                continue
            tie.wrote = now
            write(tie.peer, message)
        if self.has_guests and isinstance(message, Recv) and len(message.line) <= LEGACY_LINE - _FRAME:
            if command_of(message.line) not in E_RECV:
                return  # The reference knows no errors of IRC.
            for tie in self.guests():
                self.ties.write(tie, message, now)

    def guests(self) -> list[Tie]:
        """Return the links to the reference."""
        return [tie for tie in self.ties if tie.legacy and tie.node is not None] if self.has_guests else []

    has_guests = False
    """Whether the reference was ever met."""

    def complain(self, text: str) -> None:
        """Let whoever runs the node know."""
        self.out.tell(Complaint(text))
