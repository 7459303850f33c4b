"""Fyrehose compared with NATS, Redis, ZeroMQ and a C relay, in one run, in under five minutes.

broker: deliveries per CPU-second of the broker. NATS, Redis, ZeroMQ and the C relay get a bulk load, which costs the
clients next to nothing; fyrehose gets the load of its own library.

subscriber: messages/s that one Python subscriber process receives through its client library.

latency: round trip of a message in Python clients at a fixed rate.

repair: throughput of the library while each subscriber loses one message in a hundred on the way in.

crowd: CPU time of the broker per delivery at a fixed rate of messages, to few subscribers and to many.

The broker has one core and all clients another. Medians over rounds that alternate between the systems. Rates differ
between machines; compare the ratios of one run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

# OpenBLAS starts threads for numpy, which are unused here and conflict with forks.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from race import bulk, crowd, latency, library, nats_clients, subscriber
from race.bulk import Cell, Target
from race.crowd import Crowd
from race.latency import Pace
from race.machine import describe
from race.servers import AIO, C_RELAY, NATS, ON_ASYNCIO, OURS, PLAIN, REDIS, UVLOOP, ZEROMQ, Broker, Brokers
from race.tables import tables
from results import DIRECTORY, given, write
from text_table import number, table

from fyrehose_twisted.process.progress import ProgressBar

PARTS = ("broker", "subscriber", "latency", "repair", "crowd")
FAN_OUTS, SIZES = (1, 4, 16), (64, 128, 1_024)
NATS_PY, BARE = "NATS, nats-py", "fyrehose, bare load"
PEERS = (NATS, REDIS, ZEROMQ)
SYSTEMS = (OURS, *ON_ASYNCIO, *PEERS, C_RELAY, NATS_PY, BARE, PLAIN)
BROKER_OF = {NATS_PY: NATS, BARE: OURS, AIO: OURS, UVLOOP: OURS}
WINDOWS = {NATS: 4 * 2**20, REDIS: 4 * 2**20, ZEROMQ: 2**20, C_RELAY: 2**18, BARE: 2**18, PLAIN: 2**14}
"""Bytes in flight per subscriber, as was best for each system."""
SUBSCRIBER_WINDOWS = {OURS: 8_192, AIO: 8_192, UVLOOP: 8_192, NATS: 8_192, REDIS: 8_192, ZEROMQ: 4_096}
"""Messages that a publisher may be ahead of the subscriber, as was best for each system."""
SIDE_SIZE = 128
"""Bytes of payload of measurements with a single size."""
REPAIR_FAN_OUT, LOSS = 4, 0.01
LATENCY_RATE = 1_000.0
PACKAGES = {
    NATS: ("nats", "nats-py"),
    REDIS: ("redis", "redis[hiredis]"),
    UVLOOP: ("uvloop", "uvloop"),
    ZEROMQ: ("zmq", "pyzmq"),
}
"""Modules and distributions of the Python clients of the other systems, and of the faster event loop."""
CHILD_PATIENCE = 90.0
TARGETS = {"broker": 1.5, "subscriber": 5.0, "latency": 1.0, "repair": 0.7, "crowd": 1.0}

Figures = dict[str, float]


class Job(NamedTuple):
    """One measurement of one system."""

    part: str
    case: str
    system: str
    work: Callable[[Broker], Figures]


class ChildFailed(Exception):
    """A measurement failed, with the error as message."""


def in_child(work: Callable[..., Figures], *arguments: object) -> tuple[Any, Any]:
    """Start a process that does ``work``; return it and the connection for its figures."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def run() -> None:
        try:
            theirs.send(work(*arguments))
        except BaseException:
            theirs.send(traceback.format_exc())

    process = context.Process(target=run)
    process.start()
    theirs.close()
    return process, ours


def outcome(process: Any, pipe: Any) -> Figures:
    """Wait for a child's figures. :raises ChildFailed: if there are none."""
    try:
        if not pipe.poll(CHILD_PATIENCE):
            raise ChildFailed(f"it did not end within {CHILD_PATIENCE:g} s")
        figures = pipe.recv()
    except EOFError:
        figures = "it died"
    finally:
        process.join(2)
        if process.is_alive():
            process.kill()
            process.join()
        pipe.close()
    if isinstance(figures, str):
        raise ChildFailed(figures)
    return dict(figures)


