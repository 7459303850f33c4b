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
    """Return the path of the records of the default stream of a bench."""
    return "/streams/fyrehose-test/records"
