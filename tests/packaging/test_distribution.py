"""Contents of the distributions, and effects of their installation and removal on Twisted."""

from __future__ import annotations

import email
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
DROP_INS = {"twisted/plugins/fyrehose_twisted_endpoints.py", "twisted/plugins/fyrehose_twisted_plugins.py"}
FOR_SPARK = "pyspark_fyrehose.py"
READ = {".css", ".html", ".js", ".lua", ".properties", ".svg"}
"""File name suffixes of non-module files that must be packaged."""
SERVICES = {
    "freenet-node",
    "fyrehose-backbone",
    "fyrehose-client",
    "fyrehose-frontend",
    "fyrehose-journal",
    "fyrehose-relay",
    "fyrehose-query",
    "hydra-node",
    "parcels-node",
}

# The console script's first line names the interpreter of the environment it was copied from.
TWISTD = "from twisted.scripts.twistd import run; run()"


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"PYTHONNOUSERSITE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} failed\n{done.stdout}\n{done.stderr}"
    return done.stdout


def services_listed(python: str | Path, cwd: Path) -> set[str]:
    listing = run(python, "-c", TWISTD, "--help", cwd=cwd)
    first_words = (line.split()[0] for line in listing.splitlines() if line.strip())
    return {word for word in first_words if word.startswith(("freenet-", "fyrehose-", "hydra-", "parcels-"))}


