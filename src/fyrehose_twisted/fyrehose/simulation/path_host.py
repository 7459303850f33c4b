"""Host on the path that reads a stream of sealed payloads, and publishes what it makes of them."""

from __future__ import annotations

from collections import deque
from random import Random

from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.errors import MalformedPacket
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, unwrap, wrap
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, Deliver, Flags, Keepalive, Push
from fyrehose_twisted.interfaces import IDatagramNode, IPayloadSealer, Outputs

KEEPALIVE_INTERVAL = 1.0
PUSH_INTERVAL = 0.4
"""Seconds between two forged messages."""

CAPTURED = 500
"""Messages that it remembers."""


@implementer(IDatagramNode)
class PathHost:
    """Subscriber that replays, changes and forges messages for ``duration`` seconds. It has no key.

    :param elsewhere: sealer of another stream with the same key, from which the host captures messages.
    """

    def __init__(self, backbone: Address, rng: Random, now: float, duration: float, elsewhere: IPayloadSealer) -> None:
        self._backbone = backbone
        self._rng = rng
        self._keepalive_at = now
        self._push_at = now + PUSH_INTERVAL
        self._until = now + duration
        self._elsewhere = elsewhere
        self._captured: deque[bytes] = deque(maxlen=CAPTURED)
        self._own: deque[bytes] = deque(maxlen=CAPTURED)
        self._effects: list[Send] = []

    def receive_batch(self, batch: Batch, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDatagramNode.receive_batch`."""
        for run in batch.runs:
            for datagram in batch.datagrams(run):
                try:
                    packet = decode(datagram, truncated=run.truncated)
                except MalformedPacket:
                    continue
                if isinstance(packet, Deliver) and packet.data and packet.data not in self._own:
                    self._captured.append(bytes(packet.data))

    def tick(self, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.tick`."""
        if now >= self._keepalive_at:
            self._send(Keepalive(ANY_ADDRESS, Flags.NOJOURNAL, self._rng.randbytes(16)))
            self._keepalive_at = now + KEEPALIVE_INTERVAL
        if now >= self._push_at:
            self._push_at = now + PUSH_INTERVAL if now < self._until else float("inf")
            if self._captured:
                self._own.append(self._forged(self._rng.choice(self._captured), now))
                self._send(Push(self._own[-1]))

    def next_deadline(self) -> float | None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.next_deadline`."""
        return min(self._keepalive_at, self._push_at)

    def drain(self) -> Outputs:
        """See :meth:`~fyrehose_twisted.interfaces.INode.drain`."""
        effects, self._effects = self._effects, []
        return Outputs(None, effects, [])

    def _send(self, packet: Keepalive | Push) -> None:
        self._effects.append(Send([encode(packet)], (self._backbone,)))

    def _forged(self, data: bytes, now: float) -> bytes:
        rng, envelope = self._rng, unwrap(data)
        head, sealed = (b"", data) if envelope is None else (data[:ENVELOPE_SIZE], data[ENVELOPE_SIZE:])
        # The envelope that the publisher will send soon, so that its own message looks like a repeat.
        ahead = head if envelope is None else wrap(envelope.publisher, envelope.counter + rng.randrange(1, 40), b"")
        place = rng.randrange(len(sealed))
        match rng.randrange(7):
            case 0 | 1:
                return data
            case 2:
                return head + sealed[:place] + bytes([sealed[place] ^ 1 << rng.randrange(8)]) + sealed[place + 1 :]
            case 3:
                return ahead + sealed
            case 4:
                return ahead + b"forged"
            case 5:
                return head + sealed[:place]
            case _:
                return head + self._elsewhere.seal([b"of another stream"], [head], now)[0]
