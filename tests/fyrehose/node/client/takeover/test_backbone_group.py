from __future__ import annotations

import pytest

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.node.client.takeover.backbone_group import (
    MAX_BACKBONES,
    BackboneGroup,
    ReportOutcome,
)
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, Leader

TOKEN = bytes(16)
A: Address = ("10.0.0.1", 2323)
B: Address = ("10.0.0.2", 2323)
C: Address = ("10.0.0.3", 2323)


def address(number: int) -> Address:
    return f"10.0.1.{number}", 2323


def test_a_single_address_is_the_leader_and_has_no_term() -> None:
    group = BackboneGroup(A)
    assert (group.addresses, group.leader, group.term) == ((A,), A, 0)


def test_repeated_addresses_count_once() -> None:
    assert BackboneGroup([A, B, A]).addresses == (A, B)


@pytest.mark.parametrize("count", [0, MAX_BACKBONES + 1])
def test_too_few_or_too_many_backbones_are_refused(count: int) -> None:
    with pytest.raises(ConfigurationError, match=f"{count} backbones"):
        BackboneGroup([address(number) for number in range(count)])


def test_a_standby_tells_which_member_leads() -> None:
    group = BackboneGroup([A, B, C])
    assert group.leader_reported(Leader(TOKEN, 3, B), C) is ReportOutcome.CHANGED
    assert (group.leader, group.term) == (B, 3)
    assert group.leader_reported(Leader(TOKEN, 3, B), A) is ReportOutcome.UNCHANGED


def test_a_member_that_asks_for_a_head_leads() -> None:
    group = BackboneGroup([A, B])
    assert group.leader_reported(Leader(TOKEN, 3, ANY_ADDRESS, True), B) is ReportOutcome.CHANGED
    assert group.leader == B


def test_the_leader_of_an_earlier_term_is_ignored() -> None:
    group = BackboneGroup([A, B])
    group.leader_reported(Leader(TOKEN, 4, B), B)
    assert group.leader_reported(Leader(TOKEN, 3, A, True, (C,)), A) is ReportOutcome.OUTDATED
    assert (group.leader, group.term, group.addresses) == (B, 4, (A, B))


def test_a_member_that_knows_no_leader_changes_nothing() -> None:
    group = BackboneGroup([A, B])
    group.leader_reported(Leader(TOKEN, 4, B), B)
    assert group.leader_reported(Leader(TOKEN, 5, ANY_ADDRESS), A) is ReportOutcome.UNCHANGED
    assert (group.leader, group.term) == (B, 4)


def test_the_same_leader_in_a_later_term_is_a_change() -> None:
    group = BackboneGroup([A, B])
    group.leader_reported(Leader(TOKEN, 4, B), B)
    assert group.leader_reported(Leader(TOKEN, 5, B), B) is ReportOutcome.CHANGED


def test_a_leader_that_answers_itself_is_not_replaced_within_its_term() -> None:
    group = BackboneGroup([A, B])
    inside: Address = ("192.168.0.1", 2323)
    group.leader_reported(Leader(TOKEN, 4, A), A)
    assert group.leader_reported(Leader(TOKEN, 4, inside), B) is ReportOutcome.UNCHANGED
    assert (group.leader, group.addresses) == (A, (A, B))


def test_reported_members_are_added() -> None:
    group = BackboneGroup(A)
    group.leader_reported(Leader(TOKEN, 1, A, False, (A, B, C, ANY_ADDRESS, ("10.0.0.9", 0))), A)
    assert group.addresses == (A, B, C)


def test_configured_members_are_never_removed_and_a_leader_always_finds_room() -> None:
    group = BackboneGroup([A, B])
    reported = [address(number) for number in range(8)]
    group.leader_reported(Leader(TOKEN, 1, A, False, tuple(reported[:7])), A)
    assert group.addresses == (A, B, *reported[:6])
    group.leader_reported(Leader(TOKEN, 2, reported[0]), A)
    for term, leader in enumerate((reported[7], C), 3):
        assert group.leader_reported(Leader(TOKEN, term, leader, False, tuple(reported[:7])), B)
        assert group.leader == leader
        assert len(group.addresses) == MAX_BACKBONES
        assert group.addresses[:2] == (A, B)
        assert leader in group


def test_an_unknown_leader_is_not_followed_if_all_places_are_configured() -> None:
    configured = [address(number) for number in range(MAX_BACKBONES)]
    group = BackboneGroup(configured)
    assert group.leader_reported(Leader(TOKEN, 2, C), configured[0]) is ReportOutcome.UNCHANGED
    assert (group.leader, group.term) == (configured[0], 0)
