"""Spark Connect: a server and its client as processes on loopback."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyspark
import pytest
from integration.running import connect_client
from integration.running.backbone import RunningBackbone
from integration.running.programs import Program

from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.layout import make_directory
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.record import Record
from fyrehose_twisted.spark.java import java_home

pytestmark = pytest.mark.extended

STREAM = "fyrehose://test"
START = 1_700_000_000_000_000
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"

Call = Callable[..., Any]


class CallFailed(Exception):
    """Error of a call in the client's process."""


@pytest.fixture(scope="module")
def server(free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a server and return its URL."""
    port, directory = free_port(), tmp_path_factory.mktemp("server")
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.memory": "1g",
        # Tests end before extensive compilation pays off.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": "false",
    }
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    program = Program(
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *("--class", SERVER, "--master", "local[2]"),
        *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
        "spark-internal",
        env=environment,
        cwd=directory,
    )
    try:
        program.wait_until(lambda: "Spark Connect server started" in program.err or program.process.poll() is not None)
        assert program.process.poll() is None, program
        yield f"sc://127.0.0.1:{port}"
    finally:
        program.destroy()


@pytest.fixture(scope="module")
def call(server: str) -> Iterator[Call]:
    """Return a function that calls one of the client's functions in its process."""
    program = Program(sys.executable, str(Path(connect_client.__file__)), server)
    answered = 0

    def called(name: str, *arguments: object) -> Any:
        nonlocal answered
        program.write(json.dumps([name, *map(str, arguments)]).encode() + b"\n")
        answered += 1
        answer = json.loads(program.wait_for(r'\{"(result|error)": .*\}\n', times=answered)[0])
        if "error" in answer:
            raise CallFailed(answer["error"])
        return answer["result"]

    yield called
    assert program.finish() == 0, program
    program.destroy()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that adds numbers to a journal and returns the directory of its stream."""

    def written(name: str, *numbers: int) -> Path:
        (tmp_path / name).mkdir(exist_ok=True)
        path = make_directory(tmp_path / name, STREAM)
        with closing(Journal(LocalDirectory(path), STREAM)) as journal:
            journal.begin(0, 1)
            journal.append(
                [Record(STREAM, 0, one, START + one * 1_000, b"message %d" % one) for one in numbers],
                authoritative=True,
            )
            journal.commit()
        return path

    return written


Write = Callable[..., Path]


def test_connect_session_reads_journals(call: Call, write: Write) -> None:
    path = write("kept", *range(1, 101))
    assert call("unregistered", path) == 100
    assert call("rows", path, "sequence between 9 and 10") == [[9, "message 9"], [10, "message 10"]]


def test_connect_session_queries_only_the_columns_that_it_needs(call: Call, write: Write) -> None:
    path = write("kept", *range(1, 101))
    texts = {
        "select count(*) from records": [],
        "select max(sequence) from records where status = 'ok'": ["sequence", "status"],
        "select count(*) from records where epoch < (select max(length(payload)) from records)": ["epoch", "payload"],
        "select a.sequence from records a join records b on a.sequence = b.epoch": ["epoch", "sequence"],
        "select stream from records where cast(payload as string) = 'a\nProject b' and epoch = 1": None,
        "select * from records limit 1": None,
    }
    assert call("needed", path, *texts) == [*texts.values()]


def test_column_pruning_in_a_connect_session_does_not_change_results(call: Call, write: Write) -> None:
    path = write("kept", *range(1, 101))
    texts = {
        "select count(*), max(sequence) from records": [[100, 100]],
        "select min(length(payload)), '{}' from records where sequence > 90; ": [[10, "{}"]],
        "with a as (select payload from records) select count(*) from a where payload like '%5' -- all": [[10]],
        "select count(*) from records where sequence < (select max(length(payload)) from records)": [[10]],
        "select count(*), (select count(*) from records where sequence = 50) from records": [[100, 1]],
        "select max(stream) from records where cast(payload as string) <> 'a\n+- Project b'": [[STREAM]],
    }
    assert call("queries", path, *texts) == [*texts.values()]


def test_query_of_a_connect_session_keeps_its_journal(call: Call, write: Write) -> None:
    """The server looks up the table of a query only when its rows are requested."""
    assert call("counts", write("one", 1), write("two", 1, 2)) == [1, 2]


def test_connect_session_publishes_tables_and_streams(
    call: Call, write: Write, backbone: RunningBackbone, start: Callable[..., Program], tmp_path: Path
) -> None:
    subscriber = start("fyrehose", "sub", "-b", backbone.text, "--count", 11)
    backbone.wait_for_clients(1)
    assert call("send", backbone.text, write("kept", *range(1, 10)), tmp_path / "checkpoint") == 1
    assert subscriber.finish() == 0, subscriber
    first, second, *others = subscriber.out.splitlines()
    assert (first, second) == ("from a function", "from a table")
    # Each task of a batch publishes on its own.
    assert sorted(others) == [f"message {number}" for number in range(1, 10)]


def test_connect_session_compares_journals(call: Call, write: Write) -> None:
    east, west = write("east", 1, 2, 3), write("west", 1, 2)
    assert call("verify", east, west) == [["missing/after"], 3]


def test_commands_without_output_directory_use_the_active_connect_session(call: Call, write: Write) -> None:
    path = write("kept", 1, 2)
    assert call("command", "sql", "select max(sequence) m from records", path, "--format", "csv") == "m\n2\nstatus 0"
    assert call("command", "verify", path).endswith("status 0")


@pytest.mark.parametrize(
    ("name", "subject"),
    [("pipeline", "the pipeline"), ("output", "writing the tables of a verification"), ("sweep", "a sweep")],
)
def test_what_needs_java_refuses_a_connect_session(call: Call, tmp_path: Path, name: str, subject: str) -> None:
    with pytest.raises(
        CallFailed, match=rf"^ConfigurationError: {subject} requires a classic Spark session, .*--master"
    ):
        call(name, tmp_path / "out")
