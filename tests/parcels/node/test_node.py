from __future__ import annotations

from itertools import count
from random import Random
from typing import Any
from zlib import crc32

import pytest
from parcels.harness import Host, Wires
from zope.interface.verify import verifyObject

from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    EntryKind,
    InstallSnapshot,
    InstallSnapshotReply,
    LogEntry,
    MemberId,
    RequestVote,
    RequestVoteReply,
)
from fyrehose_twisted.errors import EventsNotHeld, LocalError, MessageTooLarge, NotOrdered, PublishQueueFull
from fyrehose_twisted.interfaces import ILinkNode
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.events import (
    EventsDelivered,
    EventsSkipped,
    MembershipChanged,
    ModeChanged,
    NeighbourAdded,
    NeighbourRemoved,
    OperatorWarning,
    PublishConfirmed,
    PublishUnconfirmed,
)
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.node.ordering.history import EventWindow, SequencedRun
from fyrehose_twisted.parcels.node.persistent_state import PersistentState
from fyrehose_twisted.parcels.simulation.scenarios import namesake
from fyrehose_twisted.parcels.wire.auth import dialler_proof
from fyrehose_twisted.parcels.wire.messages import (
    Extension,
    FetchEvents,
    FetchEventsReply,
    Heartbeat,
    Hello,
    Message,
    Mode,
    NodeInfo,
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

TAG = crc32(b"default")
SECRET = b"0123456789abcdef"
STRANGE = "10.0.1.1"


def info(name: str, host: str = "10.0.0.99", port: int = 7_878, incarnation: int | None = 99) -> NodeInfo:
    ours = None if incarnation is None else Extension(1, incarnation, TAG)
    return NodeInfo(node_id(name), Mode.DSC, name, (host, port), ours)


def answers_as(about: NodeInfo) -> Any:
    """Return a reference peer's callback that answers discovery requests."""

    def answer(end: Any, message: Message) -> None:
        if isinstance(message, Parcel) and message.type is ParcelType.DSC_REQ:
            end.send(Parcel(True, ParcelType.DSC_RES, about.id, (about,)))

    return answer


def ask(about: NodeInfo) -> Parcel:
    return Parcel(False, ParcelType.DSC_REQ, about.id, about)


def join(wires: Wires, host: Host, name: str, founding: int | None = None, secret: bytes | None = None) -> Any:
    """Connect to a node as another node of its cluster."""
    end = wires.call(host)
    hello = Hello("default", name, 99, host.node.cluster_id if founding is None else founding, bytes(16))
    end.send(ask(info(name)), hello)
    wires.run(0.01)
    welcome = next(one for one in end.take() if isinstance(one, Welcome))
    end.send(Proof(dialler_proof(secret, hello, welcome)))
    wires.run(0.01)
    return end


def connect(wires: Wires, host: Any) -> Any:
    """Connect to a node as an external publisher."""
    end = wires.call(host)
    end.send(Hello("default", "", 0, 0, bytes(16)))
    wires.run(0.01)
    end.send(Proof(b""))
    wires.run(0.01)
    end.take()
    return end


def delivered(host: Any) -> list[bytes]:
    return [event.data for one in host.of(EventsDelivered) for event in one.events]


def mode(host: Any) -> Mode:
    return host.node.mode


def warnings(host: Any) -> list[str]:
    return [one.text for one in host.of(OperatorWarning)]


def counter(host: Any, name: str) -> int:
    return host.node.state(host.wires.now).counters.get(name, 0)


def members(host: Any) -> list[str]:
    return [one.name for one in host.node.state(host.wires.now).members]


def modes(host: Any) -> list[Mode]:
    return [one.mode for one in host.of(ModeChanged)]


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


def test_three_nodes_agree_on_one_order(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    for number in range(30):
        trio[number % 3].tell("publish", [b"%d" % number, b"and"], number)
        if number % 7 == 0:
            wires.run(0.002)
    wires.run(1.0)
    lists = [host.read() for host in trio]
    assert lists[0] == lists[1] == lists[2]
    assert len(lists[0]) == 60
    for at, host in enumerate(trio):
        answers = {one.token: one.numbers for one in host.of(PublishConfirmed)}
        assert sorted(answers) == list(range(at, 30, 3))
        for token, numbers in answers.items():
            places = [first + step for first, many in numbers for step in range(many)]
            assert [data for number, data in host.read() if number in places] == [b"%d" % token, b"and"]


def test_publish_is_confirmed_after_the_delivery_of_its_events(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    for host in trio:
        host.tell("publish", [b"1", b"2", b"3"], "x")
    wires.run(1.0)
    for host in trio:
        last = 0
        for one in host.told:
            if isinstance(one, EventsDelivered):
                last = one.events[-1].sequence
            elif isinstance(one, PublishConfirmed):
                assert all(first + many - 1 <= last for first, many in one.numbers)
        assert len(host.of(PublishConfirmed)) == 1


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


def test_separately_bootstrapped_clusters_do_not_merge(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    boris = wires.node("Boris", 2)
    ivan.tell("publish", [b"one"], 1)
    boris.tell("publish", [b"other"], 1)
    vera = wires.node("Vera", 3, (1,))
    assert wires.run(5.0, lambda: mode(vera) is Mode.WRK)
    end = join_apart(wires, ivan, "Boris", boris.node.cluster_id)
    assert [one.why for one in end.take() if isinstance(one, Refused)] == [RefusalReason.OTHER_FOUNDING]
    assert end.hung_up
    assert any("two clusters" in text for text in warnings(ivan))
    assert members(ivan) == ["Ivan", "Vera"]


def join_apart(wires: Wires, host: Host, name: str, founding: int) -> Any:
    end = wires.call(host)
    end.send(ask(info(name)), Hello("default", name, 99, founding, bytes(16)))
    wires.run(0.01)
    return end


def test_dialler_with_another_cluster_id_is_refused(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    promises = PersistentState()
    boris = wires.node("Boris", 2, promises=promises)
    wires.run(2.0)
    boris.kill()
    # It remembers its cluster, and gets a neighbour of another cluster.
    boris = wires.node("Boris", 2, (1,), promises=promises)
    wires.run(5.0)
    for host in (ivan, boris):
        assert any("two clusters" in text for text in warnings(host))
    assert sum("refuses this node" in text for text in warnings(boris)) == 1  # Once, not for each refusal.
    assert members(ivan) == ["Ivan"]
    assert members(boris) == ["Boris"]
    assert mode(boris) is Mode.WRK


def test_repeated_refusals_of_one_peer_warn_once(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    for _ in range(5):
        join_apart(wires, ivan, "Boris", 77)
    assert len(warnings(ivan)) == 1


def test_second_node_with_the_same_name_is_refused(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    other = wires.node("Ivan", 2, (1,), seed=77)
    wires.run(12.0)
    assert mode(other) is Mode.DSC
    assert members(ivan) == ["Ivan"]
    for host in (ivan, other):
        assert [text for text in warnings(host) if "'Ivan'" in text and "another name" in text]
        assert len(warnings(host)) == 1  # Once, not for each refusal.
    assert ivan.node.state(wires.now).neighbours == ()


def test_name_of_a_member_is_refused_until_the_member_is_gone(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    other = wires.node("Vera", 4, (1, 2), seed=77)
    wires.run(12.0)
    assert mode(other) is Mode.DSC
    assert trio[2].node.state(wires.now).incarnation in {
        one.incarnation for one in trio[0].node.state(wires.now).members
    }
    assert {mode(host) for host in trio} == {Mode.WRK}
    trio[2].kill()
    # Once the member is removed, its name is free.
    assert wires.run(20.0, lambda: mode(other) is Mode.WRK)
    assert members(trio[0]) == ["Boris", "Ivan", "Vera"]


def same_ids() -> tuple[str, str]:
    seen: dict[int, str] = {}
    for number in count():
        name = f"node {number}"
        other = seen.setdefault(node_id(name), name)
        if other != name:
            return other, name
    raise AssertionError


def test_second_node_with_the_same_id_is_refused(wires: Wires) -> None:
    one, two = same_ids()
    first = wires.node(one, 1)
    second = wires.node(two, 2, (1,))
    wires.run(8.0)
    assert mode(second) is Mode.DSC
    assert members(first) == [one]
    for host in (first, second):
        assert any("same id" in text and one in text and two in text for text in warnings(host))
    assert counter(first, "dropped_id_taken") > 0


def test_node_of_another_cluster_name_is_refused(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    boris = wires.node("Boris", 2, (1,), cluster="other")
    wires.run(8.0)
    assert mode(boris) is Mode.DSC
    assert ivan.node.state(wires.now).neighbours == boris.node.state(wires.now).neighbours == ()
    assert any("cluster" in text for text in warnings(ivan))
    assert any("cluster" in text for text in warnings(boris))
    end = wires.call(ivan)
    end.send(ask(info("Olga")), Hello("other", "Olga", 99, 0, bytes(16)))
    wires.run(0.1)
    assert [one.why for one in end.take() if isinstance(one, Refused)] == [RefusalReason.WRONG_CLUSTER]
    assert end.hung_up


@pytest.mark.parametrize(("here", "there"), [(SECRET, SECRET[::-1]), (SECRET, None), (None, SECRET)])
def test_node_with_another_secret_is_refused(wires: Wires, here: bytes | None, there: bytes | None) -> None:
    ivan = wires.node("Ivan", 1, secret=here)
    boris = wires.node("Boris", 2, (1,), secret=there)
    wires.run(8.0)
    assert mode(boris) is Mode.DSC
    assert members(ivan) == ["Ivan"]
    assert boris.node.cluster_id == 0
    assert any("secret" in text for text in (*warnings(ivan), *warnings(boris)))
    if here is not None:
        assert ivan.node.state(wires.now).neighbours == ()
    if there is not None:
        assert boris.node.state(wires.now).neighbours == ()


def test_nodes_with_the_same_secret_form_a_cluster(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, secret=SECRET)
    boris = wires.node("Boris", 2, (1,), secret=SECRET)
    assert wires.run(8.0, lambda: mode(boris) is Mode.WRK)
    vera = wires.node("Vera", 3, (1, 2), secret=SECRET)
    assert wires.run(8.0, lambda: mode(vera) is Mode.WRK)
    assert members(ivan) == ["Boris", "Ivan", "Vera"]


@pytest.mark.parametrize(
    "secret",
    [None, SECRET],
)
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


def test_a_peer_without_the_secret_is_refused(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, secret=SECRET)
    end = wires.call(ivan)
    end.send(Hello("default", "", 0, 0, bytes(16)))
    wires.run(0.01)
    end.send(Proof(bytes(32)))
    wires.run(0.01)
    assert [one.why for one in end.take() if isinstance(one, Refused)] == [RefusalReason.WRONG_SECRET]
    assert end.hung_up
    assert counter(ivan, "dropped_wrong_secret") == 1
    # An omitted or premature proof is refused as well.
    for messages in (
        (Publish(PublisherRun("p", 0, 1, [b"x"])),),
        (Proof(b""), Publish(PublisherRun("p", 0, 1, [b"x"]))),
    ):
        end = wires.call(ivan)
        end.send(*messages)
        wires.run(0.1)
        assert end.hung_up
    end = wires.call(ivan)
    end.send(Hello("default", "", 0, 0, bytes(16)), Publish(PublisherRun("p", 0, 1, [b"x"])))
    wires.run(0.1)
    assert end.hung_up
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
def test_requests_before_hello_are_refused(wires: Wires, message: Any) -> None:
    ivan = wires.node("Ivan", 1)
    for opening in ((), (ask(info("Olga")),)):
        end = wires.call(ivan)
        end.send(*opening, message)
        wires.run(0.1)
        assert [type(one) for one in end.take() if not isinstance(one, Parcel)] == [Refused]
        assert end.hung_up
    assert ivan.node.state(wires.now).term == 1
    assert delivered(ivan) == []


def test_requests_before_proof_are_refused(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    end = wires.call(ivan)
    end.send(ask(info("Olga")), Hello("default", "Olga", 99, 0, bytes(16)), RequestVote(9, 9, 9, False))
    wires.run(0.1)
    assert isinstance(end.take()[-1], Refused)
    assert end.hung_up


def test_hello_without_a_preceding_discovery_request_is_refused(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    for opening in ((), (ask(info("Petr")),)):
        end = wires.call(ivan)
        end.send(*opening, Hello("default", "Olga", 99, 0, bytes(16)))
        wires.run(0.1)
        assert isinstance(end.take()[-1], Refused)
        assert end.hung_up


def test_a_publisher_has_no_vote(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    for message in (
        RequestVote(9, 9, 9, False),
        AppendEntries(9, 0, 0, 0, []),
        FetchEvents(1, 9),
        InstallSnapshot(9, 9, 9, 0, 1, b"x"),
    ):
        end = connect(wires, ivan)
        end.send(message)
        wires.run(0.1)
        assert isinstance(end.take()[-1], Refused)
        assert end.hung_up
    assert ivan.node.state(wires.now).term == 1


def call_as_stranger(wires: Wires, node: Any, number: int) -> None:
    """Connect a reference peer that also answers where it says that it listens."""
    host = f"10.0.1.{number}"
    wires.play((host, 7_878), answers_as(info(f"n{number}", host, incarnation=None)))
    wires.call(node, host).send(ask(info(f"n{number}", host, incarnation=None)))


def test_neighbours_over_the_limit_are_dropped_and_counted(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, max_neighbours=2)
    for number in range(5):
        host = f"10.0.0.{90 + number}"
        wires.call(ivan, host).send(ask(info(f"n{number}", host)))
    wires.run(0.1)
    assert len(ivan.node.state(wires.now).neighbours) == 2
    assert counter(ivan, "dropped_too_many_neighbours") == 3


def test_one_address_cannot_fill_the_neighbour_table(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, max_neighbours=8)
    for number in range(9):
        wires.call(ivan).send(ask(info(f"n{number}", port=9_000 + number)))
    wires.run(0.1)
    assert len(ivan.node.state(wires.now).neighbours) == 4
    assert counter(ivan, "dropped_too_many_neighbours") == 5
    wires.call(ivan, "10.0.0.98").send(ask(info("Boris", "10.0.0.98")))
    wires.run(0.1)
    assert "Boris" in {one.name for one in ivan.node.state(wires.now).neighbours}


def test_unauthenticated_nodes_leave_room_for_authenticated_ones(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, max_neighbours=8, secret=SECRET)
    for number in range(40):
        call_as_stranger(wires, ivan, number)
    wires.run(0.1)
    assert len(ivan.node.state(wires.now).neighbours) == 2
    assert counter(ivan, "dropped_too_many_neighbours") >= 38
    for number in range(2, 6):
        wires.node(f"Boris-{number}", number, (1,), secret=SECRET)
    wires.run(5.0)
    assert len(ivan.node.state(wires.now).members) == 5


def test_unauthenticated_nodes_listed_by_a_member_stay_unauthenticated(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, max_neighbours=8, secret=SECRET)
    for number in range(2):
        call_as_stranger(wires, ivan, number)
    wires.run(0.1)
    wires.node("Boris", 2, (1,), secret=SECRET)
    wires.run(2.0)
    vera = wires.node("Vera", 3, (1,), secret=SECRET)
    wires.run(2.0)
    targets = vera.node.components.links.targets
    assert {host[0]: one.trusted for host, one in targets.items() if not one.configured} == {
        "10.0.0.2": True,
        "10.0.1.0": False,
        "10.0.1.1": False,
    }


@pytest.mark.parametrize("name", ["Boris", namesake("Boris")])
def test_authenticated_node_takes_its_name_or_id_from_an_unauthenticated_one(wires: Wires, name: str) -> None:
    ivan = wires.node("Ivan", 1, secret=SECRET)
    wires.play((STRANGE, 7_878), answers_as(info(name, STRANGE, incarnation=None)))
    wires.call(ivan, STRANGE).send(ask(info(name, STRANGE, incarnation=None)))
    wires.run(0.1)
    assert {one.name for one in ivan.node.state(wires.now).neighbours} == {name}
    boris = wires.node("Boris", 2, (1,), secret=SECRET)
    wires.run(10.0)
    assert {one.name for one in ivan.node.state(wires.now).members} == {"Ivan", "Boris"}
    assert boris.node.mode is Mode.WRK
    assert {(one.name, one.ours) for one in ivan.node.state(wires.now).neighbours} == {("Boris", True)}


def test_inbound_connections_over_the_limit_are_closed_and_counted(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, max_links=2)
    ends = [wires.call(ivan) for _ in range(3)]
    wires.run(0.1)
    assert [end.hung_up for end in ends] == [False, False, True]
    assert counter(ivan, "dropped_too_many_links") == 1
    ends[0].close()
    wires.run(0.1)
    assert not wires.call(ivan).hung_up


@pytest.mark.parametrize("name", ["", "n" * 65, "\u00fc" * 33, "a\nb", "\x1b[2J", "\u200b"])
@pytest.mark.parametrize("incarnation", [None, 99])
def test_an_invalid_name_is_refused(wires: Wires, name: str, incarnation: int | None) -> None:
    ivan = wires.node("Ivan", 1, (2,))
    bad = info(name, "10.0.0.2", incarnation=incarnation)
    asked = wires.play(("10.0.0.2", 7_878), answers_as(bad))
    end = wires.call(ivan, "10.0.0.2")
    end.send(ask(bad))
    wires.run(0.1)
    (answer,) = end.take()
    assert answer.type is ParcelType.PROTO_ERROR
    assert "use 1 to 64 bytes of printable text" in answer.data.decode()
    wires.run(0.5)
    assert asked.said
    assert ivan.node.state(wires.now).neighbours == ()
    assert counter(ivan, "dropped_bad_name") >= 2


def test_discovery_request_over_the_connection_limit_gets_a_protocol_error(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, max_links=1)
    wires.call(ivan)
    end = wires.call(ivan)
    end.send(ask(info("Olga", incarnation=None)))
    wires.run(0.1)
    assert [one.type for one in end.take()] == [ParcelType.PROTO_ERROR]


def test_idle_inbound_connection_is_closed(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    end = wires.call(ivan)
    wires.run(29.0)
    assert not end.hung_up
    wires.run(3.0)
    assert end.hung_up
    assert counter(ivan, "dropped_idle") == 1


def test_address_of_a_third_host_is_not_dialled(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    victim = wires.play(7)
    for incarnation in (None, 99):
        end = wires.call(ivan, "10.0.0.99")
        end.send(ask(info(f"Olga{incarnation}", "10.0.0.7", incarnation=incarnation)))
        wires.run(10.0)
        assert [one.type for one in end.take()] == [ParcelType.DSC_RES]
    assert victim.accepted == []
    assert ivan.dialled == []
    assert any("10.0.0.7" in text for text in warnings(ivan))


def test_address_of_a_third_host_is_not_dialled_by_a_node_with_a_secret(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, secret=SECRET)
    victim = wires.play(7)
    wires.call(ivan, "10.0.0.99").send(ask(info("Olga", "10.0.0.7", incarnation=None)))
    wires.run(10.0)
    assert victim.accepted == []


FORGED = "who speaks only the document needs no proof, and takes the place of a member of that name"


@pytest.mark.parametrize(
    ("secret", "incarnation"),
    [
        (SECRET, None),
        (SECRET, 99),
        (None, None),
    ],
)
def test_a_request_in_a_members_name_does_not_affect_the_member(
    wires: Wires, secret: bytes | None, incarnation: int | None
) -> None:
    ivan = wires.node("Ivan", 1, secret=secret)
    wires.node("Boris", 2, (1,), secret=secret)
    wires.node("Vera", 3, (1, 2), secret=secret)
    assert wires.run(20.0, lambda: members(ivan) == ["Boris", "Ivan", "Vera"])
    wires.run(3.0)
    views = len(ivan.of(MembershipChanged))
    wires.call(ivan, "10.0.0.2").send(ask(info("Boris", "10.0.0.2", incarnation=incarnation)))
    wires.run(3.0)
    assert len(ivan.of(MembershipChanged)) == views


@pytest.mark.parametrize("name", ["Ivan", "Boris"])
def test_discovery_request_with_a_taken_name_and_a_wrong_id_is_refused(wires: Wires, name: str) -> None:
    ivan = wires.node("Ivan", 1)
    boris = wires.node("Boris", 2, (1,))
    assert wires.run(5.0, lambda: mode(boris) is Mode.WRK)
    end = wires.call(ivan)
    end.send(ask(info(name)._replace(id=1)))
    wires.run(0.01)
    assert [one.type for one in end.take()] == [ParcelType.PROTO_ERROR]


def test_publish_without_a_cluster_fails_at_once(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, (2,))
    for publish in (
        lambda: ivan.node.publish([b"a", b"b"], 1, wires.now),
        lambda: ivan.node.publish_as(PublisherRun("p", 0, 1, [b"a"]), 1, wires.now),
    ):
        with pytest.raises(NotOrdered) as raised:
            publish()
        assert (raised.value.why, raised.value.unknown) == ("no-quorum", False)
    assert counter(ivan, "refused") == 3
    assert counter(ivan, "published") == 0


def test_node_refuses_an_oversize_event(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, max_event=1_000)
    with pytest.raises(MessageTooLarge):
        ivan.node.publish([b"fine", bytes(1_001)], 1, wires.now)
    with pytest.raises(MessageTooLarge):
        ivan.node.publish_as(PublisherRun("p", 0, 1, [bytes(1_001)]), 1, wires.now)
    ivan.tell("publish", [bytes(1_000)], 2)
    assert [one.token for one in ivan.of(PublishConfirmed)] == [2]
    assert len(delivered(ivan)) == 1


def test_publisher_name_is_limited_to_160_bytes(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    for name in ("", "x" * 161, "ä" * 81):
        with pytest.raises(LocalError):
            ivan.node.publish_as(PublisherRun(name, 0, 1, [b"x"]), 1, wires.now)
    ivan.tell("publish_as", PublisherRun("x" * 160, 0, 1, [b"x"]), 1)
    assert len(ivan.of(PublishConfirmed)) == 1


def test_publish_over_the_pending_byte_limit_is_refused(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, max_event=1_000, pending_bytes=4_000)
    ivan.node.publish([bytes(1_000)] * 3, 1, wires.now)
    with pytest.raises(PublishQueueFull):
        ivan.node.publish([bytes(1_000)], 2, wires.now)
    ivan.flush()
    ivan.tell("publish", [bytes(1_000)], 3)
    assert [one.token for one in ivan.of(PublishConfirmed)] == [1, 3]


def test_empty_publish_has_no_effect(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    ivan.tell("publish", [], 1)
    assert ivan.of(PublishConfirmed) == ivan.of(EventsDelivered) == []


def test_run_repeated_at_several_nodes_is_ordered_once(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    run = PublisherRun("somebody", 0, 1, [b"once"])
    for host in trio:
        host.tell("publish", [b"noise"], "noise")
        host.tell("publish_as", run, "first")
        host.tell("publish_as", run, "at once")
    wires.run(1.0)
    trio[0].tell("publish_as", run, "later")
    trio[1].tell("publish_as", run, "later")
    wires.run(1.0)
    answers = [one for host in trio for one in host.of(PublishConfirmed) if one.token != "noise"]
    assert len(answers) == 8
    assert len({one.numbers for one in answers}) == 1
    assert [len(host.of(PublishConfirmed)) for host in trio] == [4, 4, 3]
    for host in trio:
        assert delivered(host).count(b"once") == 1


def test_overlapping_runs_order_each_event_once(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    ivan.tell("publish_as", PublisherRun("p", 0, 1, [b"1", b"2"]), 1)
    ivan.tell("publish", [b"between"], 2)
    ivan.tell("publish_as", PublisherRun("p", 0, 2, [b"2", b"3"]), 3)
    assert ivan.of(PublishConfirmed) == [
        PublishConfirmed(1, ((1, 2),)),
        PublishConfirmed(2, ((3, 1),)),
        PublishConfirmed(3, ((2, 1), (4, 1))),
    ]
    assert delivered(ivan) == [b"1", b"2", b"between", b"3"]
    ivan.tell("publish_as", PublisherRun("p", 0, 9, [b"9"]), 4)
    ivan.tell("publish_as", PublisherRun("unknown", 0, 9, [b"9"]), 5)
    assert [(one.token, one.reason, one.unknown) for one in ivan.of(PublishUnconfirmed)] == [
        (4, RefusalReason.OUT_OF_ORDER, False),
        (5, RefusalReason.FORGOTTEN, True),
    ]


def test_read_of_evicted_events_raises_events_not_held(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, window_bytes=98_304)
    for number in range(1, 200):
        ivan.tell("publish", [bytes(1_000)], number)
    node = ivan.node
    assert node.sequence == 199
    assert 100 < node.oldest < 199
    with pytest.raises(EventsNotHeld) as raised:
        node.read(1, 5, 5)
    assert (raised.value.oldest, raised.value.last) == (node.oldest, 199)
    assert [one.sequence for one in node.read(node.oldest, 500, 3)] == [node.oldest + at for at in range(3)]
    assert node.read(198, 5_000, 99)[-1].sequence == 199
    assert node.read(200, 300, 9) == node.read(150, 149, 9) == node.read(199, 199, 0) == []


def test_state_of_a_member_describes_the_cluster(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    trio[1].tell("publish", [b"a", b"b"], 1)
    wires.play(8)
    wires.call(trio[1], "10.0.0.8").send(ask(info("Olga", "10.0.0.8", incarnation=None)))
    wires.run(0.9)
    state = trio[1].node.state(wires.now)
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


def test_killed_leader_is_replaced_within_2_seconds(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    ivan, boris, vera = trio
    boris.tell("publish", [b"1"], 1)
    wires.run(0.5)
    ivan.kill()
    boris.tell("publish", [b"2"], 2)
    # A refused connection is detected without a timeout.
    assert wires.run(2.0, lambda: len(boris.of(PublishConfirmed)) == 2)
    assert wires.run(2.0, lambda: members(vera) == ["Boris", "Vera"])
    assert delivered(boris) == [b"1", b"2"]
    wires.run(0.5)
    assert delivered(vera) == [b"1", b"2"]
    assert [one.name for one in vera.of(NeighbourRemoved)] == ["Ivan"]
    assert boris.node.state(wires.now).leader in ("Boris", "Vera")
    assert boris.of(PublishUnconfirmed) == []


def test_silent_member_is_removed_after_5_seconds_and_may_return(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    ivan, boris, vera = trio
    vera.up = False  # It hangs with its connections open.
    wires.run(4.0)
    assert members(ivan) == ["Boris", "Ivan", "Vera"]
    assert wires.run(3.0, lambda: members(ivan) == ["Boris", "Ivan"])
    wires.run(1.5)
    assert [one.name for one in boris.of(NeighbourRemoved)] == ["Vera"]
    assert "silent" in boris.of(NeighbourRemoved)[0].reason
    vera.up = True
    vera.flush()
    assert wires.run(30.0, lambda: members(ivan) == ["Boris", "Ivan", "Vera"] and mode(vera) is Mode.WRK)


def test_minority_orders_no_events_and_fails_pending_ones(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    ivan, boris, vera = trio
    boris.kill()
    vera.kill()
    ivan.tell("publish", [b"lost"], 1)
    assert mode(ivan) is Mode.WRK
    assert wires.run(12.0, lambda: mode(ivan) is Mode.ERR)
    assert [(one.token, one.reason, one.unknown) for one in ivan.of(PublishUnconfirmed)] == [
        (1, RefusalReason.NO_QUORUM, True)
    ]
    assert ivan.of(PublishConfirmed) == []
    assert delivered(ivan) == []
    with pytest.raises(NotOrdered, match="quorum"):
        ivan.node.publish([b"x"], 2, wires.now)
    assert ivan.node.state(wires.now).leader is None
    assert members(ivan) == ["Boris", "Ivan", "Vera"]


def test_restarted_majority_with_state_resumes_ordering(wires: Wires) -> None:
    memories = [PersistentState() for _ in range(3)]
    wires.node("Ivan", 1, (2, 3), bootstrap=True, promises=memories[0])
    wires.run(1.2)
    for name, number in (("Boris", 2), ("Vera", 3)):
        wires.node(name, number, (1,), promises=memories[number - 1])
    hosts = wires.hosts
    assert wires.run(20.0, lambda: all(members(host) == ["Boris", "Ivan", "Vera"] for host in hosts.values()))
    wires.run(2.0)
    hosts["Vera"].tell("publish", [b"1", b"2"], 1)
    wires.run(1.0)
    founding, incarnations = hosts["Ivan"].node.cluster_id, {name: host.node.me for name, host in hosts.items()}
    for host in list(hosts.values()):
        host.kill()
    wires.run(60.0)
    for name, number in (("Ivan", 1), ("Boris", 2), ("Vera", 3)):
        wires.node(name, number, (1, 2, 3), promises=memories[number - 1])
    assert wires.run(20.0, lambda: all(mode(host) is Mode.WRK for host in hosts.values()))
    assert {name: host.node.me for name, host in hosts.items()} == incarnations
    assert {host.node.cluster_id for host in hosts.values()} == {founding}
    hosts["Boris"].tell("publish", [b"3"], 1)
    wires.run(1.0)
    assert hosts["Boris"].of(PublishConfirmed) == [PublishConfirmed(1, ((3, 1),))]


def test_restarted_node_without_state_joins_as_a_new_member(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    ivan, boris, vera = trio
    boris.tell("publish", [b"1", b"2"], 1)
    wires.run(0.5)
    before = vera.node.me
    vera.kill()
    again = wires.node("Vera", 3, (1, 2), seed=1234)
    assert wires.run(15.0, lambda: mode(again) is Mode.WRK)
    assert again.node.me != before
    assert delivered(again) == [b"1", b"2"]
    assert again.of(EventsSkipped) == []
    assert members(ivan) == ["Boris", "Ivan", "Vera"]
    assert ivan.node.state(wires.now).quorum == 2


def test_cluster_stops_when_two_of_three_nodes_lost_their_state(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    ivan, boris, vera = trio
    for host in (boris, vera):
        host.kill()
    one = wires.node("Boris", 2, (1, 3), seed=1234)
    other = wires.node("Vera", 3, (1, 2), seed=1235)
    wires.run(40.0)
    assert {mode(host) for host in (ivan, one, other)} <= {Mode.ERR, Mode.SEQ_RECOVERY}
    assert mode(ivan) is Mode.ERR


def test_leaving_member_is_removed_and_stops(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    ivan, boris, vera = trio
    vera.tell("leave")
    assert mode(vera) is Mode.SHUTDOWN
    assert not vera.node.has_stopped
    with pytest.raises(NotOrdered):
        vera.node.publish([b"x"], 1, wires.now)
    assert wires.run(2.0, lambda: members(ivan) == members(boris) == ["Boris", "Ivan"])
    assert wires.run(2.0, lambda: vera.node.has_stopped)
    assert vera.ends == {}
    said = len(vera.wrote)
    vera.tell("tick")
    assert len(vera.wrote) == said
    assert {mode(ivan), mode(boris)} == {Mode.WRK}
    vera.tell("leave")
    assert modes(vera)[-1] is Mode.SHUTDOWN


def test_a_leaving_leader_is_replaced(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    ivan, boris, vera = trio
    ivan.tell("publish", [b"on its way"], 1)
    ivan.tell("leave")
    boris.tell("publish", [b"x"], 2)
    assert wires.run(1.5, lambda: len(boris.of(PublishConfirmed)) == 1)
    assert wires.run(2.0, lambda: members(vera) == ["Boris", "Vera"])
    assert len(ivan.of(PublishConfirmed)) + len(ivan.of(PublishUnconfirmed)) == 1


def test_a_single_node_leaves_at_once(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    ivan.tell("leave")
    wires.run(0.1)
    assert ivan.node.has_stopped


SPINS = "next_deadline() lies in the past for ever"


@pytest.mark.parametrize("neighbours", [(), (2,)])
def test_a_stopped_node_needs_no_timer(wires: Wires, neighbours: tuple[int, ...]) -> None:
    ivan = wires.node("Ivan", 1, neighbours, bootstrap=True)
    wires.run(3.0)
    ivan.tell("leave")
    wires.run(20.0)  # The network fails the test if a node asks to be called at the same moment again and again.
    assert ivan.node.has_stopped


def test_panicked_node_fails_pending_events_and_stops(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    ivan, boris, _vera = trio
    ivan.tell("publish", [b"x"], 1)
    ivan.tell("panic", "the disk is full")
    assert mode(ivan) is Mode.PANIC
    assert ivan.node.has_stopped
    assert ivan.node.state(wires.now).why == "the disk is full"
    assert [one.token for one in ivan.of(PublishUnconfirmed)] == [1]
    with pytest.raises(NotOrdered):
        ivan.node.publish([b"x"], 2, wires.now)
    said = len(ivan.wrote)
    boris.tell("publish", [b"y"], 3)
    ivan.tell("tick")
    assert [type(one) for _, _, one in ivan.wrote[said:] if not isinstance(one, Heartbeat)] == []


def test_a_panicked_node_needs_no_timer(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    trio[1].tell("panic", "the disk is full")
    wires.run(20.0)
    assert members(trio[0]) == ["Ivan", "Vera"]


def test_reform_is_refused_with_a_quorum(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    with pytest.raises(LocalError):
        trio[0].node.reform(wires.now)
    trio[2].tell("leave")
    with pytest.raises(LocalError):
        trio[2].node.reform(wires.now)
    trio[1].tell("panic", "x")
    with pytest.raises(LocalError):
        trio[1].node.reform(wires.now)


def test_reform_creates_a_new_cluster_id_and_keeps_the_events(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    ivan, boris, vera = trio
    ivan.tell("publish", [b"1", b"2"], 1)
    wires.run(1.0)
    founding = ivan.node.cluster_id
    ivan.kill()
    vera.kill()
    assert wires.run(12.0, lambda: mode(boris) is Mode.ERR)
    boris.tell("reform")
    assert mode(boris) is Mode.WRK
    assert members(boris) == ["Boris"]
    assert boris.node.cluster_id not in (0, founding)
    boris.tell("publish", [b"3"], 3)
    assert boris.read() == [(1, b"1"), (2, b"2"), (3, b"3")]
    again = wires.node("Vera", 3, (2,), seed=99)
    assert wires.run(10.0, lambda: mode(again) is Mode.WRK)
    assert again.node.cluster_id == boris.node.cluster_id
    assert again.read() == boris.read()


def test_reform_refuses_connected_nodes_of_the_old_cluster(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    ivan, boris, vera = trio
    wires.hosts.pop("Vera")
    vera.kill()
    assert wires.run(12.0, lambda: members(ivan) == ["Boris", "Ivan"])
    boris.kill()
    again = wires.node("Boris", 2, (1,), seed=99)  # It lost its state, so too few members are left.
    assert wires.run(20.0, lambda: mode(ivan) is Mode.ERR)
    wires.run(3.0)
    ivan.tell("reform")
    assert mode(ivan) is Mode.WRK
    wires.run(0.5)
    assert any("two clusters" in text for text in (*warnings(ivan), *warnings(again)))
    assert members(ivan) == ["Ivan"]


def test_reform_without_a_cluster_creates_one(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, (2,))
    wires.run(5.0)
    ivan.tell("reform")
    assert mode(ivan) is Mode.WRK


def test_external_publisher_is_acknowledged_by_every_node(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    run = PublisherRun("client", 5, 1, (b"a", b"b"))
    for host in trio:
        end = connect(wires, host)
        end.send(Publish(run))
        wires.run(0.5)
        assert end.take() == [PublishAck("client", 5, 1, ((1, 2),))]
        end.send(Publish(run), Publish(run))
        wires.run(0.5)
        assert end.take()[0] == PublishAck("client", 5, 1, ((1, 2),))
    assert [delivered(host) for host in trio] == [[b"a", b"b"]] * 3


def test_external_publisher_is_acknowledged_after_delivery(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    end = connect(wires, trio[1])
    end.send(Publish(PublisherRun("client", 0, 1, (b"a",))))
    while not end.received:
        assert wires.run(1.0, lambda: bool(trio[1].of(EventsDelivered) or end.received))
        assert trio[1].of(EventsDelivered)
        wires.run(0.001)


def test_invalid_runs_of_an_external_publisher_are_refused_with_a_reason(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, max_event=1_000)
    end = connect(wires, ivan)
    largest = 2**63 - 1
    for run, expected in (
        (PublisherRun("p", 0, 0, (b"x",)), RefusalReason.OUT_OF_ORDER),
        (PublisherRun("p", 0, 2, (b"x",)), RefusalReason.FORGOTTEN),
        (PublisherRun("p", 0, largest, (b"x",)), RefusalReason.FORGOTTEN),
        (PublisherRun("p", 0, 1, (bytes(1_001),)), RefusalReason.OVERSIZE),
        (PublisherRun("p", 0, 1, (bytes(600),) * 101), RefusalReason.OVERSIZE),
        (PublisherRun("p", largest, 1, (b"1",)), None),
        (PublisherRun("p", largest - 1, 1, (b"x",)), RefusalReason.OUT_OF_ORDER),
        (PublisherRun("p", largest, 3, (b"x",)), RefusalReason.OUT_OF_ORDER),
        (PublisherRun("p", largest, 0, (b"x",)), RefusalReason.OUT_OF_ORDER),
        (PublisherRun("p", largest, 2, (b"2",)), None),
    ):
        end.send(Publish(run))
        wires.run(0.1)
        (answer,) = end.take()
        assert answer[:3] == run[:3]
        assert expected is None if isinstance(answer, PublishAck) else answer.why is expected
        assert not end.hung_up
    assert delivered(ivan) == [b"1", b"2"]


def test_empty_runs_of_an_external_publisher_are_refused(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    end = connect(wires, ivan)
    for first in (0, 1, 2, 5):
        end.send(Publish(PublisherRun("p", 0, first, ())))
    end.send(Publish(PublisherRun("p", 0, 1, (b"a", b"b"))))
    for first in (1, 2, 3, 4):
        end.send(Publish(PublisherRun("p", 0, first, ())))
    wires.run(0.1)
    answers = end.take()
    assert [type(one) for one in answers] == [PublishNack] * 4 + [PublishAck] + [PublishNack] * 4
    assert delivered(ivan) == [b"a", b"b"]


def test_external_publisher_is_refused_after_the_loss_of_the_quorum(
    trio: tuple[Host, Host, Host], wires: Wires
) -> None:
    ivan, boris, vera = trio
    end = connect(wires, ivan)
    boris.kill()
    vera.kill()
    end.send(Publish(PublisherRun("client", 0, 1, (b"a",))))
    wires.run(12.0)
    assert [(type(one), one.why) for one in end.take()] == [(PublishNack, RefusalReason.NO_QUORUM)]
    end.send(Publish(PublisherRun("client", 0, 1, (b"a",))))
    wires.run(0.1)
    assert [(type(one), one.why) for one in end.take()] == [(PublishNack, RefusalReason.NO_QUORUM)]


def test_external_publisher_over_the_byte_limit_is_refused_as_too_many(
    trio: tuple[Host, Host, Host], wires: Wires
) -> None:
    _ivan, _boris, _vera = trio
    small = wires.node("Olga", 4, (1,), max_event=1_000, pending_bytes=4_000)
    assert wires.run(10.0, lambda: mode(small) is Mode.WRK)
    end = connect(wires, small)
    small.node.components.links.ready_targets.clear()  # The node cannot reach the leader.
    for number in range(1, 7):
        end.send(Publish(PublisherRun("client", 0, number, (bytes(1_000),))))
    wires.run(0.1)
    assert [(one.first, one.why) for one in end.take()] == [
        (4, RefusalReason.TOO_MANY),
        (5, RefusalReason.TOO_MANY),
        (6, RefusalReason.TOO_MANY),
    ]


def test_temporarily_refused_run_is_resent_before_later_runs(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    ivan, boris, _ = trio
    peer = next(end.peer for end in boris.ends.values() if end.peer.address == wires.address(1))
    boris.tell("publish", [b"1"], 1)
    run = next(one.run for _, _, one in boris.wrote if isinstance(one, Publish))
    ivan.up = False  # The leader misses this run; it replies as a leader without a quorum does.
    wires.run(0.002)
    ivan.up = True
    boris.node.receive(PublishNack(*run[:3], RefusalReason.NO_QUORUM, "not yet"), peer, wires.now)
    boris.flush()
    boris.tell("publish", [b"2"], 2)
    wires.run(2.0)
    assert boris.of(PublishUnconfirmed) == []
    assert [one.token for one in boris.of(PublishConfirmed)] == [1, 2]


def test_failed_dial_of_an_unknown_address_is_ignored(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    ivan.told.clear()
    ivan.tell("dial_failed", ("10.0.0.77", 7_878), "refused")
    assert (ivan.told, ivan.dialled) == ([], [])
    assert mode(ivan) is Mode.WRK


def test_no_entries_are_sent_over_a_blocked_connection(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    leader = trio[0]
    peer = next(end.peer for end in leader.ends.values() if end.peer.dialled and end.peer.address == trio[1].address)
    leader.tell("blocked", peer)
    leader.wrote.clear()
    leader.tell("publish", [b"1"], 1)
    wires.run(0.5)
    told = [to.address for _, to, message in leader.wrote if isinstance(message, AppendEntries) and message.entries]
    assert told == [trio[2].address]
    assert leader.of(PublishConfirmed) == [PublishConfirmed(1, ((1, 1),))]
    leader.tell("unblocked", peer)
    wires.run(0.5)
    assert delivered(trio[1])[-1:] == [b"1"]


def test_fetch_returns_held_events_within_the_size_limit(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1, max_event=40_000, window_bytes=200_000)
    for number in range(1, 11):
        ivan.tell("publish", [b"%d" % number + bytes(30_000)], number)
    end = join(wires, ivan, "Olga")
    largest = 2**63 - 1
    oldest = ivan.node.oldest
    assert oldest > 1
    for first, last, expected in (
        (9, 8, []),
        (10, 10, [10]),
        (0, 0, []),
        (11, largest, []),
        (largest, largest, []),
        (1, largest, [oldest]),
        (9, largest, [9]),
    ):
        end.take()
        end.send(FetchEvents(first, last))
        wires.run(0.05)
        (answer,) = [one for one in end.take() if isinstance(one, FetchEventsReply)]
        assert [answer.first + at for at in range(len(answer.events))] == expected
        if first == 11:
            assert answer.first == 11
    assert not end.hung_up


def test_invalid_snapshot_parts_are_rejected(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    ivan.tell("publish", [b"1"], 1)
    end = join(wires, ivan, "Olga")
    term = ivan.node.term
    for part in (
        InstallSnapshot(term, 50, term, 0, 5, b"12345"),
        InstallSnapshot(term - 1, 50, term, 0, 5, b"12345"),
        InstallSnapshot(term + 1, 50, term, 7, 5, b"12345"),
        InstallSnapshot(term + 1, 50, term, 0, 2**62, b"12345"),
        InstallSnapshot(term + 1, 50, term, 0, 5, b"12345"),
        InstallSnapshot(term + 1, 0, 0, 0, 0, b""),
        InstallSnapshot(term + 1, 51, term, 5, 0, b""),
        InstallSnapshot(term + 1, 52, term, 2**62, 2**62, b"x"),
    ):
        end.send(part)
        wires.run(0.05)
    assert delivered(ivan) == [b"1"]
    assert ivan.read() == [(1, b"1")]
    assert members(ivan) == ["Ivan"]
    assert counter(ivan, "dropped_bad_state") >= 1


def test_unsolicited_replies_are_ignored(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    ivan = trio[0]
    peers = [end.peer for end in ivan.ends.values() if end.peer.dialled]
    for message in (
        AppendEntriesReply(0, False, 0),
        RequestVoteReply(0, True, False),
        RequestVoteReply(1, True, True),
        InstallSnapshotReply(ivan.node.term, 77, 2**62),
        FetchEventsReply(1, [("p", 0, 1, b"x")]),
        PublishNack("nobody", 0, 1, RefusalReason.FORGOTTEN, ""),
        PublishAck("nobody", 0, 1, ((1, 1),)),
        Welcome("Olga", 1, 0, bytes(16), b""),
        Proof(b""),
        AppendEntries(99, 0, 0, 0, []),
        Hello("default", "Olga", 1, 0, bytes(16)),
        Parcel(True, ParcelType.DSC_RES, 1, ()),
        Parcel(True, ParcelType.PROTO_ERROR, 1),
    ):
        for peer in peers:
            ivan.node.receive(message, peer, wires.now)
            ivan.flush()
    wires.run(5.0)
    assert delivered(ivan) == []
    assert {mode(host) for host in trio} == {Mode.WRK}
    assert members(ivan) == ["Boris", "Ivan", "Vera"]


def test_append_entries_of_a_node_without_a_cluster_id_are_refused(wires: Wires) -> None:
    ivan = wires.node("Ivan", 1)
    end = join(wires, ivan, "Olga", founding=0)
    end.send(AppendEntries(9, 0, 0, 0, [LogEntry(9, EntryKind.NO_OP, None)]))
    wires.run(0.1)
    assert end.hung_up
    assert ivan.node.term == 1
    assert mode(ivan) is Mode.WRK


def test_member_may_restart_without_state_at_another_address(trio: tuple[Host, Host, Host], wires: Wires) -> None:
    ivan, _boris, vera = trio
    vera.kill()
    again = wires.node("Vera", 5, (1, 2), seed=1234)
    assert wires.run(30.0, lambda: mode(again) is Mode.WRK)
    assert members(ivan) == ["Boris", "Ivan", "Vera"]
    assert ("Vera", "10.0.0.5:7878") in [(one.name, one.address) for one in ivan.node.state(wires.now).members]


def test_changes_are_persisted_before_their_effects(wires: Wires) -> None:
    promises = PersistentState()
    ivan = wires.node("Ivan", 1, promises=promises)
    wires.run(1.0)
    ivan.drained.clear()
    ivan.tell("publish", [b"x"], 1)
    (first, *_) = ivan.drained
    assert first.persist is not None
    assert [entry.kind for entry in first.persist.entries] == [EntryKind.DATA]
    assert any(isinstance(one, PublishConfirmed) for one in first.events)
    assert promises.member == ivan.node.me
    assert isinstance(promises.member, MemberId)
    memoryless = wires.node("Boris", 2)
    assert all(drained.persist is None for drained in memoryless.drained)
