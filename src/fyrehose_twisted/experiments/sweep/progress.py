"""The line that says how far a sweep is."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fyrehose_twisted.process.progress import ProgressBar

POLL_INTERVAL = 0.5
"""Seconds between two looks at what is done."""


class SweepProgress:
    """Networks that are done, of how many; how many of them a second; and the time that is left.

    :param done: networks that were there at the start.
    :param seconds: what the others will take, as estimated, of all cores together.
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
            # What is estimated to be left depends on which networks those are, which tqdm does not know.
            bar_format="{desc}: {n_fmt} of {total_fmt} networks [{elapsed}, {rate_fmt}{postfix}]",
            mininterval=POLL_INTERVAL,
            # Else it would only look at the time once many networks are done.
            miniters=0,
        )

    def show(self, networks: int, seconds: float) -> None:
        """Show that so many networks are done in this wave, which were estimated to take so long."""
        left = self._text_left(self._completed_cost + seconds)
        self._bar.set_postfix_str(left, refresh=False)
        self._bar.update(networks - self._shown)
        self._shown = networks

    def end_wave(self, networks: int, seconds: float) -> None:
        """Count a wave as done."""
        self.show(networks, seconds)
        self._completed_cost += seconds
        self._shown = 0

    def close(self) -> None:
        """End the line."""
        self._bar.close()

    @contextmanager
    def watching(self, look: Callable[[], tuple[int, float]]) -> Iterator[None]:
        """Show what ``look`` returns, now and then, for the time of the block."""
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
