from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import IO, Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener, urlopen

import pytest
import pytest_twisted
import treq
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from suite.marionette import Firefox, promise_of
from twisted.internet.defer import maybeDeferred
from twisted.internet.protocol import DatagramProtocol

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, Deliver, Flags, Keepalive, KeepaliveAck, Packet, Push
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.reader import open_reader
from fyrehose_twisted.net.boottime import BoottimeReactor, boottime_seconds

DEADLINE = 120.0
"""Seconds after which an awaited event fails a test; reached only on failure."""

BIN = Path(sys.executable).parent


class Program:
    """A process under test. Its output is read as it arrives, so that a test can wait for a line."""

    def __init__(self, *command: str, **options: Any) -> None:
        self._changed = threading.Condition()
        self.outputs = {1: b"", 2: b""}
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        self.process = subprocess.Popen(command, **options)
        streams = {1: self.process.stdout, 2: self.process.stderr}
        self._open = len(streams)
        self._threads = [threading.Thread(target=self._read, args=item, daemon=True) for item in streams.items()]
        for thread in self._threads:
            thread.start()

    def _read(self, number: int, stream: IO[bytes] | None) -> None:
        while stream is not None and (data := stream.read1(65_536)):  # type: ignore[attr-defined]
            with self._changed:
                self.outputs[number] += data
                self._changed.notify_all()
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    @property
    def out(self) -> str:
        return self.outputs[1].decode(errors="replace")

    @property
    def err(self) -> str:
        return self.outputs[2].decode(errors="replace")

    def __repr__(self) -> str:
        return f"{self.process.args!r}\nstatus {self.process.poll()}\n{self.out[-8_000:]}\n{self.err[-8_000:]}"

    def wait_for(self, pattern: str, *, times: int = 1) -> re.Match[str]:
        """Return the last match of ``pattern`` in standard output once there are ``times``."""

        def matches() -> list[re.Match[str]]:
            return list(re.finditer(pattern, self.out))

        with self._changed:
            found = self._changed.wait_for(lambda: len(matches()) >= times or not self._open, DEADLINE)
            assert found, f"no {pattern!r} ({times} times): {self}"
            assert len(matches()) >= times, f"ended without {pattern!r} ({times} times): {self}"
            return matches()[times - 1]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that the process brings about, by polling."""
        wait_until(condition, lambda: repr(self))

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def signal(self, number: int) -> Program:
        self.process.send_signal(number)
        return self

    def finish(self, data: bytes = b"") -> int:
        """Close its input, wait for it and return its exit status."""
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.write(data)
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            status = self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"did not end: {self}")
        for thread in self._threads:
            thread.join(DEADLINE)
        return status

    def destroy(self) -> None:
        self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join(DEADLINE)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


Start = Callable[..., Program]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a program, found beside the interpreter, and kill it after the test."""
    programs: list[Program] = []

    def started(name: str, *arguments: object, of_ours: bool = True, **options: Any) -> Program:
        programs.append(Program(str(BIN / name) if of_ours else name, *map(str, arguments), **options))
        return programs[-1]

    yield started
    for program in programs:
        program.destroy()
        print(program)  # Shown only for a failed test.


class RunningBackbone:
    """``twistd fyrehose-backbone`` in a process of its own."""

    def __init__(self, program: Program, host: str = "127.0.0.1") -> None:
        self.program = program
        self.address: Address = (host, int(program.wait_for(r"listening on [0-9.]+:(\d+)")[1]))
        self.text = f"{host}:{self.address[1]}"

    @property
    def sequence(self) -> int:
        """Return its last sequence number, which requires metrics."""
        direct = build_opener(ProxyHandler({}))  # No proxy of the environment is used.
        with direct.open(self.program.wait_for(r"metrics at (http://\S+)")[1], timeout=DEADLINE) as page:
            found = re.search(rb"^fyrehose_backbone_sequence (\S+)", page.read(), re.MULTILINE)
        assert found
        return int(float(found[1]))

    @property
    def has_lost(self) -> bool:
        """Return whether the kernel dropped a datagram for it, which was then retransmitted."""
        end = f":{self.address[1]:04X}"
        sockets = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
        return any(int(fields[-1]) for fields in sockets if fields[1].endswith(end))

    def wait_for_clients(self, count: int) -> None:
        self.program.wait_for(r"client [0-9.:]+ joined", times=count)

    def stop(self) -> None:
        """Stop it with SIGTERM. Twisted then ends itself by the same signal."""
        assert self.program.signal(signal.SIGTERM).finish() == -signal.SIGTERM
        assert "Traceback" not in self.program.out

    def kill(self) -> None:
        self.program.signal(signal.SIGKILL).finish()

    async def metrics(self) -> dict[str, float]:
        """Return its metrics."""
        url = self.program.wait_for(r"metrics at (http://\S+)")[1]
        response = await treq.get(url, persistent=False, timeout=DEADLINE)
        lines = (await response.text()).splitlines()
        return {name: float(value) for name, value in (x.rsplit(" ", 1) for x in lines if not x.startswith("#"))}

    async def dropped(self) -> dict[str, int]:
        """Return the number of dropped packets by reason."""
        pattern = re.compile(r'fyrehose_backbone_dropped_total\{reason="(\w+)"\}')
        found = {pattern.fullmatch(name): int(value) for name, value in (await self.metrics()).items()}
        return {match[1]: count for match, count in found.items() if match}


