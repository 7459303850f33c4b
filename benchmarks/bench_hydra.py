"""Failover and relaying of a hydra network.

Fail-over: three nodes, each a ``twistd hydra-node`` with a guardian, TCP links between all of them, an ngircd and a
spare one. The clock runs from the moment when the leader is killed with SIGKILL or SIGTERM, disconnected by an IRC
operator's KILL, or its IRC server is killed with SIGKILL, until a client on IRC sees the next leader join the channel.
Several networks run concurrently; each restarts what has ended, and all wait for that before the next round. The same
without guardians. With default timers, and with a tenth of them.

Lines: meanwhile a client on IRC says 20 numbered lines a second, both other nodes follow, and one of them submits 10
numbered lines a second, at most once each. All are counted.

Beside it: PySyncObj and etcd, three nodes with default timers, until another node commits after the leader was
killed. They elect a leader; a hydra leader has also joined IRC.

Relay: lines from a scripted IRC server without limits, through a line of three nodes with the leader at one end, to a
client at the other; and lines that this client submits.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from bench_parcels import facts
from hydra import relays
from hydra.failovers import CUT_OFF, KILLED, NO_SERVER, TERMINATED, UNGUARDED, Failover, Failovers
from hydra.networks import IrcServer
from hydra.report import as_json, print_failovers, print_lines, print_rates, print_wants
from hydra.tables import tables
from parcels import failover as others
from parcels.nodes import Unfit
from parcels.other_load import Busy, idle, share_of_others
from race.servers import Missing
from results import DIRECTORY, given, write

from fyrehose_twisted.process.progress import ProgressBar

RELAY, OTHERS, FAILOVER, PROFILE = "relay", "others", "fail-over", "profile"
PARTS = (RELAY, OTHERS, FAILOVER, PROFILE)
TOO_BUSY = 0.1
"""Cores used by other processes above which the figures are unreliable."""


class Measuring:
    """Runs measurements one after another and keeps their results."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self.failovers: list[Failover] = []
        self.others: dict[str, list[float]] = {}
        self.rates: dict[str, list[dict[str, float]]] = {}
        self.codec: dict[str, float] = {}
        self.profiles: dict[str, list[str]] = {}
        self.traces: dict[str, list[str]] = {}
        self.failures: list[str] = []
        self._options = options
        self._directory = directory
        self._rng = Random(options.seed)

    def fail_over(self) -> None:
        """Measure failover."""
        options = self._options
        guarded = [KILLED, TERMINATED, CUT_OFF, NO_SERVER]
        runs = [
            (1.0, guarded, options.slow_rounds, options.slow_networks),
            (0.1, guarded, options.rounds, options.networks),
            (1.0, [UNGUARDED], options.slow_rounds_unguarded, options.slow_networks),
            (0.1, [UNGUARDED], options.rounds_unguarded, options.networks),
        ]
        total = sum(rounds * count for _, _, rounds, count in runs)
        failovers = Failovers(self._directory, self._rng)
        self.failovers, self.traces = failovers.found, failovers.traces
        try:
            with ProgressBar(total=total, unit=" fail-overs") as progress:
                for scale, kinds, rounds, networks in runs:
                    progress.set_description(f"timescale {scale:g}")
                    asyncio.run(failovers.measure(scale, kinds, rounds, networks, progress))
        finally:
            self.failures += failovers.failures

    def beside(self) -> None:
        """Measure the other systems."""
        for turn in range(self._options.kills_of_others):
            for name, kill in (("PySyncObj", others.syncobj), ("etcd", others.etcd)):
                directory = self._directory / f"{name}{turn}"
                directory.mkdir()
                try:
                    self.others.setdefault(name, []).append(kill(directory, self._rng))
                except Missing as missing:
                    self.failures.append(f"{name}: {missing}")
                    self.others.pop(name)
                except Unfit as failure:
                    self.failures.append(f"{name}: {failure}")

    def relay(self) -> None:
        """Measure rates."""
        seconds = self._options.seconds
        self.codec = relays.codec(seconds / 4)
        directory = self._directory / "ngircd"
        directory.mkdir()
        server = IrcServer("irc", directory)
        try:
            for _ in range(self._options.relay_rounds):
                count = round(seconds * 10_000)
                figures = {"rate": relays.ngircd(server.port, count), "count": count}
                self.rates.setdefault("ngircd alone", []).append(figures)
        finally:
            server.process.stop()
        line = relays.Line(self._directory / "relay")
        try:
            for _ in range(self._options.relay_rounds):
                self.rates.setdefault("relay", []).append(relays.relay(line, seconds))
                self.rates.setdefault("say", []).append(relays.speak(line, seconds))
        finally:
            line.stop()

    def profile(self) -> None:
        """Profile a relaying node."""
        for name, work in (("relay", relays.relay), ("say", relays.speak)):
            line = relays.Line(self._directory / f"profile-{name}", profiles=True)
            try:
                work(line, self._options.seconds)
                line.finish()
                for node in "abc":
                    self.profiles[f"{name}, node {node}"] = relays.profile(line.directory, node)
            finally:
                line.stop()

    def as_json(self) -> dict[str, Any]:
        """Return all results, for a JSON file."""
        return {
            "failovers": as_json(self.failovers),
            "others": self.others,
            "rates": self.rates,
            "codec_us": self.codec,
            "profiles": self.profiles,
            "failures": self.failures,
            "traces_of_failures": self.traces,
        }

    def report(self) -> bool:
        """Print all results; return whether they meet the targets."""
        if self.failovers:
            print_failovers(self.failovers, self.others)
            print_lines(self.failovers)
        if self.rates:
            print_rates(self.rates)
        if self.codec:
            print("codec, µs a line:", ", ".join(f"{name} {value:.2f}" for name, value in self.codec.items()), "\n")
        for name, rows in self.profiles.items():
            print(f"{name}: share of its own time, calls, function")
            print("\n".join(f"  {row}" for row in rows), "\n")
        well = print_wants(self.failovers, self.rates)
        for failure in self.failures:
            print(f"FAILED {failure}")
        return well and not self.failures


