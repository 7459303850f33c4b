"""One seed from a shell: what is written while it runs, and what is left of its faults."""

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
"""Stands for standard input or output where a file is named."""


class TraceWriteError(BaseException):
    """A trace cannot be written. Not an Exception, which the scenario would take for one of a node's."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(problem)
        self.problem = problem


class SingleRun:
    """One seed as the options want it.

    :ivar command: what runs it again.
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
            # What was read there cannot be read again.
            self.command = self.command_with(self.faults)
        else:
            self.command = self._command("--faults", options.faults)

    def check(self) -> None:
        """See that everybody is there whom the faults concern, if they are not drawn.

        :raises ConfigurationError: if somebody is not.
        """
        if self.faults is None:
            return
        try:
            network = self.scenario(self.seed, faults=self.faults, split_seed=self.split_seed).network
        except Exception:
            # The run breaks in the same place, and says where.
            return
        self.faults.check(network)

    def command_with(self, faults: FaultSchedule) -> str:
        """Return what runs it again with these faults, in more than one line if there are any."""
        if not len(faults):
            return self._command("--faults", "/dev/null")
        return f"{self._command('--faults', STDIO)} <<END\n{faults}END"

    def _command(self, *options: str) -> str:
        return replay_command(self._reference, self.seed, *self._split_options, *options)

    def run(self, trace: TextIO | None) -> RunOutcome:
        """Run it, and show how far it is if somebody watches."""
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
        """Run it with these faults."""
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
    """Looks for the fewest faults with which a run still breaks the same invariant.

    :ivar shortest: the shortest schedule so far that breaks it.
    :ivar outcome: what came of the run with that.
    :ivar runs: how many runs it took.
    """

    def __init__(self, run: SingleRun, broken: RunOutcome) -> None:
        self.run = run
        self.outcome = broken
        self.initial_faults = run.scenario(run.seed).faults if run.faults is None else run.faults
        self.shortest = self.initial_faults
        self.runs = 0

    def shrink(self) -> None:
        """Look until there is nothing left to try."""
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
    """Run one seed, write what is to be written, and return the exit status.

    :raises ConfigurationError: if the faults concern somebody who is not there.
    :raises OSError: if something cannot be written.
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
        print("There is nothing to draw: it broke while it was put together", file=say)
    print(_replay_text(run.command), file=say)
    if options.shrink:
        _shrink(run, outcome, say)
    return 1


@contextmanager
def trace_output(trace: str | None, page: str | None) -> Iterator[_TraceFile | None]:
    """Open what the trace of a run is written to, or nothing; when the run is over, or interrupted, write the page.

    :param trace: path of the trace, or ``-``; ``None`` for none.
    :param page: path of the page; ``None`` for none.
    :raises OSError: if one of them cannot be written, if possible at once.
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
        if interrupted is not None:
            raise interrupted


@contextmanager
def _with_filename(path: str) -> Iterator[None]:
    """Let an error say with which file, for one that comes while something is written does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


def _replay_text(command: str) -> str:
    return f"Replay it:\n{command}" if "\n" in command else f"Replay it: {command}"


def read_faults(path: str) -> FaultSchedule:
    """Read a schedule from a file, or from standard input.

    :raises ConfigurationError: if it makes no sense.
    :raises OSError: if it cannot be read.
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
        print("There is nothing to shrink: it breaks before it begins", file=out)
        return
    try:
        shrinking.shrink()
    finally:
        # What was found until somebody lost patience is worth having too.
        print(shrinking, file=out)


class _TraceFile:
    """A file that ends the run when nothing more can be written to it.

    :ivar written: whether there was anything to write.
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
    # What raises is the same if it does so in the same place; what it says there may differ.
    return violation.invariant, violation.description.partition(":")[0] if violation.invariant == NO_EXCEPTIONS else ""
