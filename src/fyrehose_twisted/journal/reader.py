"""Reading a journal while another process writes it: only what is durable, and only up to the watermark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from zope.interface import implementer

from fyrehose_twisted.interfaces import IDirectory, IJournalReader
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.catalog import Catalog, Stored
from fyrehose_twisted.journal.contents import Bounds
from fyrehose_twisted.journal.disk import LocalDirectory
from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.journal.loading import Opened, files_of, load, open_segment, same_journal
from fyrehose_twisted.journal.mark import Mark, read_mark
from fyrehose_twisted.journal.scan import Damage
from fyrehose_twisted.journal.segment import Segment
from fyrehose_twisted.journal.segment_header import segment_name
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.record import Record

TRIES = 10
"""How often the list of files may change while it is read."""


@implementer(IJournalReader)
class JournalReader:
    """See :class:`~fyrehose_twisted.interfaces.IJournalReader`. It needs no lock and changes nothing.

    What it gives stays the same for ever, but for retention: a range below the watermark reads the same each time.

    :param directory: where the files of the journal are.
    :ivar damages: what was found that is damaged.
    :raises JournalError: if there is no journal there, or it cannot be read.
    """

    def __init__(self, directory: IDirectory) -> None:
        self.directory = directory
        self.damages: list[Damage] = []
        self._mark: Mark | None = None
        self._suffixes: dict[int, str] = {}
        self._catalog = _Following(self, directory, "", 0, 0)
        self._load()
        if not self._catalog.stream:
            raise JournalError(f"{directory} holds no journal that can be read")

    @property
    def stream(self) -> str:
        """URI of the stream."""
        return self._catalog.stream

    @property
    def wrap(self) -> int:
        """How many sequence numbers there are before they begin anew; 0 if they never do."""
        return self._catalog.wrap

    @property
    def segments(self) -> list[Segment]:
        """The segments of the journal, as far as they are durable."""
        return list(self._catalog.segments.values())

    @property
    def state(self) -> object:
        """What changes whenever something was written, or dropped."""
        return self._mark, tuple(self._suffixes.items())

    @property
    def tag(self) -> int:
        """The journal's own number, which no other that lies there later has."""
        return self._catalog.tag

    def keep_open(self, files: int) -> None:
        """Keep at most so many files open."""
        self._catalog.open_files = files

    def known(self, epoch: int) -> tuple[RangeSet, RangeSet]:
        """Return what of an epoch is held, and what is declared lost, also beyond the watermark; not to be changed."""
        return self._catalog.held.get(epoch) or RangeSet(), self._catalog.lost.get(epoch) or RangeSet()

    def refresh(self) -> bool:
        """Look what has been written since; say whether anything has changed."""
        mark = read_mark(self.directory)
        if mark == self._mark and mark is not None:
            return False
        self._load()
        return True

    def epochs(self) -> list[int]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.epochs`."""
        return self._catalog.epochs()

    def bounds(self, epoch: int) -> Bounds | None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.bounds`."""
        return self._catalog.bounds(epoch)

    def read(
        self,
        epoch: int,
        first: int,
        last: int,
        on_damage: Callable[[Damage], object] | None = None,
        since: int = 0,
        *,
        heads: bool = False,
    ) -> Iterator[Block]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalReader.read`; nothing beyond the watermark.

        :param since: see :meth:`~fyrehose_twisted.journal.catalog.Catalog.read`; ``heads`` as well.
        """
        last = min(last, self._catalog.nexts.get(epoch, 0) - 1)
        return self._catalog.read(epoch, first, last, on_damage, since, heads=heads)

    def stored(
        self, epoch: int, first: int, last: int, on_damage: Callable[[Damage], object] | None = None
    ) -> Iterator[list[Stored]]:
        """Return what stands in the segments, a list for each stretch of positions, ascending.

        The blocks of one list may overlap, and a position may be in several: the last of them is what :meth:`read`
        gives, and the others are what it replaced.

        :param on_damage: as for :meth:`read`, and so is what is raised.
        """
        return self._catalog.stored(epoch, first, min(last, self._catalog.nexts.get(epoch, 0) - 1), on_damage)

    def get(self, epoch: int, position: int) -> Record | None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalReader.get`; nothing beyond the watermark."""
        return self._catalog.get(epoch, position) if position < self._catalog.nexts.get(epoch, 0) else None

    def held(self, epoch: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.held`; nothing beyond the watermark."""
        return self._catalog.parts_held(epoch, first, min(last, self._catalog.nexts.get(epoch, 0) - 1))

    def losses(self, epoch: int, first: int, last: int) -> list[tuple[int, int]]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.losses`; nothing beyond the watermark."""
        return self._catalog.losses(epoch, first, min(last, self._catalog.nexts.get(epoch, 0) - 1))

    def close(self) -> None:
        """Let go of all files."""
        self._catalog.close()

    def _load(self) -> None:
        found: dict[str, Segment] = {}
        tries = TRIES
        while tries:
            before = len(found)
            try:
                self._load_once(found)
                return
            except FileNotFoundError:  # A segment was written anew, or retention took it.
                tries = TRIES if len(found) > before else tries - 1
            except OSError as error:
                raise JournalError(f"{self.directory} cannot be read: {error.strerror}") from error
        raise JournalError(f"{self.directory} changes faster than it can be read")

    def _list(self) -> dict[int, str]:
        """Return the suffix of each segment's file.

        A list that is made while a file gets its new name can have neither name; two that agree cannot lack the same.
        """
        suffixes = files_of(self.directory.names())
        for _ in range(TRIES):
            before, suffixes = suffixes, files_of(self.directory.names())
            if before.keys() == suffixes.keys():
                return suffixes
        raise FileNotFoundError("the list of segments changes all the time")

    def _load_once(self, found: dict[str, Segment]) -> None:
        catalog = self._catalog
        mark = read_mark(self.directory)  # First: what it speaks of is there by now.
        suffixes = self._list()
        durable = max(suffixes, default=0) - 1 if mark is None else mark.segment
        segments: dict[int, Segment] = {}
        damages: list[Damage] = []
        for number, suffix in suffixes.items():
            known = catalog.segments.get(number)
            if number > durable and suffix == ".log":
                continue  # It is only being made.
            if known is None or known.suffix != suffix:
                known = found.get(segment_name(number, suffix))
            if known is None:
                one = open_segment(self.directory, number, suffix)
                if not isinstance(one, Opened):
                    damages.append(one)
                    continue
                known = one.segment
                if mark is None or number != mark.segment or known.ordered:
                    load(one, keep_index=False)
                one.file.close()
                found[known.name] = known
            segments[number] = known
        header = same_journal(segments.values(), self.directory)
        if header is not None:
            catalog.stream, catalog.wrap, catalog.tag = header.stream, header.wrap, header.tag
        for number, segment in segments.items():
            if not segment.ordered:
                self._read_on(segment, mark if mark is not None and mark.segment == number else None)
            damages += segment.damages
        for number, segment in catalog.segments.items():
            if segments.get(number) is not segment:
                catalog.let_go(segment.name)
        self._mark, self._suffixes, self.damages = mark, suffixes, damages
        catalog.segments = segments
        catalog.unite()
        catalog.settle()

    def _read_on(self, segment: Segment, mark: Mark | None) -> None:
        file = self._catalog.file_of(segment)
        size = file.size()
        end = size if mark is None else min(size, mark.offset)
        if mark is not None and mark.tag != segment.header.tag:
            return  # It is another journal's, and says nothing of this one.
        if end > segment.end:
            segment.read_on(file, end)


class _Following(Catalog):
    """The catalog of a journal that another process writes."""

    def __init__(self, reader: JournalReader, directory: IDirectory, stream: str, wrap: int, tag: int) -> None:
        super().__init__(directory, stream, wrap, tag)
        self._reader = reader

    def moved(self, segment: Segment) -> None:
        """See :meth:`~fyrehose_twisted.journal.catalog.Catalog.moved`."""
        self._reader._load()
        if self.segments.get(segment.number) is segment:
            super().moved(segment)


def open_reader(path: Path) -> JournalReader:
    """Return a reader of the journal whose files lie in directory ``path``.

    :raises JournalError: if there is none, or it cannot be read.
    """
    return JournalReader(LocalDirectory(path))
