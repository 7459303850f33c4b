"""Subscriber that floods its parents with false hints to better roots."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from fyrehose_twisted.effects import Address, Peer, Write
from fyrehose_twisted.freenet.simulation.participants import Adversary
from fyrehose_twisted.freenet.wire.location import key_location
from fyrehose_twisted.freenet.wire.messages import (
    NONE_SEEN,
    BetterRoot,
    Hello,
    Message,
    Prove,
    RejectedBusy,
    RejectedLoop,
    ResubscribeRequest,
    SubscribeRequest,
)

HINT_INTERVAL = 3.0
"""Seconds between two hints."""
HINTS_PER_SUBSCRIPTION = 10
"""Hints between two subscriptions."""


class HintFlooder(Adversary):
    """Adversary that subscribes to every stream and keeps hinting at a root located exactly on each key.

    In some runs it answers requests for that root as busy.
    """

    def __init__(self, rng: Random, victims: Sequence[Address], keys: Sequence[bytes]) -> None:
        super().__init__(rng, victims, keys)
        self._busy = rng.random() < 0.5
        self._hints = 0

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        hello = Hello(self.node, self._boot, self.rng.random(), self.rng.randbytes(16))
        self._effects.append(Write([hello, Prove(b"")], peer))
        self._peers.append(peer)
        self._subscribe(peer)

    def tick(self, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        self._dial_due(now)
        if self._act_at <= now:
            self._act_at = now + HINT_INTERVAL
            self._hints += 1
            for peer in self._peers:
                if self._hints % HINTS_PER_SUBSCRIPTION == 0:
                    self._subscribe(peer)
                self._write(peer, *(BetterRoot(key, key_location(key)) for key in self.keys))

    def _subscribe(self, peer: Peer) -> None:
        rng = self.rng
        self._write(
            peer, *(SubscribeRequest(rng.getrandbits(64), key, 10, NONE_SEEN, rng.random()) for key in self.keys)
        )

    def _answer(self, request: SubscribeRequest | ResubscribeRequest, peer: Peer) -> None:
        busy = self._busy and isinstance(request, ResubscribeRequest)
        location = key_location(request.key)
        answer: Message = RejectedBusy(request.uid, location) if busy else RejectedLoop(request.uid)
        self._write(peer, answer)
