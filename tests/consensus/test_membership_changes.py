from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from fyrehose_twisted.consensus.log import RaftLog
from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.membership_changes import MAX_VOTERS, next_membership
from fyrehose_twisted.consensus.messages import AppendEntriesReply, MemberId, Membership, Snapshot

A, B, C, D = (MemberId(name, 1) for name in "ABCD")
HERE = ("10.0.0.1", 1)


def view_of(*members: MemberId) -> Membership:
    return Membership(tuple((one, HERE) for one in sorted(members)))


def leader(*members: MemberId, others: tuple[MemberId, ...] = ()) -> RaftMember:
    """Return a log led by A that all members have replicated completely."""
    order = RaftMember(A, Random(1), 0.0, RaftLog(lambda entry: 1), lambda: Snapshot(1, 0, b""))
    order.install_snapshot(1, 0, view_of(A))
    order.bootstrap(HERE, 0.0)
    for one in (*members, *others):
        order.replication.follower_connected(one)
    joined = [A]
    for one in members:
        if one != A:
            joined.append(one)
            order.replication.add_followers([one], 0.0)
            catch_up(order, *joined)
            order.propose_membership(view_of(*joined))
            catch_up(order, *joined)
    order.replication.add_followers(others, 0.0)
    assert order.membership == view_of(*members)
    assert order.has_committed_in_term
    assert not order.membership_change_pending
    return order


def catch_up(order: RaftMember, *members: MemberId) -> None:
    for one in members:
        if one != A:
            order.append_entries_reply_received(AppendEntriesReply(order.term, True, order.log.last_index), one, 0.0)
    order.flush(0.0)


def wanted(
    order: RaftMember,
    *,
    joining: Iterable[MemberId] = (),
    dead: Iterable[MemberId] = (),
    leaving: Iterable[MemberId] = (),
) -> Membership | None:
    gone = set(dead)
    return next_membership(order, [(one, HERE) for one in joining], lambda one: one not in gone, leaving)


def test_leader_with_only_live_members_proposes_no_change() -> None:
    assert wanted(leader(A, B, C)) is None


def test_a_follower_proposes_no_change() -> None:
    order = leader(A, B, C)
    order.step_down(0.0)
    assert wanted(order, dead=[C]) is None


def test_one_membership_change_is_proposed_at_a_time() -> None:
    order = leader(A, B, C)
    order.propose_membership(view_of(A, B))
    assert wanted(order, dead=[C]) is None


def test_dead_members_are_removed_one_by_one() -> None:
    order = leader(A, B, C, D)
    assert wanted(order, dead=[D]) == view_of(A, B, C)
    order = leader(A, B, C)
    assert wanted(order, dead=[B]) == view_of(A, C)
    assert wanted(order, leaving=[C]) == view_of(A, B)


def test_no_member_is_removed_without_a_quorum() -> None:
    assert wanted(leader(A, B), dead=[B]) is None
    assert wanted(leader(A, B, C), dead=[B, C]) is None
    assert wanted(leader(A, B, C, D), dead=[B, C]) is None


def test_the_leader_never_removes_itself() -> None:
    assert wanted(leader(A, B, C), dead=[A]) is None
    assert wanted(leader(A, B, C), leaving=[A]) is None


def test_new_incarnation_removes_the_previous_one_first() -> None:
    again = MemberId("C", 2)
    order = leader(A, B, C, others=(again,))
    assert wanted(order, joining=[again]) == view_of(A, B)


def test_a_node_with_all_entries_is_added() -> None:
    order = leader(A, others=(B,))
    assert wanted(order, joining=[B]) is None
    order.append_entries_reply_received(AppendEntriesReply(order.term, True, order.commit_index - 1), B, 0.0)
    assert wanted(order, joining=[B]) is None
    catch_up(order, B)
    assert wanted(order, joining=[B]) == view_of(A, B)
    assert wanted(order, joining=[C]) is None


def test_nodes_are_added_one_at_a_time_in_order_of_names() -> None:
    order = leader(A, others=(B, C))
    catch_up(order, B, C)
    assert wanted(order, joining=[C, B]) == view_of(A, B)


def test_dead_members_are_removed_before_nodes_are_added() -> None:
    order = leader(A, B, C, others=(D,))
    catch_up(order, B, C, D)
    assert wanted(order, joining=[D], dead=[C]) == view_of(A, B)


def test_number_of_voters_is_limited() -> None:
    many = [A, *(MemberId(f"n{number:02}", 1) for number in range(MAX_VOTERS - 1))]
    last = MemberId("z", 1)
    order = leader(*many, others=(last,))
    catch_up(order, last)
    assert wanted(order, joining=[last]) is None
    assert wanted(order, joining=[last], leaving=[many[-1]]) == view_of(*many[:-1])


def test_a_group_may_be_limited_to_fewer_voters() -> None:
    order = leader(A, B, others=(C,))
    catch_up(order, C)
    assert next_membership(order, [(C, HERE)], lambda one: True, [], max_voters=2) is None
    assert next_membership(order, [(C, HERE)], lambda one: True, [], max_voters=3) == view_of(A, B, C)


def test_a_probing_follower_is_not_added() -> None:
    order = leader(A, others=(B,))
    catch_up(order, B)
    order.replication.follower_disconnected(B)
    order.replication.follower_connected(B)
    assert wanted(order, joining=[B]) is None


@pytest.mark.parametrize("view", [None])
def test_no_change_is_proposed_without_a_membership_view(view: None) -> None:
    order = RaftMember(A, Random(1), 0.0, RaftLog(lambda entry: 1), lambda: Snapshot(1, 0, b""))
    assert order.membership is view
    assert wanted(order, joining=[B]) is None
