"""Collection of cyclic garbage at the pace at which networks grow."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MIN_CREATED = 200_000
"""Objects that runs have to create before all objects are gone through. Fewer take some ten MiB."""

RUNS_PER_CHECK = 256
"""Number of runs after which it is looked again whether the application has frozen objects."""


class PacedCollector:
    """Pauses the collector of cyclic garbage while a network runs, and collects once the objects have doubled.

    By itself it would go through all nodes again and again while they are created: during each run, and at the end of
    each of many short ones. It cannot be left out, because a network that is no longer used consists of cycles.
    """

    def __init__(self) -> None:
        self._created = 0
        self._kept = 0
        self._runs = 0
        self._froze = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the collector, unless it is off already."""
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_enabled:
                if not self._application_froze():  # It would be thawed.
                    self._collect_if_doubled()
                gc.enable()

    def _application_froze(self) -> bool:
        """Return whether the application has frozen objects. To count them takes as long as there are many."""
        if self._runs % RUNS_PER_CHECK == 0:
            self._froze = gc.get_freeze_count() > 0
        self._runs += 1
        return self._froze

    def _collect_if_doubled(self) -> None:
        self._created += gc.get_count()[0]
        is_due = self._created > max(MIN_CREATED, self._kept)
        if is_due:
            gc.collect()
        gc.freeze()
        if is_due:
            self._created, self._kept = 0, gc.get_freeze_count()
        gc.unfreeze()  # What is new now counts as old, so that the collector does not begin with it.


COLLECTOR = PacedCollector()
"""The collector of this process, which all networks share."""
