from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from suite.journals import MakeJournal

from fyrehose_twisted.cli.main import main
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.memory import MemoryJournal
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig

STREAM = "fyrehose://test"

NewPath = Callable[[], Path]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def new_path(tmp_path_factory: pytest.TempPathFactory) -> NewPath:
    """Return a factory of empty directories, for tests that hypothesis calls repeatedly."""
    base, numbers = tmp_path_factory.mktemp("journals"), count()

    def make() -> Path:
        path = base / str(next(numbers))
        path.mkdir()
        return path

    return make


@pytest.fixture(params=["disk", "memory"])
def make_journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeJournal]:
    """Return a factory of journals of STREAM, on disk or in memory, closed at the end of the test."""
    made: list[Any] = []

    def make(*, retention: Retention | None = None, segment_bytes: int = 64 * 2**20, **options: Any) -> Any:
        if request.param == "memory":
            made.append(MemoryJournal(STREAM, retention=retention, **options))
        else:
            config = JournalConfig(segment_bytes=segment_bytes, retention=retention or Retention())
            made.append(Journal(LocalDirectory(tmp_path), STREAM, config=config, **options))
        return made[-1]

    yield make
    for journal in made:
        journal.close()


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Return a function that runs ``fyrehose journal`` and returns status, output and errors."""

    def run(*arguments: Any) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["journal", *map(str, arguments)])
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out.decode(errors="surrogateescape"), err.decode()

    return run
