"""Backbones and relays on loopback, each in a process of its own."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable
from pathlib import Path

from race.servers import LOOPBACK, Broker, cpu_seconds, free_port

BACKBONE, RELAY = "backbone", "relay"
TWISTD = (str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile=")
LIMITS = ("--max-clients=2048", "--max-per-host=2048")


class Servers:
    """Servers that are stopped together.

    :param core: core to bind them to; ``None`` for all.
    """

    def __init__(self, directory: Path, core: int | None = None) -> None:
        self._directory = directory
        self._core = core
        self._running: list[Broker] = []

    def backbone(self, core: int | None = None) -> Broker:
        """Start a backbone with a state file of its own, on another core if one is given."""
        port = free_port(socket.SOCK_DGRAM)
        state = [f"--state={self._directory / f'state.{port}'}", "--start-at=1", "--settle-time=0"]
        return self._start(BACKBONE, port, state, core)

    def relay(self, parent: Broker, core: int | None = None) -> Broker:
        """Start a relay, which answers once it follows its parent."""
        return self._start(RELAY, free_port(socket.SOCK_DGRAM), [f"--backbone={address_of(parent)}"], core)

    def chain(self, relays: int) -> list[Broker]:
        """Start a backbone and relays that follow one another. The last one is at the lowest level."""
        chain = [self.backbone()]
        for _ in range(relays):
            chain.append(self.relay(chain[-1]))
        return chain

    def stop(self) -> None:
        """Stop all, relays before their parents."""
        while self._running:
            self._running.pop().stop()

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _start(self, kind: str, port: int, options: Iterable[str], core: int | None) -> Broker:
        command = [*TWISTD, f"fyrehose-{kind}", f"--listen=udp:{port}", *LIMITS, *options]
        core = self._core if core is None else core
        log = self._directory / f"{kind}.{port}.log"
        server = Broker(kind, command, (port, port), log, core=core)
        self._running.append(server)
        server.wait_for_ack()
        return server


def address_of(server: Broker) -> str:
    """Return ``HOST:PORT`` of a server."""
    return f"{LOOPBACK}:{server.ports[0]}"


def cpu_of(servers: Iterable[Broker]) -> float:
    """Return the CPU seconds of servers."""
    return sum(cpu_seconds(server.process.pid) for server in servers)


def resident_of(server: Broker) -> int:
    """Return the bytes of resident memory of a server."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith("VmRSS:"))
