"""Events on their way into the order: this node's own, and those that come from others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.errors import KeyReused, LocalError, PublishQueueFull
from fyrehose_twisted.parcels.events import NodeEvent, PublishConfirmed, PublishUnconfirmed
from fyrehose_twisted.parcels.node.ordering.pending import PendingRuns, RunKey, run_key, run_size, same_events
from fyrehose_twisted.parcels.node.ordering.publisher_queue import PublisherQueue
from fyrehose_twisted.parcels.node.ordering.publisher_sessions import RunPlacement
from fyrehose_twisted.parcels.wire.messages import Message, PublishAck, PublisherRun, PublishNack, RefusalReason

MAX_REFUSED_PUBLISHERS = 1_024
"""Publishers of whom it is remembered that something was refused for want of room."""
NOT_LEADER = "this node does not order any more; ask again"


class PublishTracker:
    """What is on its way, and who is told what became of it.

    An answer is held back until this node has handed the events on, so that who publishes here and then reads here
    finds what was published.

    :param publisher: what this node calls itself as a publisher.
    :param limit: bytes of events that may wait, those of this node and those of others each.
    :ivar replies: answers for others, each with its connection.
    :ivar events: answers for the application.
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
        """Take events of this node. :raises PublishQueueFull: if too many wait."""
        self.queue.publish(events, token)

    def publish_as(self, run: PublisherRun, token: Any) -> None:
        """Take events that the application numbered.

        :raises PublishQueueFull: if too many wait.
        :raises KeyReused: if others wait that were numbered alike.
        :raises LocalError: if they are numbered as those of this node.
        """
        if run.publisher == self.queue.publisher:
            raise LocalError(f"{run.publisher!r} is what this node calls itself")
        if self._key_conflicts(run):
            raise KeyReused(_REFUSAL_TEXTS[RefusalReason.OTHER_BODY])
        if self.pending.size + run_size(run) > self._limit and self.pending.size:
            raise PublishQueueFull(f"{self.pending.size:,} bytes of events wait to be ordered; wait for some of them")
        self.pending.add(run, None)
        self._tokens.setdefault(run_key(run), []).append(token)

    def take_runs(self) -> list[PublisherRun]:
        """Return runs of this node that are to be sent now."""
        runs = self.queue.take_runs()
        for run in runs:
            self.pending.add(run, None)
        return runs

    def publish_requested(self, run: PublisherRun, requester: Peer) -> bool:
        """Somebody wants a run ordered; returns whether it has to be sent on. One that waits already has not."""
        if run.publisher == self.queue.publisher:
            self.refuse(requester, run, RefusalReason.NAME_TAKEN, "that is what this node calls itself")
            return False
        if self._key_conflicts(run):
            self.refuse(requester, run, RefusalReason.OTHER_BODY, _REFUSAL_TEXTS[RefusalReason.OTHER_BODY])
            return False
        key = run[:2]
        refused = self._first_refused.get(key)
        added = False if refused is not None and run.first > refused else self.pending.add(run, requester)
        if added is not False:
            self._first_refused.pop(key, None)
        elif refused is None or run.first < refused:
            # What follows must not overtake it.
            if len(self._first_refused) >= MAX_REFUSED_PUBLISHERS:
                self._first_refused.pop(next(iter(self._first_refused)))
            self._first_refused[key] = run.first
        if added is False:
            text = f"{self.pending.size:,} bytes of events wait to be ordered already; try again later"
            self.refuse(requester, run, RefusalReason.TOO_MANY, text)
        return bool(added)

    def refuse(self, requester: Peer, run: PublisherRun, reason: RefusalReason, text: str) -> None:
        """Tell who asked that a run is not taken."""
        self.replies.append((requester, PublishNack(run.publisher, run.epoch, run.first, reason, text)))

    def run_applied(self, run: PublisherRun, placement: RunPlacement | RefusalReason, delivered: int) -> None:
        """A run that waited may be in the order now."""
        waiting = self.pending.get(run_key(run))
        if waiting is None:
            return
        if not same_events(waiting.run, run):
            # Published elsewhere under the same key: if it has a number, what waits here will have none.
            if isinstance(placement, RunPlacement):
                self.pending.pop(run_key(run))
                self._fail_run(waiting.run, waiting.requester, RefusalReason.OTHER_BODY)
            return
        self.pending.pop(run_key(run))
        if isinstance(placement, RunPlacement):
            self._defer_reply(run_key(run), waiting.requester, placement.sequences, delivered)
        else:
            self._fail_run(waiting.run, waiting.requester, placement)

    def publish_rejected(self, message: PublishNack) -> None:
        """The leader will not have a run: for good, or just not now; then it stays, and is sent again."""
        if message.why not in (RefusalReason.FORGOTTEN, RefusalReason.OVERSIZE, RefusalReason.OTHER_BODY):
            return
        for run in list(self.pending.runs()):
            if (run.publisher, run.epoch, run.first) == message[:3]:
                waiting = self.pending.pop(run_key(run))
                if waiting is not None:
                    self._fail_run(run, waiting.requester, message.why)

    def events_delivered(self, sequence: int) -> None:
        """Events up to ``sequence`` have been handed on."""
        if not self._deferred or self._deferred[0][0] > sequence:
            return
        held, self._deferred = self._deferred, []
        for last, asker, key, numbers in held:
            if last <= sequence:
                self._reply(key, asker, numbers)
            else:
                self._deferred.append((last, asker, key, numbers))

    def abandon_all(self, text: str) -> None:
        """There is no quorum: tell everybody who waits. Some of it may be ordered all the same."""
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
        """Yield all runs that wait, in the order in which they came."""
        return self.pending.runs()

    def _key_conflicts(self, run: PublisherRun) -> bool:
        """Whether another run waits under the key of ``run``."""
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
        # Who asked over a connection may have been followed by the application, and the other way round.
        for token in self._tokens.pop(key, ()):
            self.events.append(PublishConfirmed(token, numbers))

    def _fail_run(self, run: PublisherRun, requester: Peer | None, reason: RefusalReason) -> None:
        text = _REFUSAL_TEXTS.get(reason, reason.name)
        if requester is not None:
            self.refuse(requester, run, reason, text)
        elif run.publisher == self.queue.publisher and run.epoch == self.queue.epoch:
            for failed in self.queue.abandon_all():
                self.events.append(PublishUnconfirmed(failed.token, failed.numbers, reason, text, True))
        for token in self._tokens.pop(run_key(run), ()):
            self.events.append(PublishUnconfirmed(token, (), reason, text, reason is not RefusalReason.OUT_OF_ORDER))


_REFUSAL_TEXTS = {
    RefusalReason.FORGOTTEN: (
        "what this publisher published before is no longer remembered, nor whether this is a repeat"
    ),
    RefusalReason.OUT_OF_ORDER: (
        "something that the publisher published before this is missing, or it has begun anew since"
    ),
    RefusalReason.OTHER_BODY: (
        "this key was used before, for another body; use a new key, or repeat what was published then"
    ),
}
