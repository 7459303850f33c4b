"""Events on their way into the order: this node's own, and those that come from others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.errors import KeyReused, LocalError, PublishQueueFull
from fyrehose_twisted.parcels.events import Answered, NotTaken, Told
from fyrehose_twisted.parcels.node.ordering.pending import Key, Pending, key_of, run_size, same_events
from fyrehose_twisted.parcels.node.ordering.publisher_queue import Outbox
from fyrehose_twisted.parcels.node.ordering.publisher_sessions import Placed
from fyrehose_twisted.parcels.wire.messages import Message, NotPublished, Published, Refusal, Run

REFUSED = 1_024
"""Publishers of whom it is remembered that something was refused for want of room."""
NOT_LEADING = "this node does not order any more; ask again"


class Publishing:
    """What is on its way, and who is told what became of it.

    An answer is held back until this node has handed the events on, so that who publishes here and then reads here
    finds what was published.

    :param publisher: what this node calls itself as a publisher.
    :param limit: bytes of events that may wait, those of this node and those of others each.
    :ivar out: answers for others, each with its connection.
    :ivar told: answers for the application.
    """

    def __init__(self, publisher: str, limit: int, epoch: int) -> None:
        self.outbox = Outbox(publisher, limit, epoch)
        self.pending = Pending(limit)
        self.out: list[tuple[Peer, Message]] = []
        self.told: list[Told] = []
        self._tokens: dict[Key, list[Any]] = {}
        self._limit = limit
        self._refused: dict[tuple[str, int], int] = {}
        self._held: list[tuple[int, Peer | None, Key, tuple[tuple[int, int], ...]]] = []

    def __len__(self) -> int:
        return len(self.pending) + len(self._held)

    def publish(self, events: Sequence[bytes], token: Any) -> None:
        """Take events of this node. :raises PublishQueueFull: if too many wait."""
        self.outbox.publish(events, token)

    def publish_as(self, run: Run, token: Any) -> None:
        """Take events that the application numbered.

        :raises PublishQueueFull: if too many wait.
        :raises KeyReused: if others wait that were numbered alike.
        :raises LocalError: if they are numbered as those of this node.
        """
        if run.publisher == self.outbox.publisher:
            raise LocalError(f"{run.publisher!r} is what this node calls itself")
        if self._clashes(run):
            raise KeyReused(_WORDS[Refusal.OTHER_BODY])
        if self.pending.size + run_size(run) > self._limit and self.pending.size:
            raise PublishQueueFull(f"{self.pending.size:,} bytes of events wait to be ordered; wait for some of them")
        self.pending.add(run, None)
        self._tokens.setdefault(key_of(run), []).append(token)

    def take(self) -> list[Run]:
        """Return runs of this node that are to be sent now."""
        runs = self.outbox.take()
        for run in runs:
            self.pending.add(run, None)
        return runs

    def asked(self, run: Run, asker: Peer) -> bool:
        """Somebody wants a run ordered; returns whether it has to be sent on. One that waits already has not."""
        if run.publisher == self.outbox.publisher:
            self.refuse(asker, run, Refusal.NAME_TAKEN, "that is what this node calls itself")
            return False
        if self._clashes(run):
            self.refuse(asker, run, Refusal.OTHER_BODY, _WORDS[Refusal.OTHER_BODY])
            return False
        key = run[:2]
        refused = self._refused.get(key)
        added = False if refused is not None and run.first > refused else self.pending.add(run, asker)
        if added is not False:
            self._refused.pop(key, None)
        elif refused is None or run.first < refused:
            # What follows must not overtake it.
            if len(self._refused) >= REFUSED:
                self._refused.pop(next(iter(self._refused)))
            self._refused[key] = run.first
        if added is False:
            text = f"{self.pending.size:,} bytes of events wait to be ordered already; try again later"
            self.refuse(asker, run, Refusal.TOO_MANY, text)
        return bool(added)

    def refuse(self, asker: Peer, run: Run, why: Refusal, text: str) -> None:
        """Tell who asked that a run is not taken."""
        self.out.append((asker, NotPublished(run.publisher, run.epoch, run.first, why, text)))

    def placed(self, run: Run, placed: Placed | Refusal, delivered: int) -> None:
        """A run that waited may be in the order now."""
        waiting = self.pending.get(key_of(run))
        if waiting is None:
            return
        if not same_events(waiting.run, run):
            # Published elsewhere under the same key: if it has a number, what waits here will have none.
            if isinstance(placed, Placed):
                self.pending.pop(key_of(run))
                self._failed(waiting.run, waiting.asker, Refusal.OTHER_BODY)
            return
        self.pending.pop(key_of(run))
        if isinstance(placed, Placed):
            self._hold(key_of(run), waiting.asker, placed.numbers, delivered)
        else:
            self._failed(waiting.run, waiting.asker, placed)

    def not_answered(self, message: NotPublished) -> None:
        """The leader will not have a run: for good, or just not now; then it stays, and is sent again."""
        if message.why not in (Refusal.FORGOTTEN, Refusal.OVERSIZE, Refusal.OTHER_BODY):
            return
        for run in list(self.pending.runs()):
            if (run.publisher, run.epoch, run.first) == message[:3]:
                waiting = self.pending.pop(key_of(run))
                if waiting is not None:
                    self._failed(run, waiting.asker, message.why)

    def delivered(self, sequence: int) -> None:
        """Events up to ``sequence`` have been handed on."""
        if not self._held or self._held[0][0] > sequence:
            return
        held, self._held = self._held, []
        for last, asker, key, numbers in held:
            if last <= sequence:
                self._answer(key, asker, numbers)
            else:
                self._held.append((last, asker, key, numbers))

    def give_up(self, text: str) -> None:
        """There is no quorum: tell everybody who waits. Some of it may be ordered all the same."""
        held, self._held = self._held, []
        for _, asker, key, numbers in held:
            self._answer(key, asker, numbers)
        for run, asker, _ in self.pending.clear():
            if asker is not None:
                self.refuse(asker, run, Refusal.NO_QUORUM, text)
        for failed in self.outbox.give_up():
            self.told.append(NotTaken(failed.token, failed.numbers, Refusal.NO_QUORUM, text, failed.sent))
        for tokens in self._tokens.values():
            self.told.extend(NotTaken(token, (), Refusal.NO_QUORUM, text, True) for token in tokens)
        self._tokens.clear()

    def runs(self) -> Iterator[Run]:
        """Yield all runs that wait, in the order in which they came."""
        return self.pending.runs()

    def _clashes(self, run: Run) -> bool:
        """Whether another run waits under the key of ``run``."""
        waiting = self.pending.get(key_of(run))
        return waiting is not None and not same_events(waiting.run, run)

    def _hold(self, key: Key, asker: Peer | None, numbers: tuple[tuple[int, int], ...], delivered: int) -> None:
        last = numbers[-1][0] + numbers[-1][1] - 1
        if last <= delivered and not self._held:
            self._answer(key, asker, numbers)
        else:
            self._held.append((last, asker, key, numbers))

    def _answer(self, key: Key, asker: Peer | None, numbers: tuple[tuple[int, int], ...]) -> None:
        if asker is not None:
            self.out.append((asker, Published(*key[:3], numbers)))
        elif key[0] == self.outbox.publisher:
            for done in self.outbox.answered(key[1], key[2], numbers):
                if done.token is not None:
                    self.told.append(Answered(*done))
        # Who asked over a connection may have been followed by the application, and the other way round.
        for token in self._tokens.pop(key, ()):
            self.told.append(Answered(token, numbers))

    def _failed(self, run: Run, asker: Peer | None, why: Refusal) -> None:
        text = _WORDS.get(why, why.name)
        if asker is not None:
            self.refuse(asker, run, why, text)
        elif run.publisher == self.outbox.publisher and run.epoch == self.outbox.epoch:
            for failed in self.outbox.give_up():
                self.told.append(NotTaken(failed.token, failed.numbers, why, text, True))
        for token in self._tokens.pop(key_of(run), ()):
            self.told.append(NotTaken(token, (), why, text, why is not Refusal.OUT_OF_ORDER))


_WORDS = {
    Refusal.FORGOTTEN: "what this publisher published before is no longer remembered, nor whether this is a repeat",
    Refusal.OUT_OF_ORDER: "something that the publisher published before this is missing, or it has begun anew since",
    Refusal.OTHER_BODY: "this key was used before, for another body; use a new key, or repeat what was published then",
}
