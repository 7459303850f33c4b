"""Two large replicas in Spark, on one machine and on a cluster: tables, a kill in the midst, comparison, scans.

The commands are those that a user types. Most of the records become tables on one machine, where the command is killed
when it is half done, and started again; the cluster then continues the same tables, and the machine adds the last
records. The tables have to hold each number once. The cluster is three workers of a core each, in network namespaces of
their own, which takes root; they share the cores of this machine, so it shows that memory stays flat, not speed.

Memory is the resident memory of the largest process of each kind, sampled all the time. Each figure is of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import results
from multicast.segment import refusal
from spark.cluster import Cluster
from spark.journals import write
from spark.memory import KINDS, MemoryLog, memory_log

REPLICAS = {"east": 7, "west": 50_007}
"""Directories of the journals, and their first lost number. No number is lost in both."""
WORKERS = 3
NOISE = 0.5
MAX_ROWS = 5_000_000
ONE_MACHINE, CLUSTER = "one machine", "three workers"
FIRST, SECOND = 0.6, 0.9
"""Shares of the records in the journals when the first tables are made, and when the cluster continues them."""
Rows = defaultdict[str, dict[str, float]]


class Place:
    """Where Spark runs: this machine, or a cluster.

    :ivar name: name in the tables.
    """

    def __init__(self, name: str, memory: str, cluster: Cluster | None = None) -> None:
        self.name, self._cluster = name, cluster
        self.master = "local[2]" if cluster is None else cluster.master
        self.conf = {"spark.driver.memory": memory} | ({} if cluster is None else cluster.conf)

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own, with its output in one pipe."""
        enter = () if self._cluster is None else self._cluster.enter
        return subprocess.Popen(
            [*enter, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )

    def run(self, *command: str, kill_at: str = "", statuses: Sequence[int] = (0,)) -> tuple[float, str, MemoryLog]:
        """Return the seconds that a command took, its output, and the memory of its processes.

        :param kill_at: text at which it is killed with all its processes.
        :raises RuntimeError: if it ends with another status.
        """
        started = time.perf_counter()
        process = self.start(*command)
        assert process.stdout is not None
        roots = () if self._cluster is None else self._cluster.processes
        said = []
        try:
            with memory_log(process.pid, *roots) as log:
                for line in process.stdout:
                    said.append(line)
                    if line.startswith("batch "):
                        print(f"  {self.name}: {line.strip()}", flush=True)
                    if kill_at and line.startswith(kill_at):
                        os.killpg(process.pid, signal.SIGKILL)
                status = process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if status not in ((-signal.SIGKILL,) if kill_at else statuses):
            sys.stderr.write("".join(said))
            raise RuntimeError(f"{' '.join(command)} ended with {status}; its output is above")
        return time.perf_counter() - started, "".join(said), log

    def pipeline(self, *arguments: str, **options: Any) -> tuple[float, str, MemoryLog]:
        """Run ``fyrehose-pipeline``; see :meth:`run`."""
        program = str(Path(sys.executable).parent / "fyrehose-pipeline")
        conf = [part for name, value in self.conf.items() for part in ("--conf", f"{name}={value}")]
        return self.run(program, *arguments, "--master", self.master, *conf, **options)


def extend(directory: Path, options: argparse.Namespace, first: int, last: int) -> None:
    """Write a range of numbers to both replicas, a process each."""
    with ProcessPoolExecutor(len(REPLICAS), get_context("spawn")) as pool:
        begun = [
            pool.submit(write, directory / name, last, options.size, after(lost, first), first, NOISE)
            for name, lost in REPLICAS.items()
        ]
        for one in begun:
            one.result()


def after(lost_from: int, first: int) -> int:
    """Return the first number from ``first`` on that is lost in a replica."""
    from spark.journals import LOST_ONE_IN

    return lost_from + max(0, -(-(first - lost_from) // LOST_ONE_IN)) * LOST_ONE_IN


def keep(rows: Rows, name: str, count: int, seconds: float, log: MemoryLog, **more: float) -> None:
    """Print a row of the table, and keep it."""
    first, second = (sum(log.peak(kind, *half) for kind in KINDS) for half in ((0.25, 0.6), (0.6, 1.0)))
    cells = {"thousand rows/s": count / seconds / 1e3, **more}
    cells |= {f"{title}, MB": log.peak(kind) for kind, title in zip(KINDS, ("driver", "worker", "Java"), strict=True)}
    cells["later to earlier memory"] = second / max(1, first)
    rows[name] = cells
    said = "  ".join(f"{title} {value:,.4g}" for title, value in cells.items())
    print(f"{name:<36}{seconds:>8.1f} s  {said}", flush=True)


def tables(options: argparse.Namespace, directory: Path, places: Sequence[Place], rows: Rows) -> None:
    """Make tables in three steps, the first of which is killed and repeated, and check them."""
    machine, cluster = places[0], places[-1]
    out = directory / "tables"
    command = ["run", *(f"{name}={directory / name}" for name in REPLICAS), "--out", str(out), "--once", "--no-json"]
    command += ["--max-rows-per-batch", str(options.batch)]
    first, second, last = (int(options.records * share) for share in (FIRST, SECOND, 1.0))
    extend(directory, options, 1, first)
    half = 2 * first // options.batch // 2
    killed = machine.pipeline(*command, kill_at=f"batch {half}:")
    seconds, _, log = machine.pipeline(*command)
    keep(rows, f"{machine.name}: tables, killed once", 2 * first, killed[0] + seconds, log)
    for place, begin, end in ((cluster, first + 1, second), (machine, second + 1, last)):
        extend(directory, options, begin, end)
        seconds, said, log = place.pipeline(*command)
        keep(rows, f"{place.name}: tables, {end - begin + 1:,} more", 2 * (end - begin + 1), seconds, log)
    check(said, options.records)
    shutil.rmtree(out)


def check(said: str, records: int) -> None:
    """Check what a run of the pipeline says of its tables.

    :raises RuntimeError: if a record is missing or there twice.
    """
    found = [int(one.replace(",", "")) for one in re.findall(r"(?:bronze|silver|numbers,) +([\d,]+)", said)]
    if found != [2 * records, records, 0]:
        raise RuntimeError(f"the tables should have {2 * records} rows and {records} numbers: {said[-1_000:]}")


def compare(options: argparse.Namespace, directory: Path, places: Sequence[Place], rows: Rows) -> None:
    """Compare the replicas, each of which lacks records of its own."""
    named = [f"{name}={directory / name}" for name in REPLICAS]
    for place in places:
        seconds, said, log = place.pipeline("verify", *named, "--json", "--quiet", statuses=(1,))
        found = json.loads(said[said.index("{") :])["journals"]
        if any(one["next"] != options.records + 1 or not one["lost"] or one["damaged"] for one in found):
            raise RuntimeError(f"the comparison found other records than were written: {found}")
        keep(rows, f"{place.name}: verify", 2 * options.records, seconds, log)


def scan(options: argparse.Namespace, directory: Path, places: Sequence[Place], rows: Rows) -> None:
    """Read one replica in full, and its sequence numbers only, beside Parquet."""
    for place in places:
        found = {}
        for side in ("parquet", "journal"):
            for column in ("", "sequence"):
                given = {
                    "side": side,
                    "column": column,
                    "directory": str(directory),
                    "master": place.master,
                    "conf": place.conf,
                }
                _, said, log = place.run(sys.executable, __file__, "--child", json.dumps(given))
                found[side, column] = float(said.splitlines()[-1]), log
        for column, title in (("", "full scan"), ("sequence", "numbers only")):
            seconds, log = found["journal", column]
            parquet = options.records / found["parquet", column][0] / 1e3
            keep(rows, f"{place.name}: {title}", options.records, seconds, log, **{"Parquet, thousand rows/s": parquet})


def scan_once(side: str, column: str, directory: str, master: str, conf: dict[str, str]) -> float:
    """Return the seconds of a scan in this process, after that of a few rows."""
    from fyrehose_twisted.spark import read_journal
    from fyrehose_twisted.spark.session import make_session

    journal, parquet = str(Path(directory) / "east"), Path(directory) / "parquet"
    columns = (column,) if column else ()
    spark = make_session("scan", master, conf)
    try:
        if not parquet.exists():
            read_journal(spark, journal).write.option("compression", "none").parquet(parquet.as_uri())
        frame = read_journal(spark, journal, columns=columns)
        if side == "parquet":
            frame = spark.read.parquet(parquet.as_uri()).select(*columns or ("*",))
        frame.limit(1_000).write.format("noop").mode("overwrite").save()
        started = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - started
    finally:
        spark.stop()


def main() -> None:
    """Run the requested measurements."""
    steps = {"tables": tables, "verify": compare, "scan": scan}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few records, to see that it runs")
    parser.add_argument("--only", default=",".join(steps), help="some of %(default)s")
    parser.add_argument("--directory", type=Path, default=tempfile.gettempdir(), help="[%(default)s]")
    parser.add_argument("--records", type=int, default=100_000_000, help="in each replica [%(default)s]")
    parser.add_argument("--size", type=int, default=128, help="bytes of payload [%(default)s]")
    parser.add_argument("--batch", type=int, default=MAX_ROWS, help="rows of a batch of the pipeline [%(default)s]")
    parser.add_argument("--memory", default="2g", help="heap of each Java [%(default)s]")
    results.add_option(parser, "spark-size")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(scan_once(**json.loads(options.child)))
        return
    if options.quick:
        vars(options).update(records=400_000, batch=100_000)
    only = options.only.split(",")
    if unknown := set(only) - set(steps):
        parser.error(f"--only does not know {', '.join(sorted(unknown))}")
    needed = options.records * (options.size + 40) * 4
    if shutil.disk_usage(options.directory).free < needed:
        parser.error(f"There is too little space in {options.directory}: {needed / 1e9:.0f} GB are needed")
    if said := refusal():
        parser.error(said)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(f"ended by signal {number}"))
    print(f"{os.cpu_count()} cores, two replicas of {options.records:,} records, {options.size}-byte payloads.")
    rows: Rows = defaultdict(dict)
    with tempfile.TemporaryDirectory(prefix="bench-spark-size-", dir=options.directory) as made:
        directory = Path(made)
        with closing(Cluster(directory, WORKERS, options.memory)) as cluster:
            places = (Place(ONE_MACHINE, options.memory), Place(CLUSTER, options.memory, cluster))
            if "tables" not in only:
                extend(directory, options, 1, options.records)
            for name in only:
                steps[name](options, directory, places, rows)
    results.write(options.json, {"spark-size": rows}, f"one run, two replicas of {options.records:,} records")


if __name__ == "__main__":
    main()
