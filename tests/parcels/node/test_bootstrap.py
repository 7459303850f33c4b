from __future__ import annotations

from random import Random

import pytest
from parcels.harness import Net
from parcels.node.harness import SECRET, delivered, members, mode, modes, warnings
from zope.interface.verify import verifyObject

from fyrehose_twisted.interfaces import ILinkNode
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.events import MembershipChanged, NeighbourAdded, PublishConfirmed
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.node.ordering.history import EventWindow, SequencedRun
from fyrehose_twisted.parcels.wire.messages import Mode


def test_node_without_neighbours_forms_a_cluster_at_once(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    assert mode(ivan) is Mode.WRK
    assert (ivan.node.sequence, ivan.node.oldest, ivan.node.read(1, 9, 9)) == (0, 1, [])
    assert verifyObject(ILinkNode, ivan.node)
    ivan.call("publish", [b"a", b"b"], "token")
    assert ivan.of(PublishConfirmed) == [PublishConfirmed("token", ((1, 2),))]
    assert delivered(ivan) == [b"a", b"b"]


def test_second_node_joins_and_skips_earlier_events(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    net.run(3.0)
    ivan.call("publish", [b"before"], 1)
    boris = net.node("Boris", 2, (1,))
    assert mode(boris) is Mode.DSC
    assert net.run(3.0, lambda: mode(boris) is Mode.WRK)
    assert modes(boris) == [Mode.SEQ_RECOVERY, Mode.WRK]
    assert members(ivan) == members(boris) == ["Boris", "Ivan"]
    assert boris.node.cluster_id == ivan.node.cluster_id != 0
    boris.call("publish", [b"after"], 2)
    net.run(0.5)
    assert boris.of(PublishConfirmed) == [PublishConfirmed(2, ((2, 1),))]
    assert delivered(ivan) == delivered(boris) == [b"before", b"after"]
    assert ivan.read() == boris.read() == [(1, b"before"), (2, b"after")]
    assert [one.name for one in ivan.of(NeighbourAdded)] == ["Boris"]
    assert [len(one.membership.members) for one in ivan.of(MembershipChanged)] == [1, 2]


def test_bootstrap_waits_for_an_unresponsive_neighbour(net: Net) -> None:
    net.silent.add(net.address(2))
    ivan = net.node("Ivan", 1, (2,), bootstrap=True)
    net.run(60.0)
    assert mode(ivan) is Mode.DSC
    assert len(ivan.dialled) > 3
    net.silent.clear()
    assert net.run(20.0, lambda: mode(ivan) is Mode.WRK)


def test_bootstrap_forms_a_cluster_when_all_neighbours_refuse_connections(net: Net) -> None:
    ivan = net.node("Ivan", 1, (2, 3), bootstrap=True)
    boris = net.node("Boris", 4, (2, 3))
    assert net.run(2.5, lambda: mode(ivan) is Mode.WRK)
    net.run(60.0)
    assert mode(boris) is Mode.DSC
    assert boris.node.cluster_id == 0


def test_bootstrap_joins_an_existing_cluster(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    net.run(1.0)
    boris = net.node("Boris", 2, (1,), bootstrap=True)
    assert net.run(5.0, lambda: mode(boris) is Mode.WRK)
    assert boris.node.cluster_id == ivan.node.cluster_id
    assert members(boris) == ["Boris", "Ivan"]


def test_nodes_without_a_cluster_do_not_form_one_without_bootstrap(net: Net) -> None:
    boris = net.node("Boris", 2, (1,))
    ivan = net.node("Ivan", 1, (2,))
    net.run(30.0)
    assert {mode(ivan), mode(boris)} == {Mode.DSC}
    vera = net.node("Vera", 3, (1, 2), bootstrap=True)
    assert net.run(20.0, lambda: {mode(ivan), mode(boris), mode(vera)} == {Mode.WRK})
    assert len({host.node.cluster_id for host in (ivan, boris, vera)}) == 1


def test_neighbour_list_may_contain_the_node_itself_and_duplicates(net: Net) -> None:
    ivan = net.node("Ivan", 1, (1, 1))
    assert net.run(2.5, lambda: mode(ivan) is Mode.WRK)
    assert ivan.dialled == []
    boris = net.node("Boris", 2, (1, 2, 1, 1))
    assert net.run(5.0, lambda: mode(boris) is Mode.WRK)
    assert [address for _, address in boris.dialled].count(net.address(1)) == 1


def test_a_node_recognizes_itself_at_another_address(net: Net) -> None:
    ivan = net.node("Ivan", 1, (9,))
    net.listening[net.address(9)] = ivan
    assert net.run(8.0, lambda: mode(ivan) is Mode.WRK)
    net.run(10.0)
    assert members(ivan) == ["Ivan"]
    assert ivan.node.state(net.now).neighbours == ()
    assert warnings(ivan) == []


@pytest.mark.parametrize("secret", [None, SECRET])
def test_a_node_that_knows_only_a_follower_joins(net: Net, secret: bytes | None) -> None:
    net.node("Ivan", 1, secret=secret)
    boris = net.node("Boris", 2, (1,), secret=secret)
    assert net.run(8.0, lambda: mode(boris) is Mode.WRK)
    assert boris.node.state(net.now).leader == "Ivan"
    vera = net.node("Vera", 3, (2,), secret=secret)
    assert net.run(20.0, lambda: mode(vera) is Mode.WRK)


def test_a_joining_node_votes_once_it_has_the_events(net: Net) -> None:
    # A quorum of the new membership has to hold what one of the old held, and a snapshot brings no events.
    ivan = net.node("Ivan", 1)
    for number in range(60):
        ivan.call("publish", [b"%d" % number * 10_000], number)
    boris = net.node("Boris", 2, (1,))
    assert net.run(20.0, lambda: members(ivan) == ["Boris", "Ivan"])
    assert boris.node.read(1, 60, 100) == ivan.node.read(1, 60, 100)
    assert boris.node.oldest == 1


def test_a_node_with_events_but_without_state_does_not_bootstrap(net: Net) -> None:
    history = EventWindow(10**6)
    history.put([SequencedRun(1, "somebody", 1, 1, [b"x"])])
    alone = ClusterNode(NodeConfig("Ivan"), Random(1), 0.0, history=history)
    alone.tick(10.0)
    assert alone.mode is Mode.DSC
    alone.reform(10.0)
    alone.drain()
    assert (alone.mode, alone.sequence) == (Mode.WRK, 1)
