"""Journal in Spark compared with Parquet: scans of the same rows, comparison of two journals, and start-up.

Full scans end in Spark's noop sink, which reads every column of every row and stores nothing. All variants are measured
in one run, in turn; rates depend on the machine; compare the ratios of one run. Medians over rounds, after a warm-up
round. Reads come from the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

import results
from spark.journals import START, STREAM, write
from spark.memory import KINDS as PROCESSES
from spark.memory import memory_log

from fyrehose_twisted.journal.arrow.parquet import export
from fyrehose_twisted.journal.reader import open_reader
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.process.progress import ProgressBar
from fyrehose_twisted.record import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent
FOUND: dict[str, dict[str, dict[str, float]]] = {"spark": {}, "spark-verify": {}}
"""Tables for the docs."""
TOLD = {
    "Parquet, a file each": "Parquet, uncompressed",
    "read_journal, sealed": "`read_journal`, sealed",
    "source": "`read_journal`",
    "read_journal": "`read_journal`",
    "the same, columns named": "one column",
    "query_journal": "`query_journal`",
    "row tuples": "tuples",
}
"""Names in the docs, if others."""
KINDS = ("scan", "small", "verify", "start")
SMALL_RECORDS = 1_000
"""Records of each of many small streams."""


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """Return a local session with all cores."""
    from fyrehose_twisted.spark.session import make_session

    spark = make_session(name, "local[*]", {"spark.driver.memory": "2g"})
    try:
        yield spark
    finally:
        spark.stop()


def swallow(frame: DataFrame) -> None:
    """Read every column of every row."""
    frame.write.format("noop").mode("overwrite").save()


def scans(options: argparse.Namespace, directory: Path) -> None:
    """Measure full scans, scans of sequence numbers only, and counting."""
    from fyrehose_twisted.spark import query_journal, read_journal

    path = write(directory / "journal", options.records, options.size)
    with closing(open_reader(path)) as reader:
        export(reader, directory / "cold", on_message=print)
    with session("scan") as spark:
        sys.path.insert(0, str(HERE))
        from ready_source import ReadySource
        from row_source import RowSource

        for source in (RowSource, ReadySource):
            spark.sparkContext.addPyFile(f"{HERE / source.__module__}.py")
            spark.dataSource.register(source)
        plain, packed = directory / "plain", directory / "packed"
        read_journal(spark, str(path)).write.option("compression", "none").parquet(plain.as_uri())
        read_journal(spark, str(path)).write.parquet(packed.as_uri())
        parquet = "Parquet, uncompressed"
        ways: dict[str, Callable[[tuple[str, ...]], DataFrame]] = {
            parquet: lambda columns: spark.read.parquet(plain.as_uri()).select(*columns),
            "Parquet, Snappy": lambda columns: spark.read.parquet(packed.as_uri()).select(*columns),
            "read_journal, sealed": lambda columns: read_journal(
                spark, str(path), parquet=str(directory / "cold"), columns=columns
            ),
            "source": lambda columns: read_journal(spark, str(path), columns=columns),
            "ready batches": lambda columns: (
                spark.read.format("ready")
                .options(rows=options.records, size=options.size, columns=",".join(columns))
                .load()
            ),
        }
        from fyrehose_twisted.journal.arrow.schema import RECORD

        full = dict(ways)
        full["row tuples"] = lambda columns: (
            spark.read.format("rows").options(path=str(path), rows=options.records).load()
        )
        counting: dict[str, Callable[[tuple[str, ...]], DataFrame]] = {
            parquet: lambda _: spark.read.parquet(plain.as_uri()).groupBy().count(),
            "read_journal": lambda _: read_journal(spark, str(path)).groupBy().count(),
            "the same, columns named": lambda columns: (
                read_journal(spark, str(path), columns=columns).groupBy().count()
            ),
            "query_journal": lambda _: query_journal(spark, "select count(*) from records", str(path)),
        }
        for title, sides, columns in (
            ("full scan", full, RECORD),
            ("numbers only", ways, ("sequence",)),
            ("count", counting, ("sequence",)),
        ):
            seconds = timed(title, sides, columns, options.rounds)
            show(title, seconds, parquet, options.records, options.records * options.size if columns == RECORD else 0)


def timed(
    title: str, sides: dict[str, Callable[[tuple[str, ...]], DataFrame]], columns: tuple[str, ...], rounds: int
) -> dict[str, list[float]]:
    """Return the durations of each side, in turn, in each round but the first."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for number in ProgressBar(range(rounds + 1), unit=" rounds", desc=title, leave=False):
        for name, frame in sides.items():
            if name == "row tuples" and number > 1:
                continue  # It is slow, and does not affect the other figures.
            started = time.perf_counter()
            swallow(frame(columns))
            took = time.perf_counter() - started
            if number or rounds == 0:
                seconds[name].append(took)
    return seconds


