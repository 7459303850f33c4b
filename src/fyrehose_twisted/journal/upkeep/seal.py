"""Sealing of a journal: compaction of all segments, so that no file changes until the next write."""

from __future__ import annotations

from contextlib import closing, suppress

from fyrehose_twisted.interfaces import IDirectory
from fyrehose_twisted.journal.compaction import compact, temporary_name
from fyrehose_twisted.journal.errors import JournalDamaged, JournalError
from fyrehose_twisted.journal.store import Journal


def seal(directory: IDirectory, stream: str, wrap: int) -> int:
    """Seal the active segment if it has records, and compact all full segments.

    :returns: number of segments that were compacted.
    :raises JournalInUse: if another process has the journal open for writing.
    :raises JournalDamaged: if a part is damaged or missing. It is not changed.
    :raises JournalError: if the journal cannot be read or written.
    """
    with closing(Journal(directory, stream, wrap=wrap)) as journal:
        if journal.recovery.damages:
            raise JournalDamaged(journal.recovery.damages[0])
        active = journal.recovery.open_segment
        if active is not None and (active.frame_indexes or active.lost):
            journal.roll()
        segments = journal.sealed_segments()
        for segment in segments:
            try:
                ordered = compact(directory, segment, journal.config.frame_records)
            except OSError as error:
                raise JournalError(f"{directory}/{segment.name} cannot be compacted: {error.strerror}") from error
            if ordered.damages:
                with suppress(FileNotFoundError):
                    directory.remove(temporary_name(segment.number))
                raise JournalDamaged(ordered.damages[0])
            journal.install_compacted(ordered)
    return len(segments)
