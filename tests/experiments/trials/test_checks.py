"""Detection of invalid trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fyrehose_twisted.experiments import Policy, TreeExperiment
from fyrehose_twisted.freenet.node.stream import Stream
from fyrehose_twisted.freenet.wire.messages import SubscribeData
from fyrehose_twisted.sim.invariants import InvariantViolated

KEY = bytes(20)
Make = Callable[..., TreeExperiment]


@pytest.fixture
def broken(line: Make, grown: Make) -> Callable[[Callable[[list[Stream]], object]], InvariantViolated]:
    """Return the violation of a tree of five nodes after a change, which is given their streams."""

    def violated(plant: Callable[[list[Stream]], object]) -> InvariantViolated:
        experiment = grown(line(), 0, 2)
        experiment.check()
        plant([experiment._network.nodes[node].streams[KEY] for node in range(5)])
        with pytest.raises(InvariantViolated) as caught:
            experiment.check()
        return caught.value

    return violated


def test_a_cycle_violates_an_invariant(broken: Any) -> None:
    def plant(streams: list[Stream]) -> None:
        streams[3].parent = next(iter(streams[3].subscribers))

    error = broken(plant)
    assert error.invariant == "no cycle"
    assert "node 2, node 3" in str(error)


def test_a_parent_without_its_child_as_subscriber_violates_symmetry(broken: Any) -> None:
    error = broken(lambda streams: streams[3].subscribers.clear())
    assert error.invariant == "symmetry"
    assert "2 is not a subscriber of its parent" in str(error)


def test_a_subscriber_with_another_parent_violates_symmetry(broken: Any) -> None:
    def plant(streams: list[Stream]) -> None:
        streams[0].subscribers[streams[0].parent] = None  # type: ignore[index]

    error = broken(plant)
    assert error.invariant == "symmetry"
    assert "1 is listed as a subscriber of 0 but has another parent" in str(error)


def test_a_member_that_reaches_no_root_violates_an_invariant(line: Make, grown: Make) -> None:
    experiment = grown(line(Policy(restart_jitter=100.0), seed=2), 0)
    experiment.kill(3)
    # It has noticed, and waits a while before it looks for another parent.
    experiment.run(experiment.now + 0.06)
    with pytest.raises(InvariantViolated, match="does not") as caught:
        experiment.check()
    assert caught.value.invariant == "every member reaches a root"
    experiment.run()
    experiment.check()


def test_too_many_streams_violate_an_invariant(line: Make, grown: Make) -> None:
    experiment = grown(line(Policy(max_streams=1)), 0)
    node = experiment._network.nodes[4]
    node._context.streams[b"\1" * 20] = stream = Stream(b"\1" * 20, 32)
    stream.local = True
    stream.phase = node.streams[KEY].phase
    with pytest.raises(InvariantViolated, match="2 streams exceed the limit of 1") as caught:
        experiment.check()
    assert caught.value.invariant == "limits"


def test_a_packet_delivered_twice_violates_an_invariant(line: Make, grown: Make, published: Callable[..., int]) -> None:
    experiment = grown(line(), 0, 2)
    number = published(experiment, 0, b"hello")
    experiment.check()
    stream = experiment._network.nodes[2].streams[KEY]
    stream.packets = type(stream.packets)(32)
    stream.delivered_ids = type(stream.delivered_ids)(32)
    experiment._network.run_command(2, lambda node, now: node.receive(SubscribeData(KEY, number, b"hello"), 3, now))
    with pytest.raises(InvariantViolated, match=f"packet {number} of {KEY.hex()} was delivered twice") as caught:
        experiment.check()
    assert caught.value.invariant == "delivered at most once"


def test_dead_nodes_violate_no_invariant(line: Make, grown: Make) -> None:
    experiment = grown(line(), 0)
    experiment.kill(0)
    experiment.run(experiment.now + 0.06)
    experiment.check()
