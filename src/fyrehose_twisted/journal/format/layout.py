"""Where the journals of several streams lie: a directory, and in it one for each stream."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote, unquote

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.format.segment_header import MAX_URI, segment_number

_STREAM = re.compile(r"([a-z][a-z0-9+.]*)://(.+)", re.DOTALL)
_DIRECTORY = re.compile(r"([a-z][a-z0-9+.]*)-(.+)")
MAX_NAME = 255
"""Bytes that a file system allows for a name."""


def directory_name(stream: str) -> str:
    """Return the name of a stream's directory: ``fyrehose-default`` for ``fyrehose://default``.

    :raises ConfigurationError: if ``stream`` is no URI of that form, or too long.
    """
    found = _STREAM.fullmatch(stream)
    if found is None:
        raise ConfigurationError(f"stream {stream!r} is not of the form fyrehose://NAME")
    name = f"{found[1]}-{quote(found[2], safe='')}"
    if len(name) > MAX_NAME or len(stream.encode()) > MAX_URI:
        raise ConfigurationError(
            f"stream {stream[:40]!r}… has too long a name: its directory would need {len(name)} bytes"
        )
    return name


def stream_from_directory(name: str) -> str | None:
    """Return the stream whose directory has this name, ``None`` if it is not one's."""
    found = _DIRECTORY.fullmatch(name)
    return f"{found[1]}://{unquote(found[2])}" if found else None


def journal_directories(path: Path) -> list[Path]:
    """Return ``path`` itself if it holds the journal of one stream, else those in it that do, sorted.

    :raises NotADirectoryError: if it is no directory.
    """
    if _holds_segments(path):
        return [path]
    return sorted(inside for inside in path.iterdir() if _may_be_journal(inside))


def make_directory(root: Path, stream: str) -> Path:
    """Return the directory of a stream, made if need be; ``root`` has to exist."""
    path = root / directory_name(stream)
    if not path.is_dir():
        path.mkdir(mode=0o750, exist_ok=True)
        descriptor = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return path


def _may_be_journal(path: Path) -> bool:
    try:
        return path.is_dir() and _holds_segments(path)
    except OSError:
        # A journal that cannot be looked into is told of by whoever opens it; lost+found is nobody's business.
        return stream_from_directory(path.name) is not None


def _holds_segments(path: Path) -> bool:
    return any(segment_number(name) is not None for name in os.listdir(path))
