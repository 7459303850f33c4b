from __future__ import annotations

import pytest

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.errors import KeyReused
from fyrehose_twisted.parcels.events import Answered, NotTaken
from fyrehose_twisted.parcels.node.ordering.publish_tracker import Publishing
from fyrehose_twisted.parcels.node.ordering.publisher_sessions import Placed
from fyrehose_twisted.parcels.wire.messages import NotPublished, Published, Refusal, Run

ONE, OTHER = Peer(("10.0.0.1", 1), 1, False), Peer(("10.0.0.1", 2), 2, False)


def publishing(limit: int = 10_000) -> Publishing:
    return Publishing("me", limit, 5)


def run(first: int, count: int = 1, publisher: str = "p") -> Run:
    return Run(publisher, 5, first, [b"x"] * count)


def test_answers_wait_for_delivery() -> None:
    here = publishing()
    assert here.asked(run(1, 2), ONE)
    here.publish([b"a", b"b"], "token")
    (own,) = here.take()
    here.publish_as(run(7), "named")
    here.placed(run(1, 2), Placed(2, ((3, 2),)), 2)
    here.placed(own, Placed(2, ((4, 1), (6, 1))), 2)
    here.placed(run(7), Placed(1, ((7, 1),)), 2)
    assert (here.out, here.told) == ([], [])
    here.delivered(4)
    assert here.out == [(ONE, Published("p", 5, 1, ((3, 2),)))]
    here.delivered(6)
    assert here.told == [Answered("token", ((4, 1), (6, 1)))]
    here.delivered(7)
    assert here.told[1:] == [Answered("named", ((7, 1),))]
    assert len(here) == 0


def test_what_was_delivered_is_answered_at_once() -> None:
    here = publishing()
    here.asked(run(1), ONE)
    here.placed(run(1), Placed(0, ((3, 1),)), 3)
    assert here.out == [(ONE, Published("p", 5, 1, ((3, 1),)))]


def test_what_nobody_here_waits_for() -> None:
    here = publishing()
    here.placed(run(1), Placed(1, ((3, 1),)), 3)
    here.placed(run(1), Refusal.FORGOTTEN, 3)
    here.delivered(9)
    assert (here.out, here.told) == ([], [])


def test_one_that_is_asked_for_again_is_sent_once() -> None:
    here = publishing()
    assert here.asked(run(1), ONE) is True
    assert here.asked(run(1), OTHER) is False
    here.placed(run(1), Placed(1, ((1, 1),)), 1)
    assert here.out == [(OTHER, Published("p", 5, 1, ((1, 1),)))]


def test_nobody_else_publishes_under_the_name_of_the_node() -> None:
    here = publishing()
    assert here.asked(run(1, 2, "me"), ONE) is False
    (refused,) = here.out
    assert refused[0] == ONE
    assert isinstance(refused[1], NotPublished)
    assert refused[1].why is Refusal.NAME_TAKEN
    assert len(here) == 0


def test_an_application_that_asks_too_does_not_hide_who_asked() -> None:
    here = publishing()
    here.publish_as(run(1), "token")
    here.asked(run(1), ONE)
    here.placed(run(1), Placed(1, ((1, 1),)), 1)
    assert here.out == [(ONE, Published("p", 5, 1, ((1, 1),)))]
    assert here.told == [Answered("token", ((1, 1),))]


def test_who_asked_is_answered_though_the_application_asks_too() -> None:
    here = publishing()
    here.asked(run(1), ONE)
    here.publish_as(run(1), "token")
    here.placed(run(1), Placed(1, ((1, 1),)), 1)
    assert here.told == [Answered("token", ((1, 1),))]
    assert here.out == [(ONE, Published("p", 5, 1, ((1, 1),)))]


def test_several_wait_for_the_same() -> None:
    here = publishing()
    here.publish_as(run(1), "a")
    here.publish_as(run(1), "b")
    assert len(here.pending) == 1
    here.placed(run(1), Placed(1, ((1, 1),)), 1)
    assert here.told == [Answered("a", ((1, 1),)), Answered("b", ((1, 1),))]


def test_too_much() -> None:
    here = publishing(100)
    assert here.asked(run(1), ONE)
    assert not here.asked(run(2), ONE)
    ((peer, message),) = here.out
    assert peer == ONE
    assert isinstance(message, NotPublished)
    assert message[:4] == ("p", 5, 2, Refusal.TOO_MANY)


def test_what_has_no_place() -> None:
    here = publishing()
    here.asked(run(2), ONE)
    here.publish_as(run(3), "token")
    here.placed(run(2), Refusal.FORGOTTEN, 0)
    here.placed(run(3), Refusal.OUT_OF_ORDER, 0)
    ((peer, message),) = here.out
    assert (peer, message[:4]) == (ONE, ("p", 5, 2, Refusal.FORGOTTEN))
    (failed,) = here.told
    assert isinstance(failed, NotTaken)
    assert (failed.token, failed.why, failed.unknown) == ("token", Refusal.OUT_OF_ORDER, False)
    assert len(here) == 0


