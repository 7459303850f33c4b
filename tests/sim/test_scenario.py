from __future__ import annotations

import gc
import json
import pickle
import re
import weakref
from collections import Counter
from collections.abc import Callable
from io import StringIO
from random import Random
from typing import Any, ClassVar, NoReturn

import pytest

from fyrehose_twisted.effects import Send
from fyrehose_twisted.interfaces import Outputs
from fyrehose_twisted.sim.crash_mode import Boot
from fyrehose_twisted.sim.faults.faults import PauseFault
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.invariants import Invariant, InvariantViolated
from fyrehose_twisted.sim.scenario import NO_EXCEPTIONS, RunOutcome, Scenario
from fyrehose_twisted.sim.schedule import FaultSchedule


class Beating:
    """A node that sends a beat to the other host each second and emits an event per beat received."""

    def __init__(self, boot: Boot, rng: Random) -> None:
        self.next = boot.now + rng.random()
        self.effects: list[Send] = []
        self.events: list[Any] = []
        self.beats = 0
        self.other = ("10.0.0.1", 1)

    def receive_batch(self, batch: Any, now: float) -> None:
        self.beats += len(batch)
        self.events.append("beat")

    def tick(self, now: float) -> None:
        if now >= self.next:
            self.next += 1.0
            self.effects.append(Send([b"beat"], (self.other,)))

    def next_deadline(self) -> float:
        return self.next

    def drain(self) -> Outputs:
        effects, self.effects = self.effects, []
        events, self.events = self.events, []
        return Outputs(None, effects, events)


class Heart(Scenario):
    """Two hosts send each other a beat each second."""

    name: ClassVar[str] = "test.heart"
    duration: ClassVar[float] = 10.0
    settle_timeout: ClassVar[float] = 20.0

    late: ClassVar[float] = 0.0

    def build(self) -> None:
        self.finished_at: float | None = None
        self.a = self.network.add("a", ("10.0.0.1", 1), self.start)
        self.b = self.network.add("b", ("10.0.0.2", 2), self.start, start_delay=self.late)
        self.watching = Watching(self.network)
        self.add_invariant(self.watching)

    def start(self, boot: Boot) -> Beating:
        node = Beating(boot, self.rng)
        if self.network.hosts[node.other].boots == 1 and self.network.active_host is self.a:
            node.other = ("10.0.0.2", 2)
        return node

    def draw_faults(self, rng: Random) -> FaultSchedule:
        return FaultSchedule([PauseFault(2.0, round(rng.uniform(1.0, 2.0), 3), "a")])

    def finish(self) -> None:
        assert self.finished_at is None
        self.finished_at = self.network.elapsed

    def digest(self) -> str:
        return f"{self.a.node.beats} and {self.b.node.beats}"

    def statistics(self) -> Counter[str]:
        return Counter(beats=self.a.node.beats + self.b.node.beats, sent=1_000)


class Watching(Invariant):
    """An invariant that records its samples and fails on request."""

    name: ClassVar[str] = "hearts beat"

    def __init__(self, network: Any) -> None:
        super().__init__(network)
        self.samples: list[float] = []
        self.checks: list[float] = []
        self.breaks: Callable[[Watching, str], object] = lambda invariant, where: None

    def sample(self) -> None:
        self.samples.append(self.network.elapsed)
        self.breaks(self, "sample")

    def check(self) -> None:
        self.checks.append(self.network.elapsed)
        self.breaks(self, "check")

    def event_emitted(self, host: Host, event: Any) -> None:
        self.breaks(self, "told")


def breaking(where: str, *, after: float = 0.0) -> Heart:
    """Run a scenario that breaks an invariant at a given place."""
    scenario = Heart(1)

    def breaks(invariant: Watching, place: str) -> None:
        if place == where and invariant.network.elapsed >= after:
            invariant.violated("they stopped", scenario.b, scenario.a)

    scenario.watching.breaks = breaks
    return scenario


def test_a_run_without_violation_reports_its_outcome() -> None:
    scenario = Heart(1)
    outcome = scenario.run()
    counts = scenario.network.counters
    assert outcome == RunOutcome(
        scenario="test.heart",
        seed=1,
        simulated_seconds=10.0,
        real_seconds=outcome.real_seconds,
        operations=0,
        faults=1,
        counters=counts + Counter(beats=counts["arrived"], sent=1_000),
        violation=None,
        digest=f"{scenario.a.node.beats} and {scenario.b.node.beats}",
    )
    assert 0.0 < outcome.real_seconds < 10.0
    assert counts["sent"] == pytest.approx(20, abs=2)
    assert outcome.counters["sent"] == counts["sent"] + 1_000


