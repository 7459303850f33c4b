"""Journal compared with SQLite, LMDB and RocksDB: appends, look-ups, scans, recovery and bytes on disk.

All stores are measured in one run, in turn and in the same directory; rivals.py describes their settings. Rates depend
on the machine; compare the ratios of one run. Medians over rounds. Creating the rows is not timed. Reads come from the
page cache, because the data was just written.
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
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

from results import add_option, medians, write
from rivals import FIRST, FROM_ROWS, LAST, OURS, TIDY, Factory, PlainFile, Row, available

from fyrehose_twisted.process.progress import ProgressBar

KINDS = ("append", "interval", "latency", "range", "scan", "recovery", "size")
PLAIN = "plain file"
GROUPS = (1, 100, 1_000)
FILLED = 100
"""Records per group in stores that are filled for reading; the journal makes a frame of each."""
INTERVAL = 1.0
LOOKUP = 100
START = 1_700_000_000_000_000
Figures = dict[str, list[list[float]]]
FOUND: dict[str, dict[str, float]] = {}
"""Rows for the docs."""
"""Figures by store and round, one for each column of the table."""


class Rows:
    """Generator of rows with random payloads, of which some thousands are reused."""

    def __init__(self, size: int) -> None:
        rng = Random(1)
        self.payloads = [rng.randbytes(size) for _ in range(4_096)]

    def group(self, first: int, count: int) -> list[Row]:
        """Return ``count`` rows from the sequence ``first`` on."""
        payloads, many = self.payloads, len(self.payloads)
        return [(each, START + each * 100, payloads[each % many]) for each in range(first, first + count)]


class Appended(NamedTuple):
    """Duration of each group, and records/s including syncs."""

    seconds: list[float]
    rate: float


@contextmanager
def fresh(directory: Path) -> Iterator[Path]:
    """Make a directory without pending writes to the disk, and remove it afterwards."""
    os.sync()
    with tempfile.TemporaryDirectory(prefix="bench-journal-", dir=directory) as path:
        yield Path(path) / "store"


def append(factory: Factory, path: Path, rows: Rows, group: int, budget: float, *, sync_each: bool) -> Appended:
    """Append groups for ``budget`` seconds. Without syncs of their own, sync each second and at the end."""
    clock, syncing, first = time.perf_counter, 0.0, 1
    seconds: list[float] = []
    with closing(factory(path, sync_each=sync_each)) as store:
        started = synced = clock()
        while (now := clock()) < started + budget or not seconds:
            if not sync_each and now >= synced + INTERVAL:
                store.sync()
                synced = clock()
                syncing += synced - now
            batch = prepared(store, rows.group(first, group))
            before = clock()
            store.append(batch)
            seconds.append(clock() - before)
            first += group
        if not sync_each:
            before = clock()
            store.sync()
            syncing += clock() - before
    return Appended(seconds, (first - 1) / (sum(seconds) + syncing))


def prepared(store: Any, batch: Sequence[Row]) -> Sequence[Any]:
    """Return rows in the form that the store appends."""
    return store.prepared(batch) if hasattr(store, "prepared") else batch


def fill(store: Any, rows: Rows, records: int) -> None:
    """Append ``records`` records in groups and sync them at the end."""
    for first in range(1, records + 1, FILLED):
        store.append(prepared(store, rows.group(first, min(FILLED, records + 1 - first))))
    store.sync()


def look_up(read: Callable[[int, int], Any], records: int, times: int) -> float:
    """Return the median microseconds of reading consecutive records at a random position."""
    rng, seconds = Random(2), []
    for first in (rng.randrange(1, records - LOOKUP + 2) for _ in range(times)):
        before = time.perf_counter()
        read(first, first + LOOKUP - 1)
        seconds.append(time.perf_counter() - before)
    return median(seconds) * 1e6


def scan_rows(store: Any, records: int) -> float:
    """Return records/s of a scan that makes a Python tuple of each record."""
    before = time.perf_counter()
    (last,) = deque(store.scan(), maxlen=1)
    elapsed = time.perf_counter() - before
    return checked(last[0], records) / elapsed


def scan_columns(store: Any, records: int) -> float:
    """Return records/s of a scan of blocks that reads each column without creating objects per record."""
    before, count = time.perf_counter(), 0
    for block in store.columns(FIRST, LAST):
        if not len(block.times) == len(block.sequences) <= len(block.offsets) or not block.payload.nbytes:
            raise SystemExit("A block has columns that do not match")
        count += len(block)
    elapsed = time.perf_counter() - before
    return checked(count, records) / elapsed


def checked(found: int, expected: int) -> int:
    """Return a result after comparing it with the expected one."""
    if found != expected:
        raise SystemExit(f"A scan found {found:,} instead of {expected:,} records")
    return found


def write_until_killed(name: str, path: str, size: int, records: int) -> None:
    """Fill a store, then append durable groups of 100 and print the last sequence of each."""
    rows, first = Rows(size), records + 1
    store = available()[0][name](Path(path), sync_each=not records)
    fill(store, rows, records)
    if records:
        store.settle()
    while True:
        store.append(prepared(store, rows.group(first, 100)))
        if records:
            store.sync()
        first += 100
        os.write(1, (first - 1).to_bytes(8))


def kill_in_the_midst(name: str, path: Path, size: int, records: int, seconds: float) -> int:
    """Kill a writing process after it has filled the store; return the last durable sequence that it printed."""
    command = [sys.executable, __file__, "--child", json.dumps([name, str(path), size, records])]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            told = process.stdout.read(8)
            deadline = time.monotonic() + seconds
            while told and time.monotonic() < deadline:
                told = process.stdout.read(8)
        finally:
            process.kill()
        told += process.stdout.read()
    if not told:
        raise SystemExit(f"The process that writes to {name} ended by itself")
    return int.from_bytes(told[len(told) // 8 * 8 - 8 :][:8])


def time_to_open(name: str, factory: Factory, path: Path, last: int) -> float:
    """Return the milliseconds of opening a store and reading its last record."""
    before = time.perf_counter()
    with closing(factory(path)) as store:
        found = store.read(last, last)
        elapsed = time.perf_counter() - before
        if [row[0] for row in found] != [last]:
            raise SystemExit(f"{name} lost the record {last:,}, which it had said is durable")
    return elapsed * 1e3


def disk_usage(path: Path) -> int:
    """Return the bytes allocated to the files in a directory, without holes."""
    return sum(each.stat().st_blocks * 512 for each in path.rglob("*") if each.is_file())


def in_turn(stores: dict[str, Factory], rounds: int, what: str) -> Iterator[tuple[str, Factory]]:
    """Iterate ``rounds`` times over the stores, each time in a rotated order, with progress."""
    names = list(stores)
    turns = [names[(turn + index) % len(names)] for turn in range(rounds) for index in range(len(names))]
    for name in ProgressBar(turns, unit=" measurements", desc=what):
        yield name, stores[name]


def appends(stores: dict[str, Factory], rows: Rows, options: argparse.Namespace) -> None:
    """Measure and print appends that sync each group, and the duration of a group."""
    groups = GROUPS if "append" in options.only else GROUPS[:2]
    results: dict[tuple[str, int], list[Appended]] = defaultdict(list)
    for group in groups:
        for name, factory in in_turn(stores, options.rounds, f"groups of {group:,}"):
            with fresh(options.directory) as path:
                results[name, group].append(append(factory, path, rows, group, options.seconds, sync_each=True))
    if "append" in options.only:
        rates = {
            name: [[results[name, group][turn].rate for group in groups] for turn in range(options.rounds)]
            for name in stores
        }
        table("Appended, each group durable: records/s", [f"groups of {group:,}" for group in groups], rates)
        keep([f"durable groups of {group:,}" for group in groups], rates)
    if "latency" in options.only:
        for group in groups[:2]:
            times = {name: [latency(each.seconds) for each in results[name, group]] for name in stores}
            table(f"Group commit of {group:,}: µs", ["median", "99 %", "longest"], times, merge=(median, median, max))
            if group == GROUPS[1]:
                keep([f"commit of {group:,}, median, µs", f"commit of {group:,}, 99 %, µs"], times)


def as_columns(name: str) -> str:
    """Name the column scans of a store."""
    return f"{name}, as columns"


def latency(seconds: Sequence[float]) -> list[float]:
    """Return the median, the 99th percentile and the maximum, in microseconds."""
    ordered = sorted(seconds)
    return [1e6 * each for each in (median(ordered), ordered[len(ordered) * 99 // 100], ordered[-1])]


def interval(stores: dict[str, Factory], rows: Rows, options: argparse.Namespace) -> None:
    """Measure and print appends that are synced once a second."""
    rates: Figures = defaultdict(list)
    for name, factory in in_turn(stores, options.rounds, "sync each second"):
        with fresh(options.directory) as path:
            rates[name].append([append(factory, path, rows, 100, options.seconds, sync_each=False).rate])
    table(f"Appended, synced each {INTERVAL:g} s and in the end: records/s", ["groups of 100"], rates)
    keep(["synced each second, groups of 100"], rates)


def filled(stores: dict[str, Factory], rows: Rows, options: argparse.Namespace) -> None:
    """Measure and print full stores: look-ups, scans, size."""
    lookups: Figures = defaultdict(list)
    scans: Figures = defaultdict(list)
    sizes: Figures = defaultdict(list)
    title = f"of {options.records:,} records, written in groups of {FILLED}"
    with ExitStack() as stack:
        opened = {}
        for name, factory in in_turn(stores, 1, "filled"):
            path = stack.enter_context(fresh(options.directory))
            with closing(factory(path, sync_each=False)) as store:
                fill(store, rows, options.records)
                store.settle()
            used = disk_usage(path) / options.records
            sizes[name].append([used, used - options.size])
            # Reopening moves all data to its final place.
            opened[name] = stack.enter_context(closing(factory(path)))
        for name, _ in in_turn(stores, options.rounds, "read"):
            store, columns = opened[name], hasattr(opened[name], "columns")
            if "range" in options.only:
                lookups[name].append([look_up(store.read, options.records, options.lookups)])
                if columns:
                    lookups[as_columns(name)].append([look_up(store.blocks, options.records, options.lookups)])
            if "scan" in options.only:
                scans[name].append([scan_rows(store, options.records)])
                if columns:
                    scans[as_columns(name)].append([scan_columns(store, options.records)])
    if "range" in options.only:
        keep([f"lookup of {LOOKUP} records, µs"], {name: each for name, each in lookups.items() if name in stores})
        table(f"Look-up of {LOOKUP} consecutive records, in a store {title}: µs", ["median"], lookups)
    if "scan" in options.only:
        keep(["full scan as tuples"], {name: each for name, each in scans.items() if name in stores})
        keep(["full scan as columns"], {name: scans[as_columns(name)] for name in stores if as_columns(name) in scans})
        table(f"Scan of a store {title}, as Python tuples unless it says columns: records/s", ["records/s"], scans)
    if "size" in options.only:
        keep(["all bytes of a record", "bytes beside a payload"], sizes)
        table(f"On disk, in a store {title}, settled and closed: bytes a record", ["all", "overhead"], sizes)


def recovery(stores: dict[str, Factory], _rows: Rows, options: argparse.Namespace) -> None:
    """Measure and print the time to open a store."""
    killed: Figures = defaultdict(list)
    small = {name: factory for name, factory in stores.items() if name != TIDY}  # It has no full segment.
    for name, factory in in_turn(small, options.rounds, "killed"):
        with fresh(options.directory) as path:
            last = kill_in_the_midst(name, path, options.size, 0, options.seconds)
            killed[name].append([time_to_open(name, factory, path, last)])
    title = f"Open and read the last durable record; the writer had run for {options.seconds:g} s, then kill -9: ms"
    table(title, ["after the kill"], killed)
    records = int(options.recovery_gb * 1e9 / options.size)
    large: Figures = {}
    for name, factory in in_turn(stores, 1 if records else 0, f"{options.recovery_gb:g} GB"):
        with fresh(options.directory) as path:
            last = kill_in_the_midst(name, path, options.size, records, 0.5)
            first = time_to_open(name, factory, path, last)
            again = median(time_to_open(name, factory, path, last) for _ in range(5))
            large[name] = [[first, again, disk_usage(path) / 1e9]]
    if large:
        title = f"The same with {options.recovery_gb:g} GB of payloads ({records:,} records) beforehand, once: ms"
        table(title, ["after the kill", "after close()", "GB on disk"], large)
        keep([f"open after kill -9 with {options.recovery_gb:g} GB, ms"], large)


def keep(labels: Sequence[str], figures: Figures) -> None:
    """Keep medians of the first figures as rows for the docs."""
    for name, rounds in figures.items():
        for label, value in zip(labels, medians(rounds), strict=False):
            FOUND.setdefault(label, {})[name] = value


def table(title: str, heads: Sequence[str], figures: Figures, merge: Sequence[Callable[..., float]] = ()) -> None:
    """Print medians over rounds, or results of ``merge``, and their ratios to the journal."""
    reference = OURS if OURS in figures else next(iter(figures))
    merged = {
        name: [
            how(column) for how, column in zip(merge or [median] * len(heads), zip(*rounds, strict=True), strict=True)
        ]
        for name, rounds in figures.items()
    }
    print(f"\n{title}; ratios are to {reference}")
    print(f"{'':<30}" + "".join(f"{head:>18}{'ratio':>8}" for head in heads))
    for name, values in merged.items():
        cells = zip(values, merged[reference], strict=True)
        print(
            f"{name:<30}"
            + "".join(
                f"{value:>18,.{0 if value >= 1_000 else 2}f}{f'{value / base:.2f}' if base else '':>8}"
                for value, base in cells
            )
        )


def file_system(directory: Path) -> str:
    """Return the type of the file system of a directory."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    return max((len(where), kind) for where, kind in mounts if directory.resolve().is_relative_to(where))[1]