StartBackbone = Callable[..., RunningBackbone]


@pytest.fixture
def launch(start: Start, tmp_path: Path) -> Start:
    """Run ``twistd fyrehose-backbone`` in the foreground without waiting; its state file is in ``tmp_path``."""

    def launched(*options: object, **more: Any) -> Program:
        return start(
            "twistd", "-n", "--pidfile=", "fyrehose-backbone", *options, cwd=tmp_path, stderr=subprocess.STDOUT, **more
        )

    return launched


@pytest.fixture
def start_backbone(launch: Start, free_port: Callable[[], int]) -> StartBackbone:
    """Start a backbone on a free port and wait until it listens.

    The port stays free after its exit: the kernel does not assign it to a process that requests any port.
    """

    def started(*options: object, port: int | None = None, settle: float = 0, **more: Any) -> RunningBackbone:
        port = free_port() if port is None else port
        return RunningBackbone(launch("--port", port, "--settle-time", settle, *options, **more))

    return started


@pytest.fixture
def backbone(start_backbone: StartBackbone, free_port: Callable[[], int]) -> RunningBackbone:
    """Return a backbone with metrics whose stream starts at 1. No client gets its port while it restarts."""
    return start_backbone("--metrics", "tcp:0", port=free_port())


def wait_until(condition: Callable[[], bool], why: Callable[[], object]) -> None:
    """Wait for a condition of another process, by polling."""
    end, never = monotonic() + DEADLINE, threading.Event()
    while not condition():
        assert monotonic() < end, why()
        never.wait(0.02)


class RunningJournal:
    """``twistd fyrehose-journal`` in a process of its own, and its records.

    :ivar path: directory of the segments.
    """

    def __init__(self, launch: Start, backbone: RunningBackbone, root: Path, options: tuple[object, ...]) -> None:
        self._launch = launch
        self._command = ("-b", backbone.text, "-d", root)
        self._options = options
        self.path = root / "fyrehose-default"
        self.program: Program
        self.start()

    @property
    def port(self) -> int:
        """Return its UDP port once it is bound."""
        return int(self.program.wait_for(r"JournalProtocol starting on (\d+)")[1])

    def start(self, *more: object) -> None:
        """Start or restart it, and wait until it listens."""
        self.launch(*more)
        assert self.port

    def launch(self, *more: object) -> None:
        """Start it without waiting."""
        self.program = self._launch(*self._command, *self._options, *more)

    def stop(self) -> None:
        """Stop it with SIGTERM."""
        assert self.program.signal(signal.SIGTERM).finish() == -signal.SIGTERM, self.program
        assert "Traceback" not in self.program.out, self.program
        LocalDirectory(self.path).lock().close()  # Its lock is released.

    def kill(self) -> None:
        assert self.program.signal(signal.SIGKILL).finish() == -signal.SIGKILL

    def bounds(self) -> Bounds:
        """Return the range for readers, from 0 as long as nothing is readable."""
        try:
            with closing(open_reader(self.path)) as reader:
                return reader.bounds(0) or Bounds(0, 0, -1)
        except JournalError:
            return Bounds(0, 0, -1)

    def wait_for(self, number: int) -> None:
        """Wait until everything up to ``number`` is durable."""
        wait_until(lambda: self.bounds().next > number, lambda: f"no {number} in {self.bounds()}: {self.program}")

    def wait_for_live(self, number: int) -> None:
        """Wait until a message from ``number`` on is durable, whatever is missing before it."""
        wait_until(lambda: self.bounds().last >= number, lambda: f"no {number} in {self.bounds()}: {self.program}")

    def records(self, first: int = 0, last: int = 2**48) -> list[tuple[int, bytes]]:
        """Return numbers and payloads as readers see them."""
        with closing(open_reader(self.path)) as reader:
            bounds = reader.bounds(0)
            assert bounds is not None
            assert reader.losses(0, bounds.first, bounds.last) == []
            found: list[tuple[int, bytes]] = []
            for block in reader.read(0, max(first, bounds.first), min(last, bounds.next - 1)):
                found += zip(block.positions.tolist(), block.payloads(), strict=True)
            return found

    def digest(self, first: int = 0, last: int = 2**48) -> str:
        """Return a hash of the records as readers see them."""
        return sha256(repr(self.records(first, last)).encode()).hexdigest()

    def lines(self) -> list[bytes]:
        """Return the lines published by `fyrehose pub`."""
        return [payload[ENVELOPE_SIZE:] for _, payload in self.records()]


StartJournal = Callable[..., RunningJournal]


@pytest.fixture
def launch_journal(start: Start, tmp_path: Path) -> Start:
    """Run ``twistd fyrehose-journal`` in the foreground without waiting."""

    def launched(*options: object, **more: Any) -> Program:
        return start(
            "twistd", "-n", "--pidfile=", "fyrehose-journal", *options, cwd=tmp_path, stderr=subprocess.STDOUT, **more
        )

    return launched


