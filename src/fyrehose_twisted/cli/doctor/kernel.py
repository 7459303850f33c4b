"""Checks of UDP socket buffers and drops."""

from __future__ import annotations

import socket
import sys
from contextlib import suppress
from errno import ENOBUFS, errorcode
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from fyrehose_twisted.cli.doctor.finding import DoctorFinding, ok, unknown, warn, wrong
from fyrehose_twisted.wording import pluralize

BUFFERS, DROPS = "kernel buffers", "UDP drops"

LIMITS = Path("/proc/sys/net/core")
SNMP, SOCKETS = Path("/proc/net/snmp"), (Path("/proc/net/udp"), Path("/proc/net/udp6"))

MANY_DROPS = 1_000
"""Report machine-wide losses of one in this many datagrams or more."""

SHOWN = 3
"""Maximum number of sockets with losses shown."""

_LINUX = sys.platform == "linux"
_CONSEQUENCE = "a burst that does not fit is lost, and its repair costs other clients bandwidth"


class SocketBuffers(NamedTuple):
    """Buffer sizes of a socket in bytes.

    :ivar error: ``errno`` of a refused request.
    """

    receive: int
    send: int
    error: int | None = None


class UdpCounters(NamedTuple):
    """UDP counters since the start of the machine, or of the network of the container.

    :ivar received: datagrams handed to sockets.
    :ivar buffer_errors: datagrams dropped because the receive buffer was full.
    :ivar errors: datagrams dropped for any reason, including full buffers.
    """

    received: int
    buffer_errors: int
    errors: int


