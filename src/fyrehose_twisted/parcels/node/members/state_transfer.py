"""Transfer of the application's state between nodes, for nodes without the events that led to it."""

from __future__ import annotations

from math import inf

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.parcels.node.counters import Counters
from fyrehose_twisted.parcels.node.discovery.links import InboundPeer, LinkTable
from fyrehose_twisted.parcels.node.discovery.neighbours import Neighbours
from fyrehose_twisted.parcels.node.ordering.application_state import ApplicationState
from fyrehose_twisted.parcels.node.ordering.delivery import Delivery
from fyrehose_twisted.parcels.node.output import NodeOutput
from fyrehose_twisted.parcels.wire.messages import MAX_STATE_BYTES, FetchState, FetchStateReply

PART_BYTES = 49_152
"""Bytes of a state in one reply."""
REPLY_TIMEOUT = 2.0
"""Seconds after which another node is asked."""
JOIN_PATIENCE = 10.0
"""Seconds for which a new node waits for the state before it becomes a member."""
SNAPSHOT_LIFETIME = 10.0
"""Seconds for which one snapshot serves all that begin to ask for the state."""


class StateTransfer:
    """State of the application that one node takes from others, and others from it.

    :ivar deadline: time at which :meth:`fetch_if_needed` is due.
    """

    def __init__(
        self,
        raft: RaftMember,
        application: ApplicationState,
        delivery: Delivery,
        links: LinkTable,
        neighbours: Neighbours,
        counters: Counters,
        output: NodeOutput,
    ) -> None:
        self.deadline = inf
        self._raft = raft
        self._application = application
        self._delivery = delivery
        self._links = links
        self._neighbours = neighbours
        self._counters = counters
        self._output = output
        self._served: tuple[int, bytes] = (0, b"")
        self._served_at = -inf
        self._lacking_since = inf
        self._source: MemberId | None = None
        self._tried: set[MemberId] = set()
        self._warned = False
        self._sequence = 0
        self._data = bytearray()

    def fetch_if_needed(self, now: float) -> None:
        """Bring the state up to date, from this node's events or from another node."""
        application = self._application
        application.advance()
        if not application.is_held or application.is_complete:
            self.deadline = self._lacking_since = inf
            self._source = None
            application.is_overdue = False
            return
        self._lacking_since = min(self._lacking_since, now)
        application.is_overdue = now - self._lacking_since >= JOIN_PATIENCE
        if not application.misses_events:
            self.deadline = now
        elif now >= self.deadline or self._source not in self._links.ready_targets:
            self._ask_next(now)

    def _ask_next(self, now: float) -> None:
        if self._source is not None:
            self._tried.add(self._source)
        self._source = None
        self.deadline = now + REPLY_TIMEOUT
        able = [member for member in sorted(self._links.ready_targets) if self._neighbours.knows_conditions(member)]
        left = [member for member in able if member not in self._tried]
        if not left:
            if self._tried and not self._warned:
                self._warned = True
                self._output.warn(
                    f"the state lacks events {self._application.sequence + 1:,} to"
                    f" {self._delivery.history.oldest - 1:,}, and no node that can be reached has it"
                )
            self._tried.clear()
            return
        leader = self._raft.leader
        self._source = leader if leader is not None and leader in left else left[0]
        self._request(0)

    def _request(self, offset: int) -> None:
        if not offset:
            self._sequence, self._data = 0, bytearray()
        assert self._source is not None, "somebody is asked"
        self._links.request(self._source, FetchState(self._sequence, offset))

    def reply_received(self, message: FetchStateReply, member: MemberId, now: float) -> bool:
        """Process a part of the state; return whether there is anything new."""
        application = self._application
        if member != self._source or not application.misses_events:
            return False
        if not message.held or message.total > MAX_STATE_BYTES:
            self._ask_next(now)
            return True
        if message.offset == 0:
            self._sequence, self._data = message.sequence, bytearray()
        if (message.sequence, message.offset) != (self._sequence, len(self._data)):
            return False  # A reply to an earlier question.
        self._data += message.data
        self.deadline = now + REPLY_TIMEOUT
        if len(self._data) < message.total and message.data:
            self._request(len(self._data))
            return True
        data, self._data = bytes(self._data), bytearray()
        if len(data) != message.total or message.sequence < self._delivery.history.oldest - 1:
            self._ask_next(now)  # This node does not hold the events that come next, either.
            return True
        self._source, self._warned = None, False
        self._tried.clear()
        self._counters.states_fetched += 1
        application.restore(message.sequence, data)
        return True

    def fetch_received(self, message: FetchState, caller: InboundPeer, now: float) -> None:
        """Send a part of the state to another node."""
        sequence, data = self._served
        self._application.advance()
        if not message.offset or message.sequence != sequence:
            if now - self._served_at > SNAPSHOT_LIFETIME or not self._served_at:
                taken = self._application.snapshot() if self._application.is_complete else None
                if taken is None or len(taken) > MAX_STATE_BYTES:
                    self._output.write(caller.peer, FetchStateReply(0, 0, 0, False, b""))
                    return
                self._served, self._served_at = (self._application.sequence, taken), now
                sequence, data = self._served
            offset = 0
        else:
            offset = message.offset
        part = data[offset : offset + PART_BYTES]
        self._output.write(caller.peer, FetchStateReply(sequence, offset, len(data), True, part))
