from __future__ import annotations

from random import Random
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from fyrehose_twisted.fyrehose.node.client import memory_store as module
from fyrehose_twisted.fyrehose.node.client.memory_store import MESSAGE_OVERHEAD, MemoryStore
from fyrehose_twisted.interfaces import IMessageStore


def test_it_is_a_message_store() -> None:
    assert verifyObject(IMessageStore, MemoryStore())


@given(st.integers(0, 2**32))
def test_it_holds_the_last_that_fit(seed: int) -> None:
    rng = Random(seed)
    history = MemoryStore(2_000)
    put: dict[int, bytes] = {}
    for _ in range(60):
        sequence, data = rng.randrange(100), bytes(rng.randrange(200))
        if history.get(sequence) is None:
            put.pop(sequence, None)
        put[sequence] = data  # In the place of what is held.
        history.put(sequence, [data])
        while sum(len(kept) + MESSAGE_OVERHEAD for kept in put.values()) > 2_000:
            del put[next(iter(put))]
        assert {number: history.get(number) for number in put} == put
        assert len(history) == len(put)
        assert history.size == sum(len(kept) + MESSAGE_OVERHEAD for kept in put.values())
        assert history.lowest(0, 99, 1_000) == sorted(put)
        assert history.lowest(20, 60, 2) == [number for number in sorted(put) if 20 <= number <= 60][:2]


def test_the_newer_message_under_a_number_counts() -> None:
    history = MemoryStore()
    history.put(1, [b"first"], 5)
    history.put(1, [b"second"], 6)
    assert (history.get(1), history.received_at(1), len(history)) == (b"second", 6, 1)


def test_without_memory_it_holds_nothing() -> None:
    history = MemoryStore(0)
    history.put(1, [b""])
    assert (history.get(1), history.lowest(0, 9, 9), history.size) == (None, [], 0)


runs = st.lists(
    st.tuples(st.integers(0, 60), st.lists(st.sampled_from([0, 1, 50, 300]), min_size=1, max_size=9)), max_size=20
)
"""Where each begins, and the lengths of its messages."""


def contents(history: MemoryStore) -> dict[int, tuple[bytes | None, int | None]]:
    return {number: (history.get(number), history.received_at(number)) for number in history.lowest(0, 99, 100)}


@given(runs, st.sampled_from([0, 170, 1_000, 2_000, 10**6]), st.sampled_from([1, 4, 10, module.MAX_GROUP_MESSAGES]))
def test_of_runs_it_holds_the_last_that_fit(found: list[tuple[int, list[int]]], limit: int, group: int) -> None:
    history = MemoryStore(limit)
    kept: dict[int, tuple[bytes, int]] = {}
    for now, (first, lengths) in enumerate(found):
        messages = [bytes([row]) * length for row, length in enumerate(lengths)]
        with patch.object(module, "MAX_GROUP_MESSAGES", group):
            history.put(first, messages, now)
        kept.update(zip(range(first, first + len(messages)), [(data, now) for data in messages], strict=True))
        while sum(len(data) + MESSAGE_OVERHEAD for data, _ in kept.values()) > limit:
            del kept[next(iter(kept))]
        assert contents(history) == kept
        assert len(history) == len(kept)
        assert history.size == sum(len(data) + MESSAGE_OVERHEAD for data, _ in kept.values())
        assert history.lowest(10, 50, 3) == [number for number in sorted(kept) if 10 <= number <= 50][:3]


@given(runs, st.sampled_from([0, 170, 1_000, 2_000, 10**6]))
def test_a_run_of_what_is_new_is_kept_as_its_messages_are_one_by_one(
    found: list[tuple[int, list[int]]], limit: int
) -> None:
    history, reference = MemoryStore(limit), MemoryStore(limit)
    for now, (first, lengths) in enumerate(found):
        messages = [bytes([row]) * length for row, length in enumerate(lengths)]
        if limit < 10**6 and history.lowest(first, first + len(messages) - 1, 1):
            continue  # What takes the place of another keeps its turn to go, which may come before the run is in.
        history.put(first, messages, now)
        for sequence, data in enumerate(messages, first):
            reference.put(sequence, [data], now)
        assert (contents(history), history.size) == (contents(reference), reference.size)


def test_a_run_makes_way_message_by_message() -> None:
    history = MemoryStore(5 * (MESSAGE_OVERHEAD + 1))
    history.put(10, [b"a", b"b", b"c", b"d"])
    held = []
    for number in range(1, 8):
        history.put(number, [b"x"])
        held.append(history.lowest(0, 99, 99))
    assert held == [
        [1, 10, 11, 12, 13],
        [1, 2, 11, 12, 13],
        [1, 2, 3, 12, 13],
        [1, 2, 3, 4, 13],
        [1, 2, 3, 4, 5],
        [2, 3, 4, 5, 6],
        [3, 4, 5, 6, 7],
    ]


def test_of_a_run_that_is_larger_than_the_memory_its_end_is_kept() -> None:
    history = MemoryStore(3 * (MESSAGE_OVERHEAD + 1))
    history.put(1, [b"x"])
    history.put(5, [b"y"] * 7)
    assert (history.lowest(0, 99, 99), history.size) == ([9, 10, 11], history.limit)


def test_what_is_put_stays_as_it_was_put() -> None:
    """Messages that follow are kept with those before them, and lists that others have do not change for it."""
    history = MemoryStore()
    lists = [[b"1", b"2"], [b"3", b"4"]]
    for first, messages in zip((1, 3), lists, strict=True):
        history.put(first, messages)
    history.put(2, [b"two", b"three"])
    assert lists == [[b"1", b"2"], [b"3", b"4"]]
    lists[0].clear()
    assert [history.get(number) for number in range(1, 5)] == [b"1", b"two", b"three", b"4"]


def test_messages_that_follow_are_kept_together_up_to_a_limit() -> None:
    history = MemoryStore()
    for number in range(3 * module.MAX_GROUP_MESSAGES):
        history.put(number, [b"x"])
    assert [len(group.data) for group in history._groups] == [module.MAX_GROUP_MESSAGES] * 3
    history.put(5 * module.MAX_GROUP_MESSAGES, [b"x"] * 2 * module.MAX_GROUP_MESSAGES)
    history.put(4 * module.MAX_GROUP_MESSAGES, [b"x"])
    history.put(4 * module.MAX_GROUP_MESSAGES + 1, [b"x"])
    assert len(history._groups) == 5
    assert len(history) == 5 * module.MAX_GROUP_MESSAGES + 2
