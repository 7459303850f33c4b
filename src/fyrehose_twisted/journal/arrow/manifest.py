"""Manifest of the Parquet files of a stream, for reading them while more are written.

The manifest ``_manifest.json`` is beside the files; Parquet readers ignore such names. It is replaced
atomically once the files that it lists are complete and durable. Files marked ``final`` never change again. The last
file of an epoch may be replaced by a longer one at any time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.process.atomic_file import replace_file

MANIFEST_NAME = "_manifest.json"
VERSION = 1


class SealedFile(NamedTuple):
    """A Parquet file with one row for each number from ``first`` to ``last`` of an epoch."""

    name: str
    epoch: int
    first: int
    last: int
    bytes: int
    final: bool
    """Whether the file never changes again."""


class Manifest(NamedTuple):
    """Contents of a manifest."""

    stream: str
    tag: int | None
    """Tag of the journal from which the files were written."""
    files: tuple[SealedFile, ...]
    """Files in order of epochs and numbers."""


def read_manifest(directory: Path) -> Manifest | None:
    """Read the manifest of a stream; return ``None`` if there is none, as in directories of earlier releases.

    :raises JournalError: if it is invalid.
    """
    path, remedy = directory / MANIFEST_NAME, "`fyrehose journal seal` rewrites it"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error}; {remedy}") from None
    return decode_manifest(data, str(path), remedy)


def decode_manifest(data: bytes, where: str, remedy: str) -> Manifest:
    """Decode a manifest; ``where`` and ``remedy`` complete the messages.

    :raises JournalError: if it is invalid.
    """
    try:
        content: Any = json.loads(data)
    except ValueError as error:
        raise JournalError(f"{where} cannot be read: {error}; {remedy}") from None
    try:
        if content["version"] != VERSION:
            raise JournalError(f"{where} has unsupported version {content['version']}; expected {VERSION}")
        files = tuple(SealedFile(**{name: file[name] for name in SealedFile._fields}) for file in content["files"])
        tag = None if content["tag"] is None else int(content["tag"], 16)
        return Manifest(str(content["stream"]), tag, files)
    except (KeyError, TypeError, ValueError):
        raise JournalError(f"{where} is not a valid manifest; {remedy}") from None


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Replace the manifest atomically and durably.

    :raises OSError: if that fails. The old manifest is then still in place.
    """
    replace_file(directory / MANIFEST_NAME, encode_manifest(manifest), directory / f".{MANIFEST_NAME}.tmp")


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode a manifest as JSON."""
    content = {
        "version": VERSION,
        "stream": manifest.stream,
        "tag": None if manifest.tag is None else f"{manifest.tag:08x}",
        "files": [file._asdict() for file in manifest.files],
    }
    return json.dumps(content, indent=1).encode()
