"""Fuzz all targets, or some: ``python -m fuzz.run``."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from fuzz.findings import REGRESSIONS, failure, shrink
from fuzz.targets import load, names
from fuzz.worker import PATIENCE

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "fuzz"

TELL = 10.0
"""Seconds between two progress lines of a target."""

_STATUS = re.compile(r"#(\d+)\s.*?(?:cov: (\d+).*?)?corp: (\d+)")


@dataclass
class Outcome:
    """Result of one target.

    :ivar coverage: number of covered places in the library; 0 without coverage.
    :ivar corpus: number of inputs that reach them.
    """

    name: str
    inputs: int = 0
    coverage: int = 0
    corpus: int = 0
    status: int = 0
    said: list[str] = field(default_factory=list)
    findings: list[Path] = field(default_factory=list)

    def read(self, line: str) -> None:
        """Parse an output line of a worker."""
        told = _STATUS.match(line)
        if told is None:
            self.said = [*self.said[-60:], line]
            return
        self.inputs, self.corpus = int(told[1]), int(told[3])
        self.coverage = int(told[2] or self.coverage)

    def __str__(self) -> str:
        covered = f", coverage {self.coverage:,}" if self.coverage else ""
        return f"{self.name:<20} {self.inputs:>12,} inputs{covered}, corpus {self.corpus:,}"


class Fuzzing:
    """Runs workers concurrently.

    :param seconds: time per target.
    """

    def __init__(self, seconds: int, seed: int, *, covered: bool) -> None:
        self._seconds = seconds
        self._seed = seed
        self._covered = covered
        self._lock = Lock()
        self._running: set[subprocess.Popen[str]] = set()

    def run(self, targets: Iterable[str], jobs: int) -> list[Outcome]:
        """Return the result of each target."""
        with ThreadPoolExecutor(jobs) as pool:
            started = [pool.submit(self._one, name) for name in targets]
            try:
                return [one.result() for one in started]
            except BaseException:
                for one in started:
                    one.cancel()
                for process in list(self._running):
                    process.kill()
                raise

    def _one(self, name: str) -> Outcome:
        outcome = Outcome(name)
        findings = BUILD / "findings" / name
        known = set(findings.glob("*"))
        command = [sys.executable, "-m", "fuzz.worker", name, "--corpus", str(BUILD / "corpus" / name)]
        command += ["--findings", str(findings), "--seconds", str(self._seconds), "--seed", str(self._seed)]
        if not self._covered:
            command.append("--without-atheris")
        told = time.monotonic()
        with (
            # atheris exits without cleanup.
            tempfile.TemporaryDirectory(prefix="fuzz-") as scratch,
            subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "TMPDIR": scratch},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ) as process,
        ):
            self._running.add(process)
            assert process.stdout is not None
            for line in process.stdout:
                outcome.read(line.rstrip("\n"))
                if time.monotonic() - told > TELL:
                    told = time.monotonic()
                    self._tell(f"  {outcome}")
            outcome.status = process.wait()
            self._running.discard(process)
        outcome.findings = sorted(set(findings.glob("*")) - known)
        self._tell(f"{outcome}{'' if not outcome.status else ', and then it failed'}")
        return outcome

    def _tell(self, line: str) -> None:
        with self._lock:
            print(line, flush=True)


def describe(outcome: Outcome) -> None:
    """Print the failing input of a target, and the command that keeps it."""
    print(f"\n{outcome.name} failed:")
    for line in outcome.said[-30:]:
        print(f"  {line}")
    for path in outcome.findings:
        kind, data = path.name.partition("-")[0], path.read_bytes()
        if kind == "crash":
            one = load(outcome.name).one
            data = shrink(one, data)
            print(f"\n  {failure(one, data) or 'it fails only now and then'}")
        else:
            print(f"\n  {kind}: more than {PATIENCE} s, or too much memory")
        kept = f"{REGRESSIONS.relative_to(ROOT)}/{outcome.name}"
        print(f"  input, {len(data)} bytes: {data.hex()}")
        print(f"  keep:  mkdir -p {kept} && echo {data.hex()} > {kept}/NAME.hex")
        print(f"  again: python -m fuzz.run {outcome.name} --input {path}")


def replay(name: str, path: Path) -> int:
    """Run one input from a file, in hexadecimal if it is ``*.hex``. :return: the exit status."""
    data = bytes.fromhex(path.read_text()) if path.suffix == ".hex" else path.read_bytes()
    load(name).one(data)
    print(f"{name}: nothing is wrong with these {len(data)} bytes")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command. :return: the exit status, 1 for a finding."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.run", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="by default all")
    parser.add_argument("--list", action="store_true", help="print the names of all targets")
    parser.add_argument("--seconds", type=int, default=600, help="of work altogether; by default 600")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets side by side")
    parser.add_argument("--seed", type=int, default=1, help="another one brings other inputs")
    parser.add_argument("--without-atheris", action="store_true", help="change seeds blindly, with Python alone")
    parser.add_argument("--input", type=Path, help="run one input that was found, and show what it raises")
    asked = parser.parse_args(arguments)
    if asked.list:
        print("\n".join(names()))
        return 0
    unknown = set(asked.targets) - set(names())
    if unknown:
        parser.error(f"there is no target {min(unknown)!r}; --list shows those that there are")
    if asked.input is not None:
        if len(asked.targets) != 1:
            parser.error("--input needs the one target that it is for")
        return replay(asked.targets[0], asked.input)
    covered = not asked.without_atheris
    if covered and importlib.util.find_spec("atheris") is None:
        parser.error("atheris is not installed (pip install atheris); --without-atheris does without it")
    targets = asked.targets or names()
    each = max(1, asked.seconds * asked.jobs // len(targets))
    print(f"Fuzzing {len(targets)} targets for {each} s each, {asked.jobs} side by side", flush=True)
    outcomes = Fuzzing(each, asked.seed, covered=covered).run(targets, asked.jobs)
    failed = [outcome for outcome in outcomes if outcome.status or outcome.findings]
    for outcome in failed:
        describe(outcome)
    inputs = sum(outcome.inputs for outcome in outcomes)
    found = f"{len(failed)} of them failed" if failed else "nothing was found"
    print(f"fuzz: {inputs:,} inputs for {len(targets)} targets, {each} s each; {found}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
