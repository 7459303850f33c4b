"""Disk of a simulated host, with the crash behaviour of a POSIX file system."""

from __future__ import annotations

import errno
from random import Random

from zope.interface import classImplements

from fyrehose_twisted._native import mypyc_attr
from fyrehose_twisted.interfaces import IDirectory
from fyrehose_twisted.sim.disk.open_file import DirectoryLock, OpenFile
from fyrehose_twisted.sim.disk.page_cache import DirectoryEntries, FileContent, PowerLossOutcome

SAME_OUTCOME_PROBABILITY = 0.5
"""Probability that a power failure has the same outcome for all files and the directory."""


@mypyc_attr(native_class=False)
class PowerCut(BaseException):
    """Power was lost during a disk operation. Simulated processes must not catch it."""


class DiskImpairment:
    """Impairment of a disk until :meth:`Disk.clear_impairment`.

    :ivar operation: impaired operation: ``reads``, ``syncs`` or ``room``.
    :ivar prefix: prefix of the names of affected files; only an empty prefix affects syncs of the directory.
    :ivar limit: capacity in bytes.
    """

    __slots__ = ("limit", "operation", "prefix")

    def __init__(self, operation: str, *, prefix: str = "", limit: int = 0) -> None:
        self.operation = operation
        self.prefix = prefix
        self.limit = limit


