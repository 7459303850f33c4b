"""Simulation scenarios: hosts, workload, faults and invariants of one run."""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from time import perf_counter
from typing import Any, ClassVar, TextIO

from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.invariants import Invariant, InvariantViolated
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.schedule import FaultKinds, FaultSchedule
from fyrehose_twisted.sim.trace import TraceWriter
from fyrehose_twisted.sim.wallclock import CLOCK_GRAIN

NO_EXCEPTIONS = "nothing raises"
"""Implicit invariant of every scenario: an exception of a node or an observer ends the run."""


@dataclass(frozen=True)
class RunOutcome:
    """Result of one run.

    :ivar simulated_seconds: seconds of virtual time.
    :ivar real_seconds: seconds of real time.
    :ivar operations: number of operations of the workload.
    :ivar faults: number of faults that began.
    :ivar counters: counters of the network and of the scenario.
    :ivar violation: first violation of an invariant; ``None`` if all held.
    :ivar digest: digest of the final state of all nodes; see :meth:`Scenario.digest`.
    """

    scenario: str
    seed: int
    simulated_seconds: float
    real_seconds: float
    operations: int
    faults: int
    counters: Counter[str] = field(repr=False)
    violation: InvariantViolated | None
    digest: str = field(repr=False, default="")


class Scenario:
    """Base class of scenarios.

    A subclass defines :attr:`name` and a docstring whose first line describes the scenario. It creates hosts, workload
    and invariants in :meth:`build`, and returns the kinds of its faults from :meth:`fault_kinds`. All randomness comes
    from the seed; use :attr:`rng` for the workload.

    :param seed: seed of the run.
    :param faults: fault schedule; drawn from the seed by default.
    :param split_seed: seed for batch boundaries, on which the outcome must not depend.
    :cvar name: unique name with the protocol as prefix: ``fyrehose.storm``.
    :cvar aliases: former names, which ``fyrehose simulate`` accepts.
    :cvar duration: seconds of virtual time in which the workload runs and faults begin.
    :cvar settle_timeout: maximum seconds to wait for :meth:`settled` after that.
    :cvar sample_interval: seconds between samples of the invariants.
    :cvar fault_counts: minimum number of faults, and a number that is above the maximum.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    duration: ClassVar[float] = 600.0
    settle_timeout: ClassVar[float] = 300.0
    sample_interval: ClassVar[float] = 1.0
    fault_counts: ClassVar[tuple[int, int]] = (0, 1)

    def __init__(self, seed: int, *, faults: FaultSchedule | None = None, split_seed: int = 0) -> None:
        self.seed = seed
        self.rng = Random(f"{seed}/workload")
        self.invariants: list[Invariant] = []
        self.operations = 0
        self.network = self.make_network(split_seed)
        self.build()
        self.faults = self.draw_faults(Random(f"{seed}/faults")) if faults is None else faults

    # For subclasses

    def make_network(self, split_seed: int) -> Network:
        """Return an empty network."""
        link = Link(delay=0.002, jitter=0.002)
        return Network(self.seed, link, moment=0.001, split=0.1, split_seed=split_seed)

    def build(self) -> None:
        """Create hosts, workload and invariants."""
        raise NotImplementedError(f"{type(self).__name__} does not override build()")

    def fault_hosts(self) -> list[Host]:
        """Return the hosts that :meth:`fault_kinds` may affect; all by default."""
        return list(self.network.hosts.values())

    def fault_kinds(self, names: list[str]) -> FaultKinds:
        """Return the kinds of faults of the hosts with these names; none by default."""
        return ()

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """Return the faults of the run: by default :attr:`fault_counts` of :meth:`fault_kinds`."""
        kinds = self.fault_kinds([host.name for host in self.fault_hosts()])
        if not kinds:
            return FaultSchedule()
        return FaultSchedule.draw(rng, rng.randrange(*self.fault_counts), until=self.duration, kinds=kinds)

    def finish(self) -> None:
        """Finish the workload. Called once, after the last fault."""

    def settled(self) -> bool:
        """Return whether the nodes have reached their final state after workload and faults."""
        return True

    def describe(self, thing: Any) -> str:
        """Describe a message, event or state in a few words. Equal objects have equal texts in any process.

        Must accept arbitrary bytes, because damaged datagrams are described too.
        """
        return str(thing)

    def digest(self) -> str:
        """Return a digest of the final state of all nodes, independent of ``split_seed``."""
        return ""

    def statistics(self) -> Counter[str]:
        """Return counters of the scenario, to be added to those of the network."""
        return Counter()

    # For use by subclasses

    def add_invariant(self, invariant: Invariant) -> None:
        """Check ``invariant`` during the run."""
        self.invariants.append(invariant)
        self.network.add_observer(invariant)

    def operate(self, host: Host, what: str, command: Callable[[Any, float], object]) -> bool:
        """Let the application on ``host`` call ``command(node, now)``; see :meth:`Host.perform`.

        :return: whether the call was made or queued, and counted as an operation.
        """
        if not host.up:
            return False
        self.operations += 1
        for observe in self.network.observers.operation_performed:
            observe(host, what)
        return host.perform(command)

    def repeat(self, mean_interval: float, action: Callable[[], object]) -> None:
        """Call ``action`` at random times until :attr:`duration`, on average every ``mean_interval`` seconds."""
        delay = self.rng.expovariate(1 / mean_interval)
        if self.network.elapsed + delay > self.duration:
            return

        def act() -> None:
            action()
            self.repeat(mean_interval, action)

        self.network.call_in(delay, act)

    # Running

    def run(self, trace: TextIO | None = None, *, replay: str | None = None) -> RunOutcome:
        """Run the scenario to its end, or until an invariant breaks.

        :param trace: file for JSON lines; see :class:`~fyrehose_twisted.sim.trace.TraceWriter`.
        :param replay: command that repeats the run, recorded in the trace.
        """
        network = self.network
        writer: TraceWriter | None = None
        if trace is not None:
            writer = TraceWriter(
                network, trace, scenario=self.name, seed=self.seed, describe=self.describe, replay=replay
            )
            network.add_observer(writer)
        began = perf_counter()
        violation: InvariantViolated | None = None
        digest, statistics = "", Counter[str]()
        try:
            self._run()
            digest, statistics = self.digest(), self.statistics()
        except InvariantViolated as error:
            violation = error.with_traceback(None)  # A traceback would keep the whole network alive.
        except Exception as error:
            acting = () if network.active_host is None else (network.active_host.name,)
            violation = InvariantViolated(NO_EXCEPTIONS, network.elapsed, acting, _describe_exception(error))
            violation.add_note(traceback.format_exc())  # As text, for the same reason.
        if violation is not None:
            # Statistics may fail after a violation.
            with suppress(Exception):
                statistics = self.statistics()
        if writer is not None:
            if violation is not None:
                writer.broken(violation)
            writer.end()
        return RunOutcome(
            scenario=self.name,
            seed=self.seed,
            simulated_seconds=network.elapsed,
            real_seconds=perf_counter() - began,
            operations=self.operations,
            faults=network.counters["faults"],
            counters=network.counters + statistics,
            violation=violation,
            digest=digest,
        )

    def _run(self) -> None:
        network = self.network
        for host in network.hosts.values():
            network.call_in(host.start_delay, host.start)
        self.faults.schedule_on(network)
        # Slightly beyond the last fault, whose end may be rounded up.
        self._advance(max(self.duration, self.faults.ends_at + CLOCK_GRAIN))
        self.finish()
        waited = 0.0
        while waited < self.settle_timeout and not self.settled():
            self._advance(self.sample_interval)
            waited += self.sample_interval
        for invariant in self.invariants:
            invariant.check()

    def _advance(self, seconds: float) -> None:
        network = self.network
        end = network.now + seconds
        while network.now < end:
            network.scheduler.run_until(min(end, network.now + self.sample_interval))
            for invariant in self.invariants:
                invariant.sample()


def _describe_exception(error: Exception) -> str:
    """Describe an exception and its place, with the same text in any process and on any machine."""
    kind = type(error).__name__
    if isinstance(error, RecursionError):
        return f"{kind}: infinite recursion"  # The place depends on the previous stack depth.
    where = traceback.extract_tb(error.__traceback__)[-1]
    module = where.filename.replace("\\", "/").rsplit("/", 1)[-1]
    try:
        text = re.sub(r" at 0x[0-9a-fA-F]+", "", str(error))
    except Exception as another:
        text = f"no message, because of {type(another).__name__}"
    return f"{kind} in {module}, line {where.lineno}, {where.name}: {text}"
