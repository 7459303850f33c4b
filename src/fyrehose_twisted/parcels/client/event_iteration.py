"""Events of a cluster, for ``async for``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.errors import EventsMissing
from fyrehose_twisted.inbox import MAX_WAITING_BYTES, Inbox, wake_deferred
from fyrehose_twisted.interfaces import IEventListener
from fyrehose_twisted.parcels.client.sse_client import EventFollower, OrderedEvent


class _Skipped(NamedTuple):
    first: int
    last: int


@implementer(IEventListener)
class EventIteration:
    """Asynchronous iterator over ordered events, across failures of nodes.

    Where events are missing, the iteration raises :class:`~fyrehose_twisted.errors.EventsMissing`, and goes on behind
    them if it is begun anew. It stops after :meth:`stop`, and raises what the follower failed with; see
    :attr:`EventFollower.stopped`. While the application is slow, no more is taken from the node, which drops a client
    that is too slow; the iteration then continues from another connection.

    Within ``async with``, it is stopped at the end.

    :param follow: starts a follower with this listener.
    :param max_waiting: maximum bytes of data that wait for the application, about.
    :param make_waiter: returns what the application awaits, and ``wake`` fires it; Deferreds by default.
    """

    def __init__(
        self,
        follow: Callable[[Any], EventFollower],
        *,
        max_waiting: int = MAX_WAITING_BYTES,
        make_waiter: Callable[[], Awaitable[Any]] = Deferred,
        wake: Callable[[Any], object] = wake_deferred,
    ) -> None:
        self._inbox: Inbox[OrderedEvent | _Skipped] = Inbox(
            max_waiting, pause=self._pause, resume=self._resume, make_waiter=make_waiter, wake=wake
        )
        self._follower: EventFollower | None = None
        self._follower = follow(self)
        if self._inbox.is_paused:
            self._follower.pause()
        self._follower.stopped.addCallbacks(lambda _: self._inbox.end(), self._failed)

    @property
    def follower(self) -> EventFollower:
        """The follower, which knows the number of the next event that it will receive, and the cluster id."""
        assert self._follower is not None, "it is set at once"
        return self._follower

    def stop(self) -> None:
        """Stop the iteration after what has arrived."""
        self.follower.stop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> OrderedEvent:
        """Return the next event.

        :raises EventsMissing: if events before it are missing.
        """
        item = await self._inbox.take()
        if isinstance(item, _Skipped):
            raise EventsMissing(item.first, item.last)
        return item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def events_ordered(self, events: Sequence[OrderedEvent]) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IEventListener`."""
        self._inbox.push(events, sum([len(event.data) for event in events]))

    def events_skipped(self, first: int, last: int) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IEventListener`."""
        self._inbox.push((_Skipped(first, last),), 0)

    def _failed(self, failure: Failure) -> None:
        error = failure.value
        self._inbox.end(error if isinstance(error, Exception) else None)

    def _pause(self) -> None:
        if self._follower is not None:
            self._follower.pause()

    def _resume(self) -> None:
        if self._follower is not None:
            self._follower.resume()
