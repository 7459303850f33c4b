"""The links of a node: those that it keeps open, those that others opened, and whom each leads to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from random import Random

from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.hydra.config import LinkTarget, Timers
from fyrehose_twisted.hydra.node.output import NodeOutput
from fyrehose_twisted.hydra.wire.messages import Keepalive, Message

MAX_MALFORMED_LINES = 100
"""Malformed lines after which a link is closed."""
_LINE_BURST = 3.0
"""Lines that may go over a slow link at once."""
_REDIAL_DELAYS = 0.5, 2.0
"""Seconds until a link is opened anew: first, and at most."""


@dataclass(slots=True, eq=False)
class PeerLink:
    """One link that is open.

    :ivar node: whom it leads to, once that is known: the link is bound.
    :ivar peer_knock_id: with which id the other end knocked, if it did.
    :ivar own_knock_id: with which id this node knocked here.
    :ivar mediator: who answered that first.
    :ivar term: that of the last PING that came over it: what comes after it is of that term.
    :ivar unbound_ping_at: when a PING came while it was not bound.
    :ivar network_leader: the node that leads the network behind it, as that PING says.
    :ivar network_has_quorum: whether that network may have a quorum.
    :ivar legacy: whether the reference is at the other end; :attr:`node` is its id then.
    :ivar guardian: whether at the other end is somebody who only watches over the node that it names.
    :ivar foreign: whether a node of another network is at the other end, or of one of another size.
    :ivar probed_at: when this node said last who it is, because the other end seems to take the link for bound.
    :ivar line_rate: lines that may go over it in a second; ``None`` for any number.
    """

    peer: Peer
    last_received_at: float
    last_sent_at: float
    target: Address | None = None
    node: int | None = None
    peer_knock_id: int | None = None
    own_knock_id: int | None = None
    mediator: int | None = None
    term: int = -1
    unbound_ping_at: float = -inf
    network_leader: int | None = None
    network_has_quorum: bool = False
    legacy: bool = False
    guardian: bool = False
    foreign: bool = False
    blocked: bool = False
    malformed_lines: int = 0
    probed_at: float = -inf
    line_rate: float | None = None
    credit: float = _LINE_BURST
    credited_at: float = -inf

    def try_send_line(self, now: float) -> bool:
        """Return whether a line may go over it now; if so, it does."""
        if self.blocked:
            return False
        if self.line_rate is not None:
            self.credit = min(_LINE_BURST, self.credit + max(0.0, now - self.credited_at) * self.line_rate)
            self.credited_at = now
            if self.credit < 1.0:
                return False
            self.credit -= 1.0
        return True

    @property
    def is_regular(self) -> bool:
        """Whether a node of this network may be at the other end, as far as is known."""
        return not self.legacy and not self.guardian and not self.foreign

    @property
    def bound(self) -> bool:
        """Whether it leads to a node of the network."""
        return self.node is not None and not self.legacy

    @property
    def relays(self) -> bool:
        """Whether what goes to everybody goes over it."""
        return self.bound and not self.guardian


@dataclass(slots=True)
class _DialState:
    target: LinkTarget
    peer: Peer | None = None
    in_progress: bool = False
    tried: bool = False
    due: float = 0.0
    delay: float = 0.0
    last_error: str = field(default="")


class LinkTable:
    """Keeps links open, and knows which are.

    :ivar primary: for each node, the link over which it gets what goes to everybody.
    :ivar new_primaries: links that became such since somebody looked.
    """

    def __init__(
        self, targets: Iterable[LinkTarget], timers: Timers, output: NodeOutput, rng: Random, now: float
    ) -> None:
        self.primary: dict[int, PeerLink] = {}
        self.new_primaries: list[PeerLink] = []
        self._timers = timers
        self._output = output
        self._rng = rng
        self._links: dict[Peer, PeerLink] = {}
        self._last_tick = now
        self._targets = {target.address: _DialState(target, due=now) for target in targets}

    def __iter__(self) -> Iterator[PeerLink]:
        return iter(list(self._links.values()))

    def __len__(self) -> int:
        return len(self._links)

    def get(self, peer: Peer) -> PeerLink | None:
        """Return the link, ``None`` if it is closed."""
        return self._links.get(peer)

    @property
    def accepted(self) -> int:
        """Links that others opened."""
        return sum(link.target is None for link in self._links.values())

    @property
    def all_tried(self) -> bool:
        """Whether each of those that it keeps open was tried at least once."""
        return all(dialling.tried for dialling in self._targets.values())

    def closed_targets(self) -> list[tuple[Address, str]]:
        """Return which links should be open and are not, and why."""
        return [
            (dialling.target.address, dialling.last_error)
            for dialling in self._targets.values()
            if dialling.peer is None
        ]

    # What happens to them

    def connected(self, peer: Peer, now: float) -> PeerLink:
        """A link is open."""
        link = self._links[peer] = PeerLink(peer, now, now)
        dialling = self._targets.get(peer.address) if peer.dialled else None
        if dialling is not None:
            dialling.peer, dialling.in_progress, dialling.tried, dialling.delay = peer, False, True, 0.0
            link.target, link.legacy, link.line_rate = peer.address, dialling.target.legacy, dialling.target.line_rate
        return link

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """A link did not open."""
        dialling = self._targets.get(address)
        if dialling is not None:
            dialling.in_progress, dialling.tried, dialling.last_error = False, True, reason
            self._schedule_redial(dialling, now)

    def remove(self, peer: Peer, now: float, reason: str = "closed") -> PeerLink | None:
        """A link is closed; return what it was."""
        link = self._links.pop(peer, None)
        if link is None:
            return None
        if link in self.new_primaries:
            self.new_primaries.remove(link)
        dialling = None if link.target is None else self._targets.get(link.target)
        if dialling is not None and dialling.peer == peer:
            dialling.peer, dialling.last_error = None, reason
            self._schedule_redial(dialling, now)
        self._choose_primary(link.node)
        return link

    def close(self, link: PeerLink, now: float, reason: str) -> None:
        """Close a link."""
        self._output.close(link.peer)
        self.remove(link.peer, now, reason)

    def bind(self, link: PeerLink, node: int) -> None:
        """It is known whom a link leads to."""
        before, link.node = link.node, node
        self._choose_primary(before)
        self._choose_primary(node)

    def unbind(self, node: int) -> list[PeerLink]:
        """A node is no longer one; return the links that led to it."""
        found = [link for link in self if link.bound and link.node == node]
        for link in found:
            link.node = None
        self.primary.pop(node, None)
        return found

    # What goes over them

    def write(self, link: PeerLink, message: Message, now: float) -> None:
        """Send a message over one link."""
        link.last_sent_at = now
        self._output.write(link.peer, message)

    # Time

    def tick(self, now: float) -> list[PeerLink]:
        """Open what should be open, show signs of life; return the links that have been silent for too long."""
        every = self._timers.max_ping / 2
        if now > self._last_tick + 2 * every:
            # This process stood still: what others sent meanwhile is there to be read.
            for link in self._links.values():
                link.last_received_at = max(link.last_received_at, now - every)
        self._last_tick = now
        for dialling in self._targets.values():
            if dialling.peer is None and not dialling.in_progress and dialling.due <= now:
                dialling.in_progress = True
                self._output.dial(dialling.target.address)
        silent = []
        for link in self._links.values():
            if not link.legacy:
                if link.last_sent_at + every <= now:
                    self.write(link, Keepalive(), now)
                if link.last_received_at + 1.5 * self._timers.max_ping <= now:
                    silent.append(link)
        return silent

    def next_deadline(self) -> float:
        """Return when :meth:`tick` has something to do."""
        every = self._timers.max_ping / 2
        due = inf
        for dialling in self._targets.values():
            if dialling.peer is None and not dialling.in_progress:
                due = min(due, dialling.due)
        for link in self._links.values():
            if not link.legacy:
                due = min(due, link.last_sent_at + every, link.last_received_at + 1.5 * self._timers.max_ping)
        return due

    def _schedule_redial(self, dialling: _DialState, now: float) -> None:
        first, most = _REDIAL_DELAYS
        dialling.delay = min(max(dialling.delay * 2, first), most)
        dialling.due = now + dialling.delay * self._timers.scale * self._rng.uniform(0.8, 1.2)

    def _choose_primary(self, node: int | None) -> None:
        if node is None:
            return
        for link in self._links.values():
            if link.relays and link.node == node:
                if self.primary.get(node) is not link:
                    self.primary[node] = link
                    self.new_primaries.append(link)
                return
        self.primary.pop(node, None)


def link_name(peer: Peer | None) -> str:
    """Return what a link is called: where it leads, or from where it came; nothing for none."""
    return "" if peer is None else link_address(peer.address) if peer.dialled else f"from {link_address(peer.address)}"


def link_address(address: Address) -> str:
    """Return where a link leads: ``HOST:PORT``, or its link string, which has no port beside it."""
    host, port = address
    return f"{host}:{port}" if port else host
