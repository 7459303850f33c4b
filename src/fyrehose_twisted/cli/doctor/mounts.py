"""Mounted file systems."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

MOUNTS = Path("/proc/self/mountinfo")


class Mount(NamedTuple):
    """A mounted file system.

    :ivar kind: its type, such as ``ext4``.
    """

    point: Path
    kind: str


def parse_mounts(mountinfo: str) -> list[Mount]:
    """Parse ``/proc/self/mountinfo``; malformed lines are skipped."""
    found = []
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if separator and len(left) > 4 and right[0]:
            found.append(Mount(Path(_unescape(left[4])), right[0]))
    return found


def find_mount(path: Path, mounts: Sequence[Mount]) -> Mount | None:
    """Return the mount of ``path``, which is absolute and without links: the last of several at the same point.

    ``None`` if nothing is mounted above it.
    """
    best: Mount | None = None
    for mount in mounts:
        if path.is_relative_to(mount.point) and (best is None or len(mount.point.parts) >= len(best.point.parts)):
            best = mount
    return best


def read_mounts() -> list[Mount]:
    """Return the mounts visible to this process. :raises OSError: if they are unavailable."""
    return parse_mounts(MOUNTS.read_text(encoding="utf-8", errors="surrogateescape"))


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)
