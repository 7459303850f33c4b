from __future__ import annotations

import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from time import time
from typing import Any

import pytest

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.errors import (
    ConfigurationError,
    MessageTooLarge,
    NotConnected,
    OperationalError,
    PublishTimeout,
    SequenceRegressed,
)
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig
from fyrehose_twisted.fyrehose.events import ClientFailed
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, MAX_ENVELOPED, Envelope, unwrap
from fyrehose_twisted.fyrehose.wire.packets import (
    AGAIN,
    CONFIRM,
    MAX_DELIVERABLE,
    Deliver,
    Flags,
    Keepalive,
    PacketType,
    Push,
)
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.interfaces import Outputs
from fyrehose_twisted.net.udp import any_interface, family_of
from fyrehose_twisted.spark.sink import threaded_client as exchange_module
from fyrehose_twisted.spark.sink.identity import wrap_by_position
from fyrehose_twisted.spark.sink.publisher import BlockingPublisher, parse_backbone
from fyrehose_twisted.spark.sink.threaded_client import ThreadedClient, bind_towards

DEADLINE = 120.0
"""Seconds after which a test fails."""
SECRET = b"a secret that is long enough"


class LoopbackBackbone(threading.Thread):
    """A backbone node on a socket in a thread, with controlled losses."""

    def __init__(
        self,
        *,
        loss_in: float = 0.0,
        loss_out: float = 0.0,
        secret: bytes | None = None,
        last: int = 0,
        host: str = "127.0.0.1",
    ) -> None:
        super().__init__(daemon=True)
        rng = random.Random(7)
        self.node = Backbone(BackboneConfig(secret=secret), RandomForward(rng), BackboneStart(last=last, bound=last))
        self.loss_in, self.loss_out = loss_in, loss_out
        self.numbered: dict[int, bytes] = {}
        self.pushed: set[bytes] = set()
        self.keepalives = self.lost = 0
        self.changed = threading.Condition()
        self._random = rng.random
        self._stopping = False
        self.socket = socket.socket(family_of(host), socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 2**20)
        self.socket.bind((host, 0))
        self.text = format_address((host, self.socket.getsockname()[1]))
        self.start()

    def run(self) -> None:
        while not self._stopping:
            deadline = self.node.next_deadline()
            self.socket.settimeout(None if deadline is None else max(0.001, deadline - time()))
            try:
                datagram, peer = self.socket.recvfrom(65_536)
            except TimeoutError:
                self.node.tick(time())
            else:
                if not datagram:
                    continue
                with self.changed:
                    self._look(datagram)
                    if datagram[0] & ~(CONFIRM | AGAIN) == PacketType.PUSH and self._random() < self.loss_in:
                        self.lost += 1
                    else:
                        self.node.receive_batch(Batch.pack([(datagram, peer[:2])]), time())
            with self.changed:
                self._send()
                self.changed.notify_all()

    def _look(self, datagram: bytes) -> None:
        packet = decode(datagram)
        self.keepalives += isinstance(packet, Keepalive)
        if isinstance(packet, Push):
            self.pushed.add(packet.data)

    def _send(self) -> None:
        for effect in self.node.drain().effects:
            for datagram in map(bytes, effect.iter_datagrams()):
                packet = decode(datagram)
                if isinstance(packet, Deliver):
                    self.numbered[packet.sequence] = packet.data
                for peer in effect.peers:
                    if isinstance(packet, Deliver) and self._random() < self.loss_out:
                        self.lost += 1
                    else:
                        self.socket.sendto(datagram, peer)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, DEADLINE)

    def distinct(self) -> list[bytes]:
        """Return payloads as delivered by a subscriber, without repeats."""
        seen: set[Envelope] = set()
        found = []
        with self.changed:
            for _, data in sorted(self.numbered.items()):
                envelope = unwrap(data)
                if envelope is None or envelope not in seen:
                    found.append(data[ENVELOPE_SIZE:] if envelope else data)
                if envelope is not None:
                    seen.add(envelope)
        return found

    def stop(self) -> None:
        """Stop answering, like a host without power, but keep the port in use."""
        self._stopping = True
        with socket.socket(self.socket.family, socket.SOCK_DGRAM) as bell:
            bell.sendto(b"", self.socket.getsockname())
        self.join(DEADLINE)


Start = Callable[..., LoopbackBackbone]


@pytest.fixture
def start() -> Iterator[Start]:
    backbones: list[LoopbackBackbone] = []

    def started(**options: Any) -> LoopbackBackbone:
        backbones.append(LoopbackBackbone(**options))
        return backbones[-1]

    yield started
    for backbone in backbones:
        backbone.stop()
        backbone.socket.close()


