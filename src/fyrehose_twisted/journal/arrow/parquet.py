"""Export of a journal to Parquet files, with one row for each number below the watermark.

A file EPOCH-FIRST-LAST.parquet has :data:`NUMBERS_PER_FILE` rows and never changes. Only the last file of an epoch may
be shorter; the next run replaces it by a longer one. Sequence numbers are signed integers, which hold all values. Spark
has no unsigned integers and would convert them to decimals, which are slow to compare and join.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import IJournalReader
from fyrehose_twisted.journal.arrow.destinations import Destination, LocalDestination, is_url, open_destination
from fyrehose_twisted.journal.arrow.manifest import Manifest, SealedFile
from fyrehose_twisted.journal.block import Block, Numbers
from fyrehose_twisted.journal.errors import Damage, JournalDamaged, JournalError
from fyrehose_twisted.journal.format.layout import directory_name
from fyrehose_twisted.journal.format.segment_header import different_tags
from fyrehose_twisted.journal.tier.location import object_url
from fyrehose_twisted.journal.tier.objects import Objects

NUMBERS_PER_FILE = 1_000_000
"""Rows of a file."""

GROUP_ROWS, GROUP_BYTES = 131_072, 128 * 2**20
"""Rows, or bytes of payload, after which a row group is written."""

ARRAY_BYTES = 2**30
"""Bytes of payload in one array. Arrow offsets have 31 bits."""

LOST_CHUNK = 65_536

_NAME = re.compile(r"(\d+)-(\d+)-(\d+)\.parquet")

AnyPlace = TypeVar("AnyPlace", Path, str)
"""A directory, or a URL of object storage."""


class WrittenFile(NamedTuple):
    """A file written by this run."""

    name: str
    rows: int


class ExportedFile(NamedTuple):
    """An existing file with the numbers from ``first`` to ``last``."""

    epoch: int
    first: int
    last: int

    @property
    def name(self) -> str:
        """File name."""
        return f"{self.epoch}-{self.first}-{self.last}.parquet"


def export(
    reader: IJournalReader,
    out: Path | str,
    *,
    numbers: int = NUMBERS_PER_FILE,
    on_message: Callable[[str], object],
    progress: Callable[[int], object] | None = None,
    objects: Objects | None = None,
) -> list[WrittenFile]:
    """Write the records below the watermark that are not in files yet; return the files written.

    Each file that goes to object storage is first written to a temporary file here, and read back after its upload.

    :param out: directory with one subdirectory for each stream, or the URL of a bucket and prefix, such as
        ``s3://bucket/prefix``. A URL requires that no other process exports to it; see
        :func:`~fyrehose_twisted.journal.tier.locks.lock_work`.
    :param numbers: rows of a file. It must not change for a directory.
    :param on_message: called with a line about each range that gets no file, as it is lost or no longer kept.
    :param progress: called with the number of rows written since the last call.
    :param objects: access to object storage; by default, through pyarrow.
    :raises ConfigurationError: if pyarrow is not installed, or the URL is invalid or has credentials.
    :raises JournalDamaged: if a part is damaged. The file that would contain it is not written.
    :raises JournalInUse: if another process writes to the same directory.
    :raises JournalError: if the directory has files of another journal.
    :raises TierError: if the object storage fails, or an object does not read back as it was written.
    :raises OSError: if a local file cannot be written.
    """
    return _Export(reader, open_destination(out, reader.stream, objects), numbers, on_message, progress).run()


def exported_files(directory: Path) -> list[ExportedFile]:
    """Return the files of one stream in order. Of two with the same start, which a crash may leave, take the longer."""
    return _longest(LocalDestination(directory).names())


def _longest(names: Iterable[str]) -> list[ExportedFile]:
    return list({(file.epoch, file.first): file for file in sorted(_parse_names(names))}.values())


class Halves(NamedTuple, Generic[AnyPlace]):
    """A stream in two parts, neither of which changes any more."""

    files: list[AnyPlace]
    """Final Parquet files, as paths or URLs."""
    tail: Any
    """Later records, as a :class:`pyarrow.RecordBatchReader`."""


def halves(reader: IJournalReader, out: AnyPlace, *, epoch: int | None = None) -> Halves[AnyPlace]:
    """Return the final Parquet files of an epoch, and the later records from the journal itself.

    Both can be read while :func:`export` runs and while the journal is being written.

    :param out: directory or URL that was given to :func:`export`.
    :param epoch: epoch to read; ``None`` for the latest.
    :raises JournalError: if the files belong to another journal.
    :raises TierError: if the object storage fails, or has another file than the one that was verified.
    """
    epoch = max(reader.epochs(), default=0) if epoch is None else epoch
    chosen = [file for file in final_files(reader, out) if file.epoch == epoch]
    tail = reader.to_arrow(epoch=epoch, first=chosen[-1].last + 1 if chosen else None)
    return Halves([place_of(out, reader.stream, file.name) for file in chosen], tail)


def final_files(reader: IJournalReader, out: Path | str, *, objects: Objects | None = None) -> list[ExportedFile]:
    """Return the final files of a stream in order.

    A file that may be replaced is included only if the journal no longer keeps its records.

    :param out: directory or URL that was given to :func:`export`.
    :param objects: access to object storage; by default, through pyarrow.
    :raises JournalError: if the files belong to another journal.
    :raises TierError: if the object storage fails, or has another file than the one that was verified.
    """
    destination = open_destination(out, reader.stream, objects)
    manifest = destination.read_manifest()
    if manifest is None:
        return _longest(destination.names())
    _check_tag(destination, manifest, reader, "Read without these files")
    found = []
    for file in manifest.files:
        bounds = reader.bounds(file.epoch)
        is_chosen = file.final or bounds is None or bounds.first > file.first
        if is_chosen and destination.holds(file):
            found.append(ExportedFile(file.epoch, file.first, file.last))
    return found


def place_of(out: AnyPlace, stream: str, name: str) -> AnyPlace:
    """Return the path or URL of an exported file."""
    if isinstance(out, Path):
        return out / directory_name(stream) / name
    if is_url(out):
        return object_url(out, directory_name(stream), name)
    return str(Path(out) / directory_name(stream) / name)


def _check_tag(destination: Destination, manifest: Manifest, reader: IJournalReader, hint: str) -> None:
    if different_tags(manifest.tag, reader.tag):
        raise JournalError(
            f"{destination.label()} has files of another journal of {manifest.stream}, with tag"
            f" {manifest.tag or 0:08x} instead of {reader.tag:08x} and unrelated numbers. {hint}"
        )


def load_pyarrow() -> Any:
    """Import pyarrow and its Parquet module; return pyarrow.

    :raises ConfigurationError: if it is not installed.
    """
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError as error:
        raise ConfigurationError(
            f"Parquet needs pyarrow: {error}; install it with pip install 'fyrehose_twisted[parquet]'"
        ) from None


class _Export:
    def __init__(
        self,
        reader: IJournalReader,
        destination: Destination,
        numbers: int,
        on_message: Callable[[str], object],
        progress: Callable[[int], object] | None,
    ) -> None:
        self._reader, self._numbers, self._on_message, self._progress = reader, numbers, on_message, progress
        self._destination = destination
        self._arrow = load_pyarrow()

    def run(self) -> list[WrittenFile]:
        with self._destination.lock():
            before = self._check_owner()
            written = [file for epoch in self._reader.epochs() for file in self._write_epoch(epoch)]
            if before is None:  # No files, or files of an earlier release.
                self._write_manifest()
            self._remove_leftovers()
            return written

    def _check_owner(self) -> Manifest | None:
        try:
            manifest = self._destination.read_manifest()
        except JournalError:
            if not self._destination.complete_names_only:
                raise
            return None  # It will be rewritten.
        if manifest is not None:
            _check_tag(self._destination, manifest, self._reader, "Write to another directory")
        return manifest

    def _remove_leftovers(self) -> None:
        """Remove what interrupted runs left, unless the journal may not have its records any more."""
        known = _longest(self._destination.names())
        for file in _parse_names(self._destination.leftovers()):
            if any(one.epoch == file.epoch and one.first <= file.first and file.last <= one.last for one in known):
                self._destination.remove(file.name)
            else:
                self._on_message(f"{self._destination.label(file.name)} is not in the manifest; readers ignore it")

    def _write_manifest(self) -> None:
        files = _longest(self._destination.names())
        ends = {file.epoch: file for file in files}
        found = [
            SealedFile(
                file.name,
                *file,
                bytes=self._destination.size(file.name),
                final=file is not ends[file.epoch] or file.last - file.first + 1 >= self._numbers,
            )
            for file in files
        ]
        self._destination.write_manifest(Manifest(self._reader.stream, self._reader.tag, tuple(found)))

    def _write_epoch(self, epoch: int) -> Iterator[WrittenFile]:
        bounds = self._reader.bounds(epoch)
        assert bounds is not None, epoch
        at, partial = self._resume_point(epoch, bounds.first)
        if partial is not None and partial.last + 1 >= bounds.next:
            return
        while at < bounds.next:
            last = min(at + self._numbers, bounds.next) - 1
            lost = self._reader.losses(epoch, at, last)
            if lost == [(at, last)]:
                # A jump in the numbering, which may be as long as 2**60 numbers.
                whole = self._reader.losses(epoch, at, bounds.next - 1)[0]
                last = at + max(1, (whole[1] + 1 - at) // self._numbers) * self._numbers - 1
                self._on_message(f"lost in epoch {epoch}: {at} to {min(last, whole[1])}; no file is written for them")
            else:
                yield self._write(ExportedFile(epoch, at, last), lost, partial)
            at, partial = last + 1, None

    def _resume_point(self, epoch: int, start: int) -> tuple[int, ExportedFile | None]:
        """Return the first number of the next file, and the shorter file that it replaces."""
        files = self._files(epoch)
        for file in files:
            if any(other.first == file.first and other.last > file.last for other in files):
                self._destination.remove(file.name)  # Left by a crash before this step.
        if not files:
            return start, None
        newest = max(files, key=lambda file: (file.first, file.last))
        is_complete = newest.last - newest.first + 1 >= self._numbers
        at = newest.last + 1 if is_complete or newest.first < start else newest.first
        if at < start:
            self._on_message(f"removed by retention before export: {at} to {start - 1} of epoch {epoch}")
            at = start
        return at, newest if at == newest.first else None

    def _files(self, epoch: int) -> list[ExportedFile]:
        return [file for file in _parse_names(self._destination.names()) if file.epoch == epoch]

    def _write(self, file: ExportedFile, lost: list[tuple[int, int]], partial: ExportedFile | None) -> WrittenFile:
        rows = self._destination.write(file.name, lambda output: self._write_rows(output, file, lost))
        self._write_manifest()
        if partial is not None and partial != file:
            self._destination.remove(partial.name)
        return WrittenFile(self._destination.label(file.name), rows)

    def _write_rows(self, output: Any, file: ExportedFile, lost: list[tuple[int, int]]) -> int:
        arrow = self._arrow
        schema, count = schema_of(arrow), 0
        writer = arrow.parquet.ParquetWriter(output, schema, use_dictionary=["stream", "status"])
        waiting: list[Any] = []
        rows = size = 0
        try:
            for batch, payload in self._batches(file, lost):
                waiting.append(batch)
                rows, size = rows + len(batch), size + payload
                if rows >= GROUP_ROWS or size >= GROUP_BYTES:
                    self._write_group(writer, waiting, rows)
                    count, rows, size = count + rows, 0, 0
                    waiting = []
            if waiting:
                self._write_group(writer, waiting, rows)
        finally:
            writer.close()
        count += rows
        if count != file.last - file.first + 1:
            reason = f"only {count:,} of {file.last - file.first + 1:,} records are present"
            raise JournalDamaged(Damage(self._reader.stream, 0, 0, reason, file.epoch, file.first, file.last))
        return count

    def _write_group(self, writer: Any, batches: list[Any], rows: int) -> None:
        writer.write_table(self._arrow.Table.from_batches(batches), row_group_size=rows)
        if self._progress is not None:
            self._progress(rows)

    def _batches(self, file: ExportedFile, lost: list[tuple[int, int]]) -> Iterator[tuple[Any, int]]:
        """Yield the rows of a file in order as batches, each with its bytes of payload."""
        at = file.first
        for whole in self._reader.read(file.epoch, file.first, file.last):
            for block in split_block(whole):
                before = self._lost_within(lost, at, block.last)
                if len(before) > LOST_CHUNK:
                    # They are in few ranges. Those before the block get batches of their own.
                    early = before[before < np.uint64(block.first)]
                    yield from self._lost_batches(file.epoch, early)
                    before = before[len(early) :]
                yield self._batch(block, before), int(block.offsets[-1]) - int(block.offsets[0])
                at = block.last + 1
        yield from self._lost_batches(file.epoch, self._lost_within(lost, at, file.last))

    def _lost_batches(self, epoch: int, positions: Numbers) -> Iterator[tuple[Any, int]]:
        reader = self._reader
        empty = np.array([], np.uint64), np.array([], np.int64), np.zeros(1, np.uint32), memoryview(b"")
        for low in range(0, len(positions), LOST_CHUNK):
            chunk = positions[low : low + LOST_CHUNK]
            yield self._batch(Block(reader.stream, epoch, *empty, reader.wrap), chunk), 0

    @staticmethod
    def _lost_within(lost: list[tuple[int, int]], first: int, last: int) -> Numbers:
        parts = [
            np.arange(max(low, first), min(high, last) + 1, dtype=np.uint64)
            for low, high in lost
            if low <= last and high >= first
        ]
        return np.concatenate(parts) if parts else np.array([], np.uint64)

    def _batch(self, block: Block, lost: Numbers) -> Any:
        """Return the rows of a block and of the lost numbers among them, without creating an object for each."""
        arrow, count = self._arrow, len(block) + len(lost)
        positions = np.concatenate([block.positions, lost])
        order = positions.argsort(kind="stable")
        is_held = order < len(block)
        sequences = positions[order]
        if block.wrap:
            sequences %= np.uint64(block.wrap)
        times = np.zeros(count, np.int64)
        times[is_held] = block.times
        ends = np.zeros(count + 1, np.int32)
        ends[1:][is_held] = np.diff(block.offsets)
        np.cumsum(ends, out=ends)
        payload = block.payload[int(block.offsets[0]) : int(block.offsets[-1])]
        valid = None if not len(lost) else arrow.py_buffer(np.packbits(is_held, bitorder="little"))

        def column(kind: Any, *buffers: Any) -> Any:
            return arrow.Array.from_buffers(kind, count, list(buffers))

        def repeated(codes: Any, values: list[str]) -> Any:
            return arrow.DictionaryArray.from_arrays(column(arrow.int8(), None, arrow.py_buffer(codes)), values)

        columns = [
            repeated(np.zeros(count, np.int8), [block.stream]),
            column(arrow.int64(), None, arrow.py_buffer(np.full(count, block.epoch, np.int64))),
            column(arrow.int64(), None, arrow.py_buffer(sequences.astype(np.int64))),
            column(arrow.timestamp("us", "UTC"), valid, arrow.py_buffer(times)),
            column(arrow.binary(), valid, arrow.py_buffer(ends), arrow.py_buffer(payload)),
            repeated((~is_held).astype(np.int8), ["ok", "lost"]).dictionary_decode(),
        ]
        return arrow.RecordBatch.from_arrays(columns, schema=schema_of(arrow))


def schema_of(arrow: Any) -> Any:
    """Return the schema of the files; ``arrow`` is the module pyarrow."""
    return arrow.schema(
        [
            ("stream", arrow.dictionary(arrow.int8(), arrow.string())),
            ("epoch", arrow.int64()),
            ("sequence", arrow.int64()),
            ("received_at", arrow.timestamp("us", "UTC")),
            ("payload", arrow.binary()),
            ("status", arrow.string()),
        ]
    )


def split_block(block: Block, limit: int = ARRAY_BYTES) -> Iterator[Block]:
    """Split ``block`` into blocks of at most ``limit`` bytes of payload, but at least one row."""
    low = 0
    ends = block.offsets[1:].astype(np.int64)
    while low < len(block):
        high = int(ends.searchsorted(int(block.offsets[low]) + limit, side="right"))
        high = max(high, low + 1)
        yield block if (low, high) == (0, len(block)) else block.rows(low, high)
        low = high


def _parse_names(names: Iterable[str]) -> list[ExportedFile]:
    return [ExportedFile(*map(int, found.groups())) for name in names if (found := _NAME.fullmatch(name))]
