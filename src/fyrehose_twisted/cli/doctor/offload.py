"""Checks of UDP segmentation and receive offload."""

from __future__ import annotations

import select
import socket
from typing import Any, NamedTuple

from fyrehose_twisted.cli.doctor.finding import DoctorFinding, ok, warn, wrong

SEND, RECEIVE = "GSO", "GRO"

SIZE, COUNT = 100, 64
"""Bytes per datagram, and datagrams per burst. Every kernel with GSO sends that many in one call."""

RECEIVE_TIMEOUT = 1.0
"""Maximum seconds to wait for the next datagram on loopback, where delivery is immediate."""

_COST = "one system call per datagram instead of one per 64"


class OffloadProbe(NamedTuple):
    """Result of a burst sent on loopback.

    :ivar segments: expected maximum number of datagrams per send call; 1 without GSO.
    :ivar sends: number of send calls for the burst.
    :ivar receives: whether the socket accepted ``UDP_GRO``.
    :ivar intact: number of datagrams that arrived unchanged.
    :ivar calls: number of receive calls that returned them.
    :ivar errors: number of datagrams refused by the kernel, by name of the error.
    """

    segments: int
    sends: int
    receives: bool
    intact: int
    calls: int
    errors: dict[str, int]


def probe_offload() -> OffloadProbe:
    """Send a burst on loopback and receive it. :raises OSError: if there is no loopback."""
    from fyrehose_twisted.effects import Burst
    from fyrehose_twisted.net.gso import RECEIVE_BYTES, SegmentingSocket

    sent = [bytes([number]) * SIZE for number in range(COUNT)]
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there,
    ):
        for made in (here, there):
            made.setblocking(False)
            made.bind(("127.0.0.1", 0))
        counted: Any = _CountingSocket(here)
        sender, receiver = SegmentingSocket(counted), SegmentingSocket(there)
        if sender.segments > 1:
            sender.send(Burst(b"".join(sent), SIZE), there.getsockname())
        else:
            for datagram in sent:
                sender.send(Burst(datagram, SIZE), there.getsockname())
        arrived: list[bytes] = []
        calls, buffer, own = 0, bytearray(RECEIVE_BYTES), here.getsockname()
        while len(arrived) < COUNT and _readable(there):
            batch = receiver.receive_batch(buffer)
            calls += 1
            arrived += [bytes(datagram) for datagram, peer, _ in batch if peer == own]
        whole = sum(one == other for one, other in zip(sent, arrived, strict=False))
        return OffloadProbe(sender.segments, counted.sends, receiver.receives_bursts, whole, calls, dict(sender.errors))


class _CountingSocket:
    """A socket that counts send calls. A burst that the kernel refuses is resent as single datagrams."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.sends = 0

    def sendmsg(self, *arguments: Any) -> int:
        sent = self._socket.sendmsg(*arguments)
        self.sends += 1
        return sent

    def sendto(self, data: bytes, peer: Any) -> int:
        sent = self._socket.sendto(data, peer)
        self.sends += 1
        return sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def _readable(one: socket.socket) -> bool:
    # Not select.select(), which rejects descriptors of 1,024 and above.
    if not hasattr(select, "poll"):
        return bool(select.select([one], [], [], RECEIVE_TIMEOUT)[0])
    waiting = select.poll()
    waiting.register(one, select.POLLIN)
    return bool(waiting.poll(RECEIVE_TIMEOUT * 1000))


def assess_offload(probe: OffloadProbe) -> list[DoctorFinding]:
    """Assess the burst: one finding for GSO, one for GRO."""
    if probe.intact < COUNT:
        refused = "".join(f", {count} refused with {name}" for name, count in probe.errors.items())
        lost = f"{probe.intact} of {COUNT} datagrams arrived on 127.0.0.1{refused}"
        return [
            wrong(SEND, lost, "check whether a firewall or a sandbox filters loopback"),
            wrong(RECEIVE, lost, "the same"),
        ]
    return [_assess_sending(probe), _assess_receiving(probe)]


def _assess_sending(trial: OffloadProbe) -> DoctorFinding:
    if trial.segments > 1 and trial.sends == 1:
        return ok(SEND, f"UDP_SEGMENT works: {COUNT} datagrams went out in one call on loopback")
    if trial.segments > 1:
        found = f"UDP_SEGMENT is accepted but fails when used: {COUNT} datagrams went out in {trial.sends} calls"
        return warn(SEND, found, "check whether a sandbox or a kernel filter forbids it; services work without it")
    return warn(SEND, f"no UDP_SEGMENT: sending takes {_COST}", "use Linux 4.18 or newer; services work without it")


def _assess_receiving(trial: OffloadProbe) -> DoctorFinding:
    if not trial.receives:
        return warn(RECEIVE, f"no UDP_GRO: receiving takes {_COST}", "use Linux 5.0 or newer; services work without it")
    bursts = trial.sends == 1
    if bursts and trial.calls == COUNT:
        found = f"UDP_GRO is accepted but has no effect: {COUNT} datagrams of a burst arrived in {COUNT} calls"
        return warn(RECEIVE, found, "check whether a sandbox, filter or tunnel splits bursts; services work without it")
    if bursts:
        calls = "one call" if trial.calls == 1 else f"{trial.calls} calls"
        return ok(RECEIVE, f"UDP_GRO works: {COUNT} datagrams of a burst arrived in {calls}")
    return ok(RECEIVE, "UDP_GRO is accepted; it cannot be tested, because this machine sends no bursts")


def check_offload() -> list[DoctorFinding]:
    """Check segmentation and receive offload."""
    try:
        return assess_offload(probe_offload())
    except OSError as error:
        reason = f"UDP on 127.0.0.1 does not work: {error.strerror}"
        return [wrong(check, reason, "bring loopback up: ip link set lo up") for check in (SEND, RECEIVE)]
