"""Spark steps of the demo: compare the journals, count their flights, and render a page."""

from __future__ import annotations

import json
import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.dataset
from demo_processes import DemoError, Processes, Worker
from demo_story import Story

HERE = Path(__file__).parent
OUT = HERE.parent / "build" / "demo"
DIVERGED = 2
PATIENCE = 3_600.0


class Pipeline:
    """Runner of ``fyrehose-pipeline`` on journals.

    :param journals: their directories, by name.
    :param out: where the tables and the page go; what an earlier demo left there is removed.
    :param story: told of each command, and of what it printed.
    """

    def __init__(self, processes: Processes, journals: Mapping[str, Path], out: Path, story: Story) -> None:
        self._journals = [f"{name}={path.relative_to(processes.directory)}" for name, path in journals.items()]
        self._out = out
        self._story = story
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        # Commands are short, and can be read, with names from here.
        (processes.directory / "out").symlink_to(out.resolve())
        (processes.directory / "sql").symlink_to(HERE / "demo_sql")
        self._spark: Worker = processes.worker("Spark", "demo_spark.py")

    def verify(self) -> tuple[dict[str, Any], str]:
        """Wait for Spark, compare the journals, and return ``verify.json`` and its summary line."""
        self._spark.answer(PATIENCE)
        printed = self._run(DIVERGED, "verify", *self._journals, "--out", "out/verified")
        found: dict[str, Any] = json.loads((self._out / "verified" / "verify.json").read_text())
        return found, printed.splitlines()[-1]

    def refine(self) -> None:
        """Build tables of the journals."""
        options = "--out", "out/tables", "--once", "--window", "1 second", "--sql", "sql"
        self._run(0, "run", *self._journals, *options)

    def report(self) -> Path:
        """Render the page; return its path."""
        self._run(0, "report", "out/verified", "out/tables", "--out", "out/report.html")
        return self._out / "report.html"

    def carriers(self) -> dict[str, tuple[int, int]]:
        """Return flights and miles of each carrier, as the pipeline counted them, read without Spark."""
        rows = self._gold("carriers")
        return {row["carrier"]: (row["flights"], row["miles"]) for row in rows}

    def traffic(self) -> Counter[str]:
        """Return the sums of the columns of ``gold/traffic``."""
        sums: Counter[str] = Counter()
        for row in self._gold("traffic"):
            sums.update({name: value for name, value in row.items() if isinstance(value, int)})
        return sums

    def _gold(self, name: str) -> list[dict[str, Any]]:
        table = pyarrow.dataset.dataset(self._out / "tables" / "gold" / name, partitioning="hive").to_table()
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    def _run(self, worst: int, *arguments: str) -> str:
        command = shlex.join(arguments)
        self._story.command(f"fyrehose-pipeline {command}")
        ran = self._spark.ask(command, PATIENCE)
        self._story.printed(ran["printed"])
        if ran["status"] > worst:
            raise DemoError(f"fyrehose-pipeline {command}: status {ran['status']}. {self._spark.tail()}")
        printed: str = ran["printed"]
        return printed


def counted(messages: Iterable[bytes]) -> dict[str, tuple[int, int]]:
    """Return flights and miles of each carrier, counted from the published messages."""
    flights: Counter[str] = Counter()
    miles: Counter[str] = Counter()
    for message in messages:
        flight = json.loads(message)
        flights[flight["carrier"]] += 1
        miles[flight["carrier"]] += int(flight["distance"])
    return {carrier: (flights[carrier], miles[carrier]) for carrier in sorted(flights)}
