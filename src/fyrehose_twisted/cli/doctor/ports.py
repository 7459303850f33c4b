"""Check of the ports that services use by default or in examples, and of the processes that occupy them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from errno import EADDRINUSE, errorcode
from pathlib import Path
from typing import NamedTuple

from fyrehose_twisted.cli.doctor.finding import DoctorFinding, ok, warn, wrong

PORTS = "ports"
PROC = Path("/proc")
HOST = "127.0.0.1"

_OURS = ("fyrehose", "parcels", "hydra", "freenet")
_COMMAND_LENGTH = 120


class Port(NamedTuple):
    """A port.

    :ivar kind: ``tcp`` or ``udp``.
    :ivar use: service and purpose.
    """

    number: int
    kind: str
    use: str

    def __str__(self) -> str:
        return f"{self.number}/{self.kind} ({self.use})"


DEFAULT_PORTS = (
    Port(2323, "udp", "backbone"),
    Port(2324, "tcp", "journal"),
    Port(6174, "tcp", "hydra"),
    Port(6174, "udp", "hydra"),
    Port(6175, "tcp", "hydra, control"),
    Port(6180, "tcp", "freenet"),
    Port(6181, "tcp", "freenet, control"),
    Port(7878, "tcp", "parcels"),
    Port(8480, "tcp", "query"),
    Port(8481, "tcp", "frontend, HTTP"),
    Port(8482, "tcp", "frontend, lines"),
    Port(8878, "tcp", "parcels, HTTP"),
    Port(9100, "tcp", "metrics"),
)


class PortOwner(NamedTuple):
    """A process that owns a port.

    :ivar command: its command line.
    """

    process: int
    command: str


class OccupiedPort(NamedTuple):
    """A port that could not be bound.

    :ivar error: ``errno`` of the failure.
    :ivar owner: process that owns it, if known.
    """

    port: Port
    error: int
    owner: PortOwner | None


def assess_ports(free: Sequence[Port], occupied: Sequence[OccupiedPort]) -> list[DoctorFinding]:
    """Assess ports: one finding for all free ports, and one for each occupied port."""
    findings = []
    if free:
        findings.append(ok(PORTS, f"free on {HOST}: {', '.join(map(str, free))}"))
    return [*findings, *map(_assess_occupied, occupied)]


def _assess_occupied(taken: OccupiedPort) -> DoctorFinding:
    port, owner = taken.port, taken.owner
    service = port.use.partition(",")[0]
    if taken.error != EADDRINUSE:
        name = errorcode.get(taken.error, str(taken.error))
        found = f"{port} cannot be bound on {HOST}: {os.strerror(taken.error)} ({name})"
        return wrong(PORTS, found, "check that loopback is up, and what forbids binding")
    if owner is None:
        look = f"ss -lpn 'sport = :{port.number}'"
        advice = (
            f"nothing if {service} already runs; otherwise find the owner as root with {look}, or choose another port"
        )
        return warn(PORTS, f"{port} is in use by an unknown process", advice)
    found = f"{port} is in use by process {owner.process}: {_shorten(owner.command)}"
    if any(name in owner.command for name in _OURS):
        return ok(PORTS, found)
    return warn(PORTS, found, f"stop it, or choose another port for {service}")


def parse_sockets(table: str) -> dict[int, set[int]]:
    """Parse ``/proc/net/tcp`` or a similar file; return the inodes of the sockets at each local port."""
    found: dict[int, set[int]] = {}
    for line in table.splitlines()[1:]:
        words = line.split()
        with suppress(IndexError, ValueError):
            number, inode = int(words[1].rpartition(":")[2], 16), int(words[9])
            if inode:  # Sockets without an owner, such as those in TIME_WAIT, have none.
                found.setdefault(number, set()).add(inode)
    return found


def find_owners(inodes: set[int]) -> dict[int, PortOwner]:
    """Return the owners of sockets by inode, among the processes that may be inspected."""
    found: dict[int, PortOwner] = {}
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    for process in _processes():
        with suppress(OSError):  # Another user's process, or one that has ended.
            for entry in os.scandir(PROC / str(process) / "fd"):
                with suppress(OSError):
                    inode = wanted.get(os.readlink(entry.path))
                    if inode is not None:
                        found.setdefault(inode, PortOwner(process, _command(process)))
        if len(found) == len(wanted):
            break
    return found


def _processes() -> Iterator[int]:
    with suppress(OSError):
        yield from sorted(int(name) for name in os.listdir(PROC) if name.isdecimal())


def _command(process: int) -> str:
    for name in ("cmdline", "comm"):  # A process with an empty command line still has a name.
        with suppress(OSError):
            text = (PROC / str(process) / name).read_bytes().replace(b"\0", b" ").strip()
            if text:
                return text.decode(errors="replace")
    return "unnamed"


def _shorten(command: str) -> str:
    """Remove the directories of the program and its first argument, and truncate."""
    words = command.split(" ")
    words[:2] = [word.rpartition("/")[2] or word for word in words[:2]]
    return " ".join(words)[:_COMMAND_LENGTH]


def probe_port(port: Port) -> int | None:
    """Bind a port as a service would; return ``errno`` if that fails."""
    kind = socket.SOCK_DGRAM if port.kind == "udp" else socket.SOCK_STREAM
    try:
        with socket.socket(socket.AF_INET, kind) as probe:
            if port.kind == "tcp":
                # As Twisted does, so that sockets in TIME_WAIT do not block the port.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port.number))
            if port.kind == "tcp":
                probe.listen(1)  # On Linux, two sockets can bind, but only one can listen.
    except OSError as error:
        return error.errno or 0
    return None


def probe_ports(ports: Sequence[Port]) -> tuple[list[Port], list[OccupiedPort]]:
    """Return free and occupied ports."""
    errors = {port: probe_port(port) for port in ports}
    inodes: dict[tuple[str, int], set[int]] = {}
    for kind in {port.kind for port, error in errors.items() if error is not None}:
        for name in (kind, f"{kind}6"):
            with suppress(OSError):
                for number, there in parse_sockets((PROC / "net" / name).read_text()).items():
                    inodes.setdefault((kind, number), set()).update(there)
    of_port = {port: inodes.get((port.kind, port.number), set()) for port, error in errors.items() if error is not None}
    found = find_owners(set().union(*of_port.values())) if any(of_port.values()) else {}
    free = [port for port, error in errors.items() if error is None]
    taken = [
        OccupiedPort(port, errors[port] or 0, next((found[inode] for inode in sorted(there) if inode in found), None))
        for port, there in of_port.items()
    ]
    return free, taken


def check_ports() -> list[DoctorFinding]:
    """Check the ports of all services."""
    return assess_ports(*probe_ports(DEFAULT_PORTS))
