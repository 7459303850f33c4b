from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.errors import JournalError, JournalInUse
from fyrehose_twisted.journal.format.layout import (
    directory_name,
    journal_directories,
    make_directory,
    stream_from_directory,
)
from fyrehose_twisted.journal.format.segment_header import MAX_URI
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.record import Record

schemes = st.from_regex(r"[a-z][a-z0-9+.]{0,10}", fullmatch=True)
names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)


@given(schemes, names)
def test_stream_is_recovered_from_its_directory_name(scheme: str, name: str) -> None:
    stream = f"{scheme}://{name}"
    directory = directory_name(stream)
    assert stream_from_directory(directory) == stream
    assert re.fullmatch(r"[A-Za-z0-9+._~%-]+", directory)
    assert directory not in (".", "..")


@pytest.mark.parametrize(
    ("stream", "name"),
    [
        ("fyrehose://default", "fyrehose-default"),
        ("fyrehose://a/b", "fyrehose-a%2Fb"),
        ("hydra://..", "hydra-.."),
        ("a://ä", "a-%C3%A4"),
    ],
)
def test_directory_names_are_readable(stream: str, name: str) -> None:
    assert directory_name(stream) == name


@pytest.mark.parametrize("stream", ["", "fyrehose", "fyrehose://", "://x", "Fyrehose://x", "../x://y", "a b://c"])
def test_directory_name_rejects_a_stream_that_is_not_a_uri(stream: str) -> None:
    with pytest.raises(ConfigurationError, match="must have the form"):
        directory_name(stream)


@pytest.mark.parametrize("name", ["x" * 247, "ä" * 42, "x" * MAX_URI])
def test_directory_name_rejects_a_long_stream(name: str) -> None:
    with pytest.raises(ConfigurationError, match="too long a name"):
        directory_name(f"fyrehose://{name}")


def test_directory_name_accepts_the_longest_stream() -> None:
    assert len(directory_name("fyrehose://" + "x" * 246)) == 255


@pytest.mark.parametrize("name", ["", "fyrehose", "-x", "Fyrehose-x", ".hidden"])
def test_other_directories_have_no_stream(name: str) -> None:
    assert stream_from_directory(name) is None


def test_directory_is_created_once(tmp_path: Path) -> None:
    made = make_directory(tmp_path, "fyrehose://a")
    assert made.is_dir()
    assert made.stat().st_mode & 0o007 == 0
    assert make_directory(tmp_path, "fyrehose://a") == made


class TestOpening:
    def test_journals_of_several_streams_share_a_directory(self, tmp_path: Path) -> None:
        root = tmp_path / "new" / "journals"
        for name in ("b", "a"):
            journal = open_journal(root, f"fyrehose://{name}")
            journal.append([Record(f"fyrehose://{name}", 0, 1, 0, b"")])
            journal.close()
        (root / "empty").mkdir()
        (root / "file").write_bytes(b"")
        assert journal_directories(root) == [root / "fyrehose-a", root / "fyrehose-b"]
        assert journal_directories(root / "fyrehose-a") == [root / "fyrehose-a"]

    def test_only_one_writer_is_allowed(self, tmp_path: Path) -> None:
        journal = open_journal(tmp_path, "fyrehose://a")
        with pytest.raises(JournalInUse, match="fyrehose-a is in use by another process"):
            open_journal(tmp_path, "fyrehose://a")
        journal.close()
        open_journal(tmp_path, "fyrehose://a").close()

    def test_error_names_the_directory_that_cannot_be_created(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(JournalError, match=r"file.* cannot be created: Not a directory"):
            open_journal(tmp_path / "file" / "inside", "fyrehose://a")

    def test_open_journal_rejects_an_invalid_stream(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError):
            open_journal(tmp_path, "nothing")
        assert list(tmp_path.iterdir()) == []

    def test_journal_directories_rejects_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(NotADirectoryError):
            journal_directories(tmp_path / "file")
