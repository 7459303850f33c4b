"""Atomic and durable replacement of files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fyrehose_twisted.process.atomic_file import replace_file


def test_a_file_is_replaced_with_the_mode_of_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "page"
    replace_file(path, b"old")
    replace_file(path, b"new", mode=0o600)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_durable_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, original=original: calls.append(name) or original(*args))
    replace_file(tmp_path / "page", b"content")
    assert calls == ["fsync", "replace", "fsync"]


def test_a_link_in_place_of_the_temporary_file_is_not_followed(tmp_path: Path) -> None:
    other, temporary = tmp_path / "other", tmp_path / "page.new"
    other.write_bytes(b"theirs")
    temporary.symlink_to(other)
    replace_file(tmp_path / "page", b"ours", temporary)
    assert other.read_bytes() == b"theirs"
    assert (tmp_path / "page").read_bytes() == b"ours"


def test_a_failed_atomic_write_leaves_only_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page"
    replace_file(path, b"old")

    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
