"""Repairs of lost DELIVERs, with subscribers of the library: of a loss that all share, and of losses of single ones."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from parcels.nodes import Unfit
from relay.subscribers import INDEX, Receipts, SubscriberProcess

from fyrehose_twisted.fyrehose.wire.codec import encode_push
from multicast.ours import Backbone
from multicast.rivals import PUBLISH_PORT
from multicast.segment import SENDER, Loss, Segment

GROUP_SHARED, GROUP_OWN, UNICAST_OWN = "multicast, loss of all", "multicast, own losses", "unicast, own losses"
CASES = (GROUP_SHARED, GROUP_OWN, UNICAST_OWN)
"""How messages are sent, and whether all subscribers lose the same packet."""
COUNTED = ("requests", "retransmitted", "repaired_for_all", "gathered")
"""Metrics of the backbone; older versions lack the last two. What was retransmitted includes repairs for all."""
DRAIN = 10.0
"""Seconds without a receipt after which the rest counts as missing."""
POLL = 0.1


class Size(NamedTuple):
    """Size of a measurement.

    :ivar rate: messages/s.
    :ivar loss: share of lost packets, from 0 to 1.
    """

    subscribers: int
    messages: int
    rate: float
    payload: int
    loss: float


class Found(NamedTuple):
    """Result of a measurement.

    :ivar lost: packets that were dropped, also of repairs. With a shared loss, each was for all subscribers.
    :ivar counters: increases of the metrics :data:`COUNTED`.
    :ivar repaired: messages repaired, counted for each subscriber that had requested them.
    :ivar missing: deliveries that did not arrive.
    :ivar times: seconds from the publication of a message that was repaired for any subscriber to the last receipt.
    """

    lost: int
    counters: dict[str, float]
    repaired: int
    missing: int
    times: list[float]


def measure_one(case: str, size: Size, directory: Path) -> Found:
    """Measure a case."""
    is_group = case != UNICAST_OWN
    with ExitStack() as stack:
        segment = stack.enter_context(Segment(size.subscribers))
        backbone = Backbone(segment, directory, group=is_group)
        stack.callback(backbone.stop)
        places = [f"{SENDER}:{PUBLISH_PORT}"] * size.subscribers
        options = {"multicast": True} if is_group else {}
        process = SubscriberProcess(places, [host.enter_here for host in segment.subscribers], **options)
        stack.callback(process.stop)
        process.wait()
        backbone.wait_for("listeners" if is_group else "subscribers", size.subscribers)
        publisher = segment.sender.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        stack.callback(publisher.close)
        publisher.connect((SENDER, PUBLISH_PORT))
        publisher.send(_push(0, size.payload))
        if _collect(process, {0}, size.subscribers).counts.get(0) != size.subscribers:
            raise Unfit("not all subscribers receive the stream")
        # KEEPALIVEs and their answers are shorter, and are not lost.
        segment.lose(Loss(size.loss, case == GROUP_SHARED, size.payload))
        before = backbone.counters()
        published = _publish(publisher, size)
        found = _collect(process, set(published), size.subscribers)
        after = backbone.counters()
        lost = segment.lost()
    received = sum(found.counts.get(index, 0) for index in published)
    times = [(found.last[index] - published[index]) / 1e9 for index in sorted(found.completed & found.last.keys())]
    return Found(
        lost,
        {name: after.get(name, 0) - before.get(name, 0) for name in COUNTED},
        found.repaired,
        len(published) * size.subscribers - received + found.faults,
        times,
    )


def measure(
    directory: Path, rounds: int, size: Size, cases: tuple[str, ...], progress: Callable[[], object]
) -> Mapping[str, list[Found]]:
    """Return the results of all rounds by case. ``progress`` is called after each measurement."""
    found: dict[str, list[Found]] = {case: [] for case in cases}
    for number in range(rounds):
        for case in cases[:: -1 if number % 2 else 1]:
            found[case].append(measure_one(case, size, directory))
            progress()
    return found


def _push(index: int, payload: int) -> bytes:
    return encode_push(INDEX.pack(index) + bytes(payload - INDEX.size))


def _publish(publisher: socket.socket, size: Size) -> dict[int, int]:
    """Publish single messages, and return their times by index."""
    published: dict[int, int] = {}
    start = time.monotonic()
    for number in range(size.messages):
        time.sleep(max(start + number / size.rate - time.monotonic(), 0.0))
        published[number + 1] = time.monotonic_ns()
        publisher.send(_push(number + 1, size.payload))
    return published


def _collect(process: SubscriberProcess, indexes: set[int], subscribers: int) -> Receipts:
    """Return receipts once all subscribers have all messages, or nothing more comes."""
    found = Receipts()
    changed, seen = time.monotonic(), -1
    while True:
        found.merge(process.report())
        now = sum(found.counts.get(index, 0) for index in indexes)
        if now != seen:
            changed, seen = time.monotonic(), now
        if now >= len(indexes) * subscribers or time.monotonic() > changed + DRAIN:
            return found
        time.sleep(POLL)