@pytest.fixture
def start_journal(launch_journal: Start, tmp_path: Path) -> StartJournal:
    """Start a journal in a directory of ``tmp_path`` and wait until it runs."""

    def started(backbone: RunningBackbone, root: str | Path, *options: object) -> RunningJournal:
        return RunningJournal(launch_journal, backbone, tmp_path / root, options)

    return started


@pytest.fixture
def check(start: Start) -> Callable[[RunningJournal], str]:
    """Check a whole journal with ``fyrehose journal check`` and return its output: nothing is damaged."""

    def checked(journal: RunningJournal) -> str:
        program = start("fyrehose", "journal", "check", journal.path)
        assert program.finish() == 0, program
        assert "; nothing is damaged" in program.out, program
        return program.out

    return checked


Numbered = Sequence[tuple[int, bytes]]


def compare_told(told: Numbered, raw: Numbered, seen: Numbered) -> None:
    """Compare publish results with the stream. No two published messages are equal.

    A message whose DELIVER is lost only on the way to its publisher is pushed again, and then has two numbers. Its
    publisher may be told the later one; subscribers drop the repeat, and receive the message under the first.

    :param told: numbers and messages of the results.
    :param raw: the stream with repeats and envelopes, as on the wire.
    :param seen: the stream as subscribers receive it.
    """
    for stream in (raw, seen):
        numbers = [number for number, _ in stream]
        assert numbers == sorted(set(numbers))
    # A reported number belongs to one message, and is reported once.
    on_the_wire = {number: data[ENVELOPE_SIZE:] for number, data in raw}
    assert [(number, on_the_wire.get(number)) for number, _ in told] == list(told)
    assert len({number for number, _ in told}) == len(told)
    # Subscribers receive each message once, under its first number.
    first: dict[bytes, int] = {}
    for number, data in raw:
        first.setdefault(data, number)
    firsts = {number: data[ENVELOPE_SIZE:] for data, number in first.items()}
    assert dict(seen) == firsts
    places = {data: number for number, data in seen}
    assert len(places) == len(seen)
    assert [data for number, data in told if places[data] > number] == []


@pytest.fixture
def check_told() -> Callable[[Numbered, Numbered, Numbered], None]:
    """Compare publish results with the stream; see :func:`compare_told`."""
    return compare_told


class Load:
    """``fyrehose pub`` that publishes the lines 1, 2, ... padded with zeros to ``size``, without end."""

    def __init__(self, start: Start, backbone: RunningBackbone, size: int) -> None:
        self.size = size
        self._numbers = subprocess.Popen(["seq", "-f", f"%0{size}.0f", "1", "1000000000"], stdout=subprocess.PIPE)
        assert self._numbers.stdout is not None
        self.publisher = start("fyrehose", "pub", "-b", backbone.text, stdin=self._numbers.stdout)
        self._numbers.stdout.close()

    def pause(self) -> None:
        """Publish what is in flight, and stay connected to serve repairs."""
        self._numbers.send_signal(signal.SIGSTOP)

    def finish(self) -> None:
        """Publish what is in flight, and leave."""
        self.destroy()
        assert self.publisher.finish() == 0, self.publisher

    def destroy(self) -> None:
        self._numbers.kill()
        self._numbers.wait()

    def check(self, lines: list[bytes]) -> None:
        """Check that ``lines`` are all published lines. The last line may be cut, and messages pushed again because
        they came back late occur twice.
        """
        numbers = {int(line) for line in lines if len(line) == self.size}
        assert numbers == set(range(1, max(numbers) + 1)), f"{len(numbers)} of {max(numbers)}"


@pytest.fixture
def load(start: Start) -> Iterator[Callable[..., Load]]:
    """Publish without end until the test is over."""
    loads: list[Load] = []

    def loaded(backbone: RunningBackbone, size: int = 200) -> Load:
        loads.append(Load(start, backbone, size))
        return loads[-1]

    yield loaded
    for one in loads:
        one.destroy()


class Peer:
    """Raw socket that sends and receives packets."""

    def __init__(self, backbone: Address, host: str = "127.0.0.1") -> None:
        self.backbone = backbone
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 2**20)
        self.socket.bind((host, 0))
        self.address: Address = self.socket.getsockname()
        self._tokens = 0

    def send(self, packet: Packet | bytes) -> None:
        self.socket.sendto(packet if isinstance(packet, bytes) else encode(packet), self.backbone)

    def receive(self, timeout: float = DEADLINE) -> Packet:
        """Return the next packet. :raises TimeoutError: if none comes."""
        self.socket.settimeout(timeout)
        return decode(self.socket.recv(65_536))

    def keepalive(self, flags: int = 0, address: Address = ANY_ADDRESS) -> list[Packet]:
        """Send a KEEPALIVE; return the packets before its ACK, by which all earlier ones were processed."""
        self._tokens += 1
        token = self._tokens.to_bytes(16, "big")
        self.send(Keepalive(address, flags, token))
        packets: list[Packet] = []
        while (packet := self.receive()) != KeepaliveAck(token):
            packets.append(packet)
        return packets

    def refused(self, flags: int = 0, address: Address = ANY_ADDRESS) -> None:
        """Send a KEEPALIVE that must not be acknowledged."""
        self.send(Keepalive(address, flags, b"refused".ljust(16)))

    def publish(self, *data: bytes) -> None:
        for item in data:
            self.send(Push(item))

    def publish_once(self, items: Iterable[bytes]) -> None:
        """Publish in small batches and wait for their DELIVERs, so that none is pushed twice on a busy machine."""
        self.keepalive(Flags.NOJOURNAL)
        left = list(items)
        while left:
            some, left = left[:25], left[25:]
            self.publish(*some)
            assert [data for _, data in self.delivered(len(some))] == some

    def delivered(self, count: int) -> list[tuple[int, bytes]]:
        """Return the next ``count`` DELIVERs, ignoring other packets."""
        found: list[tuple[int, bytes]] = []
        end = monotonic() + DEADLINE
        while len(found) < count:
            packet = self.receive(max(0.01, end - monotonic()))
            if isinstance(packet, Deliver):
                found.append((packet.sequence, packet.data))
        return found