def target_of(system: str, broker: Broker) -> Target:
    """Return the address of ``system``."""
    return Target(system, broker.ports, broker.process.pid)


def in_turn(rounds: int, jobs: Sequence[Job]) -> Iterator[Job]:
    """Repeat jobs so that systems alternate."""
    for _ in range(rounds):
        yield from jobs


def broker_jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Yield jobs that measure deliveries per CPU-second of the broker."""

    def job(system: str, fan_out: int, size: int) -> Job:
        cell = Cell(fan_out, size, options.seconds, options.warm_up, WINDOWS.get(system, 0))
        load = {OURS: library.measure, NATS_PY: nats_clients.measure}.get(system, bulk.measure)
        return Job(
            *("broker", f"{fan_out} x {size}", system),
            lambda broker: outcome(*in_child(load, target_of(BROKER_OF.get(system, system), broker), cell)),
        )

    for fan_out in options.fan_out:
        for size in options.size:
            # One size shows the effect of the other kind of load.
            extra = {NATS_PY: size == SIDE_SIZE, BARE: size == SIDE_SIZE, PLAIN: (fan_out, size) == (4, SIDE_SIZE)}
            systems = [
                each
                for each in SYSTEMS
                if each in (options.system or [name for name in SYSTEMS if extra.get(name, True)])
            ]
            yield from in_turn(options.rounds, [job(system, fan_out, size) for system in systems])


def subscriber_jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Yield jobs that measure the rate of a Python subscriber."""

    def job(system: str) -> Job:
        def work(broker: Broker) -> Figures:
            target = target_of(system, broker)
            with tempfile.NamedTemporaryFile() as page:
                shared = subscriber.Shared(page.name)
                receiver = in_child(subscriber.subscribe, target, shared)
                sender = in_child(subscriber.publish, target, SIDE_SIZE, SUBSCRIBER_WINDOWS[system], shared)
                try:
                    figures = subscriber.watch(shared, receiver[0].pid, options.warm_up, 3 * options.seconds)
                finally:
                    shared.stop()
                    had = outcome(*receiver)
                    sent = outcome(*sender)
            if had["touched"] != had["had"] * SIDE_SIZE:
                raise ChildFailed("messages had another size than was published")
            return figures | had | sent

        return Job("subscriber", "", system, work)

    yield from in_turn(options.rounds, [job(system) for system in wanted(options, (OURS, *ON_ASYNCIO, *PEERS))])


def latency_jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Yield jobs that measure round trips."""
    pace = Pace(LATENCY_RATE, options.latency_seconds, 0.3, SIDE_SIZE)

    def job(system: str) -> Job:
        return Job(
            *("latency", "", system),
            lambda broker: outcome(*in_child(latency.measure, target_of(system, broker), pace)),
        )

    yield from in_turn(options.rounds, [job(system) for system in wanted(options, (OURS, *ON_ASYNCIO, *PEERS))])


def repair_jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Yield jobs that measure throughput with and without loss."""
    cell = Cell(REPAIR_FAN_OUT, SIDE_SIZE, max(options.seconds, 1.0), options.warm_up, 0)

    def job(loss: float) -> Job:
        return Job(
            *("repair", f"{loss:.0%} lost", OURS),
            lambda broker: outcome(*in_child(library.measure, target_of(OURS, broker), cell, loss)),
        )

    yield from in_turn(options.rounds, [job(0.0), job(LOSS)])


