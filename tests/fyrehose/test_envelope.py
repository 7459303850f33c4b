from __future__ import annotations

from itertools import chain
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose import envelope as module
from fyrehose_twisted.fyrehose.batch import VECTOR_MINIMUM
from fyrehose_twisted.fyrehose.envelope import (
    COUNTER_WINDOW,
    ENVELOPE_SIZE,
    MAGIC,
    MAX_ENVELOPED,
    MAX_RANGES,
    Envelope,
    Seen,
    enveloped,
    unwrap,
    wrap,
)


@given(st.binary(min_size=8, max_size=8), st.integers(0, 2**64 - 1), st.binary(max_size=50))
def test_round_trip(publisher: bytes, counter: int, payload: bytes) -> None:
    data = wrap(publisher, counter, payload)
    assert unwrap(data) == Envelope(publisher, counter)
    assert data[ENVELOPE_SIZE:] == payload


def test_its_form_is_fixed() -> None:
    assert wrap(b"someones", 258, b"hi").hex() == "f7465901" + b"someones".hex() + "0000000000000102" + "6869"
    assert MAX_ENVELOPED == 65_478


def test_what_is_cut_or_of_another_version_is_no_envelope() -> None:
    data = wrap(b"someones", 1, b"")
    assert all(unwrap(data[:size]) is None for size in range(len(data)))
    assert unwrap(b"\xf7FY\x02" + data[4:]) is None


@pytest.mark.parametrize("counter", [0, 1, COUNTER_WINDOW - 1, COUNTER_WINDOW, 2**64 - 1])
def test_a_counter_is_new_once(counter: int) -> None:
    seen = Seen()
    assert seen.add(Envelope(b"someones", counter))
    assert not seen.add(Envelope(b"someones", counter))


def test_within_the_window_order_does_not_matter_and_below_it_everything_was_seen() -> None:
    seen = Seen()
    top = 2 * COUNTER_WINDOW
    assert seen.add(Envelope(b"someones", top))
    assert seen.add(Envelope(b"someones", top - COUNTER_WINDOW + 1))
    assert not seen.add(Envelope(b"someones", top - COUNTER_WINDOW))
    assert not seen.add(Envelope(b"someones", 0))


def test_counter_0_is_a_repeat_however_far_the_others_got() -> None:
    seen = Seen()
    for counter in [0, 5, COUNTER_WINDOW - 1, COUNTER_WINDOW, COUNTER_WINDOW + 1, 3 * COUNTER_WINDOW]:
        assert seen.add(Envelope(b"someones", counter))
        assert not seen.add(Envelope(b"someones", 0))


