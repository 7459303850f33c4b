"""Rules that assess whether a service or journal is OK, needs attention or is down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fyrehose_twisted.query.monitoring.figures import (
    ServiceFigures,
    active_label,
    durable_journals,
    label,
    samples,
    total,
)
from fyrehose_twisted.query.monitoring.findings import ATTENTION, DOWN, HealthFinding
from fyrehose_twisted.wording import pluralize

MAX_LAG = 10_000
"""Messages by which a journal or client may lag, plus the messages of :data:`MAX_SKEW` seconds."""
MAX_SKEW = 5.0
"""Maximum seconds between the scrapes of two services."""
PERSISTENCE = 60.0
"""Seconds after which a normally transient condition is a finding."""
SETTLING = 15.0
"""Seconds that a restart or election may take."""

NORMAL_DROPS = frozenset(
    {"held_already", "stopped", "buffer_full", "not_leading", "head_too_late"}
    | {f"forward_{reason}" for reason in ("not_held", "unwanted", "requesters", "queue")}
)
"""Reasons of packet drops in normal operation."""

Newest = Mapping[str, tuple[float, float]]
"""Highest number of each stream known to any service, and messages a second."""


def newest_sequences(
    services: Iterable[ServiceFigures], streams: Iterable[Mapping[str, Any]]
) -> dict[str, tuple[float, float]]:
    """Return the highest number and the rate of each stream.

    :param streams: descriptions of the journals, as in the overview.
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
    """Return whether a stream has only one epoch, so that its numbers are comparable."""
    return stream.startswith(("fyrehose://", "parcels://"))


def measure_lag(one: ServiceFigures, newest: Newest) -> tuple[float, float] | None:
    """Return the lag of a service in messages and its limit, or ``None`` if unknown."""
    found = []
    for labels, value in samples(one.metrics, "journal_next"):
        if labels.get("stream") in newest:
            found.append((labels["stream"], value - 1))
    delivered = total(one.metrics, "client_sequence")
    if one.kind in ("client", "relay") and delivered is not None:
        own = label(one.metrics, "stream")
        streams = [own] if own in newest else [stream for stream in newest if stream.startswith("fyrehose://")]
        if len(streams) == 1:
            found.append((streams[0], delivered))
    lags = [(max(0.0, newest[stream][0] - number), MAX_LAG + MAX_SKEW * newest[stream][1]) for stream, number in found]
    return max(lags, key=lambda lag: lag[0] - lag[1], default=None)


def _assess_lag(subject: str, lag: tuple[float, float] | None) -> Iterator[HealthFinding]:
    if lag is not None and lag[0] > lag[1]:
        yield HealthFinding(subject, ATTENTION, "behind", f"{lag[0]:,.0f} messages behind", SETTLING)


def _assess_losses(subject: str, lost: float) -> Iterator[HealthFinding]:
    if lost:
        yield HealthFinding(subject, ATTENTION, "lost", f"{pluralize(int(lost), 'message')} lost for good")


def assess_disk(subject: str, free: float | None, least: int) -> Iterator[HealthFinding]:
    """Yield a finding if a disk has less than ``least`` bytes free."""
    if free is not None and free < least:
        yield HealthFinding(subject, ATTENTION, "disk", f"its disk has {free / 2**20:,.0f} MiB left")


def _assess_growth(one: ServiceFigures, name: str, noun: str, action: str, *without: str) -> Iterator[HealthFinding]:
    growth = one.recent_growth(name, frozenset(without))
    if growth:
        parts = ", ".join(label for label in sorted(growth, key=lambda label: -growth[label])[:3] if label)
        text = f"{pluralize(int(sum(growth.values())), noun)} {action} in 5 min" + (f" ({parts})" if parts else "")
        yield HealthFinding(one.scrape.name, ATTENTION, name, text)


def _backbone(one: ServiceFigures, newest: Newest) -> Iterator[HealthFinding]:
    journals = durable_journals(one.metrics)
    if journals is not None and journals < 2 and not total(one.metrics, "backbone_witness"):
        text = "only one durable journal" if journals else "no durable journal"
        yield HealthFinding(one.scrape.name, ATTENTION, "journals", text, SETTLING)
    yield from _assess_growth(one, "backbone_dropped_total", "packet", "dropped", *NORMAL_DROPS)
    yield from _assess_growth(one, "backbone_send_errors_total", "datagram", "not sent")


def _relay(one: ServiceFigures, newest: Newest) -> Iterator[HealthFinding]:
    yield from _client(one, newest)
    yield from _assess_growth(one, "relay_dropped_total", "packet", "dropped", *NORMAL_DROPS)
    yield from _assess_growth(one, "relay_send_errors_total", "datagram", "not sent")


