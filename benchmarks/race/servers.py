"""Brokers of the race, each in a process of its own on loopback, and their CPU time."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.packets import Flags, Keepalive

HERE = Path(__file__).parent
OURS, NATS, REDIS, ZEROMQ, C_RELAY, PLAIN = "fyrehose", "NATS", "Redis", "ZeroMQ", "C relay", "plain relay"
AIO, UVLOOP = ON_ASYNCIO = "fyrehose, asyncio", "fyrehose, uvloop"
"""Clients of the library without Twisted's reactor; their broker is that of fyrehose."""
BROKER_CORE, CLIENT_CORE = 0, 1
LOOPBACK = "127.0.0.1"
T = TypeVar("T")
PATIENCE = 15.0
"""Seconds within which a broker must start."""


class Place(NamedTuple):
    """Network that a broker is started in.

    :ivar host: address to bind.
    :ivar enter: command that runs another one in the network.
    """

    host: str = LOOPBACK
    enter: tuple[str, ...] = ()


ON_LOOPBACK = Place()


class Missing(Exception):
    """A program required by a broker is not installed."""


def pin(core: int) -> None:
    """Bind this process to one core, if there are two."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, {cores[core]})


def run_on_loop(system: str, main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the event loop of a client."""
    if system == UVLOOP:
        import uvloop

        return uvloop.run(main)
    return asyncio.run(main)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # The thread has ended.
    return total / 1e9


