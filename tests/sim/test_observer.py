from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from sim.worlds import MakeWorld, World

from fyrehose_twisted.effects import Send
from fyrehose_twisted.interfaces import Outputs
from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.observer import Observer, Observers, SimPacket
from fyrehose_twisted.sim.schedule import FaultSchedule

METHODS = [name for name, value in vars(Observer).items() if callable(value)]


def recording(*methods: str) -> tuple[Observer, list[tuple[Any, ...]]]:
    """Return an observer that overrides only ``methods``, and the list of its calls."""
    calls: list[tuple[Any, ...]] = []

    def override(name: str) -> Any:
        return lambda self, *arguments: calls.append((name, *arguments))

    return type("Recording", (Observer,), {name: override(name) for name in methods})(), calls


def everything_happens(world: World) -> None:
    """Trigger every observable event on ``a`` and ``b``."""
    network = world.network
    a, b = network.host("a"), network.host("b")
    world["a"].wanted.append(Outputs("mark", [Send([b"x"], (b.address,))], ["event"]))
    a.flush()
    network.run(1)
    for observe in network.observers.operation_performed:  # Normally called by scenarios.
        observe(a, "something")
    for observe in network.observers.connection_changed:  # Normally called by streams.
        observe(a, b.address, "connected")
    a.pause()
    a.resume()
    b.stop(CrashMode.POWER)
    world.send("a", "b", b"y")
    network.run(1)
    b.start()
    FaultSchedule.parse("0.5 clock a +1.0").schedule_on(network)
    network.run(1)


def test_each_observer_method_is_called_with_its_subject(make_world: MakeWorld) -> None:
    world = make_world()
    a, b = world.add("a", "b")
    observer, calls = recording(*METHODS)
    world.network.add_observer(observer)
    everything_happens(world)
    assert {name for name, *_ in calls} == set(METHODS)
    (fault,) = FaultSchedule.parse("0.5 clock a +1.0")
    first, second = SimPacket(1, a, b.address, b"x", 0.0), SimPacket(2, a, b.address, b"y", 1.0)
    assert calls == [
        ("persisted", a, "mark"),
        ("sent", first),
        ("event_emitted", a, "event"),
        ("arrived", first, b),
        ("operation_performed", a, "something"),
        ("connection_changed", a, b.address, "connected"),
        ("paused", a),
        ("resumed", a),
        ("stopped", b, "power lost"),
        ("sent", second),
        ("dropped", second, "down"),
        ("started", b),
        ("fault_began", fault),
    ]


def test_only_overridden_observer_methods_are_called(make_world: MakeWorld) -> None:
    for method in METHODS:
        here = make_world()
        here.add("a", "b")
        observer, calls = recording(method)
        here.network.add_observer(observer)
        everything_happens(here)
        assert {name for name, *_ in calls} == {method}
        watching = {name: len(watchers) for name, watchers in vars(here.network.observers).items() if name != "all"}
        assert watching == {name: int(name == method) for name in METHODS}


def test_observers_has_a_list_per_method() -> None:
    assert set(vars(Observers())) == {"all", *METHODS}


def test_an_observer_without_overrides_is_never_called(make_world: MakeWorld) -> None:
    world = make_world()
    world.add("a", "b")
    observer, calls = recording()
    world.network.add_observer(observer)
    everything_happens(world)
    assert world.network.observers.all == [observer]
    assert calls == []


def test_observer_methods_overridden_in_a_base_class_are_called(make_world: MakeWorld) -> None:
    base, calls = recording("started")
    world = make_world()
    world.network.add_observer(type("Derived", (type(base),), {})())
    world.add("a")
    assert [name for name, *_ in calls] == ["started"]


def test_observers_are_called_in_the_order_of_their_registration(make_world: MakeWorld) -> None:
    world = make_world()
    seen: list[str] = []
    for letter in "xyz":
        world.network.add_observer(
            type("One", (Observer,), {"started": lambda self, host, letter=letter: seen.append(letter)})()
        )
    world.add("a", "b")
    assert "".join(seen) == "xyzxyz"


