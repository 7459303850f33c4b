from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random, SystemRandom

import pytest

from fyrehose_twisted.effects import Send
from fyrehose_twisted.fyrehose.backbone import Backbone
from fyrehose_twisted.fyrehose.codec import encode
from fyrehose_twisted.fyrehose.config import ClientConfig, Start
from fyrehose_twisted.fyrehose.events import Delivered, Message
from fyrehose_twisted.fyrehose.forwarding import RandomForward
from fyrehose_twisted.fyrehose.messages import Deliver, Dialect
from fyrehose_twisted.fyrehose.outbox import OutboxConfig
from fyrehose_twisted.fyrehose.reassembly import Lost
from fyrehose_twisted.fyrehose.repair import RepairConfig
from fyrehose_twisted.fyrehose.scenarios import BACKBONE, FyrehoseScenario, InvariantViolated, Participant
from fyrehose_twisted.sim.network import Link

PATIENT = ClientConfig(repair=RepairConfig(attempts=40))
"""Gives up so late that a number is lost only if nobody has it."""

RAW = replace(PATIENT, raw=True, outbox=OutboxConfig(raw=True))


def faulty_link(rng: Random) -> Link:
    return Link(loss=rng.uniform(0, 0.2), duplication=rng.uniform(0, 0.2), delay=0.002, jitter=rng.uniform(0, 0.03))


def everything_at_once(seed: int) -> FyrehoseScenario:
    """Both dialects, every kind of client, a faulty network, late joiners and one restart of the backbone."""
    rng = Random(seed)
    scenario = FyrehoseScenario(seed, faulty_link(rng))
    for config in (
        PATIENT,
        replace(PATIENT, dialect=Dialect.V1),
        replace(PATIENT, journal=False),
        replace(PATIENT, raw=True),
        replace(PATIENT, buffer_bytes=2_000, history_bytes=20_000),
    ):
        scenario.join(config)
    publishers = [
        scenario.join(config)
        for config in (PATIENT, replace(PATIENT, dialect=Dialect.V1), replace(PATIENT, subscribe=False), RAW)
    ]
    scenario.run(2)
    scenario.publish(publishers, 60, over=4)
    scenario.run(rng.uniform(0.5, 3))
    scenario.join(replace(PATIENT, start=Start.OLDEST))
    scenario.join(replace(PATIENT, start=20))
    scenario.run(0.5)
    scenario.stop_backbone()
    scenario.run(rng.uniform(0, 2))
    scenario.start_backbone()
    scenario.settle()
    scenario.check()
    return scenario


@pytest.mark.parametrize("seed", range(25))
def test_a_stream_stays_whole_whatever_the_network_does(seed: int) -> None:
    scenario = everything_at_once(seed)
    counts = scenario.counts()
    assert counts["acknowledged"] == 240, f"seed {seed}: {counts}"
    assert counts["unpublished"] == 0, f"seed {seed}: {counts}"
    assert counts["repaired"] > 0, f"seed {seed}: {counts}"
    assert scenario.participants[-1].first == 20, f"seed {seed}"


def test_one_seed_is_one_run() -> None:
    first, second = everything_at_once(1), everything_at_once(1)
    assert first.truth == second.truth
    assert first.counts() == second.counts()
    assert [one.messages for one in first.participants] == [one.messages for one in second.participants]


def test_without_faults_nothing_is_sent_twice_and_nothing_asked_for() -> None:
    scenario = FyrehoseScenario(1, Link(delay=0.002))
    subscribers = [scenario.join() for _ in range(3)]
    publisher = scenario.join()
    scenario.run(1)
    scenario.publish([publisher], 200, over=1)
    scenario.settle()
    scenario.check()
    assert len(scenario.truth) == 200
    assert publisher.client.outbox.retransmissions == 0
    for subscriber in subscribers:
        assert [message.sequence for message in subscriber.messages] == list(range(1, 201))
        assert subscriber.client.counters.duplicates == 0


def test_who_joins_late_gets_the_stream_from_its_first_message() -> None:
    scenario = FyrehoseScenario(2, Link(delay=0.002))
    publisher = scenario.join()
    scenario.run(1)
    scenario.publish([publisher], 3_000, over=2)  # More than one FORWARD is answered with.
    scenario.run(3)
    oldest, numbered = scenario.join(ClientConfig(start=Start.OLDEST)), scenario.join(ClientConfig(start=2_500))
    scenario.settle()
    scenario.check()
    assert oldest.first == 1
    assert len(oldest.messages) == 3_000
    assert numbered.first == 2_500
    assert len(numbered.messages) == 501


