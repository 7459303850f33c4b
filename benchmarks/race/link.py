"""Two network namespaces joined by a link on which a packet is a packet, and that loses some of them."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from race.servers import Missing, program

PACKAGES = {"unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2", "ethtool": "ethtool", "nft": "nftables"}
"""Programs that a link needs, and their Debian packages."""
OFFLOADS = ("tx", "off", "tso", "off", "gso", "off", "gro", "off", "tx-udp-segmentation", "off")
DEVICE = "link0"
CLONE_NEWNET = 0x40000000
LOSSES = """
table inet losses
delete table inet losses
table inet losses {{
    chain arrivals {{
        type filter hook prerouting priority -300; policy accept;
        iif "{device}" numgen random mod 100000 < {share} drop
    }}
}}
"""


class Space:
    """A network namespace that lives as long as its holder process.

    :ivar enter: the command that runs another one in the namespace.
    """

    def __init__(self) -> None:
        command = ("unshare", "-n", "sh", "-c", "ip link set lo up && echo up && exec cat")
        self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self._holder.stdout is not None
        assert self._holder.stderr is not None
        if self._holder.stdout.readline() != b"up\n":
            raise Missing(f"no network namespaces, which need root: {self._holder.stderr.read().decode().strip()}")
        self.pid = self._holder.pid
        self.enter = ("nsenter", "-t", str(self.pid), "-n")

    def run(self, *command: str, text: str | None = None) -> None:
        """Run a command in the namespace."""
        ran = subprocess.run([*self.enter, *command], capture_output=True, input=text, text=True)
        if ran.returncode:
            raise Missing(f"{' '.join(command)}: {ran.stderr.strip()}")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Put this thread, and the processes that it starts, into the namespace."""
        with open("/proc/self/ns/net") as before, open(f"/proc/{self.pid}/ns/net") as namespace:
            _set_namespace(namespace)
            try:
                yield
            finally:
                _set_namespace(before)

    def close(self) -> None:
        """End the holder. The namespace ends with the last process in it."""
        self._holder.kill()
        self._holder.communicate()


class Link:
    """A network namespace for brokers, and one for their clients, joined by virtual Ethernet.

    :param offload: leave segmentation offload on, so that many datagrams are one packet.
    """

    def __init__(self, *, offload: bool = False) -> None:
        for name, package in PACKAGES.items():
            program(name, package)
        self.brokers, self.clients = Space(), Space()
        ends = ("name", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", str(self.clients.pid))
        self.brokers.run("ip", "link", "add", *ends)
        self.host = "10.98.0.1"
        for space, address in ((self.brokers, self.host), (self.clients, "10.98.0.2")):
            space.run("ip", "addr", "add", f"{address}/24", "dev", DEVICE)
            space.run("ip", "link", "set", DEVICE, "up")
            if not offload:
                space.run("ethtool", "-K", DEVICE, *OFFLOADS)

    def lose(self, share: float) -> None:
        """Lose a share of the packets that arrive at either end."""
        for space in (self.brokers, self.clients):
            space.run("nft", "-f", "-", text=LOSSES.format(device=DEVICE, share=round(share * 100_000)))

    def close(self) -> None:
        """Remove the namespaces."""
        self.brokers.close()
        self.clients.close()


def _set_namespace(namespace: Any) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
