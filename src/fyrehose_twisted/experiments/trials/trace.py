"""Trace of an experiment as lines of JSON, for the page, the drawing and comparisons of runs.

The first line describes the network::

    {"t": 0.0, "what": "network", "seed": 7, "locations": [...], "links": [[a, b], ...], "policy": {...}}

Each further line has ``t``, seconds since the start, and ``what``, the kind of event: ``subscribed`` and
``unsubscribed`` (``key``, ``node``: the application's subscription), ``attached`` (and ``parent``), ``root``,
``detached`` (parent lost), ``dropped`` (left the tree), ``published`` and ``delivered`` (and ``number``), ``down``,
``up``, ``moved`` (and ``location``), ``linked`` and ``unlinked`` (``a``, ``b``). A node that comes ``up`` after it was
only disconnected has ``kept`` (true): it retained its streams. A trace that starts in the middle of an experiment first
describes the current state. Equal experiments have equal traces.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Protocol

from fyrehose_twisted.freenet.policy import Policy


class TracedNetwork(Protocol):
    """Network that a trace describes in its first line."""

    seed: int
    policy: Policy

    @property
    def now(self) -> float:
        """Simulated seconds since the start."""

    @property
    def locations(self) -> list[float]:
        """Location of each node."""


class ExperimentTrace:
    """Writer of a trace.

    :param file: path, or an open text file.
    :param links: current links of the network.
    """

    def __init__(self, file: str | Path | IO[str], network: TracedNetwork, links: list[list[int]]) -> None:
        self._file: IO[str] = open(file, "w", encoding="utf-8") if isinstance(file, str | Path) else file  # noqa: SIM115
        self.write(
            network.now,
            "network",
            seed=network.seed,
            locations=network.locations,
            links=links,
            policy=asdict(network.policy),
        )

    def write(self, time: float, what: str, **fields: Any) -> None:
        """Write one event."""
        self._file.write(json.dumps({"t": round(time, 6), "what": what, **fields}, separators=(",", ":")) + "\n")
        self._file.flush()
