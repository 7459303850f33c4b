from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.envelope import (
    COUNTER_WINDOW,
    ENVELOPE_SIZE,
    MAX_ENVELOPED,
    MAX_RANGES,
    Envelope,
    Seen,
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
