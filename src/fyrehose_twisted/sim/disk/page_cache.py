"""Page cache of a simulated disk: cached and durable content, and the outcome of a power failure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from random import Random
from typing import NamedTuple

SECTOR = 512
"""Sector size in bytes. Sectors are written atomically."""

SURVIVAL_PROBABILITIES = (0.1, 0.5, 0.9)
"""Survival probabilities of a sector in a partial outcome; one is drawn per file."""

EXTEND_PROBABILITY = 0.3
"""Probability that a lost write still extends the file in a partial outcome."""


class PowerLossOutcome(Enum):
    """Outcome of a power failure for changes since the last sync."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    LAST = "the last thing alone"
    FIRST = "what was done until some moment"
    SOME = "any part, in no order"

    @classmethod
    def draw(cls, rng: Random) -> PowerLossOutcome:
        """Draw an outcome uniformly."""
        return rng.choice(tuple(cls))


class FileWrite(NamedTuple):
    """Write of bytes to a file."""

    offset: int
    data: bytes

    @property
    def end(self) -> int:
        """End offset in the file."""
        return self.offset + len(self.data)

    def apply(self, content: bytearray) -> None:
        """Apply the write. A gap before it is filled with zeros."""
        FileExtend(self.offset).apply(content)
        content[self.offset : self.end] = self.data


class FileExtend(NamedTuple):
    """Extension of a file to a minimum size."""

    size: int

    def apply(self, content: bytearray) -> None:
        """Extend the file with zeros."""
        if self.size > len(content):
            content.extend(bytes(self.size - len(content)))


class FileTruncate(NamedTuple):
    """Change of the size of a file."""

    size: int

    def apply(self, content: bytearray) -> None:
        """Truncate the file, or extend it with zeros."""
        del content[self.size :]
        FileExtend(self.size).apply(content)


FileChange = FileWrite | FileExtend | FileTruncate


class FileContent:
    """Cached and durable content of one file.

    :ivar durable: content that survives any power failure.
    :ivar cached: content seen by readers.
    :ivar open_handles: number of open handles.
    """

    __slots__ = ("_pending", "cached", "durable", "open_handles")

    def __init__(self) -> None:
        self.durable = bytearray()
        self.cached = bytearray()
        self.open_handles = 0
        self._pending: list[FileChange] = []

    def copy(self) -> FileContent:
        """Return a copy that is not open."""
        copy = FileContent()
        copy.durable, copy.cached = bytearray(self.durable), bytearray(self.cached)
        copy._pending = list(self._pending)
        return copy

    def apply(self, change: FileWrite | FileTruncate) -> None:
        """Apply a change to the cache, durable after the next sync."""
        change.apply(self.cached)
        self._pending.append(change)

    def sync(self) -> None:
        """Make all changes durable."""
        for change in self._pending:
            change.apply(self.durable)
        self._pending.clear()

    def sync_failed(self) -> None:
        """Keep unsynced writes visible but never durable: after the error the kernel treats the pages as clean.

        The file size is metadata, which the next sync makes durable.
        """
        self._pending = [
            FileExtend(change.end) if isinstance(change, FileWrite) else change for change in self._pending
        ]

    def flip_bits(self, offset: int, mask: int) -> None:
        """Flip bits of one durable byte. Readers see the change unless the byte was overwritten since."""
        seen = offset < len(self.cached) and self.cached[offset] == self.durable[offset]
        self.durable[offset] ^= mask
        if seen and not any(_touches(change, offset) for change in self._pending):
            self.cached[offset] ^= mask

    def lose_power(self, rng: Random, outcome: PowerLossOutcome) -> None:
        """Lose power: some unsynced changes survive, and the others disappear for readers too."""
        for change in self._surviving(rng, outcome):
            change.apply(self.durable)
        self._pending.clear()
        self.cached = bytearray(self.durable)

    def _surviving(self, rng: Random, outcome: PowerLossOutcome) -> list[FileChange]:
        if outcome is PowerLossOutcome.NOTHING:
            return []
        if outcome is PowerLossOutcome.LAST:
            return self._pending[-1:]
        steps = [step for change in self._pending for step in _split_by_sector(change)]
        if outcome is PowerLossOutcome.EVERYTHING:
            return steps
        if outcome is PowerLossOutcome.FIRST:
            return steps[: rng.randint(0, len(steps))]
        keep = rng.choice(SURVIVAL_PROBABILITIES)
        surviving: list[FileChange] = []
        for step in steps:
            if rng.random() < keep:
                surviving.append(step)
            elif isinstance(step, FileWrite) and rng.random() < EXTEND_PROBABILITY:
                surviving.append(FileExtend(step.end))
        return surviving


