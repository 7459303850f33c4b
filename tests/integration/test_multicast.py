"""A backbone with a multicast group, and its subscribers, in processes of their own on loopback."""

from __future__ import annotations

import socket
import struct
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import pytest_twisted
from integration.running.backbone import RunningBackbone, StartBackbone, check_received, publish
from integration.running.programs import Program, Start

from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.packets import Beacon, Deliver

COUNT = 2_000
LINES = b"".join(b"message %d\n" % number for number in range(COUNT))


@pytest.fixture
def group_port(free_port: Callable[[], int]) -> int:
    return free_port()


@pytest.fixture
def start_with_group(start_backbone: StartBackbone, group_port: int) -> StartBackbone:
    """Start a backbone with a group on loopback."""
    return partial(start_backbone, "--metrics=tcp:0", f"--multicast=239.83.1.1:{group_port}")


async def wait_for_listeners(backbone: RunningBackbone, count: int) -> None:
    while (await backbone.metrics())["fyrehose_backbone_listeners"] != count:
        pass  # Each look takes a round trip.


def subscribe(start: Start, backbone: RunningBackbone, *options: object) -> Program:
    return start("fyrehose", "sub", "-b", backbone.text, *options)


@pytest_twisted.ensureDeferred
async def test_subscribers_are_served_by_the_group_or_one_by_one(start: Start, start_with_group: StartBackbone) -> None:
    backbone = start_with_group()
    backbone.program.wait_for("sending to multicast group 239.83.1.1:")
    listeners = [subscribe(start, backbone, "--multicast") for _ in range(3)]
    other = subscribe(start, backbone)
    await wait_for_listeners(backbone, 3)
    backbone.wait_for_clients(4)
    publish(start, backbone, LINES)
    for subscriber in (*listeners, other):
        check_received(subscriber, LINES)
    metrics = await backbone.metrics()
    assert metrics["fyrehose_backbone_multicast_total"] == COUNT
    assert metrics["fyrehose_backbone_delivered_total"] == 5 * COUNT, "with the publisher"


@pytest_twisted.ensureDeferred
async def test_what_is_sent_to_the_group_is_one_deliver_for_each_message(
    start: Start, start_with_group: StartBackbone, group_port: int
) -> None:
    backbone = start_with_group()
    subscriber = subscribe(start, backbone, "--multicast")
    await wait_for_listeners(backbone, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reader.bind(("239.83.1.1", group_port))
        joined = struct.pack("4s4s", socket.inet_aton("239.83.1.1"), socket.inet_aton("127.0.0.1"))
        reader.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
        reader.settimeout(60.0)
        publish(start, backbone, b"one\ntwo\n")
        check_received(subscriber, b"one\ntwo\n")
        delivers, beacons = list[Deliver](), 0
        while len(delivers) < 2 or not beacons:
            datagram, sender = reader.recvfrom(65_536)
            assert sender == backbone.address
            packet = decode(datagram)
            if isinstance(packet, Deliver):
                delivers.append(packet)
            else:
                assert packet == Beacon(1)
                beacons += 1
    assert [one.sequence for one in delivers] == [1, 2]
    assert [one.data[-3:] for one in delivers] == [b"one", b"two"]


@pytest.mark.extended
@pytest_twisted.ensureDeferred
async def test_subscribers_follow_a_backbone_that_returns_with_and_without_its_group(
    start: Start, start_backbone: StartBackbone, start_with_group: StartBackbone
) -> None:
    backbone = start_with_group()
    subscriber = subscribe(start, backbone, "--multicast")
    await wait_for_listeners(backbone, 1)
    publish(start, backbone, LINES)
    backbone.kill()
    backbone = start_with_group(port=backbone.address[1])
    await wait_for_listeners(backbone, 1)
    publish(start, backbone, LINES)
    check_received(subscriber, 2 * LINES)
    backbone.kill()
    backbone = start_backbone("--metrics=tcp:0", port=backbone.address[1])
    subscriber.wait_until(lambda: "nothing comes by multicast group" in subscriber.err)
    publish(start, backbone, LINES)
    check_received(subscriber, 3 * LINES)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--multicast=10.0.0.1:5",), "10.0.0.1:5 is not an IPv4 multicast group and a port"),
        (("--multicast=224.0.0.1:5",), "224.0.0.0/24 belongs to routers"),
        (("--multicast=239.1.1.1",), "'239.1.1.1' is not HOST:PORT"),
        (("--multicast-ttl=3",), "require --multicast GROUP:PORT"),
        (("--multicast=239.1.1.1:5", "--multicast-ttl=256"), "--multicast-ttl"),
        (("--multicast=239.1.1.1:5", "--interface=::", "--open"), "choose one by the address of this host there"),
        (("--multicast=239.1.1.1:5", "--interface=::1"), "a group has an IPv4 address"),
        (
            ("--multicast=239.1.1.1:5", "--multicast-interface=eth0"),
            "--multicast-interface 'eth0' is not an IP address",
        ),
        (
            ("--multicast=239.1.1.1:5", "--multicast-interface=192.0.2.77"),
            "no network interface has the address 192.0.2.77",
        ),
    ],
)
def test_what_cannot_work_is_said_at_the_start(
    start: Start, free_port: Callable[[], int], tmp_path: Path, options: tuple[str, ...], text: str
) -> None:
    program = start(
        *("twistd", "-n", "--pidfile=", "fyrehose-backbone", f"--port={free_port()}", *options), cwd=tmp_path
    )
    assert program.finish() == 1
    assert text in program.out + program.err
    assert "Traceback" not in program.out + program.err


@pytest.mark.extended
@pytest_twisted.ensureDeferred
async def test_a_relay_listens_to_the_group_of_its_parent_and_has_one_of_its_own(
    start: Start, start_with_group: StartBackbone, free_port: Callable[[], int], tmp_path: Path
) -> None:
    backbone = start_with_group()
    places = (f"--listen=udp:{free_port()}", f"--multicast=239.83.1.2:{free_port()}", f"--metrics=tcp:{free_port()}")
    program = start(
        *("twistd", "-n", "--pidfile=", "fyrehose-relay", "--backbone", backbone.text, "--backbone-multicast", *places),
        cwd=tmp_path,
        stderr=subprocess.STDOUT,
    )
    program.wait_for("following parent")
    relay = RunningBackbone(program)
    await wait_for_listeners(backbone, 1)
    listeners = [subscribe(start, relay, "--multicast") for _ in range(2)]
    while (await relay.metrics())["fyrehose_relay_listeners"] != 2:
        pass  # Each look takes a round trip.
    publish(start, relay, LINES)
    for subscriber in listeners:
        check_received(subscriber, LINES)
    metrics = await relay.metrics()
    assert metrics["fyrehose_client_hears_group"] == 1
    assert metrics["fyrehose_relay_multicast_total"] == (await backbone.metrics())["fyrehose_backbone_multicast_total"]
