"""Queue from a protocol to an application that awaits."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred

from fyrehose_twisted.inbox import Inbox, wake_deferred


class Source:
    """Source that pushes batches of consecutive numbers while it is not paused, one byte each."""

    def __init__(self, sizes: list[int]) -> None:
        self.batches: deque[list[int]] = deque()
        first = 0
        for size in sizes:
            self.batches.append(list(range(first, first + size)))
            first += size
        self.is_paused = False
        self.paused = 0

    def inbox(self, limit: int) -> Inbox[int]:
        self.target: Inbox[int] = Inbox(
            limit, pause=self.pause, resume=self.resume, make_waiter=Deferred, wake=wake_deferred
        )
        return self.target

    def pause(self) -> None:
        self.is_paused = True
        self.paused += 1

    def resume(self) -> None:
        self.is_paused = False
        self.push()

    def push(self) -> None:
        while self.batches and not self.is_paused:
            batch = self.batches.popleft()
            self.target.push(batch, len(batch))


def start(work: Any, results: list[Any]) -> Deferred[Any]:
    return Deferred.fromCoroutine(work).addBoth(results.append)


@given(st.lists(st.integers(1, 5)), st.integers(0, 8), st.lists(st.booleans()))
def test_items_come_in_order_and_once_and_no_more_wait_than_the_limit_and_one_batch(
    sizes: list[int], limit: int, in_batches: list[bool]
) -> None:
    source, taken = Source(sizes), list[Any]()
    inbox = source.inbox(limit)
    source.push()
    choices = iter(in_batches)
    while len(taken) < sum(sizes):
        assert inbox.weight <= limit + 5
        results: list[Any] = []
        start(inbox.take_batch() if next(choices, False) else inbox.take(), results)
        taken += results[0] if isinstance(results[0], list) else results
    assert taken == list(range(sum(sizes)))
    start(inbox.take(), [])  # The last batch counts until somebody asks for more.
    assert (source.is_paused, inbox.weight) == (False, 0)
    if sum(sizes) > limit + max(sizes, default=0):
        assert source.paused


def test_a_source_is_resumed_when_half_of_the_limit_is_left() -> None:
    source = Source([2, 2, 2, 2])
    inbox = source.inbox(4)
    source.push()
    assert (source.is_paused, inbox.weight) == (True, 6)
    taken: list[Any] = []
    for _ in range(4):
        start(inbox.take(), taken)
    assert (source.is_paused, source.paused) == (True, 1), "what is being taken counts until its end"
    start(inbox.take(), taken)
    assert taken == [0, 1, 2, 3, 4]
    assert (source.is_paused, inbox.weight) == (False, 4)


def test_a_coroutine_that_waits_gets_what_comes() -> None:
    inbox, taken = Source([]).inbox(10), list[Any]()
    start(inbox.take(), taken)
    assert not taken
    inbox.push([7], 1)
    assert taken == [7]


def test_each_item_goes_to_one_of_several_coroutines() -> None:
    inbox, taken = Source([]).inbox(10), list[Any]()
    for _ in range(3):
        start(inbox.take(), taken)
    inbox.push([1, 2], 2)
    assert taken == [1, 2]
    inbox.push([3], 1)
    assert taken == [1, 2, 3]


def test_a_cancelled_coroutine_takes_nothing_and_leaves_nothing() -> None:
    inbox, taken, cancelled = Source([]).inbox(10), list[Any](), list[Any]()
    waiting = start(inbox.take(), cancelled)
    waiting.cancel()
    assert cancelled[0].check(CancelledError)
    assert not inbox._waiters
    inbox.push([1], 1)
    start(inbox.take(), taken)
    assert taken == [1]


def test_the_end_comes_after_what_was_pushed_and_wakes_those_who_wait() -> None:
    inbox, taken, others = Source([]).inbox(10), list[Any](), list[Any]()
    inbox.push([1], 1)
    inbox.end()
    inbox.push([2], 1)
    start(inbox.take(), taken)
    start(inbox.take(), taken)
    assert taken[0] == 1
    assert taken[1].check(StopAsyncIteration)
    other = Source([]).inbox(10)
    start(other.take_batch(), others)
    other.end(OSError("gone"))
    assert others[0].check(OSError)


def test_a_wait_of_asyncio_with_a_time_limit_loses_nothing() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        inbox: Inbox[int] = Inbox(
            10,
            pause=lambda: None,
            resume=lambda: None,
            make_waiter=loop.create_future,
            wake=lambda waiter: waiter.done() or waiter.set_result(None),
        )
        impatient = asyncio.create_task(inbox.take())
        patient = asyncio.create_task(inbox.take())
        await asyncio.sleep(0)
        inbox.push([1], 1)  # Wakes both; the first is cancelled before it runs.
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        assert await patient == 1
        inbox.push([2], 1)
        return [await inbox.take()]

    assert asyncio.run(main()) == [2]
