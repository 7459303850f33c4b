"""Instructions and cache misses of a node for each message, counted by Valgrind, which needs no performance counters.

The counts are those of user space. Valgrind simulates a first-level cache and a last-level cache of the sizes of this
machine, always warm. The counts differ by less than a hundredth from run to run, also on a busy machine.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from race.servers import program

from stages.nodes import Recording
from stages.replay import check, play, prepare

MARKER = "getppid"
"""Function of the C library that Python calls, and nothing else: Callgrind writes its counts before each call."""
EVENTS = re.compile(rb"^events: (.*)$", re.MULTILINE)
TOTALS = re.compile(rb"^(?:totals|summary): (.*)$", re.MULTILINE)
FIRST_LEVEL, LAST_LEVEL = ("I1mr", "D1mr", "D1mw"), ("ILmr", "DLmr", "DLmw")
"""Misses of instructions, of reads and of writes."""
PATIENCE = 900.0


class Counts(NamedTuple):
    """Counts for one message: instructions, and cache misses of the first level and of the last."""

    instructions: float
    first_level: float
    last_level: float


def count(recordings: dict[str, Recording], warm_up: int) -> dict[str, Counts]:
    """Replay each recording; return the counts for one of the messages after the first ``warm_up``.

    :raises Missing: if Valgrind is not installed.
    """
    valgrind = program("valgrind", "valgrind")
    with tempfile.TemporaryDirectory() as directory:
        out, file = Path(directory) / "out", Path(directory) / "recordings"
        file.write_bytes(pickle.dumps(list(recordings.values())))
        command = [valgrind, "--tool=callgrind", f"--callgrind-out-file={out}", "--cache-sim=yes"]
        command += [f"--dump-before={MARKER}", sys.executable, __file__, str(file), str(warm_up)]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
        if done.returncode:
            raise RuntimeError(f"Valgrind: {done.stderr.decode(errors='replace')[-2_000:]}")
        # Parts are numbered from 1; every second ends at the second marker of a node.
        parts = [Path(f"{out}.{2 * number}").read_bytes() for number in range(1, len(recordings) + 1)]
    return {
        name: parse(part, recordings[name].messages - warm_up) for name, part in zip(recordings, parts, strict=True)
    }


def parse(profile: bytes, messages: int) -> Counts:
    """Return the counts in a profile for one of ``messages``."""
    events, totals = EVENTS.search(profile), TOTALS.search(profile)
    if events is None or totals is None:
        raise ValueError("this is no profile of Callgrind")
    numbers = (int(number) / messages for number in totals[1].split())
    # Zeros at the end are left out.
    by_name = Counter(dict(zip(events[1].decode().split(), numbers, strict=False)))
    first_level, last_level = (sum(by_name[name] for name in names) for names in (FIRST_LEVEL, LAST_LEVEL))
    return Counts(by_name["Ir"], first_level, last_level)


def main() -> None:
    """Replay recordings, with a marker before and after the messages to be counted."""
    warm_up = int(sys.argv[2])
    for recording in pickle.loads(Path(sys.argv[1]).read_bytes()):  # noqa: S301  # It is the file of count().
        calls, host = prepare(recording)
        play(calls[: warm_up + 1], host.clock)
        os.getppid()
        play(calls[warm_up + 1 : -1], host.clock)
        os.getppid()
        play(calls[-1:], host.clock)
        check(recording, host)


if __name__ == "__main__":
    main()
