"""Multicast on several hosts: a group that reaches some, falls silent for one, and losses that many share."""

from __future__ import annotations

import re
from threading import Event
from time import monotonic

import pytest
from hosts.bridge import STARTED, Bridge, Deadline, Host, Process

GROUP = "239.1.1.1"
COUNT = 3_000
LINES = b"".join(b"message %d\n" % number for number in range(COUNT))
COUNTING = """
table ip counting {
    chain out {
        type filter hook output priority 0;
        ip daddr 239.1.1.1 ip ttl 1 counter name group
        ip daddr 239.1.1.1 ip ttl != 1 counter name routed
        udp sport 2323 udp length > 60 ip daddr != 239.1.1.1 counter name alone
    }
    counter group { }
    counter routed { }
    counter alone { }
}
"""

SHARED_LOSS = """
table bridge shared {
    chain pass {
        type filter hook prerouting priority 0;
        iifname "port2" %s drop
    }
}
"""


class Segment:
    """A backbone with a group, and subscribers that want to listen to it, each on a host of its own."""

    def __init__(self, bridge: Bridge, listeners: int) -> None:
        self.backbone = bridge.add("backbone")
        self.hosts = [bridge.add(f"listener{number}") for number in range(listeners)]
        self.backbone.space.run("nft", "-f", "-", text=COUNTING)
        options = ("--state=stream.state", "--settle-time=0", "--allow=10.9.0.0/24", "--metrics=tcp:9100")
        group = (f"--interface={self.backbone.address}", f"--multicast={GROUP}:2324")
        self.backbone.start(
            *("twistd", "-n", "--pidfile=", "fyrehose-backbone", *options, *group), log="backbone"
        ).wait_for("metrics at")

    def subscribe(self, host: Host) -> Process:
        # A live subscriber would begin with the second message if it lost the first.
        options = ("--multicast", "--from=1")
        program = host.start("fyrehose", "sub", f"--backbone={self.backbone.address}:2323", *options, log="sub")
        self.backbone.processes[0].wait_for(rf"client {re.escape(host.address)}:\d+ joined")
        return program

    def publish(self, lines: bytes) -> None:
        publisher = self.backbone.start(
            *("fyrehose", "pub", f"--backbone={self.backbone.address}:2323"), log="publisher"
        )
        publisher.input.write(lines)
        assert publisher.finish(120) == 0, publisher.output

    def metric(self, name: str) -> int:
        page = self.backbone.space.run("curl", "--silent", "http://127.0.0.1:9100/metrics")
        found = re.search(rf"^fyrehose_backbone_{name}(?:_total)? (\S+)$", page, re.MULTILINE)
        assert found, page
        return int(float(found[1]))

    def wait_for_listeners(self, count: int) -> None:
        """Wait until so many clients hear the group."""
        until = monotonic() + STARTED
        while self.metric("listeners") != count:
            if monotonic() > until:
                raise Deadline(f"{self.metric('listeners')} clients hear the group, and not {count}")
            Event().wait(0.1)

    def sent_bytes(self, counter: str) -> int:
        shown = self.backbone.space.run("nft", "list", "counter", "ip", "counting", counter)
        found = re.search(r"bytes (\d+)", shown)
        assert found, shown
        return int(found[1])


def wait_for_all(subscribers: list[Process], lines: bytes) -> None:
    for subscriber in subscribers:
        subscriber.wait_for(rf"(?:[^\n]*\n){{{lines.count(bytes([10]))}}}", 60)
        messages = [line for line in subscriber.output.splitlines() if not line.startswith("fyrehose:")]
        assert sorted(messages) == sorted(lines.decode().splitlines())


@pytest.mark.extended
def test_the_group_serves_those_whom_it_reaches_and_a_silent_one_is_left(bridge: Bridge) -> None:
    segment = Segment(bridge, 4)
    bridge.drop_groups("listener3")
    subscribers = [segment.subscribe(host) for host in segment.hosts]
    segment.wait_for_listeners(3)
    assert segment.metric("subscribers") == 4
    segment.publish(LINES)
    wait_for_all(subscribers, LINES)
    assert segment.metric("multicast") == COUNT
    assert segment.sent_bytes("group") > len(LINES)
    assert segment.sent_bytes("routed") == 0, "with a time to live above 1"
    # One subscriber and the publisher are served one by one.
    assert segment.sent_bytes("alone") < 3 * segment.sent_bytes("group")
    subscribers[3].wait_for("nothing comes by multicast group 239.1.1.1:2324")
    bridge.drop_groups("listener2", "listener3")
    segment.publish(LINES)
    wait_for_all(subscribers, 2 * LINES)
    segment.wait_for_listeners(2)
    subscribers[2].wait_for("nothing comes by multicast group 239.1.1.1:2324")
    bridge.drop_groups()
    segment.wait_for_listeners(4)
    segment.publish(LINES)
    wait_for_all(subscribers, 3 * LINES)


@pytest.mark.extended
def test_losses_that_all_share_are_repaired_for_all(bridge: Bridge) -> None:
    segment = Segment(bridge, 4)
    subscribers = [segment.subscribe(host) for host in segment.hosts]
    segment.wait_for_listeners(4)
    # What is dropped here is missing at all hosts.
    share = f"ip daddr {GROUP} numgen random mod 100 < 3"
    bridge.middle.run("nft", "-f", "-", text=SHARED_LOSS % share)
    segment.publish(LINES)
    wait_for_all(subscribers, LINES)
    lost = segment.metric("repaired_for_all")
    assert 0 < lost < COUNT / 10
    for subscriber in subscribers:
        assert "lost" not in subscriber.output.replace("message", "")
