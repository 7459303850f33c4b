"""Connections between the members of a group.

A member dials every other one and sends only over connections that it dialled, so that it notices the death of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.effects import Address, Close, Dial, Peer, Write
from fyrehose_twisted.fyrehose.node.member.config import MAX_MEMBERS
from fyrehose_twisted.fyrehose.wire.member_messages import MemberHello, MemberMessage, Ping, Pong

PING_INTERVAL = 1.0
"""Seconds between two questions on a connection whether its other end is alive."""
SILENCE_LIMIT = 3.0
"""Seconds without an answer after which a connection is given up."""
DIAL_INTERVALS = (0.01, 0.1, 0.5)
"""Seconds between two dials: to learn whether a member is dead, at first, and later."""
HASTY_DIALS = 5
"""Number of dials at the first interval, if a connection ended."""
EAGER_DIALS = 20
"""Number of dials at the first two intervals."""
REFUSED = "refused"
"""Reason of a failed dial that shows that nobody listens."""


@dataclass(slots=True)
class _Target:
    """Another member's address, and the connection dialled to it."""

    address: Address
    dial_at: float
    dials: int = 0
    peer: Peer | None = None
    hello: MemberHello | None = None
    heard_at: float = -inf
    ping_at: float = inf
    lost: MemberHello | None = None
    """Member whose connection ended, until it is known whether its process still runs."""
    dialling: bool = False


