"""Repeated messages over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from query.bench import Bench

from fyrehose_twisted.fyrehose.wire.envelope import wrap
from fyrehose_twisted.payloads import envelope_finder, strip_framing
from fyrehose_twisted.repeats import WINDOW


@pytest.fixture
def published(bench: Bench) -> Any:
    """Return a bench whose stream has records 1 to 9, where 3, 6 and 9 repeat 2, 5 and 8."""
    bench.make(bare=strip_framing, envelopes=envelope_finder)
    bench.put(*(wrap(b"someones", counter, b'{"n": %d}' % counter) for counter in (0, 1, 1, 2, 3, 3, 4, 5, 5)))
    return bench


def test_repeated_messages_are_omitted_by_default(published: Bench, records: str) -> None:
    assert published.ask(records).numbers == [1, 2, 4, 5, 7, 8]


def test_repeated_messages_are_marked_on_request(published: Bench, records: str) -> None:
    answer = published.ask(f"{records}?repeats=marked")
    assert answer.numbers == list(range(1, 10))
    assert [record["sequence"] for record in answer.json if record.get("repeat")] == [3, 6, 9]


def test_record_limit_does_not_count_omitted_repeats(published: Bench, records: str) -> None:
    assert published.ask(f"{records}?from=2&limit=3").numbers == [2, 4, 5]
    assert published.ask(f"{records}?last=2").numbers == [7, 8]
    assert published.ask(f"{records}?last=2&repeats=marked").numbers == [8, 9]


@pytest.mark.parametrize("query", ["limit=1", "limit=2", "last=1", "last=2"])
@pytest.mark.parametrize(("more", "numbers"), [("", [1, 2, 4, 5, 7, 8]), ("&repeats=marked", list(range(1, 10)))])
def test_pages_without_repeats_cover_the_whole_range(
    published: Bench, records: str, query: str, more: str, numbers: list[int]
) -> None:
    found: list[int] = []
    answer = published.ask(f"{records}?{query}{more}")
    while True:
        found += answer.numbers
        path = answer.next or answer.previous
        if path is None:
            break
        answer = published.ask(path)
    assert sorted(found) == numbers


def test_filter_does_not_match_repeated_messages(published: Bench, records: str) -> None:
    assert published.ask(f"{records}?where=n >= `3`".replace(" ", "%20").replace("`", "%60")).numbers == [5, 7, 8]
    assert published.ask(f"{records}?where=n%3D%3D%603%60&repeats=marked").numbers == [5, 6]


def test_repeat_is_omitted_on_a_page_that_starts_after_its_original(published: Bench, records: str) -> None:
    assert published.ask(f"{records}?from=6").numbers == [7, 8]
    assert published.ask(f"{records}?from=3&to=3").numbers == []


def test_repeats_are_detected_within_65536_numbers(published: Bench, records: str) -> None:
    published.journal().lose(0, 10, WINDOW)
    again = [wrap(b"someones", counter, b"again") for counter in (0, 0, 4)]
    published.put(*again, first=WINDOW + 1)
    assert published.ask(f"{records}?from={WINDOW}").numbers == []
    published.put(wrap(b"someones", 1, b"late"), first=WINDOW + 4)
    assert published.ask(f"{records}?from={WINDOW}").numbers == [WINDOW + 4]


def test_stream_omits_repeated_messages(published: Bench, records: str) -> None:
    whole = published.follow(f"{records}?from=1")
    assert whole.told == [1, 2, 4, 5, 7, 8]
    live, marked = published.follow(records), published.follow(f"{records}?repeats=marked")
    for counters in ((5, 6), (6, 6, 7), (4, 8)):
        published.put(*(wrap(b"someones", counter, b"more") for counter in counters))
        published.advance()
    assert live.told == [11, 14, 16]
    assert whole.told == [1, 2, 4, 5, 7, 8, 11, 14, 16]
    assert marked.told == list(range(10, 17))


def test_stream_with_last_does_not_count_omitted_repeats(published: Bench, records: str) -> None:
    assert published.follow(f"{records}?last=3").told == [5, 7, 8]
    assert published.follow(f"{records}?last=3&repeats=marked").told == [7, 8, 9]
    assert published.follow(f"{records}?last=3&from=7").told == [7, 8]
    assert published.follow(f"{records}?last=100").told == [1, 2, 4, 5, 7, 8]
    published.put(wrap(b"someones", 5, b"more"), wrap(b"someones", 6, b"more"))
    late = published.follow(f"{records}?last=1")
    published.advance()
    assert late.told == [11]


def test_tail_with_repeats_is_read_once_for_many_followers(published: Bench, records: str) -> None:
    clients = [published.follow(records) for _ in range(3)]
    for counter in range(6, 30):
        published.put(wrap(b"someones", counter, b"more"), wrap(b"someones", counter, b"more"))
        published.advance()
    tail = published.site.live_streams._tails["fyrehose-test"]
    assert tail.records, "each client has to find out for itself which messages are repeats"
    assert [client.told for client in clients] == [list(range(10, 58, 2))] * 3


def test_client_that_reconnects_after_a_repeat_resumes_after_it(published: Bench, records: str) -> None:
    assert published.follow(records, last_event_id="2").told == [4, 5, 7, 8]
    assert published.follow(records, last_event_id="5").told == [7, 8]


def test_invalid_repeats_parameter_is_refused(published: Bench, records: str) -> None:
    answer = published.ask(f"{records}?repeats=yes")
    assert (answer.code, answer.json["error"]) == (400, "bad-request")
