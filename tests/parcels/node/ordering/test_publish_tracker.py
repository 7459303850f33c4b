from __future__ import annotations

import pytest

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.errors import NotOrdered
from fyrehose_twisted.parcels.events import PublishConfirmed, PublishUnconfirmed
from fyrehose_twisted.parcels.node.ordering.publish_tracker import PublishTracker
from fyrehose_twisted.parcels.node.ordering.publisher_sessions import RunPlacement
from fyrehose_twisted.parcels.wire.messages import PublishAck, PublisherRun, PublishNack, RefusalReason

ONE, OTHER = Peer(("10.0.0.1", 1), 1, False), Peer(("10.0.0.1", 2), 2, False)


def publishing(limit: int = 10_000) -> PublishTracker:
    return PublishTracker("me", limit, 5)


def run(first: int, count: int = 1, publisher: str = "p") -> PublisherRun:
    return PublisherRun(publisher, 5, first, [b"x"] * count)


def test_acknowledgements_wait_for_the_delivery_of_their_events() -> None:
    here = publishing()
    assert here.publish_requested(run(1, 2), ONE)
    here.publish([b"a", b"b"], "token")
    (own,) = here.take_runs()
    here.publish_as(run(7), "named")
    here.run_applied(run(1, 2), RunPlacement(2, ((3, 2),)), 2)
    here.run_applied(own, RunPlacement(2, ((4, 1), (6, 1))), 2)
    here.run_applied(run(7), RunPlacement(1, ((7, 1),)), 2)
    assert (here.replies, here.events) == ([], [])
    here.events_delivered(4)
    assert here.replies == [(ONE, PublishAck("p", 5, 1, ((3, 2),)))]
    here.events_delivered(6)
    assert here.events == [PublishConfirmed("token", ((4, 1), (6, 1)))]
    here.events_delivered(7)
    assert here.events[1:] == [PublishConfirmed("named", ((7, 1),))]
    assert len(here) == 0


def test_run_that_was_already_delivered_is_acknowledged_at_once() -> None:
    here = publishing()
    here.publish_requested(run(1), ONE)
    here.run_applied(run(1), RunPlacement(0, ((3, 1),)), 3)
    assert here.replies == [(ONE, PublishAck("p", 5, 1, ((3, 1),)))]


def test_results_without_a_pending_run_are_ignored() -> None:
    here = publishing()
    here.run_applied(run(1), RunPlacement(1, ((3, 1),)), 3)
    here.run_applied(run(1), RefusalReason.FORGOTTEN, 3)
    here.events_delivered(9)
    assert (here.replies, here.events) == ([], [])


def test_repeated_publish_request_is_forwarded_once() -> None:
    here = publishing()
    assert here.publish_requested(run(1), ONE) is True
    assert here.publish_requested(run(1), OTHER) is False
    here.run_applied(run(1), RunPlacement(1, ((1, 1),)), 1)
    assert here.replies == [(OTHER, PublishAck("p", 5, 1, ((1, 1),)))]


def test_publish_request_in_the_name_of_the_node_is_refused() -> None:
    here = publishing()
    assert here.publish_requested(run(1, 2, "me"), ONE) is False
    (refused,) = here.replies
    assert refused[0] == ONE
    assert isinstance(refused[1], PublishNack)
    assert refused[1].why is RefusalReason.NAME_TAKEN
    assert len(here) == 0


def test_a_peer_is_acknowledged_for_a_run_of_the_application() -> None:
    here = publishing()
    here.publish_as(run(1), "token")
    here.publish_requested(run(1), ONE)
    here.run_applied(run(1), RunPlacement(1, ((1, 1),)), 1)
    assert here.replies == [(ONE, PublishAck("p", 5, 1, ((1, 1),)))]
    assert here.events == [PublishConfirmed("token", ((1, 1),))]


