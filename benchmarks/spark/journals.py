"""Journals to read: records of one stream, with losses that differ between replicas."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from random import Random

from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.layout import make_directory
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.journal.upkeep.seal import seal
from fyrehose_twisted.process.progress import ProgressBar
from fyrehose_twisted.record import Record

STREAM = "fyrehose://bench"
START = 1_700_000_000_000_000
GROUP = 4_096
LOST_ONE_IN = 100_003
"""One in this many numbers is lost in a replica."""
NOISE_BYTES = 2**24
"""Bytes from which payloads are cut, at positions that do not repeat soon: Parquet would store a few thousand payloads
once each, in a dictionary."""


def write(root: Path, last: int, size: int, lost_from: int = 0, first: int = 1, noise: float = 1.0) -> Path:
    """Write numbers ``first`` to ``last``, seal the journal, and return its directory.

    :param lost_from: the first number that is lost; 0 for no losses.
    :param noise: share of each payload that does not compress.
    """
    root.mkdir(exist_ok=True)
    path = make_directory(root, STREAM)
    data = Random(1).randbytes(NOISE_BYTES)
    lost = range(lost_from, last + 1, LOST_ONE_IN) if lost_from else range(0)
    length = round(size * noise)
    span, rest = len(data) - length, bytes(size - length)
    with closing(Journal(LocalDirectory(path), STREAM)) as journal:
        if first == 1:
            journal.begin(0, 1)
        for low in ProgressBar(range(first, last + 1, GROUP), unit=" groups", desc=f"write {root.name}", leave=False):
            group = range(low, min(low + GROUP, last + 1))
            journal.append(
                [
                    Record(STREAM, 0, one, START + one * 10, data[one * 131 % span : one * 131 % span + length] + rest)
                    for one in group
                    if one not in lost
                ]
            )
            for one in lost:
                if group.start <= one < group.stop:
                    journal.lose(0, one, one)
            journal.commit(sync=False)
        journal.commit()
    seal(LocalDirectory(path), STREAM, 0)
    return path


def is_lost(number: int, lost_from: int) -> bool:
    """Return whether :func:`write` leaves out a number."""
    return number >= lost_from and (number - lost_from) % LOST_ONE_IN == 0
