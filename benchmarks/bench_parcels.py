"""Totally ordered clusters: parcels compared with etcd and PySyncObj, in one run, in under eight minutes.

All nodes are processes on loopback, with 2, 3 and 5 of them, and events of 128 bytes. Clients connect to the leader.
No process is bound to a core: a cluster and its clients share the machine.

ours: over the library's TCP client (one process, however many clients), and over HTTP with h2load.

etcd: puts over gRPC with h2load, with and without fsync; with 64 clients the better of one and of 64 connections.

PySyncObj: a replicated list. It has no client protocol, so its leader generates its own load, which saves a hop.

bare: a TCP echo and an HTTP server of Twisted that do nothing, as the lower bound.

fail-over: 3 nodes, each time a new cluster; from the end of the leader until another node answers.

All results are checked: numbers have no gaps, all nodes hold the published events, and etcd changed as often as
requested. Medians over rounds that alternate between the systems, and medians of the ratios of each round. Rates
differ between machines; compare the ratios of one run.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

# OpenBLAS starts threads for numpy, which are unused here and conflict with forks.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from parcels import etcd, failover, h2load, wanted
from parcels.children import in_child
from parcels.etcd import EtcdCluster
from parcels.figures import Results
from parcels.nodes import Node, Unfit, fetch, free_ports, wait_until
from parcels.other_load import Busy, idle, share_of_others
from parcels.ours import OurCluster
from parcels.publishers import SIZE, Load, echo, publish
from parcels.report import print_failover, print_growth, print_loads, print_wants
from parcels.syncobj import SyncObjCluster
from parcels.tables import tables
from race.machine import describe
from race.servers import Missing, program
from results import DIRECTORY, given, write

from fyrehose_twisted.process.progress import ProgressBar

OURS, OURS_SYNCED, ETCD, ETCD_FSYNC = "ours", "ours with --sync", "etcd", "etcd with fsync"
SYNCOBJ, FAILOVER = "PySyncObj", "fail-over"
PARTS = (OURS, OURS_SYNCED, ETCD, ETCD_FSYNC, SYNCOBJ, FAILOVER)
SIZES = (2, 3, 5)
TOO_BUSY = 0.1
"""Cores used by other processes above which the figures are unreliable."""


class Job(NamedTuple):
    """A single measurement."""

    part: str
    case: str
    work: Callable[[], None]


class Measuring:
    """Runs measurements one after another and keeps their results."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self.options = options
        self.results = Results()
        self._directory = directory
        self._rng = Random(options.seed)
        self._clusters = 0

    def jobs(self) -> Iterator[Job]:
        """Yield all jobs in their order."""
        measures = {
            OURS: self._ours,
            OURS_SYNCED: self._ours_synced,
            ETCD: lambda turn, size, directory: self._etcd(turn, size, directory, fsync=False),
            ETCD_FSYNC: lambda turn, size, directory: self._etcd(turn, size, directory, fsync=True),
            SYNCOBJ: self._syncobj,
        }
        for turn in range(self.options.rounds):
            for size in self.options.size:
                for part in self._wanted(measures):
                    work = measures[part]
                    yield Job(
                        part,
                        f"{size} nodes",
                        lambda work=work, turn=turn, size=size: work(turn, size, self._new_directory()),
                    )
        if FAILOVER in self._wanted(PARTS):
            yield from self._interruptions()

    def _wanted(self, parts: Any) -> list[str]:
        return [part for part in parts if not self.options.only or part in self.options.only]

    def _new_directory(self) -> Path:
        self._clusters += 1
        directory = self._directory / str(self._clusters)
        directory.mkdir()
        return directory

    def perform(self, job: Job) -> None:
        """Run a job; record a failure or a missing program."""
        if job.part in self.results.missing:
            return
        began = time.monotonic()
        try:
            job.work()
        except Missing as missing:
            self.results.missing[job.part] = str(missing)
        except (Unfit, subprocess.SubprocessError) as failure:
            self.results.failures[f"{job.part} {job.case}, job {self._clusters}"] = str(failure)
        took = self.results.took
        took[job.part] = took.get(job.part, 0.0) + time.monotonic() - began

    def _ours(self, turn: int, size: int, directory: Path) -> None:
        options = self.options
        with OurCluster(size, directory) as cluster:
            loads = {
                wanted.SEQUENTIAL: (1, 1),
                wanted.ONE_CONNECTION: (1, 64),
                wanted.OWN_CONNECTIONS: (64, 64),
                **{name: (1, flight) for flight, name in wanted.PIPELINED.items()},
            }
            leader = [cluster.places[cluster.leader]]
            for name, (connections, flight) in loads.items():
                # With so many in flight one takes long, so there are few turns in a short time.
                times = 2 if flight == wanted.FLIGHTS[-1] else 1
                seconds, warm_up = times * options.seconds, times * options.warm_up
                self._publish(turn, cluster, name, Load(leader, connections, flight, seconds, warm_up, cluster.pids))
            if size == 2:
                load = Load(cluster.places, 2, 2, options.seconds, options.warm_up, cluster.pids)
                self._publish(turn, cluster, wanted.SPLIT, load)
            self._beside_bare(turn, cluster, directory)

    def _ours_synced(self, turn: int, size: int, directory: Path) -> None:
        seconds, warm_up = self.options.seconds, self.options.warm_up
        with OurCluster(size, directory, sync=True) as cluster:
            leader = [cluster.places[cluster.leader]]
            for name, flight in ((wanted.SYNCED_ONE, 1), (wanted.SYNCED_MANY, 64)):
                self._publish(turn, cluster, name, Load(leader, 1, flight, seconds, warm_up, cluster.pids))

    def _publish(self, turn: int, cluster: OurCluster, name: str, load: Load) -> None:
        figures, first, events = in_child(publish, load)
        cluster.reached(first + len(events) - 1)
        cluster.check_events(first, events)
        self.results.add(turn, cluster.size, name, figures)

    def _beside_bare(self, turn: int, cluster: OurCluster, directory: Path) -> None:
        options, size = self.options, cluster.size
        web, echoes = free_ports(2)
        script = str(Path(__file__).parent / "parcels" / "bare.py")
        bare = Node("bare", [sys.executable, script, str(web), str(echoes)], directory)
        try:
            url = f"http://127.0.0.1:{web}/"
            wait_until(lambda: fetch(url, {}), "the bare server answers", [bare])
            figures = in_child(echo, ("127.0.0.1", echoes), options.seconds / 2, options.warm_up)
            self.results.add(turn, size, wanted.ECHO, figures)
            body = directory / "event.bin"
            body.write_bytes(b"x" * SIZE)
            ours = f"{cluster.urls[cluster.leader]}/events"
            for name, clients, target in (
                (wanted.HTTP_ONE, 1, ours),
                (wanted.BARE_ONE, 1, url),
                (wanted.HTTP_MANY, 64, ours),
                (wanted.BARE_MANY, 64, url),
            ):
                before = cluster.state(cluster.leader)["sequence"]
                kind = ("--h1", "-H", "content-type: application/octet-stream")
                figures, count = h2load.timed(target, body, options.seconds, clients, 1, *kind)
                cluster.reached(before + (count if target == ours else 0))
                self.results.add(turn, size, name, figures)
        except Missing as missing:
            self.results.missing["HTTP"] = str(missing)
        finally:
            bare.stop()

    def _etcd(self, turn: int, size: int, directory: Path, *, fsync: bool) -> None:
        program("h2load", h2load.PACKAGE)
        one = wanted.ETCD_ONE_FSYNC if fsync else wanted.ETCD_ONE
        many = (wanted.ETCD_SHARED_FSYNC, wanted.ETCD_OWN_FSYNC) if fsync else (wanted.ETCD_SHARED, wanted.ETCD_OWN)
        with EtcdCluster(size, directory, fsync=fsync) as cluster:
            for name, (clients, streams) in zip((one, *many), ((1, 1), *etcd.WAYS), strict=True):
                self.results.add(turn, size, name, cluster.put(self.options.seconds, clients, streams))

    def _syncobj(self, turn: int, size: int, directory: Path) -> None:
        seconds, warm_up = self.options.seconds, self.options.warm_up
        with SyncObjCluster(size, directory) as cluster:
            self.results.add(turn, size, wanted.SYNCOBJ_ONE, cluster.load(1, seconds, warm_up))
            # With so many in flight one takes long.
            self.results.add(turn, size, wanted.SYNCOBJ_MANY, cluster.load(4_096, 2 * seconds, 2 * warm_up))
        with SyncObjCluster(size, directory, batches=False) as cluster:
            self.results.add(turn, size, wanted.SYNCOBJ_ONE_AT_ONCE, cluster.load(1, seconds, warm_up))

    def _interruptions(self) -> Iterator[Job]:
        options, rng = self.options, self._rng
        kinds: list[tuple[str, int, Callable[[Path], float]]] = [
            (failover.OURS_KILLED, options.kills, lambda where: failover.ours(where, signal.SIGKILL, rng)),
            (failover.OURS_SILENT, options.silences, lambda where: failover.ours(where, signal.SIGSTOP, rng)),
            (failover.ETCD, options.kills_of_others, lambda where: failover.etcd(where, rng)),
            (failover.SYNCOBJ, options.kills_of_others, lambda where: failover.syncobj(where, rng)),
        ]
        for turn in range(max(times for _, times, _ in kinds)):
            for name, times, measure in kinds:
                if turn < times:
                    yield Job(FAILOVER, name, lambda name=name, measure=measure: self._interrupt(name, measure))

    def _interrupt(self, name: str, measure: Callable[[Path], float]) -> None:
        self.results.failover.setdefault(name, []).append(measure(self._new_directory()))