def crowd_jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Yield jobs that measure the cost of a delivery with many subscribers."""

    def job(system: str, subscribers: int) -> Job:
        load = Crowd(subscribers, options.crowd_rate, SIDE_SIZE, max(options.seconds, 1.0), 0.3)
        return Job(
            *("crowd", f"{subscribers:,}", system),
            lambda broker: outcome(*in_child(crowd.measure, target_of(system, broker), load)),
        )

    few_and_many = (16, options.crowd)
    systems = wanted(options, (OURS, NATS))
    yield from in_turn(options.rounds, [job(system, count) for count in few_and_many for system in systems])


JOBS: dict[str, Callable[[argparse.Namespace], Iterator[Job]]] = {
    "broker": broker_jobs,
    "subscriber": subscriber_jobs,
    "latency": latency_jobs,
    "repair": repair_jobs,
    "crowd": crowd_jobs,
}


def wanted(options: argparse.Namespace, systems: Sequence[str]) -> list[str]:
    """Return the requested systems."""
    return [each for each in systems if not options.system or each in options.system]


class Results:
    """Figures of every round, by part, case and system.

    :ivar missing: programs that are not installed, with advice.
    :ivar failures: measurements that failed, with the error.
    """

    def __init__(self) -> None:
        self.rounds: dict[str, dict[str, dict[str, list[Figures]]]] = {}
        self.missing: dict[str, str] = {}
        self.failures: dict[str, str] = {}

    def add(self, job: Job, figures: Figures) -> None:
        """Add the figures of a round."""
        self.rounds.setdefault(job.part, {}).setdefault(job.case, {}).setdefault(job.system, []).append(figures)

    def median(self, part: str, case: str, system: str, figure: str) -> float | None:
        """Return the median of a figure, ``None`` without one."""
        rounds = self.rounds.get(part, {}).get(case, {}).get(system, ())
        values = [each[figure] for each in rounds if figure in each]
        return median(values) if values else None

    def total(self, part: str, figure: str, systems: Sequence[str] = SYSTEMS) -> float:
        """Return the sum of a figure over a whole part."""
        return sum(
            figures.get(figure, 0)
            for case in self.rounds.get(part, {}).values()
            for system, rounds in case.items()
            for figures in rounds
            if system in systems
        )

    def best_peer(self, case: str) -> tuple[str, float] | None:
        """Return the system with the most deliveries per CPU-second besides fyrehose, and their number."""
        found = [(self.median("broker", case, peer, "deliveries_per_cpu_second"), peer) for peer in PEERS]
        best = max(((value, peer) for value, peer in found if value is not None), default=None)
        return None if best is None else (best[1], best[0])

    def as_json(self, options: argparse.Namespace) -> dict[str, Any]:
        """Return all results, for a JSON file."""
        return {
            "machine": describe(),
            "options": given(options),
            "missing": self.missing,
            "failures": self.failures,
            "rounds": self.rounds,
        }


def measure(options: argparse.Namespace, directory: Path) -> Results:
    """Run all jobs."""
    results = Results()
    jobs = [job for part in options.only or PARTS for job in JOBS[part](options)]
    brokers = Brokers(directory)
    try:
        with ProgressBar(jobs, unit=" measurements") as progress:
            for job in progress:
                progress.set_description(f"{job.part} {job.case} {job.system}".replace("  ", " "))
                name = BROKER_OF.get(job.system, job.system)
                broker = brokers.get(name)
                if broker is None or not has_client(job, results):
                    continue
                try:
                    results.add(job, job.work(broker))
                except (ChildFailed, TimeoutError) as failure:
                    results.failures[f"{job.part} {job.case}, {job.system}"] = str(failure)
                if name == PLAIN:
                    brokers.end(PLAIN)  # It keeps every subscriber that it ever had.
    finally:
        brokers.stop()
    results.missing |= brokers.missing
    return results


def has_client(job: Job, results: Results) -> bool:
    """Return whether the Python client of a job is installed; record a missing one."""
    name = UVLOOP if job.system == UVLOOP else BROKER_OF.get(job.system, job.system)
    if name not in PACKAGES or not (job.system == NATS_PY or job.part in ("subscriber", "latency")):
        return True
    module, package = PACKAGES[name]
    if find_spec(module) is not None:
        return True
    results.missing[{NATS: NATS_PY, UVLOOP: UVLOOP}.get(name, f"{name}, in Python")] = (
        f"not installed: pip install {package}"
    )
    return False


def verdict(ratio: float | None, target: float, *, most: bool = False) -> str:
    """Return a ratio and whether it meets its target."""
    if ratio is None:
        return "-"
    reached = ratio <= target if most else ratio >= target
    return f"{ratio:.2f} {'yes' if reached else 'no'}"


def ratio_of(one: float | None, other: float | None) -> float | None:
    """Return the ratio of two figures, if both exist."""
    return one / other if one is not None and other else None


def print_broker(results: Results) -> None:
    """Print deliveries per CPU-second of the broker."""
    cases = results.rounds.get("broker", {})
    systems = [each for each in SYSTEMS if each in results.missing or any(each in case for case in cases.values())]
    print("Thousand deliveries for each CPU-second of the broker (fan-out x bytes of payload)\n")
    rows, rates = [], []
    for case in cases:
        figures = {each: results.median("broker", case, each, "deliveries_per_cpu_second") for each in systems}
        best, limit = results.best_peer(case), figures.get(C_RELAY)
        ours = figures.get(OURS)
        shown = [number(None if value is None else value / 1_000) for value in figures.values()]
        against = verdict(ratio_of(ours, best[1] if best else None), TARGETS["broker"])
        rows.append([case, *shown, best[0] if best else "-", against, number(ratio_of(ours, limit), 2)])
        rates.append(
            [case, *(number(scaled(results.median("broker", case, each, "messages_per_second"))) for each in systems)]
        )
    table(["", *systems, "best peer", f"ours / it, >= {TARGETS['broker']:g}", "ours / C"], rows)
    print("Thousand messages/s meanwhile, with all clients on one core\n")
    table(["", *systems], rates)
    totals = {name: results.total("broker", name, (OURS,)) for name in ("lost", "repaired", "retransmitted")}
    print(f"fyrehose: {' '.join(f'{int(value):,} {name},' for name, value in totals.items())[:-1]}.")
    for system in systems[1:] if OURS in systems else systems:
        lost = int(results.total("broker", "lost", (system,)))
        if lost:
            print(f"{system}: {lost:,} lost.")
    print()


def in_order(systems: Iterable[str]) -> list[str]:
    """Return systems in the order of all tables."""
    return sorted(systems, key=SYSTEMS.index)


def scaled(value: float | None) -> float | None:
    """Return thousands."""
    return None if value is None else value / 1_000


def print_subscriber(results: Results) -> None:
    """Print the rates of a subscriber."""
    print(f"One Python subscriber, {SIDE_SIZE} bytes, thousand messages\n")
    rows = []
    nats = results.median("subscriber", "", NATS, "messages_per_second")
    for system in in_order(results.rounds["subscriber"][""]):
        rate = results.median("subscriber", "", system, "messages_per_second")
        cpu = results.median("subscriber", "", system, "messages_per_cpu_second")
        rows.append([system, number(scaled(rate)), number(scaled(cpu)), number(ratio_of(rate, nats), 2)])
    table(["", "a second", "a CPU-second", "/ nats-py"], rows)
    ours = ratio_of(results.median("subscriber", "", OURS, "messages_per_second"), nats)
    print(f"fyrehose / nats-py, >= {TARGETS['subscriber']:g}: {verdict(ours, TARGETS['subscriber'])}; ", end="")
    lost, repaired = (int(results.total("subscriber", figure)) for figure in ("lost", "repaired"))
    print(f"{lost:,} lost, {repaired:,} repaired.")
    print(f"All systems: {int(results.total('subscriber', 'written_off')):,} messages were published and never came.\n")


def print_latency(results: Results) -> None:
    """Print round trips."""
    print(f"From publishing to having it back, {LATENCY_RATE:,.0f} messages/s of {SIDE_SIZE} bytes, µs\n")
    rows = []
    for system in in_order(results.rounds["latency"][""]):
        row = [system]
        for figure in ("p50", "p99"):
            value, nats = (results.median("latency", "", each, figure) for each in (system, NATS))
            row += [number(None if value is None else value * 1e6)]
            row += [
                verdict(ratio_of(value, nats), TARGETS["latency"], most=True)
                if system == OURS
                else number(ratio_of(value, nats), 2)
            ]
        rows.append([*row, number(results.median("latency", "", system, "lost"))])
    table(["", "p50", "/ NATS, <= 1", "p99", "/ NATS, <= 1", "never came"], rows)


def print_repair(results: Results) -> None:
    """Print the cost of repairs."""
    print(f"Repair: {REPAIR_FAN_OUT} subscribers of the library, {SIDE_SIZE} bytes\n")
    rows = []
    cases = results.rounds["repair"]
    rates = [results.median("repair", case, OURS, "messages_per_second") for case in cases]
    for case, rate in zip(cases, rates, strict=True):
        counts = [sum(each[name] for each in cases[case][OURS]) for name in ("delivered", "repaired", "lost")]
        rows.append([case, number(rate), *(f"{int(count):,}" for count in counts)])
    table(["", "messages/s", "delivered", "repaired", "never came"], rows)
    if len(rates) == 2:
        answer = verdict(ratio_of(rates[1], rates[0]), TARGETS["repair"])
        print(f"with / without loss, >= {TARGETS['repair']:g}: {answer}.\n")


def print_crowd(results: Results, options: argparse.Namespace) -> None:
    """Print the cost of a delivery with many subscribers."""
    print(f"Broker's µs for each delivery at {options.crowd_rate:g} messages/s of {SIDE_SIZE} bytes\n")
    cases = results.rounds["crowd"]
    rows = []
    for system in (OURS, NATS):
        costs = [results.median("crowd", case, system, "microseconds_per_delivery") for case in cases]
        loads = [results.median("crowd", case, system, "broker_load") for case in cases]
        rates = [results.median("crowd", case, system, "messages_per_second") for case in cases]
        cells = [
            f"{number(cost, 2)} ({number(load, 2)}; {number(rate)})"
            for cost, load, rate in zip(costs, loads, rates, strict=True)
        ]
        ratio = ratio_of(costs[-1], costs[0])
        rows.append(
            [system, *cells, verdict(ratio, TARGETS["crowd"], most=True) if system == OURS else number(ratio, 2)]
        )
    table(["", *(f"{case} subscribers" for case in cases), f"ratio, <= {TARGETS['crowd']:g}"], rows)
    print("In brackets: share of its core that the broker used, and messages/s that everybody got.")
    print(f"{int(results.total('crowd', 'lost')):,} deliveries lost.\n")


def report(results: Results, options: argparse.Namespace) -> None:
    """Print all results."""
    print()
    for name, fact in describe().items():
        print(f"{name}: {fact}")
    if len(os.sched_getaffinity(0)) < 2:
        print("There is only one core: brokers and clients share it, and nothing here is worth comparing.")
    print(f"Medians of {options.rounds} rounds.\n")
    for system, reason in results.missing.items():
        print(f"{system}: {reason}")
    printers = {
        "broker": lambda: print_broker(results),
        "subscriber": lambda: print_subscriber(results),
        "latency": lambda: print_latency(results),
        "repair": lambda: print_repair(results),
        "crowd": lambda: print_crowd(results, options),
    }
    for part in results.rounds:
        printers[part]()
    for what, failure in results.failures.items():
        print(f"FAILED {what}: {failure.strip().splitlines()[-1]}")


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement of throughput [%(default)g]")
    parser.add_argument("--warm-up", type=float, default=0.2, help="seconds before it [%(default)g]")
    parser.add_argument("--latency-seconds", type=float, default=2.5, help="of each round trip test [%(default)g]")
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this part; may be repeated")
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="measure this one; may be repeated")
    parser.add_argument("--fan-out", type=int, action="append", help="of broker; may be repeated [1, 4, 16]")
    parser.add_argument("--size", type=int, action="append", help="of broker; may be repeated [64, 128, 1024]")
    parser.add_argument("--crowd", type=int, default=1_000, help="subscribers in the crowd [%(default)s]")
    parser.add_argument("--crowd-rate", type=float, default=100.0, help="messages/s to the crowd [%(default)g]")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="for results [%(default)s]")
    options = parser.parse_args()
    options.fan_out, options.size = options.fan_out or list(FAN_OUTS), options.size or list(SIZES)
    with tempfile.TemporaryDirectory() as directory:
        results = measure(options, Path(directory))
    report(results, options)
    how = f"medians of {options.rounds} rounds of {options.seconds:g} s"
    write(options.directory / "race.json", tables(results), how, **results.as_json(options))
    if results.failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