def test_observers_see_a_packet_before_its_effects(make_world: MakeWorld) -> None:
    world = make_world(link=Link(loss=1.0))
    seen: list[tuple[Any, ...]] = []

    class Early(Observer):
        def sent(self, packet: SimPacket) -> None:
            seen.append((dict(world.network.counters), packet.data))

        def arrived(self, packet: SimPacket, host: Host) -> None:
            seen.append((host.node.story.copy(), packet.data))

    world.network.add_observer(Early())
    a, b = world.add("a", "b")
    world.send("a", "b", b"x")
    change = world.network.override_links([a.address], [b.address], loss=0.0)
    world.send("a", "b", b"y", b"z")
    world.network.remove_override(change)
    world.network.run(1)
    assert seen == [
        ({"sent": 1}, b"x"),
        ({"sent": 2, "dropped": 1, "dropped: loss": 1}, b"y"),
        ({"sent": 3, "dropped": 1, "dropped: loss": 1}, b"z"),
        ([], b"y"),
        ([], b"z"),
    ]


def test_observers_see_both_copies_of_a_duplicate(make_world: MakeWorld) -> None:
    world = make_world(link=Link(duplication=1.0, corruption=0.5))
    world.add("a", "b")
    observer, calls = recording("sent", "arrived", "dropped")
    world.network.add_observer(observer)
    for _ in range(100):
        world.send("a", "b", b"x")
    world.network.run(1)
    count = Counter(name for name, *_ in calls)
    assert count["sent"] == 100
    assert count["arrived"] + count["dropped"] == 200
    assert count["arrived"] == len(world.got("b"))
    of_each = Counter(packet.number for name, packet, *_ in calls if name != "sent")
    assert of_each == dict.fromkeys(range(1, 101), 2)


def test_observers_see_the_datagram_that_the_node_gets(make_world: MakeWorld) -> None:
    world = make_world(link=Link(corruption=0.3, truncation=0.3, duplication=0.3, checksum=False))
    world.add("a", "b")
    observer, calls = recording("sent", "arrived")
    world.network.add_observer(observer)
    for _ in range(100):
        world.send("a", "b", b"datagram")
    world.network.run(1)
    got = [packet for name, packet, *_ in calls if name == "arrived"]
    assert [(packet.data, packet.truncated) for packet in got] == [(data, cut) for _, data, _, cut in world["b"].rows]
    assert [packet.damaged for packet in got] == [
        not b"datagram".startswith(packet.data) if packet.truncated else packet.data != b"datagram" for packet in got
    ]
    assert len({(packet.damaged, packet.truncated) for packet in got}) == 4
    sent = [packet for name, packet, *_ in calls if name == "sent"]
    assert {(packet.data, packet.damaged, packet.truncated) for packet in sent} == {(b"datagram", False, False)}


@pytest.mark.parametrize("method", METHODS)
def test_an_exception_of_an_observer_ends_the_run(make_world: MakeWorld, method: str) -> None:
    world = make_world()
    world.add("a", "b")

    def fail(*_: object) -> None:
        raise LookupError(method)

    world.network.add_observer(type("Failing", (Observer,), {method: fail})())
    with pytest.raises(LookupError, match=method):
        everything_happens(world)


def test_an_observer_of_certain_first_bytes_gets_those_datagrams_only(make_world: MakeWorld) -> None:
    class Selective(Observer):
        sent_kinds = (1, 2)
        arrived_kinds = (2,)

        def sent(self, packet: SimPacket) -> None:
            seen.append(("sent", packet.data))

        def arrived(self, packet: SimPacket, host: Host) -> None:
            seen.append(("arrived", packet.data))

    class Curious(Observer):
        def sent(self, packet: SimPacket) -> None:
            seen.append(("every", packet.data))

    world = make_world()
    a, b = world.add("a", "b")
    seen: list[tuple[str, bytes]] = []
    for observer in (Selective(), Curious()):
        world.network.add_observer(observer)
    for data in (b"", b"\x01", b"\x02x", b"\x03"):
        world["a"].wanted.append(Outputs(None, [Send([data], (b.address,))], []))
        a.flush()
    world.network.run(1.0)
    assert seen == [
        ("every", b""),
        ("sent", b"\x01"),
        ("every", b"\x01"),
        ("sent", b"\x02x"),
        ("every", b"\x02x"),
        ("every", b"\x03"),
        ("arrived", b"\x02x"),
    ]