def test_the_application_is_confirmed_for_a_run_of_a_peer() -> None:
    here = publishing()
    here.publish_requested(run(1), ONE)
    here.publish_as(run(1), "token")
    here.run_applied(run(1), RunPlacement(1, ((1, 1),)), 1)
    assert here.events == [PublishConfirmed("token", ((1, 1),))]
    assert here.replies == [(ONE, PublishAck("p", 5, 1, ((1, 1),)))]


def test_every_token_of_a_repeated_run_is_confirmed() -> None:
    here = publishing()
    here.publish_as(run(1), "a")
    here.publish_as(run(1), "b")
    assert len(here.pending) == 1
    here.run_applied(run(1), RunPlacement(1, ((1, 1),)), 1)
    assert here.events == [PublishConfirmed("a", ((1, 1),)), PublishConfirmed("b", ((1, 1),))]


def test_publish_request_over_the_byte_limit_is_refused_as_too_many() -> None:
    here = publishing(100)
    assert here.publish_requested(run(1), ONE)
    assert not here.publish_requested(run(2), ONE)
    ((peer, message),) = here.replies
    assert peer == ONE
    assert isinstance(message, PublishNack)
    assert message[:4] == ("p", 5, 2, RefusalReason.TOO_MANY)


def test_a_run_without_placement_is_refused() -> None:
    here = publishing()
    here.publish_requested(run(2), ONE)
    here.publish_as(run(3), "token")
    here.run_applied(run(2), RefusalReason.FORGOTTEN, 0)
    here.run_applied(run(3), RefusalReason.OUT_OF_ORDER, 0)
    ((peer, message),) = here.replies
    assert (peer, message[:4]) == (ONE, ("p", 5, 2, RefusalReason.FORGOTTEN))
    (failed,) = here.events
    assert isinstance(failed, PublishUnconfirmed)
    assert (failed.token, failed.reason, failed.unknown) == ("token", RefusalReason.OUT_OF_ORDER, False)
    assert len(here) == 0


def test_own_events_without_placement_start_a_new_epoch() -> None:
    here = publishing()
    here.publish([b"a"], 1)
    here.publish([b"b"], 2)
    (own,) = here.take_runs()
    here.run_applied(own, RefusalReason.OUT_OF_ORDER, 0)
    assert [(one.token, one.unknown) for one in here.events if isinstance(one, PublishUnconfirmed)] == [
        (1, True),
        (2, True),
    ]
    here.publish([b"c"], 3)
    (own,) = here.take_runs()
    assert (own.epoch, own.first) == (6, 1)
    # A late result for the old epoch does not end the new one.
    here.pending.add(PublisherRun("me", 5, 9, [b"x"]), None)
    here.run_applied(PublisherRun("me", 5, 9, [b"x"]), RefusalReason.OUT_OF_ORDER, 0)
    assert len(here.events) == 2


def test_only_a_final_refusal_by_the_leader_ends_a_pending_run() -> None:
    here = publishing()
    here.publish_requested(run(1), ONE)
    here.publish_requested(run(2), ONE)
    here.publish_rejected(PublishNack("p", 5, 1, RefusalReason.NO_QUORUM, "later"))
    assert here.replies == []
    assert len(here.pending) == 2
    here.publish_rejected(PublishNack("p", 5, 1, RefusalReason.OVERSIZE, "never"))
    assert [message[:4] for _, message in here.replies] == [("p", 5, 1, RefusalReason.OVERSIZE)]
    assert list(here.runs()) == [run(2)]


def test_abandon_all_reports_which_pending_events_are_uncertain() -> None:
    here = publishing()
    here.publish_requested(run(1), ONE)
    here.publish_as(run(2), "named")
    here.publish([b"a"], "sent")
    here.take_runs()
    here.publish([b"b"], "not sent")
    here.abandon_all("alone")
    assert [(peer, message[:5]) for peer, message in here.replies] == [
        (ONE, ("p", 5, 1, RefusalReason.NO_QUORUM, "alone"))
    ]
    assert {one.token: one.unknown for one in here.events if isinstance(one, PublishUnconfirmed)} == {
        "named": True,
        "sent": True,
        "not sent": False,
    }
    assert len(here) == 0
    here.run_applied(run(1), RunPlacement(1, ((1, 1),)), 1)
    here.run_applied(run(2), RunPlacement(1, ((2, 1),)), 2)
    here.events_delivered(9)
    assert len(here.replies) == 1
    assert len(here.events) == 3


