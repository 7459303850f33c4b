"""Versions of Python that metadata, documentation, checks and CI name, and imports of free-threaded builds."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
GUIDE = "docs/howto/pythons.md"

IMPORTS = """
import importlib, json, pkgutil, sys, sysconfig, warnings
import fyrehose_twisted
# Without -W error a module that enables the GIL only warns.
warnings.simplefilter("ignore")
missing, guilty = {}, {}
for found in pkgutil.walk_packages(fyrehose_twisted.__path__, "fyrehose_twisted."):
    if found.name.endswith(".__main__"):
        continue
    before = sys._is_gil_enabled()
    try:
        importlib.import_module(found.name)
    except ModuleNotFoundError as error:
        missing[found.name] = error.name
    if not before and sys._is_gil_enabled():
        guilty[found.name] = True
print(json.dumps([missing, list(guilty)]))
"""
"""Imports all modules; prints those whose extra is missing, and the first one that enabled the GIL."""


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def settings() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(delimiters=("=",), comment_prefixes=("#",))
    parser.read(ROOT / "setup.cfg")
    return parser


@pytest.fixture(scope="module")
def versions(settings: configparser.ConfigParser) -> list[str]:
    """Return the versions among the classifiers, from the oldest to the newest."""
    return re.findall(r"^Programming Language :: Python :: (3\.\d+)$", settings["metadata"]["classifiers"], re.M)


def rows(title: str) -> dict[str, list[str]]:
    """Return the rows of the first table below a heading of the guide, by their first cell."""
    lines = read(GUIDE).partition(f"## {title}\n")[2].partition("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {first: rest for first, *rest in cells[2:]}


def test_classifiers_are_consecutive_and_begin_with_the_required_version(
    settings: configparser.ConfigParser, versions: list[str]
) -> None:
    minors = [int(version.partition(".")[2]) for version in versions]
    assert minors == [*range(minors[0], minors[0] + len(minors))]
    assert settings["options"]["python_requires"] == f">={versions[0]}"


def test_checks_assume_the_oldest_version(versions: list[str]) -> None:
    major, minor = versions[0].split(".")
    assert f'target-version = "py{major}{minor}"' in read("pyproject.toml")
    assert f"sys.version_info < ({major}, {minor})" in read("Makefile")
    assert f"OLDEST_PYTHON = ({major}, {minor})" in read("src/fyrehose_twisted/cli/doctor/software.py")


@pytest.mark.parametrize("path", ["README.md", "CONTRIBUTING.md", "Makefile"])
def test_texts_name_the_oldest_version(path: str, versions: list[str]) -> None:
    assert set(re.findall(r"Python (3\.\d+) or newer", read(path))) == {versions[0]}


def test_readme_names_all_versions(versions: list[str]) -> None:
    assert f"CPython {versions[0]} to {versions[-1]}" in read("README.md")


def test_table_of_versions_has_those_of_the_classifiers(versions: list[str]) -> None:
    complete = [first for first, (tests, *_) in rows("Versions").items() if tests == "`make test`"]
    assert complete == versions


def test_table_of_versions_says_what_ci_runs(versions: list[str]) -> None:
    script = read(".ci/second-python")
    [named] = re.findall(r"^for python in (.*); do$", script, re.M)
    assert named.split() == [f"python{version}" for version in reversed(versions[1:])]
    assert ".ci/second-python" in read(".ci/run")


def imports_with(python: str | Path, *options: str, **environment: str) -> Any:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    done = subprocess.run(
        [python, *options, "-c", IMPORTS], env=variables | environment, capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not FREE_THREADED, reason="this Python has a GIL")
def test_no_module_enables_the_gil_of_a_free_threaded_build() -> None:
    missing, guilty = imports_with(sys.executable)
    assert not guilty
    assert not [name for name in missing.values() if name.startswith("fyrehose_twisted")]


def free_threaded_programs() -> list[str]:
    """Return the free-threaded interpreters on PATH, which a version manager may offer and not have."""
    names = (f"python3.{minor}t" for minor in range(13, 30))
    found = (path for path in map(shutil.which, names) if path is not None)
    return [path for path in found if subprocess.run([path, "-c", ""], capture_output=True).returncode == 0]


@pytest.mark.soak
def test_a_free_threaded_interpreter_installs_and_imports_the_core(tmp_path: Path) -> None:
    programs = free_threaded_programs()
    if not programs:
        pytest.skip("there is no free-threaded interpreter, such as python3.14t, on PATH")
    for number, program in enumerate(programs):
        place = tmp_path / str(number)
        subprocess.run([program, "-m", "venv", place], check=True)
        python = place / "bin" / "python"
        # A build in the checkout would package stale files of build/.
        left_out = (".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "build", "dist", "*.egg-info")
        shutil.copytree(ROOT, place / "tree", symlinks=True, ignore=shutil.ignore_patterns(*left_out))
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--prefer-binary", place / "tree"], check=True)
        _, guilty = imports_with(python)
        assert not guilty
