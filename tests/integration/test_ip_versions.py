"""Clients with IPv4 only, IPv6 only or both on one backbone: on loopback, and in network namespaces with real loss."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.running.programs import AwaitTrue, Program, Start
from suite.spaces import PROGRAMS, Space, refusal

LOSS = 0.05
COUNT = 3_000
GIVEN_UP = 5
"""Numbers that all clients may miss at once. Their lines come again under others, because publishers repeat them."""
BACKBONE = ("twistd", "-n", "--pidfile=", "fyrehose-backbone", "--settle-time", 0)
READ_METRICS = "from urllib.request import urlopen; print(urlopen('http://127.0.0.1:9100/metrics').read().decode())"


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this host has no IPv6 loopback address")


@needs_ipv6
@pytest.mark.parametrize(("interface", "hosts"), [("::1", ["[::1]"]), ("::", ["[::1]", "127.0.0.1"])])
@pytest.mark.parametrize("secret", [False, True])
def test_clients_publish_and_subscribe_over_ipv6(
    interface: str, hosts: list[str], secret: bool, start: Start, tmp_path: Path
) -> None:
    access = ["--open"] if interface == "::" and not secret else []
    given: list[str] = []
    if secret:
        (tmp_path / "secret").write_text("a secret of some length\n")
        (tmp_path / "secret").chmod(0o600)
        given = ["--secret-file", "secret"]
    escaped = interface.replace(":", "\\:")
    backbone = start(*BACKBONE, f"--listen=udp:0:interface={escaped}", *access, *given, cwd=tmp_path)
    port = backbone.wait_for(r"listening on \[::1?\]:(\d+), the next number is 1")[1]
    readers = [
        start("fyrehose", "sub", "-b", f"{host}:{port}", "--count", 2 * len(hosts), *given, cwd=tmp_path)
        for host in hosts
    ]
    backbone.wait_for("joined", times=len(hosts))
    for host in hosts:
        published = start("fyrehose", "pub", "-b", f"{host}:{port}", *given, cwd=tmp_path)
        assert published.finish(f"over\n{host}\n".encode()) == 0, published
    for reader in readers:
        assert reader.finish() == 0, reader
        assert reader.out.split() == [word for host in hosts for word in ("over", host)]
    known = set(re.findall(r"client (\S+):\d+ joined", backbone.out))
    assert known == set(hosts), "IPv4 addresses are shown as such"


class Star:
    """Network namespaces around one that forwards packets. Each has its IP versions only, and loses packets."""

    def __init__(self, start: Start, versions: list[tuple[int, ...]]) -> None:
        self._start = start
        self.middle = Space()
        self.others = [Space() for _ in versions]
        self.middle.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        for space in (self.middle, *self.others):  # Otherwise addresses are not used for a second or two.
            space.run("sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
        for number, (other, own) in enumerate(zip(self.others, versions, strict=True), 1):
            link = f"v{number}"
            self.middle.run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth", "netns", str(other.pid))
            for space, device, last in ((self.middle, link, 1), (other, "eth", 2)):
                for version in own:
                    address = f"10.9.{number}.{last}/24" if version == 4 else f"fd00:9:{number}::{last}/64"
                    space.run("ip", "addr", "add", address, "dev", device)
                space.prepare_device(device)
            for version in own:
                via = f"10.9.{number}.1" if version == 4 else f"fd00:9:{number}::1"
                other.run("ip", f"-{version}", "route", "add", "default", "via", via)
                lose = ("-m", "statistic", "--mode", "random", "--probability", str(LOSS), "-j", "DROP")
                tables = "iptables" if version == 4 else "ip6tables"
                other.run(tables, "-A", "INPUT", "-i", "eth", "-p", "udp", *lose)

    def start_in(self, space: Space, program: str, *arguments: object, **options: Any) -> Program:
        path = Path(sys.executable).with_name(program)
        return self._start(*space.enter, path, *arguments, of_ours=False, **options)

    def close(self) -> None:
        for space in (self.middle, *self.others):
            space.close()


@pytest.fixture
def star(start: Start, program: Callable[[str, str], Path]) -> Iterator[Callable[[list[tuple[int, ...]]], Star]]:
    more = {"iptables": "iptables", "ip6tables": "iptables", "sysctl": "procps"}
    for name, package in (*PROGRAMS.items(), *more.items()):
        program(name, package)
    if why := refusal():
        pytest.skip(why)
    if not has_ipv6():
        pytest.skip("this host has no IPv6")
    stars: list[Star] = []

    def made(versions: list[tuple[int, ...]]) -> Star:
        stars.append(Star(start, versions))
        return stars[-1]

    yield made
    for one in stars:
        one.close()


@pytest.mark.extended
@pytest.mark.parametrize(
    "versions",
    [[(4,), (4,), (6,)], [(6,), (6,), (4,)], [(4, 6), (4, 6), (6,)]],
    ids=["two with IPv4", "two with IPv6", "two with both"],
)
def test_no_message_is_lost_between_clients_of_different_ip_versions(
    versions: list[tuple[int, ...]], star: Callable[[list[tuple[int, ...]]], Star], tmp_path: Path
) -> None:
    """The backbone has no memory, so each repair is from a client: directly, or fetched by the backbone."""
    hosts = star(versions)
    options = ("--interface", "::", "--open", "--retransmit", 0, "--metrics", "tcp:9100")
    backbone = hosts.start_in(hosts.middle, *BACKBONE, *options, cwd=tmp_path, stderr=subprocess.STDOUT)
    backbone.wait_for("listening on")

    def place(number: int) -> str:
        return f"10.9.{number}.1:2323" if 4 in versions[number - 1] else f"[fd00:9:{number}::1]:2323"

    subscribers = [
        hosts.start_in(hosts.others[number - 1], "fyrehose", "sub", "-b", place(number), "--from", 1, "--count", COUNT)
        for number in (2, 3)
    ]
    backbone.wait_for("joined", times=2)
    lines = [b"%0*d" % (200, number) for number in range(COUNT)]
    published = hosts.start_in(hosts.others[0], "fyrehose", "pub", "-b", place(1))
    assert published.finish(b"\n".join(lines) + b"\n") == 0, published
    for subscriber in subscribers:
        assert subscriber.finish() == 0, subscriber
        assert sorted(subscriber.outputs[1].splitlines()) == lines
        lost = re.findall(r"lost (\d+) to (\d+)", subscriber.err)
        assert sum(int(last) + 1 - int(first) for first, last in lost) <= GIVEN_UP, subscriber.err
    page = hosts.middle.run(sys.executable, "-c", READ_METRICS)
    figures = {name: float(value) for name, value in re.findall(r"^fyrehose_backbone_(\w+) (\S+)$", page, re.MULTILINE)}
    assert figures["routed_total"] > 0, page
    # Also with both: a client with IPv6 only cannot send to one that the backbone knows by its IPv4 address.
    assert figures["fetched_total"] > 0, page


@pytest.mark.extended
def test_a_subscriber_at_a_link_local_address_is_served_and_repaired(
    star: Callable[[list[tuple[int, ...]]], Star], await_true: AwaitTrue, tmp_path: Path
) -> None:
    hosts = star([()])
    (other,) = hosts.others

    def addresses() -> str:
        return other.run("ip", "-6", "addr", "show", "dev", "eth", "scope", "link")

    # The kernel gives a device its address a moment after it is up.
    await_true(lambda: "fe80" in addresses() and "tentative" not in addresses(), addresses)
    lose = ("-m", "statistic", "--mode", "random", "--probability", str(LOSS), "-j", "DROP")
    other.run("ip6tables", "-A", "INPUT", "-i", "eth", "-p", "udp", *lose)
    options = ("--interface", "::", "--open")
    backbone = hosts.start_in(hosts.middle, *BACKBONE, *options, cwd=tmp_path, stderr=subprocess.STDOUT)
    backbone.wait_for("listening on")
    found = re.search(r"fe80::[0-9a-f:]+", hosts.middle.run("ip", "-6", "addr", "show", "dev", "v1"))
    assert found is not None, "each device has such an address"
    place = f"[{found[0]}%eth]:2323"
    subscriber = hosts.start_in(other, "fyrehose", "sub", "-b", place, "--from", 1, "--count", COUNT)
    backbone.wait_for(r"client \[fe80::[0-9a-f:]+%v1\]:\d+ joined")
    lines = [b"%d" % number for number in range(COUNT)]
    published = hosts.start_in(hosts.middle, "fyrehose", "pub", "-b", "[::1]:2323")
    assert published.finish(b"\n".join(lines) + b"\n") == 0, published
    assert subscriber.finish() == 0, subscriber
    assert subscriber.outputs[1].splitlines() == lines
    assert "lost" not in subscriber.err