def _client(one: ServiceFigures, newest: Newest) -> Iterator[HealthFinding]:
    name = one.scrape.name
    if total(one.metrics, "client_connected") == 0:
        yield HealthFinding(name, ATTENTION, "connected", "its backbone does not answer")
    missing = total(one.metrics, "client_missing")
    if missing:
        yield HealthFinding(
            name, ATTENTION, "missing", f"{pluralize(int(missing), 'message')} missing for a minute", PERSISTENCE
        )
    yield from _assess_losses(name, one.lost)
    yield from _assess_lag(name, measure_lag(one, newest))
    yield from _assess_growth(one, "client_dropped_total", "packet", "dropped", *NORMAL_DROPS)
    yield from _assess_growth(one, "client_send_errors_total", "datagram", "not sent")
    yield from _assess_growth(one, "client_publish_failed_total", "message", "not published")
    yield from _assess_growth(one, "journal_conflicts_total", "message", "in conflict")
    if total(one.metrics, "journal_damaged_segments"):
        yield HealthFinding(name, ATTENTION, "damaged", "segments of its journal are damaged")


def _parcels(one: ServiceFigures, newest: Newest) -> Iterator[HealthFinding]:
    mode = active_label(one.metrics, "parcels_mode", "mode")
    if mode != "Wrk":
        yield HealthFinding(
            one.scrape.name, ATTENTION, "mode", f"cannot order events: it is in mode {mode or 'unknown'}", SETTLING
        )
    yield from _assess_growth(one, "parcels_skipped_total", "event", "lost")
    yield from _assess_growth(one, "parcels_refused_total", "event", "refused without a quorum")


def _hydra(one: ServiceFigures, newest: Newest) -> Iterator[HealthFinding]:
    if total(one.metrics, "hydra_leader_known") == 0:
        yield HealthFinding(one.scrape.name, ATTENTION, "leader", "knows no leader", SETTLING)


def _freenet(one: ServiceFigures, newest: Newest) -> Iterator[HealthFinding]:
    if total(one.metrics, "freenet_neighbours") == 0:
        yield HealthFinding(one.scrape.name, ATTENTION, "neighbours", "has no neighbours", PERSISTENCE)
    unsettled = sum(value for has, value in samples(one.metrics, "freenet_streams") if has.get("phase") != "settled")
    if unsettled:
        text = f"{pluralize(int(unsettled), 'stream')} without a parent"
        yield HealthFinding(one.scrape.name, ATTENTION, "unsettled", text, PERSISTENCE)


def _frontend(one: ServiceFigures, newest: Newest) -> Iterator[HealthFinding]:
    if total(one.metrics, "frontend_backbone") == 0:
        yield HealthFinding(
            one.scrape.name, DOWN, "backbone", "publishes nothing: its backbone does not answer", MAX_SKEW
        )
    yield from _assess_growth(one, "frontend_failed_total", "message", "not published", "abandoned")


def _query(one: ServiceFigures, newest: Newest) -> Iterator[HealthFinding]:
    if total(one.metrics, "query_problems"):
        yield HealthFinding(one.scrape.name, ATTENTION, "problems", "cannot read some of its journals")


_RULES: dict[str, Callable[[ServiceFigures, Newest], Iterator[HealthFinding]]] = {
    "backbone": _backbone,
    "client": _client,
    "freenet": _freenet,
    "frontend": _frontend,
    "hydra": _hydra,
    "journal": _client,
    "parcels": _parcels,
    "query": _query,
    "relay": _relay,
}


def assess_service(one: ServiceFigures, newest: Newest, least_free: int) -> Iterator[HealthFinding]:
    """Yield the findings about a service.

    :param least_free: free bytes that a disk should have.
    """
    scrape = one.scrape
    if not scrape.up:
        if scrape.at:
            yield HealthFinding(scrape.name, DOWN, "down", f"is down: {scrape.why}")
        return
    if scrape.missed:
        yield HealthFinding(scrape.name, ATTENTION, "scrape", f"did not answer the latest scrape: {scrape.why}")
    free = min((value for _, value in samples(one.metrics, "journal_free_bytes")), default=None)
    yield from assess_disk(scrape.name, free, least_free)
    if one.kind in _RULES:
        yield from _RULES[one.kind](one, newest)


def assess_stream(stream: Mapping[str, Any], newest: Newest) -> Iterator[HealthFinding]:
    """Yield the findings about a journal, given its description in the overview."""
    name = stream["stream"]
    if stream["problem"]:
        yield HealthFinding(name, DOWN, "problem", f"cannot be read: {stream['problem']}")
        return
    if stream["damaged"]:
        yield HealthFinding(name, ATTENTION, "damaged", pluralize(stream["damaged"], "damaged place"))
    missing = sum(epoch["missing"] for epoch in stream["epochs"])
    if missing:
        yield HealthFinding(
            name, ATTENTION, "missing", f"{pluralize(missing, 'message')} missing for a minute", PERSISTENCE
        )
    yield from _assess_losses(name, stream["lost_lately"])
    if stream["behind"] is not None:
        yield from _assess_lag(name, (stream["behind"], MAX_LAG + MAX_SKEW * newest[name][1]))
