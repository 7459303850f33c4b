from __future__ import annotations

import pytest
from parcels.harness import Host, Net
from parcels.node.harness import connect, counter, delivered, join, members, mode

from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    EntryKind,
    ForcedRequestVote,
    InstallSnapshot,
    InstallSnapshotReply,
    LogEntry,
    MemberId,
    RequestVote,
    RequestVoteReply,
    StartElection,
)
from fyrehose_twisted.errors import NoSuccessor, NoSuchMember, NotLeader
from fyrehose_twisted.parcels.events import PublishConfirmed, Removed
from fyrehose_twisted.parcels.wire.messages import (
    Dismissal,
    FetchEvents,
    FetchEventsReply,
    Heartbeat,
    Hello,
    Mode,
    Parcel,
    ParcelType,
    Proof,
    PublishAck,
    PublishNack,
    RefusalReason,
    Refused,
    Welcome,
)


def test_a_publisher_has_no_vote(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    for message in (
        RequestVote(9, 9, 9, False),
        AppendEntries(9, 0, 0, 0, []),
        FetchEvents(1, 9),
        InstallSnapshot(9, 9, 9, 0, 1, b"x"),
    ):
        end = connect(net, ivan)
        end.send(message)
        net.run(0.1)
        assert isinstance(end.take()[-1], Refused)
        assert end.closed_by_peer
    assert ivan.node.state(net.now).term == 1


def test_no_entries_are_sent_over_a_blocked_connection(trio: tuple[Host, Host, Host], net: Net) -> None:
    leader = trio[0]
    peer = next(end.peer for end in leader.ends.values() if end.peer.dialled and end.peer.address == trio[1].address)
    leader.call("blocked", peer)
    leader.wrote.clear()
    leader.call("publish", [b"1"], 1)
    net.run(0.5)
    told = [to.address for _, to, message in leader.wrote if isinstance(message, AppendEntries) and message.entries]
    assert told == [trio[2].address]
    assert leader.of(PublishConfirmed) == [PublishConfirmed(1, ((1, 1),))]
    leader.call("unblocked", peer)
    net.run(0.5)
    assert delivered(trio[1])[-1:] == [b"1"]


def test_fetch_returns_held_events_within_the_size_limit(net: Net) -> None:
    ivan = net.node("Ivan", 1, max_event=40_000, window_bytes=200_000)
    for number in range(1, 11):
        ivan.call("publish", [b"%d" % number + bytes(30_000)], number)
    end = join(net, ivan, "Olga")
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
        net.run(0.05)
        (answer,) = [one for one in end.take() if isinstance(one, FetchEventsReply)]
        assert [answer.first + at for at in range(len(answer.events))] == expected
        if first == 11:
            assert answer.first == 11
    assert not end.closed_by_peer


def test_invalid_snapshot_parts_are_rejected(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    ivan.call("publish", [b"1"], 1)
    end = join(net, ivan, "Olga")
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
        net.run(0.05)
    assert delivered(ivan) == [b"1"]
    assert ivan.read() == [(1, b"1")]
    assert members(ivan) == ["Ivan"]
    assert counter(ivan, "dropped_bad_state") >= 1


def test_unsolicited_replies_are_ignored(trio: tuple[Host, Host, Host], net: Net) -> None:
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
            ivan.node.receive(message, peer, net.now)
            ivan.flush()
    net.run(5.0)
    assert delivered(ivan) == []
    assert {mode(host) for host in trio} == {Mode.WRK}
    assert members(ivan) == ["Boris", "Ivan", "Vera"]


def test_append_entries_of_a_node_without_a_cluster_id_are_refused(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    end = join(net, ivan, "Olga", cluster_id=0)
    end.send(AppendEntries(9, 0, 0, 0, [LogEntry(9, EntryKind.NO_OP, None)]))
    net.run(0.1)
    assert end.closed_by_peer
    assert ivan.node.term == 1
    assert mode(ivan) is Mode.WRK


def leads(host: Host, net: Net) -> bool:
    return bool(host.node.state(net.now).leader == host.node.components.raft.me.name)


def test_the_leadership_is_transferred_without_a_failed_event(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, vera = trio
    term = ivan.node.term
    ivan.call("publish", [b"before"], 1)
    assert ivan.node.transfer_leadership("Vera", net.now) == "Vera"
    ivan.flush()
    ivan.call("publish", [b"meanwhile"], 2)
    boris.call("publish", [b"elsewhere"], 3)
    assert net.run(1.0, lambda: leads(vera, net))
    net.run(1.0)
    assert (vera.node.term, ivan.node.state(net.now).leader) == (term + 1, "Vera")
    assert {one.token for one in (*ivan.of(PublishConfirmed), *boris.of(PublishConfirmed))} == {1, 2, 3}
    assert sorted(delivered(vera)) == [b"before", b"elsewhere", b"meanwhile"]


def test_only_the_leader_transfers_the_leadership_and_only_to_another_member(
    trio: tuple[Host, Host, Host], net: Net
) -> None:
    ivan, boris, _ = trio
    with pytest.raises(NotLeader, match="Ivan leads: ask it") as raised:
        boris.node.transfer_leadership(None, net.now)
    assert raised.value.leader == "Ivan"
    for name in ("Ivan", "Olga"):
        with pytest.raises(NoSuccessor, match=f"'{name}' is no other member; they are Boris, Vera"):
            ivan.node.transfer_leadership(name, net.now)
    for known in ivan.node.components.neighbours:
        known.info = known.info._replace(ours=known.info.ours._replace(version=1))
    with pytest.raises(NoSuccessor, match="no other member runs a version that can take over"):
        ivan.node.transfer_leadership(None, net.now)


@pytest.mark.interpreted  # A compiled class has no attributes to replace.
def test_a_leader_continues_if_its_successor_does_not_take_over(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, _, vera = trio
    vera.node.components.raft.start_election_received = lambda *arguments: None
    ivan.call("transfer_leadership", "Vera")
    ivan.call("publish", [b"x"], 1)
    assert net.run(20.0, lambda: bool(ivan.of(PublishConfirmed)))
    assert not leads(vera, net)


def test_a_leader_gives_up_a_successor_that_does_not_get_its_log(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, _, vera = trio
    peer = next(end.peer for end in ivan.ends.values() if end.peer.dialled and end.peer.address == vera.address)
    ivan.call("blocked", peer)
    ivan.call("publish", [b"before"], 1)
    net.run(0.5)
    ivan.node.transfer_leadership("Vera", net.now)
    ivan.call("publish", [b"meanwhile"], 2)
    net.run(4.0)
    assert [one.token for one in ivan.of(PublishConfirmed)] == [1]
    net.run(2.0)
    assert [one.token for one in ivan.of(PublishConfirmed)] == [1, 2]
    assert leads(ivan, net)


def test_a_stranger_cannot_order_an_election(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan = trio[0]
    term = ivan.node.term
    for message in (StartElection(term), ForcedRequestVote(term + 1, 99, 99)):
        end = connect(net, ivan)
        end.send(message)
        net.run(0.1)
        assert isinstance(end.take()[-1], Refused)
    net.run(5.0)
    assert (ivan.node.term, leads(ivan, net)) == (term, True)


def test_members_tell_term_and_last_event(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, _ = trio
    ivan.call("publish", [b"1", b"2"], 1)
    net.run(2.5)
    found = boris.node.state(net.now)
    assert [(one.name, one.term, one.sequence, one.lag) for one in found.members] == [
        (name, found.term, 2, 0) for name in ("Boris", "Ivan", "Vera")
    ]
    boris.node.components.neighbours.heartbeat_received(Heartbeat(Mode.WRK, 1, 1), found_member(boris, "Vera"))
    [vera] = [one for one in boris.node.state(net.now).members if one.name == "Vera"]
    assert (vera.term, vera.sequence, vera.lag) == (1, 1, 1)
    for known in boris.node.components.neighbours:
        known.info = known.info._replace(ours=known.info.ours._replace(incarnation=7))  # They have started anew.
    reports = {one.name: (one.term, one.sequence, one.lag) for one in boris.node.state(net.now).members}
    assert reports == {"Boris": (found.term, 2, 0), "Ivan": (None, None, None), "Vera": (None, None, None)}


def found_member(host: Host, name: str) -> MemberId:
    [member] = [one for one in host.node.components.raft.members if one.name == name]
    return member


def test_the_first_election_of_new_members_needs_no_new_connections(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, vera = trio  # The others said their Hello before they had joined.
    ivan.up = False
    assert net.run(20.0, lambda: leads(boris, net) or leads(vera, net))
    assert (
        not boris.node.components.faults.counts["other-founding"] + vera.node.components.faults.counts["other-founding"]
    )


def test_a_removed_member_leaves_and_stops(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, vera = trio
    ivan.node.remove("Vera", net.now)
    ivan.flush()
    assert net.run(0.5, lambda: members(ivan) == ["Boris", "Ivan"] == members(boris))
    assert vera.of(Removed) == [Removed()]
    assert (mode(vera), vera.node.state(net.now).why) == (Mode.SHUTDOWN, "the operator removed it")
    net.run(10.0)
    assert members(ivan) == ["Boris", "Ivan"]


def test_a_member_that_cannot_be_reached_is_removed_at_once(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, vera = trio
    vera.up = False
    ivan.node.remove("Vera", net.now)
    ivan.flush()
    assert net.run(0.5, lambda: members(ivan) == ["Boris", "Ivan"] == members(boris))


def test_only_the_leader_removes_and_only_other_members(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, _ = trio
    with pytest.raises(NotLeader, match="Ivan leads: ask it"):
        boris.node.remove("Vera", net.now)
    with pytest.raises(NoSuchMember, match="Ivan leads: transfer the leadership first"):
        ivan.node.remove("Ivan", net.now)
    with pytest.raises(NoSuchMember, match="'Olga' is no other member; they are Boris, Vera"):
        ivan.node.remove("Olga", net.now)


def test_only_the_leader_of_the_present_term_dismisses(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, _, vera = trio
    term = ivan.node.term
    for caller in vera.node.components.links.inbound.values():
        for at in (term - 1, term + 1) if caller.member == ivan.node.me else (term,):
            vera.node._dismissed(Dismissal(at), caller, net.now)
    net.run(1.0)
    assert mode(vera) is Mode.WRK
    end = connect(net, vera)
    end.send(Dismissal(term))
    net.run(0.1)
    assert isinstance(end.take()[-1], Refused)
    assert mode(vera) is Mode.WRK
