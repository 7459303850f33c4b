"""Metrics at regular times."""

from __future__ import annotations

import csv
from collections.abc import Callable
from math import inf
from typing import IO

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.simulated_network import SimulatedNetwork


class Sampling:
    """Process that records metrics at regular times.

    :param measure: returns the metrics of one sample.
    :param every: simulated seconds between two samples.
    :param on_stop: called when it ends.
    :ivar samples: samples so far, each with its time ``t`` in seconds since the start, and all metrics.
    """

    def __init__(
        self,
        simulation: SimulatedNetwork,
        measure: Callable[[], dict[str, float]],
        every: float,
        on_stop: Callable[[], object],
    ) -> None:
        if not 0.0 < every < inf:
            raise ConfigurationError(f"every={every!r}: give a number of more than 0 seconds")
        self._simulation = simulation
        self._measure = measure
        self._every = every
        self._on_stop = on_stop
        self._stopped = False
        self._began = self._sampled_at = simulation.now
        self.samples: list[dict[str, float]] = []
        self._schedule()

    def stop(self) -> None:
        """Stop the sampling, after a last sample of the time since the previous one."""
        if not self._stopped:
            self._stopped = True
            if self._simulation.now > self._sampled_at:
                self._take()
            self._on_stop()

    def write_csv(self, out: IO[str]) -> None:
        """Write a heading and a row per sample; missing values are empty."""
        lines = csv.writer(out, lineterminator="\n")
        for number, sample in enumerate(self.samples):
            if not number:
                lines.writerow(sample)
            lines.writerow(["" if value != value else value for value in sample.values()])

    def _schedule(self) -> None:
        # Not by adding up, whose rounding errors grow.
        when = self._began + self._every * (len(self.samples) + 1)
        self._simulation.call_at(when, self._due)

    def _due(self) -> None:
        if not self._stopped:
            self._take()
            self._schedule()

    def _take(self) -> None:
        self._sampled_at = self._simulation.now
        self.samples.append({"t": self._sampled_at, **self._measure()})