class Disk:
    """Disk of one host: one directory of files, a page cache, and injected faults.

    Writes are durable once synced; of the other writes, a random part survives :meth:`power_lost`. A file whose name
    was not synced may then be lost even if its content was synced. After a failed sync of the directory, the next sync
    makes its names durable; after a failed sync of a file, its writes are never made durable.

    Operations have a cost: 1 for each byte written and for each sync, truncation, creation, rename and removal.

    :param rng: random number generator for the outcome of power failures.
    :param capacity: capacity in bytes; ``None`` for no limit. Every byte before the end of a file counts, including
        zeros, and a removed file counts until its last handle is closed.
    :ivar power_cut_after: remaining cost until a power cut; ``None`` for no power cut. An operation that exceeds it
        raises :class:`PowerCut`: a write after the affordable bytes, any other operation before it takes effect. All
        later operations raise too, until :meth:`power_lost`, :meth:`process_killed` or :meth:`wipe`.
    :ivar spent: total cost so far. A test of cost n can cut power at each ``power_cut_after`` from 0 to n - 1.
    :ivar has_bit_rot: whether a durable bit has flipped.
    :ivar crash_count: number of crashes; files opened before a crash are invalid.
    """

    def __init__(self, rng: Random, *, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.power_cut_after: int | None = None
        self.spent = 0
        self.crash_count = 0
        self._rng = rng
        self._directory = DirectoryEntries()
        self._unlinked: list[FileContent] = []
        self._impairments: list[DiskImpairment] = []
        self._lock: DirectoryLock | None = None
        self._power_cut = False
        self.has_bit_rot = False

    def __str__(self) -> str:
        return "simulated disk"  # Errors of journals name their directory, and traces must not contain addresses.

    @property
    def used_bytes(self) -> int:
        """Bytes in use."""
        return sum(len(content.cached) for content in (*self._directory.cached.values(), *self._unlinked))

    # Operations of processes

    def names(self) -> list[str]:
        """See :class:`~fyrehose_twisted.interfaces.IDirectory`."""
        self.check_power()
        return sorted(self._directory.cached)

    def open(self, name: str, *, writable: bool = False, create: bool = False) -> OpenFile:
        """See :class:`~fyrehose_twisted.interfaces.IDirectory`. Raises :class:`OSError` (ENOSPC) on a full disk."""
        self.check_power()
        if not create:
            return OpenFile(self, name, self._lookup(name), writable=writable)
        _check_name(name)
        if name in self._directory.cached:
            raise FileExistsError(errno.EEXIST, "the file exists", name)
        limit = self._capacity_limit()
        if limit is not None and self.used_bytes >= limit:
            raise OSError(errno.ENOSPC, "the disk is full", name)
        self.spend_one()
        content = FileContent()
        self._directory.apply({name: content})
        return OpenFile(self, name, content, writable=True)

    def rename(self, old: str, new: str) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IDirectory`."""
        self.check_power()
        content, replaced = self._lookup(old), self._directory.cached.get(new)
        _check_name(new)
        self.spend_one()
        if old != new:
            self._directory.apply({old: None, new: content})
            self._unlink(replaced)

    def remove(self, name: str) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IDirectory`."""
        self.check_power()
        content = self._lookup(name)
        self.spend_one()
        self._directory.apply({name: None})
        self._unlink(content)

    def sync(self) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IDirectory`."""
        self.check_power()
        self.spend_one()
        if self.is_impaired("syncs", ""):
            raise OSError(errno.EIO, "a sync of the directory failed")
        self._directory.sync()

    def lock(self) -> DirectoryLock:
        """See :class:`~fyrehose_twisted.interfaces.IDirectory`."""
        self.check_power()
        if self._lock is not None:
            raise BlockingIOError(errno.EAGAIN, "another process holds the lock")
        self._lock = DirectoryLock(self)
        return self._lock

    # Faults

    def process_killed(self) -> None:
        """Close the files and the lock of a killed process. The durability of its writes does not change.

        A pending power cut stays pending.
        """
        if self._power_cut:
            self.power_cut_after = None
        self._power_cut = False
        self.crash_count += 1
        self._lock = None
        self._unlinked.clear()
        for content in self._directory.cached.values():
            content.open_handles = 0

    def power_lost(self) -> None:
        """Lose power: a random part of the unsynced changes survives. A pending power cut is cancelled."""
        self.power_cut_after = None
        self.process_killed()
        alike = PowerLossOutcome.draw(self._rng) if self._rng.random() < SAME_OUTCOME_PROBABILITY else None
        self._directory.lose_power(self._rng, alike or PowerLossOutcome.draw(self._rng))
        for _, content in sorted(self._directory.cached.items()):
            content.open_handles = 0  # A removed file may have reappeared.
            content.lose_power(self._rng, alike or PowerLossOutcome.draw(self._rng))

    def wipe(self) -> None:
        """Delete all files."""
        self.power_cut_after = None
        self.process_killed()
        self._directory = DirectoryEntries()
        self.has_bit_rot = False

    def fill(self) -> DiskImpairment:
        """Limit the capacity to the bytes in use."""
        return self._impair(DiskImpairment("room", limit=self.used_bytes))

    def fail_reads(self, prefix: str = "") -> DiskImpairment:
        """Make reads of files opened by a name with this prefix raise :class:`OSError` (EIO)."""
        return self._impair(DiskImpairment("reads", prefix=prefix))

    def fail_syncs(self, prefix: str = "") -> DiskImpairment:
        """Make syncs of files opened by a name with this prefix raise :class:`OSError` (EIO).

        Without a prefix, those of the directory do too.
        """
        return self._impair(DiskImpairment("syncs", prefix=prefix))

    def clear_impairment(self, impairment: DiskImpairment | None = None) -> None:
        """End one impairment, or all. Impairments that have ended are ignored."""
        self._impairments = [other for other in self._impairments if impairment is not None and other is not impairment]

    @property
    def durable(self) -> dict[str, bytes]:
        """Return the durable content of each file, in order of names."""
        return {name: bytes(content.durable) for name, content in sorted(self._directory.cached.items())}

    def flip_bits_at_fraction(self, fraction: float, mask: int) -> tuple[str, int] | None:
        """Flip bits of the durable byte at ``fraction`` (0 inclusive to 1 exclusive), with files in order of names.

        Return the file and the offset; ``None`` if nothing is durable.
        """
        sizes = {name: len(content.durable) for name, content in sorted(self._directory.cached.items())}
        position = int(fraction * sum(sizes.values()))
        for name, size in sizes.items():
            if position < size:
                self.flip_bits(name, position, mask)
                return name, position
            position -= size
        return None

    def flip_bits(self, name: str, offset: int, mask: int) -> None:
        """Flip bits of one durable byte. Readers see the change at once, unless the byte was overwritten since.

        :raises FileNotFoundError: if the file does not exist.
        :raises ValueError: if the byte is not durable, or no bit of it would change.
        """
        content = self._lookup(name)
        if not 0 <= offset < len(content.durable) or not 0 < mask < 256:
            raise ValueError(f"byte {offset} of {name} cannot rot by {mask}: {len(content.durable)} bytes are durable")
        content.flip_bits(offset, mask)
        self.has_bit_rot = True

    # Interface to open files

    def check_power(self) -> None:
        """Raise :class:`PowerCut` if the power is cut."""
        if self._power_cut:
            raise PowerCut("the power of this disk was cut")

    def spend(self, cost: int) -> int:
        """Return how much of ``cost`` can be done before the power cut."""
        paid = cost if self.power_cut_after is None else min(cost, self.power_cut_after)
        self.spent += paid
        if self.power_cut_after is not None:
            self.power_cut_after -= paid
        self._power_cut = paid < cost
        return paid

    def spend_one(self) -> None:
        """Account for an atomic operation, or raise :class:`PowerCut`."""
        self.spend(1)
        self.check_power()

    def size_limit(self, content: FileContent) -> int | None:
        """Return the maximum size of a file, at least its current size; ``None`` for no limit."""
        limit = self._capacity_limit()
        return None if limit is None else len(content.cached) + max(limit - self.used_bytes, 0)

    def is_impaired(self, operation: str, name: str) -> bool:
        """Return whether ``reads`` or ``syncs`` of a file fail. The name of the directory is empty."""
        return any(trouble.operation == operation and name.startswith(trouble.prefix) for trouble in self._impairments)

    def file_closed(self, content: FileContent) -> None:
        """Handle a closed file."""
        content.open_handles -= 1
        if not content.open_handles:
            self._unlinked = [other for other in self._unlinked if other is not content]

    def unlock(self, lock: DirectoryLock) -> None:
        """Handle a released lock."""
        if self._lock is lock:
            self._lock = None

    def _capacity_limit(self) -> int | None:
        limits = [trouble.limit for trouble in self._impairments if trouble.operation == "room"]
        return min([self.capacity, *limits] if self.capacity is not None else limits, default=None)

    def _impair(self, impairment: DiskImpairment) -> DiskImpairment:
        self._impairments.append(impairment)
        return impairment

    def _lookup(self, name: str) -> FileContent:
        try:
            return self._directory.cached[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", name) from None

    def _unlink(self, content: FileContent | None) -> None:
        """Unlink a file. Open handles stay valid."""
        if content is not None and content.open_handles:
            self._unlinked.append(content)


classImplements(Disk, IDirectory)


def _check_name(name: str) -> None:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise OSError(errno.EINVAL, "invalid file name", name)
