"""A backbone in a segment, and subscribers that are sockets without a client behind them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from parcels.nodes import Unfit
from race.servers import cpu_seconds

from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.packets import Flags, Keepalive
from multicast.cores import prepare_sender
from multicast.rivals import PUBLISH_PORT, Programs, Receivers
from multicast.segment import GROUP, GROUP_PORT, SENDER, Segment, address, close_all, join_group

MULTICAST, UNICAST = "multicast", "unicast"
METRICS_PORT = 9100
KEEPALIVE_INTERVAL = 1.0
KERNEL_BUFFER = 2**20
PATIENCE = 30.0
TWISTD = (str(Path(sys.executable).parent / "twistd"),)
COUNTING_TWISTD = (sys.executable, str(Path(__file__).parent / "counting_twistd.py"))


def is_there() -> bool:
    """Return whether this version of the library has multicast."""
    return hasattr(Flags, "HEARS")


class Backbone:
    """A running backbone with a state file of its own.

    :param group: whether it sends to the group.
    :param twistd: command.
    :raises Unfit: if it does not start.
    """

    def __init__(self, segment: Segment, directory: Path, *, group: bool, twistd: Sequence[str] = TWISTD) -> None:
        self._segment = segment
        self._log = directory / "backbone.log"
        state = directory / f"state.{time.monotonic_ns()}"
        command = [*segment.sender.enter, *twistd, "-n", "--pidfile=", "fyrehose-backbone", f"--state={state}"]
        command += [f"--listen=udp:{PUBLISH_PORT}:interface={SENDER}", "--open", "--start-at=1", "--settle-time=0"]
        command += [f"--metrics=tcp:{METRICS_PORT}", "--max-clients=1024", "--max-per-host=64"]
        if group:
            command.append(f"--multicast={GROUP}:{GROUP_PORT}")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, preexec_fn=prepare_sender, env=environment
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process."""
        return cpu_seconds(self._process.pid)

    def counters(self) -> dict[str, float]:
        """Return its metrics that have no labels, without prefix and suffix."""
        text = self._segment.sender.call(_read_metrics)
        found: dict[str, float] = {}
        for line in text.splitlines():
            name, _, value = line.rpartition(" ")
            if name.startswith("fyrehose_backbone_") and "{" not in name:
                found[name.removeprefix("fyrehose_backbone_").removesuffix("_total")] = float(value)
        return found

    def wait_for(self, metric: str, value: int) -> None:
        """Wait until a metric has at least a value. :raises Unfit: if it does not reach it."""
        end = time.monotonic() + PATIENCE
        while (now := self.counters().get(metric, 0)) < value:
            if time.monotonic() > end:
                raise Unfit(f"{metric} is {now:g} and not {value}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop it."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            if self._process.poll() is not None or time.monotonic() > end:
                raise Unfit(f"the backbone does not run: {self._log.read_text()[-1_000:]}")
            try:
                self.counters()
                return
            except OSError:
                time.sleep(0.05)


class BareSubscribers:
    """Sockets that keep themselves alive at a backbone, if there is one, and are read by receivers in C.

    :param group: whether each host listens to the group.
    :param backbone: whether to send KEEPALIVEs.
    """

    def __init__(
        self, segment: Segment, min_bytes: int, programs: Programs, log: Path, *, group: bool, backbone: bool
    ) -> None:
        self._own: list[socket.socket] = []
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        members: list[socket.socket] = []
        try:
            for number, host in enumerate(segment.subscribers, 2):
                if group:
                    members.append(host.call(partial(_member, address(number))))
                # Those of a sender without a backbone are sent to at the port of the group.
                port = 0 if backbone else GROUP_PORT
                if backbone or not group:
                    self._own.append(host.call(partial(_bound, (address(number), port))))
            descriptors = [each.fileno() for each in (*self._own, *members)]
            self._receivers = Receivers(
                ["udp", str(min_bytes), str(len(segment.subscribers))], descriptors, programs, log
            )
        except BaseException:
            close_all(self._own)
            raise
        finally:
            close_all(members)
        self.received, self.wait_for = self._receivers.received, self._receivers.wait_for
        if backbone:
            flags = Flags.NOJOURNAL | (Flags.MULTICAST | Flags.HEARS if group else 0)
            self._keepalive = encode(Keepalive(flags=flags))
            self._thread = threading.Thread(target=self._keep_alive)
            self._thread.start()

    def stop(self) -> None:
        """Stop receivers, and close all sockets."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._receivers.stop()
        close_all(self._own)

    def _keep_alive(self) -> None:
        interval, start, count = KEEPALIVE_INTERVAL / len(self._own), time.monotonic(), 0
        while not self._ended.wait(max(start + count * interval - time.monotonic(), 0.0)):
            self._own[count % len(self._own)].sendto(self._keepalive, (SENDER, PUBLISH_PORT))
            count += 1


def _member(here: str) -> socket.socket:
    sock = _bound((GROUP, GROUP_PORT))
    join_group(sock, here)
    return sock


def _bound(place: tuple[str, int]) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
    sock.bind(place)
    return sock


def _read_metrics() -> str:
    with socket.create_connection(("127.0.0.1", METRICS_PORT), timeout=PATIENCE) as connection:
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        parts = []
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts).decode()