MakePeer = Callable[..., Peer]


@pytest.fixture
def peer() -> Iterator[MakePeer]:
    """Return a factory of peers of a backbone."""
    peers: list[Peer] = []

    def made(backbone: RunningBackbone | Address, host: str = "127.0.0.1") -> Peer:
        peers.append(Peer(backbone.address if isinstance(backbone, RunningBackbone) else backbone, host))
        return peers[-1]

    yield made
    for made_peer in peers:
        made_peer.socket.close()


@pytest.fixture
def in_time() -> Callable[[Any], Any]:
    """Wait for a Deferred, at most until the deadline."""

    def waiting(deferred: Any) -> Any:
        from twisted.internet import reactor

        return deferred.addTimeout(DEADLINE, reactor)

    return waiting


@pytest.fixture
def leaving() -> Iterator[list[Any]]:
    """Return a list of started protocols, which leave after the test."""
    protocols: list[Any] = []
    yield protocols
    for protocol in protocols:
        pytest_twisted.blockon(protocol.leave())


class Crossing(NamedTuple):
    """A datagram between a client and the backbone or a repairing client."""

    datagram: bytes
    source: Address
    client: Address
    port: Any
    """Port from which it is forwarded."""
    to: Address

    def resume(self, port: Any = None) -> None:
        """Forward it to its destination unless the relay is closed."""
        port = self.port if port is None else port
        if port.transport is not None:
            port.transport.write(self.datagram, self.to)


Carry = Callable[[Crossing], None]


class Relay(DatagramProtocol):
    """Proxy of a backbone that passes each datagram in either direction to ``carry``."""

    noisy = False

    def __init__(self, backbone: Address, carry: Carry) -> None:
        self.backbone = backbone
        self.carry = carry
        self.ports: list[Any] = []
        self._upstreams: dict[Address, Upstream] = {}
        self.address: Address = ("127.0.0.1", self.listen(self))

    def listen(self, protocol: DatagramProtocol) -> int:
        """Bind ``protocol`` during the test; return its port."""
        from twisted.internet import reactor

        listening: Any = reactor
        self.ports.append(listening.listenUDP(0, protocol, "127.0.0.1", 65_536))
        return int(self.ports[-1].getHost().port)

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        if addr not in self._upstreams:
            self._upstreams[addr] = Upstream(self, addr)
            self.listen(self._upstreams[addr])
        self.carry(Crossing(datagram, addr, addr, self._upstreams[addr], self.backbone))


class Upstream(DatagramProtocol):
    """Relay socket that represents one client to the backbone and to repairing clients."""

    noisy = False

    def __init__(self, relay: Relay, client: Address) -> None:
        self._relay = relay
        self._client = client

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        self._relay.carry(Crossing(datagram, addr, self._client, self._relay, self._client))


@pytest.fixture
def relay() -> Iterator[Callable[[Address, Carry], Relay]]:
    """Put a relay between a backbone and its clients. Request it before `leaving`, so that their goodbyes pass it."""
    relays: list[Relay] = []

    def made(backbone: Address, carry: Carry) -> Relay:
        relays.append(Relay(backbone, carry))
        return relays[-1]

    yield made
    for one in relays:
        for port in one.ports:
            pytest_twisted.blockon(maybeDeferred(port.stopListening))


PIPED = """
import os, sys
reads, writes, *command = sys.argv[1:]
for number, copy in ((int(reads), 13), (int(writes), 14)):
    os.dup2(number, copy)
os.dup2(13, 3)
os.dup2(14, 4)
os.execvp(command[0], command)
"""
"""Descriptors from which Chromium reads commands and to which it writes answers."""

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"


