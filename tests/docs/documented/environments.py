"""Python environments that have only the distributions that a page tells its reader to install.

Each set of requirements gets a virtual environment, made without a network in a second or two:

- The project comes from a wheel that is built once from the working tree.
- Every other distribution that the requirements lead to, by the metadata of what is installed, is linked from the
  environment that runs the tests. A distribution that the requirements do not lead to is not there, so importing it
  fails as it would for the reader.
- Console scripts are written anew, since those of the test environment name its own interpreter.

A directory is linked as a whole if it belongs to one distribution. Others (``twisted/plugins``, ``zope``) are made anew
with links to their files, so nothing is ever written into the test environment. Bytecode comes along.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections import Counter
from collections.abc import Container, Iterable
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, PathDistribution, distribution, distributions
from pathlib import Path, PurePath
from threading import Lock

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from documented.pages import PROJECT, ROOT

OURS = canonicalize_name(PROJECT)

CORE = frozenset({PROJECT})
"""Requirements that ``pip install .`` installs."""

LEFT_OUT = (".*", "__pycache__", "build", "dist", "*.egg-info", "tests", "docs", "benchmarks", "fuzz")
"""Parts of the tree that a wheel does not need."""

SCRIPT = """\
#!{python}
import sys
from {module} import {name}
sys.exit({attribute}())
"""


class Environments:
    """Virtual environments by their requirements, made below ``directory`` when they are first asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[frozenset[str], Path] = {}
        self._project: Path | None = None
        self._lock = Lock()

    def programs(self, requirements: frozenset[str]) -> Path:
        """Return the directory of programs of the environment for these requirements."""
        with self._lock:
            if requirements not in self._made:
                if self._project is None:
                    self._project = self._build_project()
                self._made[requirements] = self._make(requirements, self._project)
            return self._made[requirements]

    def _build_project(self) -> Path:
        """Return a directory with the contents of the project's wheel."""
        tree, wheels, unpacked = (self._directory / name for name in ("tree", "wheels", "project"))
        # A build leaves files in the tree, which the next build would package.
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_OUT))
        offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
        command = [sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", wheels, tree]
        done = subprocess.run(command, cwd=self._directory, capture_output=True, text=True)
        assert done.returncode == 0, f"the wheel of the project cannot be built:\n{done.stdout}\n{done.stderr}"
        [wheel] = wheels.glob("*.whl")
        shutil.unpack_archive(wheel, unpacked, "zip")
        # Otherwise each environment would compile the project.
        subprocess.run([sys.executable, "-m", "compileall", "-q", unpacked], check=True)
        return unpacked

    def _make(self, requirements: frozenset[str], project: Path) -> Path:
        path = self._directory / f"environment-{len(self._made)}"
        venv.create(path, symlinks=True)
        programs = path / "bin"
        site = Path(sysconfig.get_path("purelib", "venv", {"base": str(path), "platbase": str(path)}))
        [metadata] = project.glob("*.dist-info")
        shared = shared_directories() | {part.name for part in project.iterdir()}
        for each in closure(requirements, PathDistribution(metadata)):
            if canonicalize_name(each.name) == OURS:
                shutil.copytree(project, site, dirs_exist_ok=True)
            else:
                link_files(each, site, shared)
            write_scripts(each, programs)
        return programs


def closure(requirements: Iterable[str], project: Distribution) -> list[Distribution]:
    """Return the distributions that these requirements lead to.

    A requirement that is not installed in the test environment is left out: a page that uses it fails.
    """
    pending = [Requirement(text) for text in requirements]
    seen: set[tuple[str, str]] = set()
    found: dict[str, Distribution] = {}
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        try:
            each = project if name == OURS else distribution(name)
        except PackageNotFoundError:
            continue
        found[name] = each
        for extra in ("", *requirement.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                needed = map(Requirement, each.requires or ())
                pending += [one for one in needed if one.marker is None or one.marker.evaluate({"extra": extra})]
    return list(found.values())


@cache
def shared_directories() -> frozenset[str]:
    """Return the directories of the test environment that have files of several distributions."""
    owners = Counter(
        name for each in distributions() for name in {file.parts[0] for file in each.files or () if len(file.parts) > 1}
    )
    return frozenset(name for name, count in owners.items() if count > 1)


def link_files(each: Distribution, site: Path, shared: Container[str]) -> None:
    """Link the files of an installed distribution into another environment; its scripts lie elsewhere."""
    for file in each.files or ():
        if ".." in file.parts:
            continue
        place = PurePath(file) if len(file.parts) == 1 or file.parts[0] in shared else PurePath(file.parts[0])
        source, target = Path(str(each.locate_file(place))), site / place
        if source.exists() and not target.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)


def write_scripts(each: Distribution, programs: Path) -> None:
    """Write the console scripts of a distribution."""
    for script in each.entry_points:
        if script.group == "console_scripts":
            path = programs / script.name
            name = script.attr.partition(".")[0]
            text = SCRIPT.format(python=programs / "python", module=script.module, name=name, attribute=script.attr)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755)


def without_test_environment() -> dict[str, str]:
    """Return this process's environment without variables that affect Python or the commands of a page."""
    ours = str(Path(sys.executable).parent)
    path = [each for each in os.environ["PATH"].split(os.pathsep) if each != ours]
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "SPARK_", "PYSPARK_", "LC_", "BASH")) and not name.lower().endswith("_proxy")
    }
    for name in ("LANG", "LANGUAGE", "VIRTUAL_ENV", "ENV", "CDPATH", "JAVA_HOME", "CURL_HOME", "POSIXLY_CORRECT"):
        kept.pop(name, None)
    return kept | {"PATH": os.pathsep.join(path), "LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONNOUSERSITE": "1"}
