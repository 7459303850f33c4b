"""Network namespaces, for tests on links that lose real packets."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path

PROGRAMS = {"unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2", "ethtool": "ethtool", "mount": "mount"}
"""Programs that :class:`Space` and :func:`prepare_device` run, and their Debian packages."""
OFFLOADS = ("tx", "off", "gso", "off", "gro", "off", "tx-udp-segmentation", "off")
"""Offloads to disable, so that each datagram is a packet of its own and is lost alone."""
CLONE_NEWNET = 0x40000000


class Space:
    """A network namespace that lives as long as its holder process, which has a mount namespace of its own, too.

    :ivar enter: the command that runs another one in the network namespace.
    """

    def __init__(self) -> None:
        spaces = ("unshare", "-n", "-m", "--propagation", "private")
        command = (*spaces, "sh", "-c", "ip link set lo up && echo up && exec cat")
        self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"up\n":
            raise RuntimeError("a network namespace could not be made")
        self.pid = self._holder.pid
        self.enter = ("nsenter", "-t", str(self.pid), "-n")

    def run(self, *command: str, text: str | None = None) -> str:
        """Run a command in the namespace and return its output.

        :raises RuntimeError: if it fails.
        """
        ran = subprocess.run([*self.enter, *command], capture_output=True, timeout=120, input=text, text=True)
        if ran.returncode:
            raise RuntimeError(f"{' '.join(command)}: {ran.stderr}")
        return ran.stdout

    def prepare_device(self, device: str, address: str | None = None) -> None:
        """Bring a device up with its offloads off, and give it an address with a prefix length."""
        if address is not None:
            self.run("ip", "addr", "add", address, "dev", device)
        self.run("ip", "link", "set", device, "up")
        self.run("ethtool", "-K", device, *OFFLOADS)

    def mount_disk(self, mount_point: Path, size: int) -> Path:
        """Mount a file system in memory for the holder alone; return where every other process finds it.

        :param size: bytes.
        """
        mount_point.mkdir()
        options = ("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mount_point))
        subprocess.run(["nsenter", "-t", str(self.pid), "-m", "mount", *options], check=True, timeout=120)
        return Path(f"/proc/{self.pid}/root{mount_point}")

    def connect(self, address: tuple[str, int], timeout: float) -> socket.socket:
        """Return a TCP socket that was connected from within the namespace.

        :raises OSError: if it is not entered or the connection fails.
        """
        connected: list[socket.socket] = []
        problems: list[OSError] = []

        def connect() -> None:
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                with open(f"/proc/{self.pid}/ns/net") as namespace:
                    if libc.setns(namespace.fileno(), CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), "setns")
                connected.append(socket.create_connection(address, timeout))
            except OSError as problem:
                problems.append(problem)

        thread = threading.Thread(target=connect)  # A thread enters a namespace, not a process.
        thread.start()
        thread.join()
        if problems:
            raise problems[0]
        return connected[0]

    def close(self) -> None:
        """End the holder. The namespace ends with the last process in it."""
        self._holder.kill()
        self._holder.wait()
        for stream in (self._holder.stdin, self._holder.stdout):
            if stream is not None:
                stream.close()


def missing_program(*more: tuple[str, str]) -> str | None:
    """Return which program is not installed, as an error message, or ``None``.

    :param more: further programs with their Debian packages.
    """
    for name, package in (*PROGRAMS.items(), *more):
        if shutil.which(name) is None:
            return f"{name} is missing: apt install {package}"
    return None


def refusal() -> str | None:
    """Return why network namespaces cannot be made, or ``None``."""
    tried = subprocess.run(["unshare", "-n", "-m", "true"], capture_output=True, text=True, timeout=120)
    if tried.returncode:
        return f"as user {os.geteuid()}, there are no network namespaces, which need root: {tried.stderr.strip()}"
    return None
