"""Options of the benchmarks: each that is read is declared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

BENCHMARKS = sorted((Path(__file__).parents[2] / "benchmarks").glob("bench_*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_each_option_that_a_benchmark_reads_is_declared(path: Path) -> None:
    text = path.read_text("utf-8")
    declared = {name.replace("-", "_") for name in re.findall(r'add_argument\(\s*"(?:--)?([a-z][a-z0-9-]*)"', text)}
    declared |= set(re.findall(r'dest="(\w+)"', text)) | set(re.findall(r"options\.(\w+) = ", text))
    declared |= {"json"} if "add_option(parser" in text else set()
    declared |= {"role", "variant", "keys"} if "add_role_options(parser" in text else set()
    assert set(re.findall(r"\boptions\.(\w+)", text)) <= declared
