"""Locked state files that are replaced atomically."""

from __future__ import annotations

import errno
import os
from contextlib import closing
from pathlib import Path

import pytest

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.process.locked_file import LockedFile


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_is_created_replaced_and_written_behind_its_end(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with closing(LockedFile(path)) as file:
        assert file.is_new
        assert file.read() is None
        file.replace(b"first", sync=False)
        file.replace(b"second")
        file.write(b" and third", sync=True)
        file.write(b"S", 0)
        assert path.stat().st_mode & 0o777 == 0o600
    with closing(LockedFile(path)) as file:
        assert not file.is_new
        assert file.read() == b"Second and third"
        assert file.read(6) == b"Second"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["state", "state.lock"]


def test_a_file_that_was_only_read_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"content")
    with closing(LockedFile(path)) as file:
        assert file.read() == b"content"
        with pytest.raises(StateFileError, match="could not be written before, or is closed"):
            file.write(b"C", 0)
        assert file.read(to_write=True) == b"content"
        file.write(b"C", 0)
    assert path.read_bytes() == b"Content"


def test_only_one_process_holds_the_lock(tmp_path: Path) -> None:
    with closing(LockedFile(tmp_path / "state")) as file:
        with pytest.raises(StateFileError, match="is in use by another node; give each its own"):
            LockedFile(tmp_path / "state")
        file.close()
        LockedFile(tmp_path / "state").close()


def test_a_failed_replacement_of_a_locked_file_leaves_only_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(LockedFile(tmp_path / "state")) as file:
        file.replace(b"old")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", no_space)
            with pytest.raises(StateFileError, match="cannot be written: No space left on device"):
                file.replace(b"new")
        with pytest.raises(StateFileError, match="could not be written before"):
            file.write(b"more")
    assert (tmp_path / "state").read_bytes() == b"old"
    assert not (tmp_path / "state.new").exists()
