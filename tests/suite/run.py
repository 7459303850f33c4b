"""Runner of ``make test``, ``make test-all`` and ``make soak``: tests split over the cores, and other checks."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from threading import Lock
from time import monotonic

from suite.inherited import normalize
from suite.report import Report
from suite.shares import DURATIONS, recorded, shares

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
SLOWEST = 10
HANGS = 1_000
"""Seconds after which a test, outside of the soak, prints where it stands and ends its process; all pages are one."""
MOST_CORES = 8
"""Maximum number of processes; more would have little to do."""

CHECKS = {
    "style": ([sys.executable, "-m", "ruff", "check"], [sys.executable, "-m", "ruff", "format", "--check"]),
    "imports": ([str(BIN / "lint-imports"), "--no-logo"],),
    "types": ([sys.executable, "-m", "mypy"],),
}
"""Checks that run beside the tests, each of one or several commands."""


@dataclass(frozen=True)
class Suite:
    """Makefile target: its name, the pytest options that select its tests, and where the tests are.

    :ivar about: last words of a run without failures.
    :ivar checks: whether the other checks of the code run beside the tests.
    :ivar folders: folders and modules of the tests.
    :ivar without: folders and modules among these that are left out.
    :ivar durations: suite whose recorded durations serve for this one.
    """

    name: str
    options: Sequence[str]
    about: str = "style, types and imports are right"
    checks: bool = True
    folders: Sequence[str] = ("",)
    without: Sequence[str] = ()
    durations: str = ""


TEST = Suite("test", ())
TEST_ALL = Suite("test-all", ("-m", "not soak", "--hypothesis-profile=ci"))
REST = Suite(
    "test-rest",
    ("-m", "extended and not soak", "--hypothesis-profile=ci"),
    "make test has the others",
    checks=False,
)
SOAK = Suite(
    "soak",
    ("-m", "soak or hypothesis", "--hypothesis-profile=soak", "-rP"),
    "seeds and examples were new ones",
    checks=False,
)
COMPILED = Suite(
    "test-compiled",
    (),
    "the modules are compiled",
    checks=False,
    folders=(
        *("consensus", "experiments", "freenet", "fyrehose", "hydra", "net", "parcels", "sim"),
        *("packaging/test_compiled.py", "test_datagrams.py", "test_driver.py", "test_interfaces.py", "test_lru_set.py"),
        *("test_ranges.py", "test_repeats.py", "test_report_limiter.py", "test_token_bucket.py"),
        "integration/freenet",
        *(
            f"integration/test_{name}.py"
            for name in (
                *("frontend", "hostile", "hydra", "hydra_irc", "ip_versions", "journal", "kept", "mac", "multicast"),
                *("parcels", "parcels_foreign_peers", "query", "relay", "repair", "repair_sources", "restart"),
                *("service", "takeover"),
            )
        ),
    ),
    without=("sim/runs/test_reproducible.py", "parcels/cli"),
    durations="test",
)
"""What runs compiled code, without the extended tests: those of nodes, codecs and simulator, and of each service."""
CORE = Suite(
    "test-core",
    (),
    "make test has the others, and the checks of style, types and imports",
    checks=False,
    folders=(
        *("cli", "consensus", "freenet", "fyrehose", "hydra", "journal", "net", "parcels", "process", "query"),
        *("sealing", "sim", "web", "packaging/test_pythons.py"),
        *("test_datagrams.py", "test_driver.py", "test_effects.py", "test_host_addresses.py", "test_interfaces.py"),
        *("test_leaks.py", "test_lru_set.py", "test_moved.py", "test_purity.py", "test_ranges.py", "test_record.py"),
        *("test_repeats.py", "test_report_limiter.py", "test_tcp_write.py", "test_token_bucket.py"),
        "integration/freenet",
        *(
            f"integration/test_{name}.py"
            for name in ("hostile", "hydra", "journal", "parcels", "query", "repair", "service")
        ),
    ),
    # Simulations take long and depend on no version of Python; Parquet needs pyarrow.
    without=(
        *("freenet/simulation", "fyrehose/simulation", "hydra/simulation", "journal/arrow", "parcels/simulation"),
        "sim/runs",
    ),
    durations="test",
)
"""What runs without Spark and what it stands on: nodes, codecs, services and journals, to try a version of Python."""
MORE = "Spark, browsers, every documented command, long integration tests, and more examples of each property"


@dataclass
class Part:
    """One process of a run, or the checks.

    :ivar said: final output: failures and a summary line.
    """

    name: str
    status: int = 0
    said: list[str] = field(default_factory=list)
    report: Report = field(default_factory=Report)


class Run:
    """One run of a suite, on some cores."""

    def __init__(self, suite: Suite, cores: int, pytest_options: Sequence[str]) -> None:
        self.suite = suite
        self.cores = cores
        self._pytest_options = pytest_options
        self._printing = Lock()
        self._started = monotonic()
        self._processes: list[subprocess.Popen[str]] = []

    def run(self, checks_only: bool = False) -> list[Part]:
        """Run everything, and print the output of all parts as it arrives."""
        if checks_only:
            return [self._check()]
        parted = shares(self._files(), recorded().get(self.suite.durations or self.suite.name, {}), self.cores)
        with ThreadPoolExecutor() as parts:
            running = [parts.submit(self._test, number, share) for number, share in enumerate(parted, 1)]
            if self.suite.checks:
                running.insert(0, parts.submit(self._check))
            try:
                return [part.result() for part in running]
            except KeyboardInterrupt:
                for process in self._processes:  # A terminal signals the children as well; `kill` does not.
                    process.send_signal(signal.SIGINT)
                raise

    def _files(self) -> list[str]:
        tests = ROOT / "tests"
        roots = [tests / folder for folder in self.suite.folders]
        found = {path for root in roots for path in (root.rglob("test_*.py") if root.is_dir() else [root])}
        left_out = [tests / folder for folder in self.suite.without]
        return sorted(str(path.relative_to(ROOT)) for path in found if not any(map(path.is_relative_to, left_out)))

    def _check(self) -> Part:
        part = Part("style, types and imports")
        for name, commands in CHECKS.items():
            wrong = False
            for command in commands:
                done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                if done.returncode:
                    wrong, part.status = True, 1
                    part.said += [f"{' '.join(command[1:])}:", *done.stdout.splitlines()]
            self._tell(f"{name} {'wrong, see below' if wrong else 'right'}")
        return part

    def _test(self, number: int, files: Sequence[str]) -> Part:
        part, path = Part(f"tests, part {number} of {self.cores}"), ROOT / "build" / f"{self.suite.name}-{number}.json"
        path.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "--no-header", "-rfE", f"--report={path}", *self.suite.options]
        if self.suite is not SOAK:
            command += ["-o", f"faulthandler_timeout={HANGS}", "-o", "faulthandler_exit_on_timeout=true"]
        process = subprocess.Popen(
            [*command, *self._pytest_options, *files],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._processes.append(process)
        assert process.stdout is not None
        last = ""
        with process.stdout:
            for line in map(str.rstrip, process.stdout):
                heading = line.startswith("===") and "test session starts" not in line
                if part.said or heading:
                    # Failures are printed at the end, not mixed with the progress of other parts.
                    part.said.append(line)
                elif line and not line.startswith("==="):
                    self._tell(line)
                last = line or last
        part.status = process.wait()
        part.said += said_of_end(part.name, part.status, last)
        part.report = Report.read(path)
        return part

    def _tell(self, line: str) -> None:
        with self._printing:
            print(f"{monotonic() - self._started:5.0f} s  {line}", flush=True)

    def conclude(self, parts: Sequence[Part]) -> int:
        """Print the result of the run; return its exit status."""
        for line in (line for part in parts for line in part.said):
            print(line)
        wrong = [part.name for part in parts if part.status]
        if len(parts) > 1:
            self._summarize(parts, wrong)
        return 1 if wrong else 0

    def _summarize(self, parts: Sequence[Part], wrong: Sequence[str]) -> None:
        total, took = reduce(add, (part.report for part in parts)), monotonic() - self._started
        print(f"The {SLOWEST} slowest tests:")
        for test in sorted(total.seconds, key=lambda test: -total.seconds[test])[:SLOWEST]:
            print(f"  {total.seconds[test]:6.1f} s  {test}")
        for reason, count in total.skipped.most_common():
            print(f"{count} skipped: {reason}")
        counts = ", ".join(f"{total.outcomes[outcome]:,} {outcome}" for outcome in ("passed", "failed", "skipped"))
        verdict = f"what failed: {', '.join(wrong)}" if wrong else self.suite.about
        print(f"make {self.suite.name} took {took // 60:.0f} min {took % 60:.0f} s: {counts}; {verdict}.")
        if self.suite is TEST and not wrong:
            print(f"make test-all has {total.outcomes['deselected']:,} tests more: {MORE}.")

    def record(self, parts: Sequence[Part]) -> None:
        """Store the duration of each file, by which later runs are split."""
        seconds: defaultdict[str, float] = defaultdict(float)
        for part in parts:
            for test, took in part.report.seconds.items():
                seconds[test.partition("::")[0]] += took
        durations = recorded() | {self.suite.name: {file: round(seconds[file], 2) for file in sorted(seconds)}}
        DURATIONS.write_text(json.dumps(durations, indent=1) + "\n")


def said_of_end(name: str, status: int, last: str) -> list[str]:
    """Return what to say of a pytest that did not report its failures itself.

    :param last: its last line.
    """
    if status in (0, 1):
        return []
    how = signal.Signals(-status).name if status < 0 else f"status {status}"
    return [f"{name}: pytest ended with {how} after {last!r}"]


def main() -> int:
    """Run a suite on behalf of the Makefile."""
    parser = argparse.ArgumentParser(description=__doc__)
    cores = min(len(os.sched_getaffinity(0)), MOST_CORES)
    parser.add_argument("--checks", action="store_true", help="run no tests")
    for option, suite, about in (
        ("--all", TEST_ALL, "run everything but the soak"),
        ("--rest", REST, "run what --all has in addition, and no checks"),
        ("--compiled", COMPILED, "run the tests of compiled modules, on compiled ones"),
        ("--core", CORE, "run the tests that need no Spark, and no checks"),
        ("--soak", SOAK, "run the long tests, each for SOAK_SECONDS"),
    ):
        parser.add_argument(option, dest="suite", action="store_const", const=suite, default=TEST, help=about)
    parser.add_argument("--cores", type=int, default=cores, help="processes that run tests; default: %(default)s")
    parser.add_argument("--record", action="store_true", help="write down how long each file takes")
    parser.add_argument("pytest", nargs="*", metavar="OPTION", help="options for pytest, after --")
    options = parser.parse_args()
    normalize()
    run = Run(options.suite, options.cores, options.pytest)
    try:
        parts = run.run(options.checks)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if options.record:
        run.record(parts)
    return run.conclude(parts)


if __name__ == "__main__":
    sys.exit(main())
