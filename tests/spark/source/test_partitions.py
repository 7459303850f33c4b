"""Work of a Spark worker that reads a partition."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fyrehose_twisted.journal.arrow.schema import RECORD
from fyrehose_twisted.spark.source.data_source import FyrehoseReader
from fyrehose_twisted.spark.source.options import read_options
from fyrehose_twisted.spark.source.partitions import TaskPartition, freeze_modules
from fyrehose_twisted.spark.source.streaming import FyrehoseStreamReader


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    """Begin as a worker does, and leave this process as it was."""
    freeze_modules.cache_clear()
    gc.unfreeze()
    yield
    gc.unfreeze()
    freeze_modules.cache_clear()


@pytest.mark.parametrize("kind", [FyrehoseReader, FyrehoseStreamReader])
def test_a_worker_spares_the_collector_all_modules_once(kind: Callable[..., Any]) -> None:
    reader = kind(read_options({"path": "journals"}, streaming=None), RECORD)
    assert gc.get_freeze_count() == 0
    assert list(reader.read(TaskPartition(()))) == []
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    made_later: list[Any] = [[] for _ in range(1_000)]
    assert list(reader.read(TaskPartition(()))) == []
    assert gc.get_freeze_count() <= frozen, len(made_later)  # Frozen ones may have ended meanwhile.
