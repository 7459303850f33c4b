"""Directory layout of the journals of several streams: one subdirectory for each stream."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote, unquote

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.format.segment_header import MAX_URI, stored_segment
from fyrehose_twisted.process.atomic_file import sync_directory

_STREAM = re.compile(r"([a-z][a-z0-9+.]*)://(.+)", re.DOTALL)
_DIRECTORY = re.compile(r"([a-z][a-z0-9+.]*)-(.+)")
MAX_NAME = 255
"""Bytes that file systems allow for a file name."""


def directory_name(stream: str) -> str:
    """Return the directory name of a stream: ``fyrehose-default`` for ``fyrehose://default``.

    :raises ConfigurationError: if ``stream`` is not a URI of that form, or is too long.
    """
    found = _STREAM.fullmatch(stream)
    if found is None:
        raise ConfigurationError(f"stream {stream!r} must have the form fyrehose://NAME")
    name = f"{found[1]}-{quote(found[2], safe='')}"
    if len(name) > MAX_NAME or len(stream.encode()) > MAX_URI:
        raise ConfigurationError(
            f"stream {stream[:40]!r}… has too long a name: its directory name would have {len(name)} bytes"
        )
    return name


def stream_from_directory(name: str) -> str | None:
    """Return the stream URI for a directory name, or ``None`` if it is not the directory of a stream."""
    found = _DIRECTORY.fullmatch(name)
    return f"{found[1]}://{unquote(found[2])}" if found else None


def journal_directories(path: Path) -> list[Path]:
    """Return ``path`` itself if it is a journal, otherwise its subdirectories that are journals, sorted.

    :raises NotADirectoryError: if ``path`` is not a directory.
    """
    if _holds_segments(path):
        return [path]
    return sorted(child for child in path.iterdir() if _may_be_journal(child))


def make_directory(root: Path, stream: str) -> Path:
    """Return the directory of a stream, creating it if needed. ``root`` must exist."""
    path = root / directory_name(stream)
    if not path.is_dir():
        path.mkdir(mode=0o750, exist_ok=True)
        sync_directory(root)
    return path


def _may_be_journal(path: Path) -> bool:
    try:
        return path.is_dir() and _holds_segments(path)
    except OSError:
        # An unreadable journal is reported when it is opened. Other unreadable directories (lost+found) are ignored.
        return stream_from_directory(path.name) is not None


def _holds_segments(path: Path) -> bool:
    names = os.listdir(path)
    # All segments of a journal that is not being written may be in object storage.
    return any(map(stored_segment, names))
