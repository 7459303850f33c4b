"""Places of the Parquet files of a stream: a local directory, or a prefix of object storage."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Protocol

from fyrehose_twisted.journal.arrow.manifest import (
    MANIFEST_NAME,
    Manifest,
    SealedFile,
    decode_manifest,
    encode_manifest,
    read_manifest,
    write_manifest,
)
from fyrehose_twisted.journal.errors import JournalError, JournalInUse, TierError
from fyrehose_twisted.journal.format.layout import directory_name
from fyrehose_twisted.journal.tier.entry import BLOCK_BYTES, ContentDigest
from fyrehose_twisted.journal.tier.location import displayed, object_url, parse_tier_url
from fyrehose_twisted.journal.tier.objects import ArrowObjects, Objects
from fyrehose_twisted.journal.tier.read_back import reads_back
from fyrehose_twisted.process.atomic_file import sync_directory

_LOCK = ".lock"
_READS = 3
"""Reads of a manifest in object storage that may be replaced meanwhile."""


class Destination(Protocol):
    """Place of the Parquet files of one stream.

    :ivar complete_names_only: whether each file with a name is complete, so that names can stand for a lost manifest.
    """

    complete_names_only: bool

    def lock(self) -> AbstractContextManager[None]:
        """Exclude other exports. :raises JournalInUse: if another process exports to the same place."""

    def read_manifest(self) -> Manifest | None:
        """Return the manifest; ``None`` if there is none. :raises JournalError: if it is invalid or cannot be read."""

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest atomically and durably."""

    def names(self) -> list[str]:
        """Return the names of the complete files; in object storage, according to the manifest read or written last."""

    def leftovers(self) -> list[str]:
        """Return the names of the files of which it is not known whether they are complete."""

    def size(self, name: str) -> int:
        """Return the bytes of a complete file."""

    def holds(self, file: SealedFile) -> bool:
        """Return whether a file of the manifest is there. :raises TierError: if it is another one."""

    def write(self, name: str, write: Callable[[IO[bytes]], int]) -> int:
        """Call ``write`` with a file, and store what it has written, as a whole; return what it returns."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def label(self, name: str = "") -> str:
        """Return the path or URL of a file for messages, or that of all files."""


def open_destination(out: Path | str, stream: str, objects: Objects | None = None) -> Destination:
    """Return the place of the Parquet files of a stream below a directory or URL.

    :param objects: access to object storage; by default, through pyarrow.
    :raises ConfigurationError: if the URL is invalid or has credentials.
    """
    if not is_url(out):
        return LocalDestination(Path(out) / directory_name(stream))
    objects = ArrowObjects() if objects is None else objects
    return ObjectDestination(objects, object_url(parse_tier_url(str(out)), directory_name(stream)))


def is_url(out: Path | str) -> bool:
    """Return whether Parquet files are in object storage."""
    return not isinstance(out, Path) and "://" in out


class LocalDestination:
    """Directory of the local file system. Files get their names once they are complete and durable."""

    complete_names_only = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def lock(self) -> Iterator[None]:
        """See :class:`Destination`."""
        self._directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise JournalInUse(
                f"{self._directory} is in use by another process that writes Parquet files there"
            ) from None
        finally:
            os.close(descriptor)

    def read_manifest(self) -> Manifest | None:
        """See :class:`Destination`."""
        return read_manifest(self._directory)

    def write_manifest(self, manifest: Manifest) -> None:
        """See :class:`Destination`."""
        write_manifest(self._directory, manifest)

    def names(self) -> list[str]:
        """See :class:`Destination`."""
        return os.listdir(self._directory) if self._directory.is_dir() else []

    def leftovers(self) -> list[str]:
        """See :class:`Destination`."""
        return []

    def size(self, name: str) -> int:
        """See :class:`Destination`."""
        return (self._directory / name).stat().st_size

    def holds(self, file: SealedFile) -> bool:
        """See :class:`Destination`."""
        return (self._directory / file.name).exists()

    def write(self, name: str, write: Callable[[IO[bytes]], int]) -> int:
        """See :class:`Destination`."""
        temporary = self._directory / f".{name}.tmp"  # Spark and similar readers ignore such names.
        with open(temporary, "wb") as output:
            result = write(output)
            output.flush()
            os.fsync(output.fileno())
        os.rename(temporary, self._directory / name)
        sync_directory(self._directory)
        return result

    def remove(self, name: str) -> None:
        """See :class:`Destination`."""
        os.unlink(self._directory / name)
        sync_directory(self._directory)

    def label(self, name: str = "") -> str:
        """See :class:`Destination`."""
        return str(self._directory / name)


class ObjectDestination:
    """Prefix of object storage.

    Only files of the manifest count as complete. A file is uploaded and read back before it gets into the manifest, so
    an upload that was interrupted or altered is never taken for a file.

    :param url: URL of the files of one stream.
    """

    complete_names_only = False

    def __init__(self, objects: Objects, url: str) -> None:
        self._objects = objects
        self._url = url
        self._complete: dict[str, int] = {}
        self._listed: dict[str, int] | None = None

    def lock(self) -> AbstractContextManager[None]:
        """Do nothing: object storage has no locks. See :func:`~fyrehose_twisted.journal.tier.locks.lock_work`."""
        return nullcontext()

    def read_manifest(self) -> Manifest | None:
        """See :class:`Destination`."""
        self._complete, self._listed = {}, None
        if MANIFEST_NAME not in self._objects.sizes(self._url):
            return None
        remedy = "restore an earlier version of the object, or remove it to export all that the journal has again"
        for reads_left in reversed(range(_READS)):
            reader = self._objects.open(self._url_of(MANIFEST_NAME))
            data = reader.read(0, reader.size())
            try:
                manifest = decode_manifest(data, f"object {self.label(MANIFEST_NAME)}", remedy)
                break
            except JournalError:
                if not reads_left:
                    raise
        self._complete = {file.name: file.bytes for file in manifest.files}
        return manifest

    def write_manifest(self, manifest: Manifest) -> None:
        """See :class:`Destination`."""
        data = encode_manifest(manifest)
        self._store(MANIFEST_NAME, lambda: iter([data]))

    def names(self) -> list[str]:
        """See :class:`Destination`."""
        return list(self._complete)

    def leftovers(self) -> list[str]:
        """See :class:`Destination`."""
        return [name for name in self._objects.sizes(self._url) if name not in self._complete]

    def size(self, name: str) -> int:
        """See :class:`Destination`."""
        return self._complete[name]

    def holds(self, file: SealedFile) -> bool:
        """See :class:`Destination`."""
        if self._listed is None:  # After the manifest was read: what it names has been there by then.
            self._listed = self._objects.sizes(self._url)
        found = self._listed.get(file.name)
        if found not in (None, file.bytes):
            raise TierError(
                f"object {self.label(file.name)} is not the file that was verified:"
                f" it has {found:,} bytes instead of {file.bytes:,}"
            )
        return found is not None

    def write(self, name: str, write: Callable[[IO[bytes]], int]) -> int:
        """See :class:`Destination`."""
        # An upload cannot be cancelled, and a file that cannot be completed must not get its name.
        with TemporaryFile() as staged:
            result = write(staged)

            def pieces() -> Iterator[bytes]:
                staged.seek(0)
                return iter(lambda: staged.read(BLOCK_BYTES), b"")

            try:
                self._complete[name] = self._store(name, pieces)
            except TierError:
                with suppress(TierError):
                    self._objects.remove(self._url_of(name))
                raise
        return result

    def remove(self, name: str) -> None:
        """See :class:`Destination`."""
        self._objects.remove(self._url_of(name))
        self._complete.pop(name, None)

    def label(self, name: str = "") -> str:
        """See :class:`Destination`."""
        return displayed(self._url_of(name) if name else self._url)

    def _store(self, name: str, pieces: Callable[[], Iterator[bytes]]) -> int:
        """Upload a file and read it back; return its size."""
        content, url = ContentDigest(), self._url_of(name)
        for piece in pieces():
            content.add(piece)
        self._objects.replace(url, pieces())
        if not reads_back(self._objects, url, content.size, content.hexdigest()):
            raise TierError(f"object {displayed(url)} does not read back as it was written")
        return content.size

    def _url_of(self, name: str) -> str:
        return object_url(self._url, name)