class Environment:
    """A virtual environment isolated from the checkout."""

    def __init__(self, path: Path) -> None:
        venv.create(path, with_pip=False, symlinks=True)
        base = str(path)
        self.python = path / "bin" / "python"
        self.site = Path(sysconfig.get_path("purelib", "venv", {"base": base, "platbase": base}))
        self.elsewhere = path / "elsewhere"
        self.elsewhere.mkdir()

    def pip(self, *arguments: str | Path) -> None:
        run(sys.executable, "-m", "pip", "--python", self.python, *arguments, cwd=self.elsewhere)

    def twistd(self, *arguments: str) -> str:
        return run(self.python, "-c", TWISTD, *arguments, cwd=self.elsewhere)

    def services(self) -> set[str]:
        return services_listed(self.python, self.elsewhere)

    def copy_dependencies(self, requirements: Iterable[str]) -> None:
        """Copy installed distributions, since Twisted and the drop-in share a directory in a real installation.

        Only declared requirements are copied, so an undeclared one is missing in the environment.
        """
        pending = [Requirement(text) for text in requirements]
        seen: set[tuple[str, frozenset[str]]] = set()
        while pending:
            requirement = pending.pop()
            extras = frozenset(requirement.extras)
            key = canonicalize_name(requirement.name), extras
            if key in seen:
                continue
            seen.add(key)
            distribution = importlib.metadata.distribution(requirement.name)
            for file in distribution.files or ():
                if ".." not in file.parts and "__pycache__" not in file.parts and file.name != "dropin.cache":
                    target = self.site / file
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(distribution.locate_file(file), target)
            pending += needed(distribution.requires or (), extras)

    def twisted_files(self) -> dict[str, str]:
        """Return the digest of each file of Twisted, without generated files."""
        return {
            str(path.relative_to(self.site)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in (self.site / "twisted").rglob("*")
            if path.is_file() and path.suffix != ".pyc" and path.name != "dropin.cache"
        }


def needed(requirements: Iterable[str], extras: Iterable[str]) -> list[Requirement]:
    parsed = [Requirement(text) for text in requirements]
    contexts = [{"extra": extra} for extra in ("", *extras)]
    return [
        requirement
        for requirement in parsed
        if requirement.marker is None or any(requirement.marker.evaluate(context) for context in contexts)
    ]


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def build_wheel(source: Path, into: Path) -> Path:
    offline = ("--no-deps", "--no-build-isolation", "--no-index")
    run(sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", into, source, cwd=into)
    [wheel] = into.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clean copy of the tree, since a build would package stale files of build/."""
    copy = tmp_path_factory.mktemp("source") / "tree"
    left_out = (".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*left_out))
    (copy / "src" / min(DROP_INS)).with_name("dropin.cache").write_bytes(b"must not be packed")
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", into, source, cwd=into)
    [archive] = into.glob("*.tar.gz")
    return archive


@pytest.fixture
def environment(wheel: Path, tmp_path: Path) -> Environment:
    made = Environment(tmp_path / "environment")
    with zipfile.ZipFile(wheel) as archive:  # importlib.metadata would keep the file open.
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    made.copy_dependencies(str(requirement) for requirement in needed(metadata.get_all("Requires-Dist", []), ()))
    return made


@pytest.mark.extended
def test_wheel_adds_its_plugins_to_twisted(wheel: Path) -> None:
    assert {name for name in names(wheel) if name.startswith("twisted")} == DROP_INS
    assert not any("dropin.cache" in name or "__pycache__" in name for name in names(wheel))


@pytest.mark.extended
def test_wheel_has_every_module(wheel: Path, source: Path) -> None:
    paths = (source / "src/fyrehose_twisted").rglob("*.py")
    modules = {path.relative_to(source / "src").as_posix() for path in paths}
    assert {name for name in names(wheel) if name.endswith(".py")} == modules | DROP_INS | {FOR_SPARK}


@pytest.mark.extended
def test_wheel_has_every_file_that_modules_read(wheel: Path, source: Path) -> None:
    paths = (source / "src/fyrehose_twisted").rglob("*")
    read = {path.relative_to(source / "src").as_posix() for path in paths if path.suffix in READ and path.is_file()}
    packed = {name for name in names(wheel) if name.startswith("fyrehose_twisted/") and not name.endswith(".py")}
    assert packed == read | {"fyrehose_twisted/py.typed"}
    assert {"fyrehose_twisted/sim/runs/page.html", "fyrehose_twisted/spark/log4j2.properties"} <= read


@pytest.mark.extended
def test_sdist_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    assert names(build_wheel(sdist, tmp_path)) == names(wheel)


@pytest.mark.extended
def test_installed_wheel_lists_and_loads_its_services(environment: Environment, wheel: Path) -> None:
    environment.pip("install", "--no-deps", "--no-index", wheel)
    assert environment.services() == SERVICES
    for service in SERVICES:
        assert service in environment.twistd(service, "--help")
    for command in ("fyrehose", "fyrehose-pipeline"):
        run(environment.python.with_name(command), "--help", cwd=environment.elsewhere)


@pytest.mark.extended
def test_pipeline_command_without_spark_names_the_extra(environment: Environment, wheel: Path) -> None:
    environment.pip("install", "--no-deps", "--no-index", wheel)
    command = environment.python.with_name("fyrehose-pipeline")
    done = subprocess.run([command, "sql", "select 1"], cwd=environment.elsewhere, capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("pip install 'fyrehose_twisted[spark]'\n")
    # Spark imports the module in every session; a Spark that is too old must not fail because of it.
    run(environment.python, "-c", "import pyspark_fyrehose", cwd=environment.elsewhere)


@pytest.mark.extended
def test_uninstall_restores_the_files_of_twisted(environment: Environment, wheel: Path) -> None:
    before = environment.twisted_files()
    assert "twisted/__init__.py" in before
    environment.pip("install", "--no-deps", "--no-index", wheel)
    # dropin.cache now names the services; twistd must ignore it after their removal.
    assert environment.services() == SERVICES
    environment.pip("uninstall", "--yes", "fyrehose_twisted")
    assert environment.twisted_files() == before
    assert environment.services() == set()


def test_editable_install_lists_its_services(tmp_path: Path) -> None:
    assert services_listed(sys.executable, tmp_path) == SERVICES
    run(sys.executable, "-c", "from pyspark_fyrehose import DefaultSource", cwd=tmp_path)


def test_twistd_lists_each_service_once_in_the_checkout() -> None:
    # twistd adds the current directory to sys.path, which contains the drop-in a second time.
    listing = run(sys.executable, "-c", TWISTD, "--help", cwd=ROOT)
    assert all(listing.count(f"{service} ") == 1 for service in SERVICES)


@pytest.mark.soak
def test_sdist_installs_with_dependencies_from_the_registry(sdist: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment")
    environment.pip("install", sdist)
    assert environment.services() == SERVICES
    environment.pip("uninstall", "--yes", "fyrehose_twisted")
    assert environment.services() == set()
    assert "twisted/__init__.py" in environment.twisted_files()
