"""Backbone processes, and raw sockets that talk to them."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from urllib.request import ProxyHandler, build_opener

import treq
from integration.running.programs import DEADLINE, Program, Start

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, Deliver, Flags, Keepalive, KeepaliveAck, Packet, Push


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


def publish(start: Start, backbone: RunningBackbone, lines: bytes, *options: object) -> None:
    """Publish lines with ``fyrehose pub``; all of them are acknowledged."""
    publisher = start("fyrehose", "pub", "-b", backbone.text, *options)
    assert publisher.finish(lines) == 0, publisher


def check_received(subscriber: Program, lines: bytes) -> None:
    """Wait until ``fyrehose sub`` has printed as much, and check that it is the same, and that nothing is lost."""
    subscriber.wait_until(lambda: len(subscriber.out) >= len(lines))
    assert subscriber.out.encode() == lines
    assert "lost" not in subscriber.err
