from __future__ import annotations

import pytest
from parcels.harness import Host, Net
from parcels.node.harness import delivered, members, mode, modes, warnings

from fyrehose_twisted.errors import LocalError, NotOrdered
from fyrehose_twisted.parcels.events import EventsSkipped, NeighbourRemoved, PublishConfirmed, PublishUnconfirmed
from fyrehose_twisted.parcels.node.ordering.backfill import REPLY_TIMEOUT
from fyrehose_twisted.parcels.node.persistent_state import PersistentState
from fyrehose_twisted.parcels.wire.messages import Heartbeat, Mode, RefusalReason


def test_killed_leader_is_replaced_within_2_seconds(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, vera = trio
    boris.call("publish", [b"1"], 1)
    net.run(0.5)
    ivan.kill()
    boris.call("publish", [b"2"], 2)
    # A refused connection is detected without a timeout.
    assert net.run(2.0, lambda: len(boris.of(PublishConfirmed)) == 2)
    assert net.run(2.0, lambda: members(vera) == ["Boris", "Vera"])
    assert delivered(boris) == [b"1", b"2"]
    net.run(0.5)
    assert delivered(vera) == [b"1", b"2"]
    assert [one.name for one in vera.of(NeighbourRemoved)] == ["Ivan"]
    assert boris.node.state(net.now).leader in ("Boris", "Vera")
    assert boris.of(PublishUnconfirmed) == []


def test_silent_member_is_removed_after_5_seconds_and_may_return(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, vera = trio
    vera.up = False  # It hangs with its connections open.
    net.run(4.0)
    assert members(ivan) == ["Boris", "Ivan", "Vera"]
    assert net.run(3.0, lambda: members(ivan) == ["Boris", "Ivan"])
    net.run(1.5)
    assert [one.name for one in boris.of(NeighbourRemoved)] == ["Vera"]
    assert "silent" in boris.of(NeighbourRemoved)[0].reason
    vera.up = True
    vera.flush()
    assert net.run(30.0, lambda: members(ivan) == ["Boris", "Ivan", "Vera"] and mode(vera) is Mode.WRK)


def test_minority_orders_no_events_and_fails_pending_ones(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, vera = trio
    boris.kill()
    vera.kill()
    ivan.call("publish", [b"lost"], 1)
    assert mode(ivan) is Mode.WRK
    assert net.run(12.0, lambda: mode(ivan) is Mode.ERR)
    assert [(one.token, one.reason, one.unknown) for one in ivan.of(PublishUnconfirmed)] == [
        (1, RefusalReason.NO_QUORUM, True)
    ]
    assert ivan.of(PublishConfirmed) == []
    assert delivered(ivan) == []
    with pytest.raises(NotOrdered, match="quorum"):
        ivan.node.publish([b"x"], 2, net.now)
    assert ivan.node.state(net.now).leader is None
    assert members(ivan) == ["Boris", "Ivan", "Vera"]


def test_restarted_majority_with_state_resumes_ordering(net: Net) -> None:
    memories = [PersistentState() for _ in range(3)]
    net.node("Ivan", 1, (2, 3), bootstrap=True, state=memories[0])
    net.run(1.2)
    for name, number in (("Boris", 2), ("Vera", 3)):
        net.node(name, number, (1,), state=memories[number - 1])
    hosts = net.hosts
    assert net.run(20.0, lambda: all(members(host) == ["Boris", "Ivan", "Vera"] for host in hosts.values()))
    net.run(2.0)
    hosts["Vera"].call("publish", [b"1", b"2"], 1)
    net.run(1.0)
    cluster_id, incarnations = hosts["Ivan"].node.cluster_id, {name: host.node.me for name, host in hosts.items()}
    for host in list(hosts.values()):
        host.kill()
    net.run(60.0)
    for name, number in (("Ivan", 1), ("Boris", 2), ("Vera", 3)):
        net.node(name, number, (1, 2, 3), state=memories[number - 1])
    assert net.run(20.0, lambda: all(mode(host) is Mode.WRK for host in hosts.values()))
    assert {name: host.node.me for name, host in hosts.items()} == incarnations
    assert {host.node.cluster_id for host in hosts.values()} == {cluster_id}
    hosts["Boris"].call("publish", [b"3"], 1)
    net.run(1.0)
    assert hosts["Boris"].of(PublishConfirmed) == [PublishConfirmed(1, ((3, 1),))]


def test_restarted_node_without_state_joins_as_a_new_member(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, vera = trio
    boris.call("publish", [b"1", b"2"], 1)
    net.run(0.5)
    before = vera.node.me
    vera.kill()
    again = net.node("Vera", 3, (1, 2), seed=1234)
    assert net.run(15.0, lambda: mode(again) is Mode.WRK)
    assert again.node.me != before
    assert delivered(again) == [b"1", b"2"]
    assert again.of(EventsSkipped) == []
    assert members(ivan) == ["Boris", "Ivan", "Vera"]
    assert ivan.node.state(net.now).quorum == 2


def test_joining_node_gets_the_events_of_members_that_are_slow_to_answer(
    trio: tuple[Host, Host, Host], net: Net
) -> None:
    ivan, boris, vera = trio
    boris.call("publish", [b"1", b"2"], 1)
    net.run(0.5)
    vera.kill()
    again = net.node("Vera", 3, (1, 2), seed=1234)
    assert net.run(15.0, lambda: again.node._delivery.backfill is not None)
    ivan.up = boris.up = False
    net.run(2 * REPLY_TIMEOUT + 0.1)
    for host in (ivan, boris):
        host.up = True
        host.flush()
    assert net.run(30.0, lambda: mode(again) is Mode.WRK)
    assert delivered(again) == [b"1", b"2"]
    assert again.node.oldest == 1


def test_joining_node_gets_the_events_of_members_to_which_its_links_are_not_ready(
    trio: tuple[Host, Host, Host], net: Net
) -> None:
    ivan, boris, vera = trio
    boris.call("publish", [b"1", b"2"], 1)
    net.run(0.5)
    vera.kill()
    again = net.node("Vera", 3, (1, 2), seed=1234)
    assert net.run(15.0, lambda: again.node._delivery.backfill is not None)
    links = again.node.components.links
    ready = dict(links.ready_targets)
    links.ready_targets.clear()
    ivan.up = boris.up = False
    net.run(REPLY_TIMEOUT + 0.1)
    links.ready_targets.update(ready)
    for host in (ivan, boris):
        host.up = True
        host.flush()
    assert net.run(30.0, lambda: mode(again) is Mode.WRK)
    assert delivered(again) == [b"1", b"2"]


def test_cluster_stops_when_two_of_three_nodes_lost_their_state(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, vera = trio
    for host in (boris, vera):
        host.kill()
    one = net.node("Boris", 2, (1, 3), seed=1234)
    other = net.node("Vera", 3, (1, 2), seed=1235)
    net.run(40.0)
    assert {mode(host) for host in (ivan, one, other)} <= {Mode.ERR, Mode.SEQ_RECOVERY}
    assert mode(ivan) is Mode.ERR


def test_leaving_member_is_removed_and_stops(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, vera = trio
    vera.call("leave")
    assert mode(vera) is Mode.SHUTDOWN
    assert not vera.node.has_stopped
    with pytest.raises(NotOrdered):
        vera.node.publish([b"x"], 1, net.now)
    assert net.run(2.0, lambda: members(ivan) == members(boris) == ["Boris", "Ivan"])
    assert net.run(2.0, lambda: vera.node.has_stopped)
    assert vera.ends == {}
    said = len(vera.wrote)
    vera.call("tick")
    assert len(vera.wrote) == said
    assert {mode(ivan), mode(boris)} == {Mode.WRK}
    vera.call("leave")
    assert modes(vera)[-1] is Mode.SHUTDOWN


def test_a_leaving_leader_is_replaced(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, vera = trio
    ivan.call("publish", [b"on its way"], 1)
    ivan.call("leave")
    boris.call("publish", [b"x"], 2)
    assert net.run(1.5, lambda: len(boris.of(PublishConfirmed)) == 1)
    assert net.run(2.0, lambda: members(vera) == ["Boris", "Vera"])
    assert len(ivan.of(PublishConfirmed)) + len(ivan.of(PublishUnconfirmed)) == 1


def test_a_single_node_leaves_at_once(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    ivan.call("leave")
    net.run(0.1)
    assert ivan.node.has_stopped


def test_panicked_node_fails_pending_events_and_stops(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, _vera = trio
    ivan.call("publish", [b"x"], 1)
    ivan.call("panic", "the disk is full")
    assert mode(ivan) is Mode.PANIC
    assert ivan.node.has_stopped
    assert ivan.node.state(net.now).why == "the disk is full"
    assert [one.token for one in ivan.of(PublishUnconfirmed)] == [1]
    with pytest.raises(NotOrdered):
        ivan.node.publish([b"x"], 2, net.now)
    said = len(ivan.wrote)
    boris.call("publish", [b"y"], 3)
    ivan.call("tick")
    assert [type(one) for _, _, one in ivan.wrote[said:] if not isinstance(one, Heartbeat)] == []


def test_reform_is_refused_with_a_quorum(trio: tuple[Host, Host, Host], net: Net) -> None:
    with pytest.raises(LocalError):
        trio[0].node.reform(net.now)
    trio[2].call("leave")
    with pytest.raises(LocalError):
        trio[2].node.reform(net.now)
    trio[1].call("panic", "x")
    with pytest.raises(LocalError):
        trio[1].node.reform(net.now)


def test_reform_creates_a_new_cluster_id_and_keeps_the_events(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, vera = trio
    ivan.call("publish", [b"1", b"2"], 1)
    net.run(1.0)
    cluster_id = ivan.node.cluster_id
    ivan.kill()
    vera.kill()
    assert net.run(12.0, lambda: mode(boris) is Mode.ERR)
    boris.call("reform")
    assert mode(boris) is Mode.WRK
    assert members(boris) == ["Boris"]
    assert boris.node.cluster_id not in (0, cluster_id)
    boris.call("publish", [b"3"], 3)
    assert boris.read() == [(1, b"1"), (2, b"2"), (3, b"3")]
    again = net.node("Vera", 3, (2,), seed=99)
    assert net.run(10.0, lambda: mode(again) is Mode.WRK)
    assert again.node.cluster_id == boris.node.cluster_id
    assert again.read() == boris.read()


def test_reform_refuses_connected_nodes_of_the_old_cluster(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, vera = trio
    net.hosts.pop("Vera")
    vera.kill()
    assert net.run(12.0, lambda: members(ivan) == ["Boris", "Ivan"])
    boris.kill()
    again = net.node("Boris", 2, (1,), seed=99)  # It lost its state, so too few members are left.
    assert net.run(20.0, lambda: mode(ivan) is Mode.ERR)
    net.run(3.0)
    ivan.call("reform")
    assert mode(ivan) is Mode.WRK
    net.run(0.5)
    assert any("two clusters" in text for text in (*warnings(ivan), *warnings(again)))
    assert members(ivan) == ["Ivan"]


def test_reform_without_a_cluster_creates_one(net: Net) -> None:
    ivan = net.node("Ivan", 1, (2,))
    net.run(5.0)
    ivan.call("reform")
    assert mode(ivan) is Mode.WRK


def test_member_may_restart_without_state_at_another_address(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, _boris, vera = trio
    vera.kill()
    again = net.node("Vera", 5, (1, 2), seed=1234)
    assert net.run(30.0, lambda: mode(again) is Mode.WRK)
    assert members(ivan) == ["Boris", "Ivan", "Vera"]
    assert ("Vera", "10.0.0.5:7878") in [(one.name, one.address) for one in ivan.node.state(net.now).members]
