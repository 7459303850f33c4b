from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from fyrehose_twisted.fyrehose.history import MESSAGE_OVERHEAD, History
from fyrehose_twisted.interfaces import IMessageStore


def test_it_is_a_message_store() -> None:
    assert verifyObject(IMessageStore, History())


@given(st.integers(0, 2**32))
def test_it_holds_the_last_that_fit(seed: int) -> None:
    rng = Random(seed)
    history = History(2_000)
    put: dict[int, bytes] = {}
    for _ in range(60):
        sequence, data = rng.randrange(100), bytes(rng.randrange(200))
        if history.get(sequence) is None:
            put.pop(sequence, None)
        put[sequence] = data  # In the place of what is held.
        history.put(sequence, data)
        while sum(len(kept) + MESSAGE_OVERHEAD for kept in put.values()) > 2_000:
            del put[next(iter(put))]
        assert {number: history.get(number) for number in put} == put
        assert len(history) == len(put)
        assert history.size == sum(len(kept) + MESSAGE_OVERHEAD for kept in put.values())
        assert history.lowest(0, 99, 1_000) == sorted(put)
        assert history.lowest(20, 60, 2) == [number for number in sorted(put) if 20 <= number <= 60][:2]


def test_the_newer_message_under_a_number_counts() -> None:
    history = History()
    history.put(1, b"first", 5)
    history.put(1, b"second", 6)
    assert (history.get(1), history.received_at(1), len(history)) == (b"second", 6, 1)


def test_without_memory_it_holds_nothing() -> None:
    history = History(0)
    history.put(1, b"")
    assert (history.get(1), history.lowest(0, 9, 9), history.size) == (None, [], 0)
