"""Streams that go on: each client gets every record once, in order, as fast as it reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from http import HTTPStatus
from typing import Any

from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.journal.repeat_marking import finished
from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.records.journals import Source, Sources
from fyrehose_twisted.query.records.query_params import Place, Selection
from fyrehose_twisted.query.records.record_json import Item, items, rows_within
from fyrehose_twisted.query.records.turns import Task, Turns
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.client_limits import Clients
from fyrehose_twisted.web.response import RETRY, Problem, dump
from fyrehose_twisted.web.site import too_many
from fyrehose_twisted.web.sse import comment, position
from fyrehose_twisted.web.streaming import Stream, Streams

STEP_RECORDS, STEP_BYTES = 256, 64 * 2**10
"""What one stream gets before the next has its turn."""

FILTERED_RECORDS, FILTERED_BYTES = 32, 16_384
"""Records, and about how many bytes of them, at which a filter looks before the next has its turn."""

AGAIN = 1.0
"""Seconds after which a journal that could not be read is tried again."""


class Tail:
    """The newest records of a stream that somebody follows, as they are sent.

    :ivar records: consecutive ones.
    :ivar next: the place after the last of them.
    """

    def __init__(self, source: Source, config: QueryConfig) -> None:
        self.source = source
        self.records: deque[Item] = deque()
        self.next = source.end()
        self.followers: dict[Following, None] = {}
        self.call: Any = None
        self._config = config
        self._first = self.next
        self._size = 0

    def look(self, sources: Sources) -> bool:
        """Take in what was written since; say whether there is anything new."""
        source = self.source
        source.refresh()  # Somebody else may have done so since.
        end = source.end()
        if end == self.next:
            return False
        # What precedes the first is read in the turns of those who follow, and not here.
        is_ready = source.marker.is_ready(*self.next)
        ahead = end.position - self.next.position
        if end.epoch != self.next.epoch or ahead > self._config.tail_records or not is_ready:
            self._restart(end)
            return True
        while self.next.position < end.position:
            stretch = source.stretch(end.epoch, self.next.position, keep=False)
            if stretch is None or stretch.block is None:
                self._restart(end)
                return True
            marks = finished(source.marker.marks(stretch.block))
            for item in items(stretch.block, sources.bare, marks):
                if item.position != self.next.position:
                    self._restart(Place(end.epoch, item.position))
                self._add(item)
            self.next = Place(end.epoch, stretch.last + 1)
        return True

    def since(self, place: Place) -> Iterator[Item] | None:
        """Return the records from ``place`` on; ``None`` if they are not kept here."""
        if place.epoch != self.next.epoch or not self._first.position <= place.position < self.next.position:
            return None
        skipped = place.position - self._first.position
        return (self.records[index] for index in range(skipped, len(self.records)))

    def _restart(self, next: Place) -> None:
        self.records.clear()
        self._size = 0
        self._first = self.next = next

    def _add(self, item: Item) -> None:
        self.records.append(item)
        self.next = Place(item.epoch, item.position + 1)
        self._size += len(item.payload)
        config = self._config
        while len(self.records) > config.tail_records or self._size > config.tail_bytes:
            gone = self.records.popleft()
            self._size -= len(gone.payload)
            self._first = Place(gone.epoch, gone.position + 1)


class Following(Stream):
    """One client. It keeps no records, only its place: what cannot be written yet is read again later.

    :ivar place: the next record to write.
    """

    def __init__(self, followers: Followers, request: WebRequest, tail: Tail, place: Place, wanted: Selection) -> None:
        super().__init__(followers, request)
        self.place = place
        self.tail = tail
        self.client = request.client_name
        self._followers = followers
        self._wanted = wanted
        self._task: Task | None = None
        self._over = False
        self._told = place

    def start(self) -> None:
        """Write the head, and then whatever there is, in turns with the others."""
        # Who is cut off before the first record comes back to the right place, too.
        self.begin(self.position_text())

    def catch_up(self) -> None:
        """See :meth:`~fyrehose_twisted.web.streaming.Stream.catch_up`."""
        if self._task is None and not self._over:
            self._task = self._followers.turns.start(self.client, self._work())

    def beat(self, text: bytes) -> None:
        """See :meth:`~fyrehose_twisted.web.streaming.Stream.beat`: a filter may have passed much over."""
        if not self.paused:
            self.write(self.alive_text(text) if self.place == self._told else self.position_text())
            self._told = self.place

    def over(self) -> None:
        """Do nothing any more."""
        self._over = True
        if self._task is not None:
            self._task.stop()

    def alive_text(self, text: bytes) -> bytes:
        """Return what says that the stream lives, where the client knows how far it is."""
        return text

    def position_text(self) -> bytes:
        """Return what tells no record, only how far the client is."""
        before = self.before()
        return comment(b"alive") if before is None else position(before)

    def record_text(self, item: Item, text: bytes) -> bytes:
        """Return what tells a record."""
        return b"data: %b\nid: %b\n\n" % (text, str(Place(item.epoch, item.position)).encode())

    def skipped_text(self, told: bytes, last: Place) -> bytes:
        """Return what tells that some cannot be had."""
        return b"event: skipped\ndata: %b\nid: %b\n\n" % (told, str(last).encode())

    def before(self) -> bytes | None:
        """Return the id before the next record; ``None`` at the beginning."""
        epoch, position = self.place
        return str(Place(epoch, position - 1)).encode() if position else None

    def _work(self) -> Iterator[None]:
        """Write as long as there is something to write, and the client reads it."""
        try:
            while not self.paused and (yield from self._advance()):
                yield
        except (JournalError, OperationalError, OSError) as error:
            self.tail.source.complain(error)
            self._followers.reactor.callLater(AGAIN, self.catch_up)
        except Exception:
            # The other streams have nothing to do with it.
            self._followers.log.failure("{stream} cannot be read on", stream=self.tail.source.stream)
            self.end("failed")
        self._task = None

    def _advance(self) -> Generator[None, None, bool]:
        """Write some of what there is; say whether there may be more."""
        source, (epoch, position) = self.tail.source, self.place
        kept = self.tail.since(self.place)
        if kept is not None:
            return self._send(kept)
        stretch = source.stretch(epoch, position)
        if stretch is None:
            return self._next_epoch(source)
        if stretch.block is None:
            self._skip(stretch.last)
            return True
        block = stretch.block.rows(0, rows_within(stretch.block, 0, STEP_RECORDS, STEP_BYTES))
        marks = yield from source.marker.marks(block)
        if self.paused:
            return False
        self._send(items(block, self._followers.sources.bare, marks))
        if self.place.position > block.last and len(block) == len(stretch.block) and stretch.last > block.last:
            self._skip(stretch.last)
        return True

    def _send(self, records: Iterator[Item]) -> bool:
        where, plain, since = self._wanted.where, self._wanted.plain, self._wanted.since or 0
        repeats = self._wanted.repeats
        texts: list[bytes] = []
        size = looked = 0
        most, most_bytes = (STEP_RECORDS, STEP_BYTES) if where is None else (FILTERED_RECORDS, FILTERED_BYTES)
        for count, item in enumerate(records):
            if count >= most or size >= STEP_BYTES or looked >= most_bytes:
                break
            if item.position > self.place.position:
                if texts:
                    self.write(b"".join(texts))
                    texts = []
                self._skip(item.position - 1)
            looked += len(item.payload)
            is_wanted = item.received_at >= since and (repeats or not item.is_repeat)
            if is_wanted and (where is None or where.wants(item)):
                text = item.text(plain)
                size += len(text)
                texts.append(self.record_text(item, text))
                self._told = Place(item.epoch, item.position + 1)
            self.place = Place(item.epoch, item.position + 1)
        else:
            if texts:
                self.write(b"".join(texts))
            return self.place != self.tail.next
        if texts:
            self.write(b"".join(texts))
        return True

    def _next_epoch(self, source: Source) -> bool:
        """Go on to the epoch after this one, if it has begun."""
        epoch, position = self.place
        later = source.next_epoch(epoch)
        if later is None:
            return False
        bounds = source.bounds(epoch)
        if bounds is not None and bounds.last >= position:
            self._skip(bounds.last)  # There is a hole, and what is behind it may never be whole.
        begins = source.bounds(later)
        self.place = Place(later, 0 if begins is None else begins.first)
        return True

    def _skip(self, last: int) -> None:
        """Say that there is nothing to be had up to ``last``."""
        epoch, first = self.place
        if last >= first:
            told = dump({"epoch": epoch, "first": first, "last": last})
            self.write(self.skipped_text(told, Place(epoch, last)))
            self.place = self._told = Place(epoch, last + 1)
            self._followers.skips += 1


class Followers(Streams):
    """All streams of a site.

    :param clients: who may have how many of them.
    :ivar turns: those in which streams are written.
    :ivar others: returns how many streams of other kinds the site has.
    """

    def __init__(self, sources: Sources, config: QueryConfig, clients: Clients, turns: Turns, reactor: Any) -> None:
        super().__init__(config, reactor)
        self.sources = sources
        self.turns = turns
        self.clients = clients
        self._query = config
        self.others: Callable[[], int] = lambda: 0
        self._tails: dict[str, Tail] = {}

    def open(
        self,
        request: WebRequest,
        source: Source,
        wanted: Selection,
        place: Place | None,
        kind: type[Following] = Following,
    ) -> None:
        """Let a client follow.

        :param place: where to begin; ``None`` for the end.
        :param kind: how it is told.
        :raises Problem: if there are too many streams, of this client or of all.
        """
        self.admit(request, self.others())
        tail = self._tails.get(source.name)
        if tail is None:
            tail = self._tails[source.name] = Tail(source, self._query)
            self._poll(tail)
        stream = kind(self, request, tail, tail.next if place is None else place, wanted)
        tail.followers[stream] = None
        self.add(stream)
        stream.start()

    def admit(self, request: WebRequest, others: int = 0) -> None:
        """Count one more stream of a client, of these or of others that the site has.

        :raises Problem: if there are too many, of this client or of all.
        """
        if len(self) + others >= self.config.max_streams:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "too-many-streams", "there are too many streams", RETRY)
        if not self.clients.stream_opened(request.client_name):
            raise too_many("too-many-streams", "you have as many streams as you may")

    def stream_ended(self, stream: Following) -> None:
        """See :meth:`~fyrehose_twisted.web.streaming.Streams.stream_ended`."""
        stream.over()
        self.clients.stream_closed(stream.client)
        tail = stream.tail
        del tail.followers[stream]
        if not tail.followers:
            tail.call.cancel()
            del self._tails[tail.source.name]

    def source_gone(self, source: Source) -> None:
        """End the streams of a journal that is there no more; who comes back gets the one that took its place."""
        tail = self._tails.get(source.name)
        if tail is not None:
            for stream in list(tail.followers):
                stream.end("replaced")

    def following(self, name: str) -> int:
        """Return how many follow the stream of that name."""
        tail = self._tails.get(name)
        return 0 if tail is None else len(tail.followers)

    def _poll(self, tail: Tail) -> None:
        tail.call = self.reactor.callLater(self._query.poll_interval, self._look, tail)

    def _look(self, tail: Tail) -> None:
        self._poll(tail)
        try:
            news = tail.look(self.sources)
        except (JournalError, OperationalError, OSError) as error:
            tail.source.complain(error)
            return
        if news:
            for stream in list(tail.followers):
                stream.catch_up()