class Browser:
    """Chromium with one page, over the DevTools protocol.

    :ivar errors: uncaught exceptions of the page.
    :ivar said: console output of scripts, and log entries of the browser about the page.
    """

    def __init__(self, command: list[str]) -> None:
        theirs_in, self._write = os.pipe()
        self._read, theirs_out = os.pipe()
        words = [sys.executable, "-c", PIPED, str(theirs_in), str(theirs_out), *command, "--remote-debugging-pipe"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(words, pass_fds=(theirs_in, theirs_out), start_new_session=True, **quiet)  # type: ignore[call-overload]
        os.close(theirs_in)
        os.close(theirs_out)
        self._number, self._rest, self._session = 0, b"", ""
        self._loaded: set[str] = set()
        self.errors: list[str] = []
        self.said: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def call(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        """Return the next answer or event; record the contents of events."""
        while b"\0" not in self._rest:
            # Twice the timeout of conditions on the page.
            assert select.select([self._read], [], [], 2 * DEADLINE)[0], "the browser is silent"
            data = os.read(self._read, 65_536)
            assert data, "the browser ended"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        parameters = found.get("params", {})
        match found.get("method"):
            case "Page.lifecycleEvent" if parameters["name"] == "load":
                self._loaded.add(parameters["loaderId"])
            case "Runtime.exceptionThrown":
                self.errors.append(str(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.said.append(str(parameters["args"]))
            case "Log.entryAdded":
                self.said.append(str(parameters["entry"]))
        return found

    def run(self, script: str) -> Any:
        """Return the value of a script."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, (script, answer["exceptionDetails"])
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until a condition holds on the page."""
        assert self.run(promise_of(condition, DEADLINE)), f"never: {condition}\n{self.run('document.body.innerText')}"

    def before_scripts(self, script: str) -> None:
        """Run a script in each page opened from now on, before those of the page."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def go(self, url: str) -> None:
        """Open a page and wait until it has loaded."""
        went = self.call("Page.navigate", url=url)
        assert "errorText" not in went, (url, went)
        while went["loaderId"] not in self._loaded:
            self._next()

    def key(self, name: str, **more: Any) -> None:
        """Press a key."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27}
        more |= {"key": name, "code": name, "windowsVirtualKeyCode": codes[name]}
        text = {"text": "\r"} if name == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **more, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    def type(self, text: str) -> None:
        """Enter text into the focused element."""
        self.call("Input.insertText", text=text)

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size and the colour scheme of the page, and wait for them."""
        metrics = {"width": width, "height": height, "screenWidth": width, "screenHeight": height}
        self.call("Emulation.setDeviceMetricsOverride", **metrics, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.until(f"screen.width === {width} && matchMedia('(prefers-color-scheme: {scheme['value']})').matches")

    def show_figures(self, url: str, width: int, height: int, *, dark: bool = False) -> Browser:
        """Open a report, wait until its figures are drawn, and assert that no script failed or was blocked."""
        self.size(width, height, dark=dark)
        self.go(url)
        self.until("document.documentElement.dataset.drawn > 0 || document.getElementById('errors')")
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert self.run("document.getElementById('errors')?.textContent") is None
        assert self.said == self.errors == []
        return self

    def keep(self, name: str) -> Path:
        """Save a screenshot of the page and return its path."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        data = b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        assert data.startswith(b"\x89PNG")
        path = SCREENSHOTS / f"{name}.png"
        path.write_bytes(data)
        return path

    def close(self) -> None:
        """Terminate it with all of its processes."""
        self._session = ""
        with suppress(AssertionError, OSError):  # It may have exited before.
            self.call("Browser.close")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(DEADLINE)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._write)
        os.close(self._read)


@pytest.fixture
def open_browser(browser: Any) -> Iterator[Callable[[], Browser]]:
    """Return a function that opens a page in a browser with a real clock; skip the test without a browser."""
    opened: list[Browser] = []

    def made() -> Browser:
        opened.append(Browser([option for option in browser() if "virtual-time" not in option]))
        return opened[-1]

    yield made
    for one in opened:
        one.close()


@pytest.fixture
def open_firefox(
    program: Callable[[str, str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Firefox]]:
    """Return a function that opens a page in Firefox; skip the test if it is not installed."""
    opened: list[Firefox] = []

    def made() -> Firefox:
        path = program("firefox-esr", "firefox-esr")
        opened.append(Firefox(path, tmp_path_factory.mktemp("firefox"), SCREENSHOTS))
        return opened[-1]

    yield made
    for one in opened:
        one.close()


class RunningNode:
    """``twistd parcels-node`` in a process of its own, restarted with the same options.

    :ivar address: address for nodes and publishers.
    :ivar url: URL of its HTTP site.
    """

    def __init__(
        self,
        start: Start,
        name: str,
        ports: tuple[int, int],
        root: Path,
        options: Callable[[RunningNode], list[object]],
    ) -> None:
        self._start = start
        self._root = root
        self._options = options
        self.name = name
        self.port, self.http_port = ports
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"http://127.0.0.1:{self.http_port}"
        self.context: Any = None
        self.program: Program

    def start(self, *more: object) -> RunningNode:
        """Start or restart it."""
        command = "twistd", "-n", "--pidfile=", "parcels-node", "--name", self.name, *self._options(self), *more
        self.program = self._start(*command, cwd=self._root, stderr=subprocess.STDOUT)
        return self

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self.program.signal(signal.SIGKILL).finish() == -signal.SIGKILL, self.program
        assert "Traceback" not in self.program.out, self.program

    def stop(self) -> None:
        """Stop it with SIGTERM."""
        assert self.program.signal(signal.SIGTERM).finish() == -signal.SIGTERM, self.program
        assert "Traceback" not in self.program.out, self.program

    def ask(self, path: str, data: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """Send a request; return status and body of the response."""
        request = Request(self.url + path, data, {name.replace("_", "-"): value for name, value in headers.items()})
        try:
            with urlopen(request, timeout=DEADLINE, context=self.context) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            with error:
                return error.code, error.read()

    def publish(self, data: bytes) -> int:
        """Publish an event over HTTP and return its sequence number."""
        status, body = self.ask("/events", data, Content_Type="application/octet-stream")
        assert status == 201, (status, body, self.program)
        number: int = json.loads(body)["sequence"]
        return number

    def state(self) -> dict[str, Any]:
        """Return the state of the cluster, empty without a response."""
        try:
            status, body = self.ask("/cluster")
        except OSError:
            return {}
        assert status == 200, body
        found: dict[str, Any] = json.loads(body)
        return found

    def events(self, first: int, last: int) -> list[tuple[int, str, str]]:
        """Return sequence number, publisher and data of events."""
        status, body = self.ask(f"/events?from={first}&to={last}&encoding=base64")
        assert status == 200, body
        found = [(one["sequence"], one["publisher"], b64decode(one["data"]).decode()) for one in json.loads(body)]
        return found if not found or found[-1][0] >= last else found + self.events(found[-1][0] + 1, last)

    def metrics(self) -> dict[str, float]:
        """Return its counters."""
        _, body = self.ask("/metrics")
        lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
        return {
            name.removeprefix("fyrehose_parcels_"): float(value) for name, value in (x.rsplit(" ", 1) for x in lines)
        }

    def wait_for(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Return the state of the cluster once a condition on it holds."""
        found: list[dict[str, Any]] = []

        def holds() -> bool:
            found.append(self.state())
            return bool(found[-1]) and bool(condition(found[-1]))

        wait_until(holds, lambda: f"{self.name}: {found[-1]}\n{self.program}")
        return found[-1]

    def wait_for_event(self, sequence: int) -> None:
        """Wait until it has delivered an event."""
        self.wait_for(lambda state: state["sequence"] >= sequence)

    def wait_to_work(self, *names: str) -> dict[str, Any]:
        """Wait until its cluster orders events with exactly these members, all alive."""

        def works(state: dict[str, Any]) -> bool:
            alive = sorted(member["name"] for member in state["members"] if member["alive"])
            return state["mode"] == "Wrk" and bool(state["leader"]) and alive == sorted(names)

        return self.wait_for(works)


class RunningCluster(dict[str, RunningNode]):
    """Nodes by name, each of which knows all others."""

    @property
    def leader(self) -> RunningNode:
        """Return the leader as named by a working node; wait while there is none."""
        named: list[str] = []

        def is_named() -> bool:
            states = [node.state() for node in self.values()]
            named[:] = [state["leader"] for state in states if state.get("mode") == "Wrk" and state["leader"] in self]
            return bool(named)

        wait_until(is_named, lambda: f"no leader: {[node.state() for node in self.values()]}")
        return self[named[0]]

    @property
    def followers(self) -> list[RunningNode]:
        """Return the other nodes."""
        leader = self.leader
        return [node for node in self.values() if node is not leader]

    def wait_to_work(self) -> None:
        """Wait until all nodes are members and agree on the leader."""
        wait_until(
            lambda: len({node.wait_to_work(*self)["leader"] for node in self.values()}) == 1,
            lambda: f"no common leader: {[node.state() for node in self.values()]}",
        )

    def events(self, first: int, last: int) -> list[tuple[int, str, str]]:
        """Return the events of all nodes, which must be equal."""
        for node in self.values():
            node.wait_for_event(last)
        found = [node.events(first, last) for node in self.values()]
        assert all(one == found[0] for one in found), found
        assert [number for number, _, _ in found[0]] == list(range(first, last + 1))
        return found[0]


StartCluster = Callable[..., RunningCluster]


@pytest.fixture
def make_nodes(start: Start, free_port: Callable[[], int], tmp_path: Path) -> StartCluster:
    """Make nodes of one cluster without starting them; the first one bootstraps.

    Options of all of them may be a function of the node.
    """

    def made(*names: str, options: Callable[[RunningNode], list[object]] = lambda node: []) -> RunningCluster:
        cluster = RunningCluster()

        def options_of(node: RunningNode) -> list[object]:
            common: list[object] = ["--listen", f"tcp:{node.port}", "--http", f"tcp:{node.http_port}"]
            for other in cluster.values():
                if other is not node:
                    common += ["--neighbour", other.address]
            if node.name == names[0]:
                common.append("--bootstrap")
            return [*common, *options(node)]  # The last of several equal options takes effect.

        for name in names:
            cluster[name] = RunningNode(start, name, (free_port(), free_port()), tmp_path, options_of)
        return cluster

    return made


@pytest.fixture
def start_cluster(make_nodes: StartCluster) -> StartCluster:
    """Start nodes of one cluster and wait until all are members."""

    def started(*names: str, **more: Any) -> RunningCluster:
        cluster = make_nodes(*names, **more)
        for node in cluster.values():
            node.start()
        cluster.wait_to_work()
        return cluster

    return started


@pytest.fixture
def await_true() -> Callable[..., None]:
    """Wait for a condition, by polling."""
    return wait_until


class SkippingClock(BoottimeReactor):
    """Reactor with a clock that a test can advance, so that no timeout is waited for."""

    def __init__(self) -> None:
        from twisted.internet import reactor

        self._skipped = 0.0
        super().__init__(reactor, lambda: boottime_seconds() + self._skipped)

    def skip(self, seconds: float) -> None:
        """Advance the clock; calls that are due run in the next turn of the reactor."""
        self._skipped += seconds
        self._reactor.callLater(0, self._run)


@pytest.fixture
def skipping_clock() -> type[SkippingClock]:
    """Return a clock that the test advances."""
    return SkippingClock


class Asking:
    """Connection to a node's control port."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE)
        self.file = self.socket.makefile("rb")

    def ask(self, **question: Any) -> dict[str, Any]:
        """Send a request and return the next response."""
        self.tell(**question)
        return self.read()

    def tell(self, **question: Any) -> None:
        """Send a request without waiting."""
        self.socket.sendall(json.dumps(question).encode() + b"\n")

    def read(self) -> dict[str, Any]:
        """Return the next response."""
        line = self.file.readline()
        assert line, "the node hung up"
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Close the connection."""
        self.file.close()
        self.socket.close()


@pytest.fixture
def asking() -> type[Asking]:
    """Return a function that connects to a control port."""
    return Asking


NGIRCD = """
[Global]
Name=irc.test
Info=t
Listen=127.0.0.1
Ports={port}
[Limits]
MaxConnectionsIP=0
MaxJoins=0
MaxNickLength=30
MaxPenaltyTime=0
PingTimeout=600
PongTimeout=600
[Options]
DNS=no
Ident=no
PAM=no
[Operator]
Name=root
Password=secret
"""
NGIRCD_TLS = """
[SSL]
CertFile={certificate}
KeyFile={key}
Ports={tls_port}
"""
INSPIRCD = """
<config format="xml">
<server name="irc.test" description="t" network="T" id="0AA">
<admin name="t" nick="t" email="t@example.invalid">
<bind address="127.0.0.1" port="{port}" type="clients">
<connect name="all" allow="*" pingfreq="600" localmax="1000" globalmax="1000" commandrate="100000" fakelag="no"
 threshold="1000000" resolvehostnames="no" useident="no" hardsendq="8388608" softsendq="4194304" recvq="8388608">
<performance netbuffersize="65534">
<class name="all" commands="*" privs="*" usermodes="*" chanmodes="*">
<type name="all" classes="all">
<oper name="root" password="secret" host="*@*" type="all">
"""
HYBRID = """
serverinfo { name = "irc.test"; sid = "0HY"; description = "t"; network_name = "T"; hub = no; };
class { name = "u"; ping_time = 10 minutes; number_per_ip_local = 1000; number_per_ip_global = 1000;
 max_number = 1000; sendq = 1 megabyte; recvq = 8000 bytes; };
listen { host = "127.0.0.1"; port = {port}; };
auth { user = "*@*"; class = "u"; flags = exceed_limit, can_flood, no_tilde; };
operator { name = "root"; user = "*@*"; password = "secret"; encrypted = no; class = "u"; flags = kill; };
general { throttle_count = 1000; disable_auth = yes; anti_nick_flood = no; };
log { use_logging = no; };
"""


HELD_BACK = {
    "ngircd": ("MaxPenaltyTime=0\n",),
    "inspircd": (' commandrate="100000" fakelag="no"', 'threshold="1000000"'),
    "ircd-hybrid": (", can_flood",),
}
"""Settings of the configurations above that disable throttling."""


class Ircd:
    """A real IRC server on loopback; its operator is ``root`` with the password ``secret``.

    :param holds_back: read from clients as slowly as it does by default, and not as fast as it can.
    :ivar kind: ``ngircd``, ``inspircd`` or ``ircd-hybrid``.
    :ivar tls_port: where it speaks TLS, if it was given a certificate.
    """

    def __init__(
        self,
        start: Start,
        kind: str,
        path: str | Path,
        ports: tuple[int, int],
        root: Path,
        certificate: tuple[Path, Path] | None,
        *,
        holds_back: bool,
    ) -> None:
        self._start = start
        self._path = str(path)
        self._root = root
        self.kind = kind
        self.port, self.tls_port = ports
        self.address = f"127.0.0.1:{self.port}"
        text = {"ngircd": NGIRCD, "inspircd": INSPIRCD, "ircd-hybrid": HYBRID}[kind].replace("{port}", str(self.port))
        for words in HELD_BACK[kind] if holds_back else ():
            assert words in text
            text = text.replace(words, "")
        if certificate is not None:
            text += NGIRCD_TLS.format(certificate=certificate[0], key=certificate[1], tls_port=self.tls_port)
        self.config = root / "config"
        self.config.write_text(text.lstrip())
        self.config.chmod(0o644)  # Independent of the umask, since ircd-hybrid reads it as another user.
        self.program: Program

    def start(self) -> Ircd:
        """Start or restart it, and wait until it listens."""
        options: dict[str, Any] = {"cwd": self._root}
        match self.kind:
            case "ngircd":
                command = ["-n", "-f", self.config]
            case "inspircd":
                command = ["--nofork", "--nolog", "--nopid", f"--config={self.config}"]
                command += ["--runasroot"] if os.geteuid() == 0 else []
            case _:
                files = ("pidfile", "logfile", "klinefile", "dlinefile", "xlinefile", "resvfile")
                command = ["-foreground", "-configfile", self.config]
                command += [part for file in files for part in (f"-{file}", self._root / file)]
                options |= {"user": "nobody"} if os.geteuid() == 0 else {}  # It refuses to run as root.
        self.program = self._start(self._path, *command, of_ours=False, **options)
        wait_until(self._listens, lambda: f"{self.kind} does not listen: {self.program}")
        return self

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.program.destroy()

    def _listens(self) -> bool:
        assert self.program.process.poll() is None, self.program
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), DEADLINE):
            return True
        return False


@pytest.fixture
def start_ircd(
    start: Start, free_port: Callable[[], int], program: Callable[[str, str], Path]
) -> Iterator[Callable[..., Ircd]]:
    """Return a function that starts an IRC server; skip the test if it is not installed."""
    roots: list[Path] = []

    def started(kind: str, certificate: tuple[Path, Path] | None = None, *, holds_back: bool = False) -> Ircd:
        # The PATH of an ordinary user lacks sbin.
        path = shutil.which(kind, path=f"{os.environ['PATH']}:/usr/sbin") or program(kind, kind)
        # Other users cannot read pytest's directories, and ircd-hybrid does not run as root.
        roots.append(Path(tempfile.mkdtemp(prefix="ircd-")))
        roots[-1].chmod(0o777)
        ports = free_port(), free_port()
        return Ircd(start, kind, path, ports, roots[-1], certificate, holds_back=holds_back).start()

    yield started
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)


class IrcStranger:
    """IRC client that shares no code with the package: a socket and a reader thread.

    :ivar lines: received lines, without CR LF.
    """

    def __init__(self, port: int, nick: str, channel: str = "") -> None:
        self._changed = threading.Condition()
        self.lines: list[bytes] = []
        self.nick = nick
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self.say(f"NICK {nick}", f"USER {nick} 0 * :{nick}")
        self.wait_for(rb" (376|422) ")
        if channel:
            self.say(f"JOIN {channel}")
            self.wait_for(rb" 366 ")

    def say(self, *lines: str | bytes) -> None:
        """Send lines."""
        self.socket.sendall(b"".join((x.encode() if isinstance(x, str) else x) + b"\r\n" for x in lines))

    def matching(self, pattern: bytes) -> list[bytes]:
        """Return the lines that match ``pattern``."""
        return [line for line in tuple(self.lines) if re.search(pattern, line)]

    def wait_for(self, pattern: bytes, times: int = 1) -> list[bytes]:
        """Return the lines that match ``pattern`` once there are ``times``."""
        with self._changed:
            found = self._changed.wait_for(lambda: len(self.matching(pattern)) >= times, DEADLINE)
            last = [line[:100] for line in self.lines[-20:]]
            assert found, f"{self.nick}: {len(self.matching(pattern))} of {times} {pattern!r}: {last}"
        return self.matching(pattern)

    def close(self) -> None:
        """Disconnect without QUIT."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(DEADLINE)
        self.socket.close()

    def _read(self) -> None:
        rest = b""
        with suppress(OSError):
            while data := self.socket.recv(65_536):
                *lines, rest = (rest + data).split(b"\r\n")
                for line in lines:
                    if line.startswith(b"PING "):
                        self.say(b"PONG " + line[5:])
                with self._changed:
                    self.lines += lines
                    self._changed.notify_all()


@pytest.fixture
def irc_stranger() -> Iterator[Callable[..., IrcStranger]]:
    """Return a function that connects an IRC client during the test."""
    strangers: list[IrcStranger] = []

    def made(ircd: Ircd, nick: str, channel: str = "") -> IrcStranger:
        strangers.append(IrcStranger(ircd.port, nick, channel))
        return strangers[-1]

    yield made
    for stranger in strangers:
        stranger.close()


@pytest.fixture
def certified(tmp_path: Path) -> tuple[Path, Path]:
    """Return the files of a self-signed certificate for 127.0.0.1 and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (tmp_path / "trusted").mkdir()
    certificate, private = tmp_path / "trusted" / "cert.pem", tmp_path / "key.pem"
    certificate.write_bytes(made.public_bytes(encoding))
    private.write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return certificate, private


class StrangePage:
    """A page of another origin on a web server of its own, which reports the results of its attempts.

    :ivar told: reported results.
    """

    def __init__(self, page: str, host: str) -> None:
        self.told: list[Any] = []
        self._changed = threading.Condition()
        strange = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(page.encode())

            def do_POST(self) -> None:
                with strange._changed:
                    strange.told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                    strange._changed.notify_all()
                self.send_response(204)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def wait(self) -> bool:
        """Wait for a report."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self.told, DEADLINE))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def open_strange_page(browser: Any, start: Start) -> Callable[..., Any]:
    """Open a page of another origin in a real browser and return its reports."""

    def opened(page: str, host: str = "127.0.0.1") -> Any:
        with closing(StrangePage(page, host)) as strange:
            command = [word for word in browser("--enable-logging=stderr", strange.url) if "virtual-time" not in word]
            # Without debugging, a headless browser exits once the page has loaded.
            command.insert(-1, "--remote-debugging-port=0")
            chromium = start(*command, of_ours=False, stdin=subprocess.DEVNULL)
            assert strange.wait(), chromium
        (told,) = strange.told
        return told

    return opened
