"""Rules that say whether a service or a journal is OK, wants attention or is down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fyrehose_twisted.query.monitoring.figures import Figures, chosen, durable_journals, label, samples, total
from fyrehose_twisted.query.monitoring.findings import ATTENTION, DOWN, Finding
from fyrehose_twisted.wording import counted

BEHIND = 10_000
"""Messages by which a journal or client may be behind, and those of :data:`SKEW` seconds."""
SKEW = 5.0
"""Seconds between the scrapes of two services, at most."""
LASTING = 60.0
"""Seconds after which what comes and goes in normal life is a finding."""
SETTLING = 15.0
"""Seconds that a restart or an election may take."""

NORMAL = frozenset(
    {"held_already", "stopped", "buffer_full"}
    | {f"forward_{reason}" for reason in ("not_held", "unwanted", "requesters", "queue")}
)
"""Reasons for which packets are dropped in normal life."""

Newest = Mapping[str, tuple[float, float]]
"""The highest number of each stream that any service knows of, and how many come a second."""


def newest_of(services: Iterable[Figures], streams: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Return the highest number and the rate of each stream.

    :param streams: the journals of the directory, as the overview describes them.
    """
    found: dict[str, tuple[float, float]] = {}

    def note(stream: str, number: float, rate: float) -> None:
        before = found.get(stream, (0.0, 0.0))
        found[stream] = max(before[0], number), max(before[1], rate)

    for one in services:
        if one.kind == "backbone":
            sequence = total(one.metrics, "backbone_sequence")
            if sequence is not None:
                note(label(one.metrics, "stream"), sequence, one.rate("backbone_published_total"))
        for labels, last in samples(one.metrics, "journal_last"):
            if _one_epoch(labels.get("stream", "")):
                note(labels["stream"], last, one.rate("journal_taken_total"))
    for stream in streams:
        if _one_epoch(stream["stream"]) and stream["epochs"]:
            note(stream["stream"], stream["epochs"][-1]["last"], stream.get("rate") or 0.0)
    return found


def _one_epoch(stream: str) -> bool:
    """Return whether the numbers of a stream never begin anew, so that two of them can be compared."""
    return stream.startswith(("fyrehose://", "parcels://"))


def behind(one: Figures, newest: Newest) -> tuple[float, float] | None:
    """Return by how many messages a service is behind, and from how many on that is too much; ``None`` if unknown."""
    found = []
    for labels, value in samples(one.metrics, "journal_next"):
        if labels.get("stream") in newest:
            found.append((labels["stream"], value - 1))
    handed_over = total(one.metrics, "client_sequence")
    if one.kind == "client" and handed_over is not None:
        own = label(one.metrics, "stream")
        streams = [own] if own in newest else [stream for stream in newest if stream.startswith("fyrehose://")]
        if len(streams) == 1:
            found.append((streams[0], handed_over))
    lags = [(max(0.0, newest[stream][0] - number), BEHIND + SKEW * newest[stream][1]) for stream, number in found]
    return max(lags, key=lambda lag: lag[0] - lag[1], default=None)


def _late(subject: str, lag: tuple[float, float] | None) -> Iterator[Finding]:
    if lag is not None and lag[0] > lag[1]:
        yield Finding(subject, ATTENTION, "behind", f"{lag[0]:,.0f} messages behind", SETTLING)


def _lost(subject: str, lost: float) -> Iterator[Finding]:
    if lost:
        yield Finding(subject, ATTENTION, "lost", f"{counted(int(lost), 'message')} lost for good")


def room(subject: str, free: float | None, least: int) -> Iterator[Finding]:
    """Yield a finding if a disk has less than ``least`` bytes free."""
    if free is not None and free < least:
        yield Finding(subject, ATTENTION, "disk", f"its disk has {free / 2**20:,.0f} MiB left")


def _grown(one: Figures, name: str, noun: str, what: str, *without: str) -> Iterator[Finding]:
    lately = one.lately(name, frozenset(without))
    if lately:
        parts = ", ".join(label for label in sorted(lately, key=lambda label: -lately[label])[:3] if label)
        text = f"{counted(int(sum(lately.values())), noun)} {what} in 5 min" + (f" ({parts})" if parts else "")
        yield Finding(one.seen.name, ATTENTION, name, text)


def _backbone(one: Figures, newest: Newest) -> Iterator[Finding]:
    journals = durable_journals(one.metrics)
    if journals is not None and journals < 2:
        text = "only one durable journal" if journals else "no durable journal"
        yield Finding(one.seen.name, ATTENTION, "journals", text, SETTLING)
    yield from _grown(one, "backbone_dropped_total", "packet", "dropped", *NORMAL)
    yield from _grown(one, "backbone_send_errors_total", "datagram", "not sent")


