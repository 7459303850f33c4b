"""Publish requests in progress: those of this node, of its clients and of other nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.errors import LocalError, NotOrdered, PublishQueueFull
from fyrehose_twisted.parcels.events import NodeEvent, PublishConfirmed, PublishUnconfirmed
from fyrehose_twisted.parcels.node.ordering.pending import PendingRuns, RunKey, run_key, run_size, same_events
from fyrehose_twisted.parcels.node.ordering.publisher_queue import PublisherQueue
from fyrehose_twisted.parcels.node.ordering.publisher_sessions import ConditionFailed, RunPlacement
from fyrehose_twisted.parcels.wire.messages import Message, PublishAck, PublisherRun, PublishNack, RefusalReason

MAX_REFUSED_PUBLISHERS = 1_024
"""Publishers for which the first run refused for lack of room is remembered."""
NOT_LEADER = "this node is no longer the leader; try again"
OTHER_BODY_PENDING = "another body is being published with this key; try again"

REFUSAL_TEXTS = {
    RefusalReason.FORGOTTEN: (
        "the publisher's earlier events are no longer remembered, so duplicates cannot be detected"
    ),
    RefusalReason.OUT_OF_ORDER: ("an earlier event of this publisher is missing, or the publisher has restarted since"),
    RefusalReason.OTHER_BODY: ("this key was used before, for another body; use a new key, or repeat the same body"),
    RefusalReason.NOT_SUPPORTED: ("a member runs an older version; upgrade all members first"),
}
"""Texts for people, by reason of a refusal."""


class PublishTracker:
    """Publish requests in progress, and the replies to their requesters.

    An answer is held back until this node has handed the events on, so that who publishes here and then reads here
    finds what was published.

    :param publisher: publisher name of this node.
    :param limit: maximum size in bytes of pending events; separate for this node's own and for those of others.
    :ivar replies: replies to send, each with its connection.
    :ivar events: results for the application.
    """

    def __init__(self, publisher: str, limit: int, epoch: int) -> None:
        self.queue = PublisherQueue(publisher, limit, epoch)
        self.pending = PendingRuns(limit)
        self.replies: list[tuple[Peer, Message]] = []
        self.events: list[NodeEvent] = []
        self._tokens: dict[RunKey, list[Any]] = {}
        self._limit = limit
        self._first_refused: dict[tuple[str, int], int] = {}
        self._deferred: list[tuple[int, Peer | None, RunKey, tuple[tuple[int, int], ...]]] = []

    def __len__(self) -> int:
        return len(self.pending) + len(self._deferred)

    def publish(self, events: Sequence[bytes], token: Any) -> None:
        """Queue events of this node.

        :raises PublishQueueFull: if too many events are pending.
        """
        self.queue.publish(events, token)

    def publish_as(self, run: PublisherRun, token: Any) -> None:
        """Queue events numbered by the application.

        :raises PublishQueueFull: if too many wait.
        :raises NotOrdered: if others wait that were numbered alike.
        :raises LocalError: if they are numbered as those of this node.
        """
        if run.publisher == self.queue.publisher:
            raise LocalError(f"publisher {run.publisher!r} is this node itself; use another name")
        if self._key_conflicts(run):
            raise NotOrdered("key-pending", OTHER_BODY_PENDING, unknown=False)
        if self.pending.size + run_size(run) > self._limit and self.pending.size:
            raise PublishQueueFull(f"{self.pending.size:,} bytes of events are pending; wait for some of them")
        self.pending.add(run, None)
        self._tokens.setdefault(run_key(run), []).append(token)

    def take_runs(self) -> list[PublisherRun]:
        """Return the runs of this node to send now."""
        runs = self.queue.take_runs()
        for run in runs:
            self.pending.add(run, None)
        return runs

    def publish_requested(self, run: PublisherRun, requester: Peer) -> bool:
        """Accept a run of another publisher; return whether it has to be forwarded, that is, was not pending."""
        if run.publisher == self.queue.publisher:
            self.refuse(requester, run, RefusalReason.NAME_TAKEN, "the publisher name is that of this node")
            return False
        if self._key_conflicts(run):
            # Only for now: the run that waits may itself be refused, when the key was bound to this body before.
            self.refuse(requester, run, RefusalReason.TOO_MANY, OTHER_BODY_PENDING)
            return False
        key = run[:2]
        refused = self._first_refused.get(key)
        added = False if refused is not None and run.first > refused else self.pending.add(run, requester)
        if added is not False:
            self._first_refused.pop(key, None)
        elif refused is None or run.first < refused:
            # Later runs must not overtake it.
            if len(self._first_refused) >= MAX_REFUSED_PUBLISHERS:
                self._first_refused.pop(next(iter(self._first_refused)))
            self._first_refused[key] = run.first
        if added is False:
            text = f"{self.pending.size:,} bytes of events are pending; try again later"
            self.refuse(requester, run, RefusalReason.TOO_MANY, text)
        return bool(added)

    def refuse(self, requester: Peer, run: PublisherRun, reason: RefusalReason, text: str) -> None:
        """Reply that a run is refused."""
        self.replies.append((requester, PublishNack(run.publisher, run.epoch, run.first, reason, text)))

    def run_applied(
        self, run: PublisherRun, placement: RunPlacement | ConditionFailed | RefusalReason, delivered: int
    ) -> None:
        """Process the result of an applied run, which may be pending here."""
        waiting = self.pending.get(run_key(run))
        if waiting is None:
            return
        if not same_events(waiting.run, run):
            # Another node published a run under this key. If that run is ordered, the pending one never will be.
            if isinstance(placement, RunPlacement):
                self.pending.pop(run_key(run))
                self._fail_run(waiting.run, waiting.requester, RefusalReason.OTHER_BODY)
            return
        self.pending.pop(run_key(run))
        if isinstance(placement, RunPlacement):
            self._defer_reply(run_key(run), waiting.requester, placement.sequences, delivered)
        elif isinstance(placement, ConditionFailed):
            self._fail_run(waiting.run, waiting.requester, RefusalReason.UNEXPECTED, placement.last)
        else:
            self._fail_run(waiting.run, waiting.requester, placement)

    def publish_rejected(self, message: PublishNack) -> None:
        """Process a refusal by the leader. After a temporary refusal the run stays pending and is resent.

        A refusal for another body does not say which body it refuses, and may be late: the log decides.
        """
        if message.why not in (RefusalReason.FORGOTTEN, RefusalReason.OVERSIZE, RefusalReason.NOT_SUPPORTED):
            return
        for run in list(self.pending.runs()):
            if (run.publisher, run.epoch, run.first) == message[:3]:
                waiting = self.pending.pop(run_key(run))
                if waiting is not None:
                    self._fail_run(run, waiting.requester, message.why)

    def events_delivered(self, sequence: int) -> None:
        """Release the replies for events up to ``sequence``, which are delivered now."""
        if not self._deferred or self._deferred[0][0] > sequence:
            return
        held, self._deferred = self._deferred, []
        for last, asker, key, numbers in held:
            if last <= sequence:
                self._reply(key, asker, numbers)
            else:
                self._deferred.append((last, asker, key, numbers))

    def abandon_all(self, text: str) -> None:
        """Fail all pending runs, because there is no quorum. Their events may still be ordered."""
        held, self._deferred = self._deferred, []
        for _, asker, key, numbers in held:
            self._reply(key, asker, numbers)
        for run, asker, _ in self.pending.clear():
            if asker is not None:
                self.refuse(asker, run, RefusalReason.NO_QUORUM, text)
        for failed in self.queue.abandon_all():
            self.events.append(
                PublishUnconfirmed(failed.token, failed.numbers, RefusalReason.NO_QUORUM, text, failed.sent)
            )
        for tokens in self._tokens.values():
            self.events.extend(PublishUnconfirmed(token, (), RefusalReason.NO_QUORUM, text, True) for token in tokens)
        self._tokens.clear()

    def runs(self) -> Iterator[PublisherRun]:
        """Yield all pending runs in order of arrival."""
        return self.pending.runs()

    def _key_conflicts(self, run: PublisherRun) -> bool:
        """Return whether a different run is pending under the key of ``run``."""
        waiting = self.pending.get(run_key(run))
        return waiting is not None and not same_events(waiting.run, run)

    def _defer_reply(
        self, key: RunKey, requester: Peer | None, numbers: tuple[tuple[int, int], ...], delivered: int
    ) -> None:
        last = numbers[-1][0] + numbers[-1][1] - 1
        if last <= delivered and not self._deferred:
            self._reply(key, requester, numbers)
        else:
            self._deferred.append((last, requester, key, numbers))

    def _reply(self, key: RunKey, requester: Peer | None, numbers: tuple[tuple[int, int], ...]) -> None:
        if requester is not None:
            self.replies.append((requester, PublishAck(*key[:3], numbers)))
        elif key[0] == self.queue.publisher:
            for done in self.queue.acknowledge(key[1], key[2], numbers):
                if done.token is not None:
                    self.events.append(PublishConfirmed(*done))
        # The same run may have come both over a connection and from the application.
        for token in self._tokens.pop(key, ()):
            self.events.append(PublishConfirmed(token, numbers))

    def _fail_run(
        self, run: PublisherRun, requester: Peer | None, reason: RefusalReason, last: int | None = None
    ) -> None:
        text = REFUSAL_TEXTS.get(reason, reason.name)
        if last is not None:
            text = f"the last event has number {last}, not {run.expect}"
        unknown = reason not in (
            RefusalReason.OUT_OF_ORDER,
            RefusalReason.UNEXPECTED,
            RefusalReason.NOT_SUPPORTED,
        )
        if requester is not None:
            self.refuse(requester, run, reason, text)
        elif run.publisher == self.queue.publisher and run.epoch == self.queue.epoch:
            for failed in self.queue.abandon_all():
                self.events.append(PublishUnconfirmed(failed.token, failed.numbers, reason, text, True))
        for token in self._tokens.pop(run_key(run), ()):
            self.events.append(PublishUnconfirmed(token, (), reason, text, unknown, last))
