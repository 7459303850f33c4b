"""Detection of replayed messages, with bounded memory and no false acceptance.

A message is identified by its publisher id and counter, both authenticated.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fyrehose_twisted.ranges import RangeSet

REPLAY_WINDOW = 65_536
"""Counters below the highest one that may still arrive. A publisher has at most half as many in flight."""

MAX_WINDOWS = 4_096
"""Publisher ids remembered by a subscriber. Each start of a publisher has a new one."""

MAX_GAPS = 65_536
"""Ranges of missing counters remembered for all publisher ids."""


class WindowState(NamedTuple):
    """State of the window of one publisher id, to be stored."""

    publisher: bytes
    latest: int
    """Latest time of sealing, UTC microseconds since 1970."""
    highest: int
    missing: tuple[tuple[int, int], ...]
    """Ranges of counters up to ``highest`` that may still arrive."""

    def without(self, counters: Sequence[int]) -> WindowState:
        """Return the state as if these counters had not arrived."""
        if not counters:
            return self
        missing = RangeSet(self.missing)
        for counter in counters:
            missing.add(counter)
        return self._replace(missing=tuple(missing))


class TableState(NamedTuple):
    """State of the windows of one signer, to be stored."""

    signer: str
    """Name of the trusted publisher; empty without signatures."""
    floor: int
    windows: tuple[WindowState, ...]


class _Window:
    """Counters received of one publisher id: all up to ``highest``, except ``missing`` and those before the window."""

    __slots__ = ("highest", "latest", "missing")

    def __init__(self, counter: int, sealed_at: int) -> None:
        self.highest = counter
        self.latest = sealed_at
        self.missing = RangeSet()
        if counter:
            self.missing.add(max(0, counter - REPLAY_WINDOW), counter - 1)

    def admit(self, counter: int) -> bool:
        missing = self.missing
        if counter > self.highest:
            lowest = max(0, counter - REPLAY_WINDOW)
            if counter > self.highest + 1:
                missing.add(max(lowest, self.highest + 1), counter - 1)
            self.highest = counter
            if len(missing) and missing.first < lowest:
                missing.discard(missing.first, lowest - 1)
            return True
        if counter in missing:
            missing.discard(counter)
            return True
        return False


class ReplayTable:
    """Windows of the latest publisher ids.

    The least recently used window is evicted. Messages of unknown publisher ids are then admitted only if they were
    sealed after the latest message of every evicted window, so that none of those is admitted again.

    :param max_windows: see :data:`MAX_WINDOWS`.
    :param max_gaps: see :data:`MAX_GAPS`.
    :ivar floor: time of sealing, UTC microseconds since 1970, up to which unknown publisher ids are not admitted.
    """

    def __init__(self, max_windows: int = MAX_WINDOWS, max_gaps: int = MAX_GAPS) -> None:
        self.floor = -1
        self._max_windows = max_windows
        self._max_gaps = max_gaps
        self._gaps = 0
        self._windows: OrderedDict[bytes, _Window] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def __contains__(self, publisher: bytes) -> bool:
        return publisher in self._windows

    def admit(self, publisher: bytes, counter: int, sealed_at: int) -> bool:
        """Record an authentic message. Return whether it is new."""
        window = self._windows.get(publisher)
        if window is not None and counter == window.highest + 1 and not len(window.missing):
            window.highest = counter  # As almost always.
            window.latest = max(window.latest, sealed_at)
            self._windows.move_to_end(publisher)
            return True
        if window is None:
            if sealed_at <= self.floor:
                return False
            window = self._windows[publisher] = _Window(counter, sealed_at)
            self._gaps += len(window.missing)
        else:
            gaps = len(window.missing)
            if not window.admit(counter):
                return False
            self._gaps += len(window.missing) - gaps
            window.latest = max(window.latest, sealed_at)
            self._windows.move_to_end(publisher)
        self._evict()
        return True

    def state(self) -> Iterator[WindowState]:
        """Yield the state of the windows, least recently used first."""
        for publisher, window in self._windows.items():
            yield WindowState(publisher, window.latest, window.highest, tuple(window.missing))

    def restore(self, state: WindowState) -> None:
        """Add a window that :meth:`state` returned."""
        window = _Window(0, state.latest)
        window.highest, window.missing = state.highest, RangeSet(state.missing)
        self._windows[state.publisher] = window
        self._gaps += len(window.missing)
        self._evict()

    def _evict(self) -> None:
        windows = self._windows
        while len(windows) > self._max_windows or (self._gaps > self._max_gaps and len(windows) > 1):
            _, window = windows.popitem(last=False)
            self._gaps -= len(window.missing)
            self.floor = max(self.floor, window.latest)
        if self._gaps > self._max_gaps:
            # A single publisher id: its oldest missing messages cannot arrive any more.
            [window] = windows.values()
            while len(window.missing) > self._max_gaps:
                first = window.missing.range_of(window.missing.first)
                assert first is not None
                window.missing.discard(*first)
            self._gaps = len(window.missing)
