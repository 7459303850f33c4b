"""Time of one message, and of one event of a cluster, by stage, with real processes on loopback.

A message passes the publisher (from publish() to the system call that sends), the server (from the return of epoll to
the system call that sends) and the subscriber (from the return of epoll to the callback); between them is the kernel.
In "one client" publisher and subscriber are the same process, as in the race. NATS has nats-py as its client; its
server is traced by perf, where that is allowed. An event of a cluster passes the client, the leader, the follower that
answers first, the leader again and the client again; one client publishes one event after another.

Python processes take time stamps themselves. What these cost is measured, and so is the whole without them.

Processes: CPU time for each message, and instructions and cache misses where perf is allowed to count them.

Nodes: nodes that replay recorded inputs, one message every ms, without sockets and without the other nodes. The
publisher publishes a message and receives it back, the backbone delivers it to both clients, the subscriber passes it
to the application. The leader of a cluster orders an event of one client, which a follower stores. Timers are included,
state files are not. "cold" is the median with caches full of other data, the other figures are with warm ones. --nodes
measures only these, in a few seconds. --counts adds instructions and cache misses, counted by Valgrind, which works
everywhere and takes minutes.

Times differ between machines and with other load; medians and counts of nodes hardly depend on other load.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# OpenBLAS starts threads for numpy, which are unused here and disturb the measurement.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from parcels.nodes import Unfit
from parcels.other_load import Busy, share_of_others
from race.machine import describe
from race.servers import NATS, OURS, Missing
from results import DIRECTORY
from results import write as write_results
from stages.clients import PARCELS
from stages.counters import why_not
from stages.counts import Counts, count
from stages.figures import CaseFigures, nodes_as_json, print_case, print_nodes
from stages.nodes import Recording, record_cluster, record_stream
from stages.processes import Outcome, Pace, Round, cases
from stages.replay import Summary, Times, replay_cold, rounds_of, summarise
from stages.stamps import cost
from stages.tables import tables

from fyrehose_twisted.process.progress import ProgressBar

SYSTEMS = (OURS, NATS, PARCELS)
FACTS = ("processor", "cores", "system", "Python", "nats-server", "nats-py")
COUNTED = 200
"""Messages that Valgrind counts, after as many to warm up."""


def record(options: argparse.Namespace, messages: int) -> dict[str, Recording]:
    """Record the inputs of all nodes."""
    recordings = record_stream(messages, options.size)
    for members in options.members:
        recordings |= record_cluster(messages, options.size, members)
    return {name: each for name, each in recordings.items() if not options.only or name in options.only}


def measure_nodes(options: argparse.Namespace) -> dict[str, Summary]:
    """Replay all recordings in turn."""
    recordings = record(options, options.warm_up + options.messages)
    times: dict[str, list[Times]] = {name: [] for name in recordings}
    replays = rounds_of(recordings, options.rounds, options.warm_up)
    with ProgressBar(replays, total=options.rounds * len(recordings), unit=" replays") as progress:
        for name, result in progress:
            times[name].append(result)
    cold = {name: replay_cold(each, options.warm_up + options.messages) for name, each in recordings.items()}
    return {name: summarise(each, cold[name]) for name, each in times.items()}


def measure_processes(options: argparse.Namespace) -> tuple[list[CaseFigures], dict[str, str]]:
    """Run all cases in turn, with and without time stamps; return figures, and what failed or is missing."""
    hardware = why_not() is None
    pace = Pace(options.rate, options.seconds, options.size)
    outcomes: dict[str, dict[bool, list[Outcome]]] = {}
    problems: dict[str, str] = {}
    jobs = [
        (case, stamped)
        for _ in range(options.rounds)
        for case in cases(options.members, options.system or list(SYSTEMS))
        for stamped in (True, False)
    ]
    with ProgressBar(jobs, unit=" measurements") as progress:
        for case, stamped in progress:
            progress.set_description(case.name)
            if case.system in problems or case.name in problems:
                continue
            try:
                if case.system == NATS and find_spec("nats") is None:
                    raise Missing("not installed: pip install nats-py")
                with tempfile.TemporaryDirectory() as directory:
                    outcome = Round(case, pace, Path(directory), stamped=stamped, hardware=hardware).run()
            except Missing as missing:
                problems[case.system] = str(missing)
            except (RuntimeError, Unfit) as failure:
                problems[case.name] = f"FAILED {failure}"
            else:
                outcomes.setdefault(case.name, {True: [], False: []})[stamped].append(outcome)
    figures = [CaseFigures(name, each[True], each[False]) for name, each in outcomes.items() if each[False]]
    return figures, problems


def print_processes(figures: Sequence[CaseFigures], problems: dict[str, str]) -> None:
    """Print the stages of all cases."""
    for each in figures:
        print_case(each)
    wake_up, send = cost()
    print(f"A time stamp takes {wake_up / 1e3:.2f} µs at a wake-up and {send / 1e3:.2f} µs at a send.")
    if (reason := why_not()) is not None:
        print(f"No instructions and cache misses of processes: {reason}.")
    for name, problem in problems.items():
        print(f"{name}: {problem}")
    print()


def parse_options() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", action="store_true", help="only replay nodes, in a few seconds")
    parser.add_argument("--counts", action="store_true", help="count their instructions and cache misses as well")
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="of processes; may be repeated")
    parser.add_argument("--rate", type=float, default=1_000.0, help="messages/s of a stream [%(default)g]")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round of processes [%(default)g]")
    parser.add_argument("--only", action="append", metavar="NODE", help="such as backbone; may be repeated")
    parser.add_argument("--members", type=int, action="append", help="of a cluster; may be repeated [2, 3]")
    parser.add_argument("--messages", type=int, default=2_000, help="of each replay [%(default)s]")
    parser.add_argument("--warm-up", type=int, default=200, help="messages before them [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement [%(default)s]")
    parser.add_argument("--size", type=int, default=128, help="bytes of a message [%(default)s]")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="for results [%(default)s]")
    options = parser.parse_args()
    options.members = options.members or [2, 3]
    return options


def main() -> None:
    """Measure, print, and write the results."""
    options = parse_options()
    machine = {name: fact for name, fact in describe().items() if name in FACTS}
    print(", ".join(f"{name} {fact}" for name, fact in machine.items()), end="\n\n")
    since = Busy.now()
    figures, problems = ([], {}) if options.nodes else measure_processes(options)
    if not options.nodes:
        print_processes(figures, problems)
        others, stolen = share_of_others(since)
        print(f"Other processes used {others:.2f} cores meanwhile, the host {stolen:.2f}.\n")
    times = measure_nodes(options)
    counts: dict[str, Counts] = {}
    if options.counts:
        try:
            counts = count(record(options, 2 * COUNTED), COUNTED)
        except Missing as missing:
            print(f"No instructions of nodes: valgrind is {missing}.")
    print_nodes(times, counts)
    write(options, machine, figures, nodes_as_json(times, counts))
    if any(problem.startswith("FAILED") for problem in problems.values()):
        sys.exit(1)


def write(
    options: argparse.Namespace, machine: dict[str, str], figures: Sequence[CaseFigures], nodes: dict[str, Any]
) -> None:
    """Write the results."""
    how = f"medians of {options.rounds} rounds of {options.seconds:g} s"
    more = {"cases": {each.name: each.as_json() for each in figures}, "nodes": nodes}
    found = tables(figures, options.members, nodes)
    write_results(options.directory / "stages.json", found, how, machine, **more)


if __name__ == "__main__":
    main()
