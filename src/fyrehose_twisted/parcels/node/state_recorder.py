"""Which promises a node makes, so that they can be made durable before anybody relies on them."""

from __future__ import annotations

from typing import NamedTuple

from fyrehose_twisted.parcels.node.ordering.event_numbering import Replica
from fyrehose_twisted.parcels.node.persistent_state import Change, State
from fyrehose_twisted.parcels.node.raft.log import entry_size
from fyrehose_twisted.parcels.node.raft.member import Order
from fyrehose_twisted.parcels.wire.messages import Member, StatePart, View

COMPACT_BYTES = 16 * 2**20
"""Bytes of promises after which they are written anew, as state."""
MAX_STATE = 64 * 2**20
"""Bytes of state that a node takes from another one."""


class Promising:
    """Collects what has changed since it was made durable.

    :param durable: whether anything is.
    :ivar state: a state that replaces everything before it.
    :ivar dirty: whether something changed that the order does not know of.
    """

    def __init__(self, *, durable: bool) -> None:
        self.durable = durable
        self.state: State | None = None
        self.dirty = False
        self._bytes = 0

    def compact(self, order: Order, applied: State) -> None:
        """Let what was promised be kept as the state that it came to."""
        self.state = applied
        order.fresh_from = applied.index + 1
        self._bytes = 0

    @property
    def much(self) -> bool:
        """Whether so much was promised that it should be kept as state."""
        return self.durable and self._bytes > COMPACT_BYTES

    def change(self, order: Order, founding: int) -> Change | None:
        """Return what is to be made durable now."""
        if not self.durable or not (order.dirty or self.dirty or self.state is not None):
            return None
        state, first = self.state, order.fresh_from
        if first and state is not None:
            first = max(first, state.index + 1)
        entries = order.log.rest(first) if first else []
        self._bytes += sum(map(entry_size, entries))
        order.dirty, order.fresh_from, self.dirty, self.state = False, 0, False, None
        return Change(order.term, order.vote, founding, order.commit, state, first, entries)


class Arrived(NamedTuple):
    """A state that came in parts."""

    state: State
    replica: Replica
    view: View


class Arriving:
    """Puts the parts of a state together."""

    def __init__(self) -> None:
        self._sender: Member | None = None
        self._index = 0
        self._data = bytearray()

    def forget(self) -> None:
        """Begin anew."""
        self._sender = None
        self._data = bytearray()

    def take(self, part: StatePart, sender: Member) -> tuple[int, Arrived | None]:
        """Take a part; return how many bytes are there, and the state if that is all.

        :raises BadState: if it is none.
        """
        if (sender, part.index) != (self._sender, self._index):
            self._sender, self._index, self._data = sender, part.index, bytearray()
        data = self._data
        if part.total > MAX_STATE or part.offset + len(part.data) > part.total:
            return len(data), None
        if part.offset == len(data):
            data += part.data
        size = len(data)
        if size < part.total:
            return size, None
        self.forget()
        replica = Replica()
        view = replica.load(bytes(data))
        return size, Arrived(State(part.index, part.index_term, bytes(data)), replica, view)