def publishing(backbone: LoopbackBackbone, **options: Any) -> BlockingPublisher:
    return BlockingPublisher(backbone.text, **{"ack_timeout": DEADLINE, "publish_timeout": DEADLINE, **options})


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def wrapped(payloads: list[bytes]) -> list[bytes]:
    return wrap_by_position(b"test", 0, payloads)


def test_a_blocking_publisher_publishes_in_order_and_counts(start: Start) -> None:
    backbone = start(last=10)
    with publishing(backbone) as publisher:
        publisher.publish(iter(wrapped(numbers(300))))
        publisher.flush()
        first, last = publisher.sequence_range
        assert (publisher.published, first) == (300, 11)
        assert last >= 310, "a message that comes back late is sent again, and gets another number"
        publisher.publish(wrap_by_position(b"test", 1, [b"one more"]))
        publisher.flush()
        assert (publisher.published, publisher.sequence_range[0]) == (301, 11)
        assert publisher.sequence_range[1] > last
    assert backbone.distinct() == [*numbers(300), b"one more"]


def test_publishing_no_messages_returns_at_once(start: Start) -> None:
    with publishing(start()) as publisher:
        publisher.publish([])
        publisher.flush()
        assert (publisher.published, publisher.sequence_range) == (0, (0, 0))


def test_messages_lost_by_the_network_are_retransmitted(start: Start) -> None:
    backbone = start(loss_in=0.1, loss_out=0.1)
    with publishing(backbone) as publisher:
        publisher.publish(wrapped(numbers(1_000)))
        publisher.flush()
        assert publisher.published == 1_000
    assert sorted(backbone.distinct()) == sorted(numbers(1_000))
    assert len(backbone.numbered) == 1_000, "a message was given two numbers"
    assert backbone.lost > 100, "nothing was lost"


def test_messages_published_again_are_deduplicated(start: Start) -> None:
    backbone = start()
    for _ in range(2):
        with publishing(backbone) as publisher:
            publisher.publish(wrapped(numbers(500)))
            publisher.flush()
    assert len(backbone.numbered) >= 1_000
    assert backbone.distinct() == numbers(500)


