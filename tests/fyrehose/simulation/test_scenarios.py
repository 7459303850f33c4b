from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from typing import Any, ClassVar

import pytest

from fyrehose_twisted.fyrehose.config import ClientConfig, Start
from fyrehose_twisted.fyrehose.events import Message, MessagesDelivered, MessagesLost, MessagesPublished
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
from fyrehose_twisted.sim.runs.runner import soak
from fyrehose_twisted.sim.scenario import RunOutcome, Scenario
from fyrehose_twisted.sim.schedule import FaultSchedule

pytest_plugins = ["fyrehose_twisted.sim.pytest_plugin"]


def worth_its_seed(outcome: RunOutcome) -> bool:
    return outcome.simulated_seconds >= 600 and outcome.faults >= 20 and outcome.operations >= 500


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_everything_holds_whatever_goes_wrong(scenario: type[FyrehoseScenario], simulate: Simulate) -> None:
    (outcome,) = simulate(scenario, seeds=[1])  # Fresh ones are for the soak.
    assert worth_its_seed(outcome) or not scenario.fault_counts[1], outcome
    for what in ("delivered", "repaired", "acknowledged", "dropped"):
        assert outcome.counters[what] > 0, outcome.counters


def test_names_begin_with_the_wing_and_are_unique() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("fyrehose.") for name in names)


def test_one_seed_is_one_run_to_the_last_byte_and_another_is_another() -> None:
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
    """A tenth of a scenario."""

    duration = 60.0
    messages = 100
    fault_counts = (3, 6)
    profiles = tuple(role for role in ALL_PROFILES if not role.start_delay)


class BriefStorm(Brief, Storm):
    """The kinds of clients and faults."""


class BriefGarbage(Brief, Garbage):
    """Damaged datagrams, and a stranger."""


class BriefRestarts(Brief, Restarts):
    """A backbone that is killed."""


@pytest.mark.parametrize(
    ("scenario", "seed"),
    [
        (BriefStorm, 1),
        (BriefGarbage, 1),
        (BriefRestarts, 1),
        *(pytest.param(*whole, marks=pytest.mark.extended) for whole in ((Storm, 3), (Garbage, 1), (Restarts, 13))),
    ],
)
def test_where_batches_are_cut_changes_nothing(scenario: type[Scenario], seed: int, simulate: Simulate) -> None:
    [one], [other] = (simulate(scenario, seeds=[seed], split_seed=split_seed) for split_seed in (0, 1))
    assert one.counters["batches"] != other.counters["batches"]
    assert one.digest == other.digest


class Quiet(FyrehoseScenario):
    """Nothing goes wrong."""

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


def ran(scenario: FyrehoseScenario) -> FyrehoseScenario:
    violation = scenario.run().violation
    assert violation is None, violation
    return scenario


def test_without_faults_nothing_is_sent_twice_and_nothing_asked_for_again() -> None:
    scenario = ran(Quiet(1))
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


def test_the_numbers_go_on_where_the_killed_backbone_left_off() -> None:
    faults = FaultSchedule.parse("30.0 crash backbone killed for 3.0\n40.0 crash backbone killed for 0.1")
    scenario = ran(Quiet(2, faults=faults))
    assert scenario.backbone.host.boots == 3
    assert sorted(scenario.content.truth) == list(range(1, scenario.content.last + 1))


def test_a_power_failure_leaves_a_hole_and_no_number_twice() -> None:
    scenario = ran(Quiet(3, faults=FaultSchedule.parse("30.0 crash backbone power lost for 3.0")))
    assert list(scenario.participants[0].application.lost)
    assert scenario.content.last > 1_000


def test_who_was_away_for_a_while_goes_on_where_it_was() -> None:
    class Away(Quiet):
        profiles = (
            ClientProfile("publisher", publishes=True),
            ClientProfile("one", resumes=True),
            ClientProfile("two"),
        )

    scenario = ran(
        Away(4, faults=FaultSchedule.parse("20.0 crash one killed for 10.0\n20.0 crash two killed for 10.0"))
    )
    _, one, two = scenario.participants
    assert one.former_applications[0].next == one.application.first
    assert two.former_applications[0].next != two.application.first
    assert not one.application.lost


