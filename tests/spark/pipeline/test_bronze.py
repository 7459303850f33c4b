"""Bronze tables: batches written once, by one query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.journal.arrow.schema import COLUMNS, ddl
from fyrehose_twisted.spark.pipeline.bronze import Bronze
from fyrehose_twisted.spark.pipeline.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = "fyrehose://test"


def put(root: Path, name: str, text: str = "") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def bronze(spark: SparkSession, root: Path, *streams: str) -> Bronze:
    return Bronze(spark, Files(spark, str(root)), streams or (STREAM,))


def test_small_state_files_are_replaced_atomically(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, str(tmp_path / "with space"))
    assert files.read_text("a/b") is None
    assert files.list("a") == []
    files.write_text("a/b", "first")
    files.write_text("a/b", "zweitens: ü")
    assert files.read_text("a/b") == "zweitens: ü"
    assert files.list("a") == ["b"]
    files.delete("a")
    assert not files.exists("a/b")
    files.delete("a")


def test_an_invalid_bronze_state_file_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "mark", "{")
    with pytest.raises(StateFileError, match="mark is not a JSON object"):
        Files(spark, str(tmp_path)).read_json("mark")


def test_the_query_that_began_bronze_may_continue_it(spark: SparkSession, tmp_path: Path) -> None:
    bronze(spark, tmp_path).check()
    put(tmp_path, "checkpoint/metadata", json.dumps({"id": "q"}))
    put(tmp_path, "_fyrehose/query.json", json.dumps({"query": "q", "streams": [STREAM]}))
    put(tmp_path, "bronze/batch=0/x")
    bronze(spark, tmp_path).check()
    bronze(spark, tmp_path, STREAM, "fyrehose://more").check()


def test_another_query_may_not_continue_bronze(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "bronze/batch=0/x")
    with pytest.raises(StateFileError, match="bronze of an unknown query"):
        bronze(spark, tmp_path).check()
    put(tmp_path, "_fyrehose/query.json", json.dumps({"query": "q", "streams": [STREAM]}))
    with pytest.raises(StateFileError, match="1 batch of bronze and no checkpoint"):
        bronze(spark, tmp_path).check()
    put(tmp_path, "checkpoint/metadata", json.dumps({"id": "other"}))
    with pytest.raises(StateFileError, match="that of query other, but bronze was written by query q"):
        bronze(spark, tmp_path).check()
    put(tmp_path, "checkpoint/metadata", json.dumps({"id": "q"}))
    with pytest.raises(StateFileError, match="no journal given is of fyrehose://test"):
        bronze(spark, tmp_path, "fyrehose://elsewhere").check()


def test_a_repeated_batch_replaces_its_partial_files(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "checkpoint/metadata", json.dumps({"id": "q"}))
    written = bronze(spark, tmp_path)
    rows = [(STREAM, 0, number, None, bytearray(b"x"), "ok", "j", "s") for number in range(5)]
    table = spark.createDataFrame(rows, ddl(tuple(COLUMNS)))
    written.write(table.limit(2), 0)
    put(tmp_path, "bronze/batch=0/_temporary/half")
    written.write(table, 0)
    assert json.loads((tmp_path / "_fyrehose/query.json").read_text()) == {"query": "q", "streams": [STREAM]}
    assert [row.sequence for row in written.read([0]).orderBy("sequence").collect()] == [0, 1, 2, 3, 4]
    assert not (tmp_path / "bronze/batch=0/_temporary").exists()
    with pytest.raises(StateFileError, match="lacks batch=1"):
        written.read([0, 1])


def test_the_finished_batch_is_the_last_committed_one(spark: SparkSession, tmp_path: Path) -> None:
    assert bronze(spark, tmp_path).finished() == -1
    for number in (8, 9, 10):
        put(tmp_path, f"checkpoint/commits/{number}")
    put(tmp_path, "checkpoint/commits/.11.tmp")
    assert bronze(spark, tmp_path).finished() == 10
