"""Repair of a message that one client holds among many that do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import pytest_twisted
from integration.running.backbone import RunningBackbone, StartBackbone
from integration.running.journal import StartJournal
from integration.running.programs import InTime
from twisted.internet.defer import Deferred, gatherResults

from fyrehose_twisted.fyrehose.config import ClientConfig, Start
from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.fyrehose.service.connect import join

COUNT = 10_000
BYSTANDERS = 12


class Reader(SubscriberProtocol):
    """Subscriber that waits for message COUNT."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self.numbers: list[int] = []
        self.lost: list[tuple[int, int]] = []
        self.complete: Deferred[None] = Deferred()

    def messages_received(self, messages: Sequence[Message]) -> None:
        self.numbers += [message.sequence for message in messages]
        self._reached(messages[-1].sequence)

    def messages_lost(self, first: int, last: int) -> None:
        self.lost.append((first, last))
        self._reached(last)

    def _reached(self, sequence: int) -> None:
        if sequence >= COUNT and not self.complete.called:
            self.complete.callback(None)


async def fill(backbone: RunningBackbone, in_time: InTime) -> None:
    from twisted.internet import reactor

    publisher = await join(reactor, PublisherProtocol(ClientConfig(journal=False)), backbone.text)
    for first in range(0, COUNT, 500):
        await in_time(publisher.publish_many([b"%d" % number for number in range(first, first + 500)]))
    await publisher.leave()


async def late_readers(backbone: RunningBackbone, leaving: list[Any]) -> list[Reader]:
    """Return a reader from number 1 and one from the oldest message, which join after BYSTANDERS others."""
    from twisted.internet import reactor

    for _ in range(BYSTANDERS):
        leaving.append(await join(reactor, SubscriberProtocol(), backbone.text))
    readers = [Reader(ClientConfig(start=start, journal=False)) for start in (1, Start.OLDEST)]
    for reader in readers:
        leaving.append(await join(reactor, reader, backbone.text))
    return readers


@pytest.mark.parametrize("forward", ["random", "round-robin"])
@pytest_twisted.ensureDeferred
async def test_repair_reaches_a_journal_among_many_late_subscribers(
    forward: str, start_backbone: StartBackbone, start_journal: StartJournal, in_time: InTime, leaving: list[Any]
) -> None:
    backbone = start_backbone("--retransmit", 0, "--forward", forward, "--metrics", "tcp:0")
    journal = start_journal(backbone, "first")
    backbone.wait_for_clients(1)
    await fill(backbone, in_time)
    journal.wait_for(COUNT)
    readers = await late_readers(backbone, leaving)
    second = start_journal(backbone, "second")
    await in_time(gatherResults([reader.complete for reader in readers]))
    second.wait_for(COUNT)
    for reader in readers:
        assert reader.lost == []
        assert reader.numbers == list(range(1, COUNT + 1))
    assert second.digest() == journal.digest()
    metrics = await backbone.metrics()
    assert metrics["fyrehose_backbone_forwards_total"] < 4 * metrics["fyrehose_backbone_requests_total"]


@pytest_twisted.ensureDeferred
async def test_repair_reaches_a_subscriber_that_holds_the_stream_in_memory(
    start_backbone: StartBackbone, in_time: InTime, leaving: list[Any]
) -> None:
    from twisted.internet import reactor

    backbone = start_backbone("--retransmit", 0)
    holder = await join(reactor, Reader(ClientConfig(start=1)), backbone.text)
    leaving.append(holder)
    await fill(backbone, in_time)
    await in_time(holder.complete)
    readers = await late_readers(backbone, leaving)
    await in_time(gatherResults([reader.complete for reader in readers]))
    for reader in readers:
        assert reader.lost == []
        assert reader.numbers == list(range(1, COUNT + 1))


@pytest_twisted.ensureDeferred
async def test_backbone_repairs_messages_that_no_client_holds(
    start_backbone: StartBackbone, in_time: InTime, leaving: list[Any]
) -> None:
    backbone = start_backbone()
    await fill(backbone, in_time)
    first, _ = await late_readers(backbone, leaving)
    await in_time(first.complete)
    assert first.lost == []
    assert first.numbers == list(range(1, COUNT + 1))
