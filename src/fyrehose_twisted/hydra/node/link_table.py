"""Links of a node, dialled and accepted, and the node at the other end of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from random import Random

from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.hydra.config import LinkTarget, Timers
from fyrehose_twisted.hydra.node.output import NodeOutput
from fyrehose_twisted.hydra.wire.messages import Keepalive, Message

MAX_MALFORMED_LINES = 100
"""Number of malformed lines after which a link is closed."""
_LINE_BURST = 3.0
"""Burst size of a rate-limited link, in lines."""
_REDIAL_DELAYS = 0.5, 2.0
"""Initial and largest delay before a redial, in seconds."""


@dataclass(slots=True, eq=False)
class PeerLink:
    """One open link.

    :ivar node: id of the peer, once known; the link is then bound.
    :ivar peer_knock_id: id with which the peer knocked, if it did.
    :ivar own_knock_id: id with which this node knocked over the link.
    :ivar mediator: node that answered this node's KNOCK first.
    :ivar term: term of the last PING over the link. Later RECVs and SENDs over the link belong to it.
    :ivar unbound_ping_at: time of the last PING received while the link was not bound.
    :ivar network_leader: leader of the peer's network according to that PING.
    :ivar network_has_quorum: whether the peer's network may have a quorum.
    :ivar legacy: whether the peer is the reference implementation; :attr:`node` is then its id.
    :ivar guardian: whether the peer is the guardian process of a node.
    :ivar foreign: whether the peer belongs to another network, or to one of another size.
    :ivar probed_at: time at which this node last sent its id because the peer seems to consider the link bound.
    :ivar line_rate: lines per second sent over the link; ``None`` for no limit.
    :ivar quick_ping_at: time of the last quick PING sent over a link with a rate.
    :ivar quick_val: val of the last quick PING that crossed it; other PONGs to quick PINGs do not cross it.
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
    quick_ping_at: float = -inf
    quick_val: str = ""
    credit: float = _LINE_BURST
    credited_at: float = -inf

    def try_send_line(self, now: float) -> bool:
        """Take credit for one line; return whether the rate limit allows it."""
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
        """Whether the peer may be a node of this network."""
        return not self.legacy and not self.guardian and not self.foreign

    @property
    def bound(self) -> bool:
        """Whether the link leads to a known node of the network."""
        return self.node is not None and not self.legacy

    @property
    def relays(self) -> bool:
        """Whether flooded messages are accepted over the link."""
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
    """Open links of a node, and dialling of its targets.

    :ivar primary: link for flooded messages to each neighbour, by node id.
    :ivar new_primaries: links that became primary and have not been announced yet.
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
        """Return the link of a peer, ``None`` if closed."""
        return self._links.get(peer)

    @property
    def accepted(self) -> int:
        """Number of accepted links."""
        return sum(link.target is None for link in self._links.values())

    @property
    def all_tried(self) -> bool:
        """Whether every target was dialled at least once."""
        return all(dialling.tried for dialling in self._targets.values())

    def closed_targets(self) -> list[tuple[Address, str]]:
        """Return the targets without an open link, with the last error."""
        return [
            (dialling.target.address, dialling.last_error)
            for dialling in self._targets.values()
            if dialling.peer is None
        ]

    # Opening, closing and binding

    def connected(self, peer: Peer, now: float) -> PeerLink:
        """Add a link that opened."""
        link = self._links[peer] = PeerLink(peer, now, now)
        dialling = self._targets.get(peer.address) if peer.dialled else None
        if dialling is not None:
            dialling.peer, dialling.in_progress, dialling.tried, dialling.delay = peer, False, True, 0.0
            link.target, link.legacy, link.line_rate = peer.address, dialling.target.legacy, dialling.target.line_rate
        return link

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """Record that a dial failed, and schedule the next one."""
        dialling = self._targets.get(address)
        if dialling is not None:
            dialling.in_progress, dialling.tried, dialling.last_error = False, True, reason
            self._schedule_redial(dialling, now)

    def remove(self, peer: Peer, now: float, reason: str = "closed") -> PeerLink | None:
        """Remove a closed link and return it; ``None`` if unknown."""
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
        """Close a link and remove it."""
        self._output.close(link.peer)
        self.remove(link.peer, now, reason)

    def bind(self, link: PeerLink, node: int) -> None:
        """Bind a link to a node."""
        before, link.node = link.node, node
        self._choose_primary(before)
        self._choose_primary(node)

    def unbind(self, node: int) -> list[PeerLink]:
        """Unbind the links of a removed node and return them."""
        found = [link for link in self if link.bound and link.node == node]
        for link in found:
            link.node = None
        self.primary.pop(node, None)
        return found

    # Writing

    def write(self, link: PeerLink, message: Message, now: float) -> None:
        """Send a message over a link."""
        link.last_sent_at = now
        self._output.write(link.peer, message)

    # Time

    def tick(self, now: float) -> list[PeerLink]:
        """Dial targets and send keepalives; return the links that exceed the silence limit."""
        every = self._timers.max_ping / 2
        if now > self._last_tick + 2 * every:
            # This process was suspended: messages received meanwhile have not been read yet.
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
        """Return the time of the next :meth:`tick`."""
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
    """Return the display name of a link: its target, or ``from`` its source; empty for ``None``."""
    return "" if peer is None else link_address(peer.address) if peer.dialled else f"from {link_address(peer.address)}"


def link_address(address: Address) -> str:
    """Return ``HOST:PORT`` of an address, or its link string for transports without ports."""
    return format_address(address) if address[1] else address[0]
