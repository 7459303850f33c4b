"""What a client takes besides the time for its messages: CPU time to start, and resident memory.

A new process for each figure, in turns. Start: CPU time from the start of Python until the client library and its
reactor or event loop are imported. Memory: resident set of a client that has published and received 10,000 messages,
which the library keeps to repair those of others. Twisted alone imports the reactor, and has no messages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from race.footprint_clients import SIZE
from race.servers import NATS, OURS, Brokers
from results import add_option, write

from fyrehose_twisted.process.progress import ProgressBar

CLIENTS = Path(__file__).parent / "race" / "footprint_clients.py"
DEADLINE = 60.0
TWISTED = "Twisted"
COLUMNS = {OURS: OURS, NATS: "nats-py", TWISTED: "Twisted alone"}
ROWS = ("start, ms", "memory, MiB")


def measure(name: str, port: int, messages: int) -> dict[str, float]:
    """Run one client in a process of its own."""
    command = [sys.executable, str(CLIENTS), name, str(port), str(messages)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    if done.returncode:
        raise SystemExit(f"the client of {name} failed: {done.stderr[-1_000:]}")
    return dict(json.loads(done.stdout))


def measure_all(options: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Return the figures of all rounds."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in COLUMNS}
    with tempfile.TemporaryDirectory() as directory:
        brokers = Brokers(Path(directory))
        try:
            with ProgressBar("rounds", total=options.rounds, unit="rounds") as bar:
                for _ in range(options.rounds):
                    for name, figures in found.items():
                        broker = None if name == TWISTED else brokers.get(name)
                        if broker is not None or name == TWISTED:
                            figures.append(measure(name, broker.ports[1] if broker else 0, options.messages))
                    bar.update(1)
        finally:
            brokers.stop()
        for name, why in brokers.missing.items():
            print(f"{name} is {why}")
    return {name: figures for name, figures in found.items() if figures}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="processes of each client [%(default)s]")
    parser.add_argument("--messages", type=int, default=10_000, help="messages that each receives [%(default)s]")
    add_option(parser, "footprint")
    options = parser.parse_args()
    found = measure_all(options)
    table = {
        row: {COLUMNS[name]: median(one[row] for one in figures) for name, figures in found.items()} for row in ROWS
    }
    print(f"| | {' | '.join(COLUMNS[name] for name in found)} |\n| --- |{' --- |' * len(found)}")
    for row, cells in table.items():
        print(f"| {row} | {' | '.join(f'{value:,.0f}' for value in cells.values())} |")
    how = f"medians of {options.rounds} processes, {options.messages:,} messages of {SIZE} bytes"
    write(options.json, {"footprint": table}, how)


if __name__ == "__main__":
    main()
