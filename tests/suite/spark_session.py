"""One Spark session for all tests that need one: to start it takes seconds."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMOKE = "test_data_source.py::test_a_journal_is_a_table"
"""The test of Spark that every test run has: it reads a journal end to end."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the session as extended, but for the smoke test."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and not item.nodeid.endswith(SMOKE):
            item.add_marker(pytest.mark.extended)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with both cores, and as few shuffle partitions as cores."""
    from fyrehose_twisted.spark.session import make_session

    interrupt = signal.getsignal(signal.SIGINT)
    session = make_session(
        "tests",
        "local[2]",
        {
            "spark.driver.memory": "1g",
            # Tests end before it pays to compile well.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": tmp_path_factory.mktemp("warehouse").as_uri(),
        },
    )
    yield session
    session.stop()
    signal.signal(signal.SIGINT, interrupt)  # Spark took it.
    from pyspark import SparkContext

    # To stop a session leaves Java running, and connections to it open until the process ends.
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
