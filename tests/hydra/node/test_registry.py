from __future__ import annotations

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.hydra.node.registry import MAX_DROPPED, Registry

ONE, OTHER = Peer(("10.0.0.1", 1), 1, True), Peer(("10.0.0.2", 1), 2, True)


def test_reservation_becomes_a_node_with_its_tag() -> None:
    registry = Registry()
    registry.reserve(7, "seven", 10.0)
    assert registry.places_taken() == 1
    assert 7 not in registry
    registry.add(7, 3.0)
    assert registry.places_taken() == len(registry) == 1
    member = registry.get(7)
    assert member is not None
    assert (member.tag, member.registered_at) == ("seven", 3.0)


def test_reservations_expire() -> None:
    registry = Registry()
    registry.reserve(7, "", 10.0)
    registry.reserve(8, "", 11.0)
    registry.expire(9.9)
    assert registry.places_taken() == 2
    registry.expire(10.0)
    assert set(registry.reservations) == {8}
    registry.clear()
    assert registry.places_taken() == 0


def test_dropped_nodes_are_remembered_up_to_a_limit() -> None:
    registry = Registry()
    registry.add(1, 0.0)
    assert registry.drop(1)
    assert not registry.drop(1)
    assert 1 not in registry
    assert registry.was_dropped(1)
    for node in range(2, 2 + MAX_DROPPED):
        registry.drop(node)
    assert not registry.was_dropped(1)
    assert registry.was_dropped(2)


def test_inductee_can_be_dropped() -> None:
    registry = Registry()
    registry.reserve(7, "", 10.0)
    assert registry.drop(7)
    assert registry.places_taken() == 0


def test_pong_with_the_fewest_relays_determines_the_neighbour() -> None:
    registry = Registry()
    member = registry.add(7, 0.0)
    registry.pong_received(7, "a", 3, "seven", ONE, 1.0)
    assert (member.hops, member.neighbour, member.tag, member.last_pong_at) == (4, ONE, "seven", 1.0)
    registry.pong_received(7, "a", 1, "", OTHER, 2.0)
    assert (member.hops, member.neighbour, member.tag) == (2, OTHER, "seven")
    registry.pong_received(7, "a", 2, "", ONE, 3.0)
    assert (member.hops, member.neighbour) == (2, OTHER)
    registry.pong_received(7, "b", 2, "", ONE, 4.0)
    assert (member.hops, member.neighbour) == (3, ONE)


def test_pong_of_an_unregistered_node_is_not_stored() -> None:
    registry = Registry()
    registry.pong_received(7, "a", 3, "seven", ONE, 1.0)
    assert registry.get(7) is None
    assert registry.get(None) is None
    assert len(registry) == 0
