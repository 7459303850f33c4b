from __future__ import annotations

from random import Random
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from fyrehose_twisted.fyrehose.node.client import memory_store as module
from fyrehose_twisted.fyrehose.node.client.memory_store import MESSAGE_OVERHEAD, MemoryStore
from fyrehose_twisted.interfaces import IMessageStore


def test_memory_store_provides_imessagestore() -> None:
    assert verifyObject(IMessageStore, MemoryStore())


@given(st.integers(0, 2**32))
def test_a_memory_store_holds_the_latest_messages_that_fit(seed: int) -> None:
    rng = Random(seed)
    store = MemoryStore(2_000)
    put: dict[int, bytes] = {}
    for _ in range(60):
        sequence, data = rng.randrange(100), bytes(rng.randrange(200))
        if store.get(sequence) is None:
            put.pop(sequence, None)
        put[sequence] = data  # A replacement keeps its position.
        store.put(sequence, [data])
        while sum(len(kept) + MESSAGE_OVERHEAD for kept in put.values()) > 2_000:
            del put[next(iter(put))]
        assert {number: store.get(number) for number in put} == put
        assert len(store) == len(put)
        assert store.size == sum(len(kept) + MESSAGE_OVERHEAD for kept in put.values())
        assert store.lowest(0, 99, 1_000) == sorted(put)
        assert store.lowest(20, 60, 2) == [number for number in sorted(put) if 20 <= number <= 60][:2]


def test_a_memory_store_replaces_a_message_of_the_same_number() -> None:
    store = MemoryStore()
    store.put(1, [b"first"], 5)
    store.put(1, [b"second"], 6)
    assert (store.get(1), store.received_at(1), len(store)) == (b"second", 6, 1)


def test_a_memory_store_without_memory_holds_nothing() -> None:
    store = MemoryStore(0)
    store.put(1, [b""])
    assert (store.get(1), store.lowest(0, 9, 9), store.size) == (None, [], 0)


runs = st.lists(
    st.tuples(st.integers(0, 60), st.lists(st.sampled_from([0, 1, 50, 300]), min_size=1, max_size=9)), max_size=20
)
"""First number and message lengths of each run."""


def contents(store: MemoryStore) -> dict[int, tuple[bytes | None, int | None]]:
    return {number: (store.get(number), store.received_at(number)) for number in store.lowest(0, 99, 100)}


@given(runs, st.sampled_from([0, 170, 1_000, 2_000, 10**6]), st.sampled_from([1, 4, 10, module.MAX_GROUP_MESSAGES]))
def test_a_memory_store_holds_the_latest_messages_of_runs_that_fit(
    found: list[tuple[int, list[int]]], limit: int, group: int
) -> None:
    store = MemoryStore(limit)
    kept: dict[int, tuple[bytes, int]] = {}
    for now, (first, lengths) in enumerate(found):
        messages = [bytes([row]) * length for row, length in enumerate(lengths)]
        with patch.object(module, "MAX_GROUP_MESSAGES", group):
            store.put(first, messages, now)
        kept.update(zip(range(first, first + len(messages)), [(data, now) for data in messages], strict=True))
        while sum(len(data) + MESSAGE_OVERHEAD for data, _ in kept.values()) > limit:
            del kept[next(iter(kept))]
        assert contents(store) == kept
        assert len(store) == len(kept)
        assert store.size == sum(len(data) + MESSAGE_OVERHEAD for data, _ in kept.values())
        assert store.lowest(10, 50, 3) == [number for number in sorted(kept) if 10 <= number <= 50][:3]


@given(runs, st.sampled_from([0, 170, 1_000, 2_000, 10**6]))
def test_a_run_of_new_messages_is_stored_like_single_messages(found: list[tuple[int, list[int]]], limit: int) -> None:
    store, reference = MemoryStore(limit), MemoryStore(limit)
    for now, (first, lengths) in enumerate(found):
        messages = [bytes([row]) * length for row, length in enumerate(lengths)]
        if limit < 10**6 and store.lowest(first, first + len(messages) - 1, 1):
            continue  # A replacement keeps its eviction turn, which may come while the run is being added.
        store.put(first, messages, now)
        for sequence, data in enumerate(messages, first):
            reference.put(sequence, [data], now)
        assert (contents(store), store.size) == (contents(reference), reference.size)


def test_a_run_is_evicted_message_by_message() -> None:
    store = MemoryStore(5 * (MESSAGE_OVERHEAD + 1))
    store.put(10, [b"a", b"b", b"c", b"d"])
    held = []
    for number in range(1, 8):
        store.put(number, [b"x"])
        held.append(store.lowest(0, 99, 99))
    assert held == [
        [1, 10, 11, 12, 13],
        [1, 2, 11, 12, 13],
        [1, 2, 3, 12, 13],
        [1, 2, 3, 4, 13],
        [1, 2, 3, 4, 5],
        [2, 3, 4, 5, 6],
        [3, 4, 5, 6, 7],
    ]


def test_the_end_of_a_run_larger_than_the_memory_is_kept() -> None:
    store = MemoryStore(3 * (MESSAGE_OVERHEAD + 1))
    store.put(1, [b"x"])
    store.put(5, [b"y"] * 7)
    assert (store.lowest(0, 99, 99), store.size) == ([9, 10, 11], store.limit)


def test_lists_passed_to_put_are_not_shared_with_the_store() -> None:
    """Contiguous messages share a group, but the lists of callers stay unchanged."""
    store = MemoryStore()
    lists = [[b"1", b"2"], [b"3", b"4"]]
    for first, messages in zip((1, 3), lists, strict=True):
        store.put(first, messages)
    store.put(2, [b"two", b"three"])
    assert lists == [[b"1", b"2"], [b"3", b"4"]]
    lists[0].clear()
    assert [store.get(number) for number in range(1, 5)] == [b"1", b"two", b"three", b"4"]


def test_contiguous_messages_are_grouped_up_to_a_limit() -> None:
    store = MemoryStore()
    for number in range(3 * module.MAX_GROUP_MESSAGES):
        store.put(number, [b"x"])
    assert [len(group.data) for group in store._groups] == [module.MAX_GROUP_MESSAGES] * 3
    store.put(5 * module.MAX_GROUP_MESSAGES, [b"x"] * 2 * module.MAX_GROUP_MESSAGES)
    store.put(4 * module.MAX_GROUP_MESSAGES, [b"x"])
    store.put(4 * module.MAX_GROUP_MESSAGES + 1, [b"x"])
    assert len(store._groups) == 5
    assert len(store) == 5 * module.MAX_GROUP_MESSAGES + 2
