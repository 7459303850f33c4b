"""Progress line of a sweep."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fyrehose_twisted.process.progress import ProgressBar

POLL_INTERVAL = 0.5
"""Seconds between two updates."""


class SweepProgress:
    """Progress line with the number of finished networks, the rate, and the remaining time.

    :param done: networks that were finished at the start.
    :param seconds: estimated cost of the others, summed over all cores.
    """

    def __init__(self, total: int, done: int, seconds: float, *, quiet: bool) -> None:
        self._total_cost = seconds
        self._began = time.monotonic()
        self._completed_cost = 0.0
        self._shown = 0
        self._bar = ProgressBar(
            total=total,
            initial=done,
            desc="sweep",
            unit=" networks",
            file=sys.stderr,
            disable=quiet,
            # The remaining time depends on the costs of the remaining networks, which tqdm does not know.
            bar_format="{desc}: {n_fmt} of {total_fmt} networks [{elapsed}, {rate_fmt}{postfix}]",
            mininterval=POLL_INTERVAL,
            # Otherwise tqdm would check the time only after many networks.
            miniters=0,
        )

    def show(self, networks: int, seconds: float) -> None:
        """Show the finished networks of this wave, and their estimated cost."""
        remaining = self._text_left(self._completed_cost + seconds)
        self._bar.set_postfix_str(remaining, refresh=False)
        self._bar.update(networks - self._shown)
        self._shown = networks

    def end_wave(self, networks: int, seconds: float) -> None:
        """Count a wave as finished."""
        self.show(networks, seconds)
        self._completed_cost += seconds
        self._shown = 0

    def close(self) -> None:
        """End the line."""
        self._bar.close()

    @contextmanager
    def watching(self, look: Callable[[], tuple[int, float]]) -> Iterator[None]:
        """Show the result of ``look`` at intervals while the block runs."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(POLL_INTERVAL):
                self.show(*look())

        watching = threading.Thread(target=watch, name="progress of a sweep", daemon=True)
        watching.start()
        try:
            yield
        finally:
            over.set()
            watching.join()

    def _text_left(self, completed: float) -> str:
        if not completed or not self._total_cost:
            return "time left unknown"
        passed = time.monotonic() - self._began
        return f"{ProgressBar.format_interval(passed * max(0.0, self._total_cost - completed) / completed)} left"
