"""Recovery of a group whose user lost messages, with and without noticing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from consensus.group import A, B, C, Group, entry, events

from fyrehose_twisted.consensus.messages import AppendEntries, AppendEntriesReply, InstallSnapshot, InstallSnapshotReply
from fyrehose_twisted.consensus.timers import DEFAULT_TIMERS as TIMERS

KINDS = (AppendEntries, AppendEntriesReply, InstallSnapshot, InstallSnapshotReply)


def lose_next(group: Group, kind: type) -> Callable[[], bool]:
    """Drop the next message of a kind between A and B without telling either; return whether that happened."""
    lost: list[object] = []
    original = group.deliver

    def deliver(sender: object, receiver: object) -> None:
        line = group.lines[sender, receiver]  # type: ignore[index]
        if {sender, receiver} == {A, B} and not lost and isinstance(line[0], kind):
            lost.append(line.popleft())
        else:
            original(sender, receiver)  # type: ignore[arg-type]

    group.deliver = deliver  # type: ignore[method-assign]
    return lambda: bool(lost)


def group_with_a_compacted_log() -> Group:
    group = Group(A, B, C)
    group.elect(A)
    group.pass_time(1.0)
    group.close(A, B)
    for number in range(5):
        group[A].propose(entry(1, b"%d" % number))
    group.pump()
    group[A].log.compact(0, group[A].commit_index)
    return group


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_lost_without_notice_is_made_up_for_within_two_heartbeats(kind: type) -> None:
    group = group_with_a_compacted_log()
    happened = lose_next(group, kind)
    group.open(A, B)
    group.pump()
    group.pass_time(2 * TIMERS.heartbeat + 0.01)
    assert happened()
    assert group[B].commit_index == group[A].commit_index


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("followed", [0, 1, 3])
def test_an_append_lost_in_the_middle_is_made_up_for_within_two_heartbeats(kind: type, followed: int) -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.pass_time(1.5)
    happened = lose_next(group, kind)
    wanted = [b"%d" % number for number in range(1 + followed)]
    for data in wanted:
        group[A].propose(entry(1, data))
        group.pump()
    group.pass_time(2 * TIMERS.heartbeat + 0.01)
    assert happened()
    assert events(group, B) == wanted


@pytest.mark.parametrize("told_of_the_end", [True, False])
def test_messages_lost_with_a_connection_are_sent_again_on_the_next_one(told_of_the_end: bool) -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.pass_time(1.5)
    for number in range(3):
        group[A].propose(entry(1, b"%d" % number))
    group.collect()
    for line in ((A, B), (B, A)):
        group.lines[line].clear()
    if told_of_the_end:
        group[A].replication.follower_disconnected(B)
    group[A].replication.follower_connected(B)
    group.pump()
    assert group[B].log.last_index == group[A].log.last_index


def test_a_follower_whose_connection_is_not_reported_gets_nothing() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.pass_time(1.5)
    group[A].replication.follower_disconnected(B)
    group.sent.clear()
    group[A].propose(entry(1))
    group.pass_time(1.5, A)
    assert not [message for sender, receiver, message in group.sent if (sender, receiver) == (A, B)]
