"""Subscribers in C and JavaScript: complete streams, and robustness against foreign packets."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import pytest
import pytest_twisted
from integration.running.backbone import RunningBackbone, StartBackbone
from integration.running.programs import InTime, Program, Start
from integration.running.relay import Crossing, StartRelay
from suite.sealing import ring, seal_key
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.protocol import DatagramProtocol
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.fyrehose.service.connect import join
from fyrehose_twisted.fyrehose.wire.codec import decode, encode, encode_deliver
from fyrehose_twisted.fyrehose.wire.envelope import MAGIC, wrap
from fyrehose_twisted.fyrehose.wire.packets import (
    MAX_DELIVERABLE,
    MAX_SEQUENCE,
    Flags,
    Forward,
    Keepalive,
    KeepaliveAck,
    Packet,
    PacketType,
    Push,
    Request,
)
from fyrehose_twisted.sealing.key_file import create_key_ring, create_signing_key
from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.signing import SigningKey

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "other-languages.md"
DEADLINE = 120.0
LANGUAGES = ("c", "js")
SHORT, CAREFUL = KINDS = ("subscriber", "careful_subscriber")
RING = 4_096
"""Number of messages that a short subscriber holds."""

LOSS, REORDER = 0.1, 0.05
PART = 100
SEED = 5

Command = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the directory of the compiled subscribers."""
    return {"directory": tmp_path_factory.mktemp("built")}


