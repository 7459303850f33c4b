"""Lines from IRC as records of a journal: stream ``hydra://NETWORK``, epoch = term, sequence = number of the line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fyrehose_twisted.hydra.events import LinesMissed, LinesReceived
from fyrehose_twisted.interfaces import IJournal
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.journal.store import JournalConfig, check_unlocked
from fyrehose_twisted.journal.upkeep.maintenance import MaintainedJournal
from fyrehose_twisted.record import Record

LineEvent = LinesReceived | LinesMissed


def stream_uri(network: str) -> str:
    """Return the URI of the stream of lines of a network."""
    return f"hydra://{network}"


class LineJournal:
    """Journal of the lines of a network.

    :param clock: UTC seconds since 1970.
    """

    def __init__(self, journal: IJournal, clock: Callable[[], float] = time.time) -> None:
        self.journal = journal
        self._clock = clock

    @property
    def term(self) -> int:
        """Highest term in the journal, 0 if it is empty."""
        return max(self.journal.epochs(), default=0)

    def append(self, event: LineEvent) -> None:
        """Append lines, or record that lines were missed.

        :raises JournalError: if the journal cannot be written.
        """
        journal, term = self.journal, event.term
        bounds: Bounds | None = journal.bounds(term)
        if bounds is not None and event.first > bounds.last + 1:
            # The node was not in the network then and reports no gap, but the journal has one.
            journal.lose(term, bounds.last + 1, event.first - 1)
        if isinstance(event, LinesMissed):
            journal.lose(term, event.first, event.last)
        else:
            now = int(self._clock() * 1_000_000)
            numbered = enumerate(event.lines, event.first)
            journal.append(
                [Record(journal.stream, term, number, now, bytes(line)) for number, line in numbered],
                authoritative=True,
            )
        journal.commit(False)

    def replay(self, on_damage: Callable[[Damage], object]) -> Iterator[LineEvent]:
        """Yield all stored lines and gaps, oldest first. Nothing may be appended meanwhile."""
        journal = self.journal
        for term in journal.epochs():
            bounds: Bounds | None = journal.bounds(term)
            if bounds is None or bounds.last < bounds.first:
                continue
            expected = bounds.first
            for block in journal.read(term, bounds.first, bounds.last, on_damage):
                lines: list[bytes] = []
                first = expected
                for position, payload in zip(block.positions.tolist(), block.payloads(), strict=True):
                    if position != expected:
                        if lines:
                            yield LinesReceived(term, first, lines)
                        yield LinesMissed(term, expected, position - 1)
                        lines, first = [], position
                    lines.append(payload)
                    expected = position + 1
                if lines:
                    yield LinesReceived(term, first, lines)
            if expected <= bounds.last:
                yield LinesMissed(term, expected, bounds.last)


class LineStorage:
    """Journal files of one node.

    :param directory: directory of journals; created if missing.
    :ivar lines: the journal; ``None`` while it is closed.
    """

    def __init__(self, directory: Path, *, config: JournalConfig | None = None) -> None:
        self.directory = directory
        self.lines: LineJournal | None = None
        self._config = config
        self._journal: MaintainedJournal | None = None

    def check(self, network: str) -> None:
        """Check, without creating files, that no other process writes the journal.

        :raises JournalError: if one does, or if that cannot be determined.
        """
        check_unlocked(self.directory, stream_uri(network))

    def open(self, network: str, reactor: Any, failed: Callable[[Exception], object]) -> LineJournal:
        """Open the journal.

        :param failed: called if the journal fails later.
        :raises JournalError: if it cannot be read or written, or is in use.
        """
        self._journal = MaintainedJournal(
            self.directory,
            stream_uri(network),
            reactor,
            config=self._config,
            on_failure=failed,
        )
        self.lines = LineJournal(self._journal.journal)
        return self.lines

    async def close(self) -> None:
        """Make everything durable and close the journal.

        :raises JournalError: if that failed.
        """
        journal, self._journal = self._journal, None
        self.lines = None
        if journal is not None:
            await journal.close()