def test_invariants_are_sampled_once_a_second_and_checked_at_the_end() -> None:
    scenario = Heart(1)
    scenario.run()
    assert scenario.watching.samples == [float(second) for second in range(1, 11)]
    assert scenario.watching.checks == [10.0]
    assert scenario.finished_at == 10.0


def test_scenario_runs_are_reproducible_by_seed() -> None:
    traces = []
    for seed in (1, 1, 2):
        out = StringIO()
        Heart(seed).run(out)
        traces.append(out.getvalue())
    assert traces[0] == traces[1] != traces[2]
    assert Heart(1).faults == Heart(1).faults != Heart(2).faults


def test_batch_boundaries_do_not_change_the_digest_of_a_run() -> None:
    first, second = (Heart(1, split_seed=split_seed).run() for split_seed in (1, 2))
    assert first.digest == second.digest != ""
    assert Heart(1, split_seed=5).network.split_rng.random() == Random("5/split").random()


def test_given_faults_replace_drawn_ones() -> None:
    faults = FaultSchedule([PauseFault(1.0, 1.0, "b"), PauseFault(5.0, 1.0, "a")])
    outcome = (scenario := Heart(1, faults=faults)).run()
    assert scenario.faults is faults
    assert outcome.faults == 2
    assert Heart(1, faults=FaultSchedule()).run().faults == 0


def test_a_run_lasts_until_its_last_fault_has_ended() -> None:
    # Its end counted from its beginning rounds to after its end counted from the start.
    scenario = Heart(1, faults=FaultSchedule([PauseFault(11.7, 3.1, "a")]))
    seen: list[bool] = []
    scenario.watching.breaks = lambda invariant, where: seen.append(scenario.a.paused)
    outcome = scenario.run()
    assert outcome.simulated_seconds == pytest.approx(14.8, abs=0.01)
    assert outcome.faults == 1
    assert True in seen
    assert not seen[-1]


def test_faults_are_over_at_the_end_despite_rounding() -> None:
    for number in range(200):
        at, lasts = 10.0 + number / 7, 1.0 + number / 11
        scenario = Heart(1, faults=FaultSchedule([PauseFault(at, lasts, "a")]))
        scenario.network.run(at - 0.5)
        scenario.run()
        assert not scenario.a.paused, (at, lasts)


def test_a_run_waits_for_settling_up_to_a_limit() -> None:
    scenario = Heart(1)
    asked: list[float] = []

    def settled(after: float) -> Callable[[], bool]:
        def ask() -> bool:
            asked.append(scenario.network.elapsed)
            return scenario.network.elapsed >= after

        return ask

    scenario.settled = settled(12.5)  # type: ignore[method-assign]
    assert scenario.run().simulated_seconds == 13.0
    assert asked == [10.0, 11.0, 12.0, 13.0]
    assert scenario.finished_at == 10.0
    assert scenario.watching.samples[-1] == scenario.watching.checks[0] == 13.0
    scenario = Heart(1)
    scenario.settled = settled(99.0)  # type: ignore[method-assign]
    assert scenario.run().simulated_seconds == 30.0
    assert scenario.watching.checks == [30.0]


def test_a_host_may_start_late() -> None:
    scenario = type("Late", (Heart,), {"late": 4.0})(1)
    started: list[tuple[str, float]] = []
    scenario.network.observers.started.append(lambda host: started.append((host.name, scenario.network.elapsed)))
    assert scenario.run().violation is None
    assert started == [("a", 0.0), ("b", 4.0)]


def test_random_numbers_of_scenario_parts_are_independent() -> None:
    class Drawing(Heart):
        def build(self) -> None:
            super().build()
            self.rng.random()

    assert Drawing(3).faults == Heart(3).faults
    scenario = Heart(3)
    drawn = scenario.rng.random(), Random("3/faults").random(), scenario.network.split_rng.random()
    assert len(set(drawn)) == 3
    assert Heart(3, faults=FaultSchedule()).rng.random() == drawn[0]