def probe_socket_buffers(wanted: int) -> SocketBuffers:
    """Ask for ``wanted`` bytes in each direction, as :class:`~fyrehose_twisted.net.udp.DatagramPort` does.

    :raises OSError: if there are no UDP sockets.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                probe.setsockopt(socket.SOL_SOCKET, option, wanted)
        except OSError as error:  # Linux gives less instead; the BSDs and macOS refuse.
            return SocketBuffers(0, 0, error.errno)
        share = 2 if _LINUX else 1  # Linux reports twice what it gives, to account for its own overhead.
        receive, send = (
            probe.getsockopt(socket.SOL_SOCKET, option) // share for option in (socket.SO_RCVBUF, socket.SO_SNDBUF)
        )
    return SocketBuffers(receive, send)


def assess_buffers(given: SocketBuffers, wanted: int, limits: dict[str, str]) -> DoctorFinding:
    """Assess buffer sizes.

    :param wanted: bytes that the library requests.
    :param limits: limits of the kernel as text, by name without ``net.core.``.
    """
    if given.error is not None:
        name = errorcode.get(given.error, str(given.error))
        advice = "find the limit of the kernel that applies"
        if given.error == ENOBUFS:
            advice = f"as root: sysctl kern.ipc.maxsockbuf={2 * wanted}"
        return wrong(BUFFERS, f"the kernel refuses {format_size(wanted)} ({name}): no UDP port will open", advice)
    said = ", ".join(f"net.core.{name} {text}" for name, text in limits.items())
    said = f" ({said})" if said else ""
    small = [
        (way, limit, bytes_)
        for way, limit, bytes_ in (("receive", "rmem_max", given.receive), ("send", "wmem_max", given.send))
        if bytes_ < wanted
    ]
    if not small:
        return ok(BUFFERS, f"{format_size(wanted)} are requested in each direction, and granted{said}")
    found = " and ".join(f"{format_size(bytes_)} to {way}" for way, _, bytes_ in small)
    settings = " ".join(f"net.core.{limit}={wanted}" for _, limit, _ in small)
    return warn(
        BUFFERS,
        f"the kernel grants {found}; {format_size(wanted)} are requested{said}",
        f"as root, on the host: sysctl -w {settings}, then restart the services; {_CONSEQUENCE}",
    )


def read_limits() -> dict[str, str]:
    """Return the readable limits of the kernel; containers and other systems may have none."""
    found = {}
    for name in ("rmem_max", "wmem_max"):
        try:
            text = (LIMITS / name).read_text().strip()
        except OSError:
            continue
        found[name] = format_size(int(text)) if text.isdecimal() else text
    return found


def parse_udp_counters(snmp: str) -> UdpCounters:
    """Parse the counters in ``/proc/net/snmp``. :raises ValueError: if they are missing."""
    rows = [line.split()[1:] for line in snmp.splitlines() if line.startswith("Udp:")]
    if len(rows) < 2:
        raise ValueError(f"{SNMP} has no UDP counters")
    counters = dict(zip(rows[0], rows[1], strict=False))
    try:
        return UdpCounters(*(int(counters[name]) for name in ("InDatagrams", "RcvbufErrors", "InErrors")))
    except KeyError as error:
        raise ValueError(f"{SNMP} does not have {error.args[0]}") from error


def read_udp_counters() -> UdpCounters:
    """Read the counters.

    :raises OSError: if they cannot be read.
    :raises ValueError: if they are missing.
    """
    return parse_udp_counters(SNMP.read_text())


def parse_socket_drops(sockets: str) -> dict[int, int]:
    """Parse ``/proc/net/udp``; return the datagrams lost by open sockets, by local port."""
    found: dict[int, int] = {}
    for line in sockets.splitlines()[1:]:
        words = line.split()
        with suppress(IndexError, ValueError):
            port, lost = int(words[1].rpartition(":")[2], 16), int(words[12])
            if lost:
                found[port] = found.get(port, 0) + lost
    return found


def read_socket_drops() -> dict[int, int]:
    """Return the losses of open sockets, as far as readable."""
    found: dict[int, int] = {}
    for path in SOCKETS:
        with suppress(OSError):
            for port, lost in parse_socket_drops(path.read_text()).items():
                found[port] = found.get(port, 0) + lost
    return found


def assess_drops(before: UdpCounters, after: UdpCounters, lost: dict[int, int]) -> DoctorFinding:
    """Assess the counters. Only current losses, or losses of open sockets, cause a warning.

    :param before: counters at the start of the checks.
    :param lost: datagrams lost by open sockets, by local port.
    """
    now = after.buffer_errors - before.buffer_errors
    found = f"{after.buffer_errors:,} of {after.received + after.errors:,} datagrams found the receive buffer full"
    if after.errors > after.buffer_errors:
        found += f", {after.errors - after.buffer_errors:,} were bad or found no memory"
    if now > 0:
        found += f"; {now:,} of them during this check"
    if lost:
        worst = sorted(lost.items(), key=itemgetter(1), reverse=True)
        found += "; of the open ports, " + ", ".join(f"{port} lost {n:,}" for port, n in worst[:SHOWN])
        found += f" and {pluralize(len(worst) - SHOWN, 'other')} lost some" if len(worst) > SHOWN else ""
    if now > 0 or lost:
        return warn(DROPS, found, f"give the readers larger buffers or more CPU time: {_CONSEQUENCE}")
    if after.buffer_errors * MANY_DROPS > after.received + after.errors:
        return ok(DROPS, found, "check again while the services run: this counts all processes since the start")
    return ok(DROPS, found)


def check_buffers() -> DoctorFinding:
    """Check the buffer sizes of a socket."""
    from fyrehose_twisted.net.udp import KERNEL_BUFFER

    try:
        given = probe_socket_buffers(KERNEL_BUFFER)
    except OSError as error:
        return wrong(BUFFERS, f"UDP sockets are unavailable: {error.strerror}", "find what forbids them")
    return assess_buffers(given, KERNEL_BUFFER, read_limits())


def check_drops(before: UdpCounters | None) -> DoctorFinding:
    """Check drops since ``before``, which is ``None`` if the counters could not be read."""
    try:
        after = read_udp_counters()
    except (OSError, ValueError) as error:
        return unknown(DROPS, error, "check the counters with: netstat -s")
    return assess_drops(after if before is None else before, after, read_socket_drops())


def format_size(count: int) -> str:
    """Format a number of bytes for display."""
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}" if count < 1000 * unit else f"{count / unit:.0f} {name}"
    return f"{count} bytes"
