"""Time of one message, and of one event of a cluster, by stage.

--nodes measures only the nodes, in a few seconds: they replay recorded inputs, one message every ms, without sockets
and without the other nodes. The publisher publishes a message and receives it back, the backbone delivers it to both
clients, the subscriber passes it to the application. The leader of a cluster orders an event of one client, which a
follower stores. Timers are included, state files are not.

--counts adds instructions and cache misses for each message, counted by Valgrind; this takes minutes.

Rates differ between machines and with other load; medians and counts hardly depend on other load.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# OpenBLAS starts threads for numpy, which are unused here and disturb the measurement.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from race.machine import describe
from race.servers import Missing
from stages.counts import Counts, count, play_for_valgrind
from stages.nodes import Recording, record_cluster, record_stream
from stages.replay import Summary, Times, rounds_of, summarise

from fyrehose_twisted.process.progress import ProgressBar

COUNTED = 100
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
    return {name: summarise(each) for name, each in times.items()}


def count_nodes(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Counts]:
    """Count instructions and cache misses of the nodes of these names."""
    arguments = [__file__, "--valgrind", f"--size={options.size}", *(f"--members={each}" for each in options.members)]
    return count(names, [*arguments, *(f"--only={name}" for name in options.only or ())], COUNTED)


def print_nodes(times: dict[str, Summary], counts: dict[str, Counts]) -> None:
    """Print the table of the nodes."""
    heads = ("median, µs", "99 %, µs", "CPU, µs", "instructions", "L1 misses", "LL misses")
    print(f"{'one message in a node':<24}" + "".join(f"{head:>14}" for head in heads))
    for name, summary in times.items():
        cells = [f"{figure:.1f}" for figure in summary]
        counted = counts.get(name)
        cells += ["-"] * 3 if counted is None else [f"{figure:,.0f}" for figure in counted]
        print(f"{name:<24}" + "".join(f"{cell:>14}" for cell in cells))


def as_json(times: dict[str, Summary], counts: dict[str, Counts]) -> dict[str, Any]:
    """Return the figures of the nodes."""
    return {
        name: summary._asdict() | (counts[name]._asdict() if name in counts else {}) for name, summary in times.items()
    }


def parse_options() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", action="store_true", help="only replay nodes, in a few seconds")
    parser.add_argument("--counts", action="store_true", help="count their instructions and cache misses as well")
    parser.add_argument("--only", action="append", metavar="NODE", help="such as publisher; may be repeated")
    parser.add_argument("--members", type=int, action="append", help="of a cluster; may be repeated [2, 3]")
    parser.add_argument("--messages", type=int, default=2_000, help="of each replay [%(default)s]")
    parser.add_argument("--warm-up", type=int, default=200, help="messages before them [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="replays of each node [%(default)s]")
    parser.add_argument("--size", type=int, default=128, help="bytes of a message [%(default)s]")
    parser.add_argument("--directory", type=Path, default=Path("build/bench"), help="for results [%(default)s]")
    parser.add_argument("--valgrind", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.members = options.members or [2, 3]
    return options


def main() -> None:
    """Measure, print, and write the results."""
    options = parse_options()
    if options.valgrind:
        play_for_valgrind(record(options, 2 * COUNTED), COUNTED)
        return
    facts = {name: fact for name, fact in describe().items() if name in ("processor", "cores", "system", "Python")}
    times, counts = measure_nodes(options), {}
    try:
        counts = count_nodes(options, list(times)) if options.counts else {}
    except Missing as missing:
        print(f"no counts: valgrind is {missing}", file=sys.stderr)
    print(", ".join(f"{name} {fact}" for name, fact in facts.items()))
    print_nodes(times, counts)
    options.directory.mkdir(parents=True, exist_ok=True)
    path = options.directory / "stages.json"
    path.write_text(json.dumps({"machine": facts, "nodes": as_json(times, counts)}, indent=1) + "\n")
    print(f"\nThe figures are in {path}.")


if __name__ == "__main__":
    main()
