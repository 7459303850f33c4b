"""Locks of the processes that copy a journal to object storage, which has none itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fyrehose_twisted.journal.errors import JournalError, JournalInUse
from fyrehose_twisted.journal.format.disk import EXPORT_LOCK_NAME, TIER_LOCK_NAME, LocalDirectory

_WORK = {TIER_LOCK_NAME: "moving segments of {}", EXPORT_LOCK_NAME: "exporting {}"}


@contextmanager
def lock_work(path: Path, name: str) -> Iterator[LocalDirectory]:
    """Lock the journal at ``path`` against other processes that do the same work; yield its directory.

    :param name: :data:`~fyrehose_twisted.journal.format.disk.TIER_LOCK_NAME` to move its segments, or
        :data:`~fyrehose_twisted.journal.format.disk.EXPORT_LOCK_NAME` to write its Parquet files.
    :raises JournalInUse: if another process does so.
    :raises JournalError: if it cannot be locked.
    """
    directory = LocalDirectory(path)
    try:
        lock = directory.lock(name)
    except BlockingIOError:
        raise JournalInUse(f"another process is {_WORK[name].format(path)} to object storage") from None
    except OSError as error:
        raise JournalError(f"{path} cannot be locked: {error.strerror}") from error
    with closing(lock):
        yield directory
