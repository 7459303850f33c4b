from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from parcels.harness import Host, Net
from parcels.node.harness import SECRET, STRANGE, answers_as, ask, counter, delivered, info, members, mode, warnings

from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    InstallSnapshot,
    InstallSnapshotReply,
    RequestVote,
    RequestVoteReply,
)
from fyrehose_twisted.parcels.events import MembershipChanged
from fyrehose_twisted.parcels.node.persistent_state import PersistentState
from fyrehose_twisted.parcels.simulation.scenarios import namesake
from fyrehose_twisted.parcels.wire.messages import (
    FetchEvents,
    FetchEventsReply,
    Heartbeat,
    Hello,
    Mode,
    Parcel,
    ParcelType,
    Proof,
    Publish,
    PublishAck,
    PublisherRun,
    PublishNack,
    RefusalReason,
    Refused,
    Welcome,
    node_id,
)


def test_separately_bootstrapped_clusters_do_not_merge(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    boris = net.node("Boris", 2)
    ivan.call("publish", [b"one"], 1)
    boris.call("publish", [b"other"], 1)
    vera = net.node("Vera", 3, (1,))
    assert net.run(5.0, lambda: mode(vera) is Mode.WRK)
    end = join_apart(net, ivan, "Boris", boris.node.cluster_id)
    assert [one.why for one in end.take() if isinstance(one, Refused)] == [RefusalReason.OTHER_FOUNDING]
    assert end.closed_by_peer
    assert any("two clusters" in text for text in warnings(ivan))
    assert members(ivan) == ["Ivan", "Vera"]


def join_apart(net: Net, host: Host, name: str, cluster_id: int) -> Any:
    end = net.connect(host)
    end.send(ask(info(name)), Hello("default", name, 99, cluster_id, bytes(16)))
    net.run(0.01)
    return end


def test_dialler_with_another_cluster_id_is_refused(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    state = PersistentState()
    boris = net.node("Boris", 2, state=state)
    net.run(2.0)
    boris.kill()
    # It remembers its cluster, and gets a neighbour of another cluster.
    boris = net.node("Boris", 2, (1,), state=state)
    net.run(5.0)
    for host in (ivan, boris):
        assert any("two clusters" in text for text in warnings(host))
    assert sum("refuses this node" in text for text in warnings(boris)) == 1  # Once, not for each refusal.
    assert members(ivan) == ["Ivan"]
    assert members(boris) == ["Boris"]
    assert mode(boris) is Mode.WRK


def test_repeated_refusals_of_one_peer_warn_once(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    for _ in range(5):
        join_apart(net, ivan, "Boris", 77)
    assert len(warnings(ivan)) == 1


def test_second_node_with_the_same_name_is_refused(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    other = net.node("Ivan", 2, (1,), seed=77)
    net.run(12.0)
    assert mode(other) is Mode.DSC
    assert members(ivan) == ["Ivan"]
    for host in (ivan, other):
        assert [text for text in warnings(host) if "'Ivan'" in text and "another name" in text]
        assert len(warnings(host)) == 1  # Once, not for each refusal.
    assert ivan.node.state(net.now).neighbours == ()


def test_name_of_a_member_is_refused_until_the_member_is_gone(trio: tuple[Host, Host, Host], net: Net) -> None:
    other = net.node("Vera", 4, (1, 2), seed=77)
    net.run(12.0)
    assert mode(other) is Mode.DSC
    assert trio[2].node.state(net.now).incarnation in {one.incarnation for one in trio[0].node.state(net.now).members}
    assert {mode(host) for host in trio} == {Mode.WRK}
    trio[2].kill()
    # Once the member is removed, its name is free.
    assert net.run(20.0, lambda: mode(other) is Mode.WRK)
    assert members(trio[0]) == ["Boris", "Ivan", "Vera"]


def same_ids() -> tuple[str, str]:
    seen: dict[int, str] = {}
    for number in count():
        name = f"node {number}"
        other = seen.setdefault(node_id(name), name)
        if other != name:
            return other, name
    raise AssertionError


def test_second_node_with_the_same_id_is_refused(net: Net) -> None:
    one, two = same_ids()
    first = net.node(one, 1)
    second = net.node(two, 2, (1,))
    net.run(8.0)
    assert mode(second) is Mode.DSC
    assert members(first) == [one]
    for host in (first, second):
        assert any("same id" in text and one in text and two in text for text in warnings(host))
    assert counter(first, "dropped_id_taken") > 0


def test_node_of_another_cluster_name_is_refused(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    boris = net.node("Boris", 2, (1,), cluster="other")
    net.run(8.0)
    assert mode(boris) is Mode.DSC
    assert ivan.node.state(net.now).neighbours == boris.node.state(net.now).neighbours == ()
    assert any("cluster" in text for text in warnings(ivan))
    assert any("cluster" in text for text in warnings(boris))
    end = net.connect(ivan)
    end.send(ask(info("Olga")), Hello("other", "Olga", 99, 0, bytes(16)))
    net.run(0.1)
    assert [one.why for one in end.take() if isinstance(one, Refused)] == [RefusalReason.WRONG_CLUSTER]
    assert end.closed_by_peer


@pytest.mark.parametrize(("here", "there"), [(SECRET, SECRET[::-1]), (SECRET, None), (None, SECRET)])
def test_node_with_another_secret_is_refused(net: Net, here: bytes | None, there: bytes | None) -> None:
    ivan = net.node("Ivan", 1, secret=here)
    boris = net.node("Boris", 2, (1,), secret=there)
    net.run(8.0)
    assert mode(boris) is Mode.DSC
    assert members(ivan) == ["Ivan"]
    assert boris.node.cluster_id == 0
    assert any("secret" in text for text in (*warnings(ivan), *warnings(boris)))
    if here is not None:
        assert ivan.node.state(net.now).neighbours == ()
    if there is not None:
        assert boris.node.state(net.now).neighbours == ()


def test_nodes_with_the_same_secret_form_a_cluster(net: Net) -> None:
    ivan = net.node("Ivan", 1, secret=SECRET)
    boris = net.node("Boris", 2, (1,), secret=SECRET)
    assert net.run(8.0, lambda: mode(boris) is Mode.WRK)
    vera = net.node("Vera", 3, (1, 2), secret=SECRET)
    assert net.run(8.0, lambda: mode(vera) is Mode.WRK)
    assert members(ivan) == ["Boris", "Ivan", "Vera"]


def test_a_peer_without_the_secret_is_refused(net: Net) -> None:
    ivan = net.node("Ivan", 1, secret=SECRET)
    end = net.connect(ivan)
    end.send(Hello("default", "", 0, 0, bytes(16)))
    net.run(0.01)
    end.send(Proof(bytes(32)))
    net.run(0.01)
    assert [one.why for one in end.take() if isinstance(one, Refused)] == [RefusalReason.WRONG_SECRET]
    assert end.closed_by_peer
    assert counter(ivan, "dropped_wrong_secret") == 1
    # An omitted or premature proof is refused as well.
    for messages in (
        (Publish(PublisherRun("p", 0, 1, [b"x"])),),
        (Proof(b""), Publish(PublisherRun("p", 0, 1, [b"x"]))),
    ):
        end = net.connect(ivan)
        end.send(*messages)
        net.run(0.1)
        assert end.closed_by_peer
    end = net.connect(ivan)
    end.send(Hello("default", "", 0, 0, bytes(16)), Publish(PublisherRun("p", 0, 1, [b"x"])))
    net.run(0.1)
    assert end.closed_by_peer
    assert delivered(ivan) == []


@pytest.mark.parametrize(
    "message",
    [
        AppendEntries(9, 0, 0, 0, []),
        RequestVote(9, 9, 9, False),
        Publish(PublisherRun("p", 0, 1, [b"x"])),
        Heartbeat(Mode.WRK, 9, 9),
        FetchEvents(1, 9),
        InstallSnapshot(9, 9, 9, 0, 1, b"x"),
        AppendEntriesReply(9, True, 9),
        RequestVoteReply(9, True, False),
        InstallSnapshotReply(9, 9, 9),
        FetchEventsReply(1, []),
        PublishAck("p", 0, 1, ((1, 1),)),
        PublishNack("p", 0, 1, RefusalReason.NO_QUORUM, ""),
        Welcome("Olga", 1, 0, bytes(16), b""),
        Refused(RefusalReason.NO_QUORUM, ""),
        Proof(b""),
    ],
)
def test_requests_before_hello_are_refused(net: Net, message: Any) -> None:
    ivan = net.node("Ivan", 1)
    for opening in ((), (ask(info("Olga")),)):
        end = net.connect(ivan)
        end.send(*opening, message)
        net.run(0.1)
        assert [type(one) for one in end.take() if not isinstance(one, Parcel)] == [Refused]
        assert end.closed_by_peer
    assert ivan.node.state(net.now).term == 1
    assert delivered(ivan) == []


def test_requests_before_proof_are_refused(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    end = net.connect(ivan)
    end.send(ask(info("Olga")), Hello("default", "Olga", 99, 0, bytes(16)), RequestVote(9, 9, 9, False))
    net.run(0.1)
    assert isinstance(end.take()[-1], Refused)
    assert end.closed_by_peer


def test_hello_without_a_preceding_discovery_request_is_refused(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    for opening in ((), (ask(info("Petr")),)):
        end = net.connect(ivan)
        end.send(*opening, Hello("default", "Olga", 99, 0, bytes(16)))
        net.run(0.1)
        assert isinstance(end.take()[-1], Refused)
        assert end.closed_by_peer


def connect_unauthenticated(net: Net, node: Any, number: int) -> None:
    """Connect a reference peer that also answers where it says that it listens."""
    host = f"10.0.1.{number}"
    net.play((host, 7_878), answers_as(info(f"n{number}", host, incarnation=None)))
    net.connect(node, host).send(ask(info(f"n{number}", host, incarnation=None)))


def test_neighbours_over_the_limit_are_dropped_and_counted(net: Net) -> None:
    ivan = net.node("Ivan", 1, max_neighbours=2)
    for number in range(5):
        host = f"10.0.0.{90 + number}"
        net.connect(ivan, host).send(ask(info(f"n{number}", host)))
    net.run(0.1)
    assert len(ivan.node.state(net.now).neighbours) == 2
    assert counter(ivan, "dropped_too_many_neighbours") == 3


def test_one_address_cannot_fill_the_neighbour_table(net: Net) -> None:
    ivan = net.node("Ivan", 1, max_neighbours=8)
    for number in range(9):
        net.connect(ivan).send(ask(info(f"n{number}", port=9_000 + number)))
    net.run(0.1)
    assert len(ivan.node.state(net.now).neighbours) == 4
    assert counter(ivan, "dropped_too_many_neighbours") == 5
    net.connect(ivan, "10.0.0.98").send(ask(info("Boris", "10.0.0.98")))
    net.run(0.1)
    assert "Boris" in {one.name for one in ivan.node.state(net.now).neighbours}


def test_unauthenticated_nodes_leave_room_for_authenticated_ones(net: Net) -> None:
    ivan = net.node("Ivan", 1, max_neighbours=8, secret=SECRET)
    for number in range(40):
        connect_unauthenticated(net, ivan, number)
    net.run(0.1)
    assert len(ivan.node.state(net.now).neighbours) == 2
    assert counter(ivan, "dropped_too_many_neighbours") >= 38
    for number in range(2, 6):
        net.node(f"Boris-{number}", number, (1,), secret=SECRET)
    net.run(5.0)
    assert len(ivan.node.state(net.now).members) == 5


def test_unauthenticated_nodes_listed_by_a_member_stay_unauthenticated(net: Net) -> None:
    ivan = net.node("Ivan", 1, max_neighbours=8, secret=SECRET)
    for number in range(2):
        connect_unauthenticated(net, ivan, number)
    net.run(0.1)
    net.node("Boris", 2, (1,), secret=SECRET)
    net.run(2.0)
    vera = net.node("Vera", 3, (1,), secret=SECRET)
    net.run(2.0)
    targets = vera.node.components.links.targets
    assert {host[0]: one.trusted for host, one in targets.items() if not one.configured} == {
        "10.0.0.2": True,
        "10.0.1.0": False,
        "10.0.1.1": False,
    }


@pytest.mark.parametrize("name", ["Boris", namesake("Boris")])
def test_authenticated_node_takes_its_name_or_id_from_an_unauthenticated_one(net: Net, name: str) -> None:
    ivan = net.node("Ivan", 1, secret=SECRET)
    net.play((STRANGE, 7_878), answers_as(info(name, STRANGE, incarnation=None)))
    net.connect(ivan, STRANGE).send(ask(info(name, STRANGE, incarnation=None)))
    net.run(0.1)
    assert {one.name for one in ivan.node.state(net.now).neighbours} == {name}
    boris = net.node("Boris", 2, (1,), secret=SECRET)
    net.run(10.0)
    assert {one.name for one in ivan.node.state(net.now).members} == {"Ivan", "Boris"}
    assert boris.node.mode is Mode.WRK
    assert {(one.name, one.ours) for one in ivan.node.state(net.now).neighbours} == {("Boris", True)}


def test_inbound_connections_over_the_limit_are_closed_and_counted(net: Net) -> None:
    ivan = net.node("Ivan", 1, max_links=2)
    ends = [net.connect(ivan) for _ in range(3)]
    net.run(0.1)
    assert [end.closed_by_peer for end in ends] == [False, False, True]
    assert counter(ivan, "dropped_too_many_links") == 1
    ends[0].close()
    net.run(0.1)
    assert not net.connect(ivan).closed_by_peer


@pytest.mark.parametrize("name", ["", "n" * 65, "\u00fc" * 33, "a\nb", "\x1b[2J", "\u200b"])
@pytest.mark.parametrize("incarnation", [None, 99])
def test_an_invalid_name_is_refused(net: Net, name: str, incarnation: int | None) -> None:
    ivan = net.node("Ivan", 1, (2,))
    bad = info(name, "10.0.0.2", incarnation=incarnation)
    asked = net.play(("10.0.0.2", 7_878), answers_as(bad))
    end = net.connect(ivan, "10.0.0.2")
    end.send(ask(bad))
    net.run(0.1)
    (answer,) = end.take()
    assert answer.type is ParcelType.PROTO_ERROR
    assert "use 1 to 64 bytes of printable text" in answer.data.decode()
    net.run(0.5)
    assert asked.said
    assert ivan.node.state(net.now).neighbours == ()
    assert counter(ivan, "dropped_bad_name") >= 2


def test_discovery_request_over_the_connection_limit_gets_a_protocol_error(net: Net) -> None:
    ivan = net.node("Ivan", 1, max_links=1)
    net.connect(ivan)
    end = net.connect(ivan)
    end.send(ask(info("Olga", incarnation=None)))
    net.run(0.1)
    assert [one.type for one in end.take()] == [ParcelType.PROTO_ERROR]


def test_idle_inbound_connection_is_closed(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    end = net.connect(ivan)
    net.run(29.0)
    assert not end.closed_by_peer
    net.run(3.0)
    assert end.closed_by_peer
    assert counter(ivan, "dropped_idle") == 1


def test_address_of_a_third_host_is_not_dialled(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    victim = net.play(7)
    for incarnation in (None, 99):
        end = net.connect(ivan, "10.0.0.99")
        end.send(ask(info(f"Olga{incarnation}", "10.0.0.7", incarnation=incarnation)))
        net.run(10.0)
        assert [one.type for one in end.take()] == [ParcelType.DSC_RES]
    assert victim.accepted == []
    assert ivan.dialled == []
    assert any("10.0.0.7" in text for text in warnings(ivan))


def test_address_of_a_third_host_is_not_dialled_by_a_node_with_a_secret(net: Net) -> None:
    ivan = net.node("Ivan", 1, secret=SECRET)
    victim = net.play(7)
    net.connect(ivan, "10.0.0.99").send(ask(info("Olga", "10.0.0.7", incarnation=None)))
    net.run(10.0)
    assert victim.accepted == []


@pytest.mark.parametrize(("secret", "incarnation"), [(SECRET, None), (SECRET, 99), (None, None)])
def test_a_request_in_a_members_name_does_not_affect_the_member(
    net: Net, secret: bytes | None, incarnation: int | None
) -> None:
    ivan = net.node("Ivan", 1, secret=secret)
    net.node("Boris", 2, (1,), secret=secret)
    net.node("Vera", 3, (1, 2), secret=secret)
    assert net.run(20.0, lambda: members(ivan) == ["Boris", "Ivan", "Vera"])
    net.run(3.0)
    views = len(ivan.of(MembershipChanged))
    net.connect(ivan, "10.0.0.2").send(ask(info("Boris", "10.0.0.2", incarnation=incarnation)))
    net.run(3.0)
    assert len(ivan.of(MembershipChanged)) == views


@pytest.mark.parametrize("name", ["Ivan", "Boris"])
def test_discovery_request_with_a_taken_name_and_a_wrong_id_is_refused(net: Net, name: str) -> None:
    ivan = net.node("Ivan", 1)
    boris = net.node("Boris", 2, (1,))
    assert net.run(5.0, lambda: mode(boris) is Mode.WRK)
    end = net.connect(ivan)
    end.send(ask(info(name)._replace(id=1)))
    net.run(0.01)
    assert [one.type for one in end.take()] == [ParcelType.PROTO_ERROR]