def test_a_message_over_the_maximum_length_is_refused(start: Start) -> None:
    backbone = start()
    with publishing(backbone) as publisher:
        publisher.publish(wrapped([bytes(MAX_ENVELOPED)]))
        publisher.flush()
        with pytest.raises(MessageTooLarge, match=r"message of 65,499 bytes is over the limit of 65,498 bytes"):
            publisher.publish([bytes(MAX_DELIVERABLE + 1)])
    assert backbone.distinct() == [bytes(MAX_ENVELOPED)]


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that speeds up the clock a hundredfold, so that timeouts expire soon."""

    def hurrying() -> None:
        begin = time()
        monkeypatch.setattr(exchange_module, "time", lambda: begin + 100 * (time() - begin))

    return hurrying


def test_messages_in_flight_are_limited(start: Start, hurry: Callable[[], None]) -> None:
    backbone = start()
    with publishing(backbone, max_in_flight=3) as publisher:
        publisher.publish(wrapped(numbers(200)))
        publisher.flush()
        backbone.loss_in = 1.0
        backbone.pushed.clear()
        publisher.publish(wrap_by_position(b"test", 1, numbers(100)))
        backbone.wait_until(lambda: len(backbone.pushed) == 3)
        hurry()
        with pytest.raises(PublishTimeout, match=r"message 200, counted from 0, did not come back"):
            publisher.flush()
    assert {data[ENVELOPE_SIZE:] for data in backbone.pushed} == set(numbers(3))


def test_a_stopped_backbone_times_out_the_publisher(start: Start, hurry: Callable[[], None]) -> None:
    backbone = start()
    with publishing(backbone) as publisher:
        publisher.publish(wrapped(numbers(10)))
        publisher.flush()
        backbone.stop()
        hurry()
        pattern = (
            rf"message 10, .* backbone {backbone.text} within 120 s; 10 did. The backbone last answered \d+\.\d s ago"
        )
        endless = (data for chunk in count(1) for data in wrap_by_position(b"test", chunk, [bytes(1_000)] * 1_000))
        with pytest.raises(PublishTimeout, match=pattern):
            publisher.publish(endless)


def test_a_timeout_reports_datagrams_that_could_not_be_sent() -> None:
    node = Client(("127.0.0.1", 9), ClientConfig(), Random(1), 0.0)
    exchange = ThreadedClient(node, bind_towards(("127.0.0.1", 9), 65_536))
    exchange._bursts.errors.update({"ENETUNREACH": 1_200, "EINVAL": 1})
    told = str(exchange._timeout_error([3, 4]))
    assert told.startswith("message 3, counted from 0, did not come back from the backbone 127.0.0.1:9 within 30 s")
    assert told.endswith("; not sent: 1,200 datagrams (Network is unreachable)")
    for one in (exchange._socket, exchange._wake_reader, exchange._wake_writer):
        one.close()


def test_an_unresponsive_backbone_is_reported(start: Start) -> None:
    backbone = start()
    backbone.stop()
    pattern = rf"backbone {backbone.text} did not answer within 0.2 s; is it running, does it need a secret, and"
    with pytest.raises(NotConnected, match=pattern), publishing(backbone, ack_timeout=0.2):
        pass


def test_a_blocking_publisher_needs_the_secret_of_the_backbone(start: Start) -> None:
    backbone = start(secret=SECRET)
    with publishing(backbone, secret=SECRET) as publisher:
        publisher.publish(wrapped(numbers(5)))
        publisher.flush()
    assert backbone.distinct() == numbers(5)
    wrong = publishing(backbone, secret=SECRET[::-1], ack_timeout=0.2)
    with pytest.raises(NotConnected, match=r"is the secret the same there"), wrong:
        pass


@pytest.mark.skipif(any_interface() != "::", reason="this host has no IPv6")
@pytest.mark.parametrize("secret", [None, SECRET])
def test_a_blocking_publisher_reaches_a_backbone_over_ipv6(start: Start, secret: bytes | None) -> None:
    backbone = start(host="::1", secret=secret)
    assert backbone.text.startswith("[::1]:")
    with publishing(backbone, secret=secret) as publisher:
        publisher.publish(wrapped(numbers(5)))
        publisher.flush()
    assert backbone.distinct() == numbers(5)


@pytest.mark.parametrize("text", ["::1:2323", "[::1]", "[1.2.3.4]:5", "[::1]:0", "[]:5"])
def test_an_ipv6_backbone_needs_brackets_and_a_port(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not HOST:PORT, such as 127.0.0.1:2323 or \[::1\]:2323"):
        parse_backbone(text)


def test_an_idle_publisher_sends_keepalives_and_a_goodbye(start: Start) -> None:
    backbone = start()
    with publishing(backbone) as publisher:
        answered = backbone.keepalives
        backbone.wait_until(lambda: backbone.keepalives > answered)
        assert len(backbone.node.clients) == 1
        assert publisher.published == 0
    backbone.wait_until(lambda: backbone.node.clients[0].flags == Flags.NOSUBSCRIBE | Flags.NOJOURNAL)


class FailingNode:
    """A stopped node."""

    def next_deadline(self) -> None:
        return None

    def drain(self) -> Outputs:
        return Outputs(None, [], [ClientFailed(SequenceRegressed("numbers are given twice"))])

    def leave(self, now: float) -> None:
        raise AssertionError("this has to be told, too")


def test_a_failure_of_the_client_node_is_raised() -> None:
    exchange = ThreadedClient(FailingNode(), bind_towards(("127.0.0.1", 9), 65_536))  # type: ignore[arg-type]
    exchange.start()
    with pytest.raises(SequenceRegressed, match="numbers are given twice"):
        exchange.wait_connected(DEADLINE)
    exchange.close()
    with pytest.raises(SequenceRegressed, match="numbers are given twice"):
        exchange.flush()


@pytest.mark.parametrize("text", ["", "2323", "host:", ":2323", "host:0", "host:65536", "host:²"])
def test_an_invalid_backbone_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not HOST:PORT, such as 127.0.0.1:2323"), BlockingPublisher(text):
        pass


def test_an_unknown_backbone_host_is_an_error() -> None:
    with pytest.raises(OperationalError, match=r"'no-such-host.invalid' has no IP address"):
        BlockingPublisher("no-such-host.invalid:2323").__enter__()


def test_a_blocking_publisher_must_be_used_in_a_with_statement() -> None:
    with pytest.raises(NotConnected, match="use it in a with statement"):
        BlockingPublisher("127.0.0.1:2323").publish([b"x"])


def test_the_blocking_publisher_imports_no_twisted() -> None:
    program = "import fyrehose_twisted.spark.sink.task, sys; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert not {name for name in ran.stdout.split() if name.split(".")[0] in ("twisted", "pyspark", "pyarrow")}
