"""Marks in the log, with which a node knows that it is up to date."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.parcels.events import SequenceSpans


class ReadMark:
    """One mark, and the readers that wait for it."""

    def __init__(self, readers: list[Deferred[int]], on_done: Callable[[ReadMark], None]) -> None:
        self._readers = readers
        self._on_done = on_done

    def answered(self, numbers: SequenceSpans) -> None:
        """Tell the readers the number of the last event before the mark."""
        self._on_done(self)
        for reader in self._readers:
            if not reader.called:
                reader.callback(numbers[0][0] - 1)

    def fail(self, error: Exception) -> None:
        """Fail the readers."""
        self._on_done(self)
        for reader in self._readers:
            if not reader.called:
                reader.errback(error)


class ReadMarks:
    """Marks of one node, one at a time. Readers that come while one is under way share the next.

    They cannot share the one under way: what was acknowledged since it was put into the log may be behind it.

    :param put: puts a mark into the log, or raises :class:`~fyrehose_twisted.errors.FyrehoseError`.
    """

    def __init__(self, put: Callable[[ReadMark], None]) -> None:
        self._put = put
        self._current: ReadMark | None = None
        self._waiting: list[Deferred[int]] = []

    def wait(self) -> Deferred[int]:
        """Return a Deferred of the number of the last event, once all events up to it are delivered here."""
        reader: Deferred[int] = Deferred()
        self._waiting.append(reader)
        if self._current is None:
            self._next()
        return reader

    def fail(self, error: Exception) -> None:
        """Fail all readers."""
        waiting, self._waiting = ReadMark(self._waiting, self._done), []
        if self._current is not None:
            self._current.fail(error)
        waiting.fail(error)

    def _next(self) -> None:
        readers, self._waiting = self._waiting, []
        mark = self._current = ReadMark(readers, self._done)
        try:
            self._put(mark)
        except FyrehoseError as error:
            mark.fail(error)

    def _done(self, mark: ReadMark) -> None:
        if mark is self._current:
            self._current = None
            if self._waiting:
                self._next()
