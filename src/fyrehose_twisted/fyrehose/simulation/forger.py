"""Host that forges the addresses of others."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random

from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.simulation.adversaries import ADVERSARY_ADDRESS
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.mac import MacKey
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE, Deliver, Forward, Keepalive, KeepaliveAck, Packet
from fyrehose_twisted.interfaces import IDatagramNode, Outputs
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.observer import SimPacket

FORGE_INTERVAL = 0.25
"""Seconds between two forged datagrams."""

CAPTURED = 300
"""Datagrams that it remembers."""

MARK = b"forged "
"""Start of the DATA that it makes up."""


@implementer(IDatagramNode)
class Forger:
    """Host on the path, which hears what others send, and sends to them with their addresses for ``duration`` seconds.
    It does not know the secret.

    :param backbones: addresses of the backbone and of relays.
    :param clients: addresses of the clients, which relays are too.
    :param believers: addresses of the clients that take the first answer to their KEEPALIVE for that of the backbone.
    :param elsewhere: makes the MACs of a backbone of another stream with the same secret, from which it captures
        messages.
    :ivar sent: number of forged datagrams.
    """

    def __init__(
        self,
        network: Network,
        rng: Random,
        now: float,
        duration: float,
        backbones: Sequence[Address],
        clients: Sequence[Address],
        believers: Sequence[Address],
        elsewhere: MacKey,
    ) -> None:
        self.sent = 0
        self._network = network
        self._rng = rng
        self._next_at: float | None = now + FORGE_INTERVAL
        self._until = now + duration
        self._backbones = backbones
        self._clients = clients
        self._believers = believers
        self._elsewhere = elsewhere
        self._messages: deque[Deliver] = deque(maxlen=CAPTURED)
        self._tokens: dict[Address, bytes] = {}
        self._last = 0

    def overhear(self, packet: SimPacket) -> None:
        """Remember a packet of another host."""
        if packet.source.address == ADVERSARY_ADDRESS:
            return
        match decode(packet.data):
            case Deliver() as deliver:
                self._messages.append(deliver)
                self._last = max(self._last, deliver.sequence)
            case Keepalive(token=token):
                self._tokens[packet.source.address] = token

    def receive_batch(self, batch: Batch, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDatagramNode.receive_batch`: it hears everything anyway."""

    def tick(self, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.tick`."""
        if self._next_at is None or now < self._next_at:
            return
        self._next_at = now + FORGE_INTERVAL if now < self._until else None
        rng, network = self._rng, self._network
        victim = rng.choice(self._clients)
        claimed = rng.choice(self._backbones) if rng.random() < 0.7 else rng.choice(self._clients)
        if rng.random() < 0.1:
            victim, claimed = rng.choice(self._backbones), victim
        packets = self._forged(victim)
        self.sent += len(packets)
        for packet in packets:
            network.forge(network.hosts[ADVERSARY_ADDRESS], claimed, victim, encode(packet))

    def next_deadline(self) -> float | None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.next_deadline`."""
        return self._next_at

    def drain(self) -> Outputs:
        """See :meth:`~fyrehose_twisted.interfaces.INode.drain`: it does not send as itself."""
        return Outputs(None, [], [])

    def _forged(self, victim: Address) -> list[Packet]:
        rng = self._rng
        number, data = self._number(), MARK + rng.randbytes(rng.choice((8, 8, 60)))
        known = rng.choice(self._messages) if self._messages else Deliver(number, data)
        token = self._tokens.get(victim, bytes(16))
        match rng.randrange(9):
            case 0:
                return [Deliver(number + row, data) for row in range(rng.choice((1, 30)))]
            case 1:
                return [Deliver(number, data, fetched=True)]
            case 2:
                return [Deliver(number + row, data, mac=rng.randbytes(16)) for row in range(rng.choice((1, 30)))]
            case 3:
                data = MARK.ljust(len(known.data), b"!")
                return [Deliver(number, known.data, mac=known.mac), Deliver(known.sequence, data, mac=known.mac)]
            case 4:
                macs = [(at, self._elsewhere.deliver_mac(at, data)) for at in range(number, number + 20)]
                return [Deliver(at, data, mac=mac) for at, mac in macs]
            case 5:
                data, following = MARK.ljust(len(known.data), b"!"), range(known.sequence + 1, known.sequence + 30)
                return [known, *(Deliver(at, data, mac=known.mac) for at in following)]
            case 6:
                return [Forward(rng.choice(self._clients), 1, MAX_SEQUENCE)]
            case 7 if victim not in self._believers:
                return [KeepaliveAck(token), Deliver(number, data)]
            case _:
                return [
                    KeepaliveAck(token, self._elsewhere.stream_id, rng.randbytes(16)),
                    Deliver(number, data, mac=self._elsewhere.deliver_mac(number, data)),
                ]

    def _number(self) -> int:
        """Return a number near the latest, or of a message that some client may miss."""
        ahead = self._rng.choice((1, 1, 2, 40))
        return self._last + ahead if self._rng.random() < 0.5 else self._rng.randrange(1, self._last + 2)