def test_memory_has_a_limit() -> None:
    seen = Seen(publishers=3)
    for counter in range(0, 10 * COUNTER_WINDOW, COUNTER_WINDOW // 8):
        seen.add(Envelope(b"someones", counter))
    assert len(seen._counters[b"someones"]) <= 9
    for number in range(10):
        seen.add(Envelope(b"%08d" % number, 0))
    assert len(seen._counters) == 3
    assert not seen.add(Envelope(b"%08d" % 9, 0))


def test_one_forged_counter_does_not_silence_its_publisher() -> None:
    seen = Seen()
    assert seen.add(Envelope(b"someones", 0))
    assert seen.add(Envelope(b"someones", 2**64 - 1))
    assert all(seen.add(Envelope(b"someones", counter)) for counter in range(1, 100))
    assert not seen.add(Envelope(b"someones", 50))


def test_a_publisher_that_got_far_ahead_is_believed_at_the_second_message() -> None:
    seen = Seen()
    far = 10 * COUNTER_WINDOW
    assert seen.add(Envelope(b"someones", 0))
    assert seen.add(Envelope(b"someones", far))
    assert seen.add(Envelope(b"someones", far + 1))
    assert not seen.add(Envelope(b"someones", far + 1))
    assert not seen.add(Envelope(b"someones", 1))


def test_scattered_counters_cost_a_bounded_number_of_ranges() -> None:
    seen = Seen()
    for counter in range(0, 8 * MAX_RANGES, 2):
        seen.add(Envelope(b"someones", counter))
    assert len(seen._counters[b"someones"]) <= MAX_RANGES


PUBLISHERS = [b"someones", b"another1", b"\xff" * 8]
HIGHEST = 2**64 - 1
counts = st.sampled_from([1, 2, 3, VECTOR_MINIMUM - 1, VECTOR_MINIMUM, 2 * VECTOR_MINIMUM])


@st.composite
def wrapped(draw: st.DrawFn) -> list[bytes]:
    """Messages with counters that rise, by one publisher: another stretch, or part of one."""
    first = draw(st.sampled_from([0, 1, 5, 2**32 - 3, 2**63 - 3, HIGHEST - 3, HIGHEST]))
    publisher, count = draw(st.sampled_from(PUBLISHERS)), draw(counts)
    return [wrap(publisher, (first + row) % (HIGHEST + 1), b"x" * (row % 3)) for row in range(count)]


bare = st.sampled_from([b"", b"text", MAGIC, wrap(b"someones", 1, b"")[:-1], b"\xf7FY\x02" + bytes(20), bytes(20)])
mixed = st.lists(wrapped() | wrapped() | st.lists(bare, max_size=3), max_size=4).map(lambda parts: [*chain(*parts)])


def stretches(messages: list[bytes]) -> list[tuple[Envelope | None, int]]:
    """What :func:`enveloped` returns, by looking at each message and the one before it."""
    found: list[tuple[Envelope | None, int]] = []
    before: Envelope | None = None
    for row, data in enumerate(messages):
        envelope = unwrap(data)
        if envelope is None or before is None:
            follows = row > 0 and envelope is before
        else:
            follows = envelope == (before.publisher, before.counter + 1)
        if follows:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((envelope, 1))
        before = envelope
    return found


@given(mixed)
def test_stretches_say_of_many_messages_what_unwrap_says_of_each(messages: list[bytes]) -> None:
    assert enveloped(messages) == stretches(messages)


@pytest.mark.parametrize("count", [2, VECTOR_MINIMUM - 1, VECTOR_MINIMUM, VECTOR_MINIMUM + 5])
def test_a_stretch_ends_with_its_publisher_and_where_a_counter_is_left_out_or_comes_twice(count: int) -> None:
    for row in range(1, count):
        for publisher, ahead in [(b"another1", 0), (b"someonez", 0), (b"someones", 1), (b"someones", -1)]:
            messages = [wrap(b"someones", 7 + at, b"") for at in range(row)]
            messages += [wrap(publisher, 7 + ahead + at, b"") for at in range(row, count)]
            assert enveloped(messages) == [
                (Envelope(b"someones", 7), row),
                (Envelope(publisher, 7 + ahead + row), count - row),
            ]


@pytest.mark.parametrize("count", [2, VECTOR_MINIMUM - 1, VECTOR_MINIMUM])
def test_what_has_no_envelope_and_room_for_one_is_told_from_what_has(count: int) -> None:
    bare_ones = [b"\xf7FY\x02" + wrap(b"someones", row, b"")[4:] for row in range(count)]
    assert enveloped(bare_ones) == [(None, count)]
    messages = [*bare_ones, wrap(b"someones", count, b""), *bare_ones]
    assert enveloped(messages) == [(None, count), (Envelope(b"someones", count), 1), (None, count)]


@pytest.mark.parametrize("count", [2, VECTOR_MINIMUM, 100])
@pytest.mark.parametrize("size", [0, 1, 4, ENVELOPE_SIZE - 1])
def test_what_is_too_short_has_no_envelope_however_many_there_are(count: int, size: int) -> None:
    assert enveloped([wrap(b"someones", 1, b"")[:size]] * count) == [(None, count)]


@pytest.mark.parametrize("count", [2, VECTOR_MINIMUM])
def test_no_counter_follows_the_highest(count: int) -> None:
    counters = [*range(HIGHEST - count + 2, HIGHEST + 1), 0]
    assert enveloped([wrap(b"someones", counter, b"") for counter in counters]) == [
        (Envelope(b"someones", counters[0]), count - 1),
        (Envelope(b"someones", 0), 1),
    ]


some_stretches = st.lists(
    st.tuples(
        st.sampled_from(PUBLISHERS),
        # Dense at the beginning, and once more where the window has to leap.
        st.integers(0, 60) | st.integers(0, 60).map(lambda ahead: 1_000 + ahead),
        st.integers(1, 4) | st.integers(1, 30),
    ),
    max_size=30,
)


def one_by_one(seen: Seen, publisher: bytes, first: int, count: int) -> list[bool]:
    return [seen.add(Envelope(publisher, counter)) for counter in range(first, first + count)]


@given(some_stretches, st.sampled_from([1, 2, 10]), st.sampled_from([4, 16]), st.sampled_from([2, 3, 100]))
def test_a_run_is_remembered_as_its_messages_are_one_by_one(
    found: list[tuple[bytes, int, int]], publishers: int, window: int, ranges: int
) -> None:
    with patch.multiple(module, COUNTER_WINDOW=window, MAX_RANGES=ranges):
        seen, reference = Seen(publishers), Seen(publishers)
        for publisher, counter, count in found:
            taken = seen.add_run(Envelope(publisher, counter), count)
            answers = [True] * count if taken else one_by_one(seen, publisher, counter, count)
            assert answers == one_by_one(reference, publisher, counter, count)


def test_a_run_that_follows_what_is_known_is_taken_at_once() -> None:
    seen = Seen()
    assert not seen.add_run(Envelope(b"someones", 1), 5), "of whom nothing is known"
    assert seen.add(Envelope(b"someones", 1))
    assert seen.add_run(Envelope(b"someones", 2), 5)
    assert not seen.add_run(Envelope(b"someones", 6), 5), "one of them was there before"
    assert not seen.add_run(Envelope(b"someones", 7 + COUNTER_WINDOW), 1), "too far ahead to be believed alone"
    assert seen.add_run(Envelope(b"someones", 6 + COUNTER_WINDOW), 3 * COUNTER_WINDOW)
    assert not seen.add(Envelope(b"someones", 5 + 4 * COUNTER_WINDOW))
    assert seen.add(Envelope(b"someones", 6 + 4 * COUNTER_WINDOW))


def test_runs_cost_a_bounded_number_of_ranges() -> None:
    seen = Seen()
    assert seen.add(Envelope(b"someones", 0))
    for counter in range(4, 8 * MAX_RANGES, 4):
        assert seen.add_run(Envelope(b"someones", counter), 2)
    assert len(seen._counters[b"someones"]) <= MAX_RANGES
    for ahead in range(1, 20):
        assert seen.add_run(Envelope(b"someones", 8 * MAX_RANGES + ahead * COUNTER_WINDOW // 2), 2)
    assert len(seen._counters[b"someones"]) <= 3


def test_who_sends_runs_is_remembered_longer_than_who_sends_nothing() -> None:
    seen = Seen(publishers=2)
    for publisher in PUBLISHERS[:2]:
        assert seen.add(Envelope(publisher, 1))
    assert seen.add_run(Envelope(PUBLISHERS[0], 2), 3)
    assert seen.add(Envelope(PUBLISHERS[2], 1))
    assert not seen.add(Envelope(PUBLISHERS[0], 4))
    assert seen.add(Envelope(PUBLISHERS[1], 1)), "it was forgotten"
