"""The last part of the demo: Spark compares the journals, counts the flights in them, and draws a page."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset

HERE = Path(__file__).parent
OUT = HERE.parent / "build" / "demo"
DIVERGED = 2


class Pipeline:
    """``fyrehose-pipeline`` on some journals, as a user would run it.

    :param journals: their directories.
    :param out: where the tables and the page go; what an earlier demo left there is removed.
    """

    def __init__(self, journals: Sequence[Path], out: Path = OUT) -> None:
        self._journals = [f"journal-{number}={path}" for number, path in enumerate(journals, 1)]
        self.out = out
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)

    def verify(self) -> dict[str, Any]:
        """Compare the journals, and return what ``verify.json`` says."""
        ended = self._run("verify", *self._journals, "--out", self.out / "verified")
        if ended > DIVERGED:
            raise SystemExit("demo: the journals could not be compared")
        found: dict[str, Any] = json.loads((self.out / "verified" / "verify.json").read_text())
        return found

    def refine(self) -> None:
        """Make tables of the journals."""
        tables = "--out", self.out / "tables", "--once", "--window", "1 second", "--sql", HERE / "demo_sql"
        if self._run("run", *self._journals, *tables):
            raise SystemExit("demo: the pipeline failed")

    def report(self) -> Path:
        """Draw the page, and return where it is."""
        page = self.out / "report.html"
        if self._run("report", self.out / "verified", self.out / "tables", "--out", page):
            raise SystemExit("demo: there is no report")
        return page

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
        table = pyarrow.dataset.dataset(self.out / "tables" / "gold" / name, partitioning="hive").to_table()
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    def _run(self, *arguments: object) -> int:
        command = str(Path(sys.executable).parent / "fyrehose-pipeline")
        sys.stdout.flush()
        settings = "--conf", "spark.driver.memory=1g", "--conf", "spark.sql.shuffle.partitions=4"
        # In a directory of its own, for Spark may leave something there.
        ran = subprocess.run(
            [command, *map(str, arguments), *settings], cwd=self.out, env=dict(os.environ), check=False
        )
        return ran.returncode


def counted(messages: Iterable[bytes]) -> dict[str, tuple[int, int]]:
    """Return flights and miles of each carrier, counted from what is published."""
    flights: Counter[str] = Counter()
    miles: Counter[str] = Counter()
    for message in messages:
        flight = json.loads(message)
        flights[flight["carrier"]] += 1
        miles[flight["carrier"]] += int(flight["distance"])
    return {carrier: (flights[carrier], miles[carrier]) for carrier in sorted(flights)}
