"""Journal of received lines."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from fyrehose_twisted.hydra.events import LinesMissed, LinesReceived
from fyrehose_twisted.hydra.service.storage import LineJournal, stream_uri
from fyrehose_twisted.journal.store import open_journal

STREAM = stream_uri("orders")


def received(first: int, last: int) -> LinesReceived:
    return LinesReceived(2, first, [b"line %d" % number for number in range(first, last + 1)])


def test_lines_lost_from_the_end_of_a_journal_are_reported_and_appended_again(tmp_path: Path) -> None:
    with closing(open_journal(tmp_path, STREAM)) as journal:
        lines = LineJournal(journal)
        for first in (1, 6):
            lines.append(received(first, first + 4))
            journal.commit()
    (file,) = tmp_path.glob("*/*.log")
    file.write_bytes(file.read_bytes().replace(b"line 8", b"lime 8"))
    with closing(open_journal(tmp_path, STREAM)) as journal:
        lines = LineJournal(journal)
        assert list(lines.replay([].append)) == [received(1, 5), LinesMissed(2, 6, 10)]
        lines.append(received(6, 10))
        lines.append(received(11, 12))
        journal.commit()
        assert list(map(tuple, journal.held(2, 0, 99))) == [(1, 12)]
        assert journal.losses(2, 0, 99) == []