def test_abandoning_answers_requesters_with_a_deferred_reply() -> None:
    here = publishing()
    here.publish_requested(run(1), ONE)
    here.run_applied(run(1), RunPlacement(1, ((5, 1),)), 2)
    here.abandon_all("alone")
    assert len(here.replies) == 1


def test_abandoning_acknowledges_ordered_runs() -> None:
    here = publishing()
    here.publish([b"a"], "own")
    (own,) = here.take_runs()
    here.publish_as(run(1), "named")
    here.run_applied(own, RunPlacement(1, ((4, 1),)), 2)
    here.run_applied(run(1), RunPlacement(1, ((5, 1),)), 2)
    here.abandon_all("alone")
    assert sorted(one.token for one in here.events if isinstance(one, PublishConfirmed)) == ["named", "own"]
    here.events_delivered(9)
    assert len(here.events) == 2


def keyed(data: bytes) -> PublisherRun:
    return PublisherRun("shop:1", 1, 1, [data])


def test_second_pending_body_of_a_key_is_refused_for_now() -> None:
    here = publishing()
    here.publish_as(keyed(b"pay 10"), "first")
    with pytest.raises(NotOrdered, match="another body is being published") as refused:
        here.publish_as(keyed(b"pay 99"), "second")
    assert (refused.value.why, refused.value.unknown) == ("key-pending", False)
    assert not here.publish_requested(keyed(b"pay 99"), ONE)
    assert [(peer, answer.why) for peer, answer in here.replies if isinstance(answer, PublishNack)] == [
        (ONE, RefusalReason.TOO_MANY)
    ]
    here.publish_as(keyed(b"pay 10"), "again")
    here.run_applied(keyed(b"pay 10"), RunPlacement(1, ((1, 1),)), 1)
    assert here.events == [PublishConfirmed("first", ((1, 1),)), PublishConfirmed("again", ((1, 1),))]


def test_publish_fails_when_another_body_of_its_key_was_ordered_first() -> None:
    here = publishing()
    here.publish_as(keyed(b"pay 10"), "here")
    here.run_applied(keyed(b"pay 99"), RunPlacement(1, ((1, 1),)), 1)
    (told,) = here.events
    assert isinstance(told, PublishUnconfirmed)
    assert (told.token, told.reason) == ("here", RefusalReason.OTHER_BODY)
    assert len(here) == 0


def test_refusal_of_another_body_of_the_key_leaves_the_run_pending() -> None:
    here = publishing()
    here.publish_as(keyed(b"pay 10"), "here")
    here.run_applied(keyed(b"pay 99"), RefusalReason.OTHER_BODY, 1)
    assert here.events == []
    here.run_applied(keyed(b"pay 10"), RunPlacement(0, ((1, 1),)), 1)
    assert here.events == [PublishConfirmed("here", ((1, 1),))]


def test_late_refusal_by_the_leader_of_another_body_fails_nothing() -> None:
    here = publishing()
    here.publish_as(keyed(b"pay 99"), "other")
    here.run_applied(keyed(b"pay 99"), RefusalReason.OTHER_BODY, 1)
    here.publish_as(keyed(b"pay 10"), "right")
    here.publish_rejected(PublishNack("shop:1", 1, 1, RefusalReason.OTHER_BODY, ""))
    here.run_applied(keyed(b"pay 10"), RunPlacement(0, ((1, 1),)), 1)
    (refused, confirmed) = here.events
    assert isinstance(refused, PublishUnconfirmed)
    assert (refused.token, refused.reason) == ("other", RefusalReason.OTHER_BODY)
    assert confirmed == PublishConfirmed("right", ((1, 1),))
