"""Clients of a watched backbone or relay, from its ``/clients`` page: kind, rates and lag."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urljoin

from fyrehose_twisted.query.monitoring.scraping import MalformedPage, ScrapeResult
from fyrehose_twisted.query.monitoring.trends import RECENT, STEP
from fyrehose_twisted.web.request import parse_json

MAX_ROWS = 200
"""Listed clients of one backbone."""
MAX_TEXT = 64
"""Characters of an address or a kind."""
MAX_NUMBER = 2**63 - 1
REJOINED = 1.0
"""Seconds of deviation in the join time after which a client counts as rejoined."""

RATES = ("published", "published_bytes", "delivered", "delivered_bytes")
"""Counters whose growth a second is shown."""
UNLISTED = "without KEEPALIVE"
"""Address of the row for all publishers that are not clients."""

_TIMES = ("connected_seconds", "silent_seconds", "requested_seconds")
_NUMBERS = ("requests", "retransmitted", "retransmitting", "lag")


class BackboneClients(NamedTuple):
    """List of clients from a backbone."""

    total: int
    """Number of clients, listed or not."""
    rows: tuple[dict[str, Any], ...]


NO_CLIENTS = BackboneClients(0, ())


class MalformedClients(MalformedPage):
    """The page is not a list of clients."""


def clients_url(metrics: str) -> str:
    """Return the URL of the client list of a backbone, given the URL of its metrics."""
    return urljoin(metrics, f"clients?limit={MAX_ROWS}")


def parse_clients(page: bytes) -> BackboneClients:
    """Parse a list of clients, at most :data:`MAX_ROWS`. A missing figure is ``None``.

    :raises MalformedClients: if the page is not a list of clients.
    """
    try:
        content = parse_json(page)
    except ValueError as error:
        raise MalformedClients(f"the page is not a list of clients ({str(error)[:100]})") from None
    listed = content.get("list") if isinstance(content, dict) else None
    total = _number(content.get("clients")) if isinstance(content, dict) else None
    if not isinstance(listed, list) or total is None:
        raise MalformedClients("the page is not a list of clients")
    rows: dict[str, dict[str, Any]] = {}
    for one in listed[:MAX_ROWS]:
        row = _row(one)
        rows.setdefault(row["address"], row)
    unlisted = content.get("unlisted")
    if isinstance(unlisted, dict) and _number(unlisted.get("published")):
        rows[UNLISTED] = _row({**unlisted, "address": UNLISTED, "kind": "publisher"})
    return BackboneClients(int(total), tuple(rows.values()))


def _row(one: Any) -> dict[str, Any]:
    if not isinstance(one, dict):
        raise MalformedClients("a client is not an object")
    texts = {name: one.get(name) for name in ("address", "kind")}
    for name, text in texts.items():
        if not isinstance(text, str) or not 0 < len(text) <= MAX_TEXT:
            raise MalformedClients(f"a client has no {name}")
    return {**texts, **{name: _number(one.get(name)) for name in (*RATES, *_TIMES, *_NUMBERS)}}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # This also excludes infinity and NaN.
    return value if 0 <= value <= MAX_NUMBER else None


class _Samples(NamedTuple):
    begun_at: float
    recent: deque[tuple[float, list[float]]]


class ClientRates:
    """Recent rates of the clients of all backbones. Clients that are no longer listed are dropped."""

    def __init__(self) -> None:
        self._samples: dict[str, dict[str, _Samples]] = {}

    def describe(self, service: str, scraped: ScrapeResult[BackboneClients], now: float) -> dict[str, Any]:
        """Return the clients of a backbone as in the overview."""
        before = self._samples.get(service, {})
        samples = {
            row["address"]: _add_sample(before.get(row["address"]), row, scraped) for row in scraped.content.rows
        }
        self._samples[service] = samples
        return {
            "up": scraped.up,
            "why": scraped.why,
            "age": max(0.0, now - scraped.heard_at) if scraped.heard_at else None,
            "total": scraped.content.total,
            "list": [
                {**{name: value for name, value in row.items() if name not in RATES}, "rates": rates}
                for row in scraped.content.rows
                for rates in [_rates(samples[row["address"]], scraped, now)]
            ],
        }

    def retain(self, services: Mapping[str, object]) -> None:
        """Drop the clients of all other backbones."""
        for name in self._samples.keys() - services.keys():
            del self._samples[name]


def _add_sample(known: _Samples | None, row: Mapping[str, Any], scraped: ScrapeResult[BackboneClients]) -> _Samples:
    at, values = scraped.heard_at, [row[name] or 0.0 for name in RATES]
    age = row["connected_seconds"]
    begun_at = 0.0 if age is None else at - age
    if known is None or abs(known.begun_at - begun_at) > REJOINED:
        return _Samples(begun_at, deque([(at, values)]))
    if any(old > new for old, new in zip(known.recent[-1][1], values, strict=True)):
        return _Samples(begun_at, deque([(at, values)]))
    if at > known.recent[-1][0]:
        known.recent.append((at, values))
        while len(known.recent) > 2 and at - known.recent[1][0] >= RECENT:
            known.recent.popleft()
    return known


def _rates(samples: _Samples, scraped: ScrapeResult[BackboneClients], now: float) -> dict[str, float | None]:
    (first, before), (last, after) = samples.recent[0], samples.recent[-1]
    if not scraped.up or last <= first or now - last > 2 * STEP:
        return dict.fromkeys(RATES)
    return {name: (after[at] - before[at]) / (last - first) for at, name in enumerate(RATES)}
