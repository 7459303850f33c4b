"""Column pruning in a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from suite.journals import WriteJournal

from fyrehose_twisted.journal.arrow.schema import RECORD
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.upkeep.seal import seal
from fyrehose_twisted.spark import query_journal, read_journal
from fyrehose_twisted.spark.source.pruning import needed_columns, reads_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("query", "needed"),
    [
        ("select count(*) from records", set()),
        ("select sequence from records", {"sequence"}),
        (
            "select max(sequence), min(received_at) from records where status = 'ok'",
            {"sequence", "received_at", "status"},
        ),
        ("select count(*) from (select sequence, payload from records order by payload)", set()),
        ("select epoch, count(*) from records group by epoch having count(*) > 1", {"epoch"}),
        ("select a.sequence from records a join records b on a.sequence = b.epoch", {"sequence", "epoch"}),
        ("select count(payload) from records", {"payload"}),
        (
            "select sequence from records where epoch < (select max(length(payload)) from records)",
            {"sequence", "epoch", "payload"},
        ),
        ("select sequence, (select max(status) from records) from records", {"sequence", "status"}),
        ("with a as (select payload from records) select count(*) from a where exists (select 1 from a)", set()),
        ("select 1 from records where 1 = 2", None),
        ("select sequence from records union all select length(payload) from records", {"sequence", "payload"}),
        ("select * from records", set(RECORD)),
        ("select * from records where sequence > 5", None),
        ("select * from records limit 3", None),
    ],
)
def test_needed_columns_are_found_in_the_query_plan(
    spark: SparkSession, write_journal: WriteJournal, query: str, needed: set[str] | None
) -> None:
    read_journal(spark, str(write_journal([1, 2]))).createOrReplaceTempView("records")
    found = needed_columns(spark.sql(query))
    assert found == needed or (found is None and needed == set(RECORD))


def test_column_pruning_does_not_change_results(spark: SparkSession, write_journal: WriteJournal) -> None:
    found = write_journal(range(1, 101), group=10)
    for query, rows in (
        ("select count(*) from records", [(100,)]),
        ("select max(sequence), count(*) from records where sequence % 2 = 1;", [(99, 50)]),
        ("select sequence from records where status = 'ok' order by sequence desc limit 2", [(100,), (99,)]),
        ("select length(payload) from records where sequence = 7", [(9,)]),
        ("select count(*) from records where sequence < (select max(length(payload)) from records)", [(10,)]),
        ("select '{}', max(stream) from records -- all", [("{}", "fyrehose://test")]),
    ):
        assert list(map(tuple, query_journal(spark, query, str(found)).collect())) == rows, query


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select count(*), (select count(*) from records where sequence = 50) from records", [(100, 1)]),
        ("select (select count(*) from records where sequence = 50), (select max(sequence) from records)", [(1, 100)]),
        ("select count(*) from records a join records b on a.sequence = b.sequence + 1 where b.sequence = 50", [(1,)]),
        (
            "with a as (select * from records) select count(*) from a where sequence = 50"
            " union all select count(*) from a where sequence > 90",
            [(1,), (10,)],
        ),
    ],
)
def test_query_that_reads_the_records_at_several_places_applies_each_filter_at_its_own(
    spark: SparkSession, write_journal: WriteJournal, query: str, rows: list[tuple[int, ...]]
) -> None:
    found = query_journal(spark, query, str(write_journal(range(1, 101))), pushdown="once")
    assert sorted(map(tuple, found.collect())) == rows
    assert not reads_once(found)


@pytest.mark.parametrize("columns", ["*", "sequence"])
def test_query_that_reads_the_records_at_one_place_skips_ranges_outside_its_filter(
    spark: SparkSession, write_journal: WriteJournal, columns: str
) -> None:
    query = f"select {columns} from records where sequence > 90"
    found = query_journal(spark, query, str(write_journal(range(1, 101))), pushdown="once", rowsPerPartition="10")
    assert (found.rdd.getNumPartitions(), found.count()) == (1, 10)


def test_others_may_build_on_the_table_of_a_query(spark: SparkSession, write_journal: WriteJournal) -> None:
    found = query_journal(spark, "select sequence from records where sequence > 10", str(write_journal(range(1, 101))))
    one = found.where("sequence = 50")
    assert [one.count(), found.count(), one.union(found.where("sequence = 70")).count()] == [1, 90, 2]


def test_command_over_records_runs_once(spark: SparkSession, write_journal: WriteJournal) -> None:
    spark.sql("create table numbers (sequence bigint) using parquet")
    try:
        query_journal(spark, "insert into numbers select sequence from records", str(write_journal([1, 2])))
        assert spark.table("numbers").count() == 2
    finally:
        spark.sql("drop table numbers")


def test_needed_columns_of_a_cached_table_are_unknown(spark: SparkSession, write_journal: WriteJournal) -> None:
    frame = read_journal(spark, str(write_journal([1, 2])))
    frame.createOrReplaceTempView("records")
    frame.cache()
    frame.count()
    try:
        assert needed_columns(spark.sql("select sequence from records")) is None
    finally:
        frame.unpersist()


def test_pruned_columns_are_not_checked(spark: SparkSession, write_journal: WriteJournal) -> None:
    """Damage of payloads is found only by queries that need them."""
    path = write_journal(range(1, 101))
    seal(LocalDirectory(path), "fyrehose://test", 0)
    (file,) = path.glob("*.seg")
    data = bytearray(file.read_bytes())
    data[data.find(b"message 55")] ^= 1
    file.write_bytes(data)
    assert query_journal(spark, "select count(*) from records", str(path)).collect() == [(100,)]
    assert query_journal(spark, "select max(received_at) is null from records", str(path)).collect() == [(False,)]
    with pytest.raises(PySparkException, match="the checksum of the body is wrong"):
        query_journal(spark, "select max(payload) from records", str(path)).collect()
