from __future__ import annotations

import pytest
from parcels.harness import Host, Net
from parcels.node.harness import ask, info, members, mode

from fyrehose_twisted.consensus.messages import AppendEntries, EntryKind, MemberId
from fyrehose_twisted.effects import Write
from fyrehose_twisted.errors import EventsNotHeld
from fyrehose_twisted.interfaces import ConcurrentPersist
from fyrehose_twisted.parcels.events import EventsDelivered, PublishConfirmed
from fyrehose_twisted.parcels.node.persistent_state import PersistentState
from fyrehose_twisted.parcels.wire.messages import Mode, node_id


def test_three_nodes_agree_on_one_order(trio: tuple[Host, Host, Host], net: Net) -> None:
    for number in range(30):
        trio[number % 3].call("publish", [b"%d" % number, b"and"], number)
        if number % 7 == 0:
            net.run(0.002)
    net.run(1.0)
    lists = [host.read() for host in trio]
    assert lists[0] == lists[1] == lists[2]
    assert len(lists[0]) == 60
    for at, host in enumerate(trio):
        answers = {one.token: one.numbers for one in host.of(PublishConfirmed)}
        assert sorted(answers) == list(range(at, 30, 3))
        for token, numbers in answers.items():
            places = [first + step for first, many in numbers for step in range(many)]
            assert [data for number, data in host.read() if number in places] == [b"%d" % token, b"and"]


def test_publish_is_confirmed_after_the_delivery_of_its_events(trio: tuple[Host, Host, Host], net: Net) -> None:
    for host in trio:
        host.call("publish", [b"1", b"2", b"3"], "x")
    net.run(1.0)
    for host in trio:
        last = 0
        for one in host.events:
            if isinstance(one, EventsDelivered):
                last = one.events[-1].sequence
            elif isinstance(one, PublishConfirmed):
                assert all(first + many - 1 <= last for first, many in one.numbers)
        assert len(host.of(PublishConfirmed)) == 1


def test_read_of_evicted_events_raises_events_not_held(net: Net) -> None:
    ivan = net.node("Ivan", 1, window_bytes=98_304)
    for number in range(1, 200):
        ivan.call("publish", [bytes(1_000)], number)
    node = ivan.node
    assert node.sequence == 199
    assert 100 < node.oldest < 199
    with pytest.raises(EventsNotHeld) as raised:
        node.read(1, 5, 5)
    assert (raised.value.oldest, raised.value.last) == (node.oldest, 199)
    assert [one.sequence for one in node.read(node.oldest, 500, 3)] == [node.oldest + at for at in range(3)]
    assert node.read(198, 5_000, 99)[-1].sequence == 199
    assert node.read(200, 300, 9) == node.read(150, 149, 9) == node.read(199, 199, 0) == []


def test_state_of_a_member_describes_the_cluster(trio: tuple[Host, Host, Host], net: Net) -> None:
    trio[1].call("publish", [b"a", b"b"], 1)
    net.play(8)
    net.connect(trio[1], "10.0.0.8").send(ask(info("Olga", "10.0.0.8", incarnation=None)))
    net.run(0.9)
    state = trio[1].node.state(net.now)
    assert (state.name, state.id, state.cluster, state.mode) == ("Boris", node_id("Boris"), "default", "Wrk")
    assert len(state.incarnation) == 16
    assert (state.leader, state.sequence, state.oldest, state.quorum) == ("Ivan", 2, 1, 2)
    assert state.term == trio[1].node.term >= 1
    assert state.why
    assert [(one.name, one.address, one.alive) for one in state.members] == [
        ("Boris", "10.0.0.2:7878", True),
        ("Ivan", "10.0.0.1:7878", True),
        ("Vera", "10.0.0.3:7878", True),
    ]
    assert state.members[0].incarnation == state.incarnation
    neighbours = {one.name: one for one in state.neighbours}
    assert list(neighbours) == ["Ivan", "Olga", "Vera"]
    assert (neighbours["Ivan"].ours, neighbours["Ivan"].votes, neighbours["Ivan"].mode) == (True, True, "Wrk")
    assert (neighbours["Olga"].ours, neighbours["Olga"].votes, neighbours["Olga"].mode) == (False, False, "Dsc")
    assert 0.0 <= neighbours["Ivan"].silent <= 1.1
    assert 0.8 < neighbours["Olga"].silent < 1.0
    assert state.counters["published"] == state.counters["delivered"] == 2


@pytest.mark.parametrize("neighbours", [(), (2,)])
def test_a_stopped_node_needs_no_timer(net: Net, neighbours: tuple[int, ...]) -> None:
    ivan = net.node("Ivan", 1, neighbours, bootstrap=True)
    net.run(3.0)
    ivan.call("leave")
    net.run(20.0)  # The network fails the test if a node asks to be called at the same moment again and again.
    assert ivan.node.has_stopped


def test_a_panicked_node_needs_no_timer(trio: tuple[Host, Host, Host], net: Net) -> None:
    trio[1].call("panic", "the disk is full")
    net.run(20.0)
    assert members(trio[0]) == ["Ivan", "Vera"]


def test_changes_are_persisted_before_their_effects(net: Net) -> None:
    state = PersistentState()
    ivan = net.node("Ivan", 1, state=state)
    net.run(1.0)
    ivan.outputs.clear()
    ivan.call("publish", [b"x"], 1)
    (first, *_) = ivan.outputs
    assert first.persist is not None
    assert [entry.kind for entry in first.persist.entries] == [EntryKind.DATA]
    assert any(isinstance(one, PublishConfirmed) for one in first.events)
    assert state.member == ivan.node.me
    assert isinstance(state.member, MemberId)
    memoryless = net.node("Boris", 2)
    assert all(drained.persist is None for drained in memoryless.outputs)


def test_followers_get_entries_before_they_are_durable_at_the_leader(net: Net) -> None:
    ivan = net.node("Ivan", 1, state=PersistentState())
    net.run(3.0)
    boris = net.node("Boris", 2, (1,), state=PersistentState())
    seen = {"first": 0, "after": 0}
    # Boris has no vote yet when he gets his first entries: Ivan decides alone.
    while mode(boris) is not Mode.WRK:
        ivan.call("publish", [b"x"], "x")
        net.run(0.01)
    for host in 5 * (ivan, boris):
        host.call("publish", [b"y"], "y")
        net.run(0.1)
    for host in (ivan, boris):
        for persist, effects, _ in host.outputs:
            first = persist.effects if isinstance(persist, ConcurrentPersist) else []
            change = persist.state if isinstance(persist, ConcurrentPersist) else persist
            early = [message for effect in first for message in effect.messages]
            assert all(isinstance(message, AppendEntries) for message in early)
            assert all(message.commit < change.first_index for message in early)
            assert not (first and effects)
            seen["first"] += bool(first)
            late = [message for effect in effects if isinstance(effect, Write) for message in effect.messages]
            appends = [message for message in late if isinstance(message, AppendEntries) and message.entries]
            seen["after"] += bool(appends and change is not None)
    assert seen["after"] >= 1, "a leader that decides alone waits for its disk"
    assert seen["first"] >= 10
    assert ivan.read()[-10:] == boris.read()[-10:]
