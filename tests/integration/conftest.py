from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import IO, Any, NamedTuple
from urllib.request import urlopen

import pytest
import pytest_twisted
import treq
from twisted.internet.defer import maybeDeferred
from twisted.internet.protocol import DatagramProtocol

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.codec import decode, encode
from fyrehose_twisted.fyrehose.envelope import ENVELOPE_SIZE
from fyrehose_twisted.fyrehose.messages import ANY_ADDRESS, Deliver, Keepalive, KeepaliveAck, Packet, Push
from fyrehose_twisted.journal.contents import Bounds
from fyrehose_twisted.journal.disk import LocalDirectory
from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.journal.reader import open_reader

DEADLINE = 30.0
"""Seconds after which an event that never comes fails a test. Nothing waits that long unless it is broken."""

BIN = Path(sys.executable).parent


class Program:
    """A process of ours. What it prints is read as it comes, so that a test can wait for it."""

    def __init__(self, *command: str, **options: Any) -> None:
        self._changed = threading.Condition()
        self.outputs = {1: b"", 2: b""}
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        self.process = subprocess.Popen(command, **options)
        streams = {1: self.process.stdout, 2: self.process.stderr}
        self._threads = [threading.Thread(target=self._read, args=item, daemon=True) for item in streams.items()]
        for thread in self._threads:
            thread.start()

    def _read(self, number: int, stream: IO[bytes] | None) -> None:
        while stream is not None and (data := stream.read1(65_536)):  # type: ignore[attr-defined]
            with self._changed:
                self.outputs[number] += data
                self._changed.notify_all()
        with self._changed:
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
        """Return the last match of ``pattern`` in standard output when there are ``times``."""

        def matches() -> list[re.Match[str]]:
            return list(re.finditer(pattern, self.out))

        with self._changed:
            found = self._changed.wait_for(
                lambda: len(matches()) >= times or not any(thread.is_alive() for thread in self._threads), DEADLINE
            )
            assert found, f"no {pattern!r} ({times} times): {self}"
            assert len(matches()) >= times, f"ended without {pattern!r} ({times} times): {self}"
            return matches()[times - 1]

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def signal(self, number: int) -> Program:
        self.process.send_signal(number)
        return self

    def finish(self, data: bytes = b"") -> int:
        """End its input, wait for it and return its exit status."""
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
    """Start a program, by its name beside the interpreter, and kill it when the test is over."""
    programs: list[Program] = []

    def started(name: str, *arguments: object, of_ours: bool = True, **options: Any) -> Program:
        programs.append(Program(str(BIN / name) if of_ours else name, *map(str, arguments), **options))
        return programs[-1]

    yield started
    for program in programs:
        program.destroy()


class RunningBackbone:
    """``twistd fyrehose-backbone`` in a process of its own."""

    def __init__(self, program: Program, host: str = "127.0.0.1") -> None:
        self.program = program
        self.address: Address = (host, int(program.wait_for(r"listening on [0-9.]+:(\d+)")[1]))
        self.text = f"{host}:{self.address[1]}"

    @property
    def sequence(self) -> int:
        """The last number that it gave; it needs metrics for that."""
        with urlopen(self.program.wait_for(r"metrics at (http://\S+)")[1], timeout=DEADLINE) as page:
            found = re.search(rb"^fyrehose_backbone_sequence (\S+)", page.read(), re.MULTILINE)
        assert found
        return int(float(found[1]))

    def wait_for_clients(self, count: int) -> None:
        self.program.wait_for(r"client [0-9.:]+ joined", times=count)

    def stop(self) -> None:
        """Stop it as an operator would. Twisted then ends itself by the same signal."""
        assert self.program.signal(signal.SIGTERM).finish() == -signal.SIGTERM
        assert "Traceback" not in self.program.out

    def kill(self) -> None:
        self.program.signal(signal.SIGKILL).finish()

    async def metrics(self) -> dict[str, float]:
        """Return what the metrics endpoint says."""
        url = self.program.wait_for(r"metrics at (http://\S+)")[1]
        response = await treq.get(url, persistent=False, timeout=DEADLINE)
        lines = (await response.text()).splitlines()
        return {name: float(value) for name, value in (x.rsplit(" ", 1) for x in lines if not x.startswith("#"))}

    async def dropped(self) -> dict[str, int]:
        """Return how many packets were dropped, by reason."""
        pattern = re.compile(r'fyrehose_backbone_dropped_total\{reason="(\w+)"\}')
        found = {pattern.fullmatch(name): int(value) for name, value in (await self.metrics()).items()}
        return {match[1]: count for match, count in found.items() if match}


StartBackbone = Callable[..., RunningBackbone]


