"""Services in network namespaces connected by links that lose real packets."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.running.programs import Start
from suite.spaces import PROGRAMS, Space, refusal

pytestmark = pytest.mark.extended

LOSS = 0.05
COUNT = 20_000


class Star:
    """Network namespaces around a router that forwards packets with loss."""

    def __init__(self, start: Start, count: int) -> None:
        self._start = start
        self.middle = Space()
        self.others = [Space() for _ in range(count)]
        self.middle.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for number, other in enumerate(self.others, 1):
            link = f"v{number}"
            self.middle.run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth", "netns", str(other.pid))
            for space, device, address in ((self.middle, link, 1), (other, "eth", 2)):
                space.prepare_device(device, f"10.9.{number}.{address}/24")
            other.run("ip", "route", "add", "default", "via", self.middle_seen_from(other))
            lose = ("-m", "statistic", "--mode", "random", "--probability", str(LOSS), "-j", "DROP")
            other.run("iptables", "-A", "INPUT", "-i", "eth", *lose)

    def middle_seen_from(self, other: Space) -> str:
        return f"10.9.{self.others.index(other) + 1}.1"

    def start_in(self, space: Space, program: str, *arguments: object, **options: Any) -> Any:
        path = Path(sys.executable).with_name(program)
        return self._start(*space.enter, path, *arguments, of_ours=False, **options)

    def close(self) -> None:
        for space in (self.middle, *self.others):
            space.close()


@pytest.fixture
def star(start: Start, program: Callable[[str, str], Path]) -> Iterator[Callable[[int], Star]]:
    for name, package in (*PROGRAMS.items(), ("iptables", "iptables")):
        program(name, package)
    if why := refusal():
        pytest.skip(why)
    stars: list[Star] = []

    def made(count: int) -> Star:
        stars.append(Star(start, count))
        return stars[-1]

    yield made
    for one in stars:
        one.close()


@pytest.mark.parametrize(("retransmit", "given_up"), [(32, 0), (1, 5)], ids=["fast", "slowed down"])
def test_no_message_is_lost_with_5_percent_packet_loss(
    retransmit: int, given_up: int, star: Callable[[int], Star], tmp_path: Path
) -> None:
    """A memory of 1 MiB is passed in some 0.2 s until publishers are slowed down. A number that all three miss at first
    is given up where the answers to its first REQUESTs are lost too, and its line comes under another.
    """
    hosts = star(3)
    backbone = hosts.start_in(
        hosts.middle,
        *("twistd", "-n", "--pidfile=", "fyrehose-backbone", "--interface", "0.0.0.0", "--open", "--settle-time", 0),
        *("--retransmit", retransmit),
        cwd=tmp_path,
        stderr=subprocess.STDOUT,
    )
    backbone.wait_for("listening on")
    publisher, *readers = hosts.others
    subscribers = [
        hosts.start_in(
            one, "fyrehose", "sub", "-b", f"{hosts.middle_seen_from(one)}:2323", "--from", 1, "--count", COUNT
        )
        for one in readers
    ]
    backbone.wait_for("joined", times=len(subscribers))
    lines = [b"%0*d" % (1_000, number) for number in range(COUNT)]
    published = hosts.start_in(publisher, "fyrehose", "pub", "-b", f"{hosts.middle_seen_from(publisher)}:2323")
    assert published.finish(b"\n".join(lines) + b"\n") == 0, published
    for subscriber in subscribers:
        assert subscriber.finish() == 0, subscriber
        assert sorted(subscriber.outputs[1].splitlines()) == lines
        lost = re.findall(r"lost (\d+) to (\d+)", subscriber.err)
        assert sum(int(last) + 1 - int(first) for first, last in lost) <= given_up, subscriber.err