def facts() -> dict[str, str]:
    """Return machine, kernel and versions."""
    found = describe()
    found = {name: found[name] for name in ("processor", "cores", "system", "Python", "Twisted")}
    for command in ("etcd", "h2load"):
        try:
            said = subprocess.run([program(command, command), "--version"], capture_output=True, text=True, check=True)
            found[command] = said.stdout.splitlines()[0].rpartition(" ")[2].rpartition("/")[2]
        except Missing:
            found[command] = "not installed"
    try:
        found["PySyncObj"] = version("pysyncobj")
    except PackageNotFoundError:
        found["PySyncObj"] = "not installed"
    return found


def measure(options: argparse.Namespace, directory: Path) -> Results:
    """Run all jobs."""
    measuring = Measuring(options, directory)
    before, since = idle(1.0), Busy.now()
    jobs = list(measuring.jobs())
    with ProgressBar(jobs, unit=" jobs") as progress:
        for job in progress:
            progress.set_description(f"{job.part} {job.case}")
            measuring.perform(job)
    others, stolen = share_of_others(since)
    notes = measuring.results.notes
    notes.append(f"Before, other processes used {before:.2f} cores; meanwhile {others:.2f}, and the host {stolen:.2f}.")
    if max(before, others, stolen) > TOO_BUSY:
        notes.append("WARNING: the machine is not idle, and these figures are worth little.")
    return measuring.results