def small(options: argparse.Namespace, directory: Path) -> None:
    """Measure reads of many small streams."""
    from fyrehose_twisted.journal.arrow.schema import RECORD
    from fyrehose_twisted.spark import read_journal

    root, payload = directory / "small", Random(2).randbytes(options.size)
    for number in ProgressBar(range(options.streams), unit=" streams", desc="write small streams", leave=False):
        stream = f"{STREAM}-{number}"
        with closing(open_journal(root, stream)) as journal:
            journal.append([Record(stream, 0, one, START + one, payload) for one in range(SMALL_RECORDS)])
    with session("small") as spark:
        plain, parquet = directory / "small-plain", "Parquet, a file each"
        parted = read_journal(spark, str(root)).repartition(options.streams, "stream")
        parted.write.option("compression", "none").parquet(plain.as_uri())
        sides: dict[str, Callable[[tuple[str, ...]], DataFrame]] = {
            parquet: lambda columns: spark.read.parquet(plain.as_uri()).select(*columns),
            "source": lambda columns: read_journal(spark, str(root), columns=columns),
        }
        rows = options.streams * SMALL_RECORDS
        title = f"{options.streams} streams of {SMALL_RECORDS:,} records"
        show(title, timed(title, sides, RECORD, options.rounds), parquet, rows, rows * options.size)


def show(title: str, seconds: dict[str, list[float]], base: str, rows: int, size: int) -> None:
    """Print a table of rates, and keep it for the docs."""
    FOUND["spark"][title] = {TOLD.get(name, name): median(took) for name, took in seconds.items()}
    print(f"\n{title}, {rows:,} rows")
    print(f"{'':<26}{'seconds':>10}{'M rows/s':>12}{'MB/s':>10}{'of Parquet':>12}")
    reference = median(seconds[base])
    for name, took in seconds.items():
        rate = f"{size / median(took) / 1e6:,.0f}" if size else ""
        middle = median(took)
        print(f"{name:<26}{middle:>10.2f}{rows / middle / 1e6:>12.2f}{rate:>10}{reference / middle:>12.2f}")


def comparing(options: argparse.Namespace, directory: Path) -> None:
    """Measure the time and the memory of comparing two journals."""
    print("\ncomparing two journals (no tables written)")
    print(
        f"{'records each':>14}{'seconds':>10}{'µs a record':>13}"
        f"{'driver MB':>11}{'worker MB':>11}{'JVM MB':>8}{'status':>8}"
    )
    for millions in options.verify:
        records = int(millions * 1_000_000)
        places = [directory / f"east-{records}", directory / f"west-{records}"]
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            begun = [
                pool.submit(write, place, records, options.size, 7 + 50_000 * number)
                for number, place in enumerate(places)
            ]
            for one in begun:
                one.result()
        # Long measurements run once.
        found = [json.loads(_run_child("verify", places)) for _ in range(options.rounds if millions <= 10 else 1)]
        took = median(one["seconds"] for one in found)
        peak = {kind: max(one[kind] for one in found) for kind in PROCESSES}
        print(
            f"{records:>14,}{took:>10.2f}{took / records / 2 * 1e6:>13.3f}{peak['driver']:>11,}"
            f"{peak['worker']:>11,}{peak['jvm']:>8,}{found[0]['status']:>8}",
            flush=True,
        )
        FOUND["spark-verify"][f"{millions:g} million"] = {
            "s": took,
            "driver, MB": peak["driver"],
            "largest worker, MB": peak["worker"],
            "Java, MB": peak["jvm"],
        }
        for place in places:
            shutil.rmtree(place)


