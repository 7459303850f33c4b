from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from suite.journals import WriteJournal

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.spark.session import (
    add_journal_options,
    add_session_options,
    is_local,
    locations_from_options,
    make_session,
    spark_session,
    split_name,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_journal_options(parser)
    add_session_options(parser)
    return parser.parse_args(list(arguments))


def test_session_options_have_defaults() -> None:
    options = parsed("a")
    assert (options.master, options.conf, options.spark_log, options.quiet) == ("local[*]", [], False, False)
    assert (options.journals, options.stream, options.secret_file) == (["a"], "", None)


def test_spark_settings_are_split_at_the_first_equals_sign() -> None:
    options = parsed("a", "--conf", "spark.x=a=b", "--conf", "spark.y=")
    assert options.conf == [("spark.x", "a=b"), ("spark.y", "")]


@pytest.mark.parametrize("setting", ["spark.x", "x=y", "=1"])
def test_an_invalid_spark_setting_is_refused(setting: str) -> None:
    with pytest.raises(argparse.ArgumentError, match=r"is not of the form spark\.KEY=VALUE"):
        parsed("a", "--conf", setting)


@pytest.mark.parametrize(
    ("master", "local"), [("local", True), ("local[*]", True), ("local[2,3]", True), ("local-cluster[1,1,512]", False)]
)
def test_only_local_masters_are_local(master: str, local: bool) -> None:
    assert is_local(master) is local


@pytest.mark.parametrize(
    ("text", "name", "place"),
    [
        ("/a/b", "", "/a/b"),
        ("left=/a/b", "left", "/a/b"),
        ("left=host:1", "left", "host:1"),
        ("left=/a/b=c", "left", "/a/b=c"),
        ("/a/day=1/x", "", "/a/day=1/x"),
        ("=x", "", "=x"),
    ],
)
def test_a_journal_name_precedes_the_first_equals_sign(text: str, name: str, place: str) -> None:
    assert split_name(text) == (name, place)


def test_an_existing_directory_with_an_equals_sign_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "day=1").mkdir()
    monkeypatch.chdir(tmp_path)
    assert split_name("day=1") == ("", "day=1")
    assert split_name("day=2") == ("day", "2")
    assert split_name("day=*") == ("", "day=*")


def test_journals_are_found_by_path_pattern_and_name(
    write_journal: WriteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = write_journal([1]), write_journal([1])
    found = locations_from_options(parsed(f"{one.parent}", f"right={two}"))
    assert [(origin.journal, origin.path) for origin in found] == [(str(one), str(one)), ("right", str(two))]
    assert len(locations_from_options(parsed(f"{one.parents[1]}/journal-*"))) == 2
    monkeypatch.chdir(one.parents[1])
    [relative] = locations_from_options(parsed(one.parent.name))
    assert relative.path == str(one)


def test_journals_can_be_selected_by_stream(write_journal: WriteJournal) -> None:
    one, two = write_journal([1], stream="fyrehose://one"), write_journal([1], stream="fyrehose://two")
    places = (str(one), str(two))
    assert [origin.stream for origin in locations_from_options(parsed(*places, "--stream", "fyrehose://t*"))] == [
        "fyrehose://two"
    ]
    with pytest.raises(JournalError, match=r"fyrehose://one, fyrehose://two"):
        locations_from_options(parsed(*places, "--stream", "fyrehose://three"))


def test_a_journal_or_name_given_twice_is_refused(write_journal: WriteJournal) -> None:
    one, two = write_journal([1]), write_journal([1])
    with pytest.raises(ConfigurationError, match="is given twice"):
        locations_from_options(parsed(str(one), f"again={one.parent}"))
    with pytest.raises(ConfigurationError, match="two journals of fyrehose://test are called same"):
        locations_from_options(parsed(f"same={one}", f"same={two}"))


def test_a_missing_journal_or_secret_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"there is no journal at /nothing/here"):
        locations_from_options(parsed("/nothing/here"))
    with pytest.raises(ConfigurationError, match=r"secret file .*none cannot be read: No such file"):
        locations_from_options(parsed("host:1", "--secret-file", str(tmp_path / "none")))


@pytest.mark.parametrize("master", ["sc://host", "host:7077", "spark://", "local[", ""])
def test_an_invalid_spark_master_is_refused(master: str) -> None:
    with pytest.raises(ConfigurationError, match="is none of local"):
        make_session("x", master)


@pytest.mark.parametrize("name", ["SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"])
def test_a_variable_that_selects_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "sc://host")
    with pytest.raises(ConfigurationError, match=f"^{name}=sc://host selects Spark Connect, .* unset {name}"):
        make_session("x")


@pytest.mark.extended
def test_a_java_that_exits_at_once_is_reported_in_one_line() -> None:
    arguments = ["sql", "select 1", "--conf", "spark.driver.memory=x"]
    program = f"from fyrehose_twisted.spark.cli import main; main({arguments})"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 3
    assert ran.stderr.splitlines()[-1] == (
        "fyrehose-pipeline: Spark's Java exited during startup: see its output above"
    )


def test_a_missing_pyspark_is_reported_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with (
        pytest.raises(ConfigurationError, match=r"pyspark is not installed.* pip install 'fyrehose_twisted\[spark\]'"),
        spark_session("x"),
    ):
        pass


def test_a_running_session_is_used_and_restored(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        options = argparse.Namespace(conf=[("spark.sql.shuffle.partitions", "3")], quiet=True)
        with spark_session("x", options) as session:
            assert session is spark
            assert session.conf.get("spark.sql.session.timeZone") == "UTC"
            assert session.conf.get("spark.sql.shuffle.partitions") == "3"
            assert session.conf.get("spark.fyrehose.quiet") == "true"
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
        assert spark.conf.get("spark.fyrehose.quiet", None) is None
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert spark.range(3).count() == 3


def test_a_static_setting_of_a_running_session_is_refused(spark: SparkSession) -> None:
    options = argparse.Namespace(conf=[("spark.sql.warehouse.dir", "/elsewhere")])
    with pytest.raises(ConfigurationError, match=r"spark\.sql\.warehouse\.dir can only be set before Spark starts"):
        spark_session("x", options).__enter__()


def test_a_local_session_is_configured(spark: SparkSession) -> None:
    settings: Any = spark.sparkContext.getConf()
    assert settings.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert "log4j2.properties" in settings.get("spark.driver.defaultJavaOptions")


def test_spark_discovers_the_data_source() -> None:
    # As pyspark/sql/worker/lookup_data_sources.py does.
    program = (
        "import sys, pyspark_fyrehose; from pyspark.sql.datasource import DataSource;"
        "assert issubclass(pyspark_fyrehose.DefaultSource, DataSource);"
        "print(pyspark_fyrehose.DefaultSource.name(), 'twisted.internet' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "fyrehose False\n", "")


def test_data_source_discovery_works_without_pyspark() -> None:
    program = "import sys; sys.modules['pyspark'] = None; import pyspark_fyrehose; print(vars(pyspark_fyrehose).keys())"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "DefaultSource" not in ran.stdout


def test_spark_modules_import_no_twisted() -> None:
    names = []
    for path in sorted((ROOT / "src/fyrehose_twisted/spark").rglob("*.py")):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    assert "fyrehose_twisted.spark.source.data_source" in names
    program = f"import {', '.join(names)}, sys; print(*[name for name in sys.modules if name.startswith('twisted')])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, ""), ran.stderr
