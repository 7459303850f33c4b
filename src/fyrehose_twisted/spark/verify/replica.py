"""Readers of the journals to compare."""

from __future__ import annotations

import os
from pathlib import Path

from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.remote.client import RemoteReader
from fyrehose_twisted.journal.tier.directory import open_directory
from fyrehose_twisted.spark.source.journal_locations import JournalLocation, cached_reader, reader_reaching
from fyrehose_twisted.spark.verify.parts import Share

Reader = JournalReader | RemoteReader


class PastDamageReader(JournalReader):
    """Reader that continues past damage that holds back the watermark, up to the last record.

    Numbers below that record that are neither held nor lost are damaged, or, in a journal still being written, not
    repaired yet.
    """

    def _load_once(self, found: dict[str, Segment], *, last: bool) -> bool:
        if not super()._load_once(found, last=last):
            return False
        for epoch in self._catalog.epochs():
            bounds = self._catalog.bounds(epoch)
            assert bounds is not None, epoch
            self._catalog.watermarks[epoch] = max(bounds.next, bounds.last + 1)
        return True


_past_damage: dict[tuple[int, JournalLocation], PastDamageReader] = {}
"""Readers by process; :func:`~fyrehose_twisted.spark.source.journal_locations.cached_reader` caches the others."""


def planned_reader(origin: JournalLocation, *, refresh: bool = False) -> tuple[Reader, bool]:
    """Return a reader and whether it reads past damage.

    :param refresh: refresh the reader first.
    :raises JournalError: if the journal cannot be read.
    """
    reader = cached_reader(origin)
    if refresh:
        reader.refresh()
    if not (isinstance(reader, JournalReader) and reader.damages and any(map(_is_stalled, _all_bounds(reader)))):
        return reader, False
    further = _reader_past_damage(origin)
    if refresh:
        further.refresh()
    return further, True


def share_reader(share: Share, epoch: int) -> Reader:
    """Return a reader that reaches the planned end of a share.

    :raises JournalError: if the journal no longer reaches that end.
    """
    if share.bounds.first >= share.bounds.next:
        return cached_reader(share.location)  # Nothing will be read from it.
    if not share.past_damage:
        return reader_reaching(share.location, epoch, share.bounds.next)
    return _reader_past_damage(share.location)


def _reader_past_damage(origin: JournalLocation) -> PastDamageReader:
    assert origin.path is not None, origin
    key = os.getpid(), origin
    reader = _past_damage.get(key)
    if reader is None:
        for other in [known for known in _past_damage if known[0] != key[0]]:
            del _past_damage[other]
        try:
            reader = _past_damage[key] = PastDamageReader(open_directory(Path(origin.path)))
        except FileNotFoundError:
            raise JournalError(f"the journal in {origin.path} is gone on this machine") from None
    return reader


def _all_bounds(reader: JournalReader) -> list[Bounds]:
    return [bounds for bounds in map(reader.bounds, reader.epochs()) if bounds is not None]


def _is_stalled(bounds: Bounds) -> bool:
    return bounds.last >= bounds.next
