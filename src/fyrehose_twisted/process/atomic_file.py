"""Atomic and durable replacement of files."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def replace_file(path: Path, content: bytes, temporary: Path | None = None, *, mode: int = 0o666) -> None:
    """Replace a file, or create it. The content is durable on return.

    :param temporary: file in the same directory that gets the content first; by default a hidden one.
    :param mode: mode of the file, reduced by the umask.
    :raises OSError: if that fails. The old file is then still in place, or already replaced but not surely durable.
    """
    temporary = temporary or path.with_name(f".{path.name}.{os.getpid()}.tmp")
    # Of an earlier process that died, or a link that another user planted.
    with suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
