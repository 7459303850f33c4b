"""Latencies of single links, from a file or a graph.

A line of a latency file has the two names of a link and its latency in seconds, one for both directions::

    # A comment.
    a b 0.035
    b c 0.1

Empty lines and lines that begin with ``#`` are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.topologies.topology import Topology

Default = float | Callable[[int, int, Random], float]
"""Latency in seconds, or a function of both ends and a random generator that returns it."""


class LinkLatencies:
    """Latency function of an experiment, with one latency per link.

    :param latencies: seconds by link, as pairs of node numbers with the lower one first.
    :param default: latency of all other links, or a function that returns it; ``None`` if there are none.
    :ivar missing: number of links of the topology that have the default.
    :raises ConfigurationError: if a pair is no link of the topology, a latency is below 0 or not finite, or a link has
        none and there is no default.
    """

    def __init__(
        self, topology: Topology, latencies: Mapping[tuple[int, int], float], default: Default | None = None
    ) -> None:
        links = set(map(tuple, topology.edges().tolist()))
        for (one, other), seconds in latencies.items():
            if (one, other) not in links:
                raise ConfigurationError(
                    f"latency of {topology.label(one)} {topology.label(other)}: the topology has no such link"
                )
            if not 0.0 <= seconds < inf:
                raise ConfigurationError(
                    f"latency of {topology.label(one)} {topology.label(other)}, {seconds!r}: give 0 or more seconds"
                )
        self.missing = len(links) - len(latencies)
        if self.missing and default is None:
            one, other = min(links - latencies.keys())
            raise ConfigurationError(
                f"{self.missing:,} links have no latency, such as {topology.label(one)} {topology.label(other)}; give a"
                " default"
            )
        self._latencies = dict(latencies)
        self._default: Default = 0.0 if default is None else default

    def __call__(self, source: int, destination: int, rng: Random) -> float:
        """Return the latency of a link. One that was added during the experiment has the default."""
        pair = (source, destination) if source < destination else (destination, source)
        found = self._latencies.get(pair)
        if found is not None:
            return found
        return self._default(source, destination, rng) if callable(self._default) else self._default

    @classmethod
    def from_file(cls, path: str | Path, topology: Topology, default: Default | None = None) -> LinkLatencies:
        """Return the latencies in a file.

        :raises ConfigurationError: if the file is malformed; the error names the line. See also the class.
        :raises OSError: if the file cannot be read.
        """
        numbers, found = topology.numbers_by_label(), dict[tuple[int, int], float]()
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{path} is not text: {error}") from error
        for line, words in enumerate(map(str.split, text.splitlines()), 1):
            if not words or words[0].startswith("#"):
                continue
            where = f"{path}, line {line}"
            if len(words) != 3:
                raise ConfigurationError(f"{where}: {' '.join(words)[:80]!r}: a latency is NODE NODE SECONDS")
            for name in words[:2]:
                if name not in numbers:
                    raise ConfigurationError(f"{where}: there is no node {name[:40]!r} in the topology")
            try:
                seconds = float(words[2])
            except ValueError:
                seconds = -1.0
            if not 0.0 <= seconds < inf:
                raise ConfigurationError(f"{where}: {words[2][:40]!r} is not a number of seconds, 0 or more")
            one, other = sorted((numbers[words[0]], numbers[words[1]]))
            if found.setdefault((one, other), seconds) != seconds:
                raise ConfigurationError(f"{where}: the link has the latency {found[one, other]:g} s already")
        return cls(topology, found, default)

    @classmethod
    def from_networkx(
        cls, graph: Any, topology: Topology, default: Default | None = None, *, latency: str = "latency"
    ) -> LinkLatencies:
        """Return the latencies of a graph of networkx, by an attribute of its edges.

        :param topology: :meth:`Topology.from_networkx` of the same graph.
        :raises ConfigurationError: see the class.
        """
        numbers, found = topology.numbers_by_label(), {}
        for a, b, seconds in graph.edges(data=latency):
            if seconds is not None:
                one, other = sorted((numbers[str(a)], numbers[str(b)]))
                found[one, other] = float(seconds)
        return cls(topology, found, default)
