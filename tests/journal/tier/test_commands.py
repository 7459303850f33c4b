"""Commands on a journal whose segments are in another directory, which stands for object storage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fyrehose_twisted.journal.store import JournalConfig, open_journal
from fyrehose_twisted.record import Record

pytest.importorskip("pyarrow")

STREAM, COUNT = "fyrehose://test", 200
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the directory of a journal with a copy, ``twin``, before its segments moved to ``bucket``."""
    journal = open_journal(tmp_path / "journal", STREAM, config=JournalConfig(segment_bytes=2_000, frame_records=16))
    for number in range(1, COUNT + 1):
        journal.append([Record(STREAM, 0, number, number * 1_000_000, b"%d" % number * 9)])
        journal.commit(sync=False)
    journal.sync()
    journal.compact()
    journal.close()
    shutil.copytree(tmp_path / "journal", tmp_path / "twin")
    return tmp_path / "journal" / "fyrehose-test"


def test_a_journal_with_a_lost_object_is_repaired_from_another(path: Path, tmp_path: Path, run: Run) -> None:
    before = run("cat", path)
    assert run("tier", path, "--to", f"file://{tmp_path}/bucket")[0] == 0
    lost = min((tmp_path / "bucket").rglob("0000000003-*.seg"))
    lost.unlink()
    status, _, errors = run("repair", path, "--from", tmp_path / "twin")
    assert status == 1
    assert f"object file://{lost} is missing" in errors
    (path / "0000000003.tier").unlink()
    (path / "0000000003.idx").unlink()
    assert run("repair", path, "--from", tmp_path / "twin")[0] == 0
    assert run("cat", path) == before
    assert run("check", path)[0] == 0


def test_only_old_segments_move(path: Path, tmp_path: Path, run: Run) -> None:
    count = len(list(path.glob("*.seg")))
    assert "0 segments" in run("tier", path, "--to", f"file://{tmp_path}/bucket", "--after", "99999w")[1]
    assert len(list(path.glob("*.seg"))) == count
    status, _, errors = run("tier", path, "--to", f"file://{tmp_path}/bucket", "--after", "soon")
    assert status == 1
    assert "invalid age 'soon'" in errors


def test_a_journal_of_other_storage_moves_on_to_the_next(path: Path, tmp_path: Path, run: Run) -> None:
    before = run("cat", path)
    run("tier", path, "--to", f"file://{tmp_path}/first")
    journal = open_journal(path.parent, STREAM)
    journal.append([Record(STREAM, 0, COUNT + 1, 1, b"later")])
    journal.close()
    run("seal", path)
    run("tier", path, "--to", f"file://{tmp_path}/second")
    assert list((tmp_path / "second").rglob("*.seg"))
    status, output, _ = run("cat", path)
    assert (status, output) == (0, before[1] + "later\n")