@pytest.fixture
def command(program: Callable[[str, str], Path], built: dict[str, Path]) -> Command:
    """Return the command of a subscriber, by its file name, as documented."""

    def commanded(name: str) -> list[str]:
        stem, _, language = name.partition(".")
        if language == "js":
            return [str(program("node", "nodejs")), str(ROOT / "examples" / name)]
        if name not in built:
            program("cc", "gcc libc6-dev")
            line = re.search(rf"^cc .* examples/{name}$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
            assert line
            if not built["directory"].joinpath("examples").exists():
                (built["directory"] / "examples").symlink_to(ROOT / "examples")
            compiled = subprocess.run(
                [*shlex.split(line[0]), "-Werror"], cwd=built["directory"], capture_output=True, text=True, check=False
            )
            assert compiled.returncode == 0, compiled.stderr
            built[name] = built["directory"] / stem
        return [str(built[name])]

    return commanded


Subscribe = Callable[[str, Address], Any]


@pytest.fixture
def subscribe(start: Start, command: Command) -> Subscribe:
    """Return a function that starts a subscriber, given its file name and the backbone's address."""

    def subscribed(name: str, backbone: Address) -> Any:
        return start(*command(name), *backbone, of_ours=False)

    return subscribed


class Log(SubscriberProtocol):
    """Subscriber of the library that prints like the foreign ones."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.ended: Deferred[None] = Deferred()

    def messages_received(self, messages: Sequence[Any]) -> None:
        self.lines += [f"{message.sequence}\t{message.data.decode()}\n" for message in messages]
        if messages[-1].data == b"the end":
            self.ended.callback(None)

    def messages_lost(self, first: int, last: int) -> None:
        self.lines.append(f"lost {first} to {last}\n")


async def ours(backbone: RunningBackbone, leaving: list[Any]) -> tuple[Log, PublisherProtocol]:
    """Return a subscriber and a publisher of the library, beside the two foreign subscribers."""
    from twisted.internet import reactor

    log = await join(reactor, Log(), backbone.text)
    publisher = await join(reactor, PublisherProtocol(), backbone.text)
    leaving += [log, publisher]
    await deferToThread(backbone.wait_for_clients, 4)
    return log, publisher


def check(kind: str, foreigner: Program, log: Log, published: list[bytes]) -> None:
    """Compare the output of a foreign subscriber with that of the library and with the published messages."""
    assert foreigner.signal(signal.SIGTERM).finish() == (0 if kind == CAREFUL else -signal.SIGTERM), foreigner
    assert foreigner.err == ""
    lines = foreigner.out.splitlines(keepends=True)
    if kind == SHORT:
        first, last = (int(lines[index].partition("\t")[0]) for index in (0, -1))
        assert [int(line.partition("\t")[0]) for line in lines] == list(range(first, last + 1))
        # It prints a repeated push twice; the library's subscriber drops the second one.
        once: dict[str, str] = {}
        for line in lines:
            once.setdefault(line.partition("\t")[2], line)
        lines = list(once.values())
    assert [pair for pair in zip(lines, log.lines, strict=True) if pair[0] != pair[1]] == []
    # A retransmitted push gets a higher number than later ones.
    printed = [line.partition("\t")[2].encode() for line in lines]
    assert len(printed) == len(published)
    assert set(printed) ^ {data + b"\n" for data in published} == set()


@pytest.mark.extended
@pytest.mark.parametrize("kind", KINDS)
@pytest_twisted.ensureDeferred
async def test_foreign_subscribers_receive_the_whole_stream(
    backbone: RunningBackbone, subscribe: Subscribe, in_time: InTime, leaving: list[Any], kind: str
) -> None:
    foreigners = [subscribe(f"{kind}.{language}", backbone.address) for language in LANGUAGES]
    log, publisher = await ours(backbone, leaving)
    messages = [b"%d" % number for number in range(20_000)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as impatient:
        repeated = encode(Push(wrap(b"publishr", 0, b"repeated")))
        impatient.sendto(repeated, backbone.address)
        await in_time(gatherResults(map(publisher.publish, messages)))
        impatient.sendto(repeated, backbone.address)
    await in_time(gatherResults([log.ended, publisher.publish(b"the end")]))
    for foreigner in foreigners:
        await deferToThread(foreigner.wait_for, "\tthe end\n")
        check(kind, foreigner, log, [b"repeated", *messages, b"the end"])


class Bad:
    """Relay that loses and delays datagrams in both directions once enabled.

    Repairs come from a port of their own, as they come from other hosts on a network.
    """

    def __init__(self, reactor: Any, backbone: Address, relay: StartRelay) -> None:
        self.loss = self.reorder = 0.0
        self.lost = self.repairs = 0
        self._backbone = backbone
        self._reactor = reactor
        self._random = Random(SEED)
        relaying = relay(backbone, self._carry)
        self._stranger = DatagramProtocol()
        self._stranger.noisy = False
        relaying.listen(self._stranger)
        self.address: Address = relaying.address

    def _carry(self, crossing: Crossing) -> None:
        repair = crossing.source not in (self._backbone, crossing.client)
        self.repairs += repair
        port = self._stranger if repair else crossing.port
        if self._random.random() < self.loss:
            self.lost += 1
        elif self._random.random() < self.reorder:
            self._reactor.callLater(0.005, crossing.resume, port)
        else:
            crossing.resume(port)


@pytest.mark.extended
@pytest.mark.parametrize("kind", KINDS)
@pytest_twisted.ensureDeferred
async def test_foreign_subscribers_repair_losses(
    start_backbone: StartBackbone,
    relay: StartRelay,
    subscribe: Subscribe,
    in_time: InTime,
    leaving: list[Any],
    kind: str,
) -> None:
    from twisted.internet import reactor

    backbone = start_backbone("--retransmit", 0)
    bad = Bad(reactor, backbone.address, relay)
    foreigners = [subscribe(f"{kind}.{language}", bad.address) for language in LANGUAGES]
    log, publisher = await ours(backbone, leaving)
    messages = [b"%d" % number for number in range(5_000)] + [b"the end"]
    await in_time(publisher.publish(messages[0]))
    for foreigner in foreigners:
        await deferToThread(foreigner.wait_for, "\t0\n")
    bad.loss, bad.reorder = LOSS, REORDER
    # In parts, so that the relay's own socket loses nothing.
    for start in range(1, len(messages) - 1, PART):
        await in_time(gatherResults(map(publisher.publish, messages[start : min(start + PART, len(messages) - 1)])))
    if kind == SHORT:
        # A gap is only detected by a later message, so messages follow one by one until all gaps are repaired.
        # The last of a burst could be lost without detection.
        bad.loss = bad.reorder = 0.0
        end = monotonic() + DEADLINE
        while not all("\t4999\n" in foreigner.out for foreigner in foreigners):
            assert monotonic() < end, foreigners
            messages.insert(-1, b"calm %d" % len(messages))
            await in_time(publisher.publish(messages[-2]))
            await deferLater(reactor, 0.05)
    await in_time(gatherResults([log.ended, publisher.publish(messages[-1])]))
    for foreigner in foreigners:
        await deferToThread(foreigner.wait_for, "\tthe end\n")
        check(kind, foreigner, log, messages)
    expected = len(foreigners) * LOSS * 5_000
    assert bad.lost > expected / 2
    assert bad.repairs > expected / 2


class Stage:
    """Scripted backbone and stranger in front of a subscriber."""

    def __init__(self, subscribe: Subscribe, name: str) -> None:
        self.wire, self.stranger = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        for one in (self.wire, self.stranger):
            one.bind(("127.0.0.1", 0))
            one.settimeout(DEADLINE)
        self.subscriber = subscribe(name, self.wire.getsockname())
        self._end = monotonic() + DEADLINE
        first, self._address = self.wire.recvfrom(65_536)
        assert decode(first) == Keepalive(flags=Flags.NOJOURNAL)

    def send(self, *packets: Packet | bytes) -> None:
        for packet in packets:
            self.wire.sendto(packet if isinstance(packet, bytes) else encode(packet), self._address)

    def forge(self, *packets: Packet | bytes) -> None:
        for packet in packets:
            self.stranger.sendto(packet if isinstance(packet, bytes) else encode(packet), self._address)

    def next_packet(self) -> Keepalive | Request:
        assert monotonic() < self._end, self.subscriber
        packet = decode(self.wire.recv(65_536))
        assert isinstance(packet, Request) or packet == Keepalive(flags=Flags.NOJOURNAL)
        return packet

    def next_request(self) -> Request:
        """Return the next REQUEST, ignoring KEEPALIVEs."""
        while not isinstance(packet := self.next_packet(), Request):
            pass
        return packet

    def requests_of_a_second(self) -> list[Request]:
        """Return the REQUESTs between two KEEPALIVEs."""
        while isinstance(self.next_packet(), Request):
            pass
        requests = []
        while isinstance(packet := self.next_packet(), Request):
            requests.append(packet)
        return requests

    def finish(self) -> str:
        """Stop the subscriber, check its goodbye, and return its output."""
        assert self.subscriber.signal(signal.SIGTERM).finish() == 0, self.subscriber
        packet: Packet | None = None
        while packet != Keepalive(flags=Flags.NOJOURNAL | Flags.NOSUBSCRIBE):
            packet = decode(self.wire.recv(65_536))
        return str(self.subscriber.out)

    def close(self) -> None:
        self.wire.close()
        self.stranger.close()


@pytest.fixture
def set_stage(subscribe: Subscribe, command: Command) -> Iterator[Callable[[str], Stage]]:
    """Return a factory of stages, by the file name of the subscriber."""
    stages: list[Stage] = []

    def made(name: str) -> Stage:
        command(name)  # Skip the test before there are sockets if the language is not installed.
        stages.append(Stage(subscribe, name))
        return stages[-1]

    yield made
    for stage in stages:
        stage.close()


def broken(rng: Random) -> list[bytes]:
    """Return malformed DELIVERs with the next sequence numbers.

    Twice as many fit into a socket with default buffers.
    """
    good = encode_deliver(3, b"never to be seen")
    told = [good[:1] + length.to_bytes(2, "big") + good[3:] for length in (0, 15, 17, 65_526, 65_535)]
    cut = [good[:size] for size in range(len(good))]
    others = [
        encode(packet)
        for packet in (Push(b"data"), Request(("127.0.0.1", 9), 1, 7), Forward(("127.0.0.1", 9), 1, 7), Keepalive())
    ]
    acks = [encode(KeepaliveAck(bytes(16))), bytes([PacketType.KEEPALIVE_ACK]), b"\x20\x00"]
    noise = [rng.randbytes(rng.randrange(1, 2_000)) for _ in range(30)]
    noise += [b"\x01" + rng.randbytes(rng.randrange(40)) for _ in range(100)]
    return told + cut + others + acks + [data for data in noise if not is_deliver(data)] + [b"\x81" + good[1:]]


def is_deliver(data: bytes) -> bool:
    return data[:1] == b"\x01" and len(data) >= 9 and int.from_bytes(data[1:3], "big") == len(data) - 9


@pytest.mark.parametrize("language", LANGUAGES)
def test_foreign_subscriber_ignores_forged_and_malformed_packets(
    set_stage: Callable[[str], Stage], language: str
) -> None:
    stage, bad = set_stage(f"{CAREFUL}.{language}"), broken(Random(SEED))
    stage.forge(encode_deliver(7, b"forged"), *bad)
    stage.send(*bad, encode_deliver(0, b"no number"))
    stage.send(encode_deliver(1, b"one"), encode_deliver(1, b"again"))
    stage.subscriber.wait_for("1\tone\n")
    for number in (0, 1, 2, 3, 1_000, 2**32, MAX_SEQUENCE):
        stage.forge(encode_deliver(number, b"forged"))
    stage.forge(*bad)
    stage.send(*bad)
    stage.send(encode_deliver(2, b"two"))
    stage.subscriber.wait_for("2\ttwo\n")
    stage.send(encode_deliver(4, b"damaged"), encode_deliver(MAX_SEQUENCE, b"damaged"))
    envelopes = [wrap(b"publishr", counter, b"enveloped %d" % counter) for counter in (0, 1, 65_535)]
    large = b"x" * MAX_DELIVERABLE
    # In a table of 65,536 slots these all share one.
    crowded = [wrap(number.to_bytes(8, "big"), number, b"crowded %d" % number) for number in range(1, 6)]
    wrapped = [wrap(bytes(8), 0, b""), *envelopes, *crowded]
    data = [b"three", b"four", b"", large, MAGIC, MAGIC + b"x" * 15, b"\n", *wrapped, *wrapped, b"the end"]
    # The valid DELIVER replaces the damaged one.
    for number, item in sorted(enumerate(data, 3), key=lambda numbered: numbered[0] != 4):
        stage.send(encode_deliver(number, item))
    stage.subscriber.wait_for("\tthe end\n")
    printed = ["one", "two", "three", "four", "", "x" * MAX_DELIVERABLE]
    out = stage.finish()
    magic = MAGIC.decode(errors="replace")
    printed += [magic, magic + "x" * 15, "\n", "", *(f"enveloped {counter}" for counter in (0, 1, 65_535))]
    printed += [f"crowded {number}" for number in range(1, 6)]
    expected = [f"{number}\t{line}\n" for number, line in enumerate(printed, 1)]
    assert out == "".join(expected) + f"{len(printed) + len(wrapped) + 1}\tthe end\n"
    assert stage.subscriber.err == ""


def mind_gaps(stage: Stage) -> None:
    """Gaps are requested until they are filled, and given up if no client fills them."""
    stage.send(*(encode_deliver(number, b"%d" % number) for number in (10, 13, 12, 15)))
    first, second = Request(("0.0.0.0", 0), 11, 11), Request(("0.0.0.0", 0), 14, 14)
    both = Request(("0.0.0.0", 0), 11, 12)
    request = stage.next_request()
    while request in (first, both):  # Once, unless 12 or 15 was late.
        request = stage.next_request()
    assert request == second
    # Another host may fill a gap, and nothing else.
    stage.forge(*(encode_deliver(number, b"forged") for number in (10, 12, 13, 15, 16, 17)))
    stage.forge(encode_deliver(14, b"14"), encode_deliver(14, b"forged"))
    # A damaged number is dropped with the next valid one; it costs at most one round of requests.
    stage.send(encode_deliver(MAX_SEQUENCE, b"damaged"), encode_deliver(16, b"16"))
    # No client has 11. It is given up after some seconds, and then arrives too late.
    asked: list[Request] = []
    while b"lost" not in stage.subscriber.outputs[2]:
        asked.append(stage.next_request())
    assert asked.count(Request(("0.0.0.0", 0), 11, 11)) > 20
    assert sum(request.last > 16 for request in asked) <= 4
    stage.subscriber.wait_for("16\t16\n")
    stage.send(encode_deliver(11, b"late"), encode_deliver(17, b"17"))
    # The end of a burst is requested although no later message reveals its loss.
    while (request := stage.next_request()).first < 18:
        assert request in (first, Request(("0.0.0.0", 0), 17, 17 + 1_023))
    assert request == Request(("0.0.0.0", 0), 18, 18 + 1_023)
    stage.forge(encode_deliver(19, b"19"), encode_deliver(18, b"18"), encode_deliver(18 + 1_024, b"forged"))
    stage.subscriber.wait_for("19\t19\n")
    assert stage.finish() == "".join(f"{number}\t{number}\n" for number in (10, *range(12, 20)))
    assert stage.subscriber.err == "lost 11 to 11\n"


def fall_behind(stage: Stage) -> None:
    """It was suspended so long that no client has the missed messages; it continues with new ones."""
    far = 10_000_000
    stage.send(*(encode_deliver(number, b"%d" % number) for number in (1, far, far + 1, far + 2)))
    assert stage.next_request() == Request(("0.0.0.0", 0), 2, 1_025)
    while b"lost" not in stage.subscriber.outputs[2]:
        stage.next_request()
    stage.send(encode_deliver(far + 3, b"%d" % (far + 3)))
    stage.subscriber.wait_for(f"{far + 3}\t{far + 3}\n")
    assert stage.finish() == f"1\t1\n{far + 3}\t{far + 3}\n"
    assert stage.subscriber.err == f"lost 2 to {far + 2}\n"


def stop_short(stage: Stage) -> str:
    """Stop a short subscriber, which sends no goodbye, and return its output."""
    assert stage.subscriber.signal(signal.SIGTERM).finish() == -signal.SIGTERM, stage.subscriber
    assert stage.subscriber.err == ""
    return str(stage.subscriber.out)


def ask_on(stage: Stage) -> None:
    """A short subscriber requests gaps until they are filled, however far it lags."""
    stage.send(*(encode_deliver(number, b"%d" % number) for number in (10, 13, 12, 15, MAX_SEQUENCE, 16)))
    stage.next_request()  # KEEPALIVEs of earlier seconds without gaps come first.
    asked = stage.requests_of_a_second()
    assert 3 <= asked.count(Request(("0.0.0.0", 0), 11, 11)) <= 11
    assert 3 <= asked.count(Request(("0.0.0.0", 0), 14, 14)) <= 11
    assert all(request.last < 16 for request in asked)  # None for the damaged number.
    stage.forge(*(encode_deliver(number, b"%d" % number) for number in (14, 11, 14)))
    stage.subscriber.wait_for("16\t16\n")
    # It lags by more than it can hold, and receives only what it requests.
    last = 17 + 2 * RING
    stage.send(encode_deliver(last, b"%d" % last))
    ends = set()
    while b"\n%d\t%d\n" % (last, last) not in stage.subscriber.outputs[1]:
        if isinstance(packet := stage.next_packet(), Request):
            asked_for = range(packet.first, packet.last + 1)
            assert len(asked_for) <= 1_024
            ends.add(packet.last)
            stage.send(*(encode_deliver(number, b"%d" % number) for number in asked_for))
    assert last in ends  # It did not hold the first messages.
    assert stop_short(stage) == "".join(f"{number}\t{number}\n" for number in range(10, last + 1))


@pytest.mark.extended
def test_foreign_subscribers_handle_gaps_and_permanent_losses(set_stage: Callable[[str], Stage]) -> None:
    # Concurrently, because the careful subscribers take the seconds after which a gap is given up.
    parts = ((mind_gaps, CAREFUL), (fall_behind, CAREFUL), (ask_on, SHORT))
    acts = [(act, set_stage(f"{kind}.{language}")) for act, kind in parts for language in LANGUAGES]
    with ThreadPoolExecutor(len(acts)) as pool:
        for done in [pool.submit(act, stage) for act, stage in acts]:
            done.result()


@pytest.mark.parametrize("language", LANGUAGES)
def test_foreign_subscriber_prints_its_usage(start: Start, command: Command, language: str) -> None:
    ran = start(*command(f"{CAREFUL}.{language}"), of_ours=False)
    assert ran.finish() == 2
    assert re.fullmatch(r"usage: .*subscriber.* HOST PORT( \[KEY_FILE\])?\n", ran.err)


@pytest.mark.parametrize("language", LANGUAGES)
def test_short_foreign_subscriber_ignores_malformed_packets(set_stage: Callable[[str], Stage], language: str) -> None:
    stage, bad = set_stage(f"{SHORT}.{language}"), broken(Random(SEED))
    stage.send(*bad, encode_deliver(0, b"no number"))
    stage.send(encode_deliver(1, b"one"), encode_deliver(1, b"again"), *bad)
    stage.subscriber.wait_for("1\tone\n")
    wrapped = [wrap(bytes(8), 0, b""), *(wrap(b"publishr", counter, b"%d" % counter) for counter in (0, 65_535))]
    large = b"x" * MAX_DELIVERABLE
    data = [b"two", b"three", b"four", b"", large, MAGIC, MAGIC + b"x" * 15, b"\n\0", *wrapped, *wrapped, b"the end"]
    stage.send(*(encode_deliver(number, item) for number, item in enumerate(data[1:], 3)))
    # A message too far ahead must not replace a held one.
    for number in (0, 1, 2 + RING, 3 + RING, 1 + 2 * RING, 2**32, MAX_SEQUENCE):
        stage.send(encode_deliver(number, b"not due"))
    stage.send(*bad, encode_deliver(2, data[0]))
    stage.subscriber.wait_for("\tthe end\n")
    magic = MAGIC.decode(errors="replace")
    printed = ["one", "two", "three", "four", "", large.decode(), magic, magic + "x" * 15, "\n\0"]
    printed += [*["", "0", "65535"] * 2, "the end"]
    assert stop_short(stage) == "".join(f"{number}\t{line}\n" for number, line in enumerate(printed, 1))


OPEN_VECTORS = """
const { opener } = require(process.argv[1]), fs = require('fs');
for (const vector of JSON.parse(fs.readFileSync(process.argv[2]))) {
  const publisher = vector.public_key ? `publisher anna ${vector.public_key}` : '';
  const open = opener(`stream ${vector.stream}\\nkey ${vector.algorithm} ${vector.key}  # comment\\n${publisher}`);
  const size = vector.kind === 'sealed' ? vector.envelope.length / 2 : vector.envelope_size;
  const shown = [1, 2].map(() => open(Buffer.from(vector.data, 'hex'), size));
  console.log(JSON.stringify([vector.name, ...shown.map((one) => (Buffer.isBuffer(one) ? one.toString('hex') : one))]));
}
"""


def test_sealed_vectors_open_in_javascript(program: Callable[[str, str], Path], start: Start) -> None:
    module, vectors = ROOT / "examples" / "open_sealed.js", ROOT / "tests" / "vectors" / "seal.json"
    node = str(program("node", "nodejs"))
    opened = start(node, "-e", OPEN_VECTORS, module, vectors, of_ours=False)
    assert opened.finish() == 0, opened
    found = {name: shown for name, *shown in map(json.loads, opened.out.splitlines())}
    assert found == {
        vector["name"]: [vector["payload"], "seal_repeated"] if vector["kind"] == "sealed" else [vector["reason"]] * 2
        for vector in json.loads(vectors.read_text(encoding="utf-8"))
    }


@pytest.mark.extended
def test_a_subscriber_in_javascript_opens_a_sealed_stream(
    backbone: RunningBackbone, start: Start, command: Command, tmp_path: Path
) -> None:
    signing, keys = SigningKey(b"7" * 32), tmp_path / "prices.keys"
    create_key_ring(keys, KeyRing(ring().stream, [seal_key(2, "aes-256-gcm"), seal_key()], {"anna": signing.public}))
    create_signing_key(tmp_path / "anna.key", signing)
    foreign = start(*command("careful_subscriber.js"), *backbone.address, keys, of_ours=False)
    backbone.wait_for_clients(1)
    to = ("-b", backbone.text, "--seal-key-file", keys)
    assert start("fyrehose", "pub", *to).finish(b"unsigned\n") == 0
    assert start("fyrehose", "pub", "-b", backbone.text).finish(b"plain\n") == 0
    lines = b"".join(b"line %d\n" % number for number in range(500))
    assert start("fyrehose", "pub", *to, "--sign-key-file", tmp_path / "anna.key").finish(lines) == 0
    foreign.wait_for("line 499")
    foreign.signal(signal.SIGTERM)
    assert foreign.finish() == 0
    assert [line.partition("\t")[2] for line in foreign.out.splitlines()] == lines.decode().splitlines()
    assert foreign.err.splitlines() == ["dropped 1: seal_unsigned", "dropped 2: seal_missing"]


@pytest.mark.extended
@pytest.mark.parametrize("language", ["c", "js"])
def test_careful_subscribers_print_keys(
    start: Start, backbone: RunningBackbone, subscribe: Subscribe, language: str
) -> None:
    foreign = subscribe(f"careful_subscriber.{language}", backbone.address)
    backbone.wait_for_clients(1)
    publisher = start("fyrehose", "pub", "-b", backbone.text, "--key-separator", "=")
    assert publisher.finish(b"kitchen=21\n" + b"k" * 255 + b"=\n") == 0, publisher
    publisher = start("fyrehose", "pub", "-b", backbone.text)
    assert publisher.finish(b"\xf7FK\x01\x01like a key\nthe end\n") == 0, publisher
    foreign.wait_for("the end")
    foreign.signal(signal.SIGTERM)
    assert foreign.finish() == 0
    lines = foreign.out.splitlines()
    assert lines[:2] == ["1 kitchen\t21", f"2 {'k' * 255}\t"]
    assert lines[2].startswith("3\t")
    assert lines[2].endswith("FK\x01\x01like a key")
    assert len(lines[2]) == len("3\t?FK\1\1like a key")
    assert lines[3] == "4\tthe end"