def free_port(kind: socket.SocketKind) -> int:
    """Return a port that was free a moment ago."""
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Broker:
    """A running broker.

    :param core: core to bind it to; ``None`` for all.
    :ivar ports: for publishers and for subscribers; most brokers have one for both.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        ports: tuple[int, int],
        log: Path,
        place: Place = ON_LOOPBACK,
        core: int | None = BROKER_CORE,
    ) -> None:
        self.name = name
        self.ports = ports
        self.host = place.host
        self._log = log
        command = [*place.enter, *command]
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, preexec_fn=None if core is None else lambda: pin(core)
            )

    def wait_for_listener(self) -> None:
        """Wait until the TCP ports accept connections."""
        deadline = time.monotonic() + PATIENCE
        for port in self.ports:
            while True:
                self.check()
                try:
                    socket.create_connection((self.host, port), timeout=1).close()
                    break
                except ConnectionRefusedError:
                    if time.monotonic() > deadline:
                        raise SystemExit(f"{self.name} does not listen: {self._log.read_text()[-1_000:]}") from None
                    time.sleep(0.02)

    def wait_for_ack(self) -> None:
        """Wait until non-subscribing KEEPALIVEs are acknowledged."""
        hello = encode(Keepalive(flags=Flags.NOSUBSCRIBE | Flags.NOJOURNAL))
        deadline = time.monotonic() + PATIENCE
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((self.host, self.ports[0]))
            probe.settimeout(0.05)
            while True:
                self.check()
                try:
                    probe.send(hello)
                    probe.recv(64)
                    return
                except ConnectionRefusedError:
                    time.sleep(0.02)
                except TimeoutError:
                    pass
                if time.monotonic() > deadline:
                    raise SystemExit(f"{self.name} does not answer: {self._log.read_text()[-1_000:]}")

    def check(self) -> None:
        """Fail if it has exited."""
        if self.process.poll() is not None:
            raise SystemExit(f"{self.name} ended: {self._log.read_text()[-2_000:]}")

    def stop(self) -> None:
        """Stop it."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def program(name: str, package: str) -> str:
    """Return the path of a program. :raises Missing: if it is not installed."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise Missing(f"not installed: apt install {package}")
    return found


def compile_relay(directory: Path) -> str:
    """Compile the C relay and return its path. :raises Missing: if there is no compiler."""
    target = directory / "relay"
    if not target.exists():
        compiler = program("gcc", "gcc")
        subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-o", target, HERE / "relay.c"], check=True)
    return str(target)


def start_nats(directory: Path, place: Place = ON_LOOPBACK) -> Broker:
    """Start nats-server."""
    port = free_port(socket.SOCK_STREAM)
    config = directory / "nats.conf"
    # No PINGs between the messages, whose bytes are counted, and buffers for every window.
    config.write_text(f"listen: {place.host}:{port}\nping_interval: '1h'\nmax_pending: 256MB\nmax_connections: 10000\n")
    command = [program("nats-server", "nats-server"), "-c", str(config)]
    broker = Broker(NATS, command, (port, port), directory / "nats.log", place)
    broker.wait_for_listener()
    return broker


def start_redis(directory: Path) -> Broker:
    """Start redis-server without persistence and without limits for slow clients."""
    port = free_port(socket.SOCK_STREAM)
    command = [program("redis-server", "redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    command += ["--appendonly", "no", "--client-output-buffer-limit", "pubsub 0 0 0", "--dir", str(directory)]
    broker = Broker(REDIS, command, (port, port), directory / "redis.log")
    broker.wait_for_listener()
    return broker


def start_zeromq(directory: Path) -> Broker:
    """Start a ZeroMQ forwarder."""
    if find_spec("zmq") is None:
        raise Missing("not installed: pip install pyzmq")
    ports = free_port(socket.SOCK_STREAM), free_port(socket.SOCK_STREAM)
    command = [sys.executable, str(HERE / "zmq_proxy.py"), *map(str, ports)]
    broker = Broker(ZEROMQ, command, ports, directory / "zeromq.log")
    broker.wait_for_listener()
    return broker


def start_c_relay(directory: Path) -> Broker:
    """Compile and start the C relay."""
    port = free_port(socket.SOCK_DGRAM)
    broker = Broker(C_RELAY, [compile_relay(directory), str(port)], (port, port), directory / "c_relay.log")
    broker.wait_for_ack()
    return broker


def start_plain(directory: Path) -> Broker:
    """Start the relay that is only a DatagramProtocol."""
    port = free_port(socket.SOCK_DGRAM)
    command = [sys.executable, str(HERE.parent / "plain_relay.py"), str(port)]
    return Broker(PLAIN, command, (port, port), directory / "plain.log")


def start_ours(
    directory: Path,
    place: Place = ON_LOOPBACK,
    *,
    twistd: Sequence[str] = (str(Path(sys.executable).parent / "twistd"),),
) -> Broker:
    """Start a backbone with a state file of its own."""
    port = free_port(socket.SOCK_DGRAM)
    state = directory / f"state.{port}"
    command = [*twistd, "-n", "--pidfile=", "fyrehose-backbone"]
    command += ["--state", str(state), "--start-at=1", "--settle-time=0", "--max-per-host=1024", "--port", str(port)]
    command += ["--interface", place.host, "--open"]
    broker = Broker(OURS, command, (port, port), directory / f"fyrehose.{port}.log", place)
    broker.wait_for_ack()
    return broker


STARTERS: dict[str, Callable[[Path], Broker]] = {
    OURS: start_ours,
    NATS: start_nats,
    REDIS: start_redis,
    ZEROMQ: start_zeromq,
    C_RELAY: start_c_relay,
    PLAIN: start_plain,
}


class Brokers:
    """Brokers of one run, each started on first use and stopped at the end.

    :ivar missing: programs that are not installed, with advice.
    """

    def __init__(self, directory: Path) -> None:
        self.missing: dict[str, str] = {}
        self._directory = directory
        self._running: dict[str, Broker] = {}

    def get(self, name: str) -> Broker | None:
        """Return a broker, or ``None`` if it is not installed."""
        if name in self.missing:
            return None
        if name not in self._running:
            try:
                self._running[name] = STARTERS[name](self._directory)
            except Missing as missing:
                self.missing[name] = str(missing)
                return None
        broker = self._running[name]
        broker.check()
        return broker

    def end(self, name: str) -> None:
        """Stop a broker; the next use starts it again."""
        self._running.pop(name).stop()

    def stop(self) -> None:
        """Stop all brokers."""
        for broker in self._running.values():
            broker.stop()
        self._running.clear()
