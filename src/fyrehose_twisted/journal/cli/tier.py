"""Command ``fyrehose journal tier``: moving of segments to object storage."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fyrehose_twisted.journal.format.disk import TIER_LOCK_NAME
from fyrehose_twisted.journal.tier.location import displayed, parse_tier_url
from fyrehose_twisted.journal.tier.locks import lock_work
from fyrehose_twisted.journal.tier.mover import SegmentMover
from fyrehose_twisted.journal.tier.objects import ArrowObjects, load_pyarrow_fs
from fyrehose_twisted.wording import pluralize


def move_segments(
    path: Path, tier: str, age: float, say: Callable[[str], object], warn: Callable[[str], object]
) -> bool:
    """Move the compacted segments of the journal in directory ``path``; return whether none had to stay.

    :param age: seconds since the last record of a segment.
    :raises ConfigurationError: if the URL is invalid, or pyarrow is not installed.
    :raises JournalError: if another process moves its segments, or the journal or the object storage fails.
    """
    tier = parse_tier_url(tier)
    load_pyarrow_fs()
    before = int((time.time() - age) * 1_000_000) if age else None
    with lock_work(path, TIER_LOCK_NAME) as directory:
        mover = SegmentMover(directory, ArrowObjects(), tier)
        report = mover.run(before, on_moved=lambda name: say(f"{path}: {name} moved"))
    for reason in report.skipped:
        warn(f"{path}: {reason}")
    say(
        f"{path}: {pluralize(len(report.moved), 'segment')} of {report.moved_bytes:,} bytes moved to {displayed(tier)},"
        f" {pluralize(report.removed, 'object')} removed"
    )
    return not report.skipped
