"""Objects in storage that pyarrow or fsspec can reach."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.errors import TierError
from fyrehose_twisted.journal.tier.location import displayed, object_path
from fyrehose_twisted.process.atomic_file import sync_directory

CONNECT_TIMEOUT, REQUEST_TIMEOUT, ATTEMPTS = 5.0, 30.0, 3
"""Limits of one S3 request: seconds to connect, seconds without data, and attempts."""

_LONGEST_REASON = 300


class ObjectReader(Protocol):
    """One object, open for reading."""

    def size(self) -> int:
        """Return its size in bytes. :raises TierError: if it cannot be read."""

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes, fewer only at the end. :raises TierError: if they cannot be read."""


class Objects(Protocol):
    """Object storage. Objects are named by URL; only :meth:`replace` changes one."""

    def open(self, url: str) -> ObjectReader:
        """Open an object for reading. :raises TierError: if it is missing or cannot be read."""

    def write(self, url: str, pieces: Iterable[bytes]) -> None:
        """Create an object. If this fails, there may be an incomplete one. :raises TierError: if it fails."""

    def replace(self, url: str, pieces: Iterable[bytes]) -> None:
        """Create or replace an object. Readers see the old or the new one. :raises TierError: if it fails."""

    def sizes(self, url: str) -> dict[str, int]:
        """Return names and sizes of the objects directly below ``url``. :raises TierError: if they cannot be listed."""

    def remove(self, url: str) -> None:
        """Remove an object, if it exists. :raises TierError: if it cannot be removed."""


class ArrowObjects:
    """Object storage reached through pyarrow, or through fsspec for a scheme such as ``fsspec+sftp``.

    Each process makes its own clients: those of the parent do not work after a fork, as in a worker of Spark.
    """

    def __init__(self) -> None:
        self._file_systems: dict[tuple[int, str, str, str], Any] = {}

    def open(self, url: str) -> ObjectReader:
        """See :class:`Objects`."""
        try:
            return _ArrowReader(url, self._file_system(url).open_input_file(object_path(url)))
        except FileNotFoundError:
            raise TierError(f"object {displayed(url)} is missing, although it was written there") from None
        except OSError as error:
            raise _unreadable(url, error) from error

    def write(self, url: str, pieces: Iterable[bytes]) -> None:
        """See :class:`Objects`."""
        path = object_path(url)
        try:
            file_system = self._file_system(url)
            if urlsplit(url).scheme in ("file", "fsspec+file"):  # Object storage has no directories.
                file_system.create_dir(str(Path(path).parent), recursive=True)
            with file_system.open_output_stream(path) as stream:
                for piece in pieces:
                    stream.write(piece)
            if urlsplit(url).scheme == "file":
                _sync_file(path)
        except OSError as error:
            raise TierError(f"object {displayed(url)} cannot be written: {_reason(error)}") from error

    def replace(self, url: str, pieces: Iterable[bytes]) -> None:
        """See :class:`Objects`. A scheme of fsspec is as atomic as its file system."""
        if urlsplit(url).scheme == "file":
            place, _, name = url.rpartition("/")
            temporary = f"{place}/.{name}.tmp"  # Readers of Parquet ignore such names.
            self.write(temporary, pieces)
            try:
                os.replace(object_path(temporary), object_path(url))
                sync_directory(Path(object_path(url)).parent)
            except OSError as error:
                raise TierError(f"object {displayed(url)} cannot be written: {_reason(error)}") from error
            return
        # pyarrow completes an upload that an exception interrupts. KeyboardInterrupt is raised in the main thread only.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self.write, url, pieces).result()

    def sizes(self, url: str) -> dict[str, int]:
        """See :class:`Objects`."""
        try:
            selector = load_pyarrow_fs().FileSelector(object_path(url), allow_not_found=True)
            found = self._file_system(url).get_file_info(selector)
        except OSError as error:
            raise TierError(f"{displayed(url)} cannot be listed: {_reason(error)}") from error
        return {info.base_name: info.size for info in found if info.is_file}

    def remove(self, url: str) -> None:
        """See :class:`Objects`."""
        try:
            with suppress(FileNotFoundError):
                self._file_system(url).delete_file(object_path(url))
        except OSError as error:
            raise TierError(f"object {displayed(url)} cannot be removed: {_reason(error)}") from error

    def _file_system(self, url: str) -> Any:
        parts = urlsplit(url)
        key = os.getpid(), parts.scheme, parts.netloc, parts.query
        found = self._file_systems.get(key)
        if found is None:
            found = self._file_systems[key] = _make_file_system(url)
        return found


class _ArrowReader:
    def __init__(self, url: str, file: Any) -> None:
        self._url = url
        self._file = file

    def size(self) -> int:
        try:
            return int(self._file.size())
        except OSError as error:
            raise _unreadable(self._url, error) from error

    def read(self, offset: int, length: int) -> bytes:
        try:
            return bytes(self._file.read_at(length, offset))
        except OSError as error:
            raise _unreadable(self._url, error) from error


def load_pyarrow_fs() -> Any:
    """Import the file systems of pyarrow.

    :raises ConfigurationError: if it is not installed.
    """
    try:
        return import_module("pyarrow.fs")
    except ImportError as error:
        raise ConfigurationError(
            f"object storage needs pyarrow: {error}; install it with pip install 'fyrehose_twisted[tier]'"
        ) from None


def _make_file_system(url: str) -> Any:
    fs = load_pyarrow_fs()
    parts = urlsplit(url)
    try:
        if parts.scheme == "s3":
            return _make_s3(fs, parts.netloc, {name: values[-1] for name, values in parse_qs(parts.query).items()})
        if parts.scheme == "file":
            return fs.LocalFileSystem()
        if parts.scheme.startswith("fsspec+"):
            filesystem = import_module("fsspec").filesystem(parts.scheme.removeprefix("fsspec+"))
            return fs.PyFileSystem(fs.FSSpecHandler(filesystem))
        return fs.FileSystem.from_uri(displayed(url))[0]
    except (ImportError, ValueError, NotImplementedError) as error:
        raise ConfigurationError(f"no file system for {parts.scheme}:// is available: {_reason(error)}") from None


def _make_s3(fs: Any, bucket: str, options: dict[str, str]) -> Any:
    region, endpoint = options.get("region"), options.get("endpoint_override")
    if region is None and not any(os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION")):
        has_endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT_URL_S3")
        region = None if has_endpoint else fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        region=region,
        endpoint_override=endpoint,
        scheme=options.get("scheme", "https"),
        connect_timeout=CONNECT_TIMEOUT,
        request_timeout=REQUEST_TIMEOUT,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
    )


def _sync_file(path: str) -> None:
    """Make a file and its name durable, which object storage does by itself."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    for parent in Path(path).parents:  # Any of them may be new.
        with suppress(PermissionError):
            sync_directory(parent)


def _unreadable(url: str, error: OSError) -> TierError:
    return TierError(f"object {displayed(url)} cannot be read: {_reason(error)}")


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 1] + "…"
