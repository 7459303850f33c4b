"""Clients that join and leave repeatedly and answer no requests."""

from __future__ import annotations

from random import Random

from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.node.client.keepalive import KeepaliveSession
from fyrehose_twisted.interfaces import IDatagramNode, Outputs

STAY_RANGE, ABSENCE_RANGE = (3.0, 60.0), (1.0, 60.0)
"""Minimum and maximum of each phase in seconds."""


@implementer(IDatagramNode)
class TransientClient:
    """Node that alternates between sending KEEPALIVEs and silence until ``until``. It claims to store messages, but
    answers no FORWARD."""

    def __init__(self, backbone: Address, config: ClientConfig, rng: Random, now: float, until: float) -> None:
        self._backbone = backbone
        self._config = config
        self._rng = rng
        self._until = until
        self._keepalive: KeepaliveSession | None = None
        self._change_at: float | None = now + rng.uniform(*ABSENCE_RANGE)
        self._effects: list[Send] = []

    def receive_batch(self, batch: Batch, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDatagramNode.receive_batch`: nothing is of interest."""

    def tick(self, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.tick`."""
        if self._change_at is not None and now >= self._change_at:
            arrives = self._keepalive is None and now < self._until
            self._keepalive = KeepaliveSession(self._config, self._rng, now) if arrives else None
            leaves_at = min(now + self._rng.uniform(*STAY_RANGE), self._until)
            back_at = now + self._rng.uniform(*ABSENCE_RANGE) if now < self._until else None
            self._change_at = leaves_at if arrives else back_at
        if self._keepalive is not None and now >= self._keepalive.due_at:
            self._effects.append(Send([self._keepalive.next_keepalive(now)], (self._backbone,)))

    def next_deadline(self) -> float | None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.next_deadline`."""
        deadlines = [self._change_at, None if self._keepalive is None else self._keepalive.due_at]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def drain(self) -> Outputs:
        """See :meth:`~fyrehose_twisted.interfaces.INode.drain`."""
        effects, self._effects = self._effects, []
        return Outputs(None, effects, [])
