"""How everything fares: journals, and the services that are watched. What the dashboard shows."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import Any

from fyrehose_twisted.journal.contents import Bounds
from fyrehose_twisted.query.following import Followers
from fyrehose_twisted.query.sources import Source, Sources
from fyrehose_twisted.query.watching import Watcher
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.web.site import WebSite

MAX_STREAMS = 1_000
"""Streams of which an overview tells."""

MAX_RANGES = 1_000
"""Ranges that are told of each epoch."""


def installed() -> str:
    """Return the version of this library."""
    try:
        return version("fyrehose_twisted")
    except PackageNotFoundError:
        return "unknown"


def describe_source(source: Source, *, ranges: bool = False) -> dict[str, Any]:
    """Return what is told of a journal.

    :param ranges: tell which numbers are lost and missing, too, and not only how many.
    """
    if ranges:
        return _describe(source, ranges=True)
    # To count what thousands of segments hold takes a while, and most journals have not changed.
    state = source.state()
    if source.described is None or source.described[0] != state:
        source.described = state, _describe(source, ranges=False)
    return source.described[1] | {"problem": source.problem}


def _describe(source: Source, *, ranges: bool) -> dict[str, Any]:
    reader = source.reader
    epochs, newest = [], 0
    for epoch in reader.epochs():
        bounds = source.bounds(epoch)
        if bounds is None:
            continue
        held, lost = reader.known(epoch)
        told: dict[str, Any] = {
            "epoch": epoch,
            "first": bounds.first,
            "next": bounds.next,
            "last": bounds.last,
            "records": held.count,
            "lost": lost.count,
            "missing": bounds.last - bounds.first + 1 - held.count - lost.count,
        }
        if ranges:
            told["lost_ranges"] = list(islice(map(list, lost), MAX_RANGES))
            told["missing_ranges"] = list(islice(_missing(held, lost, bounds), MAX_RANGES))
        epochs.append(told)
    for segment in reader.segments:
        newest = max(newest, segment.newest)
    return {
        "stream": source.stream,
        "name": source.name,
        "records": sum(epoch["records"] for epoch in epochs),
        "bytes": source.size(),
        "segments": len(reader.segments),
        "epochs": epochs,
        "last_received_at": newest or None,
        "damaged": source.damages,
        "problem": source.problem,
    }


def _missing(held: RangeSet, lost: RangeSet, bounds: Bounds) -> Iterator[list[int]]:
    for first, last in held.gaps(bounds.first, bounds.last):
        for low, high in lost.gaps(first, last):
            yield [low, high]


class Overview:
    """Tells how everything fares.

    :ivar content: the last one that was made; it is made anew by :meth:`look`.
    """

    def __init__(self, sources: Sources, followers: Followers, watcher: Watcher, reactor: Any) -> None:
        self._sources = sources
        self._followers = followers
        self._watcher = watcher
        self._reactor = reactor
        self._version = installed()
        self._started_at = reactor.seconds()
        self.site: WebSite | None = None
        self.content: dict[str, Any] = {}

    def look(self) -> None:
        """Make it anew."""
        self._sources.look_at_all()
        streams = [
            describe_source(source) | {"followers": self._followers.following(source.name)}
            for source in islice(self._sources, MAX_STREAMS)
        ]
        streams += [
            {**_EMPTY, "stream": name, "name": name, "problem": problem}
            for name, problem in sorted(self._sources.problems.items())
        ]
        self.content = {
            "at": self._reactor.seconds(),
            "version": self._version,
            "started_at": self._started_at,
            "streams": streams,
            "services": [seen._asdict() for seen in self._watcher.seen],
            "query": {} if self.site is None else _told(self.site),
        }


def _told(site: WebSite) -> dict[str, int]:
    return {
        "requests": sum(site.requests.values()),
        "streams": 0 if site.streams is None else len(site.streams),
        "connections": site.connections,
        "refused": site.refused,
    }


_EMPTY: dict[str, Any] = {
    "records": 0,
    "bytes": 0,
    "segments": 0,
    "epochs": [],
    "last_received_at": None,
    "followers": 0,
    "damaged": 0,
}