def test_the_numbers_go_on_where_the_killed_backbone_left_off() -> None:
    scenario = FyrehoseScenario(3, Link(delay=0.002))
    publisher = scenario.join()
    scenario.run(1)
    scenario.publish([publisher], 100, over=2)
    scenario.run(1)
    before = max(scenario.truth)
    scenario.stop_backbone()
    scenario.run(1)
    assert max(scenario.truth) == before
    scenario.start_backbone()
    scenario.settle()
    scenario.check()
    assert sorted(scenario.truth) == list(range(1, max(scenario.truth) + 1))
    assert len(publisher.published) == 100


def start_without_memory(scenario: FyrehoseScenario) -> None:
    """Start the killed backbone as one that would number from 1."""
    scenario.backbone.restart(Backbone(scenario.config, RandomForward(Random(0))))


def deliver(scenario: FyrehoseScenario, sequence: int, data: bytes) -> None:
    """Let the backbone send something of its own to the first participant."""
    peer = scenario.participants[0].host.address
    scenario.network.send(BACKBONE, Send([encode(Deliver(sequence, data))], (peer,)))


def tell(participant: Participant, event: object) -> None:
    participant.host.on_event(event)


def again(participant: Participant) -> None:
    """Hand over the last message once more, under the number that follows."""
    last = participant.messages[-1]
    tell(participant, Delivered([last._replace(sequence=last.sequence + 1)]))


SPOILERS: dict[str, Callable[[FyrehoseScenario, Participant], object]] = {
    "handed over after": lambda scenario, one: tell(one, Delivered([one.messages[0]])),
    "handed over again": lambda scenario, one: again(one),
    "not what the backbone sent": lambda scenario, one: tell(one, Delivered([Message(21, 0, b"x", b"x")])),
    "neither came nor": lambda scenario, one: one.messages.pop(10),
    "somebody holds it": lambda scenario, one: one.lost.add(one.messages.pop().sequence),
    "after it was reported lost": lambda scenario, one: (
        one.lost.add(30),
        tell(one, Delivered([Message(30, 0, b"x", b"x")])),
    ),
    "lost 3 to 4 after": lambda scenario, one: tell(one, Lost(3, 4)),
    "which is another message": lambda scenario, one: one.published.update({0: one.published[1]}),
    "given .* to two messages|gave 5 to two": lambda scenario, one: deliver(scenario, 5, b"another"),
    "nothing of": lambda scenario, one: one.messages.clear(),
    "its limit is": lambda scenario, one: (setattr(one.history, "size", 2**40), one.check_limits()),
}


@pytest.mark.parametrize("expected", SPOILERS)
def test_a_broken_invariant_is_seen_and_the_seed_named(expected: str) -> None:
    scenario = FyrehoseScenario(77, Link())
    one = scenario.join()
    scenario.join()
    scenario.run(1)
    scenario.publish([one], 20, over=1)
    scenario.settle()
    scenario.run(2)
    scenario.check()
    SPOILERS[expected](scenario, one)
    with pytest.raises(InvariantViolated, match=rf"(?s)seed 77: .*({expected})"):
        scenario.check()


def test_a_backbone_that_forgets_its_numbers_is_seen() -> None:
    scenario = FyrehoseScenario(78, Link())
    one = scenario.join()
    scenario.run(1)
    scenario.publish([one], 20, over=1)
    scenario.run(2)
    scenario.stop_backbone()
    start_without_memory(scenario)
    scenario.run(2)
    scenario.publish([one], 5, over=1)
    scenario.run(2)
    with pytest.raises(InvariantViolated, match=r"(?s)gave 1 to two messages.*stopped: "):
        scenario.check()


@pytest.mark.soak
def test_random_seeds() -> None:
    until = time.monotonic() + float(os.environ.get("SOAK_SECONDS", "60"))
    done = 0
    while time.monotonic() < until:
        seed = SystemRandom().getrandbits(48)
        everything_at_once(seed)
        done += 1
    print(f"{done} seeds")
