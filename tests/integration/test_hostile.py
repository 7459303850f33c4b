"""Malformed input at a real backbone: each is a counted drop, and valid traffic is unaffected."""

from __future__ import annotations

from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import pytest
import pytest_twisted
from integration.running.backbone import MakePeer, RunningBackbone, StartBackbone
from integration.running.programs import InTime

from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
from fyrehose_twisted.fyrehose.service.connect import join
from fyrehose_twisted.fyrehose.wire.codec import encode, encode_deliver
from fyrehose_twisted.fyrehose.wire.packets import (
    MAX_DELIVERABLE,
    MAX_SEQUENCE,
    Deliver,
    Dialect,
    Flags,
    Forward,
    Keepalive,
    KeepaliveAck,
    PacketType,
    Push,
    Request,
)

PACKETS = (
    Deliver(7, b"data"),
    Push(b"data"),
    Push(b"some data", Dialect.V1),
    Push(b"data", confirm=True),
    Request(("127.0.0.1", 9), 1, 7),
    Forward(("127.0.0.1", 9), 1, 7),
    Keepalive(token=b"t" * 16),
    Keepalive(token=b"", dialect=Dialect.V1),
    KeepaliveAck(b"t" * 16),
)


def is_push_of_version_1(cut: bytes) -> bool:
    return cut[:1] in (b"\x02", b"\x82") and len(cut) - 3 == int.from_bytes(cut[1:3], "big")


class Traffic:
    """Valid messages between the malformed ones."""

    def __init__(self, make_peer: MakePeer, backbone: RunningBackbone) -> None:
        self.publisher = make_peer(backbone)
        self.subscriber = make_peer(backbone)
        self.subscriber.keepalive()
        self.sent: list[bytes] = []
        self._packets: list[Any] = []

    def flow(self, count: int = 1) -> None:
        self._packets += self.subscriber.keepalive()  # Keeps its socket buffer from filling up.
        for _ in range(count):
            self.sent.append(b"good %d" % len(self.sent))
            self.publisher.publish(self.sent[-1])

    def check(self) -> None:
        delivered = [(packet.sequence, packet.data) for packet in self._packets if isinstance(packet, Deliver)]
        delivered += self.subscriber.delivered(len(self.sent) - len(delivered))
        assert delivered == list(enumerate(self.sent, 1))


@pytest.fixture
def traffic(peer: MakePeer, backbone: RunningBackbone) -> Traffic:
    return Traffic(peer, backbone)


@pytest_twisted.ensureDeferred
async def test_truncated_packets_are_dropped_and_counted(
    backbone: RunningBackbone, peer: MakePeer, traffic: Traffic
) -> None:
    bad = peer(backbone)
    # Truncations that are valid: KEEPALIVE without ADDR, ACK and PUSH of version 1.
    whole = {encode(Keepalive(token=b"t" * 16))[:7], encode(KeepaliveAck(b"t" * 16))[:1]}
    cuts = [encode(packet)[:end] for packet in PACKETS for end in range(len(encode(packet)))]
    cuts = [cut for cut in cuts if cut not in whole and not is_push_of_version_1(cut)]
    for cut in cuts:
        bad.send(cut)
        traffic.flow()
    bad.keepalive(3)
    traffic.check()
    dropped = await backbone.dropped()
    assert dropped.keys() == {"empty", "size", "length"}
    assert sum(dropped.values()) == len(cuts)
    assert dropped["empty"] == len(PACKETS)


@pytest_twisted.ensureDeferred
async def test_packets_with_invalid_lengths_or_types_are_dropped_and_counted(
    backbone: RunningBackbone, peer: MakePeer, traffic: Traffic
) -> None:
    bad, began = peer(backbone), monotonic()
    for length in (0, 3, 5, 65_526, 65_535):
        bad.send(b"\x02" + length.to_bytes(2, "big") + bytes(6) + b"data")
        traffic.flow()
    with_macs = {0x81, 0x88, 0xA0, 0xC1, 0xC8}
    known = {*PacketType, 2, 0x42, 0x82, 0xC2} - {0x40} | with_macs
    unknown = [kind for kind in range(256) if kind not in known]
    for kind in unknown:
        bad.send(bytes([kind]) + bytes(28))
    for packet in (Deliver(1, b"forged"), Forward(("127.0.0.1", 9), 1, 2), KeepaliveAck(bytes(16))):
        bad.send(packet)
    bad.send(b"\x04" + bytes(6) + (5).to_bytes(6, "big") + (4).to_bytes(6, "big"))
    bad.send(Keepalive(("127.0.0.2", 9), token=b"forged ADDR".ljust(16)))
    bad.send(Request(("127.0.0.1", 9), 1, 2))
    bad.keepalive(3)
    traffic.flow()
    traffic.check()
    assert await backbone.dropped() == {
        "length": 5,
        "unknown_type": len(unknown),
        "unexpected": 3,
        "range": 1,
        "foreign_address": 1,
        "request_for_stranger": 1,
    }
    # One log line per source, reason and minute.
    assert 1 <= backbone.program.out.count("dropped (unknown_type)") <= 1 + (monotonic() - began) // 60


