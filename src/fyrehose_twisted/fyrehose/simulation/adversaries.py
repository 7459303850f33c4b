"""Adversary that sends valid, damaged and random datagrams to the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.fyrehose.wire.codec import encode, encode_deliver, encode_push
from fyrehose_twisted.fyrehose.wire.packets import (
    ANY_ADDRESS,
    MAX_SEQUENCE,
    Dialect,
    Flags,
    Forward,
    Keepalive,
    KeepaliveAck,
    Request,
)
from fyrehose_twisted.interfaces import IDatagramNode, Outputs
from fyrehose_twisted.sim.link import corrupt
from fyrehose_twisted.sim.network import Network

ADVERSARY_ADDRESS: Address = ("10.0.9.9", 6_666)

SEND_INTERVAL = 0.5
"""Seconds between two datagrams."""

FORGERY_PROBABILITY = 0.1
"""Probability of four forged repairs in a row, if the adversary forges repairs."""

MAX_FORGED_SEQUENCE = 300
"""Upper limit of the numbers of forged repairs."""


@implementer(IDatagramNode)
class Adversary:
    """Node that sends well-formed, damaged and random packets to ``victims``, by default to all hosts, for ``duration``
    seconds.

    Its DELIVERs have numbers that no client requests, unless ``forges_repairs`` is set. Clients accept requested
    numbers from any source and cannot recognise a forged repair until the backbone sends that number too.
    """

    def __init__(
        self,
        network: Network,
        rng: Random,
        now: float,
        duration: float,
        victims: Sequence[Address] | None = None,
        *,
        forges_repairs: bool = False,
    ) -> None:
        self._network = network
        self._rng = rng
        self._next_at: float | None = now + SEND_INTERVAL
        self._until = now + duration
        self._victims = victims
        self._forges_repairs = forges_repairs
        self._effects: list[Send] = []

    def receive_batch(self, batch: Batch, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDatagramNode.receive_batch`: nothing is of interest."""

    def tick(self, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.tick`."""
        if self._next_at is None or now < self._next_at:
            return
        victim = self._rng.choice(self._victims or list(self._network.hosts))
        forged = self._forges_repairs and self._rng.random() < FORGERY_PROBABILITY
        self._effects.append(Send(self._forged_repairs() if forged else [self._datagram()], (victim,)))
        self._next_at = now + SEND_INTERVAL if now < self._until else None

    def next_deadline(self) -> float | None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.next_deadline`."""
        return self._next_at

    def drain(self) -> Outputs:
        """See :meth:`~fyrehose_twisted.interfaces.INode.drain`."""
        effects, self._effects = self._effects, []
        return Outputs(None, effects, [])

    def _forged_repairs(self) -> list[bytes]:
        first = self._rng.randrange(1, MAX_FORGED_SEQUENCE)
        return [encode_deliver(sequence, self._rng.randbytes(20)) for sequence in range(first, first + 4)]

    def _datagram(self) -> bytes:
        rng = self._rng
        kind = rng.randrange(8)
        if kind == 0:
            return rng.randbytes(rng.randrange(100))
        first = rng.choice((1, rng.randrange(1, 2_000), rng.randrange(1, MAX_SEQUENCE)))
        last = min(MAX_SEQUENCE, first + rng.choice((0, 10, 2_000, MAX_SEQUENCE)))
        address = rng.choice((ANY_ADDRESS, ADVERSARY_ADDRESS, *self._network.hosts))
        made = (
            lambda: encode_deliver(rng.randrange(2**24, MAX_SEQUENCE), rng.randbytes(20)),
            lambda: encode_push(rng.randbytes(20), rng.choice(list(Dialect)), rng.random() < 0.5),
            lambda: encode(Request(address, first, last)),
            lambda: encode(Forward(address, first, last)),
            lambda: encode(Keepalive(address, rng.choice((Flags.NONE, Flags.NOJOURNAL)), rng.randbytes(16))),
            lambda: encode(Keepalive(address, token=b"", dialect=Dialect.V1)),
            lambda: encode(KeepaliveAck(rng.randbytes(16))),
        )[kind - 1]()
        return corrupt(made, rng) if rng.random() < 0.3 else made
