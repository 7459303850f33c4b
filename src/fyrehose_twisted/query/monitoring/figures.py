"""Figures of a watched service: its kind, rates and recent growth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fyrehose_twisted.query.monitoring.scraper import PREFIX, Metrics, ServiceScrape
from fyrehose_twisted.query.monitoring.trends import Trends

WINDOW = 300.0
"""Seconds over which drops and failures are counted."""

KINDS = ("backbone", "relay", "journal", "client", "parcels", "hydra", "freenet", "frontend", "query")

MAIN = {
    "backbone": "backbone_published_total",
    "relay": "relay_published_total",
    "journal": "journal_taken_total",
    "client": "client_delivered_total",
    "parcels": "parcels_delivered_total",
    "frontend": "frontend_published_total",
    "query": "query_requests_total",
}
"""Metric of each kind whose rate is plotted as history."""

RATES = (
    *MAIN.values(),
    "backbone_delivered_total",
    "backbone_requests_total",
    "relay_delivered_total",
    "relay_requests_total",
    "client_answered_total",
)

LABELLED_COUNTERS = {
    "backbone_dropped_total": "reason",
    "backbone_send_errors_total": "errno",
    "client_dropped_total": "reason",
    "client_lost_total": "",
    "client_publish_failed_total": "",
    "client_send_errors_total": "errno",
    "frontend_failed_total": "reason",
    "journal_conflicts_total": "",
    "parcels_refused_total": "",
    "parcels_skipped_total": "",
    "relay_dropped_total": "reason",
    "relay_send_errors_total": "errno",
}
"""Counters whose growth over :data:`WINDOW` is shown, each with the label that splits it."""

MAX_LABELS = 64
"""Values of one label that are counted separately."""


def samples(metrics: Metrics, name: str) -> list[tuple[dict[str, str], float]]:
    """Return the samples of a metric, given its name without prefix."""
    return metrics.get(PREFIX + name, [])


def total(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Return the sum of a metric over the samples with ``labels``, or ``None`` if there are none."""
    found = [value for has, value in samples(metrics, name) if labels.items() <= has.items()]
    return sum(found) if found else None


def label(metrics: Metrics, name: str) -> str:
    """Return a label of ``fyrehose_info``, or ``""``."""
    return next((labels[name] for labels, _ in samples(metrics, "info") if labels.get(name)), "")


def active_label(metrics: Metrics, name: str, label: str) -> str:
    """Return the label of the sample with value 1, or ``""``."""
    return next((labels.get(label, "") for labels, value in samples(metrics, name) if value == 1), "")


def kind_of(metrics: Metrics) -> str:
    """Return the kind of a service by its info metric or its metric names; ``other`` if unknown."""
    service = label(metrics, "service")
    if service in KINDS:
        return service
    return next((kind for kind in KINDS if any(name.startswith(f"{PREFIX}{kind}_") for name in metrics)), "other")


def durable_journals(metrics: Metrics) -> float | None:
    """Return the number of durable journals of a backbone, or of journals if the backbone is older."""
    durable = total(metrics, "backbone_durable_journals")
    return total(metrics, "backbone_journals") if durable is None else durable


class ServiceFigures(NamedTuple):
    """Figures of one service at one time."""

    scrape: ServiceScrape
    kind: str
    rates: dict[str, float | None]
    """Growth a second of each metric of :data:`RATES` that the service has."""
    recent: dict[str, dict[str, float]]
    """Growth over :data:`WINDOW` of the :data:`LABELLED_COUNTERS` that have grown, by label."""
    grown: Mapping[str, float]
    """Growth of the :data:`LABELLED_COUNTERS` since the previous collection."""
    lost: float
    """Messages lost during the history or before its start."""

    @property
    def metrics(self) -> Metrics:
        """Metrics of the last successful scrape."""
        return self.scrape.metrics

    def rate(self, name: str) -> float:
        """Return the growth a second of a metric, or 0 if it is unknown."""
        return self.rates.get(name) or 0.0

    def recent_growth(self, name: str, without: frozenset[str] = frozenset()) -> dict[str, float]:
        """Return the growth of a counter over :data:`WINDOW` by label, excluding some labels."""
        return {label: count for label, count in self.recent.get(name, {}).items() if label not in without}


def trend_key(service: str, name: str, part: str = "") -> str:
    """Return the key of a trend."""
    return f"service:{service}:{name}:{part}"


def read_figures(scrape: ServiceScrape, trends: Trends, now: float) -> ServiceFigures:
    """Compute the figures of a service and update its trends."""
    rates: dict[str, float | None] = {}
    recent: dict[str, dict[str, float]] = {}
    grown: dict[str, float] = {}
    for name in RATES:
        value = total(scrape.metrics, name)
        if value is not None:
            trend = trends.add(trend_key(scrape.name, name), now, scrape.heard_at, value, counter=True)
            rates[name] = None if trend is None or not scrape.up else trend.rate(now)
    for name, by in LABELLED_COUNTERS.items():
        for labels, value in samples(scrape.metrics, name)[:MAX_LABELS]:
            part = labels.get(by, "")
            key = trend_key(scrape.name, name, part)
            known = trends.get(key)
            before = 0.0 if known is None else known.total
            # A label that is new for a known service was 0 before.
            if known is None and by and trends.get(trend_key(scrape.name, name)) is not None:
                trends.add(key, now, scrape.heard_at - 1, 0.0, counter=True)
            trend = trends.add(key, now, scrape.heard_at, value, counter=True)
            if trend is None:
                continue
            grown[name] = grown.get(name, 0.0) + trend.total - before
            count = trend.increase(now, WINDOW)
            if count:
                recent.setdefault(name, {})[part] = count
        if by and scrape.heard_at:
            trends.add(trend_key(scrape.name, name), now, scrape.heard_at, 0.0, counter=True)
    lost = trends.get(trend_key(scrape.name, "client_lost_total"))
    return ServiceFigures(
        scrape, kind_of(scrape.metrics), rates, recent, grown, 0.0 if lost is None else lost.uncertain_increase(now)
    )
