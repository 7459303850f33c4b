"""Kills, stops and restarts of the backbone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from integration.running.backbone import MakePeer, StartBackbone
from integration.running.journal import CheckTold
from integration.running.programs import InTime, Start
from integration.running.relay import Crossing, StartRelay
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread

from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.fyrehose.node.backbone.sequencer import MINIMUM_RESERVE
from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.fyrehose.service.connect import join
from fyrehose_twisted.fyrehose.service.state_file import SequenceFile
from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE
from fyrehose_twisted.fyrehose.wire.packets import Deliver, Flags, Forward, Push

FAST = ClientConfig(keepalive_interval=0.1)
RAW = replace(FAST, raw=True)


class Log(SubscriberProtocol):
    """Subscriber that records messages.

    :ivar ended: fires at the last message, ``the end``.
    """

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self.messages: list[tuple[int, bytes]] = []
        self.lost: list[tuple[int, int]] = []
        self.ended: Deferred[None] = Deferred()

    def messages_received(self, messages: Sequence[Message]) -> None:
        self.messages += [(message.sequence, message.data) for message in messages]
        if not self.ended.called and any(message.data.endswith(b"the end") for message in messages):
            self.ended.callback(None)

    def messages_lost(self, first: int, last: int) -> None:
        self.lost.append((first, last))


@pytest_twisted.ensureDeferred
async def test_stream_continues_after_a_kill_of_the_backbone(
    start_backbone: StartBackbone,
    free_port: Callable[[], int],
    in_time: InTime,
    leaving: list[Any],
    check_told: CheckTold,
) -> None:
    from twisted.internet import reactor

    backbone = start_backbone(port=free_port())
    log, raw = [await join(reactor, Log(config), backbone.text) for config in (FAST, RAW)]
    publisher = await join(reactor, PublisherProtocol(FAST), backbone.text)
    leaving += [log, raw, publisher]

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
    await in_time(gatherResults([publisher.publish(b"the end"), log.ended, raw.ended]))

    assert sorted(acknowledged.values()) == sorted(b"%d" % number for number in range(2_000))
    check_told(list(acknowledged.items()), raw.messages, log.messages)
    # The kill may have come between two DELIVERs of a message, so that only its publisher missed its own.
    assert dict(log.messages).items() >= acknowledged.items()
    # Numbers reserved and never sent are a gap, and are reported as one.
    holes = {number for first, last in log.lost for number in range(first, last + 1)}
    assert holes.isdisjoint(acknowledged)
    assert "the next number is 1\n" not in again.program.out


@pytest.mark.parametrize(("retransmit", "numbers"), [(32, [2]), (0, [2, 3])], ids=["remembered", "forgotten"])
@pytest_twisted.ensureDeferred
async def test_publisher_that_misses_its_deliver_is_told_the_final_number(
    retransmit: int,
    numbers: list[int],
    start_backbone: StartBackbone,
    relay: StartRelay,
    in_time: InTime,
    leaving: list[Any],
    check_told: CheckTold,
) -> None:
    from twisted.internet import reactor

    backbone = start_backbone("--retransmit", retransmit)
    again: list[int] = []

    def carry(crossing: Crossing) -> None:
        """Drop the message under its first number until it was pushed again."""
        packet = decode(crossing.datagram)
        if isinstance(packet, Push) and packet.again:
            again.append(1)
        if again or not (isinstance(packet, Deliver) and packet.data[ENVELOPE_SIZE:] == b"dropped"):
            crossing.resume()

    host, port = relay(backbone.address, carry).address
    log, raw = [await join(reactor, Log(config), backbone.text) for config in (FAST, RAW)]
    publisher = await join(reactor, PublisherProtocol(FAST), f"{host}:{port}")
    leaving += [log, raw, publisher]
    lines = (b"before", b"dropped", b"after", b"the end")
    told = [(await in_time(publisher.publish(line)), line) for line in lines]
    await in_time(gatherResults([log.ended, raw.ended]))
    assert [number for number, data in raw.messages if data.endswith(b"dropped")] == numbers
    assert [number for number, data in log.messages if data == b"dropped"] == [2]
    check_told(told, raw.messages, log.messages)
    assert told[1] == (2, b"dropped")


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped"])
def test_restarted_backbone_delivers_to_its_former_clients_at_once(
    kill: bool, start_backbone: StartBackbone, peer: MakePeer, free_port: Callable[[], int]
) -> None:
    backbone = start_backbone(port=free_port())
    peers = [peer(backbone) for _ in range(100)]
    for one in peers:
        one.keepalive()
    publisher = peer(backbone)
    publisher.keepalive(Flags.NOSUBSCRIBE)
    publisher.publish(b"before")
    assert [one.delivered(1) for one in peers] == [[(1, b"before")]] * 100
    if kill:
        backbone.kill()
    else:
        backbone.stop()
    # It would wait for a minute if it did not know them, and none of them sends a KEEPALIVE.
    again = start_backbone(port=backbone.address[1], settle=60)
    again.program.wait_for("the next number is 2\n")
    publisher.publish(b"after")
    assert [one.delivered(1) for one in peers] == [[(2, b"after")]] * 100


def test_backbone_listens_for_the_stream_head_after_a_power_failure(
    start_backbone: StartBackbone, peer: MakePeer, free_port: Callable[[], int], tmp_path: Path
) -> None:
    backbone = start_backbone(port=free_port())
    known, unknown = peer(backbone), peer(backbone)
    known.keepalive()
    known.publish(b"before")
    known.delivered(1)
    backbone.kill()
    path = tmp_path / "fyrehose-default.state"
    page = bytearray(path.read_bytes())
    page[32:48] = b"another boot id."
    path.write_bytes(page)
    start_backbone(port=backbone.address[1], settle=1)
    known.publish(b"after")
    unknown.keepalive()
    hole = MINIMUM_RESERVE + 1
    assert known.delivered(1) == unknown.delivered(1) == [(hole + 1, b"after")]


@pytest_twisted.ensureDeferred
async def test_backbone_without_its_state_file_stops_when_a_client_holds_messages(
    start_backbone: StartBackbone,
    launch: Start,
    free_port: Callable[[], int],
    tmp_path: Path,
    in_time: InTime,
    leaving: list[Any],
) -> None:
    from twisted.internet import reactor

    backbone = start_backbone(port=free_port())
    publisher = await join(reactor, PublisherProtocol(FAST), backbone.text)
    leaving.append(publisher)
    assert await in_time(publisher.publish(b"1")) == 1
    backbone.kill()
    (tmp_path / "fyrehose-default.state").unlink()
    again = launch("--port", backbone.address[1])
    leaving_port: Any = publisher.transport
    # In a thread, because the publisher has to answer meanwhile.
    assert await deferToThread(again.finish) == 1
    ended = again.wait_for(r"stopping: (client [0-9.:]+ holds message 1 .*)")
    assert ended[1] == (
        f"client 127.0.0.1:{leaving_port.getHost().port} holds message 1 of this stream, but the state file"
        " contains no number. Restore the file, or start with --start-at N, where N is above every number that any"
        " client or journal has seen"
    )
    assert again.out.count("stopping:") == 1
    assert "Traceback" not in again.out


def test_single_client_with_a_false_sequence_cannot_block_a_new_backbone(
    start_backbone: StartBackbone, peer: MakePeer
) -> None:
    backbone = start_backbone(settle=1)
    liar, honest = peer(backbone), peer(backbone, "127.0.0.2")
    honest.keepalive()
    liar.keepalive()
    assert isinstance(liar.receive(), Forward)
    liar.send(Deliver(2**40, b"made up"))
    honest.publish(b"data")
    assert honest.delivered(1) == [(1, b"data")]
    backbone.program.wait_for(
        rf"claims to hold message {2**40} of this stream, but none of 1 other clients .*claim ignored"
    )


def test_graceful_stop_leaves_no_gap(start_backbone: StartBackbone, peer: MakePeer, tmp_path: Path) -> None:
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