def _client(one: Figures, newest: Newest) -> Iterator[Finding]:
    name = one.seen.name
    if total(one.metrics, "client_connected") == 0:
        yield Finding(name, ATTENTION, "connected", "its backbone does not answer")
    missing = total(one.metrics, "client_missing")
    if missing:
        yield Finding(name, ATTENTION, "missing", f"{counted(int(missing), 'message')} missing for a minute", LASTING)
    yield from _lost(name, one.lost)
    yield from _late(name, behind(one, newest))
    yield from _grown(one, "client_dropped_total", "packet", "dropped", *NORMAL)
    yield from _grown(one, "client_send_errors_total", "datagram", "not sent")
    yield from _grown(one, "client_publish_failed_total", "message", "not published")
    yield from _grown(one, "journal_conflicts_total", "message", "in conflict")
    if total(one.metrics, "journal_damaged_segments"):
        yield Finding(name, ATTENTION, "damaged", "segments of its journal are damaged")


def _parcels(one: Figures, newest: Newest) -> Iterator[Finding]:
    mode = chosen(one.metrics, "parcels_mode", "mode")
    if mode != "Wrk":
        yield Finding(one.seen.name, ATTENTION, "mode", f"orders nothing: it is in mode {mode or 'unknown'}", SETTLING)
    yield from _grown(one, "parcels_skipped_total", "event", "lost")
    yield from _grown(one, "parcels_refused_total", "event", "refused for want of a quorum")


def _hydra(one: Figures, newest: Newest) -> Iterator[Finding]:
    if total(one.metrics, "hydra_leader_known") == 0:
        yield Finding(one.seen.name, ATTENTION, "leader", "knows of no leader", SETTLING)


def _freenet(one: Figures, newest: Newest) -> Iterator[Finding]:
    if total(one.metrics, "freenet_neighbours") == 0:
        yield Finding(one.seen.name, ATTENTION, "neighbours", "has no neighbours", LASTING)
    unsettled = sum(value for has, value in samples(one.metrics, "freenet_streams") if has.get("phase") != "settled")
    if unsettled:
        text = f"{counted(int(unsettled), 'stream')} without a parent"
        yield Finding(one.seen.name, ATTENTION, "unsettled", text, LASTING)


def _frontend(one: Figures, newest: Newest) -> Iterator[Finding]:
    if total(one.metrics, "frontend_backbone") == 0:
        yield Finding(one.seen.name, DOWN, "backbone", "publishes nothing: its backbone does not answer", SKEW)
    yield from _grown(one, "frontend_failed_total", "message", "not published", "abandoned")


def _query(one: Figures, newest: Newest) -> Iterator[Finding]:
    if total(one.metrics, "query_problems"):
        yield Finding(one.seen.name, ATTENTION, "problems", "cannot read some of its journals")


_RULES: dict[str, Callable[[Figures, Newest], Iterator[Finding]]] = {
    "backbone": _backbone,
    "client": _client,
    "freenet": _freenet,
    "frontend": _frontend,
    "hydra": _hydra,
    "journal": _client,
    "parcels": _parcels,
    "query": _query,
}


def judge_service(one: Figures, newest: Newest, least_free: int) -> Iterator[Finding]:
    """Yield what is wrong with a service.

    :param least_free: bytes that a disk should have left.
    """
    seen = one.seen
    if not seen.up:
        if seen.at:
            yield Finding(seen.name, DOWN, "down", f"is down: {seen.why}")
        return
    if seen.missed:
        yield Finding(seen.name, ATTENTION, "scrape", f"did not answer the latest scrape: {seen.why}")
    free = min((value for _, value in samples(one.metrics, "journal_free_bytes")), default=None)
    yield from room(seen.name, free, least_free)
    if one.kind in _RULES:
        yield from _RULES[one.kind](one, newest)


def judge_stream(stream: Mapping[str, Any], newest: Newest) -> Iterator[Finding]:
    """Yield what is wrong with a journal of the directory, as the overview describes it."""
    name = stream["stream"]
    if stream["problem"]:
        yield Finding(name, DOWN, "problem", f"cannot be read: {stream['problem']}")
        return
    if stream["damaged"]:
        yield Finding(name, ATTENTION, "damaged", counted(stream["damaged"], "damaged place"))
    missing = sum(epoch["missing"] for epoch in stream["epochs"])
    if missing:
        yield Finding(name, ATTENTION, "missing", f"{counted(missing, 'message')} missing for a minute", LASTING)
    yield from _lost(name, stream["lost_lately"])
    if stream["behind"] is not None:
        yield from _late(name, (stream["behind"], BEHIND + SKEW * newest[name][1]))