class TestOperations:
    def test_an_operation_is_counted_and_observed_before_it_runs(self) -> None:
        scenario = Heart(1)
        order: list[Any] = []
        scenario.network.observers.operation_performed.append(lambda host, what: order.append((host.name, what)))
        scenario.network.call_in(
            3.0,
            lambda: scenario.operate(scenario.b, "shout", lambda node, now: order.append(now - scenario.network.now)),
        )
        assert scenario.run().operations == 1
        assert order == [("b", "shout"), 0.0]

    def test_an_operation_on_a_host_that_is_down_is_not_counted(self) -> None:
        scenario = Heart(1)
        told: list[str] = []
        scenario.network.observers.operation_performed.append(lambda host, what: told.append(what))
        assert not scenario.operate(scenario.a, "too early", lambda node, now: told.append("done"))
        scenario.a.start()
        scenario.a.pause()
        assert scenario.operate(scenario.a, "soon", lambda node, now: told.append("done"))
        assert (scenario.operations, told) == (1, ["soon"])
        scenario.a.resume()
        assert told == ["soon", "done"]


class TestBroken:
    @pytest.mark.parametrize("where", ["sample", "check", "told"])
    def test_a_violation_ends_the_run_at_its_time(self, where: str) -> None:
        scenario = breaking(where, after=5.5)
        outcome = scenario.run()
        violation = outcome.violation
        assert violation is not None
        assert (violation.invariant, violation.nodes, violation.description) == (
            "hearts beat",
            ("b", "a"),
            "they stopped",
        )
        assert violation.elapsed == outcome.simulated_seconds == scenario.network.elapsed
        assert str(violation) == f"hearts beat: at {violation.elapsed:.6f} s, b, a: they stopped"
        assert outcome.simulated_seconds == {"sample": 6.0, "check": 10.0}.get(where, pytest.approx(6.0, abs=0.6))
        assert outcome.digest == ""
        assert outcome.faults == 1
        assert outcome.counters["beats"] == scenario.network.counters["arrived"] > 0

    def test_the_trace_of_a_failed_run_ends_with_the_violation(self) -> None:
        out = StringIO()
        outcome = breaking("told", after=5.0).run(out)
        assert outcome.violation is not None
        lines = [json.loads(line) for line in out.getvalue().splitlines()]
        assert [line["kind"] for line in lines if line["kind"] in ("run", "broken", "end")] == ["run", "broken", "end"]
        assert lines[-2] == {
            "t": round(outcome.violation.elapsed, 6),
            "kind": "broken",
            "invariant": "hearts beat",
            "nodes": ["b", "a"],
            "what": "they stopped",
        }
        assert lines[-1]["kind"] == "end"

    def test_a_violation_may_name_no_node(self) -> None:
        scenario = Heart(1)
        scenario.watching.breaks = lambda invariant, where: invariant.violated("all of it")
        violation = scenario.run().violation
        assert violation is not None
        assert violation.nodes == ()
        assert str(violation).endswith("s, whole network: all of it")

    def test_a_violation_keeps_its_notes_when_pickled(self) -> None:
        outcome = breaking("told").run()
        assert outcome.violation is not None
        outcome.violation.add_note("a note")
        copy = pickle.loads(pickle.dumps(outcome))  # noqa: S301
        assert type(copy.violation) is InvariantViolated
        assert str(copy.violation) == str(outcome.violation)
        assert vars(copy.violation) == vars(outcome.violation)
        assert copy.violation.__notes__ == ["a note"]
        assert copy.counters == outcome.counters

    @pytest.mark.parametrize("where", ["told", "raises"])
    @pytest.mark.interpreted(reason="a network has no weak references")
    def test_an_outcome_keeps_no_reference_to_its_network(self, where: str) -> None:
        scenario = breaking(where)
        if where == "raises":
            scenario.network.call_in(3.0, lambda: [][0])
        outcome = scenario.run()
        network = weakref.ref(scenario.network)
        del scenario
        gc.collect()
        assert outcome.violation is not None
        assert network() is None


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise LookupError("no words")


def endless() -> NoReturn:
    endless()