def test_a_backbone_that_loses_its_disk_refuses_to_number_a_stream_that_clients_know() -> None:
    scenario = Quiet(5, faults=FaultSchedule.parse("30.0 crash backbone disk lost for 1.0"))
    violation = scenario.run().violation
    assert violation is not None
    assert violation.invariant == StreamProgress.name
    assert "published after the last fault, expired" in violation.description
    assert (
        scenario.backbone.node.state.value
        == "stopped: a client holds messages of the stream, but the state file has no number"
    )


def spoiled(spoil: Callable[[FyrehoseScenario], object]) -> InvariantViolated:
    """Return what the invariants say of a run that was well until ``spoil`` was let loose on what they look at."""
    scenario = ran(Quiet(6))
    try:
        spoil(scenario)
        for watching in scenario.invariants:
            watching.sample()
            watching.check()
    except InvariantViolated as violation:
        return violation
    pytest.fail("nobody noticed")


def invariant(scenario: FyrehoseScenario, kind: type[FyrehoseInvariant]) -> Any:
    return next(one for one in scenario.invariants if isinstance(one, kind))


def tell(kind: type[FyrehoseInvariant], event: object) -> Callable[[FyrehoseScenario], object]:
    """Let an invariant hear of something that the first subscriber tells, after the last number, 303."""
    return lambda scenario: invariant(scenario, kind).event_emitted(scenario.participants[0].host, event)


def forget(scenario: FyrehoseScenario) -> None:
    application = scenario.participants[0].application
    application.handed.discard(17)
    application.envelopes = {envelope for envelope in application.envelopes if envelope.counter != 16}


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (
            tell(InOrder, MessagesDelivered([Message(303, 0, b"", b"")])),
            "303 delivered or reported as lost after 303",
        ),
        (tell(InOrder, MessagesDelivered([Message(305, 0, b"", b"")])), "304 neither delivered nor reported as lost"),
        (tell(InOrder, MessagesDelivered([Message(304, 0, b"", b"")])), "which was not sent under this number"),
        (tell(InOrder, MessagesLost(303, 310)), "303 delivered or reported"),
        (tell(InOrder, MessagesLost(306, 310)), "304 neither delivered"),
        (tell(InOrder, MessagesLost(304, 303)), "which is not a range"),
        (
            lambda scenario: invariant(scenario, ExactlyOnce).event_emitted(
                scenario.participants[0].host, MessagesDelivered([Message(304, 0, b"", scenario.content.truth[17])])
            ),
            "delivered again, as 304",
        ),
        (
            lambda scenario: invariant(scenario, AcknowledgedArePublished).event_emitted(
                scenario.participants[2].host, MessagesPublished([(4, 5)])
            ),
            "message 4 reported twice",
        ),
        (forget, "17 of publisher was acknowledged, but neither delivered nor reported as lost"),
        (lambda scenario: scenario.participants[0].host.stop(), "not running, long after the last fault"),
    ],
)
def test_a_broken_invariant_says_what_broke_and_where(
    spoil: Callable[[FyrehoseScenario], object], expected: str
) -> None:
    violation = spoiled(spoil)
    assert expected in violation.description
    assert violation.nodes
    assert f"at {violation.elapsed:.6f} s, {violation.nodes[0]}" in str(violation)


def test_the_faults_of_a_seed_can_be_written_down_and_replayed() -> None:
    text = str(Restarts(7).faults)
    again = FaultSchedule.parse(text)
    assert again == Restarts(7).faults
    assert len(text.splitlines()) >= 20


@pytest.mark.soak
def test_random_seeds() -> None:
    summaries = soak(SCENARIOS, float(os.environ.get("SOAK_SECONDS", "60")))
    for name, summary in summaries.items():
        print(
            f"{name}: {summary.count:,} seeds, {summary.simulated_seconds / 3600:,.1f} hours simulated,"
            f" {summary.operations:,} operations, {summary.faults:,} faults"
        )
    simulated = sum(summary.simulated_seconds for summary in summaries.values())
    took = max(summary.real_seconds for summary in summaries.values())
    count = sum(summary.count for summary in summaries.values())
    print(f"{count:,} seeds, {simulated / took:,.0f} simulated hours an hour")
    failures = [outcome for summary in summaries.values() for outcome in summary.failures]
    assert not failures, "\n".join(
        f"fyrehose simulate {outcome.scenario} --seed {outcome.seed}\n  {outcome.violation}" for outcome in failures
    )
