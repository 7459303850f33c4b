"""Parquet files in object storage: interrupted and altered uploads, and continuation of earlier runs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from suite.object_storage import MemoryObjects

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.arrow.manifest import MANIFEST_NAME
from fyrehose_twisted.journal.arrow.parquet import WrittenFile, export, final_files, halves
from fyrehose_twisted.journal.errors import JournalError, TierError
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.journal.tier.objects import ArrowObjects
from fyrehose_twisted.record import Record

pq = pytest.importorskip("pyarrow.parquet")

STREAM = "fyrehose://test"
URL = "s3://bucket/lake"
HERE = f"{URL}/fyrehose-test"


class Ended(BaseException):
    """The process was killed."""


class Bucket:
    """Object storage to which a journal of numbers from 1 is exported."""

    def __init__(self, path: Path, config: JournalConfig | None = None) -> None:
        path.mkdir()
        self.path = path
        self.objects = MemoryObjects()
        self.told: list[str] = []
        self.journal = Journal(LocalDirectory(path), STREAM, config=config or JournalConfig())
        self._last = 0

    def append(self, count: int) -> None:
        numbers = range(self._last + 1, self._last + count + 1)
        self._last += count
        self.journal.append([Record(STREAM, 0, one, 1_000_000 + one, b"%d" % one) for one in numbers])
        self.journal.commit()

    def export(self) -> list[WrittenFile]:
        with closing(JournalReader(LocalDirectory(self.path))) as reader:
            return export(reader, URL, numbers=100, on_message=self.told.append, objects=self.objects)

    @property
    def names(self) -> list[str]:
        return sorted(url.removeprefix(f"{HERE}/") for url in self.objects.content)

    def rows(self, name: str) -> list[dict[str, Any]]:
        return pq.read_table(io.BytesIO(self.objects.content[f"{HERE}/{name}"])).to_pylist()

    def read(self) -> list[int]:
        """Return the numbers in final files, followed by those of the journal after them."""
        with closing(JournalReader(LocalDirectory(self.path))) as reader:
            files = final_files(reader, URL, objects=self.objects)
            assert all(before.last + 1 == after.first for before, after in pairwise(files))
            found = [row["sequence"] for file in files for row in self.rows(file.name)]
            tail = reader.to_arrow(first=files[-1].last + 1 if files else None)
            return found + [row["sequence"] for row in tail.read_all().to_pylist()]

    def final(self) -> list[str]:
        with closing(JournalReader(LocalDirectory(self.path))) as reader:
            return [file.name for file in final_files(reader, URL, objects=self.objects)]


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    found = Bucket(tmp_path / "journal")
    yield found
    found.journal.close()


def test_objects_have_the_names_and_rows_of_local_files(bucket: Bucket, tmp_path: Path) -> None:
    for count, names in [(250, ["0-1-100", "0-101-200", "0-201-250"]), (30, ["0-201-280"]), (0, [])]:
        bucket.append(count)
        assert bucket.export() == [
            WrittenFile(f"{HERE}/{name}.parquet", int(name.split("-")[2]) - int(name.split("-")[1]) + 1)
            for name in names
        ]
        with closing(JournalReader(LocalDirectory(bucket.path))) as reader:
            export(reader, tmp_path / "lake", numbers=100, on_message=print)
        files = {file.name: file for file in (tmp_path / "lake" / "fyrehose-test").iterdir() if file.name != ".lock"}
        assert bucket.names == sorted(files)
        manifest = files.pop(MANIFEST_NAME)
        assert bucket.objects.content[f"{HERE}/{MANIFEST_NAME}"] == manifest.read_bytes()
        assert all(bucket.rows(name) == pq.read_table(file).to_pylist() for name, file in files.items())
    assert bucket.final() == ["0-1-100.parquet", "0-101-200.parquet"]
    assert bucket.read() == list(range(1, 281))


OPERATIONS = "sizes", "replace", "replaced", "open", "read", "remove", "removed"


@pytest.mark.parametrize("error", [TierError("unreachable"), Ended()], ids=["failure", "killed"])
def test_an_export_interrupted_at_any_request_is_continued_by_the_next(tmp_path: Path, error: BaseException) -> None:
    seen, at = set(), 0
    while True:  # Interrupt before the first request, the second, and so on, until there are no more.
        bucket = Bucket(tmp_path / str(at))
        bucket.append(150)
        bucket.export()
        bucket.append(100)
        left = [at]

        def fail(operation: str, url: str, left: list[int] = left) -> None:
            seen.add((operation, url.endswith(MANIFEST_NAME)))
            left[0] -= 1
            if left[0] == -1:
                raise error

        bucket.objects.fail = fail
        with suppress(TierError, Ended):
            bucket.export()
        bucket.objects.fail = lambda operation, url: None
        assert bucket.read() == list(range(1, 251)), at
        bucket.append(20)  # The last file is now longer than the one that the interrupted run would have written.
        bucket.export()
        assert bucket.final() == ["0-1-100.parquet", "0-101-200.parquet"], at
        assert bucket.names == ["0-1-100.parquet", "0-101-200.parquet", "0-201-270.parquet", MANIFEST_NAME], at
        assert bucket.read() == list(range(1, 271)), at
        assert not bucket.told, at
        bucket.journal.close()
        if left[0] >= 0:
            break
        at += 1
    assert {operation for operation, _ in seen} == set(OPERATIONS)
    assert {(operation, True) for operation in OPERATIONS if operation in ("replace", "replaced", "read")} <= seen


def test_a_file_that_reads_back_otherwise_is_refused_and_removed(bucket: Bucket) -> None:
    def corrupt(operation: str, url: str) -> None:
        if operation == "replaced" and url.endswith("0-101-150.parquet"):
            content = bucket.objects.content[url]
            bucket.objects.content[url] = content[:99] + bytes([content[99] ^ 1]) + content[100:]

    bucket.append(150)
    bucket.objects.fail = corrupt
    with pytest.raises(TierError, match=r"object s3://\S+/0-101-150\.parquet does not read back as it was written"):
        bucket.export()
    assert bucket.names == ["0-1-100.parquet", MANIFEST_NAME]
    assert bucket.read() == list(range(1, 151))
    bucket.objects.fail = lambda operation, url: None
    assert [Path(name).name for name, _ in bucket.export()] == ["0-101-150.parquet"]


def test_a_manifest_that_reads_back_otherwise_is_refused(bucket: Bucket) -> None:
    def cut(operation: str, url: str) -> None:
        if operation == "replaced" and url.endswith(MANIFEST_NAME):
            bucket.objects.content[url] = bucket.objects.content[url][:-1]

    bucket.append(100)
    bucket.objects.fail = cut
    with pytest.raises(TierError, match=r"_manifest\.json does not read back as it was written"):
        bucket.export()


def test_objects_in_no_manifest_are_not_read(bucket: Bucket) -> None:
    """A killed upload may leave a whole file, part of one where uploads are not atomic, or one of other records."""
    bucket.append(200)
    bucket.objects.content[f"{HERE}/0-1-100.parquet"] = b"PAR1, and part of a file"
    assert (bucket.final(), bucket.read()) == ([], list(range(1, 201)))
    bucket.objects.content[f"{HERE}/0-201-300.parquet"] = b"no file"
    bucket.export()
    assert bucket.final() == ["0-1-100.parquet", "0-101-200.parquet"]
    assert bucket.read() == list(range(1, 201))
    assert bucket.told == [f"{HERE}/0-201-300.parquet is not in the manifest; readers ignore it"]


def test_files_without_their_manifest_are_kept_if_the_journal_dropped_their_records(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path / "journal", JournalConfig(segment_bytes=500, retention=Retention(size=1_500)))
    with closing(bucket.journal) as journal:
        for _ in range(15):
            bucket.append(10)
        bucket.export()
        for _ in range(15):
            bucket.append(10)
        assert journal.trim()
        # The last file counts although it is not final: nothing will ever replace it.
        assert bucket.final() == ["0-1-100.parquet", "0-101-150.parquet"]
        del bucket.objects.content[f"{HERE}/{MANIFEST_NAME}"]
        bucket.export()
    assert {"0-1-100.parquet", "0-101-150.parquet"} < set(bucket.names)
    assert f"{HERE}/0-1-100.parquet is not in the manifest; readers ignore it" in bucket.told


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 1}'])
def test_an_invalid_manifest_in_object_storage_is_not_rewritten(bucket: Bucket, content: bytes) -> None:
    """The names cannot stand for it, as locally: they may be those of interrupted uploads."""
    bucket.append(150)
    bucket.export()
    before = bucket.objects.content[f"{HERE}/{MANIFEST_NAME}"]
    bucket.objects.content[f"{HERE}/{MANIFEST_NAME}"] = content
    for use in bucket.export, bucket.read:
        with pytest.raises(JournalError, match=r"restore an earlier version of the object, or remove it"):
            use()
    del bucket.objects.content[f"{HERE}/{MANIFEST_NAME}"]
    bucket.export()
    assert bucket.objects.content[f"{HERE}/{MANIFEST_NAME}"] == before


def test_a_manifest_that_is_replaced_while_it_is_read_is_read_again(bucket: Bucket) -> None:
    bucket.append(150)
    bucket.export()
    place = f"{HERE}/{MANIFEST_NAME}"
    whole = bucket.objects.content[place]
    bucket.objects.content[place] = whole[:20]
    reads = []

    def complete(operation: str, url: str) -> None:
        if operation == "open":
            reads.append(url)
            if len(reads) == 2:
                bucket.objects.content[place] = whole

    bucket.objects.fail = complete
    assert bucket.final() == ["0-1-100.parquet"]
    assert reads == [place, place]


def test_a_file_of_another_size_is_an_error_and_a_missing_one_is_not(bucket: Bucket) -> None:
    bucket.append(200)
    bucket.export()
    bucket.objects.content[f"{HERE}/0-101-200.parquet"] += b"?"
    with pytest.raises(TierError, match=r"object s3://\S+/0-101-200\.parquet is not the file that was verified"):
        bucket.read()
    del bucket.objects.content[f"{HERE}/0-101-200.parquet"]
    assert bucket.final() == ["0-1-100.parquet"]
    assert bucket.read() == list(range(1, 201))


def test_files_of_another_journal_in_object_storage_are_refused(bucket: Bucket, tmp_path: Path) -> None:
    bucket.append(100)
    bucket.export()
    other = Bucket(tmp_path / "other")
    other.objects = bucket.objects
    other.append(100)
    for use in other.export, other.read:
        with pytest.raises(JournalError, match=rf"{HERE} has files of another journal of {STREAM}"):
            use()
    other.journal.close()


class TestDirectoryAsStorage:
    """Object storage that is a directory, through pyarrow."""

    def test_exports_continue_and_halves_names_the_files(self, bucket: Bucket, tmp_path: Path) -> None:
        url = f"file://{tmp_path}/a%20lake"
        for count in (150, 100):
            bucket.append(count)
            with closing(JournalReader(LocalDirectory(bucket.path))) as reader:
                export(reader, url, numbers=100, on_message=bucket.told.append)
                found = halves(reader, url)
                read = [row["sequence"] for file in found.files for row in pq.read_table(file).to_pylist()]
                assert read + found.tail.read_all()["sequence"].to_pylist() == list(range(1, bucket._last + 1))
        assert found.files == [f"{url}/fyrehose-test/{name}.parquet" for name in ("0-1-100", "0-101-200")]
        there = tmp_path / "a lake" / "fyrehose-test"
        assert sorted(file.name for file in there.iterdir()) == [
            "0-1-100.parquet",
            "0-101-200.parquet",
            "0-201-250.parquet",
            MANIFEST_NAME,
        ]
        assert not bucket.told

    def test_a_replacement_that_fails_leaves_the_object_as_it_was(self, tmp_path: Path) -> None:
        objects, url = ArrowObjects(), f"file://{tmp_path}/place/object"
        objects.replace(url, [b"old"])

        def pieces() -> Iterator[bytes]:
            yield b"new"
            raise Ended

        with pytest.raises(Ended):
            objects.replace(url, pieces())
        assert (tmp_path / "place" / "object").read_bytes() == b"old"
        assert objects.sizes(f"file://{tmp_path}/place")["object"] == 3
        assert objects.sizes(f"file://{tmp_path}/nowhere") == {}

    def test_a_url_with_credentials_is_refused(self, bucket: Bucket) -> None:
        bucket.append(1)
        with (
            closing(JournalReader(LocalDirectory(bucket.path))) as reader,
            pytest.raises(ConfigurationError, match="has credentials"),
        ):
            export(reader, "s3://key:secret@bucket/lake", on_message=print)
