"""Messages acknowledged once they are durable in a number of journals."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from integration.running.backbone import RunningBackbone
from integration.running.journal import StartJournal
from integration.running.programs import InTime, Start

from fyrehose_twisted.errors import ConfigurationError, MessageNotKept
from fyrehose_twisted.fyrehose.config import ClientConfig, OutboxConfig
from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.fyrehose.service.connect import join
from fyrehose_twisted.fyrehose.wire.packets import Dialect

COUNT = 2_000
LINES = b"".join(b"%0*d\n" % (1_000, number) for number in range(COUNT))


def test_messages_confirmed_as_kept_survive_a_kill_of_all_services(
    start: Start, backbone: RunningBackbone, start_journal: StartJournal
) -> None:
    journals = [start_journal(backbone, name) for name in ("one", "two")]
    backbone.wait_for_clients(2)
    publisher = start("fyrehose", "pub", "-b", backbone.text, "--kept", 2)
    assert publisher.finish(LINES) == 0, publisher
    for journal in journals:
        journal.kill()
    backbone.kill()
    for journal in journals:
        assert b"".join(line + b"\n" for line in sorted(journal.lines())) == LINES


def test_suspended_journal_does_not_count_as_keeping_a_message(
    start: Start, backbone: RunningBackbone, start_journal: StartJournal
) -> None:
    journals = [start_journal(backbone, name) for name in ("one", "two")]
    backbone.wait_for_clients(2)
    first = start("fyrehose", "pub", "-b", backbone.text, "--kept", 2)
    assert first.finish(b"both\n") == 0, first
    journals[0].program.signal(signal.SIGSTOP)
    try:
        publisher = start("fyrehose", "pub", "-b", backbone.text, "--kept", 2, "--timeout", 2)
        assert publisher.finish(b"one\ntwo\n") == 1
        said = "2 of 2 messages not kept: message 2 is published, and 1 of 2 durable journals had it after 2 s"
        assert said in publisher.err
        alone = start("fyrehose", "pub", "-b", backbone.text, "--kept", 1)
        assert alone.finish(b"one is enough\n") == 0, alone
    finally:
        journals[0].program.signal(signal.SIGCONT)


@pytest.mark.extended
def test_journals_lose_no_messages_that_arrive_faster_than_they_write(
    start: Start, backbone: RunningBackbone, start_journal: StartJournal, tmp_path: Path
) -> None:
    count, large = 4_000, tmp_path / "large"
    large.write_bytes(b"".join(b"%0*d\n" % (60_000, number) for number in range(count)))
    journals = [start_journal(backbone, name) for name in ("one", "two")]
    backbone.wait_for_clients(2)
    publisher = start("fyrehose", "pub", "-b", backbone.text, large)
    assert publisher.finish() == 0, publisher
    for journal in journals:
        journal.wait_for(count)
        assert len(journal.records()) == count


@pytest_twisted.ensureDeferred
async def test_unkept_message_fails_with_the_number_of_journals_that_have_it(
    backbone: RunningBackbone, in_time: InTime, leaving: list[Any]
) -> None:
    from twisted.internet import reactor

    config = ClientConfig(subscribe=False, journal=False, outbox=OutboxConfig(timeout=1.0))
    publisher = await join(reactor, PublisherProtocol(config), backbone.text)
    leaving.append(publisher)
    with pytest.raises(MessageNotKept) as caught:
        await in_time(publisher.publish_many([b"one", b"two"], kept=1))
    assert (caught.value.sequence, caught.value.acknowledged, caught.value.required) == (1, 0, 1)
    assert await in_time(publisher.publish(b"three")) == 3
    with pytest.raises(ConfigurationError):
        publisher.publish(b"four", kept=17)


@pytest_twisted.ensureDeferred
async def test_kept_requires_protocol_version_2(backbone: RunningBackbone, leaving: list[Any]) -> None:
    from twisted.internet import reactor

    publisher = await join(reactor, PublisherProtocol(ClientConfig(dialect=Dialect.V1)), backbone.text)
    leaving.append(publisher)
    with pytest.raises(ConfigurationError, match="needs dialect v2"):
        publisher.publish(b"one", kept=1)
