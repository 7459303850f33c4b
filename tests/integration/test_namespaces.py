"""Services in network namespaces, between which real packets get lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.extended

LOSS = 0.05
COUNT = 20_000
OFFLOADS = ("tx", "off", "gso", "off", "gro", "off", "tx-udp-segmentation", "off")
"""Without these each datagram is a packet of its own, and gets lost alone."""


class Space:
    """A network namespace that lives as long as its holder."""

    def __init__(self, start: Any) -> None:
        self._start = start
        self._holder = start("unshare", "-n", "sh", "-c", "ip link set lo up && echo up && exec cat", of_ours=False)
        self._holder.wait_for("up")
        self.pid = self._holder.process.pid
        self._enter = ("nsenter", "-t", str(self.pid), "-n")

    def run(self, *command: str) -> None:
        subprocess.run([*self._enter, *command], check=True, capture_output=True, timeout=120)

    def start(self, program: str, *arguments: object, **options: Any) -> Any:
        path = Path(sys.executable).with_name(program)
        return self._start(*self._enter, path, *arguments, of_ours=False, **options)


class Star:
    """Namespaces around one in the middle, which passes packets on. Into each of the others some get lost."""

    def __init__(self, start: Any, count: int) -> None:
        self.middle = Space(start)
        self.middle.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        self.others = [Space(start) for _ in range(count)]
        for number, other in enumerate(self.others, 1):
            link = f"v{number}"
            self.middle.run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth", "netns", str(other.pid))
            for space, device, address in ((self.middle, link, 1), (other, "eth", 2)):
                space.run("ip", "addr", "add", f"10.9.{number}.{address}/24", "dev", device)
                space.run("ip", "link", "set", device, "up")
                space.run("ethtool", "-K", device, *OFFLOADS)
            other.run("ip", "route", "add", "default", "via", self.middle_seen_from(other))
            lose = ("-m", "statistic", "--mode", "random", "--probability", str(LOSS), "-j", "DROP")
            other.run("iptables", "-A", "INPUT", "-i", "eth", *lose)

    def middle_seen_from(self, other: Space) -> str:
        return f"10.9.{self.others.index(other) + 1}.1"


@pytest.fixture
def star(start: Any, program: Callable[[str, str], Path]) -> Callable[[int], Star]:
    for name, package in (("unshare", "util-linux"), ("nsenter", "util-linux"), ("ip", "iproute2")):
        program(name, package)
    for name in ("ethtool", "iptables"):
        program(name, name)
    tried = subprocess.run(["unshare", "-n", "true"], capture_output=True, text=True, timeout=120)
    if tried.returncode:
        pytest.skip(f"as user {os.geteuid()}, there are no network namespaces, which need root: {tried.stderr.strip()}")
    return lambda count: Star(start, count)


@pytest.mark.parametrize("retransmit", [32, 1], ids=["fast", "slowed down"])
def test_nothing_is_lost_where_one_packet_in_twenty_is(
    retransmit: int, star: Callable[[int], Star], tmp_path: Path
) -> None:
    hosts = star(3)
    backbone = hosts.middle.start(
        *("twistd", "-n", "--pidfile=", "fyrehose-backbone", "--interface", "0.0.0.0", "--open", "--settle-time", 0),
        *("--retransmit", retransmit),
        cwd=tmp_path,
        stderr=subprocess.STDOUT,
    )
    backbone.wait_for("listening on")
    publisher, *readers = hosts.others
    subscribers = [
        one.start("fyrehose", "sub", "-b", f"{hosts.middle_seen_from(one)}:2323", "--from", 1, "--count", COUNT)
        for one in readers
    ]
    backbone.wait_for("joined", times=len(subscribers))
    lines = [b"%0*d" % (1_000, number) for number in range(COUNT)]
    published = publisher.start("fyrehose", "pub", "-b", f"{hosts.middle_seen_from(publisher)}:2323")
    assert published.finish(b"\n".join(lines) + b"\n") == 0, published
    for subscriber in subscribers:
        assert subscriber.finish() == 0, subscriber
        assert sorted(subscriber.outputs[1].splitlines()) == lines
        assert "lost" not in subscriber.err