def test_own_events_that_have_no_place_begin_anew() -> None:
    here = publishing()
    here.publish([b"a"], 1)
    here.publish([b"b"], 2)
    (own,) = here.take()
    here.placed(own, Refusal.OUT_OF_ORDER, 0)
    assert [(one.token, one.unknown) for one in here.told if isinstance(one, NotTaken)] == [(1, True), (2, True)]
    here.publish([b"c"], 3)
    (own,) = here.take()
    assert (own.epoch, own.first) == (6, 1)
    # What is left of the old epoch does not end the new one.
    here.pending.add(Run("me", 5, 9, [b"x"]), None)
    here.placed(Run("me", 5, 9, [b"x"]), Refusal.OUT_OF_ORDER, 0)
    assert len(here.told) == 2


def test_what_the_leader_will_not_have() -> None:
    here = publishing()
    here.asked(run(1), ONE)
    here.asked(run(2), ONE)
    here.not_answered(NotPublished("p", 5, 1, Refusal.NO_QUORUM, "later"))
    assert here.out == []
    assert len(here.pending) == 2
    here.not_answered(NotPublished("p", 5, 1, Refusal.OVERSIZE, "never"))
    assert [message[:4] for _, message in here.out] == [("p", 5, 1, Refusal.OVERSIZE)]
    assert list(here.runs()) == [run(2)]


def test_giving_up() -> None:
    here = publishing()
    here.asked(run(1), ONE)
    here.publish_as(run(2), "named")
    here.publish([b"a"], "sent")
    here.take()
    here.publish([b"b"], "not sent")
    here.give_up("alone")
    assert [(peer, message[:5]) for peer, message in here.out] == [(ONE, ("p", 5, 1, Refusal.NO_QUORUM, "alone"))]
    assert {one.token: one.unknown for one in here.told if isinstance(one, NotTaken)} == {
        "named": True,
        "sent": True,
        "not sent": False,
    }
    assert len(here) == 0
    here.placed(run(1), Placed(1, ((1, 1),)), 1)
    here.placed(run(2), Placed(1, ((2, 1),)), 2)
    here.delivered(9)
    assert len(here.out) == 1
    assert len(here.told) == 3


def test_giving_up_tells_those_too_whose_answer_is_held_back() -> None:
    here = publishing()
    here.asked(run(1), ONE)
    here.placed(run(1), Placed(1, ((5, 1),)), 2)
    here.give_up("alone")
    assert len(here.out) == 1


def test_giving_up_answers_what_is_in_the_order_already() -> None:
    here = publishing()
    here.publish([b"a"], "own")
    (own,) = here.take()
    here.publish_as(run(1), "named")
    here.placed(own, Placed(1, ((4, 1),)), 2)
    here.placed(run(1), Placed(1, ((5, 1),)), 2)
    here.give_up("alone")
    assert sorted(one.token for one in here.told if isinstance(one, Answered)) == ["named", "own"]
    here.delivered(9)
    assert len(here.told) == 2


def keyed(data: bytes) -> Run:
    return Run("shop:1", 1, 1, [data])


def test_two_bodies_of_one_key_at_once() -> None:
    here = publishing()
    here.publish_as(keyed(b"pay 10"), "first")
    with pytest.raises(KeyReused):
        here.publish_as(keyed(b"pay 99"), "second")
    assert not here.asked(keyed(b"pay 99"), ONE)
    assert [(peer, answer.why) for peer, answer in here.out if isinstance(answer, NotPublished)] == [
        (ONE, Refusal.OTHER_BODY)
    ]
    here.publish_as(keyed(b"pay 10"), "again")
    here.placed(keyed(b"pay 10"), Placed(1, ((1, 1),)), 1)
    assert here.told == [Answered("first", ((1, 1),)), Answered("again", ((1, 1),))]


def test_another_body_of_the_key_was_ordered_first() -> None:
    here = publishing()
    here.publish_as(keyed(b"pay 10"), "here")
    here.placed(keyed(b"pay 99"), Placed(1, ((1, 1),)), 1)
    (told,) = here.told
    assert isinstance(told, NotTaken)
    assert (told.token, told.why) == ("here", Refusal.OTHER_BODY)
    assert len(here) == 0


def test_what_another_body_of_the_key_is_refused_for_says_nothing_of_this_one() -> None:
    here = publishing()
    here.publish_as(keyed(b"pay 10"), "here")
    here.placed(keyed(b"pay 99"), Refusal.OTHER_BODY, 1)
    assert here.told == []
    here.placed(keyed(b"pay 10"), Placed(0, ((1, 1),)), 1)
    assert here.told == [Answered("here", ((1, 1),))]


def test_a_leader_that_has_another_body_of_the_key_ends_it() -> None:
    here = publishing()
    here.publish_as(keyed(b"pay 10"), "here")
    here.not_answered(NotPublished("shop:1", 1, 1, Refusal.OTHER_BODY, ""))
    (told,) = here.told
    assert isinstance(told, NotTaken)
    assert told.why is Refusal.OTHER_BODY
