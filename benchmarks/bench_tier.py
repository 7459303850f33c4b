"""Reading of a journal whose segments are in object storage, compared with local segments.

local: all segments are on the disk. tier: all are behind a server of the S3 protocol, and each round has a new reader
with an empty cache. copy: pyarrow copies all objects to a directory, where they are then read; a program without ranged
reads would do so. single: one record by its number, from a new reader, which needs one block of one object.

The server is moto on this machine (`pip install 'moto[server]'`), which serves one request at a time and has no network
before it. Figures of a real storage differ; the ratios of `tier` to `copy`, which use the same server, tell more.
Medians over rounds that alternate between the ways.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from threading import Thread

from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.segment_header import MOVED_SUFFIX
from fyrehose_twisted.journal.reader import JournalReader, open_reader
from fyrehose_twisted.journal.store import JournalConfig, open_journal
from fyrehose_twisted.journal.tier.entry import entry_numbers, read_entry
from fyrehose_twisted.journal.tier.location import object_path
from fyrehose_twisted.journal.tier.mover import SegmentMover
from fyrehose_twisted.journal.tier.objects import ArrowObjects
from fyrehose_twisted.record import Record

STREAM, BATCH = "fyrehose://bench", 4_096


@contextmanager
def storage() -> Iterator[str]:
    """Run a server; yield the URL of a prefix in a bucket of it."""
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_EC2_METADATA_DISABLED": "true"}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = (re.search(r"Running on http://127\.0\.0\.1:(\d+)", line) for line in process.stderr)
        try:
            port = next((int(one[1]) for one in found if one), 0)
            if not port:
                raise SystemExit("bench_tier: moto does not start; pip install 'moto[server]'")
            Thread(target=process.stderr.read, daemon=True).start()
            connection = HTTPConnection("127.0.0.1", port)
            connection.request("PUT", "/bench")
            connection.getresponse().read()
            connection.close()
            yield f"s3://bench/journals?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        finally:
            process.kill()


def write_journal(root: Path, count: int, size: int) -> Path:
    """Write a journal of compacted segments; return its directory."""
    journal = open_journal(root, STREAM, config=JournalConfig(segment_bytes=16 * 2**20))
    for low in range(1, count + 1, BATCH):
        numbers = range(low, min(low + BATCH, count + 1))
        journal.append([Record(STREAM, 0, number, number, os.urandom(size)) for number in numbers])
        journal.commit(sync=False)
    journal.sync()
    journal.roll()
    journal.compact()
    journal.close()
    return next(root.iterdir())


def scan(reader: JournalReader, count: int) -> None:
    """Read all records."""
    found = sum(len(block) for block in reader.read(0, 1, count))
    assert found == count, found
    reader.close()


def copy(path: Path, target: Path) -> None:
    """Copy all objects of a journal and what is local of it to a directory."""
    objects = ArrowObjects()
    local = LocalDirectory(path)
    for name in local.names():
        if not name.endswith(MOVED_SUFFIX):
            (target / name).write_bytes((path / name).read_bytes())
    for number in entry_numbers(local.names(), MOVED_SUFFIX):
        url = read_entry(local, number, MOVED_SUFFIX).url
        with objects._file_system(url).open_input_stream(object_path(url)) as source:
            (target / f"{number:010d}.seg").write_bytes(source.read())


def timed(call: Callable[[], object]) -> float:
    """Return how many seconds a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=500_000, help="records [%(default)s]")
    parser.add_argument("--size", type=int, default=128, help="bytes of each [%(default)s]")
    parser.add_argument("--rounds", type=int, default=5, help="rounds [%(default)s]")
    options = parser.parse_args()
    count = options.records
    with tempfile.TemporaryDirectory() as place, storage() as url:
        local = write_journal(Path(place, "local"), count, options.size)
        tiered = write_journal(Path(place, "tiered"), count, options.size)
        moving = timed(lambda: SegmentMover(LocalDirectory(tiered), ArrowObjects(), url).run())
        times: dict[str, list[float]] = {"local": [], "tier": [], "copy": [], "single": []}

        def copied() -> None:
            with tempfile.TemporaryDirectory(dir=place) as target:
                copy(tiered, Path(target))
                scan(open_reader(Path(target)), count)

        for _ in range(options.rounds):
            times["local"].append(timed(lambda: scan(open_reader(local), count)))
            times["tier"].append(timed(lambda: scan(open_reader(tiered), count)))
            times["copy"].append(timed(copied))
            times["single"].append(timed(lambda: open_reader(tiered).get(0, count // 2)))
    size = count * options.size / 1e6
    print(f"{count:,} records of {options.size} bytes; moved, with read-back, at {size / moving:,.0f} MB/s")
    for name in ("local", "tier", "copy"):
        middle = median(times[name])
        print(f"{name:6} {middle:8.3f} s  {size / middle:8,.0f} MB/s  {middle / median(times['local']):6.2f} of local")
    print(f"single {median(times['single']):8.3f} s")


if __name__ == "__main__":
    main()
