"""A standalone cluster on loopback. The Python of its workers lacks only the package, which is shipped to them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pyspark
import pytest

from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.layout import make_directory
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.record import Record
from fyrehose_twisted.spark.java import java_home

pytestmark = pytest.mark.soak(seconds=300)

ROOT = Path(__file__).parents[2]
STREAM = "fyrehose://cluster"
START = 1_700_000_000_000_000
PATIENCE = 60.0
RECORDS = 20_000


class Cluster:
    """Master and workers as processes."""

    def __init__(self, directory: Path, python: Path) -> None:
        self._directory = directory
        self._environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": str(python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._environment.pop("PYTHONPATH", None)
        self._processes: list[subprocess.Popen[bytes]] = []
        said = self._start("master", "deploy.master.Master", "--port", "0")
        self.master = self._wait(said, r"Starting Spark master at (spark://\S+)")
        for number in (1, 2):
            place = directory / f"work-{number}"
            options = "--cores", "1", "--memory", "1g", "--work-dir", str(place), self.master
            said = self._start(f"worker-{number}", "deploy.worker.Worker", *options)
            self._wait(said, r"(Successfully registered with master)")

    def _start(self, name: str, what: str, *options: str) -> Path:
        log = self._directory / f"{name}.log"
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        command = [str(program), f"org.apache.spark.{what}", "--host", "127.0.0.1", "--webui-port", "0", *options]
        with log.open("wb") as output:
            self._processes.append(
                subprocess.Popen(command, env=self._environment, stdout=output, stderr=output, cwd=self._directory)
            )
        return log

    def _wait(self, log: Path, pattern: str) -> str:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = re.search(pattern, log.read_text())
            if found:
                return found[1]
            assert self._processes[-1].poll() is None, log.read_text()
            # The process reports its port only in this file.
            with pytest.raises(subprocess.TimeoutExpired):
                self._processes[-1].wait(0.1)
        pytest.fail(f"{log.name} did not say {pattern}:\n{log.read_text()}")

    def stop(self) -> None:
        """Stop all processes; workers stop their executors."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(PATIENCE)


@pytest.fixture
def other_python(tmp_path: Path) -> Path:
    """Return a Python with all dependencies of the package, but without the package."""
    venv.create(tmp_path / "python", with_pip=False)
    python = tmp_path / "python" / "bin" / "python"
    (target,) = (tmp_path / "python" / "lib").glob("python*/site-packages")
    for entry in Path(pyspark.__file__).parents[1].iterdir():
        if "fyrehose" not in entry.name and entry.suffix != ".pth":
            (target / entry.name).symlink_to(entry)
    missing = subprocess.run([python, "-c", "import fyrehose_twisted"], capture_output=True, cwd=tmp_path, check=False)
    assert b"No module named 'fyrehose_twisted'" in missing.stderr
    return python


@pytest.fixture
def cluster(tmp_path: Path, other_python: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, other_python)
    yield cluster
    cluster.stop()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return the package as it is shipped."""
    path = tmp_path / "fyrehose_twisted.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted((ROOT / "src" / "fyrehose_twisted").rglob("*.py")):
            archive.write(file, file.relative_to(ROOT / "src"))
    return path


@pytest.fixture
def journals(tmp_path: Path) -> list[Path]:
    """Return two replicas: each lacks records, one number has two payloads, and one number is in neither."""
    places = []
    for name, lost in (("east", range(100, 110)), ("west", range(5_000, 5_003))):
        root = tmp_path / name
        root.mkdir()
        places.append(root)
        with closing(Journal(LocalDirectory(make_directory(root, STREAM)), STREAM)) as journal:
            journal.begin(0, 1)
            for low in range(1, RECORDS + 1, 1_000):
                numbers = [one for one in range(low, low + 1_000) if one not in lost and one != 777]
                journal.append([Record(STREAM, 0, one, START + one * 1_000, _payload(name, one)) for one in numbers])
                journal.commit()
            journal.lose(0, lost.start, lost.stop - 1)
            journal.lose(0, 777, 777)
            journal.commit()
    return places


def _payload(name: str, number: int) -> bytes:
    said = {"number": number, "from": name if number == 12_345 else "the same"}
    return json.dumps(said).encode()


def run(where: Path, python: Path, *arguments: object) -> tuple[int, str]:
    program = Path(sys.executable).parent / "fyrehose-pipeline"
    command = [str(program), *map(str, arguments), "--quiet"]
    environment = {**os.environ, "PYSPARK_PYTHON": str(python)}
    ran = subprocess.run(command, capture_output=True, text=True, cwd=where, env=environment, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def rows(path: Path, *columns: str) -> list[dict[str, Any]]:
    table = pyarrow.dataset.dataset(path, partitioning="hive").to_table(columns=list(columns) or None)
    found: list[dict[str, Any]] = table.to_pylist()
    return sorted(found, key=repr)


def test_spark_cluster_finds_the_same_as_a_single_machine(
    cluster: Cluster, other_python: Path, package: Path, journals: list[Path], tmp_path: Path
) -> None:
    names = [f"{place.name}={place}" for place in journals]
    remote = ["--master", cluster.master, "--conf", f"spark.submit.pyFiles={package}"]
    remote += ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1"]
    remote += ["--conf", "spark.sql.shuffle.partitions=4"]
    found = {}
    for where, master in (("cluster", remote), ("local", ["--master", "local[2]"])):
        out = tmp_path / where
        small = "--rows-per-partition", 3_000
        status, said = run(tmp_path, other_python, "verify", *names, "--out", out / "verified", *small, *master)
        assert status == 2, said
        status, said = run(tmp_path, other_python, "run", *names, "--out", out / "tables", "--once", *master)
        assert status == 0, said
        found[where] = [
            rows(out / "verified" / "findings"),
            rows(out / "verified" / "quarantine"),
            rows(out / "verified" / "healed"),
            rows(out / "tables" / "silver"),
            rows(out / "tables" / "gold" / "traffic"),
        ]
    assert found["cluster"] == found["local"]
    findings, quarantine, healed, silver, _ = found["cluster"]
    assert {(one["kind"], one["reason"], one["first"], one["last"]) for one in findings} == {
        ("missing", "lost", 100, 109),
        ("missing", "lost", 5_000, 5_002),
        ("missing", "lost", 777, 777),
        ("missing", "nobody", 777, 777),
        ("divergence", "payload", 12_345, 12_345),
    }
    assert len(quarantine) == 2
    assert len(healed) == len(silver) == RECORDS
    # Each worker ran tasks with the shipped package.
    for number in (1, 2):
        assert list((tmp_path / f"work-{number}").glob("app-*/*/fyrehose_twisted.zip"))
