"""Which Parquet files hold a stream, so that they can be read while more are written.

A manifest, ``_manifest.json``, lies beside the files of a stream; programs that read Parquet pass over such names. It
is replaced as a whole, when a file that it names is complete and durable. Files that it calls ``final`` are never
touched again; the last of an epoch may be replaced by a longer one at any time.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from fyrehose_twisted.journal.errors import JournalError

MANIFEST_NAME = "_manifest.json"
VERSION = 1


class SealedFile(NamedTuple):
    """A Parquet file: all from ``first`` to ``last`` of an epoch, a row each."""

    name: str
    epoch: int
    first: int
    last: int
    bytes: int
    final: bool
    """It is never touched again."""


class Manifest(NamedTuple):
    """What a manifest says."""

    stream: str
    tag: int | None
    """Of the journal that was written to these files."""
    files: tuple[SealedFile, ...]
    """In order of epochs and numbers."""


def read_manifest(directory: Path) -> Manifest | None:
    """Return the manifest of one stream's files; ``None`` if there is none, as in directories of earlier releases.

    :raises JournalError: if it makes no sense.
    """
    path = directory / MANIFEST_NAME
    try:
        said: Any = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise JournalError(f"{path} cannot be read: {error}; `fyrehose journal seal` writes another") from None
    try:
        if said["version"] != VERSION:
            raise JournalError(f"{path} is of version {said['version']}, and this is made for version {VERSION}")
        files = tuple(SealedFile(**{name: one[name] for name in SealedFile._fields}) for one in said["files"])
        tag = None if said["tag"] is None else int(said["tag"], 16)
        return Manifest(str(said["stream"]), tag, files)
    except (KeyError, TypeError, ValueError):
        raise JournalError(f"{path} is no manifest; `fyrehose journal seal` writes another") from None


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Put a manifest in the place of the one that is there, durably.

    :raises OSError: if that fails; then the old one is there.
    """
    said = {
        "version": VERSION,
        "stream": manifest.stream,
        "tag": None if manifest.tag is None else f"{manifest.tag:08x}",
        "files": [file._asdict() for file in manifest.files],
    }
    temporary = directory / f".{MANIFEST_NAME}.tmp"
    with open(temporary, "w", encoding="utf-8") as output:
        json.dump(said, output, indent=1)
        output.flush()
        os.fsync(output.fileno())
    os.replace(temporary, directory / MANIFEST_NAME)
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
