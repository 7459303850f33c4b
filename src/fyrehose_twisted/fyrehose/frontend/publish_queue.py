"""What clients want published, and its way to the backbone: in turns, and no faster than it is taken."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from fyrehose_twisted.errors import MessageTooLarge, NotConnected, OperationalError, PublishTimeout
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.journals import Journals
from fyrehose_twisted.fyrehose.frontend.rates import Rates
from fyrehose_twisted.fyrehose.wire.envelope import MAX_ENVELOPED
from fyrehose_twisted.wording import counted

AT_ONCE, BYTES_AT_ONCE = 256, 256 * 2**10
"""Messages of one client, and about how many bytes of them, that are sent before the next client has its turn."""

SWEEP_TIME = 1.0
"""Seconds between two looks for what has waited for too long."""

OVERHEAD = 64
"""Bytes that a message takes beside its own."""


class NotPublished(OperationalError):
    """Messages were not published, as far as is known.

    :ivar why: short stable name of the reason.
    :ivar unknown: whether some of them may have been all the same.
    """

    def __init__(self, why: str, detail: str, *, unknown: bool) -> None:
        super().__init__(detail)
        self.why = why
        self.unknown = unknown


class TooMuchWaits(OperationalError):
    """More waits to be published than may.

    :ivar own: whether it is the client's own.
    """

    def __init__(self, detail: str, *, own: bool) -> None:
        super().__init__(detail)
        self.own = own


class _Batch:
    __slots__ = ("client", "done", "left", "messages", "over", "sent", "sequences", "since", "size")

    def __init__(self, client: str, messages: Sequence[bytes], size: int, since: float, done: Deferred[Any]) -> None:
        self.client = client
        self.messages = messages
        self.size = size
        self.since = since
        self.done = done
        self.sequences: list[int] = [0] * len(messages)
        self.sent = 0
        self.left = len(messages)
        self.over = False


class Intake:
    """Takes messages in.

    :param publisher: sends them to the backbone.
    :param kept: durable journals that must have synced a message before its number is told; a request may ask for more.
    :ivar rates: what each client may publish.
    :ivar published: messages that came back.
    :ivar published_bytes: bytes of them.
    :ivar failed: messages that did not, by reason.
    :ivar waiting_bytes: bytes that wait to be sent.
    :ivar journals: what durable journals have synced.
    """

    def __init__(self, publisher: Any, config: FrontendConfig, reactor: Any, kept: int = 0) -> None:
        self.config = config
        self.kept = kept
        self.rates = Rates(config, reactor)
        self.published = 0
        self.published_bytes = 0
        self.failed: Counter[str] = Counter()
        self.waiting_bytes = 0
        self.journals = Journals(config, reactor, self._pump, max(1, kept))
        self.is_connected = False
        self._publisher = publisher
        self._reactor = reactor
        self._turns: OrderedDict[str, deque[_Batch]] = OrderedDict()
        self._waiting: Counter[str] = Counter()
        self._room: Deferred[None] | None = None
        self._pumping = False
        self._sent_bytes = 0
        self._under_way: set[_Batch] = set()
        self._sweep: Any = None
        self._idle: list[Deferred[None]] = []

    def __len__(self) -> int:
        return len(self._under_way) + len(self.journals)

    def reconfigure(self, config: FrontendConfig) -> None:
        """Go by other limits from now on."""
        self.config = self.rates.config = self.journals.config = config

    def submit(self, client: str, messages: Sequence[bytes]) -> Deferred[Sequence[int]]:
        """Publish messages, in this order, as soon as there is room.

        :return: Deferred of their numbers. It fails with :class:`NotPublished`; cancelled, it leaves out what was not
            sent yet.
        :raises MessageTooLarge: if one does not fit a datagram; then none is published.
        :raises TooMuchWaits: if too much waits already.
        """
        longest = max(map(len, messages))
        if longest > MAX_ENVELOPED:
            raise MessageTooLarge(longest, MAX_ENVELOPED)
        size = sum(map(len, messages)) + OVERHEAD * len(messages)
        config = self.config
        if self._waiting[client] and self._waiting[client] + size > config.waiting_bytes_per_client:
            raise TooMuchWaits(f"{counted(self._waiting[client], 'byte')} of yours wait to be published", own=True)
        # A client may have as much as is left: however many want more, something is left for the next one.
        if self.waiting_bytes and self._waiting[client] + size > config.waiting_bytes - self.waiting_bytes:
            raise TooMuchWaits(f"{self.waiting_bytes:,} bytes wait to be published", own=False)
        self.rates.charge(client, len(messages), size)
        done: Deferred[Sequence[int]] = Deferred(lambda _: self._cancel(batch))
        batch = _Batch(client, messages, size, self._reactor.seconds(), done)
        self._under_way.add(batch)
        self._waiting[client] += size
        self.waiting_bytes += size
        self._turns.setdefault(client, deque()).append(batch)
        self._sweep_later()
        self._pump()
        return done

    def when_kept(self, sequences: Sequence[int], kept: int) -> Deferred[Sequence[int]]:
        """Wait until durable journals have synced messages; see :meth:`.Journals.when_kept`."""
        waiting = self.journals.when_kept(sequences, kept)
        self._sweep_later()
        return waiting.addBoth(self._waited)

    def _waited(self, result: Any) -> Any:
        self._tell_idle()
        return result

    def connected(self, yes: bool) -> None:
        """The backbone answers, or does so no more."""
        self.is_connected = yes
        self._pump()

    def when_idle(self) -> Deferred[None]:
        """Return a Deferred that fires when nothing is under way."""
        idle: Deferred[None] = Deferred()
        self._idle.append(idle)
        self._tell_idle()
        return idle

    def stop(self) -> None:
        """Give up what is left."""
        for batch in list(self._under_way):
            self._fail(batch, "stopping", "the service stops")
        self.journals.stop()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _pump(self) -> None:
        if self._pumping:
            return  # What fails at once brings more; whoever is at it goes on with that.
        self._pumping = True
        try:
            self._send_turns()
        finally:
            self._pumping = False

    def _send_turns(self) -> None:
        while self._turns and self.is_connected and self._room is None and self.journals.room(self._sent_bytes) > 0:
            try:
                room = self._publisher.when_room()
            except NotConnected:
                return
            if not room.called:
                self._room = room
                room.addCallbacks(self._has_room, self._no_room)
                return
            room.addErrback(lambda failure: None)
            client, batches = next(iter(self._turns.items()))
            self._turns.move_to_end(client)
            self._send(batches[0])

    def _has_room(self, result: object) -> None:
        self._room = None
        self._pump()

    def _no_room(self, failure: Failure) -> None:
        failure.trap(NotConnected)
        self._room = None

    def _send(self, batch: _Batch) -> None:
        first = batch.sent
        messages = batch.messages[first : first + AT_ONCE]
        size = sum(map(len, messages)) + OVERHEAD * len(messages)
        if size > BYTES_AT_ONCE:
            ends = accumulate(len(message) + OVERHEAD for message in messages)
            messages = messages[: max(1, sum(end <= BYTES_AT_ONCE for end in ends))]
            size = sum(map(len, messages)) + OVERHEAD * len(messages)
        try:
            published = self._publisher.publish_many(messages)
        except NotConnected as error:
            self._fail(batch, "not-connected", str(error))
            return
        batch.sent += len(messages)
        self._sent_bytes += size
        self._no_longer_waits(batch, size)
        published.addCallbacks(self._returned, self._lost, (batch, first, size), errbackArgs=(batch, size))

    def _no_longer_waits(self, batch: _Batch, size: int) -> None:
        client = batch.client
        self.waiting_bytes -= size
        self._waiting[client] -= size
        if not self._waiting[client]:
            del self._waiting[client]
        batch.size -= size
        if not batch.size:
            batches = self._turns[client]
            batches.remove(batch)
            if not batches:
                del self._turns[client]

    def _returned(self, sequences: list[int], batch: _Batch, first: int, size: int) -> None:
        self._sent_bytes -= size
        self.journals.published(max(sequences), size)
        batch.sequences[first : first + len(sequences)] = sequences
        batch.left -= len(sequences)
        self.published += len(sequences)
        self.published_bytes += size - OVERHEAD * len(sequences)
        if not batch.left and not batch.over:
            self._end(batch)
            batch.done.callback(batch.sequences)
        self._pump()

    def _lost(self, failure: Failure, batch: _Batch, size: int) -> None:
        failure.trap(NotConnected, PublishTimeout)
        self._sent_bytes -= size
        late = failure.check(PublishTimeout) is not None
        self._fail(batch, "timeout" if late else "not-connected", str(failure.value))
        self._pump()

    def _fail(self, batch: _Batch, why: str, detail: str) -> None:
        if batch.over:
            return
        self.failed[why] += batch.left
        self._end(batch)
        batch.done.errback(NotPublished(why, detail, unknown=batch.sent > 0))

    def _cancel(self, batch: _Batch) -> None:
        self.failed["abandoned"] += len(batch.messages) - batch.sent
        self._end(batch)

    def _end(self, batch: _Batch) -> None:
        batch.over = True
        self._under_way.discard(batch)
        if batch.size:
            self._no_longer_waits(batch, batch.size)
        self._tell_idle()

    def _tell_idle(self) -> None:
        if not len(self):
            idle, self._idle = self._idle, []
            for one in idle:
                one.callback(None)

    def _sweep_later(self) -> None:
        if self._sweep is None and len(self):
            self._sweep = self._reactor.callLater(SWEEP_TIME, self._look)

    def _look(self) -> None:
        self._sweep = None
        try:
            self._fail_late()
            self.journals.time_passed(SWEEP_TIME)
        finally:
            self._sweep_later()

    def _fail_late(self) -> None:
        now, timeout = self._reactor.seconds(), self.config.publish_timeout
        for batches in list(self._turns.values()):
            for batch in [batch for batch in batches if now - batch.since >= timeout]:
                away = "" if self.is_connected else "; the backbone does not answer"
                self._fail(batch, "timeout", f"there was no room for it within {timeout:g} s{away}")
