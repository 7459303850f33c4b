"""Publishing of events: from requests of the application, clients and other nodes to the log of the leader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, MemberId
from fyrehose_twisted.consensus.replication import MAX_APPEND_BYTES
from fyrehose_twisted.errors import LocalError, MessageTooLarge, NotOrdered
from fyrehose_twisted.parcels.node.counters import Counters
from fyrehose_twisted.parcels.node.discovery.links import InboundPeer, LinkTable
from fyrehose_twisted.parcels.node.modes import ModeMachine
from fyrehose_twisted.parcels.node.ordering.pending import run_size
from fyrehose_twisted.parcels.node.ordering.publish_tracker import NOT_LEADER, REFUSAL_TEXTS, PublishTracker
from fyrehose_twisted.parcels.node.output import NodeOutput
from fyrehose_twisted.parcels.wire.messages import (
    CONDITIONS_VERSION,
    MAX_PUBLISHER,
    Mode,
    Publish,
    PublishAck,
    PublisherRun,
    PublishNack,
    RefusalReason,
)

MAX_ENCODED_RUN = 60_000
"""Maximum encoded size of one run in bytes."""
RESEND_DELAY = 0.2
"""Seconds after which runs refused by the leader are resent."""


class Publishing:
    """Publish requests of one node, which it forwards to the leader, or puts into the log if it leads.

    :param max_event: maximum size of an event in bytes.
    :param tracker: requests in progress.
    :param lowest_version: returns the lowest version of the extension that the known members announce, if any.
    :param is_handing_over: returns whether another node is about to lead; nothing is proposed meanwhile.
    :ivar resend_at: time at which :meth:`resend_all` is due.
    """

    def __init__(
        self,
        max_event: int,
        tracker: PublishTracker,
        raft: RaftMember,
        links: LinkTable,
        modes: ModeMachine,
        counters: Counters,
        output: NodeOutput,
        lowest_version: Callable[[], int | None],
        is_handing_over: Callable[[], bool],
    ) -> None:
        self.resend_at = inf
        self._lowest_version = lowest_version
        self._max_event = max_event
        self._tracker = tracker
        self._raft = raft
        self._links = links
        self._modes = modes
        self._counters = counters
        self._output = output
        self._unsent_runs: list[PublisherRun] = []
        self._known_leader: MemberId | None = None
        self._is_handing_over = is_handing_over

    # Requests

    def publish(self, events: Sequence[bytes], token: Any) -> None:
        """Publish events of this node, in order.

        :raises MessageTooLarge: if an event is too large.
        :raises PublishQueueFull: if too many events are pending.
        :raises NotOrdered: if this node has no quorum.
        """
        self._check(events)
        if events:
            self._tracker.publish(events, token)

    def publish_as(self, run: PublisherRun, token: Any) -> None:
        """Publish events that the application numbered itself.

        :raises MessageTooLarge: if an event is too large.
        :raises NotOrdered: if this node has no quorum, or others are pending that were numbered alike.
        :raises PublishQueueFull: if too many events are pending.
        :raises LocalError: if the publisher's name is too long or this node's own, or if there are no events.
        """
        self._check(run.events)
        if run.expect is not None:
            self._check_version()
        if not run.events or run.first < 1:
            raise LocalError("a run needs at least one event, with numbers from 1 on")
        if not 1 <= len(run.publisher.encode()) <= MAX_PUBLISHER:
            raise LocalError(f"publisher {run.publisher[:40]!r}…: use 1 to {MAX_PUBLISHER} bytes")
        self._tracker.publish_as(run, token)
        self._unsent_runs.append(run)

    def mark(self, run: PublisherRun, token: Any) -> None:
        """Put a run without events into the log.

        :raises NotOrdered: if this node has no quorum, or a member runs a version that refuses such runs.
        """
        self._check(run.events)
        self._check_version()
        self._tracker.publish_as(run, token)
        self._unsent_runs.append(run)

    def _check_version(self) -> None:
        if not self._conditions_known():
            raise NotOrdered("not-supported", REFUSAL_TEXTS[RefusalReason.NOT_SUPPORTED], unknown=False)

    def _conditions_known(self) -> bool:
        """Return whether all members that this node knows support what came with :data:`CONDITIONS_VERSION`."""
        version = self._lowest_version()
        return version is None or version >= CONDITIONS_VERSION

    def _check(self, events: Sequence[bytes]) -> None:
        limit = self._max_event
        for event in events:
            if len(event) > limit:
                raise MessageTooLarge(len(event), limit)
        if self._modes.mode is not Mode.WRK:
            self._counters.refused += len(events)
            raise NotOrdered("no-quorum", f"this node cannot order events: {self._modes.reason}", unknown=False)
        self._counters.published += len(events)

    def publish_received(self, message: Publish, caller: InboundPeer, now: float) -> None:
        """Process a run of a client or of another node."""
        run = message.run
        refusal = self._refusal(run, caller)
        if refusal is not None:
            self._tracker.refuse(caller.peer, run, *refusal)
            return
        self._counters.published += len(run.events)
        # A pending run may have been lost with its leader. Repeating it is harmless.
        if self._tracker.publish_requested(run, caller.peer):
            self._unsent_runs.append(run)

    def _refusal(self, run: PublisherRun, caller: InboundPeer) -> tuple[RefusalReason, str] | None:
        if not run.first >= 1 or not (run.events or caller.member is not None):
            return RefusalReason.OUT_OF_ORDER, "a run needs at least one event, with numbers from 1 on"
        limit = self._max_event
        if run_size(run) > MAX_ENCODED_RUN or any(len(event) > limit for event in run.events):
            return (
                RefusalReason.OVERSIZE,
                f"an event has more than {limit:,} bytes, or all together more than {MAX_ENCODED_RUN:,}",
            )
        if (run.expect is not None or not run.events) and not self._conditions_known():
            return RefusalReason.NOT_SUPPORTED, REFUSAL_TEXTS[RefusalReason.NOT_SUPPORTED]
        if self._modes.mode is not Mode.WRK:
            return RefusalReason.NO_QUORUM, f"this node cannot order events: {self._modes.reason}"
        if caller.member is not None and not self._raft.is_leader:
            return RefusalReason.NO_QUORUM, NOT_LEADER
        return None

    def publish_nack_received(self, message: PublishNack, member: MemberId, now: float) -> bool:
        """Process a refusal by the leader; return whether there is anything new to send."""
        self._tracker.publish_rejected(message)
        self.resend_at = min(self.resend_at, now + RESEND_DELAY)
        return True

    # Outputs

    def tick(self, now: float) -> None:
        """Carry out what is due at ``now``."""
        if now >= self.resend_at:
            self.resend_all()

    def resend_all(self) -> None:
        """Forward all pending runs again."""
        self.resend_at = inf
        self._unsent_runs = list(self._tracker.runs())

    def forward(self) -> None:
        """Forward new runs to the leader, or all pending runs to a new leader."""
        raft, tracker = self._raft, self._tracker
        leader = raft.leader
        if leader != self._known_leader:
            self._known_leader = leader
            self.resend_all()
        if raft.is_leader and self._is_handing_over():
            return
        requests, self._unsent_runs = self._unsent_runs, []
        if tracker.queue.pending_events:
            requests.extend(tracker.take_runs())
        if not requests or leader is None or self.resend_at < inf:
            return  # They stay pending, behind the runs that the leader refused.
        if raft.is_leader:
            self._propose(requests)
            return
        for run in requests:
            self._links.request(leader, Publish(run))

    def _propose(self, runs: list[PublisherRun]) -> None:
        """Append runs to the log, as many as fit per entry."""
        raft = self._raft
        batch: list[PublisherRun] = []
        size = 0
        for run in runs:
            added = run_size(run)
            if batch and size + added > MAX_APPEND_BYTES:
                raft.propose(LogEntry(raft.term, EntryKind.DATA, tuple(batch)))
                batch, size = [], 0
            batch.append(run)
            size += added
        raft.propose(LogEntry(raft.term, EntryKind.DATA, tuple(batch)))

    def send_replies(self) -> None:
        """Queue replies to publish requests on their connections."""
        inbound = self._links.inbound
        for peer, message in self._tracker.replies:
            caller = inbound.get(peer.number)
            if caller is None:
                continue
            if caller.member is not None and type(message) is PublishAck:
                self._raft.replication.send_commit(caller.member)
            else:
                self._output.write(peer, message)
        self._tracker.replies.clear()
