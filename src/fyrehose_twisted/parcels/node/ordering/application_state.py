"""The application's state on one node: what the ordered events result in."""

from __future__ import annotations

from collections.abc import Iterable

from fyrehose_twisted.interfaces import IReplicatedState
from fyrehose_twisted.parcels.events import NodeEvent, StateFailed
from fyrehose_twisted.parcels.node.ordering.delivery import MAX_FETCH_EVENTS, Delivery
from fyrehose_twisted.parcels.node.ordering.history import EventBatch
from fyrehose_twisted.parcels.wire.messages import Event


class ApplicationState:
    """A :class:`~fyrehose_twisted.parcels.replicated_state.ReplicatedState`, and how far it has come.

    :param state: the application's object; ``None`` if this node holds none.
    :param sequence: number of the last event that it contains.
    :param events: list to which events for the application are appended.
    :ivar is_overdue: whether it has lacked events for so long that the node joins its cluster without them.
    :ivar failure: what the object raised; empty as long as it works. It gets no more events then.
    """

    def __init__(
        self, state: IReplicatedState | None, sequence: int, delivery: Delivery, events: list[NodeEvent]
    ) -> None:
        self.sequence = sequence
        self.is_overdue = False
        self.failure = ""
        self._state = state
        self._delivery = delivery
        self._events = events
        if state is not None:
            delivery.on_delivered = self._events_delivered

    @property
    def is_held(self) -> bool:
        """Whether this node holds a state that works."""
        return self._state is not None and not self.failure

    @property
    def is_complete(self) -> bool:
        """Whether it contains all delivered events."""
        return self.is_held and self.sequence >= self._delivery.last

    @property
    def misses_events(self) -> bool:
        """Whether it needs events that this node does not hold."""
        return not self.is_complete and self._delivery.history.oldest > self.sequence + 1

    @property
    def is_awaited(self) -> bool:
        """Whether the node should have more of it before it becomes a member."""
        return self.is_held and not self.is_complete and not self.is_overdue

    def start_after(self, sequence: int) -> None:
        """Begin behind this event, because the cluster does."""
        self.sequence = max(self.sequence, sequence)

    def advance(self) -> None:
        """Apply delivered events that it lacks, as many as one turn has time for."""
        delivery = self._delivery
        if self.is_held and not self.is_complete and not self.misses_events:
            self._apply(delivery.read(self.sequence + 1, delivery.last, MAX_FETCH_EVENTS))

    def _events_delivered(self, events: EventBatch) -> None:
        if self.is_held and events.last > self.sequence >= events.last - len(events):
            self._apply(events)

    def _apply(self, events: Iterable[Event]) -> None:
        state = self._state
        assert state is not None, "a node without a state applies no events to it"
        for event in events:
            if event.sequence <= self.sequence:
                continue
            try:
                state.apply(event)
            except Exception as error:
                self._failed(f"it cannot apply event {event.sequence}", error)
                return
            self.sequence = event.sequence

    def snapshot(self) -> bytes | None:
        """Return the state as data; ``None`` if the application fails to."""
        assert self._state is not None, "a node without a state has no snapshot of it"
        try:
            return bytes(self._state.snapshot())
        except Exception as error:
            self._failed(f"it has no snapshot after event {self.sequence}", error)
            return None

    def restore(self, sequence: int, data: bytes) -> None:
        """Replace the state by the one that was the snapshot after event ``sequence``."""
        assert self._state is not None, "a node without a state restores none"
        try:
            self._state.restore(data)
        except Exception as error:
            self._failed(f"it cannot restore {len(data):,} bytes from after event {sequence}", error)
            return
        self.sequence = sequence

    def _failed(self, what: str, error: Exception) -> None:
        self.failure = f"{what}: {type(error).__name__}: {error}"
        self._events.append(StateFailed(self.failure))