def report(results: Results, options: argparse.Namespace, machine: dict[str, str]) -> None:
    """Print all results."""
    print()
    for name, fact in machine.items():
        print(f"{name}: {fact}")
    took = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in results.took.items())
    print(f"Medians of {options.rounds} rounds, which took {sum(results.took.values()):.0f} s: {took}.")
    for note in results.notes:
        print(note)
    for system, reason in results.missing.items():
        print(f"{system}: {reason}")
    print()
    print_loads(results)
    print_failover(results)
    print_growth(results)
    print_wants(results)
    for what, failure in results.failures.items():
        print(f"FAILED {what}: {failure.strip().splitlines()[-1]}")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="one short round and few kills, in 90 s, to see that it works"
    )
    parser.add_argument("--rounds", type=int, help="[3]")
    parser.add_argument("--seconds", type=float, help="of each measurement [0.7]")
    parser.add_argument("--warm-up", type=float, help="seconds before it [0.3]")
    parser.add_argument("--size", type=int, action="append", help="nodes; may be repeated [2, 3, 5]")
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this part; may be repeated")
    parser.add_argument("--kills", type=int, help="of our leader [7]")
    parser.add_argument("--silences", type=int, help="of our leader [3]")
    parser.add_argument("--kills-of-others", type=int, help="of the leader of each other system [5]")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of kills [%(default)s]")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="for results [%(default)s]")
    options = parser.parse_args()
    short = {"rounds": 1, "seconds": 0.2, "warm_up": 0.1, "kills": 2, "silences": 1, "kills_of_others": 2}
    full = {"rounds": 3, "seconds": 0.7, "warm_up": 0.3, "kills": 7, "silences": 3, "kills_of_others": 5}
    for name, value in (short if options.quick else full).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    options.size = options.size or list(SIZES)
    return options


def main() -> None:
    """Measure, print, and write the results."""
    options, machine = parse(), facts()
    # SIGTERM must end the nodes as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        results = measure(options, Path(directory))
    report(results, options, machine)
    wants = [want._asdict() for want in wanted.wants(results)]
    how = f"medians of {options.rounds} rounds of {options.seconds:g} s; {options.kills} kills of a leader"
    more = {"options": given(options), "wanted": wants, **results.as_json()}
    write(options.directory / "parcels.json", tables(results), how, machine, **more)
    if results.failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
