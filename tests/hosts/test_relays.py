"""Relays on several hosts: a subscriber behind address translation, packets that are lost, and a relay that dies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hosts.bridge import BIN, Bridge, Host, Process
from suite.spaces import Space

COUNT = 2_000
LOSS = 0.03
TRANSLATION = """
table ip translation {
    chain out { type nat hook postrouting priority 100; oifname "eth" masquerade; }
    chain in {
        type filter hook prerouting priority -300;
        iifname "eth" ip saddr != { %s } udp sport != 0 counter name others
    }
    counter others { }
}
"""


@pytest.fixture
def inside() -> Iterator[Space]:
    """Return a namespace to put behind a gateway."""
    space = Space()
    yield space
    space.close()


def translate(gateway: Host, inside: Space, served_by: list[Host]) -> None:
    """Connect a namespace to the bridge through a gateway that translates its address, and count what strangers send.

    :param served_by: the hosts that are no strangers.
    """
    peer = ("peer", "name", "eth", "netns", str(inside.pid))
    gateway.space.run("ip", "link", "add", "name", "inner", "type", "veth", *peer)
    gateway.space.prepare_device("inner", "192.168.7.1/24")
    inside.prepare_device("eth", "192.168.7.2/24")
    inside.run("ip", "route", "add", "default", "via", "192.168.7.1")
    gateway.space.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    addresses = ", ".join(host.address for host in served_by)
    gateway.space.run("nft", "-f", "-", text=TRANSLATION % addresses)


def start_relay(host: Host, backbone: Host) -> Process:
    options = (f"--backbone={backbone.address}:2323", f"--interface={host.address}", "--port=2324")
    relay = host.start(
        *("twistd", "-n", "--pidfile=", "fyrehose-relay", *options, "--allow=10.9.0.0/24", "--answer-repairs"),
        log="relay",
    )
    relay.wait_for("following parent")
    return relay


@pytest.mark.extended
def test_a_subscriber_behind_address_translation_needs_nobody_but_its_relays(bridge: Bridge, inside: Space) -> None:
    backbone, first, second, gateway, other = map(bridge.add, ("backbone", "first", "second", "gateway", "other"))
    translate(gateway, inside, [first, second])
    options = ("--state=stream.state", "--settle-time=0", f"--interface={backbone.address}", "--allow=10.9.0.0/24")
    backbone.start("twistd", "-n", "--pidfile=", "fyrehose-backbone", *options, log="backbone").wait_for("listening on")
    relays = [start_relay(host, backbone) for host in (first, second)]
    # A live subscriber would begin with the second message if it lost the first.
    subscribe = ("sub", "--from=1")
    # It stores messages, too: the backbone may have it repair what others miss, but not the subscriber.
    neighbour = other.start("fyrehose", *subscribe, f"--backbone={backbone.address}:2323", log="neighbour")
    places = ",".join(f"{host.address}:2324" for host in (first, second))
    log = gateway.directory / "subscriber.log"
    command = (*inside.enter, BIN / "fyrehose", *subscribe, f"--backbone={places}")
    subscriber = Process(command, log, gateway.directory)
    try:
        for relay in relays:
            relay.wait_for(rf"client {gateway.address}:\d+ joined")
        bridge.lose(LOSS)
        publisher = other.start("fyrehose", "pub", f"--backbone={first.address}:2324", log="publisher")
        lines = b"".join(b"message %d\n" % number for number in range(COUNT))
        publisher.input.write(lines)
        assert publisher.finish(120) == 0, publisher.output
        subscriber.wait_for(f"message {COUNT // 2}\n", 60)
        relays[0].kill()
        again = other.start("fyrehose", "pub", f"--backbone={second.address}:2324", log="again")
        again.input.write(lines.replace(b"message", b"another"))
        assert again.finish(120) == 0, again.output
        everything = rf"(?:[^\n]*\n){{{2 * COUNT}}}"
        for reader in (subscriber, neighbour):
            reader.wait_for(everything, 60)
        # A message whose PUSH was lost has a later number than those after it.
        expected = (lines + lines.replace(b"message", b"another")).decode().splitlines()
        assert sorted(subscriber.output.splitlines()) == sorted(expected)
        assert subscriber.output == neighbour.output
    finally:
        subscriber.kill()
    counted = gateway.space.run("nft", "list", "counter", "ip", "translation", "others")
    assert "packets 0 bytes 0" in counted, "a stranger has sent something through the translation"
