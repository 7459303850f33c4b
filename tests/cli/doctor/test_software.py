from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest

from fyrehose_twisted.cli.doctor import software
from fyrehose_twisted.cli.doctor.finding import Level
from fyrehose_twisted.cli.doctor.software import (
    EXTRA_NAMES,
    Requirement,
    assess_extras,
    assess_java,
    assess_packages,
    assess_python,
    parse_release,
    parse_requirement,
)
from fyrehose_twisted.spark.java import JavaRuntime

TWISTED = Requirement("twisted", ((">=", "24.11"),), None)
JAVA_8, JAVA_17 = (
    JavaRuntime("JAVA_HOME", Path("/8/bin/java"), 8),
    JavaRuntime("PATH", Path("/17/bin/java"), 17),
)
BROKEN_JAVA = JavaRuntime("PATH", Path("/x/bin/java"), None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("twisted>=24.11", TWISTED),
        ("tqdm", Requirement("tqdm", (), None)),
        (
            'pyspark[sql]<5,>=4.2; extra == "spark"',
            Requirement("pyspark", ((">=", "4.2"), ("<", "5")), "spark"),
        ),
        ("zope.interface (>=6)", Requirement("zope.interface", ((">=", "6"),), None)),
        ("; nothing", None),
    ],
)
def test_requirements_are_parsed(text: str, expected: Requirement | None) -> None:
    assert parse_requirement(text) == expected


def test_all_requirements_of_the_package_can_be_parsed() -> None:
    texts = metadata.requires("fyrehose_twisted") or []
    needed = [parse_requirement(text) for text in texts]
    assert None not in needed
    extras = {need.extra for need in needed if need is not None}
    assert set(EXTRA_NAMES) <= extras


@pytest.mark.parametrize(
    ("version", "expected"), [("24.11.0rc1", (24, 11)), ("6", (6,)), ("1.10.2.post1", (1, 10, 2)), ("dev", ())]
)
def test_release_numbers_of_versions_are_parsed(version: str, expected: tuple[int, ...]) -> None:
    assert parse_release(version) == expected


@pytest.mark.parametrize(
    ("version", "met"), [("4.2", True), ("4.10.1", True), ("4.1.9", False), ("5.0.0", False), (None, False)]
)
def test_versions_are_compared_numerically(version: str | None, met: bool) -> None:
    assert Requirement("pyspark", ((">=", "4.2"), ("<", "5")), "spark").met_by(version) is met


def test_the_python_version_is_assessed() -> None:
    assert assess_python((3, 11, 0), "CPython 3.11.0").level == Level.OK
    assert assess_python((3, 10, 9), "CPython 3.10.9").level == Level.WRONG


@pytest.mark.parametrize(
    ("versions", "broken", "level", "said"),
    [
        ({"twisted": "26.10.0"}, {}, Level.OK, "twisted 26.10.0"),
        ({"twisted": "24.7"}, {}, Level.WRONG, "twisted>=24.11 is required, 24.7 is installed"),
        ({}, {}, Level.WRONG, "twisted>=24.11 is required, none is installed"),
        ({"twisted": "26.10.0"}, {"twisted": "ImportError: x"}, Level.WRONG, "cannot be imported (ImportError: x)"),
    ],
)
def test_installed_packages_are_assessed(
    versions: dict[str, str], broken: dict[str, str], level: Level, said: str
) -> None:
    found = assess_packages([TWISTED], versions, broken)
    assert found.level == level
    assert said in found.found


def test_missing_extras_are_ok() -> None:
    needed = [Requirement(f"for-{extra}", ((">=", "2"),), extra) for extra in EXTRA_NAMES]
    found = assess_extras(needed, {"for-web": "2", "for-keys": "3", "for-spark": "1"})
    assert found.level == Level.OK
    assert found.found == ("usable: keys, web; not installed: parquet, query, report, spark (cannot use for-spark 1)")
    assert found.advice == "to install the ones you need: pip install 'fyrehose_twisted[parquet,query,report,spark]'"
    assert assess_extras([], {}).advice is None


@pytest.mark.parametrize(
    ("spark", "found", "level", "said"),
    [
        (False, [], Level.OK, "not needed"),
        (True, [JAVA_17], Level.OK, "Java 17 of PATH, /17/bin/java"),
        (True, [JAVA_8, JAVA_17], Level.OK, "Java 17 of PATH"),
        (True, [JAVA_8], Level.WARN, "/8/bin/java of JAVA_HOME is Java 8"),
        (True, [BROKEN_JAVA], Level.WARN, "/x/bin/java of PATH does not start"),
        (True, [], Level.WARN, "none installed"),
    ],
)
def test_java_runtimes_are_assessed(spark: bool, found: Sequence[JavaRuntime], level: Level, said: str) -> None:
    judged = assess_java(spark, found)
    assert judged.level == level
    assert said in judged.found


def test_requirements_are_unknown_for_a_source_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "DISTRIBUTION", "fyrehose-that-nobody-installed")
    found = software.check_software()
    assert [finding.check for finding in found] == ["python", "packages", "extras", "java"]
    assert all(finding.found.startswith("cannot be known: ") for finding in found[1:])