class TestNothingRaises:
    def broken(self, arrange: Callable[[Heart], object]) -> InvariantViolated:
        scenario = Heart(1, faults=FaultSchedule())
        arrange(scenario)
        out = StringIO()
        outcome = scenario.run(out)
        violation = outcome.violation
        assert violation is not None
        assert violation.invariant == NO_EXCEPTIONS
        assert violation.elapsed == outcome.simulated_seconds
        assert [json.loads(line)["kind"] for line in out.getvalue().splitlines()[-2:]] == ["broken", "end"]
        assert out.getvalue().isascii()
        assert "Traceback" in violation.__notes__[0]
        assert type(pickle.loads(pickle.dumps(violation))) is InvariantViolated  # noqa: S301
        return violation

    @pytest.mark.parametrize(
        ("error", "says"),
        [
            (LookupError("gone"), r"LookupError in test_scenario\.py, line \d+, fail: gone"),
            (AssertionError("wrong"), r"AssertionError in test_scenario\.py, line \d+, fail: wrong"),
            (AssertionError(), r"AssertionError in test_scenario\.py, line \d+, fail: "),
            (MemoryError(), r"MemoryError in .*"),
            (StopIteration(5), r"StopIteration in .*: 5"),
            (ExceptionGroup("many", [ValueError("é\n\ud800")]), r"ExceptionGroup in .*: many \(1 sub-exception\)"),
            (Unspeakable(), r"Unspeakable in .*, fail: no message, because of LookupError"),
            (ValueError("<object at 0x7f1234567890>"), r"ValueError in .*: <object>"),
        ],
    )
    def test_an_exception_of_a_node_ends_the_run_and_names_the_node(self, error: Exception, says: str) -> None:
        def fail(*_: object) -> None:
            raise error

        def arrange(scenario: Heart) -> None:
            scenario.network.call_in(4.0, lambda: setattr(scenario.b.node, "receive_batch", fail))

        violation = self.broken(arrange)
        assert violation.nodes == ("b",)
        assert 4.0 < violation.elapsed < 5.5
        assert re.fullmatch(says, violation.description), violation.description

    def test_infinite_recursion_has_one_description_at_any_stack_depth(self) -> None:
        def arrange(scenario: Heart) -> None:
            scenario.network.call_in(4.0, lambda: scenario.a.perform(lambda node, now: endless()))

        def deeper(depth: int) -> InvariantViolated:
            return self.broken(arrange) if depth == 0 else deeper(depth - 1)

        shallow, deep = deeper(0), deeper(7)
        assert shallow.nodes == ("a",)
        assert shallow.description == deep.description == "RecursionError: infinite recursion"

    def test_endless_ticks_end_the_run_with_a_violation(self) -> None:
        def arrange(scenario: Heart) -> None:
            scenario.network.call_in(4.0, lambda: setattr(scenario.a.node, "tick", lambda now: None))

        violation = self.broken(arrange)
        assert violation.nodes == ("a",)
        assert "Beating on a ticks at" in violation.description

    def test_an_exception_of_an_application_names_its_node(self) -> None:
        def arrange(scenario: Heart) -> None:
            scenario.b.on_event = lambda event: [][0]

        violation = self.broken(arrange)
        assert violation.nodes == ("b",)

    @pytest.mark.parametrize("where", ["sample", "check"])
    def test_an_exception_of_an_invariant_names_no_node(self, where: str) -> None:
        def arrange(scenario: Heart) -> None:
            def breaks(invariant: Watching, place: str) -> None:
                if place == where:
                    raise LookupError

            scenario.watching.breaks = breaks

        violation = self.broken(arrange)
        assert violation.nodes == ()
        assert "LookupError in test_scenario.py" in violation.description

    @pytest.mark.parametrize("method", ["finish", "settled", "digest", "statistics"])
    def test_an_exception_of_a_scenario_names_no_node(self, method: str) -> None:
        def fail() -> NoReturn:
            raise LookupError(method)

        violation = self.broken(lambda scenario: setattr(scenario, method, fail))
        assert violation.nodes == ()
        assert violation.description.endswith(method)
        assert violation.elapsed == 10.0

    def test_an_exception_of_a_workload_names_no_node(self) -> None:
        violation = self.broken(lambda scenario: scenario.network.call_in(4.0, lambda: [][0]))
        assert (violation.nodes, violation.elapsed) == ((), 4.0)

    def test_a_fault_of_an_unknown_host_is_a_violation_at_the_start(self) -> None:
        scenario = Heart(1, faults=FaultSchedule([PauseFault(5.0, 1.0, "nobody")]))
        violation = scenario.run().violation
        assert violation is not None
        assert violation.elapsed == 0.0
        assert "no host 'nobody'; there are a, b" in violation.description

    def test_a_base_exception_is_not_caught_by_a_run(self) -> None:
        scenario = Heart(1)

        def interrupt() -> NoReturn:
            raise KeyboardInterrupt

        scenario.network.call_in(1.0, interrupt)
        with pytest.raises(KeyboardInterrupt):
            scenario.run()


def test_a_scenario_without_build_raises_not_implemented() -> None:
    with pytest.raises(NotImplementedError, match="Empty does not override build"):
        type("Empty", (Scenario,), {"name": "test.empty"})(1)
