"""Scenarios run with many seeds, on every core."""

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
from fyrehose_twisted.sim.runs.scenario_ref import MAIN, Where, load, named
from fyrehose_twisted.sim.runs.workers import Workers
from fyrehose_twisted.sim.scenario import NOTHING_RAISES, Outcome, Scenario
from fyrehose_twisted.sim.schedule import FaultSchedule

OnOutcome = Callable[[Outcome], object]


class ProcessDied(InvariantViolated):
    """The process that ran a scenario died, and so did the next one that tried, while nobody else ran."""

    def __init__(self) -> None:
        super().__init__("the process lives", 0.0, (), "the process that ran it died: killed, or out of memory?")

    def __reduce__(self) -> tuple[type[ProcessDied], tuple[()]]:  # type: ignore[override]
        return type(self), ()

    def __str__(self) -> str:
        return self.what


@dataclass
class Summary:
    """What came of many runs.

    :ivar count: how many runs.
    :ivar simulated: seconds of virtual time, all runs together.
    :ivar took: seconds of real time from the beginning to the end; what ran beside it ran in the same time.
    :ivar operations: what the workloads did.
    :ivar faults: how many faults began.
    :ivar counts: see :attr:`Outcome.counts`.
    :ivar failures: runs that broke an invariant; once the runs are over, in order of their seeds.
    """

    scenario: str
    count: int = 0
    simulated: float = 0.0
    took: float = 0.0
    operations: int = 0
    faults: int = 0
    counts: Counter[str] = field(default_factory=Counter, repr=False)
    failures: list[Outcome] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Simulated hours an hour."""
        return self.simulated / self.took if self.took else 0.0

    def add(self, outcome: Outcome) -> None:
        """Count one more run."""
        self.count += 1
        self.simulated += outcome.simulated
        self.operations += outcome.operations
        self.faults += outcome.faults
        self.counts.update(outcome.counts)
        if outcome.violation is not None:
            self.failures.append(outcome)

    def finish(self, took: float) -> None:
        """The runs are over, after so many seconds of real time."""
        self.took = took
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
) -> Outcome:
    """Run a scenario once, in this process. What raises while it is put together breaks an invariant too.

    :param faults: what goes wrong, if it is not to be drawn.
    :param split_seed: where batches are cut.
    :param trace: where to write JSON lines.
    :param replay: the command that runs it again, for the trace.
    :param on_sample: called with the simulated seconds so far, about once in each of them.
    """
    began = monotonic()
    try:
        running = scenario(seed, faults=faults, split_seed=split_seed)
        if on_sample is not None:
            running.add_invariant(_Sampled(running.network, on_sample))
        return running.run(trace, replay=replay)
    except Exception as error:
        violation = InvariantViolated(NOTHING_RAISES, 0.0, (), f"{type(error).__name__}: {error}")
        violation.add_note(traceback.format_exc())
        return Outcome(scenario.name, seed, 0.0, monotonic() - began, 0, 0, Counter(), violation)


def run_each(
    scenario: type[Scenario] | str, seeds: Iterable[int], *, jobs: int | None = None, split_seed: int = 0
) -> Generator[Outcome, None, None]:
    """Run a scenario once with each seed, and yield the outcomes as they come, in any order.

    Close the generator to end the runs before their time. A run whose process dies breaks an invariant: see
    :class:`ProcessDied`.

    :param scenario: the class, or its reference: see :func:`~fyrehose_twisted.sim.runs.scenario_ref.load`.
    :param seeds: taken when there is a process to run them, so there may be very many.
    :param jobs: how many processes; as many as there are cores if not given; 0 for none but this one.
    :raises ConfigurationError: if there is no such scenario, or no other process could find it.
    """
    found = _found(scenario)
    return _run(((found, seed) for seed in seeds), [found], jobs, split_seed)


def run_seeds(
    scenario: type[Scenario] | str,
    seeds: Iterable[int],
    *,
    jobs: int | None = None,
    split_seed: int = 0,
    on_outcome: OnOutcome | None = None,
) -> Summary:
    """Run a scenario once with each seed; see :func:`run_each`.

    :param on_outcome: called with each outcome as it comes; what it raises ends the runs.
    """
    began = monotonic()
    summary = Summary(_found(scenario).name)
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
) -> dict[str, Summary]:
    """Run the scenarios in turn, each time with a fresh seed, for as long as there is time, and each at least once.

    :param seconds: real time after which no run begins; those that have begun are finished.
    :param jobs: see :func:`run_each`.
    :param seeds: where the seeds come from; drawn at random if not given.
    :param on_outcome: called with each outcome as it comes; what it raises ends the runs.
    :returns: a summary for each name of a scenario.
    """
    began = monotonic()
    found = [_found(scenario) for scenario in scenarios]
    summaries = {scenario.name: Summary(scenario.name) for scenario in found}
    fresh = iter(fresh_seed, None) if seeds is None else seeds

    def tasks() -> Iterator[tuple[type[Scenario], int]]:
        for turn, scenario in enumerate(cycle(found)):
            if turn >= len(found) and monotonic() - began >= seconds:
                return
            yield scenario, next(fresh)

    with closing(_run(tasks(), found, jobs)) as outcomes:
        for outcome in outcomes:
            summaries[outcome.scenario].add(outcome)
            if on_outcome is not None:
                on_outcome(outcome)
    for summary in summaries.values():
        summary.finish(monotonic() - began)
    return summaries


def fresh_seed() -> int:
    """Return a seed that nobody can foresee, short enough to be typed."""
    return secrets.randbits(32)


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def replay(called: str, seed: int, *options: str) -> str:
    """Return the command that runs a seed again; ``called`` is how the scenario is called there."""
    return shlex.join(("fyrehose", "simulate", called, "--seed", str(seed), *options))


class _Sampled(Invariant):
    """Holds always, and says how far the run is."""

    name = "time passes"

    def __init__(self, network: Network, on_sample: Callable[[float], object]) -> None:
        super().__init__(network)
        self._on_sample = on_sample

    def sample(self) -> None:
        self._on_sample(self.network.elapsed)


class _Task(NamedTuple):
    where: Where
    name: str
    seed: int
    split_seed: int


def _found(scenario: type[Scenario] | str) -> type[Scenario]:
    return load(scenario) if isinstance(scenario, str) else named(scenario)


def _run(
    runs: Iterator[tuple[type[Scenario], int]],
    scenarios: Iterable[type[Scenario]],
    jobs: int | None,
    split_seed: int = 0,
) -> Generator[Outcome, None, None]:
    if jobs is None:
        jobs = usable_cores()
    elif jobs < 0:
        raise ConfigurationError(f"{jobs} processes cannot run anything")
    if jobs == 0:
        return (run_seed(scenario, seed, split_seed=split_seed) for scenario, seed in runs)
    places = {scenario: Where.of(scenario) for scenario in scenarios}
    # What is defined in the running script can only be had from a copy of this process.
    workers = Workers(_work, _died, jobs, fork=any(place.module == MAIN for place in places.values()))
    return workers.results(_Task(places[scenario], scenario.name, seed, split_seed) for scenario, seed in runs)


def _work(task: _Task) -> Outcome:
    outcome = run_seed(task.where.find(), task.seed, split_seed=task.split_seed)
    broken = outcome.violation
    if broken is None:
        return outcome
    # Of a class that everybody knows: one that cannot be read would take all processes with it.
    plain = InvariantViolated(broken.invariant, broken.elapsed, broken.nodes, broken.what)
    return replace(outcome, violation=plain)


def _died(task: _Task) -> Outcome:
    return Outcome(task.name, task.seed, 0.0, 0.0, 0, 0, Counter(), ProcessDied())
