"""Writer of the active segment of a journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EDQUOT, EFBIG, ENOSPC

import numpy as np

from fyrehose_twisted.effects import Datagram
from fyrehose_twisted.interfaces import IDirectory, IFile
from fyrehose_twisted.journal.catalog import Catalog
from fyrehose_twisted.journal.errors import JournalBroken, JournalError, JournalFull
from fyrehose_twisted.journal.format.frames import DENSE, HEADER, FramePosition, start_frame
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.format.segment_header import OPEN_SUFFIX, SegmentHeader, encode, segment_name
from fyrehose_twisted.journal.format.watermark import DurablePosition, latest_epochs, write_position
from fyrehose_twisted.journal.writing.group_frames import EncodedFrame

NO_SPACE_ERRNOS = (ENOSPC, EDQUOT, EFBIG)


class SegmentWriter:
    """Writer of the active segment of one journal, and of the durable position that readers see.

    :param position_file: file of the durable position.
    :param clock: returns UTC seconds since 1970.
    :ivar active: segment being written.
    :ivar failure: error after which nothing can be written; ``None`` if there was none.
    """

    def __init__(
        self,
        directory: IDirectory,
        catalog: Catalog,
        position_file: IFile,
        clock: Callable[[], float],
        *,
        resume: Segment | None,
        next_number: int,
    ) -> None:
        self.failure: BaseException | None = None
        self._directory = directory
        self._catalog = catalog
        self._position_file = position_file
        self._clock = clock
        self._unsynced = False
        if resume is None:
            self.active, self._file = self._create(next_number)
            catalog.segments[next_number] = self.active
        else:
            self.active = resume
            self._file = directory.open(resume.name, writable=True)
        self.publish_durable(lasting=True)

    @property
    def end_position(self) -> FramePosition:
        """Position of the next frame."""
        return FramePosition(self.active.number, self.active.end, self._catalog.tag)

    def check(self) -> None:
        """Check that the journal can be written. :raises JournalBroken: if not."""
        if self.failure is not None:
            raise JournalBroken(f"{self._directory} cannot be used any more: {self.failure}; reopen it")

    def write(self, frames: Sequence[EncodedFrame]) -> None:
        """Write frames at the end of the segment. They can then be read but are not durable.

        :raises JournalFull: if the disk is full. Nothing was written.
        """
        active, end = self.active, self.active.end
        self._unsynced = True
        self._put(end, frames[0].data if len(frames) == 1 else b"".join(frame.data for frame in frames))
        for header, data, positions in frames:
            if positions is None:
                active.add(header, memoryview(data)[HEADER.size :])
            else:
                active.add_records(header, None if header.flags & DENSE else np.array(positions, np.uint64))

    def sync(self) -> bool:
        """Make all writes durable and publish them to readers; return whether there were any.

        :raises JournalBroken: if the sync fails.
        """
        if not self._unsynced:
            return False
        try:
            self._file.sync()
            self.publish_durable()
        except OSError as error:
            raise self._mark_broken(error) from error
        return True

    def begin_segment(self, number: int) -> None:
        """Begin a new segment, given that all writes are durable."""
        try:
            active, file = self._create(number)
            self._file.close()
            self.active, self._file = active, file
            self._catalog.segments[number] = active
            self.publish_durable(lasting=True)
        except OSError as error:
            raise self.write_error(error) from error

    def publish_durable(self, *, lasting: bool = False) -> None:
        """Publish the durable position, given that all writes are durable.

        :param lasting: whether to sync the position file. Within a segment, an older position is sufficient.
        """
        catalog = self._catalog
        self._unsynced = False
        catalog.advance_watermarks()
        for epoch, position in catalog.watermarks.items():
            catalog.published_watermarks[epoch] = max(position, catalog.published_watermarks.get(epoch, 0))
        floors = latest_epochs(catalog.published_watermarks.items())
        write_position(self._position_file, DurablePosition(self.active.number, self.active.end, catalog.tag, floors))
        if lasting:
            self._position_file.sync()

    def sync_position(self) -> None:
        """Make the published position durable. :raises JournalBroken: if that fails."""
        try:
            self._position_file.sync()
        except OSError as error:
            raise self._mark_broken(error) from error

    def write_error(self, error: OSError) -> JournalError:
        """Return the error to raise after a failed write. Unless the disk is full, the journal must be reopened."""
        if error.errno in NO_SPACE_ERRNOS:
            return JournalFull(
                f"{self._directory} cannot be written: {error.strerror}; free disk space or reduce --retention"
            )
        return self._mark_broken(error)

    def close(self) -> None:
        """Close the files. Nothing can be written afterwards."""
        self.failure = self.failure or JournalError("it is closed")
        self._file.close()
        self._position_file.close()

    def _put(self, offset: int, data: Datagram) -> None:
        try:
            self._file.write(offset, data)
        except OSError as error:
            try:
                self._file.truncate(offset)
            except OSError:
                raise self._mark_broken(error) from error
            raise self.write_error(error) from error

    def _create(self, number: int) -> tuple[Segment, IFile]:
        catalog, created_at = self._catalog, int(self._clock() * 1_000_000)
        header = SegmentHeader(number, catalog.stream, catalog.wrap, created_at, catalog.tag)
        packed = encode(header)
        segment = Segment(self._directory, header._replace(length=len(packed)), OPEN_SUFFIX)
        # A segment must not depend on earlier segments, which retention may remove.
        starts = sorted({**catalog.expired_epochs, **catalog.starts}.items())
        frame, data = start_frame(FramePosition(number, segment.end, catalog.tag), starts)
        name = segment_name(number, OPEN_SUFFIX)
        file: IFile = self._directory.open(name, create=True)
        try:
            file.write(0, packed + data)
            file.sync()
            self._directory.sync()
        except BaseException:
            file.close()
            with suppress(OSError):
                self._directory.remove(name)
            raise
        segment.add(frame, memoryview(data)[HEADER.size :])
        return segment, file

    def _mark_broken(self, error: OSError) -> JournalBroken:
        self.failure = error
        return JournalBroken(f"{self._directory} cannot be written: {error.strerror}; reopen it")
