from __future__ import annotations

import os
from pathlib import Path

import pytest
from zope.interface.verify import verifyObject

from fyrehose_twisted.interfaces import IDirectory, IFile
from fyrehose_twisted.journal.format.disk import LOCK_NAME, LocalDirectory


@pytest.fixture
def directory(tmp_path: Path) -> LocalDirectory:
    return LocalDirectory(tmp_path)


def test_local_files_implement_the_interfaces(directory: LocalDirectory) -> None:
    assert verifyObject(IDirectory, directory)
    assert verifyObject(IFile, directory.open("a", create=True))


def test_names_lists_only_files_sorted(directory: LocalDirectory) -> None:
    for name in ("b", "a", "c"):
        directory.open(name, create=True)
    (directory.path / "inside").mkdir()
    directory.lock()
    assert directory.names() == ["a", "b", "c"]
    assert str(directory) == str(directory.path)


def test_file_can_be_written_at_any_offset_and_read_to_its_end(directory: LocalDirectory) -> None:
    file = directory.open("a", create=True)
    file.write(0, b"hello")
    file.write(8, memoryview(b"world"))
    file.write(1, bytearray(b"u"))
    file.sync()
    assert file.size() == 13
    assert file.read(0, 100) == b"hullo\0\0\0world"
    assert file.read(8, 5) == b"world"
    assert file.read(12, 5) == b"d"
    assert file.read(13, 5) == b""
    file.truncate(3)
    assert directory.open("a").read(0, 9) == b"hul"


def test_missing_file_cannot_be_opened_or_removed(directory: LocalDirectory) -> None:
    for attempt in (
        lambda: directory.open("a"),
        lambda: directory.open("a", writable=True),
        lambda: directory.remove("a"),
        lambda: directory.rename("a", "b"),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()
    assert directory.names() == []


def test_existing_file_cannot_be_created(directory: LocalDirectory) -> None:
    directory.open("a", create=True).write(0, b"x")
    with pytest.raises(FileExistsError):
        directory.open("a", create=True)
    assert directory.open("a").size() == 1


def test_file_opened_for_reading_cannot_be_written(directory: LocalDirectory) -> None:
    directory.open("a", create=True)
    file = directory.open("a")
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write(0, b"x")
    directory.open("a", writable=True).write(0, b"x")
    assert file.read(0, 1) == b"x"


def test_open_file_survives_removal(directory: LocalDirectory) -> None:
    directory.open("a", create=True).write(0, b"old")
    file = directory.open("a")
    directory.open("b", create=True).write(0, b"new")
    directory.rename("b", "a")
    directory.sync()
    assert (file.read(0, 9), directory.open("a").read(0, 9)) == (b"old", b"new")
    again = directory.open("a")
    directory.remove("a")
    assert again.read(0, 9) == b"new"
    assert directory.names() == []


def test_file_is_not_accessible_to_other_users(directory: LocalDirectory) -> None:
    directory.open("a", create=True)
    assert (directory.path / "a").stat().st_mode & 0o007 == 0


def test_close_can_be_repeated(directory: LocalDirectory) -> None:
    file = directory.open("a", create=True)
    other = directory.open("a")
    file.close()
    file.close()
    assert other.size() == 0


def test_unreferenced_file_is_closed(directory: LocalDirectory) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        directory.open("a", writable=True) if (directory.path / "a").exists() else directory.open("a", create=True)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_short_reads_are_continued(directory: LocalDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    file = directory.open("a", create=True)
    file.write(0, b"abcdefghij")
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: real(fd, min(length, 3), offset))
    assert file.read(1, 8) == b"bcdefghi"
    assert file.read(5, 100) == b"fghij"


def test_short_writes_are_continued(directory: LocalDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    file = directory.open("a", create=True)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, bytes(data)[:3], offset))
    file.write(2, b"abcdefghij")
    assert file.read(0, 100) == b"\0\0abcdefghij"


def test_lock_is_exclusive(directory: LocalDirectory) -> None:
    lock = directory.lock()
    with pytest.raises(BlockingIOError):
        LocalDirectory(directory.path).lock()
    lock.close()
    again = directory.lock()
    again.close()
    assert (directory.path / LOCK_NAME).exists()
