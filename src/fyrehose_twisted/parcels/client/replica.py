"""Replica of an application's state, kept up to date over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.errors import EventsNotHeld, StateUnavailable
from fyrehose_twisted.interfaces import IEventListener, IReplicatedState
from fyrehose_twisted.parcels.client.sse_client import EventFollower, OrderedEvent
from fyrehose_twisted.parcels.state_snapshot import SNAPSHOT_EVENTS, StateSnapshot, read_snapshot, write_snapshot


@implementer(IEventListener)
class StateReplica:
    """State of an application outside of the nodes. It begins with a snapshot, and follows the events from there.

    The snapshot is that in its file, or else that of a node which holds the same state, or else none: then the cluster
    must still hold the first event.

    :param state: the application's object.
    :param path: file for snapshots of this replica alone; ``None`` stores none.
    :param fetch: asks the nodes for a snapshot; fails with :class:`~fyrehose_twisted.errors.StateUnavailable` if none
        holds the state.
    :param follow: follows the events for a listener, from a number on.
    :ivar sequence: number of the last event that the state contains.
    :ivar cluster_id: id of its cluster; empty before it is known.
    :ivar stopped: Deferred that fires when the replica is stopped. It fails with what the state raised, with
        :class:`~fyrehose_twisted.errors.StateFileError`, with :class:`~fyrehose_twisted.errors.EventsNotHeld` if
        neither the next events nor a snapshot can be had, or as :attr:`EventFollower.stopped
        <fyrehose_twisted.parcels.client.sse_client.EventFollower>` does.
    """

    log = Logger()

    def __init__(
        self,
        state: IReplicatedState,
        path: Path | None,
        fetch: Callable[[], Deferred[StateSnapshot]],
        follow: Callable[[Any, int, str], EventFollower],
    ) -> None:
        self.state = state
        self.sequence = 0
        self.cluster_id = ""
        self._path = path
        self._fetch = fetch
        self._follow = follow
        self._follower: EventFollower | None = None
        self._saved = 0
        self._gap: tuple[int, int] | None = None
        self._waiting: list[tuple[int, Deferred[None]]] = []
        self._running: Deferred[None] = Deferred.fromCoroutine(self._run())
        self.stopped = self._running.addBoth(self._end)

    def stop(self) -> None:
        """Store a snapshot, and stop."""
        self._running.cancel()

    def reached(self, sequence: int) -> Deferred[None]:
        """Return a Deferred that fires once the state contains an event, such as one that was just published."""
        waiting: Deferred[None] = Deferred()
        if self.sequence >= sequence:
            waiting.callback(None)
        else:
            self._waiting.append((sequence, waiting))
        return waiting

    async def _run(self) -> None:
        found = None if self._path is None else read_snapshot(self._path)
        if found is None:
            try:
                found = await self._fetch()
            except StateUnavailable as error:
                self.log.info("the state begins with the first event: {why}", why=error)
        while True:
            if found is not None:
                self._restore(found)
            self._follower = self._follow(self, self.sequence + 1, self.cluster_id)
            await self._follower.stopped
            gap = self._take_gap()
            if gap is None:
                return
            try:
                found = await self._fetch()
            except StateUnavailable:
                found = None
            first, last = gap
            if found is None or found.sequence < last:
                raise EventsNotHeld(first, last + 1, max(last, self.sequence))

    def _take_gap(self) -> tuple[int, int] | None:
        gap, self._gap = self._gap, None
        return gap

    def _restore(self, snapshot: StateSnapshot) -> None:
        self.state.restore(snapshot.data)
        self.sequence, self.cluster_id = snapshot.sequence, snapshot.cluster_id
        self._tell()

    def events_ordered(self, events: Sequence[OrderedEvent]) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IEventListener.events_ordered`."""
        for event in events:
            if self._gap is not None:
                return
            if event.sequence > self.sequence:
                self.state.apply(event)
                self.sequence = event.sequence
        if self._follower is not None:
            self.cluster_id = self._follower.cluster_id
        self._tell()
        if self.sequence - self._saved >= SNAPSHOT_EVENTS:
            self._save()

    def events_skipped(self, first: int, last: int) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IEventListener.events_skipped`."""
        if last > self.sequence:
            self._gap = first, last
            assert self._follower is not None, "it skips events while it follows"
            self._follower.stop()

    def _tell(self) -> None:
        due = [waiting for sequence, waiting in self._waiting if sequence <= self.sequence]
        self._waiting = [pair for pair in self._waiting if pair[0] > self.sequence]
        for waiting in due:
            if not waiting.called:
                waiting.callback(None)

    def _save(self) -> None:
        if self._path is not None and self.sequence > self._saved:
            write_snapshot(self._path, StateSnapshot(self.cluster_id, self.sequence, self.state.snapshot()))
            self._saved = self.sequence

    def _end(self, result: Any) -> Any:
        if self._follower is not None:
            self._follower.stop()
        failed = isinstance(result, Failure) and result.check(CancelledError) is None
        for _, waiting in self._waiting:
            waiting.cancel()
        self._waiting.clear()
        if failed:
            return result
        self._save()
        return None
