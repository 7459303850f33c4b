from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from suite.journals import WriteJournal

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.spark import cli
from fyrehose_twisted.spark.sql import Table, print_rows, tables_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make the sql command raise an exception."""

    def fail(options: object) -> int:
        raise error

    monkeypatch.setattr("fyrehose_twisted.spark.sql.run", fail)


def write_parquet(path: Path, **columns: list[object]) -> None:
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def test_pipeline_help_imports_neither_spark_nor_twisted() -> None:
    program = (
        "import sys\nfrom fyrehose_twisted.spark.cli import main\n"
        "try: main(['--help'])\n"
        "finally: assert not {'pyspark', 'pyarrow', 'pandas', 'plotly', 'twisted', 'numpy'} & sys.modules.keys()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    for name in ("run", "verify", "sql", "report"):
        assert f"    {name} " in ran.stdout


@pytest.mark.parametrize("name", ["run", "verify", "sql", "report"])
def test_each_pipeline_command_has_the_session_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, "--help") == 0
    said = capsys.readouterr().out
    for option in ("--master", "--conf", "--spark-log", "--quiet"):
        assert option in said


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["sql"], ["sql", "select 1", "--rows", "0"]])
def test_invalid_pipeline_arguments_exit_with_status_3(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 3
    assert capsys.readouterr().err.splitlines()[-1].startswith("fyrehose-pipeline: ")


def test_an_error_is_one_line_with_status_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, ConfigurationError("this\nis wrong"))
    assert run("sql", "select 1") == 3
    assert capsys.readouterr().err == "fyrehose-pipeline: this is wrong\n"


def test_an_interrupt_is_reported_with_status_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, KeyboardInterrupt())
    assert run("sql", "select 1") == 3
    assert capsys.readouterr().err == "fyrehose-pipeline: interrupted\n"


def test_an_unexpected_exception_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, KeyError("a bug"))
    with pytest.raises(KeyError, match="a bug"):
        cli.main(["sql", "select 1"])


def test_a_missing_journal_is_reported_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert run("sql", "select 1", "/nothing/here") == 3
    assert capsys.readouterr().err == "fyrehose-pipeline: there is no journal at /nothing/here: no such directory\n"


def test_sql_queries_records_of_journals(
    spark: SparkSession, write_journal: WriteJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = write_journal([(1, b"one"), (2, b"\xff\x00")], lost=[(3, 3)])
    query = "select sequence, payload, received_at, status, journal from records order by sequence;"
    assert run("sql", query, f"left={journal}", "--format", "json", "--quiet") == 0
    out, err = capsys.readouterr()
    assert [json.loads(line) for line in out.splitlines()] == [
        {
            "sequence": 1,
            "payload": "one",
            "received_at": "2023-11-14 22:13:20.001000Z",
            "status": "ok",
            "journal": "left",
        },
        {
            "sequence": 2,
            "payload": "0xff00",
            "received_at": "2023-11-14 22:13:20.002000Z",
            "status": "ok",
            "journal": "left",
        },
        {"sequence": 3, "payload": None, "received_at": None, "status": "lost", "journal": "left"},
    ]
    assert err == ""
    assert not spark.catalog.tableExists("records")


def test_sql_queries_pipeline_tables_by_name(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_parquet(tmp_path / "silver/stream=7/epoch=0/bucket=0/a.parquet", sequence=[1, 2])
    write_parquet(tmp_path / "gold/busiest/hour=2026-01-31-10/a.parquet", messages=[5])
    query = "select typeof(stream), typeof(epoch), hour, messages from busiest, silver where sequence = 2"
    assert run("sql", query, tmp_path, "--format", "csv", "--quiet") == 0
    assert list(csv.reader(io.StringIO(capsys.readouterr().out)))[1:] == [["string", "bigint", "2026-01-31-10", "5"]]
    assert run("sql", "select count(*) n from left_silver", f"left={tmp_path}", "--format", "csv", "--quiet") == 0
    assert capsys.readouterr().out == "n\n2\n"


def test_a_query_result_is_limited_or_written_to_files(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow.parquet

    write_parquet(tmp_path / "in" / "a.parquet", number=list(range(5)))
    table = f"--table=t={tmp_path / 'in'}"
    assert run("sql", "select * from t order by number", table, "--rows", "2", "--quiet") == 0
    out, err = capsys.readouterr()
    assert out == "number\n------\n     0\n     1\n"
    assert err.count("\n") == 1
    assert "first 2 rows" in err
    assert run("sql", "select * from t", table, "--out", tmp_path / "out", "--quiet") == 0
    assert pyarrow.parquet.read_table(tmp_path / "out").num_rows == 5
    assert run("sql", "select * from t", table, "--out", tmp_path / "out", "--quiet") == 3
    assert "already exists" in capsys.readouterr().err


def test_an_error_in_a_query_is_one_line(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sql", "select * from nowhere", "--quiet") == 3
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("fyrehose-pipeline: The table or view `nowhere` cannot be found.")


def test_tables_are_directories_with_files(tmp_path: Path) -> None:
    write_parquet(tmp_path / "findings/a.parquet", first=[1])
    (tmp_path / "healed").mkdir()
    write_parquet(tmp_path / "gold/gaps/hour=x/a.parquet", length=[1])
    write_parquet(tmp_path / "gold/_temporary/a.parquet", length=[1])
    assert tables_in(str(tmp_path)) == [
        Table("findings", str(tmp_path / "findings")),
        Table("gaps", str(tmp_path / "gold" / "gaps")),
    ]
    assert [table.name for table in tables_in(str(tmp_path), "x")] == ["x_findings", "x_gaps"]


def test_two_pipeline_tables_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        write_parquet(tmp_path / name / "silver/a.parquet", sequence=[1])
    assert run("sql", "select 1", tmp_path / "one", tmp_path / "two") == 3
    assert "silver would be" in capsys.readouterr().err


def test_an_output_directory_without_tables_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "_fyrehose").mkdir()
    assert run("sql", "select 1", tmp_path) == 3
    assert capsys.readouterr().err == f"fyrehose-pipeline: {tmp_path} holds no table yet\n"


def test_long_and_control_characters_do_not_break_a_printed_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(["n", "text"], [(1, "a\nb\x1b[0m"), (None, None), (20, "x" * 200)], "table")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["   n  text", f"----  {'-' * 100}", "   1  a\\nb\\x1b[0m", "null  null"]
    assert len(lines) == 5
    assert lines[4].endswith("…")


def test_an_empty_table_is_printed_with_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(["n"], [], "table")
    assert capsys.readouterr().out == "n\n-\n"
