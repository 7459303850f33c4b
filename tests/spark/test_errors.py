"""Error lines of failures; ``failures.json`` has texts of real ones from PySpark 4.3."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.spark.errors import error_line, innermost_cause

FAILURES = json.loads(Path(__file__).with_name("failures.json").read_text())


@pytest.mark.parametrize("failure", FAILURES, ids=[failure["what"] for failure in FAILURES])
def test_the_innermost_cause_of_a_spark_error_is_reported(failure: dict[str, str]) -> None:
    assert innermost_cause(failure["text"]) == failure["line"]


@given(st.text())
def test_any_spark_error_is_reported_on_one_line(text: str) -> None:
    for said in (text, f"Traceback (most recent call last):\n{text}", f": java.io.IOException: {text}\n\tat x"):
        assert len(innermost_cause(said).splitlines()) <= 1


def test_package_errors_are_reported_unchanged() -> None:
    assert error_line(ConfigurationError("this is\nwrong")) == "this is wrong"


def test_operating_system_errors_name_the_file() -> None:
    assert error_line(FileNotFoundError(2, "No such file or directory", "/a/b")) == "/a/b: No such file or directory"
    assert error_line(OSError("odd")) == "odd"


def test_spark_errors_are_recognised() -> None:
    from pyspark.errors import AnalysisException

    assert error_line(AnalysisException("[NO_SUCH] There is none. SQLSTATE: 42000; line 1")) == "There is none. line 1"


def test_an_unexpected_exception_has_no_error_line() -> None:
    assert error_line(KeyError("x")) is None
