from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from query.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture
def records() -> str:
    """The path of the records of the stream that a bench writes by default."""
    return "/streams/fyrehose-test/records"
