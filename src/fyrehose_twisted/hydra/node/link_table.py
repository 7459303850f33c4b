"""The links of a node: those that it keeps open, those that others opened, and whom each leads to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from random import Random

from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.hydra.config import Target, Timers
from fyrehose_twisted.hydra.node.output import Outbox
from fyrehose_twisted.hydra.wire.messages import Keepalive, Message

MAX_BAD = 100
"""Malformed lines after which a link is closed."""
_BURST = 3.0
"""Lines that may go over a slow link at once."""
_REDIAL = 0.5, 2.0
"""Seconds until a link is opened anew: first, and at most."""


@dataclass(slots=True, eq=False)
class Tie:
    """One link that is open.

    :ivar node: whom it leads to, once that is known: the link is bound.
    :ivar knocked: with which id the other end knocked, if it did.
    :ivar knock: with which id this node knocked here.
    :ivar mediator: who answered that first.
    :ivar term: that of the last PING that came over it: what comes after it is of that term.
    :ivar pinged: when a PING came while it was not bound.
    :ivar leader: the node that leads the network behind it, as that PING says.
    :ivar quorate: whether that network may have a quorum.
    :ivar legacy: whether the reference is at the other end; :attr:`node` is its id then.
    :ivar guardian: whether at the other end is somebody who only watches over the node that it names.
    :ivar foreign: whether a node of another network is at the other end, or of one of another size.
    :ivar asked: when this node said last who it is, because the other end seems to take the link for bound.
    :ivar lines: lines that may go over it in a second; ``None`` for any number.
    """

    peer: Peer
    heard: float
    wrote: float
    target: Address | None = None
    node: int | None = None
    knocked: int | None = None
    knock: int | None = None
    mediator: int | None = None
    term: int = -1
    pinged: float = -inf
    leader: int | None = None
    quorate: bool = False
    legacy: bool = False
    guardian: bool = False
    foreign: bool = False
    blocked: bool = False
    bad: int = 0
    asked: float = -inf
    lines: float | None = None
    credit: float = _BURST
    credited: float = -inf

    def takes_line(self, now: float) -> bool:
        """Return whether a line may go over it now; if so, it does."""
        if self.blocked:
            return False
        if self.lines is not None:
            self.credit = min(_BURST, self.credit + max(0.0, now - self.credited) * self.lines)
            self.credited = now
            if self.credit < 1.0:
                return False
            self.credit -= 1.0
        return True

    @property
    def ordinary(self) -> bool:
        """Whether a node of this network may be at the other end, as far as is known."""
        return not self.legacy and not self.guardian and not self.foreign

    @property
    def bound(self) -> bool:
        """Whether it leads to a node of the network."""
        return self.node is not None and not self.legacy

    @property
    def carries(self) -> bool:
        """Whether what goes to everybody goes over it."""
        return self.bound and not self.guardian


@dataclass(slots=True)
class _Dialling:
    target: Target
    peer: Peer | None = None
    under_way: bool = False
    tried: bool = False
    due: float = 0.0
    wait: float = 0.0
    why: str = field(default="")


class Ties:
    """Keeps links open, and knows which are.

    :ivar primary: for each node, the link over which it gets what goes to everybody.
    :ivar switched: links that became such since somebody looked.
    """

    def __init__(self, targets: Iterable[Target], timers: Timers, out: Outbox, rng: Random, now: float) -> None:
        self.primary: dict[int, Tie] = {}
        self.switched: list[Tie] = []
        self._timers = timers
        self._out = out
        self._rng = rng
        self._open: dict[Peer, Tie] = {}
        self._ticked = now
        self._targets = {target.address: _Dialling(target, due=now) for target in targets}

    def __iter__(self) -> Iterator[Tie]:
        return iter(list(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    def get(self, peer: Peer) -> Tie | None:
        """Return the link, ``None`` if it is closed."""
        return self._open.get(peer)

    @property
    def accepted(self) -> int:
        """Links that others opened."""
        return sum(tie.target is None for tie in self._open.values())

    @property
    def all_tried(self) -> bool:
        """Whether each of those that it keeps open was tried at least once."""
        return all(dialling.tried for dialling in self._targets.values())

    def closed_targets(self) -> list[tuple[Address, str]]:
        """Return which links should be open and are not, and why."""
        return [(dialling.target.address, dialling.why) for dialling in self._targets.values() if dialling.peer is None]

    # What happens to them

    def connected(self, peer: Peer, now: float) -> Tie:
        """A link is open."""
        tie = self._open[peer] = Tie(peer, now, now)
        dialling = self._targets.get(peer.address) if peer.dialled else None
        if dialling is not None:
            dialling.peer, dialling.under_way, dialling.tried, dialling.wait = peer, False, True, 0.0
            tie.target, tie.legacy, tie.lines = peer.address, dialling.target.legacy, dialling.target.lines
        return tie

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """A link did not open."""
        dialling = self._targets.get(address)
        if dialling is not None:
            dialling.under_way, dialling.tried, dialling.why = False, True, reason
            self._later(dialling, now)

    def ended(self, peer: Peer, now: float, why: str = "closed") -> Tie | None:
        """A link is closed; return what it was."""
        tie = self._open.pop(peer, None)
        if tie is None:
            return None
        if tie in self.switched:
            self.switched.remove(tie)
        dialling = None if tie.target is None else self._targets.get(tie.target)
        if dialling is not None and dialling.peer == peer:
            dialling.peer, dialling.why = None, why
            self._later(dialling, now)
        self._choose(tie.node)
        return tie

    def hang_up(self, tie: Tie, now: float, why: str) -> None:
        """Close a link."""
        self._out.hang_up(tie.peer)
        self.ended(tie.peer, now, why)

    def bind(self, tie: Tie, node: int) -> None:
        """It is known whom a link leads to."""
        before, tie.node = tie.node, node
        self._choose(before)
        self._choose(node)

    def unbind(self, node: int) -> list[Tie]:
        """A node is no longer one; return the links that led to it."""
        found = [tie for tie in self if tie.bound and tie.node == node]
        for tie in found:
            tie.node = None
        self.primary.pop(node, None)
        return found

    # What goes over them

    def write(self, tie: Tie, message: Message, now: float) -> None:
        """Send a message over one link."""
        tie.wrote = now
        self._out.write(tie.peer, message)

    # Time

    def tick(self, now: float) -> list[Tie]:
        """Open what should be open, show signs of life; return the links that have been silent for too long."""
        every = self._timers.max_ping / 2
        if now > self._ticked + 2 * every:
            # This process stood still: what others sent meanwhile is there to be read.
            for tie in self._open.values():
                tie.heard = max(tie.heard, now - every)
        self._ticked = now
        for dialling in self._targets.values():
            if dialling.peer is None and not dialling.under_way and dialling.due <= now:
                dialling.under_way = True
                self._out.dial(dialling.target.address)
        silent = []
        for tie in self._open.values():
            if not tie.legacy:
                if tie.wrote + every <= now:
                    self.write(tie, Keepalive(), now)
                if tie.heard + 1.5 * self._timers.max_ping <= now:
                    silent.append(tie)
        return silent

    def next_deadline(self) -> float:
        """Return when :meth:`tick` has something to do."""
        every = self._timers.max_ping / 2
        due = inf
        for dialling in self._targets.values():
            if dialling.peer is None and not dialling.under_way:
                due = min(due, dialling.due)
        for tie in self._open.values():
            if not tie.legacy:
                due = min(due, tie.wrote + every, tie.heard + 1.5 * self._timers.max_ping)
        return due

    def _later(self, dialling: _Dialling, now: float) -> None:
        first, most = _REDIAL
        dialling.wait = min(max(dialling.wait * 2, first), most)
        dialling.due = now + dialling.wait * self._timers.scale * self._rng.uniform(0.8, 1.2)

    def _choose(self, node: int | None) -> None:
        if node is None:
            return
        for tie in self._open.values():
            if tie.carries and tie.node == node:
                if self.primary.get(node) is not tie:
                    self.primary[node] = tie
                    self.switched.append(tie)
                return
        self.primary.pop(node, None)


def link_name(peer: Peer | None) -> str:
    """Return what a link is called: where it leads, or from where it came; nothing for none."""
    return "" if peer is None else link_place(peer.address) if peer.dialled else f"from {link_place(peer.address)}"


def link_place(address: Address) -> str:
    """Return where a link leads: ``HOST:PORT``, or its link string, which has no port beside it."""
    host, port = address
    return f"{host}:{port}" if port else host
