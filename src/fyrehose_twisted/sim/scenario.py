"""One run of a simulated network: who is there, what they do, what goes wrong, and what must hold."""

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

from fyrehose_twisted.sim.host import CLOCK_GRAIN, Host
from fyrehose_twisted.sim.invariants import Invariant, InvariantViolated
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.schedule import FaultSchedule
from fyrehose_twisted.sim.trace import TraceWriter

NO_EXCEPTIONS = "nothing raises"
"""The invariant that every scenario has: whatever a node or an observer raises ends the run."""


@dataclass(frozen=True)
class RunOutcome:
    """What came of one run.

    :ivar simulated_seconds: seconds of virtual time.
    :ivar real_seconds: seconds of real time.
    :ivar operations: what the workload did.
    :ivar faults: how many faults began.
    :ivar counters: what the network counted, and what the scenario adds.
    :ivar violation: which invariant broke, when, where and how; ``None`` if all held.
    :ivar digest: equal where everybody ended up with the same; see :meth:`Scenario.digest`.
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
    """Base of scenarios. A subclass has a :attr:`name` and a docstring whose first line says what it is about, puts
    hosts, workload and invariants together in :meth:`build`, and draws faults in :meth:`draw_faults`.

    Everything random comes from the seed; use :attr:`rng` for the workload.

    :param seed: which run this is.
    :param faults: what goes wrong, if it is not to be drawn.
    :param split_seed: where batches are cut; the outcome may not depend on it.
    :cvar name: unique, begins with the wing: ``fyrehose.storm``.
    :cvar duration: seconds of virtual time in which the workload acts and faults begin.
    :cvar patience: seconds to wait after that, at most, until :meth:`settled`.
    """

    name: ClassVar[str]
    duration: ClassVar[float] = 600.0
    settle_timeout: ClassVar[float] = 300.0
    sample_interval: ClassVar[float] = 1.0

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
        """Return the network, still empty."""
        link = Link(delay=0.002, jitter=0.002)
        return Network(self.seed, link, moment=0.001, split=0.1, split_seed=split_seed)

    def build(self) -> None:
        """Put hosts, workload and invariants together."""
        raise NotImplementedError(f"{type(self).__name__} builds nothing")

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """Return what goes wrong: by default nothing."""
        return FaultSchedule()

    def finish(self) -> None:
        """Do what is left for the workload to do once faults are over; called once."""

    def settled(self) -> bool:
        """Say whether nothing more is to be expected, once workload and faults are over."""
        return True

    def describe(self, thing: Any) -> str:
        """Say in a few words what was sent, told or made durable. Equal things have equal texts, in any process.

        Of a datagram that arrives damaged, what is left is described too: any bytes have to do.
        """
        return str(thing)

    def digest(self) -> str:
        """Return a digest of what everybody ended up with; runs that differ in ``split_seed`` alone have the same."""
        return ""

    def statistics(self) -> Counter[str]:
        """Return counts of the scenario's own, to be added to those of the network."""
        return Counter()

    # To be used by them

    def add_invariant(self, invariant: Invariant) -> None:
        """Let ``invariant`` watch the run."""
        self.invariants.append(invariant)
        self.network.add_observer(invariant)

    def operate(self, host: Host, what: str, command: Callable[[Any, float], object]) -> bool:
        """Let the application on ``host`` call ``command(node, now)``; see :meth:`Host.do`. Counts as an operation,
        if it does or will."""
        if not host.up:
            return False
        self.operations += 1
        for observe in self.network.observers.operation_performed:
            observe(host, what)
        return host.perform(command)

    # Running

    def run(self, trace: TextIO | None = None, *, replay: str | None = None) -> RunOutcome:
        """Run it to its end, or until an invariant breaks.

        :param trace: where to write JSON lines; see :class:`~fyrehose_twisted.sim.trace.TraceWriter`.
        :param replay: the command that runs it again, for the trace.
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
            violation = error.with_traceback(None)  # It would keep the whole network alive.
        except Exception as error:
            acting = () if network.active_host is None else (network.active_host.name,)
            violation = InvariantViolated(NO_EXCEPTIONS, network.elapsed, acting, _describe_exception(error))
            violation.add_note(traceback.format_exc())  # As text, for the same reason.
        if violation is not None:
            # Where something broke, there may be nothing to count.
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
        # A little longer than the last fault: with times as large as these, its end may be rounded up.
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
    """Say what was raised where, in words that are the same in any process and on any machine."""
    kind = type(error).__name__
    if isinstance(error, RecursionError):
        return f"{kind}: something calls itself without end"  # Where it ends depends on how deep the stack was before.
    where = traceback.extract_tb(error.__traceback__)[-1]
    module = where.filename.replace("\\", "/").rsplit("/", 1)[-1]
    try:
        text = re.sub(r" at 0x[0-9a-fA-F]+", "", str(error))
    except Exception as another:
        text = f"it cannot say what, because of {type(another).__name__}"
    return f"{kind} in {module}, line {where.lineno}, {where.name}: {text}"
