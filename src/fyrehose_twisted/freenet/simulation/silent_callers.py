"""Callers that open connections and never complete the handshake."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from random import Random
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.effects import Address, Close, Dial, Peer, Write
from fyrehose_twisted.freenet.wire.messages import NONCE_SIZE, Hello, Message
from fyrehose_twisted.interfaces import ILinkNode, Outputs

MAX_OPEN = 30
"""Maximum number of open connections per caller."""
DIAL_INTERVALS = 0.1, 3.0
"""Mean seconds between two connections: either enough to evict the oldest link, or fewer."""


@implementer(ILinkNode)
class SilentCaller:
    """Caller that opens connections to its victims and sends nothing, or only Hello.

    :param victims: addresses to dial.
    """

    def __init__(self, rng: Random, victims: Sequence[Address]) -> None:
        self._rng = rng
        self._victims = victims
        self._peers: list[Peer] = []
        self._effects: list[Any] = []
        self._dial_at = -inf
        self._dial_interval = rng.choice(DIAL_INTERVALS)

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        rng = self._rng
        self._peers.append(peer)
        if rng.random() < 0.3:
            hello = Hello(rng.getrandbits(64), 0, rng.random(), rng.randbytes(NONCE_SIZE))
            self._effects.append(Write([hello], peer))
        if len(self._peers) > MAX_OPEN:
            self._effects.append(Close(self._peers.pop(0)))

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        if peer in self._peers:
            self._peers.remove(peer)

    def receive(self, message: Message, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""

    def blocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""

    def unblocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""

    def tick(self, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        if self._dial_at <= now:
            self._dial_at = now + self._rng.expovariate(1 / self._dial_interval)
            self._effects.append(Dial(self._rng.choice(self._victims)))

    def next_deadline(self) -> float:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        return self._dial_at

    def drain(self) -> Outputs:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        effects, self._effects = self._effects, []
        return Outputs(None, effects, [])
