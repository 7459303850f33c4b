from __future__ import annotations

from parcels.harness import Host, Net
from parcels.node.harness import connect, counter, delivered, join, members, mode

from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    EntryKind,
    InstallSnapshot,
    InstallSnapshotReply,
    LogEntry,
    RequestVote,
    RequestVoteReply,
)
from fyrehose_twisted.parcels.events import PublishConfirmed
from fyrehose_twisted.parcels.wire.messages import (
    FetchEvents,
    FetchEventsReply,
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
