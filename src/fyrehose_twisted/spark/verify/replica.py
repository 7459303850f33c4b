"""Opening one of the journals that are compared."""

from __future__ import annotations

import os
from pathlib import Path

from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.remote.client import RemoteReader
from fyrehose_twisted.spark.source.journal_locations import JournalLocation, cached_reader, reader_reaching
from fyrehose_twisted.spark.verify.parts import Share

Reader = JournalReader | RemoteReader


class PastDamageReader(JournalReader):
    """Reads on where damage makes the watermark stand still, up to the last record that there is.

    What is neither held nor lost below that is damaged, or not repaired yet if somebody still writes to the journal.
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
"""Of this process, as :func:`~fyrehose_twisted.spark.source.journal_locations.cached_reader` keeps the others."""


def planned_reader(origin: JournalLocation, *, refresh: bool = False) -> tuple[Reader, bool]:
    """Return a reader, and whether it reads past damage.

    :param refresh: look first what has been written since.
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
    """Return a reader that goes as far as was planned.

    :raises JournalError: if the journal does not any more.
    """
    if share.bounds.first >= share.bounds.next:
        return cached_reader(share.location)  # It is asked for nothing.
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
            reader = _past_damage[key] = PastDamageReader(LocalDirectory(Path(origin.path)))
        except FileNotFoundError:
            raise JournalError(f"there is no journal in {origin.path} on this machine any more") from None
    return reader


def _all_bounds(reader: JournalReader) -> list[Bounds]:
    return [bounds for bounds in map(reader.bounds, reader.epochs()) if bounds is not None]


def _is_stalled(bounds: Bounds) -> bool:
    return bounds.last >= bounds.next
