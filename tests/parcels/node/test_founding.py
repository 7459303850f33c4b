from __future__ import annotations

from random import Random

import pytest
from parcels.harness import Wires
from parcels.node.harness import SECRET, delivered, members, mode, modes, warnings
from zope.interface.verify import verifyObject

from fyrehose_twisted.interfaces import ILinkNode
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.events import MembershipChanged, NeighbourAdded, PublishConfirmed
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.node.ordering.history import EventWindow, SequencedRun
from fyrehose_twisted.parcels.wire.messages import Mode


def test_node_without_neighbours_forms_a_cluster_at_once(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    assert mode(ivan) is Mode.WRK
    assert (ivan.node.sequence, ivan.node.oldest, ivan.node.read(1, 9, 9)) == (0, 1, [])
    assert verifyObject(ILinkNode, ivan.node)
    ivan.tell("publish", [b"a", b"b"], "token")
    assert ivan.of(PublishConfirmed) == [PublishConfirmed("token", ((1, 2),))]
    assert delivered(ivan) == [b"a", b"b"]


def test_second_node_joins_and_skips_earlier_events(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    wires.run(3.0)
    ivan.tell("publish", [b"before"], 1)
    boris = wires.node("Boris", 2, (1,))
    assert mode(boris) is Mode.DSC
    assert wires.run(3.0, lambda: mode(boris) is Mode.WRK)
    assert modes(boris) == [Mode.SEQ_RECOVERY, Mode.WRK]
    assert members(ivan) == members(boris) == ["Boris", "Ivan"]
    assert boris.node.cluster_id == ivan.node.cluster_id != 0
    boris.tell("publish", [b"after"], 2)
    wires.run(0.5)
    assert boris.of(PublishConfirmed) == [PublishConfirmed(2, ((2, 1),))]
    assert delivered(ivan) == delivered(boris) == [b"before", b"after"]
    assert ivan.read() == boris.read() == [(1, b"before"), (2, b"after")]
    assert [one.name for one in ivan.of(NeighbourAdded)] == ["Boris"]
    assert [len(one.membership.members) for one in ivan.of(MembershipChanged)] == [1, 2]


def test_bootstrap_waits_for_an_unresponsive_neighbour(wires: Wires) -> None:
    wires.silent.add(wires.address(2))
    ivan = wires.node("Ivan", 1, (2,), bootstrap=True)
    wires.run(60.0)
    assert mode(ivan) is Mode.DSC
    assert len(ivan.dialled) > 3
    wires.silent.clear()
    assert wires.run(20.0, lambda: mode(ivan) is Mode.WRK)


def test_bootstrap_forms_a_cluster_when_all_neighbours_refuse_connections(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, (2, 3), bootstrap=True)
    boris = wires.node("Boris", 4, (2, 3))
    assert wires.run(2.5, lambda: mode(ivan) is Mode.WRK)
    wires.run(60.0)
    assert mode(boris) is Mode.DSC
    assert boris.node.cluster_id == 0


def test_bootstrap_joins_an_existing_cluster(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    wires.run(1.0)
    boris = wires.node("Boris", 2, (1,), bootstrap=True)
    assert wires.run(5.0, lambda: mode(boris) is Mode.WRK)
    assert boris.node.cluster_id == ivan.node.cluster_id
    assert members(boris) == ["Boris", "Ivan"]


def test_nodes_without_a_cluster_do_not_form_one_without_bootstrap(wires: Wires) -> None:
    boris = wires.node("Boris", 2, (1,))
    ivan = wires.node("Ivan", 1, (2,))
    wires.run(30.0)
    assert {mode(ivan), mode(boris)} == {Mode.DSC}
    vera = wires.node("Vera", 3, (1, 2), bootstrap=True)
    assert wires.run(20.0, lambda: {mode(ivan), mode(boris), mode(vera)} == {Mode.WRK})
    assert len({host.node.cluster_id for host in (ivan, boris, vera)}) == 1


def test_neighbour_list_may_contain_the_node_itself_and_duplicates(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, (1, 1))
    assert wires.run(2.5, lambda: mode(ivan) is Mode.WRK)
    assert ivan.dialled == []
    boris = wires.node("Boris", 2, (1, 2, 1, 1))
    assert wires.run(5.0, lambda: mode(boris) is Mode.WRK)
    assert [address for _, address in boris.dialled].count(wires.address(1)) == 1


def test_a_node_recognizes_itself_at_another_address(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, (9,))
    wires.listening[wires.address(9)] = ivan
    assert wires.run(8.0, lambda: mode(ivan) is Mode.WRK)
    wires.run(10.0)
    assert members(ivan) == ["Ivan"]
    assert ivan.node.state(wires.now).neighbours == ()
    assert warnings(ivan) == []


@pytest.mark.parametrize("secret", [None, SECRET])
def test_a_node_that_knows_only_a_follower_joins(wires: Wires, secret: bytes | None) -> None:
    wires.node("Ivan", 1, secret=secret)
    boris = wires.node("Boris", 2, (1,), secret=secret)
    assert wires.run(8.0, lambda: mode(boris) is Mode.WRK)
    assert boris.node.state(wires.now).leader == "Ivan"
    vera = wires.node("Vera", 3, (2,), secret=secret)
    assert wires.run(20.0, lambda: mode(vera) is Mode.WRK)


def test_a_joining_node_votes_once_it_has_the_events(wires: Wires) -> None:
    # A quorum of the new membership has to hold what one of the old held, and a snapshot brings no events.
    ivan = wires.node("Ivan", 1)
    for number in range(60):
        ivan.tell("publish", [b"%d" % number * 10_000], number)
    boris = wires.node("Boris", 2, (1,))
    assert wires.run(20.0, lambda: members(ivan) == ["Boris", "Ivan"])
    assert boris.node.read(1, 60, 100) == ivan.node.read(1, 60, 100)
    assert boris.node.oldest == 1


def test_a_node_with_events_but_without_state_does_not_bootstrap(wires: Wires) -> None:
    history = EventWindow(10**6)
    history.put([SequencedRun(1, "somebody", 1, 1, [b"x"])])
    alone = ClusterNode(NodeConfig("Ivan"), Random(1), 0.0, history=history)
    alone.tick(10.0)
    assert alone.mode is Mode.DSC
    alone.reform(10.0)
    alone.drain()
    assert (alone.mode, alone.sequence) == (Mode.WRK, 1)