@pytest_twisted.ensureDeferred
async def test_garbage_at_full_rate_does_not_disturb_a_stream(
    backbone: RunningBackbone, peer: MakePeer, traffic: Traffic
) -> None:
    seed = 4711
    rng = Random(seed)
    bad = peer(backbone)
    for number in range(4_000):
        # A first byte that makes no PUSH and no KEEPALIVE, so that no packet is numbered or admitted.
        bad.send(bytes([rng.choice((0, 1, 3, 4, 8, 0x20, 0x40, 0xFF))]) + rng.randbytes(rng.randrange(200)))
        if number % 50 == 0:
            traffic.flow()
            traffic.publisher.keepalive(3)
        if number % 200 == 0:
            bad.keepalive(3)
    bad.keepalive(3)
    traffic.check()
    dropped = await backbone.dropped()
    assert sum(dropped.values()) == 4_000, f"seed {seed}: {dropped}"


@pytest_twisted.ensureDeferred
async def test_flood_of_repair_requests_is_rate_limited(
    start_backbone: StartBackbone, peer: MakePeer, tmp_path: Path
) -> None:
    # A rate so low that it limits on the slowest machine.
    (tmp_path / "limits").write_text("request-rate = 1\nrequest-burst = 8000\n")
    backbone = start_backbone("--metrics", "tcp:0", "--limits", "limits")
    traffic = Traffic(peer, backbone)
    flooder, journal = peer(backbone), peer(backbone)
    flooder.keepalive(Flags.NOSUBSCRIBE)
    journal.keepalive(Flags.NOSUBSCRIBE)
    for number in range(20_000):
        flooder.send(Request(flooder.address, 1, 2))
        if number % 250 == 0:
            flooder.keepalive(Flags.NOSUBSCRIBE)
            traffic.flow()
            traffic.publisher.keepalive(3)
    flooder.keepalive(Flags.NOSUBSCRIBE)
    traffic.check()
    metrics = await backbone.metrics()
    dropped = (await backbone.dropped())["request_rate"]
    assert metrics["fyrehose_backbone_requests_total"] == 20_000
    answered = (metrics[f"fyrehose_backbone_{how}_total"] for how in ("answered", "routed", "beyond"))
    assert sum(answered) == 20_000 - dropped
    assert dropped > 10_000


@pytest_twisted.ensureDeferred
async def test_messages_up_to_the_maximum_size_arrive_unchanged(backbone: RunningBackbone, peer: MakePeer) -> None:
    """A message of 65,498 bytes arrives whole; one of 65,499 fits a PUSH of version 1, but no DELIVER."""
    sender, subscriber = peer(backbone), peer(backbone)
    subscriber.keepalive()
    pattern = bytes(range(256)) * 256
    sizes = (0, 1, 20_000, MAX_DELIVERABLE)
    for size in sizes:
        sender.publish(pattern[:size])
        assert subscriber.delivered(1)[0][1] == pattern[:size]
    sender.send(Push(pattern[: MAX_DELIVERABLE + 1], Dialect.V1))
    sender.send(Push(b"after", Dialect.V1, confirm=True))
    assert subscriber.delivered(1) == sender.delivered(1) == [(len(sizes) + 1, b"after")]
    assert await backbone.dropped() == {"too_long": 1}


class Collector(SubscriberProtocol):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.found: list[tuple[int, bytes]] = []
        self.lost: list[tuple[int, int]] = []
        self.wanted = 0
        self.enough: Any = None

    def messages_received(self, messages: Any) -> None:
        self.found += [(message.sequence, message.data) for message in messages]
        if self.enough is not None and len(self.found) >= self.wanted and not self.enough.called:
            self.enough.callback(None)

    def messages_lost(self, first: int, last: int) -> None:
        self.lost.append((first, last))

    def collected(self, count: int) -> Any:
        from twisted.internet.defer import Deferred

        self.wanted, self.enough = count, Deferred()
        self.messages_received([])
        return self.enough


@pytest_twisted.ensureDeferred
async def test_forged_delivers_do_not_ruin_a_stream(
    backbone: RunningBackbone, peer: MakePeer, in_time: InTime, leaving: list[Any]
) -> None:
    from twisted.internet import reactor

    subscriber = await join(reactor, Collector(), backbone.text)
    leaving.append(subscriber)
    publisher, stranger = peer(backbone), peer(backbone)
    publisher.publish(b"1", b"2")
    await in_time(subscriber.collected(2))
    port: Any = subscriber.transport
    here = ("127.0.0.1", port.getHost().port)
    # From another address, and from the backbone's own, as with a forged source address.
    for sequence in (3, 4, MAX_SEQUENCE):
        stranger.socket.sendto(encode_deliver(sequence, b"nobody asked for this"), here)
    subscriber.datagramReceived(encode_deliver(MAX_SEQUENCE, b"forged"), backbone.address)
    publisher.publish(b"3", b"4")
    await in_time(subscriber.collected(4))
    assert subscriber.found == [(1, b"1"), (2, b"2"), (3, b"3"), (4, b"4")]
    assert subscriber.lost == []
    assert subscriber.node is not None
    assert subscriber.node.drops.counts["unasked_repair"] == 3
    assert subscriber.node.drops.counts["implausible"] == 1


def test_stream_ends_at_the_highest_sequence_number(start_backbone: StartBackbone, peer: MakePeer) -> None:
    backbone = start_backbone("--start-at", MAX_SEQUENCE - 2)
    subscriber, publisher = peer(backbone), peer(backbone)
    subscriber.keepalive()
    publisher.publish(*(b"%d" % number for number in range(5)))
    assert subscriber.delivered(3) == [(MAX_SEQUENCE - 2 + number, b"%d" % number) for number in range(3)]
    assert backbone.program.finish() == 1
    expected = "stopping: all 2**48 - 1 numbers are assigned; start a stream with another --name"
    assert backbone.program.out.count(expected) == 1
    assert "Traceback" not in backbone.program.out