def main() -> None:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round of everything, to see that it runs")
    parser.add_argument("--only", default=",".join(KINDS), help="some of %(default)s")
    parser.add_argument("--directory", type=Path, default=tempfile.gettempdir(), help="[%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="[%(default)s]")
    parser.add_argument("--seconds", type=float, default=3.0, help="of appends, each time [%(default)g]")
    parser.add_argument("--size", type=int, default=128, help="bytes of payload [%(default)s]")
    parser.add_argument("--records", type=int, default=2_000_000, help="to look up and scan [%(default)s]")
    parser.add_argument("--lookups", type=int, default=2_000, help="each time [%(default)s]")
    parser.add_argument("--recovery-gb", type=float, default=1.0, help="of payloads; 0 for none [%(default)g]")
    add_option(parser, "journal")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        write_until_killed(*json.loads(options.child))
    if options.quick:
        vars(options).update(rounds=1, seconds=0.3, records=50_000, lookups=200, recovery_gb=0.02)
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(KINDS):
        parser.error(f"--only does not know {', '.join(sorted(unknown))}")
    if shutil.disk_usage(options.directory).free < options.recovery_gb * 3e9 + options.records * options.size * 10:
        parser.error(f"There is too little space in {options.directory}")
    factories, missing = available()
    print(f"{options.size}-byte payloads; medians of {options.rounds} rounds; {options.directory} is on ", end="")
    print(f"{file_system(options.directory)}, and the page cache is warm.")
    if missing:
        print(f"Not measured, because it cannot be imported: {', '.join(missing)}.")
    rows = Rows(options.size)
    writers = {**factories, PLAIN: PlainFile}
    # Data compacted afterwards is written in the same way, and rows are the same on disk.
    writers.pop(TIDY, None)
    factories.pop(FROM_ROWS, None)
    for measure, stores, kinds in (
        (appends, writers, ("append", "latency")),
        (interval, writers, ("interval",)),
        (filled, factories, ("range", "scan", "size")),
        (recovery, factories, ("recovery",)),
    ):
        if set(kinds) & set(options.only):
            measure(stores, rows, options)
    how = f"medians of {options.rounds} rounds of {options.seconds:g} s on {file_system(options.directory)}"
    write(options.json, {"databases": FOUND}, how)


if __name__ == "__main__":
    main()
