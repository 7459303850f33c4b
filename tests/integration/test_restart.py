"""The backbone dies or stops, and comes back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest_twisted
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread

from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.fyrehose.protocol import PublisherProtocol, SubscriberProtocol
from fyrehose_twisted.fyrehose.service import join
from fyrehose_twisted.fyrehose.state import SequenceFile

FAST = ClientConfig(keepalive_interval=0.1)


class Log(SubscriberProtocol):
    """Keeps what it receives."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self.messages: list[Message] = []
        self.lost: list[tuple[int, int]] = []
        self._waiting: list[tuple[bytes, Deferred[None]]] = []

    def messages_received(self, messages: Sequence[Message]) -> None:
        self.messages += messages
        found = {message.data for message in messages}
        for data, arrived in self._waiting:
            if data in found and not arrived.called:
                arrived.callback(None)

    def messages_lost(self, first: int, last: int) -> None:
        self.lost.append((first, last))

    def arrival(self, data: bytes) -> Deferred[None]:
        arrived: Deferred[None] = Deferred()
        self._waiting.append((data, arrived))
        self.messages_received([])
        if any(message.data == data for message in self.messages):
            arrived.callback(None)
        return arrived


@pytest_twisted.ensureDeferred
async def test_killed_in_mid_stream(start_backbone: Any, in_time: Any, leaving: list[Any]) -> None:
    from twisted.internet import reactor

    backbone = start_backbone()
    log = await join(reactor, Log(FAST), backbone.text)
    publisher = await join(reactor, PublisherProtocol(FAST), backbone.text)
    leaving += [log, publisher]

    acknowledged: dict[int, bytes] = {}
    halfway: Deferred[None] = Deferred()

    def publish(number: int) -> Deferred[int]:
        data = b"%d" % number

        def published(sequence: int) -> int:
            assert sequence not in acknowledged
            acknowledged[sequence] = data
            if len(acknowledged) == 500:
                backbone.program.process.kill()
                halfway.callback(None)
            return sequence

        return publisher.publish(data).addCallback(published)

    publishing = [publish(number) for number in range(2_000)]
    await in_time(halfway)
    backbone.kill()
    assert publisher.pending
    again = start_backbone(port=backbone.address[1], settle=2)
    await in_time(gatherResults(publishing))
    await in_time(publisher.publish(b"the end"))
    await in_time(log.arrival(b"the end"))

    assert sorted(acknowledged.values()) == sorted(b"%d" % number for number in range(2_000))
    numbers = [message.sequence for message in log.messages]
    assert numbers == sorted(set(numbers))
    received = {message.sequence: message.data for message in log.messages}
    for sequence, data in acknowledged.items():
        assert received[sequence] == data
    # What was given in the batch in hand and never sent is a hole, and reported as one.
    holes = {number for first, last in log.lost for number in range(first, last + 1)}
    assert holes.isdisjoint(acknowledged)
    assert "the next number is 1\n" not in again.program.out


@pytest_twisted.ensureDeferred
async def test_a_mislaid_state_file(
    start_backbone: Any, launch: Any, tmp_path: Path, in_time: Any, leaving: list[Any]
) -> None:
    from twisted.internet import reactor

    backbone = start_backbone()
    publisher = await join(reactor, PublisherProtocol(FAST), backbone.text)
    leaving.append(publisher)
    assert await in_time(publisher.publish(b"1")) == 1
    backbone.kill()
    (tmp_path / "fyrehose-default.state").unlink()
    again = launch("--port", backbone.address[1])
    leaving_port: Any = publisher.transport
    # In a thread, for the publisher has to answer meanwhile.
    assert await deferToThread(again.finish) == 1
    ended = again.wait_for(r"stopping: (client [0-9.:]+ holds message 1 .*)")
    assert ended[1] == (
        f"client 127.0.0.1:{leaving_port.getHost().port} holds message 1 of this stream, but the state file says that"
        " no number was ever given. Restore the file, or start with --start-at N, N above every number that any client"
        " or journal has seen"
    )
    assert again.out.count("stopping:") == 1
    assert "Traceback" not in again.out


def test_a_graceful_stop_leaves_no_hole(start_backbone: Any, peer: Any, tmp_path: Path) -> None:
    path = tmp_path / "its.state"
    backbone = start_backbone("--state", path, "--name", "its")
    subscriber = peer(backbone)
    subscriber.keepalive()
    subscriber.publish(*[b"data"] * 100)
    subscriber.delivered(100)
    backbone.stop()
    state = SequenceFile(path, "fyrehose://its", boot_id=b"after power loss")
    assert (state.last, state.bound, state.hole) == (100, 100, None)
    state.close()
    again = start_backbone("--state", path, "--name", "its")
    again.program.wait_for("the next number is 101\n")
