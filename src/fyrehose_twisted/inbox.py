"""Queue from a protocol, which is called, to an application, which awaits."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

MAX_WAITING_BYTES = 4 * 2**20
"""Default limit of what waits for an application, in bytes of payload."""

ItemT = TypeVar("ItemT")


def wake_deferred(waiter: Any) -> None:
    """Fire a Deferred that an application awaits."""
    waiter.callback(None)


class Inbox(Generic[ItemT]):
    """Batches of items that wait for the application.

    It knows neither Twisted nor asyncio: what the application awaits is made by ``make_waiter``. If several coroutines
    take items, each item goes to one of them.

    :param limit: weight above which the source is paused. What it pushes nevertheless is kept.
    :param pause: pauses the source.
    :param resume: resumes it once half of ``limit`` is left, and may push at once.
    :param make_waiter: returns an awaitable, such as a Deferred or a Future.
    :param wake: fires an awaitable, which may have been cancelled.
    """

    def __init__(
        self,
        limit: int,
        *,
        pause: Callable[[], object],
        resume: Callable[[], object],
        make_waiter: Callable[[], Awaitable[Any]],
        wake: Callable[[Any], object],
    ) -> None:
        self.limit = limit
        self._pause, self._resume = pause, resume
        self._make_waiter, self._wake = make_waiter, wake
        self._batches: deque[tuple[Sequence[ItemT], int]] = deque()
        self._current: Iterator[ItemT] = iter(())
        self._current_weight = 0
        self._weight = 0
        self._is_paused = False
        self._has_ended = False
        self._error: Exception | None = None
        self._waiters: list[Any] = []

    @property
    def weight(self) -> int:
        """Weight of the batches that the application has not taken completely."""
        return self._weight

    @property
    def is_paused(self) -> bool:
        """Whether the source is paused."""
        return self._is_paused

    def push(self, items: Sequence[ItemT], weight: int) -> None:
        """Add a batch. After the end, it is discarded."""
        if self._has_ended:
            return
        self._batches.append((items, weight))
        self._weight += weight
        if self._weight > self.limit and not self._is_paused:
            self._is_paused = True
            self._pause()
        self._wake_all()

    def end(self, error: Exception | None = None) -> None:
        """End the iteration after what was pushed.

        :param error: raised to the application at the end; by default, the iteration stops.
        """
        if not self._has_ended:
            self._has_ended, self._error = True, error
            self._wake_all()

    async def take(self) -> ItemT:
        """Return the next item, waiting for it.

        :raises StopAsyncIteration: at the end.
        """
        while True:
            for item in self._current:
                return item
            if not self._next_batch():
                await self._wait()

    async def take_batch(self) -> Sequence[ItemT]:
        """Return all items of the next batch that are left, at least one, waiting for them.

        :raises StopAsyncIteration: at the end.
        """
        while True:
            rest = list(self._current)
            if rest:
                return rest
            if not self._next_batch():
                await self._wait()

    def _next_batch(self) -> bool:
        self._weight -= self._current_weight
        self._current_weight = 0
        found = bool(self._batches)
        if found:
            items, self._current_weight = self._batches.popleft()
            self._current = iter(items)
        if self._is_paused and self._weight <= self.limit // 2:
            self._is_paused = False
            self._resume()
        return found or bool(self._batches)

    async def _wait(self) -> None:
        if self._has_ended:
            if self._error is not None:
                raise self._error
            raise StopAsyncIteration
        waiter = self._make_waiter()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:  # It was cancelled.
                self._waiters.remove(waiter)

    def _wake_all(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            self._wake(waiter)