def _run_child(kind: str, places: list[Path]) -> str:
    command = [sys.executable, __file__, "--child", json.dumps([kind, *map(str, places)])]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]


def verify_once(places: list[str]) -> dict[str, Any]:
    """Compare journals in this process, after a warm-up of the session."""
    from fyrehose_twisted.spark.source.journal_locations import locations_in_path
    from fyrehose_twisted.spark.verify.summary import summary_of
    from fyrehose_twisted.spark.verify.verification import Verification

    with session("verify") as spark, memory_log(os.getpid()) as log:
        origins = [origin for place in places for origin in locations_in_path(place)]
        started = time.perf_counter()
        with Verification(spark, origins) as verification:
            summary = summary_of(verification)
        seconds = time.perf_counter() - started
    return {"seconds": seconds, "status": summary["status"], **{kind: log.peak(kind) for kind in PROCESSES}}


def starting(options: argparse.Namespace, directory: Path) -> None:
    """Measure the time from process start to the first row."""
    path = write(directory / "small", 1_000, options.size)
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(max(1, options.rounds)):
        for name in ("session", "journal", "parquet"):
            started = time.perf_counter()
            _run_child(name, [path, directory / "small-parquet"])
            seconds[name].append(time.perf_counter() - started)
    print("\nfrom the start of Python to")
    print(f"{'a session':<44}{median(seconds['session']):>6.1f} s")
    print(f"{'the first row of a Parquet file':<44}{median(seconds['parquet']):>6.1f} s")
    print(f"{'the first row of a journal':<44}{median(seconds['journal']):>6.1f} s")


def start_once(kind: str, path: str, parquet: str) -> None:
    """Start a session and read a row."""
    from fyrehose_twisted.spark import read_journal

    with session("start") as spark:
        if kind == "journal":
            read_journal(spark, path).first()
        elif kind == "parquet":
            if not Path(parquet).exists():
                spark.range(1_000).write.parquet(parquet)
            spark.read.parquet(parquet).first()


def child(said: str) -> None:
    """Run the measurement that ``said`` names in this process, and print its figures."""
    kind, *places = json.loads(said)
    if kind == "verify":
        print(json.dumps(verify_once(places)))
    else:
        start_once(kind, *places)
        print(kind)


def main() -> None:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round of everything, to see that it runs")
    parser.add_argument("--only", default=",".join(KINDS), help="some of %(default)s")
    parser.add_argument("--directory", type=Path, default=tempfile.gettempdir(), help="[%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="[%(default)s]")
    parser.add_argument("--size", type=int, default=128, help="bytes of payload [%(default)s]")
    parser.add_argument("--records", type=int, default=10_000_000, help="to scan [%(default)s]")
    parser.add_argument("--streams", type=int, default=200, help="small ones to read together [%(default)s]")
    parser.add_argument("--verify", default="1,10,50", help="millions of records to compare [%(default)s]")
    results.add_option(parser, "spark")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    if options.quick:
        vars(options).update(rounds=1, records=200_000, verify="0.1,0.2", streams=20)
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(KINDS):
        parser.error(f"--only does not know {', '.join(sorted(unknown))}")
    options.verify = [float(one) for one in options.verify.split(",")]
    needed = (max(options.verify) * 2e6 + options.records * 5) * (options.size + 40)
    if shutil.disk_usage(options.directory).free < needed * 1.2:
        parser.error(f"There is too little space in {options.directory}: {needed / 1e9:.0f} GB are needed")
    print(f"{os.cpu_count()} cores, {options.size}-byte payloads, medians of {options.rounds} rounds.")
    with tempfile.TemporaryDirectory(prefix="bench-spark-", dir=options.directory) as made:
        for kind, measure in (("scan", scans), ("small", small), ("verify", comparing), ("start", starting)):
            if kind in options.only:
                measure(options, Path(made))
    tables = {name: rows for name, rows in FOUND.items() if rows}
    results.write(options.json, tables, f"medians of {options.rounds} rounds, {options.records:,} records")


if __name__ == "__main__":
    main()