def run(options: argparse.Namespace, directory: Path) -> tuple[Measuring, list[str]]:
    """Run all measurements; return their results and notes."""
    measuring = Measuring(options, directory)
    before, since = idle(1.0), Busy.now()
    took: list[str] = []
    works = {
        FAILOVER: measuring.fail_over,
        OTHERS: measuring.beside,
        RELAY: measuring.relay,
        PROFILE: measuring.profile,
    }
    for part, work in works.items():
        if part not in (options.only or PARTS[:3]):
            continue
        began = time.monotonic()
        try:
            work()
        except (Unfit, Missing, OSError) as failure:
            measuring.failures.append(f"{part}: {failure}")
        except SystemExit as end:
            # Results up to an interrupt are still shown.
            measuring.failures.append(f"{part}: {end}")
            break
        took.append(f"{part} {time.monotonic() - began:.0f} s")
    busy, stolen = share_of_others(since)
    notes = [
        f"It took: {', '.join(took)}.",
        f"Before, other processes used {before:.2f} cores; meanwhile {busy:.2f}, and the host {stolen:.2f}.",
    ]
    if max(before, busy, stolen) > TOO_BUSY:
        notes.append("WARNING: the machine is not idle, and rates are worth little.")
    return measuring, notes


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few of everything, in about a minute")
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="do this part; may be repeated [all but profile]"
    )
    parser.add_argument("--networks", type=int, help="at once [5]")
    parser.add_argument("--rounds", type=int, help="at a tenth of the default timers [33]")
    parser.add_argument("--rounds-unguarded", type=int, help="of these without guardians [8]")
    parser.add_argument("--slow-networks", type=int, help="at once, with default timers [6]")
    parser.add_argument("--slow-rounds", type=int, help="with default timers [11]")
    parser.add_argument("--slow-rounds-unguarded", type=int, help="of these without guardians [3]")
    parser.add_argument("--kills-of-others", type=int, help="of the leader of each other system [7]")
    parser.add_argument("--relay-rounds", type=int, help="[3]")
    parser.add_argument("--seconds", type=float, help="of each measurement of rates [3]")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of kills [%(default)s]")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="for results [%(default)s]")
    options = parser.parse_args()
    for name, (full, quick) in {
        "networks": (5, 4),
        "rounds": (33, 1),
        "rounds_unguarded": (8, 1),
        "slow_networks": (6, 4),
        "slow_rounds": (11, 1),
        "slow_rounds_unguarded": (3, 0),
        "kills_of_others": (7, 1),
        "relay_rounds": (3, 1),
        "seconds": (3.0, 1.0),
    }.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else full)
    return options


def main() -> None:
    """Measure, print, and write the results."""
    options, machine = parse(), facts()
    # SIGTERM must end the nodes as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        measuring, notes = run(options, Path(directory))
    print()
    for name, fact in machine.items():
        print(f"{name}: {fact}")
    print("\n".join(notes), "\n")
    well = measuring.report()
    how = f"{len(measuring.failovers)} failovers, several networks at once"
    more = {"notes": notes, "options": given(options), **measuring.as_json()}
    path = options.directory / "hydra.json"
    write(path, tables(measuring.failovers, measuring.others, measuring.rates), how, machine, **more)
    if not well:
        sys.exit(1)


if __name__ == "__main__":
    main()