class DirectoryEntries:
    """Cached and durable directory entries.

    :ivar durable: entries that survive any power failure.
    :ivar cached: entries seen by readers.
    """

    __slots__ = ("_pending", "cached", "durable")

    def __init__(self) -> None:
        self.durable: dict[str, FileContent] = {}
        self.cached: dict[str, FileContent] = {}
        self._pending: list[dict[str, FileContent | None]] = []

    def apply(self, change: dict[str, FileContent | None]) -> None:
        """Set directory entries; ``None`` removes a name."""
        _apply_rename(self.cached, change)
        self._pending.append(change)

    def sync(self) -> None:
        """Make all changes durable."""
        for change in self._pending:
            _apply_rename(self.durable, change)
        self._pending.clear()

    def lose_power(self, rng: Random, outcome: PowerLossOutcome) -> None:
        """Lose power: some unsynced changes survive.

        A renamed file keeps one of its names, or both; with both it becomes two separate files. A file without a name
        is lost.
        """
        for change in self._surviving(rng, outcome):
            _apply_rename(self.durable, change)
        self._pending.clear()
        files: list[FileContent] = []
        for name in sorted(self.durable):
            if any(content is self.durable[name] for content in files):
                self.durable[name] = self.durable[name].copy()
            files.append(self.durable[name])
        self.cached = dict(self.durable)

    def _surviving(self, rng: Random, outcome: PowerLossOutcome) -> list[dict[str, FileContent | None]]:
        pending = self._pending
        if outcome is PowerLossOutcome.NOTHING:
            return []
        if outcome is PowerLossOutcome.EVERYTHING:
            return pending
        if outcome is PowerLossOutcome.FIRST:
            return pending[: rng.randint(0, len(pending))]
        names = dict.fromkeys(name for change in pending for name in change)
        if outcome is PowerLossOutcome.LAST:
            reached = {name: len(pending) if name in pending[-1] else 0 for name in names}
        else:
            reached = {name: rng.randint(0, len(pending)) for name in names}
        self._keep_renamed(reached)
        return [
            {name: content for name, content in change.items() if number < reached[name]}
            for number, change in enumerate(pending)
        ]

    def _keep_renamed(self, reached: dict[str, int]) -> None:
        """Ensure that a renamed file never loses its old name without having the new one.

        :param reached: for each name, the number of leading changes that survive.
        """
        settled = False
        while not settled:
            settled = True
            for number, change in enumerate(self._pending):
                gained = [name for name, content in change.items() if content is not None]
                lost = [name for name, content in change.items() if content is None and number < reached[name]]
                if lost and gained and reached[gained[0]] <= number:
                    reached[gained[0]] = number + 1
                    settled = False


def _apply_rename(names: dict[str, FileContent], change: dict[str, FileContent | None]) -> None:
    for name, content in change.items():
        if content is None:
            names.pop(name, None)
        else:
            names[name] = content


def _split_by_sector(change: FileChange) -> Iterator[FileChange]:
    """Split a change into atomic parts."""
    if not isinstance(change, FileWrite):
        yield change
        return
    begin = change.offset
    while begin < change.end:
        end = min(begin - begin % SECTOR + SECTOR, change.end)
        yield FileWrite(begin, change.data[begin - change.offset : end - change.offset])
        begin = end


def _touches(change: FileChange, offset: int) -> bool:
    if isinstance(change, FileWrite):
        return change.offset <= offset < change.end
    return isinstance(change, FileTruncate) and change.size <= offset
