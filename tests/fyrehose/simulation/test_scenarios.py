from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from math import inf
from typing import Any, ClassVar

import pytest
from suite.scenarios import check_names, check_random_seeds, has_enough_activity

from fyrehose_twisted.fyrehose.config import ClientConfig, Start
from fyrehose_twisted.fyrehose.events import Message, MessagesDelivered, MessagesLost, MessagesPublished
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import (
    AcknowledgedArePublished,
    ExactlyOnce,
    FyrehoseInvariant,
    InOrder,
    StreamProgress,
)
from fyrehose_twisted.fyrehose.simulation.scenarios import SCENARIOS, Garbage, Restarts, Storm
from fyrehose_twisted.fyrehose.simulation.workload import ALL_PROFILES, ClientProfile, FyrehoseScenario
from fyrehose_twisted.sim.invariants import InvariantViolated
from fyrehose_twisted.sim.pytest_plugin import Simulate
from fyrehose_twisted.sim.scenario import Scenario
from fyrehose_twisted.sim.schedule import FaultSchedule

pytest_plugins = ["fyrehose_twisted.sim.pytest_plugin"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_all_fyrehose_invariants_hold_in_every_scenario(scenario: type[FyrehoseScenario], simulate: Simulate) -> None:
    (outcome,) = simulate(scenario, seeds=[1])  # Fresh ones are for the soak.
    assert has_enough_activity(outcome, seconds=scenario.duration) or not scenario.fault_counts[1], outcome
    for what in ("delivered", "repaired", "acknowledged", "dropped"):
        assert outcome.counters[what] > 0, outcome.counters


def test_fyrehose_scenario_names_have_the_protocol_prefix_and_are_unique() -> None:
    check_names(SCENARIOS, "fyrehose")


def test_equal_seeds_have_equal_traces_and_different_seeds_differ() -> None:
    class Short(Storm):
        name = "fyrehose.short"
        duration = 60.0
        messages = 80

    def trace(seed: int) -> str:
        out = StringIO()
        Short(seed).run(out)
        return out.getvalue()

    first = trace(1)
    assert first == trace(1)
    assert first != trace(2)
    kinds = {json.loads(line)["kind"] for line in first.splitlines()}
    assert {"run", "send", "arrive", "drop", "event", "persist", "operation", "fault", "end"} <= kinds
    assert "<" not in {json.loads(line).get("what", " ")[0] for line in first.splitlines()}  # No repr of an object.


class Brief:
    """Limits a scenario to a tenth of its length."""

    duration = 60.0
    messages = 100
    fault_counts = (3, 6)
    profiles = tuple(role for role in ALL_PROFILES if not role.start_delay)


class BriefStorm(Brief, Storm):
    """A short storm."""


class BriefGarbage(Brief, Garbage):
    """Damaged datagrams and a hostile host, briefly."""


class BriefRestarts(Brief, Restarts):
    """Kills of the backbone, briefly."""


@pytest.mark.parametrize(
    ("scenario", "seed"),
    [
        (BriefStorm, 1),
        (BriefGarbage, 1),
        (BriefRestarts, 1),
        *(pytest.param(*whole, marks=pytest.mark.extended) for whole in ((Storm, 3), (Garbage, 1), (Restarts, 13))),
    ],
)
def test_the_outcome_does_not_depend_on_batch_boundaries(
    scenario: type[Scenario], seed: int, simulate: Simulate
) -> None:
    [one], [other] = (simulate(scenario, seeds=[seed], split_seed=split_seed) for split_seed in (0, 1))
    assert one.counters["batches"] != other.counters["batches"]
    assert one.digest == other.digest


@pytest.mark.parametrize("scenario", [BriefStorm, BriefRestarts])
def test_a_deadline_that_a_client_remembers_is_never_late(
    scenario: type[FyrehoseScenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, remembered = Client.next_deadline, 0

    def next_deadline(self: Client) -> float | None:
        nonlocal remembered
        due, found = original(self), self._find_deadline()
        assert (inf if due is None else due) <= found
        remembered += due != found
        return due

    monkeypatch.setattr(Client, "next_deadline", next_deadline)
    run_without_violation(scenario(0))
    assert remembered


class Quiet(FyrehoseScenario):
    """A run without faults."""

    name: ClassVar[str] = "fyrehose.quiet"
    duration: ClassVar[float] = 60.0
    messages: ClassVar[int] = 300
    pause_count: ClassVar[int] = 0
    fault_counts: ClassVar[tuple[int, int]] = (0, 0)
    profiles: ClassVar[Sequence[ClientProfile]] = (
        ClientProfile("one"),
        ClientProfile("two"),
        ClientProfile("publisher", publishes=True),
        ClientProfile("oldest", ClientConfig(start=Start.OLDEST), start_delay=30.0),
        ClientProfile("numbered", ClientConfig(start=100), start_delay=50.0),
    )

    def make_link(self, rng: Any) -> Any:
        return replace(super().make_link(rng), loss=0.0, duplication=0.0, jitter=0.0)


def run_without_violation(scenario: FyrehoseScenario) -> FyrehoseScenario:
    violation = scenario.run().violation
    assert violation is None, violation
    return scenario


def test_without_faults_nothing_is_retransmitted_or_requested() -> None:
    scenario = run_without_violation(Quiet(1))
    numbers = 300 + 3
    assert scenario.statistics()["numbered"] == numbers
    one, two, publisher, oldest, numbered = scenario.participants
    for subscriber in (one, two, publisher, oldest):
        assert list(subscriber.application.handed) == [(1, numbers)]
    assert list(numbered.application.handed) == [(100, numbers)]
    assert publisher.application.client.send_queue.retransmissions == 0
    repaired = {one.name: one.application.client.counters.repaired for one in scenario.participants}
    assert repaired.pop("numbered") > 0
    assert set(repaired.values()) == {0}
    assert scenario.statistics()["reported lost"] == 0


def test_numbering_continues_without_a_gap_after_the_backbone_was_killed() -> None:
    faults = FaultSchedule.parse("30.0 crash backbone killed for 3.0\n40.0 crash backbone killed for 0.1")
    scenario = run_without_violation(Quiet(2, faults=faults))
    assert scenario.backbone.host.boots == 3
    assert sorted(scenario.content.truth) == list(range(1, scenario.content.last + 1))


def test_a_power_failure_of_the_backbone_leaves_a_gap_and_repeats_no_number() -> None:
    scenario = run_without_violation(Quiet(3, faults=FaultSchedule.parse("30.0 crash backbone power lost for 3.0")))
    assert list(scenario.participants[0].application.lost)
    assert scenario.content.last > 1_000


def test_a_resuming_client_continues_at_its_position_after_a_crash() -> None:
    class Away(Quiet):
        profiles = (
            ClientProfile("publisher", publishes=True),
            ClientProfile("one", resumes=True),
            ClientProfile("two"),
        )

    scenario = run_without_violation(
        Away(4, faults=FaultSchedule.parse("20.0 crash one killed for 10.0\n20.0 crash two killed for 10.0"))
    )
    _, one, two = scenario.participants
    assert one.former_applications[0].next == one.application.first
    assert two.former_applications[0].next != two.application.first
    assert not one.application.lost


def test_a_backbone_that_lost_its_disk_refuses_to_number_a_known_stream() -> None:
    scenario = Quiet(5, faults=FaultSchedule.parse("30.0 crash backbone disk lost for 1.0"))
    violation = scenario.run().violation
    assert violation is not None
    assert violation.invariant == StreamProgress.name
    assert "published after the last fault, expired" in violation.description
    assert (
        scenario.backbone.node.state.value
        == "stopped: a client holds messages of the stream, but the state file has no number"
    )


def violation_after(corrupt: Callable[[FyrehoseScenario], object]) -> InvariantViolated:
    """Run without violation, apply ``corrupt``, and return the violation found after it."""
    scenario = run_without_violation(Quiet(6))
    try:
        corrupt(scenario)
        for watching in scenario.invariants:
            watching.sample()
            watching.check()
    except InvariantViolated as violation:
        return violation
    pytest.fail("no invariant was violated")


def find_invariant(scenario: FyrehoseScenario, kind: type[FyrehoseInvariant]) -> Any:
    return next(one for one in scenario.invariants if isinstance(one, kind))


def emit_event(kind: type[FyrehoseInvariant], event: object) -> Callable[[FyrehoseScenario], object]:
    """Return a function that feeds an invariant an event of the first subscriber after number 303."""
    return lambda scenario: find_invariant(scenario, kind).event_emitted(scenario.participants[0].host, event)


def forget_message(scenario: FyrehoseScenario) -> None:
    application = scenario.participants[0].application
    application.handed.discard(17)
    application.envelopes = {envelope for envelope in application.envelopes if envelope.counter != 16}


@pytest.mark.parametrize(
    ("corrupt", "expected"),
    [
        (
            emit_event(InOrder, MessagesDelivered([Message(303, 0, b"", b"")])),
            "303 delivered or reported as lost after 303",
        ),
        (
            emit_event(InOrder, MessagesDelivered([Message(305, 0, b"", b"")])),
            "304 neither delivered nor reported as lost",
        ),
        (emit_event(InOrder, MessagesDelivered([Message(304, 0, b"", b"")])), "which was not sent under this number"),
        (emit_event(InOrder, MessagesLost(303, 310)), "303 delivered or reported"),
        (emit_event(InOrder, MessagesLost(306, 310)), "304 neither delivered"),
        (emit_event(InOrder, MessagesLost(304, 303)), "which is not a range"),
        (
            lambda scenario: find_invariant(scenario, ExactlyOnce).event_emitted(
                scenario.participants[0].host, MessagesDelivered([Message(304, 0, b"", scenario.content.truth[17])])
            ),
            "delivered again, as 304",
        ),
        (
            lambda scenario: find_invariant(scenario, AcknowledgedArePublished).event_emitted(
                scenario.participants[2].host, MessagesPublished([(4, 5)])
            ),
            "message 4 reported twice",
        ),
        (forget_message, "17 of publisher was acknowledged, but neither delivered nor reported as lost"),
        (lambda scenario: scenario.participants[0].host.stop(), "not running, long after the last fault"),
    ],
)
def test_a_violation_names_invariant_time_and_node(
    corrupt: Callable[[FyrehoseScenario], object], expected: str
) -> None:
    violation = violation_after(corrupt)
    assert expected in violation.description
    assert violation.nodes
    assert f"at {violation.elapsed:.6f} s, {violation.nodes[0]}" in str(violation)


def test_the_fault_schedule_of_a_seed_round_trips_as_text() -> None:
    text = str(Restarts(7).faults)
    again = FaultSchedule.parse(text)
    assert again == Restarts(7).faults
    assert len(text.splitlines()) >= 20


@pytest.mark.soak
def test_fyrehose_invariants_hold_with_random_seeds() -> None:
    check_random_seeds(SCENARIOS)
