"""Run of one seed from the command line: output, replay and shrinking."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from errno import EBADF
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import TextIO, cast

from fyrehose_twisted.process.progress import ProgressBar
from fyrehose_twisted.sim.runs.html_report import write_page
from fyrehose_twisted.sim.runs.runner import replay_command, run_seed
from fyrehose_twisted.sim.runs.summary_text import describe_outcome, pluralize
from fyrehose_twisted.sim.scenario import NO_EXCEPTIONS, RunOutcome, Scenario
from fyrehose_twisted.sim.schedule import FaultSchedule, shrink

STDIO = "-"
"""File name for standard input or output."""


class TraceWriteError(BaseException):
    """A trace cannot be written. Not an :class:`Exception`, which the scenario would attribute to a node."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(problem)
        self.problem = problem


class SingleRun:
    """Run of one seed as specified by the options.

    :ivar command: command that replays the run.
    """

    def __init__(self, scenario: type[Scenario], reference: str, seed: int, options: Namespace) -> None:
        self.scenario = scenario
        self.seed = seed
        self.split_seed: int = options.split_seed or 0
        self.faults = None if options.faults is None else read_faults(options.faults)
        self._reference = reference
        self._split_options = ("--split-seed", str(self.split_seed)) if self.split_seed else ()
        if self.faults is None:
            self.command = self._command()
        elif options.faults == STDIO:
            # Standard input cannot be read again.
            self.command = self.command_with(self.faults)
        else:
            self.command = self._command("--faults", options.faults)

    def check(self) -> None:
        """Check that the hosts of given faults exist.

        :raises ConfigurationError: if a fault is not applicable.
        """
        if self.faults is None:
            return
        try:
            network = self.scenario(self.seed, faults=self.faults, split_seed=self.split_seed).network
        except Exception:
            # The run fails in the same place and reports it.
            return
        self.faults.check(network)

    def command_with(self, faults: FaultSchedule) -> str:
        """Return the command that replays the run with these faults, as a here-document."""
        if not len(faults):
            return self._command("--faults", "/dev/null")
        return f"{self._command('--faults', STDIO)} <<END\n{faults}END"

    def _command(self, *options: str) -> str:
        return replay_command(self._reference, self.seed, *self._split_options, *options)

    def run(self, trace: TextIO | None) -> RunOutcome:
        """Run the seed; show the progress on a terminal."""
        with ProgressBar(
            total=self.scenario.duration,
            leave=False,
            desc=f"{self.scenario.name}, seed {self.seed}",
            bar_format="{desc}: {n:.0f} s simulated |{bar}| {elapsed}",
        ) as bar:
            return self.run_with(self.faults, trace, lambda elapsed: bar.update(elapsed - bar.n))

    def run_with(
        self,
        faults: FaultSchedule | None,
        trace: TextIO | None = None,
        on_sample: Callable[[float], object] | None = None,
    ) -> RunOutcome:
        """Run the seed with these faults."""
        return run_seed(
            self.scenario,
            self.seed,
            faults=faults,
            split_seed=self.split_seed,
            trace=trace,
            replay=self.command,
            on_sample=on_sample,
        )


class Shrinker:
    """Search for a minimal fault schedule that still breaks the same invariant.

    :ivar shortest: shortest failing schedule so far.
    :ivar outcome: outcome of the run with that schedule.
    :ivar runs: number of runs so far.
    """

    def __init__(self, run: SingleRun, broken: RunOutcome) -> None:
        self.run = run
        self.outcome = broken
        self.initial_faults = run.scenario(run.seed).faults if run.faults is None else run.faults
        self.shortest = self.initial_faults
        self.runs = 0

    def shrink(self) -> None:
        """Search until the schedule is minimal."""
        form = "{desc}, {n_fmt} runs, {elapsed}"
        with ProgressBar(leave=False, desc=self._progress_text(), bar_format=form) as self._bar:
            shrink(self.initial_faults, self._fails)

    def _fails(self, schedule: FaultSchedule) -> bool:
        outcome = self.run.run_with(schedule)
        self.runs += 1
        self._bar.update()
        fails = _violation_key(outcome) == _violation_key(self.outcome)
        if fails:
            self.outcome, self.shortest = outcome, schedule
            self._bar.set_description_str(self._progress_text())
        return fails

    def _progress_text(self) -> str:
        return f"shrinking: {len(self.shortest)} of {pluralize(len(self.initial_faults), 'fault')} left"

    def __str__(self) -> str:
        left, again = len(self.shortest), _replay_text(self.run.command_with(self.shortest))
        broken = f"({pluralize(self.runs, 'run')} tried): {self.outcome.violation}"
        if not left:
            return f"No fault is needed {broken}\n{again}"
        enough = f"{left} of {pluralize(len(self.initial_faults), 'fault')} {'is' if left == 1 else 'are'} enough"
        return f"{enough} {broken}\n{again}"


