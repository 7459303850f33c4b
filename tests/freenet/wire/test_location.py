from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.freenet.wire.location import check_key, distance, is_location, key_location

places = st.floats(0.0, 1.0, exclude_max=True)


@pytest.mark.parametrize(
    ("key", "place"),
    [(bytes(20), 0.7138905963521268), (bytes(range(20)), 0.7558997235571788)],
    ids=["zeros", "counting"],
)
def test_the_location_of_a_key_derives_from_its_hash(key: bytes, place: float) -> None:
    assert key_location(key) == place


@given(st.binary(min_size=20, max_size=20))
def test_every_key_has_a_valid_location(key: bytes) -> None:
    assert is_location(key_location(key))


@pytest.mark.parametrize(
    ("one", "other", "apart"), [(0.1, 0.3, 0.2), (0.05, 0.95, 0.1), (0.0, 0.5, 0.5), (0.25, 0.875, 0.375)]
)
def test_the_distance_is_the_shorter_way_around_the_ring(one: float, other: float, apart: float) -> None:
    assert distance(one, other) == pytest.approx(apart)


@given(places, places, places)
def test_the_distance_is_a_metric(one: float, other: float, third: float) -> None:
    assert distance(one, other) == distance(other, one)
    assert 0.0 <= distance(one, other) <= 0.5
    assert distance(one, one) == 0.0
    assert distance(one, third) <= distance(one, other) + distance(other, third) + 1e-12


@given(places, places, places)
def test_the_distance_is_invariant_under_rotation(one: float, other: float, turn: float) -> None:
    assert distance((one + turn) % 1.0, (other + turn) % 1.0) == pytest.approx(distance(one, other), abs=1e-12)


@pytest.mark.parametrize("value", [1.0, -0.1, float("nan"), 0, "0.5", None])
def test_values_outside_the_ring_are_not_locations(value: Any) -> None:
    assert not is_location(value)


@pytest.mark.parametrize("key", [b"", bytes(19), bytes(21), "a" * 20, bytearray(20), None])
def test_a_key_is_20_bytes(key: Any) -> None:
    with pytest.raises(ConfigurationError, match="20 bytes"):
        check_key(key)
