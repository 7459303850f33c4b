"""Two subscribers behind a network that loses datagrams repair each other."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
import pytest_twisted
from integration.running.backbone import StartBackbone
from integration.running.programs import InTime, Start
from integration.running.relay import Crossing, StartRelay
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import ClientConfig, OutboxConfig, RepairConfig, WindowConfig
from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.fyrehose.service.connect import join
from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.packets import Deliver

COUNT = 1_000
LOSS = 0.1
# Small bursts, so that the relay's kernel buffers do not overflow, since it does not know of such losses; no resends.
SMALL = OutboxConfig(window=WindowConfig(maximum=64, minimum_timeout=20, maximum_timeout=20))
CONFIG = ClientConfig(start=1, keepalive_interval=0.1, repair=RepairConfig(first_retry=0.02, last_retry=0.1))


class Lossy:
    """Relay that loses datagrams in both directions, and records which DELIVERs each client missed."""

    def __init__(self, backbone: Address, rng: Random) -> None:
        self.undelivered: dict[Address, set[int]] = {}
        self._backbone = backbone
        self._rng = rng

    def transmit(self, crossing: Crossing) -> None:
        packet = decode(crossing.datagram)
        # The loss of the last message at all clients would go undetected.
        if self._rng.random() >= LOSS or (isinstance(packet, Deliver) and packet.sequence == COUNT):
            crossing.resume()
        elif crossing.source == self._backbone and isinstance(packet, Deliver):
            self.undelivered.setdefault(crossing.client, set()).add(packet.sequence)


class Subscriber(SubscriberProtocol):
    def __init__(self) -> None:
        super().__init__(CONFIG)
        self.found: list[Message] = []
        self.lost: set[int] = set()
        self.complete: Deferred[None] = Deferred()

    @property
    def address(self) -> Address:
        port: Any = self.transport
        bound = port.getHost()
        return bound.host, bound.port

    def messages_received(self, messages: Sequence[Message]) -> None:
        self.found += messages
        self._check()

    def messages_lost(self, first: int, last: int) -> None:
        self.lost.update(range(first, last + 1))
        self._check()

    def _check(self) -> None:
        if len(self.found) + len(self.lost) == COUNT:
            self.complete.callback(None)


@pytest_twisted.ensureDeferred
async def test_pub_stays_until_a_subscriber_has_repaired_its_losses(
    start: Start, start_backbone: StartBackbone, relay: StartRelay, in_time: InTime, leaving: list[Any]
) -> None:
    from twisted.internet import reactor

    backbone = start_backbone("--retransmit", 0)
    lost: set[int] = set()

    def lose_the_first(crossing: Crossing) -> None:
        packet = decode(crossing.datagram)
        if isinstance(packet, Deliver) and packet.sequence not in lost:
            lost.add(packet.sequence)
        else:
            crossing.resume()

    host, port = relay(backbone.address, lose_the_first).address
    subscriber = await join(reactor, Subscriber(), f"{host}:{port}")
    leaving.append(subscriber)
    publisher = start("fyrehose", "pub", "-b", backbone.text)
    lines = [b"%d" % number for number in range(1, COUNT + 1)]
    status = await in_time(deferToThread(publisher.finish, b"\n".join(lines)))
    await in_time(subscriber.complete)
    assert (status, publisher.err) == (0, "")
    assert [message.data for message in subscriber.found] == lines
    assert lost == set(range(1, COUNT + 1))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.extended)])
@pytest.mark.parametrize("retransmit", [0, 32], ids=["from one another", "from the backbone"])
@pytest_twisted.ensureDeferred
async def test_subscribers_behind_a_lossy_network_repair_each_other(
    seed: int, retransmit: int, start_backbone: StartBackbone, relay: StartRelay, in_time: InTime, leaving: list[Any]
) -> None:
    from twisted.internet import reactor

    backbone = start_backbone("--retransmit", retransmit)
    lossy = Lossy(backbone.address, Random(seed))
    host, port = relay(backbone.address, lossy.transmit).address
    subscribers = [await join(reactor, Subscriber(), f"{host}:{port}") for _ in range(2)]
    # It loses nothing and serves no repairs, so only messages missed by both subscribers cannot be repaired.
    publisher = await join(reactor, PublisherProtocol(ClientConfig(journal=False, outbox=SMALL)), backbone.text)
    leaving += [*subscribers, publisher]
    numbers = gatherResults([publisher.publish(b"%d" % number) for number in range(1, COUNT + 1)])
    await in_time(gatherResults([numbers, *(subscriber.complete for subscriber in subscribers)]))
    first, second = (lossy.undelivered[subscriber.address] for subscriber in subscribers)
    nobody_has = set[int]() if retransmit else first & second
    for subscriber in subscribers:
        told = f"seed {seed}: {subscriber.node and subscriber.node.counters}, lost {subscriber.lost}"
        assert subscriber.lost == nobody_has, told
        found = [(message.sequence, message.data) for message in subscriber.found]
        assert found == [(n, b"%d" % n) for n in range(1, COUNT + 1) if n not in nobody_has], told
        assert subscriber.node is not None
        missed = len(lossy.undelivered[subscriber.address] - nobody_has)
        assert missed > COUNT * LOSS / 2, told
        # A repair may come before the timer, but most losses were requested.
        assert missed / 2 < subscriber.node.counters.repaired <= missed, told
