from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from fyrehose_twisted.cli.main import main
from fyrehose_twisted.sealing.cli.parser import ALGORITHM_NAMES
from fyrehose_twisted.sealing.key_file import read_key_ring, read_signing_key
from fyrehose_twisted.sealing.keys import ALGORITHMS, DEFAULT_ALGORITHM


class Command:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object, status: int = 0) -> str:
        """Run ``fyrehose key`` and return its output."""
        with pytest.raises(SystemExit) as left:
            main(["key", *map(str, words)])
        shown = self._capsys.readouterr()
        assert left.value.code == status, shown.err
        assert bool(shown.err) == bool(status)
        return shown.err if status else shown.out


@pytest.fixture
def key(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def path(key: Command, tmp_path: Path) -> Path:
    file = tmp_path / "prices.keys"
    key("new", file, "--stream", "prices")
    return file


def test_a_new_key_file_is_private_and_shows_no_secret(key: Command, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    [made] = read_key_ring(path).keys
    assert key("show", path) == f"fyrehose://prices\nkey {made.id.hex()} {DEFAULT_ALGORITHM} seals and opens\n"


def test_keys_rotate(key: Command, path: Path) -> None:
    [old] = read_key_ring(path).keys
    added = key("add", path, "--algorithm", "aes-256-gcm")
    [_, new] = read_key_ring(path).keys
    assert added == f"{new.id.hex()} opens; once all subscribers have it: fyrehose key use {path} {new.id.hex()}\n"
    assert new.algorithm == "aes-256-gcm"
    assert "let another key seal first" in key("drop", path, old.id.hex(), status=1)
    assert key("use", path, new.id.hex().upper()) == f"{new.id.hex()} seals\n"
    assert read_key_ring(path).keys == (new, old)
    assert key("drop", path, old.id.hex()) == f"{old.id.hex()} is removed\n"
    assert read_key_ring(path).keys == (new,)
    assert "is the only key" in key("drop", path, new.id.hex(), status=1)


def test_unknown_keys_are_told_with_the_known_ones(key: Command, path: Path) -> None:
    [known] = read_key_ring(path).keys
    for command in ("use", "drop"):
        assert key(command, path, "00", status=1) == f"fyrehose: {path} has no key '00'; it has {known.id.hex()}\n"


def test_publishers_are_trusted_and_distrusted(key: Command, path: Path, tmp_path: Path) -> None:
    private = tmp_path / "anna.key"
    public = key("sign", private).strip()
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert public == key("sign", private).strip() == read_signing_key(private).public.hex()
    assert key("trust", path, "anna", public) == "anna is trusted\n"
    assert key("show", path).endswith(f"publisher anna {public}\n")
    assert "is not a public key of 64 hexadecimal digits" in key("trust", path, "ben", "x", status=1)
    assert "two publishers have the same public key" in key("trust", path, "ben", public, status=1)
    assert "has no publisher 'ben'" in key("distrust", path, "ben", status=1)
    assert key("distrust", path, "anna") == "anna was the last one; now every holder of a key is trusted\n"
    assert read_key_ring(path).publishers == {}


def test_files_are_not_overwritten(key: Command, path: Path) -> None:
    assert re.search("exists already; choose another name", key("new", path, "--stream", "x", status=1))
    assert re.search("is not the name of a stream", key("new", path, "--stream", "a b", status=1))


def test_the_parser_knows_all_algorithms() -> None:
    assert tuple(ALGORITHMS) == ALGORITHM_NAMES
