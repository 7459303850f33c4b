"""What happens in an experiment, as lines of JSON: for the page, the drawing, and whoever wants to compare two runs.

The first line is the network::

    {"t": 0.0, "what": "network", "seed": 7, "locations": [...], "links": [[a, b], ...], "policy": {...}}

Each other one has ``t``, seconds since the start, and says ``what`` happened: ``subscribed`` and ``unsubscribed``
(``key``, ``node``: what the application wants), ``attached`` (and ``parent``), ``root``, ``detached`` (the parent is
lost), ``dropped`` (no member any more), ``published`` and ``delivered`` (and ``number``), ``down``, ``up``, ``moved``
(and ``location``), ``linked`` and ``unlinked`` (``a``, ``b``). Who comes ``up`` and was only cut off has ``kept``
(true) its streams. A trace that does not begin with the experiment says first how everything is. Equal experiments have
equal traces.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Protocol

from fyrehose_twisted.freenet.policy import Policy


class TracedNetwork(Protocol):
    """The network that a trace describes in its first line."""

    seed: int
    policy: Policy

    @property
    def now(self) -> float:
        """Simulated seconds since the start."""

    @property
    def locations(self) -> list[float]:
        """The location of each node."""


class ExperimentTrace:
    """Writes lines.

    :param file: a path, or a text file that is open.
    :param links: that there are now.
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
        """Write one line."""
        self._file.write(json.dumps({"t": round(time, 6), "what": what, **fields}, separators=(",", ":")) + "\n")
        self._file.flush()
