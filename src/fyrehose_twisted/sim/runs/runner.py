"""Runs of scenarios with many seeds on all cores."""

from __future__ import annotations

import os
import secrets
import shlex
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import cycle
from time import monotonic
from typing import NamedTuple, TextIO

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.sim.invariants import Invariant, InvariantViolated
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.runs.scenario_ref import MAIN, ScenarioRef, load, require_name
from fyrehose_twisted.sim.runs.workers import WorkerPool
from fyrehose_twisted.sim.scenario import NO_EXCEPTIONS, RunOutcome, Scenario
from fyrehose_twisted.sim.schedule import FaultSchedule

OnOutcome = Callable[[RunOutcome], object]


class ProcessDied(InvariantViolated):
    """The process of a run died, and so did the process that retried the run alone."""

    def __init__(self) -> None:
        super().__init__("the process lives", 0.0, (), "the process that ran it died: killed, or out of memory?")

    def __reduce__(self) -> tuple[type[ProcessDied], tuple[()]]:  # type: ignore[override]
        return type(self), ()

    def __str__(self) -> str:
        return self.description


@dataclass
class RunSummary:
    """Summary of many runs.

    :ivar count: number of runs.
    :ivar simulated_seconds: total seconds of virtual time.
    :ivar real_seconds: elapsed seconds of real time; not multiplied by the number of processes.
    :ivar operations: number of operations of the workloads.
    :ivar faults: number of faults that began.
    :ivar counters: see :attr:`RunOutcome.counters`.
    :ivar failures: runs that broke an invariant, ordered by seed after :meth:`finish`.
    """

    scenario: str
    count: int = 0
    simulated_seconds: float = 0.0
    real_seconds: float = 0.0
    operations: int = 0
    faults: int = 0
    counters: Counter[str] = field(default_factory=Counter, repr=False)
    failures: list[RunOutcome] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Simulated hours per hour of real time."""
        return self.simulated_seconds / self.real_seconds if self.real_seconds else 0.0

    def add(self, outcome: RunOutcome) -> None:
        """Add the outcome of a run."""
        self.count += 1
        self.simulated_seconds += outcome.simulated_seconds
        self.operations += outcome.operations
        self.faults += outcome.faults
        self.counters.update(outcome.counters)
        if outcome.violation is not None:
            self.failures.append(outcome)

    def finish(self, real_seconds: float) -> None:
        """Complete the summary: all runs took ``real_seconds`` of real time."""
        self.real_seconds = real_seconds
        self.failures.sort(key=lambda outcome: outcome.seed)


def run_seed(
    scenario: type[Scenario],
    seed: int,
    *,
    faults: FaultSchedule | None = None,
    split_seed: int = 0,
    trace: TextIO | None = None,
    replay: str | None = None,
    on_sample: Callable[[float], object] | None = None,
) -> RunOutcome:
    """Run a scenario once in this process. An exception while the scenario is built counts as a broken invariant.

    :param faults: fault schedule; drawn from the seed by default.
    :param split_seed: seed of batch boundaries.
    :param trace: file for JSON lines.
    :param replay: command that repeats the run, recorded in the trace.
    :param on_sample: called about once per simulated second with the elapsed simulated seconds.
    """
    began = monotonic()
    try:
        running = scenario(seed, faults=faults, split_seed=split_seed)
        if on_sample is not None:
            running.add_invariant(_ProgressObserver(running.network, on_sample))
        return running.run(trace, replay=replay)
    except Exception as error:
        violation = InvariantViolated(NO_EXCEPTIONS, 0.0, (), f"{type(error).__name__}: {error}")
        violation.add_note(traceback.format_exc())
        return RunOutcome(scenario.name, seed, 0.0, monotonic() - began, 0, 0, Counter(), violation)


def run_each(
    scenario: type[Scenario] | str, seeds: Iterable[int], *, jobs: int | None = None, split_seed: int = 0
) -> Generator[RunOutcome, None, None]:
    """Run a scenario once with each seed; yield the outcomes in order of completion.

    Close the generator to abort the runs. The death of its process breaks an invariant of a run: see
    :class:`ProcessDied`.

    :param scenario: the class, or its reference: see :func:`~fyrehose_twisted.sim.runs.scenario_ref.load`.
    :param seeds: seeds, consumed only as processes become free, so there may be arbitrarily many.
    :param jobs: number of processes; one per core by default; 0 to run in this process.
    :raises ConfigurationError: if the scenario does not exist, or other processes cannot import it.
    """
    found = _resolve_scenario(scenario)
    return _run_tasks(((found, seed) for seed in seeds), [found], jobs, split_seed)


def run_seeds(
    scenario: type[Scenario] | str,
    seeds: Iterable[int],
    *,
    jobs: int | None = None,
    split_seed: int = 0,
    on_outcome: OnOutcome | None = None,
) -> RunSummary:
    """Run a scenario once with each seed and return the summary; see :func:`run_each`.

    :param on_outcome: called with each outcome as it comes; what it raises ends the runs.
    """
    began = monotonic()
    summary = RunSummary(_resolve_scenario(scenario).name)
    with closing(run_each(scenario, seeds, jobs=jobs, split_seed=split_seed)) as outcomes:
        for outcome in outcomes:
            summary.add(outcome)
            if on_outcome is not None:
                on_outcome(outcome)
    summary.finish(monotonic() - began)
    return summary


def soak(
    scenarios: Sequence[type[Scenario] | str],
    seconds: float,
    *,
    jobs: int | None = None,
    seeds: Iterator[int] | None = None,
    on_outcome: OnOutcome | None = None,
) -> dict[str, RunSummary]:
    """Run the scenarios in turn with a new seed each time, until the time is over; each scenario at least once.

    :param seconds: real time after which no run begins; runs in progress are finished.
    :param jobs: see :func:`run_each`.
    :param seeds: source of seeds; random by default.
    :param on_outcome: called with each outcome as it comes; what it raises ends the runs.
    :returns: summaries by name of the scenario.
    """
    began = monotonic()
    found = [_resolve_scenario(scenario) for scenario in scenarios]
    summaries = {scenario.name: RunSummary(scenario.name) for scenario in found}
    fresh = iter(random_seed, None) if seeds is None else seeds

    def tasks() -> Iterator[tuple[type[Scenario], int]]:
        for turn, scenario in enumerate(cycle(found)):
            if turn >= len(found) and monotonic() - began >= seconds:
                return
            yield scenario, next(fresh)

    with closing(_run_tasks(tasks(), found, jobs)) as outcomes:
        for outcome in outcomes:
            summaries[outcome.scenario].add(outcome)
            if on_outcome is not None:
                on_outcome(outcome)
    for summary in summaries.values():
        summary.finish(monotonic() - began)
    return summaries


def random_seed() -> int:
    """Return an unpredictable seed, short enough to type."""
    return secrets.randbits(32)


def usable_cores() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def replay_command(reference: str, seed: int, *options: str) -> str:
    """Return the command that replays a seed; ``reference`` names the scenario on the command line."""
    return shlex.join(("fyrehose", "simulate", reference, "--seed", str(seed), *options))


class _ProgressObserver(Invariant):
    """Invariant that always holds and reports the progress of the run."""

    name = "progress"

    def __init__(self, network: Network, on_sample: Callable[[float], object]) -> None:
        super().__init__(network)
        self._on_sample = on_sample

    def sample(self) -> None:
        self._on_sample(self.network.elapsed)


class _Task(NamedTuple):
    scenario_ref: ScenarioRef
    name: str
    seed: int
    split_seed: int


def _resolve_scenario(scenario: type[Scenario] | str) -> type[Scenario]:
    return load(scenario) if isinstance(scenario, str) else require_name(scenario)


def _run_tasks(
    runs: Iterator[tuple[type[Scenario], int]],
    scenarios: Iterable[type[Scenario]],
    jobs: int | None,
    split_seed: int = 0,
) -> Generator[RunOutcome, None, None]:
    if jobs is None:
        jobs = usable_cores()
    elif jobs < 0:
        raise ConfigurationError(f"jobs={jobs}; give 0 or more processes")
    if jobs == 0:
        return (run_seed(scenario, seed, split_seed=split_seed) for scenario, seed in runs)
    places = {scenario: ScenarioRef.of(scenario) for scenario in scenarios}
    # A scenario defined in the running script exists only in a fork of this process.
    workers = WorkerPool(_run_task, _died_outcome, jobs, fork=any(place.module == MAIN for place in places.values()))
    return workers.results(_Task(places[scenario], scenario.name, seed, split_seed) for scenario, seed in runs)


def _run_task(task: _Task) -> RunOutcome:
    outcome = run_seed(task.scenario_ref.resolve(), task.seed, split_seed=task.split_seed)
    broken = outcome.violation
    if broken is None:
        return outcome
    # Converted to the base class: an exception that cannot be unpickled would break the process pool.
    plain = InvariantViolated(broken.invariant, broken.elapsed, broken.nodes, broken.description)
    return replace(outcome, violation=plain)


def _died_outcome(task: _Task) -> RunOutcome:
    return RunOutcome(task.name, task.seed, 0.0, 0.0, 0, 0, Counter(), ProcessDied())
