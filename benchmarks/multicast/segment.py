"""A network segment: a bridge and hosts on it, each of them a network namespace of its own.

The namespaces have no names and no processes. They exist while this process has them open, so the kernel removes them
with all their devices even if the benchmark is killed.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import NamedTuple, TypeVar

from multicast.cores import OTHER_CORE, SENDER_CORE

T = TypeVar("T")
GROUP, GROUP_PORT = "239.1.1.1", 2324
CLONE_NEWNET = 0x40000000
SIOCETHTOOL, ETHTOOL_STSO, ETHTOOL_SGRO = 0x8946, 0x1F, 0x2C
PROGRAMS = {
    "ip": "iproute2",
    "nft": "nftables",
    "bridge": "iproute2",
    "ethtool": "ethtool",
    "nsenter": "util-linux",
    "mount": "mount",
}
"""Programs that a segment needs, and their Debian packages."""
SOFTWARE, DEVICE = "software", "device"
"""Where a burst is cut into datagrams: by the kernel in the system call, or by the device of the sender."""
PATIENCE = 120.0
LAST_HOST = 254


class Loss(NamedTuple):
    """Loss of DELIVERs.

    :ivar share: of the packets, from 0 to 1.
    :ivar is_shared: whether a packet is lost for all subscribers, at the sender's port, or for each on its own.
    :ivar min_bytes: shortest UDP datagram, with its header, that may be lost, so that KEEPALIVEs are not.
    """

    share: float
    is_shared: bool
    min_bytes: int


class Namespace:
    """A network namespace that exists while it is open.

    :raises OSError: if this user may not make one.
    """

    def __init__(self) -> None:
        self.fd = -1

        def make() -> int:
            _check(_libc().unshare(CLONE_NEWNET), "unshare")
            return os.open("/proc/thread-self/ns/net", os.O_RDONLY)

        self.fd = in_thread(make)

    @property
    def path(self) -> str:
        """Return a path by which other processes find it."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    @property
    def enter(self) -> tuple[str, ...]:
        """Return the command that runs another one in it."""
        return ("nsenter", f"--net={self.path}")

    def call(self, work: Callable[[], T]) -> T:
        """Return the result of a function that runs in the namespace; sockets that it opens stay there."""

        def run() -> T:
            self.enter_here()
            return work()

        return in_thread(run)

    def enter_here(self) -> None:
        """Let the calling thread enter it and stay."""
        _check(_libc().setns(self.fd, CLONE_NEWNET), "setns")

    def run(self, *command: str, text: str | None = None) -> str:
        """Return the output of a command that runs in the namespace. :raises RuntimeError: if it fails."""
        ran = subprocess.run([*self.enter, *command], capture_output=True, timeout=PATIENCE, input=text, text=True)
        if ran.returncode:
            raise RuntimeError(f"{' '.join(command)[:200]}: {ran.stderr}")
        return ran.stdout

    def close(self) -> None:
        """Close it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Segment:
    """A bridge with the sender, whose device is port 1, and subscribers.

    Packets of the sender are passed on by the core of the subscribers, if there are two: cloning a packet for each
    subscriber is the work of a switch, and the kernel would do it in the time of the sender.

    :param subscribers: number of hosts besides the sender.
    :param cut: :data:`SOFTWARE` or :data:`DEVICE`.
    :param apart: whether to pass packets on by the other core.
    """

    def __init__(self, subscribers: int, cut: str = SOFTWARE, *, apart: bool = True) -> None:
        if not 0 < subscribers < LAST_HOST:
            raise ValueError(f"a segment has 1 to {LAST_HOST - 1} subscribers, not {subscribers}")
        self._opened: list[Namespace] = []
        try:
            self._middle = self._open()
            self.sender, *self.subscribers = (self._open() for _ in range(subscribers + 1))
            self._build()
            self._prepare_offloads(cut)
            if apart:
                self._pass_on_apart()
        except BaseException:
            self.close()
            raise

    def lose(self, loss: Loss | None) -> None:
        """Lose packets of the sender from now on, or none."""
        table = "table bridge loss"
        rules = [f"{table} {{ }}", f"delete {table}", f"{table} {{ }}"]
        if loss is not None and loss.share:
            hook = "prerouting" if loss.is_shared else "forward"
            where = f'iifname "{port(1)}" udp dport != 0 udp length >= {loss.min_bytes}'
            rule = f"{where} numgen random mod 100000 < {round(100_000 * loss.share)} counter drop"
            rules.append(f"{table} {{ chain pass {{ type filter hook {hook} priority 0; {rule}; }}; }}")
        self._middle.run("nft", "-f", "-", text="\n".join(rules) + "\n")

    def lost(self) -> int:
        """Return the number of packets that were lost since the last :meth:`lose`."""
        text = self._middle.run("nft", "list", "table", "bridge", "loss")
        return int(text.partition("counter packets ")[2].split()[0]) if "counter" in text else 0

    def close(self) -> None:
        """Close all namespaces; the kernel removes them when no process has a socket in them."""
        while self._opened:
            self._opened.pop().close()

    def __enter__(self) -> Segment:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self) -> Namespace:
        self._opened.append(Namespace())
        return self._opened[-1]

    def _build(self) -> None:
        hosts = dict(enumerate((self.sender, *self.subscribers), 1))
        lines = ["link add name bridge0 type bridge mcast_snooping 0", "link set bridge0 up"]
        for number, host in hosts.items():
            device = f"peer name eth address {hardware_address(number)} netns {host.path}"
            lines.append(f"link add name {port(number)} type veth {device}")
            lines.append(f"link set {port(number)} master bridge0 up")
        self._middle.call(_disable_ipv6)
        self._middle.run("ip", "-batch", "-", text="\n".join(lines) + "\n")
        entries = (f"fdb add {hardware_address(number)} dev {port(number)} master static" for number in hosts)
        self._middle.run("bridge", "-batch", "-", text="\n".join(entries) + "\n")
        for number, host in hosts.items():
            host.call(_disable_ipv6)
            host.run("ip", "-batch", "-", text="\n".join(_host_lines(number, hosts)) + "\n")
            # With both, a device has a queue of its own. Otherwise all devices of a core share one, which overflows
            # when a datagram arrives for hundreds of them.
            self._middle.call(partial(_set_offload, port(number), ETHTOOL_STSO, 0))
            host.call(partial(_set_offload, "eth", ETHTOOL_SGRO, 1))

    def _prepare_offloads(self, cut: str) -> None:
        # Datagrams of a burst are lost alone, and the sender does the work of a host whose device cannot cut them.
        state = "on" if cut == DEVICE else "off"
        options = ("tx", state, "gso", "on", "tx-udp-segmentation", state)
        self.sender.run("ethtool", "-K", "eth", *options)

    def _pass_on_apart(self) -> None:
        if SENDER_CORE == OTHER_CORE:
            return
        mask = f"{1 << OTHER_CORE:x}"
        script = f"mount -t sysfs sysfs /sys && echo {mask} > /sys/class/net/{port(1)}/queues/rx-0/rps_cpus"
        self._middle.run("unshare", "-m", "--propagation", "private", "sh", "-c", script)


def _host_lines(number: int, hosts: Iterable[int]) -> Iterator[str]:
    yield from ("link set lo up", f"addr add {address(number)}/24 dev eth", "link set eth up")
    yield "route add 224.0.0.0/4 dev eth"
    # No broadcasts: hundreds of hosts that look for one another would overflow queues.
    for other in hosts if number == 1 else (1,):
        if other != number:
            yield f"neigh add {address(other)} lladdr {hardware_address(other)} dev eth nud permanent"


def _set_offload(device: str, command: int, value: int) -> None:
    data = ctypes.create_string_buffer(struct.pack("=II", command, value), 8)
    request = struct.pack("16sP16x", device.encode(), ctypes.addressof(data))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request)


def hardware_address(number: int) -> str:
    """Return the Ethernet address of a host."""
    return f"02:00:0a:01:00:{number:02x}"


def port(number: int) -> str:
    """Return the device of a host at the bridge."""
    return f"port{number}"


def address(number: int) -> str:
    """Return the IPv4 address of a host: 1 is the sender."""
    return f"10.1.0.{number}"


SENDER = address(1)


def join_group(sock: socket.socket, interface: str) -> None:
    """Join the group on an interface."""
    membership = struct.pack("4s4s", socket.inet_aton(GROUP), socket.inet_aton(interface))
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)


def refusal(programs: Iterable[tuple[str, str]] = ()) -> str | None:
    """Return why segments cannot be made, or ``None``."""
    for name, package in (*PROGRAMS.items(), *programs):
        if shutil.which(name) is None:
            return f"{name} is missing: apt install {package}"
    try:
        Namespace().close()
    except OSError as error:
        return f"as user {os.geteuid()}, there are no network namespaces, which need root: {error}"
    return None


def in_thread(work: Callable[[], T]) -> T:
    """Return the result of a function that runs in a thread of its own, which may leave the namespace."""
    results: list[T] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if problems:
        raise problems[0]
    return results[0]


def close_all(sockets: Sequence[socket.socket]) -> None:
    """Close sockets."""
    for each in sockets:
        with suppress(OSError):
            each.close()


def _disable_ipv6() -> None:
    # Hundreds of devices that look for neighbours and routers would disturb the measurement.
    for which in ("default", "all"):
        with suppress(FileNotFoundError), open(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6", "w") as file:
            file.write("1\n")


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