def run_single(run: SingleRun, options: Namespace) -> int:
    """Run one seed, write its output, and return the exit status.

    :raises ConfigurationError: if a given fault is not applicable.
    :raises OSError: if an output file cannot be written.
    """
    run.check()
    say = sys.stderr if options.trace == STDIO else sys.stdout
    with trace_output(options.trace, options.html) as trace:
        outcome = run.run(cast("TextIO | None", trace))
    print(describe_outcome(outcome), file=say)
    if outcome.violation is None:
        return 0
    for note in getattr(outcome.violation, "__notes__", ()):
        print(note, file=sys.stderr, end="")
    if trace is not None and not trace.written:
        print("No page written: the scenario failed while it was built", file=say)
    print(_replay_text(run.command), file=say)
    if options.shrink:
        _shrink(run, outcome, say)
    return 1


@contextmanager
def trace_output(trace: str | None, page: str | None) -> Iterator[_TraceFile | None]:
    """Open the trace file of a run, if any. When the run is over or interrupted, write the page.

    :param trace: path of the trace, or ``-``; ``None`` for no trace.
    :param page: path of the page; ``None`` for no page.
    :raises OSError: if a file cannot be written; if possible before the run.
    """
    with ExitStack() as stack:
        shown: TextIO | None = None
        if page is not None:
            stack.enter_context(_with_filename(page))
            shown = stack.enter_context(open(page, "w", encoding="ascii"))
        if trace is not None:
            stack.enter_context(_with_filename("standard output" if trace == STDIO else trace))
        lines = _open_trace(trace, stack, to_be_read=shown is not None)
        interrupted: KeyboardInterrupt | None = None
        try:
            yield None if lines is None else _TraceFile(lines)
        except TraceWriteError as failed:
            raise failed.problem from None
        except KeyboardInterrupt as interrupt:
            interrupted = interrupt
        if lines is not None and shown is not None:
            if lines.tell():
                lines.seek(0)
                with _with_filename(str(page)):
                    write_page(lines, shown)
            if trace == STDIO:
                lines.seek(0)
                copyfileobj(lines, sys.stdout)
        if trace == STDIO:
            # A short trace fits into the buffer, whose size depends on the version of Python.
            sys.stdout.flush()
        if interrupted is not None:
            raise interrupted


@contextmanager
def _with_filename(path: str) -> Iterator[None]:
    """Add the file name to an :class:`OSError`; errors of writes lack it."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


def _replay_text(command: str) -> str:
    return f"Replay it:\n{command}" if "\n" in command else f"Replay it: {command}"


def read_faults(path: str) -> FaultSchedule:
    """Read a fault schedule from a file or from standard input.

    :raises ConfigurationError: if the schedule is invalid.
    :raises OSError: if the file cannot be read.
    """
    if path == STDIO:
        if sys.stdin is None:
            raise OSError(EBADF, "it is closed", "standard input")
        return FaultSchedule.parse(sys.stdin.read())
    with open(path, encoding="utf-8", errors="replace") as file:
        return FaultSchedule.parse(file.read())


def _shrink(run: SingleRun, broken: RunOutcome, out: TextIO) -> None:
    try:
        shrinking = Shrinker(run, broken)
    except Exception:
        print("Nothing to shrink: the scenario fails before the run begins", file=out)
        return
    try:
        shrinking.shrink()
    finally:
        # An interrupted search keeps its result so far.
        print(shrinking, file=out)


class _TraceFile:
    """Trace file that ends the run when it cannot be written.

    :ivar written: whether anything was written.
    """

    def __init__(self, file: TextIO) -> None:
        self._write = file.write
        self.written = False

    def write(self, text: str) -> int:
        self.written = True
        try:
            return self._write(text)
        except OSError as error:
            raise TraceWriteError(error) from None


def _open_trace(trace: str | None, stack: ExitStack, *, to_be_read: bool) -> TextIO | None:
    if trace == STDIO and sys.stdout is None:
        raise OSError(EBADF, "it is closed", "standard output")
    if trace is not None and trace != STDIO:
        return stack.enter_context(open(trace, "w+" if to_be_read else "w", encoding="ascii", newline="\n"))
    if to_be_read:
        return cast(TextIO, stack.enter_context(TemporaryFile("w+", encoding="ascii", newline="\n")))
    return None if trace is None else sys.stdout


def _violation_key(outcome: RunOutcome) -> tuple[str, str] | None:
    violation = outcome.violation
    if violation is None:
        return None
    # Exceptions from the same place are equal, whatever their messages.
    return violation.invariant, violation.description.partition(":")[0] if violation.invariant == NO_EXCEPTIONS else ""
