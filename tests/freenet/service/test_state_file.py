from __future__ import annotations

import os
from pathlib import Path

import pytest

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.freenet.service.state_file import StateFile


def drawn() -> tuple[int, float]:
    return 0xC0FFEE, 0.25


def undrawn() -> tuple[int, float]:
    raise AssertionError("it is known already")


def test_the_state_file_preserves_id_and_location(tmp_path: Path) -> None:
    path = tmp_path / "state"
    first = StateFile(path, drawn)
    assert (first.node, first.location) == (0xC0FFEE, 0.25)
    assert path.read_text() == '{"freenet": 1, "node": "0000000000c0ffee", "location": 0.25}\n'
    assert path.stat().st_mode & 0o777 == 0o600
    first.save(0.75)
    first.close()
    first.close()
    second = StateFile(path, undrawn)
    assert (second.node, second.location) == (0xC0FFEE, 0.75)
    second.close()


def test_saving_the_same_location_does_not_write(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state", drawn)
    os.remove(tmp_path / "state")
    state.save(0.25)
    assert not (tmp_path / "state").exists()
    state.close()


def test_two_nodes_cannot_share_a_state_file(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state", drawn)
    with pytest.raises(StateFileError, match="is in use by another node; give each its own"):
        StateFile(tmp_path / "state", drawn)
    state.close()
    StateFile(tmp_path / "state", undrawn).close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1]",
        b"\xff",
        b"[" * 4_000,
        b'{"freenet": 2, "node": "1", "location": 0.5}',
        b'{"freenet": 1, "node": "x", "location": 0.5}',
        b'{"freenet": 1, "node": "-1", "location": 0.5}',
        b'{"freenet": 1, "node": "10000000000000000", "location": 0.5}',
        b'{"freenet": 1, "node": "1", "location": 1.0}',
        b'{"freenet": 1, "node": "1", "location": NaN}',
        b'{"freenet": 1, "node": "1"}',
    ],
)
def test_a_malformed_state_file_is_refused_and_left_unchanged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state"
    path.write_bytes(content)
    with pytest.raises(StateFileError, match="is not that of a freenet node; give another path, or remove the file"):
        StateFile(path, drawn)
    assert path.read_bytes() == content
    path.unlink()
    StateFile(path, drawn).close()  # The lock was let go of.


def test_an_unwritable_state_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateFileError, match="cannot be locked: No such file"):
        StateFile(tmp_path / "nowhere" / "state", drawn)
    (tmp_path / "state").mkdir()
    with pytest.raises(StateFileError, match="cannot be read"):
        StateFile(tmp_path / "state", drawn)
    state = StateFile(tmp_path / "other", drawn)
    (tmp_path / "other.new").mkdir()
    with pytest.raises(StateFileError, match="cannot be written"):
        state.save(0.5)
    state.close()
