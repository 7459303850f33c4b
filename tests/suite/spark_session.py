"""Spark session shared by all tests that need one, since its start takes seconds."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMOKE = "test_data_source.py::test_a_journal_is_read_as_a_table"
"""Spark test that is part of every run: it reads a journal end to end."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the session as extended, but for the smoke test."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and not item.nodeid.endswith(SMOKE):
            item.add_marker(pytest.mark.extended)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return a local session with both cores, and as few shuffle partitions as cores."""
    from fyrehose_twisted.spark.session import make_session

    interrupt = signal.getsignal(signal.SIGINT)
    session = make_session(
        "tests",
        "local[2]",
        {
            "spark.driver.memory": "1g",
            # Tests end before extensive compilation pays off.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": tmp_path_factory.mktemp("warehouse").as_uri(),
        },
    )
    yield session
    session.stop()
    signal.signal(signal.SIGINT, interrupt)  # Spark replaced the signal handler.
    from pyspark import SparkContext

    # A stopped session leaves Java running and connected until the process ends.
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
