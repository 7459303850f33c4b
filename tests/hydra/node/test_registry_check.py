from __future__ import annotations

from hydra.harness import Cohort, Leader

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.wire.messages import Drop, Pong


def lead(cohort: Cohort, seconds: float, *answer: int) -> None:
    """Let node 7 lead for a while, with PONGs of other nodes."""
    end = cohort.net.now + seconds
    while cohort.net.now < end and cohort.node.id is not None:
        val = cohort.ping()
        for node in answer:
            cohort.end.send(Pong(val, node, 0))
        cohort.net.run(4.0)


def test_registry_agrees_while_all_nodes_answer(cohort: Cohort) -> None:
    lead(cohort, 120.0, 8)
    assert cohort.node.role is Role.COHORT
    assert cohort.node.counters["disagreements"] == 0


def test_silent_registered_node_reveals_a_missed_drop(cohort: Cohort) -> None:
    began = cohort.net.now
    lead(cohort, 120.0)
    assert cohort.node.role is Role.OUTSIDER
    assert cohort.node.counters["disagreements"] == 1
    assert 30.0 <= cohort.net.now - began <= 50.0


def test_repeated_pongs_of_an_unregistered_node_reveal_a_missed_welcome(cohort: Cohort) -> None:
    began = cohort.net.now
    lead(cohort, 120.0, 8, 99)
    assert cohort.node.role is Role.OUTSIDER
    assert cohort.node.counters["disagreements"] == 1
    assert 20.0 <= cohort.net.now - began <= 45.0


def test_silent_unregistered_node_is_forgotten(cohort: Cohort) -> None:
    lead(cohort, 8.0, 8, 99)
    lead(cohort, 60.0, 8)
    assert cohort.node.counters["disagreements"] == 0


def test_dropped_unregistered_node_is_forgotten(cohort: Cohort) -> None:
    lead(cohort, 16.0, 8, 99)
    cohort.node._lifecycle.drop(99, "not registered", cohort.net.now)
    lead(cohort, 4.0, 8, 99)
    lead(cohort, 30.0, 8)
    assert cohort.node.counters["disagreements"] == 0


def test_number_of_tracked_unregistered_nodes_is_limited(cohort: Cohort) -> None:
    cohort.end.send(*(Pong(f"v{number}", number, 0) for number in range(1_000, 2_000)))
    assert len(cohort.node._components.registry_check._unregistered) == 64


def test_leader_drops_an_unregistered_node_that_answers(leader: Leader) -> None:
    leader.ends[7].send(Pong("v", 99, 0))
    assert Drop(99, "not registered") in leader.ends[8].take(Drop)
    leader.ends[7].send(Pong("w", 99, 0))
    assert leader.ends[8].take(Drop) == []
