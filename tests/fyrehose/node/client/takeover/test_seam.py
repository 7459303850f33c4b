from __future__ import annotations

from math import inf

from fyrehose_twisted.fyrehose.node.client.stream_head import LATE_AFTER
from fyrehose_twisted.fyrehose.node.client.takeover.seam import MAX_DOUBTS, Seam
from fyrehose_twisted.fyrehose.wire.term_start import TermStart, encode_term_start

NOTHING = range(0)


def test_a_single_backbone_starts_no_terms() -> None:
    seam = Seam()
    data = encode_term_start(TermStart(1, 2, 9))
    assert seam.start_in(9, data) is None
    assert seam.next_deadline(NOTHING) is None
    seam.term = 1
    assert seam.start_in(9, data) == TermStart(1, 2, 9)
    assert seam.start_in(8, data) is None


def test_numbers_above_those_that_were_held_are_in_doubt_until_the_term_starts() -> None:
    seam = Seam()
    seam.open(3, 7, 0.0)
    assert [seam.permits(number, b"x", live=False) for number in (7, 8)] == [True, False]
    assert seam.permits(8, b"x", live=True)
    assert seam.permits(9, encode_term_start(TermStart(3, 7, 9)), live=False)
    seam.started(TermStart(3, 7, 9))
    assert seam.permits(8, b"x", live=False)
    assert not seam.is_open


def test_doubts_end_when_no_datagram_can_be_late() -> None:
    seam = Seam()
    seam.open(3, 7, 0.0)
    seam.open(4, 9, 1.0)
    assert seam.next_deadline(NOTHING) == LATE_AFTER
    seam.tick(LATE_AFTER)
    assert [seam.permits(number, b"x", live=False) for number in (9, 10)] == [True, False]
    assert seam.next_deadline(NOTHING) == LATE_AFTER + 1.0
    seam.tick(LATE_AFTER + 1.0)
    assert not seam.is_open


def test_the_start_of_a_later_term_limits_the_doubts_of_an_earlier_one() -> None:
    seam = Seam()
    seam.open(3, 7, 0.0)
    seam.open(4, 20, 0.0)
    seam.started(TermStart(4, 20, 50))
    assert seam.is_open
    assert [number for number in (7, 8, 20, 21, 51) if seam.permits(number, b"x", live=False)] == [7, 21, 51]
    assert not seam.permits(8, b"x", live=True)


def test_the_start_of_a_later_term_settles_one_of_which_no_client_holds_a_message() -> None:
    seam = Seam()
    seam.open(3, 7, 0.0)
    seam.open(4, 7, 0.0)
    seam.started(TermStart(4, 7, 50))
    assert not seam.is_open


def test_a_term_that_has_started_is_not_in_doubt_when_it_is_reported() -> None:
    seam = Seam()
    seam.open(3, 7, 0.0)
    seam.started(TermStart(4, 7, 50))
    seam.open(4, 50, 0.0)
    assert not seam.is_open
    assert seam.term == 4


def test_the_number_of_doubts_is_limited() -> None:
    seam = Seam()
    for term in range(1, 3 * MAX_DOUBTS):
        seam.open(term, 10 * term, float(term))
    assert seam.next_deadline(NOTHING) == 2 * MAX_DOUBTS + LATE_AFTER


def test_nothing_is_in_doubt_after_a_disconnection() -> None:
    seam = Seam()
    seam.open(3, inf, 0.0)
    assert seam.permits(2**40, b"x", live=False)
    assert seam.is_open
