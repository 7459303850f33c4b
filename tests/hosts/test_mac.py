"""MACs on several hosts: one that forges the address of the backbone, and sends to subscribers of others."""

from __future__ import annotations

import re
import sys

import pytest
from hosts.bridge import Bridge, Host, Process

COUNT = 500
LINES = [f"message {number}" for number in range(COUNT)]
FORGERY = "forged message"

SEND_AS = """
import socket, struct, sys
source, to = [(host, int(port)) for host, port in (text.split(":") for text in sys.argv[1:3])]
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for number in range(int(sys.argv[3]), int(sys.argv[4])):
    data = sys.argv[5].encode()
    packet = struct.pack(">BHHI", 1, len(data), 0, number) + data
    udp = struct.pack(">HHHH", source[1], to[1], 8 + len(packet), 0) + packet
    addresses = socket.inet_aton(source[0]) + socket.inet_aton(to[0])
    raw.sendto(struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + addresses + udp, to)
"""
"""Program that sends DELIVERs with the address of another host: SOURCE TO FIRST END DATA."""


class Segment:
    """A backbone with a secret, subscribers, and a host that forges addresses, each on a host of its own."""

    def __init__(self, bridge: Bridge, *, secret: bool) -> None:
        self.backbone, self.forger = bridge.add("backbone"), bridge.add("forger")
        self.secret = self.backbone.directory / "secret"
        self.secret.write_text("known to the backbone and its clients\n", encoding="utf-8")
        self.secret.chmod(0o600)
        self.with_secret = (f"--secret-file={self.secret}",) if secret else ()
        options = ("--state=stream.state", "--settle-time=0", f"--interface={self.backbone.address}")
        access = self.with_secret or ("--allow=10.9.0.0/24",)
        self.process = self.backbone.start(
            *("twistd", "-n", "--pidfile=", "fyrehose-backbone", *options, *access), log="backbone"
        )
        self.process.wait_for("starting on")
        self.addresses: dict[Host, str] = {}

    def subscribe(self, host: Host, *options: str) -> Process:
        program = host.start("fyrehose", "sub", f"--backbone={self.backbone.address}:2323", *options, log="sub")
        joined = self.process.wait_for(rf"client ({re.escape(host.address)}:\d+) joined")
        self.addresses[host] = joined[1]
        return program

    def publish(self, lines: list[str]) -> None:
        publisher = self.backbone.start(
            *("fyrehose", "pub", f"--backbone={self.backbone.address}:2323", *self.with_secret), log="publisher"
        )
        publisher.input.write("".join(f"{line}\n" for line in lines).encode())
        assert publisher.finish(120) == 0, publisher.output

    def forge(self, victim: Host, first: int, end: int) -> None:
        """Send DELIVERs to a subscriber with the address of the backbone."""
        source, to = f"{self.backbone.address}:2323", self.addresses[victim]
        self.forger.space.run(sys.executable, "-c", SEND_AS, source, to, str(first), str(end), FORGERY)


def test_without_macs_a_host_that_forges_the_address_of_the_backbone_injects_messages(bridge: Bridge) -> None:
    segment, victim = Segment(bridge, secret=False), bridge.add("victim")
    subscriber = segment.subscribe(victim)
    segment.publish(LINES[:1])
    subscriber.wait_for("message 0")
    segment.forge(victim, 2, 4)
    subscriber.wait_for(rf"{FORGERY}\n{FORGERY}")


@pytest.mark.parametrize("policy", [(), ("--require-mac",)], ids=["offered", "required"])
def test_with_macs_it_injects_none(bridge: Bridge, policy: tuple[str, ...]) -> None:
    segment, victim, other = Segment(bridge, secret=True), bridge.add("victim"), bridge.add("other")
    subscribers = [segment.subscribe(host, *segment.with_secret, *policy) for host in (victim, other)]
    segment.publish(LINES[:1])
    for subscriber in subscribers:
        subscriber.wait_for("message 0")
    for host in (victim, other):
        segment.forge(host, 2, 2 * COUNT)
    segment.publish(LINES[1:])
    for subscriber in subscribers:
        subscriber.wait_for(f"message {COUNT - 1}\n")
        assert [line for line in subscriber.output.splitlines() if "fyrehose" not in line] == LINES