class PeerLinks:
    """Connections of one member.

    :param hello: returns the first message on a new connection.
    :param on_connected: called when messages can be sent to a member.
    :param on_disconnected: called when they no longer can.
    :param on_dead: called with a member whose connection ended and that no longer listens.
    :ivar effects: what the driver must do.
    :ivar counters: counters since the start.
    """

    def __init__(
        self,
        stream: str,
        addresses: Iterable[Address],
        now: float,
        *,
        hello: Callable[[], MemberHello],
        on_connected: Callable[[MemberHello, float], None],
        on_disconnected: Callable[[MemberId], None],
        on_dead: Callable[[MemberId, float], None],
    ) -> None:
        self.effects: list[Dial | Write | Close] = []
        self.counters: Counter[str] = Counter()
        self._stream = stream
        self._hello, self._on_connected = hello, on_connected
        self._on_disconnected, self._on_dead = on_disconnected, on_dead
        self._targets = {address: _Target(address, now) for address in addresses}
        self._own: set[Address] = set()
        self._accepted: dict[Peer, MemberHello | None] = {}
        self._outgoing: dict[Peer, list[MemberMessage]] = {}

    @property
    def connected(self) -> dict[MemberId, MemberHello]:
        """Members to which messages can be sent, with what they said of themselves."""
        return {one.hello.member: one.hello for one in self._targets.values() if one.hello is not None}

    @property
    def dialled_addresses(self) -> list[Address]:
        """Addresses of the other members."""
        return list(self._targets)

    def learn(self, addresses: Iterable[Address], now: float) -> None:
        """Dial more members."""
        for address in addresses:
            if address not in self._targets and address not in self._own and len(self._targets) < 2 * MAX_MEMBERS:
                self._targets[address] = _Target(address, now)

    def send(self, member: MemberId, message: MemberMessage) -> None:
        """Send a message to a member. It is lost without a connection."""
        for target in self._targets.values():
            if target.hello is not None and target.hello.member == member and target.peer is not None:
                self._outgoing.setdefault(target.peer, []).append(message)
                return
        self.counters["unsendable"] += 1

    # Input

    def connected_to(self, peer: Peer, now: float) -> None:
        """Introduce this member on a new connection."""
        if peer.dialled:
            target = self._targets.get(peer.address)
            if target is None:
                self.effects.append(Close(peer))
                return
            target.peer, target.dialling = peer, False
            target.heard_at, target.ping_at = now, now + PING_INTERVAL
        else:
            self._accepted[peer] = None
        self._outgoing.setdefault(peer, []).append(self._hello())

    def received(self, message: MemberMessage, peer: Peer, now: float) -> MemberId | None:
        """Handle a message; return its sender if it is one for the group."""
        target = self._targets.get(peer.address) if peer.dialled else None
        if target is not None and target.peer == peer:
            target.heard_at = now
        match message:
            case MemberHello():
                self._introduced(message, peer, target, now)
            case Ping():
                self._outgoing.setdefault(peer, []).append(Pong())
            case Pong():
                pass
            case _:
                hello = self._accepted.get(peer)
                if hello is not None:
                    return hello.member
                self.counters["not_introduced"] += 1
        return None

    def disconnected(self, peer: Peer, now: float) -> None:
        """Dial again at once: the answer tells whether the member is dead."""
        self._accepted.pop(peer, None)
        self._outgoing.pop(peer, None)
        target = self._targets.get(peer.address) if peer.dialled else None
        if target is not None and target.peer == peer:
            self._lose(target, now)

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """Dial again later. A member that no longer listens is dead."""
        target = self._targets.get(address)
        if target is None:
            return
        target.dialling = False
        target.dial_at = now + self._dial_interval(target)
        lost = target.lost
        if lost is not None and reason == REFUSED:
            target.lost = None
            self._on_dead(lost.member, now)

    def tick(self, now: float) -> None:
        """Dial, ask and give up what is due."""
        for target in self._targets.values():
            if target.peer is None:
                if not target.dialling and now >= target.dial_at:
                    target.dialling = True
                    target.dials += 1
                    self.effects.append(Dial(target.address))
            elif now >= target.heard_at + SILENCE_LIMIT:
                self.counters["silent"] += 1
                self._close(target.peer)
                self._lose(target, now)
                target.lost = None  # A silent member is not known to be dead.
            elif now >= target.ping_at:
                target.ping_at = now + PING_INTERVAL
                self._outgoing.setdefault(target.peer, []).append(Ping())

    def next_deadline(self) -> float:
        """Return the time at which :meth:`tick` is due."""
        return min(
            (
                min(one.heard_at + SILENCE_LIMIT, one.ping_at)
                if one.peer is not None
                else inf
                if one.dialling
                else one.dial_at
                for one in self._targets.values()
            ),
            default=inf,
        )

    def take_effects(self) -> Sequence[Dial | Write | Close]:
        """Remove and return what the driver must do."""
        if not (self._outgoing or self.effects):
            return ()
        outgoing, self._outgoing = self._outgoing, {}
        effects, self.effects = self.effects, []
        return [*(Write(messages, peer) for peer, messages in outgoing.items()), *effects]

    # Helpers

    def _introduced(self, message: MemberHello, peer: Peer, target: _Target | None, now: float) -> None:
        mine = self._hello()
        if message.stream != self._stream:
            self.counters["other_stream"] += 1
            self._close(peer)
            return
        if message.member == mine.member:
            self._close(peer)
            if target is not None:
                self._own.add(target.address)
                del self._targets[target.address]
            self._accepted.pop(peer, None)
            return
        if peer.dialled:
            if target is not None and target.peer == peer and target.hello is None:
                lost, target.lost = target.lost, None
                target.hello, target.dials = message, 0
                if lost is not None and lost.process != message.process:
                    self._on_dead(lost.member, now)
                self._on_connected(message, now)
        elif self._accepted.get(peer, message) is None:
            self._accepted[peer] = message

    def _dial_interval(self, target: _Target) -> float:
        # A process that dies may close its connections before its listener.
        return DIAL_INTERVALS[
            0 if target.lost is not None and target.dials < HASTY_DIALS else 1 + (target.dials > EAGER_DIALS)
        ]

    def _close(self, peer: Peer) -> None:
        self._outgoing.pop(peer, None)
        self.effects.append(Close(peer))

    def _lose(self, target: _Target, now: float) -> None:
        hello, target.peer, target.hello = target.hello, None, None
        target.dial_at = now if hello is not None else now + self._dial_interval(target)
        target.ping_at = inf
        if hello is not None:
            target.lost = hello
            self._on_disconnected(hello.member)