@pytest.fixture
def launch(start: Start, tmp_path: Path) -> Start:
    """Run ``twistd fyrehose-backbone`` in the foreground, ready or not; its state file is in ``tmp_path``."""

    def launched(*options: object, **more: Any) -> Program:
        return start(
            "twistd", "-n", "--pidfile=", "fyrehose-backbone", *options, cwd=tmp_path, stderr=subprocess.STDOUT, **more
        )

    return launched


@pytest.fixture
def start_backbone(launch: Start) -> StartBackbone:
    """Start a backbone on a free port and wait until it listens."""

    def started(*options: object, port: int = 0, settle: float = 0, **more: Any) -> RunningBackbone:
        return RunningBackbone(launch("--port", port, "--settle-time", settle, *options, **more))

    return started


@pytest.fixture
def backbone(start_backbone: StartBackbone) -> RunningBackbone:
    """A backbone with metrics that numbers from 1."""
    return start_backbone("--metrics", "tcp:0")


def wait_until(condition: Callable[[], bool], why: Callable[[], object]) -> None:
    """Wait for something of which nobody tells, such as what another process writes."""
    end, never = monotonic() + DEADLINE, threading.Event()
    while not condition():
        assert monotonic() < end, why()
        never.wait(0.02)


class RunningJournal:
    """``twistd fyrehose-journal`` in a process of its own, and what it has written.

    :ivar path: where the files are.
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
        """Its UDP port, once it is bound."""
        return int(self.program.wait_for(r"JournalProtocol starting on (\d+)")[1])

    def start(self, *more: object) -> None:
        """Start it, again if it has ended, and wait until it listens."""
        self.launch(*more)
        assert self.port

    def launch(self, *more: object) -> None:
        """Start it, and do not wait."""
        self.program = self._launch(*self._command, *self._options, *more)

    def stop(self) -> None:
        """Stop it as an operator would."""
        assert self.program.signal(signal.SIGTERM).finish() == -signal.SIGTERM, self.program
        assert "Traceback" not in self.program.out, self.program
        LocalDirectory(self.path).lock().close()  # Nobody has it any more.

    def kill(self) -> None:
        assert self.program.signal(signal.SIGKILL).finish() == -signal.SIGKILL

    def bounds(self) -> Bounds:
        """How far it goes for readers; it begins at 0 as long as nobody can read it."""
        try:
            with closing(open_reader(self.path)) as reader:
                return reader.bounds(0) or Bounds(0, 0, -1)
        except JournalError:
            return Bounds(0, 0, -1)

    def wait_for(self, number: int) -> None:
        """Wait until all up to ``number`` is durable."""
        wait_until(lambda: self.bounds().next > number, lambda: f"no {number} in {self.bounds()}: {self.program}")

    def wait_for_live(self, number: int) -> None:
        """Wait until something from ``number`` on is durable, whatever may be missing before it."""
        wait_until(lambda: self.bounds().last >= number, lambda: f"no {number} in {self.bounds()}: {self.program}")

    def records(self, first: int = 0, last: int = 2**48) -> list[tuple[int, bytes]]:
        """Return what readers are given: numbers and payloads."""
        with closing(open_reader(self.path)) as reader:
            bounds = reader.bounds(0)
            assert bounds is not None
            assert reader.losses(0, bounds.first, bounds.last) == []
            found: list[tuple[int, bytes]] = []
            for block in reader.read(0, max(first, bounds.first), min(last, bounds.next - 1)):
                found += zip(block.positions.tolist(), block.payloads(), strict=True)
            return found

    def digest(self, first: int = 0, last: int = 2**48) -> str:
        """Return a hash of what readers are given."""
        return sha256(repr(self.records(first, last)).encode()).hexdigest()

    def lines(self) -> list[bytes]:
        """Return the lines that `fyrehose pub` published."""
        return [payload[ENVELOPE_SIZE:] for _, payload in self.records()]


StartJournal = Callable[..., RunningJournal]


@pytest.fixture
def launch_journal(start: Start, tmp_path: Path) -> Start:
    """Run ``twistd fyrehose-journal`` in the foreground, ready or not."""

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
    """Let ``fyrehose journal check`` read all of a journal, and return what it says: nothing is damaged."""

    def checked(journal: RunningJournal) -> str:
        program = start("fyrehose", "journal", "check", journal.path)
        assert program.finish() == 0, program
        assert "; nothing is damaged" in program.out, program
        return program.out

    return checked


class Load:
    """``fyrehose pub`` that publishes the lines 1, 2, and so on, each filled up with zeros to ``size``, without end."""

    def __init__(self, start: Start, backbone: RunningBackbone, size: int) -> None:
        self.size = size
        self._numbers = subprocess.Popen(["seq", "-f", f"%0{size}.0f", "1", "1000000000"], stdout=subprocess.PIPE)
        assert self._numbers.stdout is not None
        self.publisher = start("fyrehose", "pub", "-b", backbone.text, stdin=self._numbers.stdout)
        self._numbers.stdout.close()

    def pause(self) -> None:
        """Publish what is on the way, and stay to help others."""
        self._numbers.send_signal(signal.SIGSTOP)

    def finish(self) -> None:
        """Publish what is on the way, and leave."""
        self.destroy()
        assert self.publisher.finish() == 0, self.publisher

    def destroy(self) -> None:
        self._numbers.kill()
        self._numbers.wait()

    def check(self, lines: list[bytes]) -> None:
        """See whether ``lines`` are all that was published. The last line may have been cut, and what was pushed again
        because it came back late is there twice."""
        numbers = {int(line) for line in lines if len(line) == self.size}
        assert numbers == set(range(1, max(numbers) + 1)), f"{len(numbers)} of {max(numbers)}"


@pytest.fixture
def load(start: Start) -> Iterator[Callable[..., Load]]:
    """Publish without end, until the test is over."""
    loads: list[Load] = []

    def loaded(backbone: RunningBackbone, size: int = 200) -> Load:
        loads.append(Load(start, backbone, size))
        return loads[-1]

    yield loaded
    for one in loads:
        one.destroy()


class Peer:
    """A bare socket that speaks packets."""

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
        """Send a KEEPALIVE and return what comes before its ACK: by then all that was sent before was looked at."""
        self._tokens += 1
        token = self._tokens.to_bytes(16, "big")
        self.send(Keepalive(address, flags, token))
        packets: list[Packet] = []
        while (packet := self.receive()) != KeepaliveAck(token):
            packets.append(packet)
        return packets

    def refused(self, flags: int = 0, address: Address = ANY_ADDRESS) -> None:
        """Send a KEEPALIVE to which no ACK is to come."""
        self.send(Keepalive(address, flags, b"refused".ljust(16)))

    def publish(self, *data: bytes) -> None:
        for item in data:
            self.send(Push(item))

    def delivered(self, count: int) -> list[tuple[int, bytes]]:
        """Return the next ``count`` DELIVERs; anything else on the way is dropped."""
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
    """Make a :class:`Peer` of a backbone."""
    peers: list[Peer] = []

    def made(backbone: RunningBackbone | Address, host: str = "127.0.0.1") -> Peer:
        peers.append(Peer(backbone.address if isinstance(backbone, RunningBackbone) else backbone, host))
        return peers[-1]

    yield made
    for made_peer in peers:
        made_peer.socket.close()


@pytest.fixture
def in_time() -> Callable[[Any], Any]:
    """Wait for a Deferred, no longer than the deadline."""

    def waiting(deferred: Any) -> Any:
        from twisted.internet import reactor

        return deferred.addTimeout(DEADLINE, reactor)

    return waiting


@pytest.fixture
def leaving() -> Iterator[list[Any]]:
    """Protocols that the test has started; they leave when it is over."""
    protocols: list[Any] = []
    yield protocols
    for protocol in protocols:
        pytest_twisted.blockon(protocol.leave())


class Crossing(NamedTuple):
    """A datagram between a client and the backbone, or whoever repairs."""

    datagram: bytes
    source: Address
    client: Address
    port: Any
    """From where it goes on."""
    to: Address

    def go_on(self, port: Any = None) -> None:
        """Let it go where it wants, unless the relay is closed by now."""
        port = self.port if port is None else port
        if port.transport is not None:
            port.transport.write(self.datagram, self.to)


Carry = Callable[[Crossing], None]


class Relay(DatagramProtocol):
    """Looks like the backbone to its clients, and asks ``carry`` what becomes of each datagram, in both directions."""

    noisy = False

    def __init__(self, backbone: Address, carry: Carry) -> None:
        self.backbone = backbone
        self.carry = carry
        self.ports: list[Any] = []
        self._upstreams: dict[Address, Upstream] = {}
        self.address: Address = ("127.0.0.1", self.listen(self))

    def listen(self, protocol: DatagramProtocol) -> int:
        """Bind ``protocol`` until the test is over; return its port."""
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
    """Stands for one client towards the backbone, and towards those who repair."""

    noisy = False

    def __init__(self, relay: Relay, client: Address) -> None:
        self._relay = relay
        self._client = client

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        self._relay.carry(Crossing(datagram, addr, self._client, self._relay, self._client))


@pytest.fixture
def relay() -> Iterator[Callable[[Address, Carry], Relay]]:
    """Put something between a backbone and its clients. Ask for it before `leaving`, so that they say goodbye to it."""
    relays: list[Relay] = []

    def made(backbone: Address, carry: Carry) -> Relay:
        relays.append(Relay(backbone, carry))
        return relays[-1]

    yield made
    for one in relays:
        for port in one.ports:
            pytest_twisted.blockon(maybeDeferred(port.stopListening))
