"""Command that runs rounds on several hosts: ``python -m hosts.run PROTOCOL``."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from hosts.rounds.backbones import BackbonesRound
from hosts.rounds.base import Result, Round
from hosts.rounds.freenet import FreenetRound
from hosts.rounds.fyrehose import FyrehoseRound
from hosts.rounds.hydra import HydraPartitionRound, HydraRound
from hosts.rounds.parcels import ParcelsRound
from suite.spaces import missing_program, refusal

KINDS: tuple[type[Round], ...] = (
    FyrehoseRound,
    BackbonesRound,
    ParcelsRound,
    FreenetRound,
    HydraRound,
    HydraPartitionRound,
)
ROUNDS = {kind.protocol: kind for kind in KINDS}
COLUMNS = ("protocol", "rounds", "faults", "operations", "acknowledged", "violations")


def obstacle() -> str | None:
    """Return why rounds cannot run here, or ``None``."""
    return missing_program(("nft", "nftables"), ("ngircd", "ngircd")) or refusal()


def run_round(protocol: str, seed: int, keep: Path | None = None) -> Result:
    """Run one round. Its directory is removed if nothing was violated.

    :param keep: parent of its directory, by default the temporary directory.
    """
    directory = Path(tempfile.mkdtemp(prefix=f"{protocol}-{seed}-", dir=keep))
    result = ROUNDS[protocol](seed, directory).run()
    if not result.violations:
        shutil.rmtree(directory)
    return result


def describe(result: Result) -> str:
    """Return a line about a round, and one for each violation."""
    counted = f"{result.operations} operations, {result.acknowledged} acknowledged"
    lines = [f"{result.protocol} seed {result.seed}: {counted}, {len(result.violations)} violations"]
    if result.violations:
        lines += [f"  {violation}" for violation in result.violations[:20]]
        lines.append(f"  history, plan and logs are in {result.directory}; again with:")
        lines.append(f"  PYTHONPATH=tests python -m hosts.run {result.protocol} --seed {result.seed} --rounds 1")
    return "\n".join(lines)


def describe_pauses(results: Sequence[Result]) -> str:
    """Return a table of the pauses that readers saw, one line per kind of fault; empty if none were measured."""
    rows = [("fault", "pauses", "median", "longest")]
    for kind in sorted({kind for result in results for kind in result.pauses}):
        found = [pause for result in results for pause in result.pauses.get(kind, ())]
        rows.append((kind, str(len(found)), f"{median(found):.3f} s", f"{max(found):.3f} s"))
    return _align(rows) if len(rows) > 1 else ""


def table(results: Sequence[Result]) -> str:
    """Return the table of all rounds, one line per protocol."""
    rows = [COLUMNS]
    for protocol in dict.fromkeys(result.protocol for result in results):
        own = [result for result in results if result.protocol == protocol]
        faults = sum((result.faults for result in own), Counter[str]())
        rows.append(
            (
                protocol,
                str(len(own)),
                ", ".join(f"{count} {kind}" for kind, count in sorted(faults.items())),
                str(sum(result.operations for result in own)),
                str(sum(result.acknowledged for result in own)),
                str(sum(len(result.violations) for result in own)),
            )
        )
    return _align(rows)


def _align(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run rounds, print each and a table; return 1 if there was a violation."""
    parser = argparse.ArgumentParser(
        prog="python -m hosts.run", description="Run services on several hosts with faults."
    )
    parser.add_argument("protocol", nargs="*", metavar="PROTOCOL", help=f"{', '.join(ROUNDS)} [all]")
    parser.add_argument("--seed", type=int, help="of the first round; the next ones count on [drawn]")
    parser.add_argument("--rounds", type=int, default=1, help="of each protocol [1]")
    parser.add_argument("--at-once", type=int, default=1, help="rounds that run side by side [1]")
    parser.add_argument("--keep", type=Path, help="directory for the histories [that of temporary files]")
    options = parser.parse_args(arguments)
    if unknown := set(options.protocol) - set(ROUNDS):
        parser.error(f"unknown protocol {', '.join(sorted(unknown))}; there are {', '.join(ROUNDS)}")
    if why := obstacle():
        parser.error(why)
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    first = random.randrange(1_000_000) if options.seed is None else options.seed
    jobs = [(name, seed) for seed in range(first, first + options.rounds) for name in options.protocol or ROUNDS]
    results = []
    with ThreadPoolExecutor(options.at_once) as pool:
        for result in pool.map(lambda job: run_round(*job, options.keep), jobs):
            print(describe(result), flush=True)
            results.append(result)
    print()
    print(table(results))
    if pauses := describe_pauses(results):
        print(f"\n{pauses}")
    return int(any(result.violations for result in results))


if __name__ == "__main__":
    sys.exit(main())
