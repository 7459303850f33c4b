"""Bursts of messages to the group, with and without segmentation offload of UDP."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from parcels.nodes import Unfit

from fyrehose_twisted.fyrehose.wire.codec import encode_push
from multicast.ours import COUNTING_TWISTD, Backbone, BareSubscribers
from multicast.rivals import PUBLISH_PORT, Programs
from multicast.segment import DEVICE, SENDER, SOFTWARE, Segment

UDP_SEGMENT = 103
ON_DEVICE, IN_KERNEL, WITHOUT = "offload to the device", "offload to the kernel", "without"
KINDS = {ON_DEVICE: (DEVICE, "on"), IN_KERNEL: (SOFTWARE, "on"), WITHOUT: (SOFTWARE, "off")}
"""Where bursts are cut into datagrams, and whether the backbone sends bursts."""
BURST = 64
"""Messages of a burst."""
DRAIN = 2.0


class Load(NamedTuple):
    """Load of a measurement.

    :ivar rate: bursts/s.
    """

    rate: float
    seconds: float


class Found(NamedTuple):
    """Result of a measurement.

    :ivar message: microseconds of CPU time of the backbone for each message.
    :ivar calls: calls to send for each message.
    :ivar lost: deliveries that did not arrive.
    """

    message: float
    calls: float
    lost: int


def measure_one(kind: str, subscribers: int, size: int, load: Load, programs: Programs, directory: Path) -> Found:
    """Publish bursts at a rate."""
    cut, offload = KINDS[kind]
    calls = directory / "calls"
    calls.unlink(missing_ok=True)
    with ExitStack() as stack:
        segment = stack.enter_context(Segment(subscribers, cut))
        log = directory / "receivers.log"
        receivers = BareSubscribers(segment, size, programs, log, group=True, backbone=True)
        stack.callback(receivers.stop)
        backbone = Backbone(segment, directory, group=True, twistd=(*COUNTING_TWISTD, str(calls), offload))
        stack.callback(backbone.stop)
        backbone.wait_for("listeners", subscribers)
        publisher = segment.sender.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        stack.callback(publisher.close)
        publisher.connect((SENDER, PUBLISH_PORT))
        push = encode_push(bytes(size))
        control = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", len(push)))]
        warm_up = round(load.rate)
        count = round(load.rate * load.seconds)
        before, cpu, start = receivers.received(), 0.0, time.monotonic()
        for number in range(warm_up + count):
            time.sleep(max(start + number / load.rate - time.monotonic(), 0.0))
            if number == warm_up:
                cpu = backbone.cpu_seconds()
            publisher.sendmsg([push * BURST], control)
        sent = (warm_up + count) * BURST
        lost = sent * subscribers - receivers.wait_for(sent, before, DRAIN)
        used = backbone.cpu_seconds() - cpu
        backbone.stop()
    if not calls.exists():
        raise Unfit("the backbone has not told its calls")
    return Found(used / (count * BURST) * 1e6, int(calls.read_text()) / sent, lost)


def measure(
    directory: Path,
    rounds: int,
    subscribers: int,
    sizes: Sequence[int],
    load: Load,
    programs: Programs,
    progress: Callable[[], object],
) -> Mapping[tuple[int, str], list[Found]]:
    """Return the results of all rounds by size and kind. ``progress`` is called after each measurement."""
    found: dict[tuple[int, str], list[Found]] = {(size, kind): [] for size in sizes for kind in KINDS}
    for number in range(rounds):
        for size, kind in list(found)[:: -1 if number % 2 else 1]:
            found[size, kind].append(measure_one(kind, subscribers, size, load, programs, directory))
            progress()
    return found
