"""Live record streams: each client gets every record once, in order, with backpressure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from http import HTTPStatus
from typing import Any

from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.journal.repeat_marking import run_to_end
from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.records.journals import JournalDirectory, JournalSource
from fyrehose_twisted.query.records.query_params import EpochPosition, RecordQuery
from fyrehose_twisted.query.records.record_json import RecordView, record_views, rows_within
from fyrehose_twisted.query.records.turns import FairScheduler, ScheduledTask
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.client_limits import ClientBudgets
from fyrehose_twisted.web.response import RETRY_AFTER, HttpError, encode_json
from fyrehose_twisted.web.site import too_many_requests
from fyrehose_twisted.web.sse import comment, position
from fyrehose_twisted.web.streaming import StreamingResponse, StreamingResponses

STEP_RECORDS, STEP_BYTES = 256, 64 * 2**10
"""Records, and bytes, that one stream writes before the next gets its turn."""

FILTERED_RECORDS, FILTERED_BYTES = 32, 16_384
"""Records, and approximate bytes, that a filter examines before the next stream gets its turn."""

RETRY_DELAY = 1.0
"""Seconds until reading a failed journal is retried."""


class TailCache:
    """Cache of the newest records of a followed stream.

    :ivar records: consecutive records.
    :ivar next: position after the last record.
    """

    def __init__(self, source: JournalSource, config: QueryConfig) -> None:
        self.source = source
        self.records: deque[RecordView] = deque()
        self.next = source.end()
        self.followers: dict[LiveStream, None] = {}
        self.call: Any = None
        self._config = config
        self._first = self.next
        self._size = 0

    def refresh(self, sources: JournalDirectory) -> bool:
        """Load new records; return whether there are any."""
        source = self.source
        source.refresh()  # The result is ignored: another caller may have refreshed it before.
        end = source.end()
        if end == self.next:
            return False
        # If marking repeats requires reading back, leave that to the turns of the streams.
        is_ready = source.marker.is_ready(*self.next)
        ahead = end.position - self.next.position
        if end.epoch != self.next.epoch or ahead > self._config.tail_records or not is_ready:
            self._restart(end)
            return True
        while self.next.position < end.position:
            span = source.read_span(end.epoch, self.next.position, keep=False)
            if span is None or span.block is None:
                self._restart(end)
                return True
            marks = run_to_end(source.marker.marks(span.block))
            for item in record_views(span.block, sources.strip_framing, marks):
                if item.position != self.next.position:
                    self._restart(EpochPosition(end.epoch, item.position))
                self._add(item)
            self.next = EpochPosition(end.epoch, span.last + 1)
        return True

    def since(self, place: EpochPosition) -> Iterator[RecordView] | None:
        """Return the records from ``place`` on, or ``None`` if they are not cached."""
        if place.epoch != self.next.epoch or not self._first.position <= place.position < self.next.position:
            return None
        skipped = place.position - self._first.position
        return (self.records[index] for index in range(skipped, len(self.records)))

    def forget(self) -> None:
        """Forget the records. Streams read those that they still need again."""
        self._restart(self.next)

    def _restart(self, next: EpochPosition) -> None:
        self.records.clear()
        self._size = 0
        self._first = self.next = next

    def _add(self, item: RecordView) -> None:
        self.records.append(item)
        self.next = EpochPosition(item.epoch, item.position + 1)
        self._size += len(item.payload)
        config = self._config
        while len(self.records) > config.tail_records or self._size > config.tail_bytes:
            oldest = self.records.popleft()
            self._size -= len(oldest.payload)
            self._first = EpochPosition(oldest.epoch, oldest.position + 1)


class LiveStream(StreamingResponse):
    """Live stream to one client. It stores only its position, and rereads records that could not be written.

    :ivar position: position of the next record to write.
    """

    def __init__(
        self,
        live_streams: LiveStreams,
        request: WebRequest,
        tail: TailCache,
        position: EpochPosition,
        query: RecordQuery,
    ) -> None:
        super().__init__(live_streams, request)
        self.position = position
        self.tail = tail
        self.client = request.client_name
        self._live_streams = live_streams
        self._query = query
        self._task: ScheduledTask | None = None
        self._is_stopped = False
        self._reported_position = position

    def start(self) -> None:
        """Write the response head, then available records in turns with other streams."""
        # A client disconnected before the first record then resumes at the right position.
        self.begin(self.position_text())

    def send_pending(self) -> None:
        """See :meth:`~fyrehose_twisted.web.streaming.StreamingResponse.send_pending`."""
        if self._task is None and not self._is_stopped:
            self._task = self._live_streams.scheduler.start(self.client, self._work())

    def send_heartbeat(self, text: bytes) -> None:
        """Write a keepalive, or the position if a filter has skipped records since the last id."""
        if not self.paused:
            self.write(self.heartbeat_text(text) if self.position == self._reported_position else self.position_text())
            self._reported_position = self.position

    def stop(self) -> None:
        """Stop writing."""
        self._is_stopped = True
        if self._task is not None:
            self._task.stop()

    def heartbeat_text(self, text: bytes) -> bytes:
        """Return the keepalive for a client whose last id is up to date."""
        return text

    def position_text(self) -> bytes:
        """Return the event that carries only the position of the client."""
        before = self.before()
        return comment(b"alive") if before is None else position(before)

    def record_text(self, item: RecordView, text: bytes) -> bytes:
        """Return the event for a record."""
        return b"data: %b\nid: %b\n\n" % (text, str(EpochPosition(item.epoch, item.position)).encode())

    def skipped_text(self, gap: bytes, last: EpochPosition) -> bytes:
        """Return the event for records that are not available."""
        return b"event: skipped\ndata: %b\nid: %b\n\n" % (gap, str(last).encode())

    def before(self) -> bytes | None:
        """Return the id before the next record, or ``None`` at the start."""
        epoch, position = self.position
        return str(EpochPosition(epoch, position - 1)).encode() if position else None

    def _work(self) -> Iterator[None]:
        """Write records while there are any and the client reads them."""
        try:
            while not self.paused and (yield from self._advance()):
                yield
        except (JournalError, OperationalError, OSError) as error:
            self.tail.source.mark_failed(error)
            self._live_streams.reactor.callLater(RETRY_DELAY, self.send_pending)
        except Exception:
            # An error in one stream must not affect the others.
            self._live_streams.log.failure("{stream}: a live stream failed", stream=self.tail.source.stream)
            self.end("failed")
        self._task = None

    def _advance(self) -> Generator[None, None, bool]:
        """Write some records; return whether there may be more."""
        source, (epoch, position) = self.tail.source, self.position
        cached = self.tail.since(self.position)
        if cached is not None:
            return self._send(cached)
        span = source.read_span(epoch, position)
        if span is None:
            return self._next_epoch(source)
        if span.block is None:
            self._skip(span.last)
            return True
        block = span.block.rows(0, rows_within(span.block, 0, STEP_RECORDS, STEP_BYTES))
        marks = yield from source.marker.marks(block)
        if self.paused:
            return False
        self._send(record_views(block, self._live_streams.sources.strip_framing, marks))
        if self.position.position > block.last and len(block) == len(span.block) and span.last > block.last:
            self._skip(span.last)
        return True

    def _send(self, records: Iterator[RecordView]) -> bool:
        query, plain, since = self._query, self._query.plain, self._query.since or 0
        repeats = self._query.repeats
        texts: list[bytes] = []
        size = examined = 0
        max_records, max_bytes = STEP_RECORDS, STEP_BYTES
        if query.has_filter:
            max_records, max_bytes = FILTERED_RECORDS, FILTERED_BYTES
        for count, item in enumerate(records):
            if count >= max_records or size >= STEP_BYTES or examined >= max_bytes:
                break
            if item.position > self.position.position:
                if texts:
                    self.write(b"".join(texts))
                    texts = []
                self._skip(item.position - 1)
            examined += len(item.payload)
            is_wanted = item.received_at >= since and (repeats or not item.is_repeat) and not item.is_refused
            if is_wanted and query.matches(item):
                text = item.text(plain)
                size += len(text)
                texts.append(self.record_text(item, text))
                self._reported_position = EpochPosition(item.epoch, item.position + 1)
            self.position = EpochPosition(item.epoch, item.position + 1)
        else:
            if texts:
                self.write(b"".join(texts))
            return self.position != self.tail.next
        if texts:
            self.write(b"".join(texts))
        return True

    def _next_epoch(self, source: JournalSource) -> bool:
        """Continue with the next epoch, if it has begun."""
        epoch, position = self.position
        later = source.next_epoch(epoch)
        if later is None:
            return False
        bounds = source.bounds(epoch)
        if bounds is not None and bounds.last >= position:
            self._skip(bounds.last)  # A gap at the end of an epoch may never be filled.
        begins = source.bounds(later)
        self.position = EpochPosition(later, 0 if begins is None else begins.first)
        return True

    def _skip(self, last: int) -> None:
        """Report that no records are available up to ``last``."""
        epoch, first = self.position
        if last >= first:
            gap = encode_json({"epoch": epoch, "first": first, "last": last})
            self.write(self.skipped_text(gap, EpochPosition(epoch, last)))
            self.position = self._reported_position = EpochPosition(epoch, last + 1)
            self._live_streams.skips += 1


class LiveStreams(StreamingResponses):
    """All live record streams of a site.

    :param clients: budgets of the clients.
    :ivar scheduler: scheduler in whose turns streams are written.
    :ivar others: returns the number of other streams of the site.
    """

    def __init__(
        self,
        sources: JournalDirectory,
        config: QueryConfig,
        clients: ClientBudgets,
        scheduler: FairScheduler,
        reactor: Any,
    ) -> None:
        super().__init__(config, reactor)
        self.sources = sources
        self.scheduler = scheduler
        self.clients = clients
        self._query_config = config
        self.others: Callable[[], int] = lambda: 0
        self._tails: dict[str, TailCache] = {}

    def open(
        self,
        request: WebRequest,
        source: JournalSource,
        wanted: RecordQuery,
        place: EpochPosition | None,
        kind: type[LiveStream] = LiveStream,
    ) -> None:
        """Open a live stream.

        :param place: position of the first record; ``None`` for the end.
        :param kind: class of the stream.
        :raises HttpError: if too many streams are open, of this client or in total.
        """
        self.admit(request, self.others())
        tail = self._tails.get(source.name)
        if tail is None:
            tail = self._tails[source.name] = TailCache(source, self._query_config)
            self._poll(tail)
        stream = kind(self, request, tail, tail.next if place is None else place, wanted)
        tail.followers[stream] = None
        self.add(stream)
        stream.start()

    def admit(self, request: WebRequest, others: int = 0) -> None:
        """Count a new stream of a client, of any kind.

        :param others: number of other streams of the site.
        :raises HttpError: if too many streams are open, of this client or in total.
        """
        if len(self) + others >= self.config.max_streams:
            raise HttpError(
                HTTPStatus.SERVICE_UNAVAILABLE, "too-many-streams", "too many streams are open", RETRY_AFTER
            )
        if not self.clients.stream_opened(request.client_name):
            raise too_many_requests("too-many-streams", "this client has too many streams")

    def stream_ended(self, stream: LiveStream) -> None:
        """See :meth:`~fyrehose_twisted.web.streaming.StreamingResponses.stream_ended`."""
        stream.stop()
        self.clients.stream_closed(stream.client)
        tail = stream.tail
        del tail.followers[stream]
        if not tail.followers:
            tail.call.cancel()
            del self._tails[tail.source.name]

    def forget_tails(self) -> None:
        """Forget the encoded records, because keys have changed."""
        for tail in self._tails.values():
            tail.forget()

    def source_gone(self, source: JournalSource) -> None:
        """End the streams of a journal that is gone. Clients that reconnect get its replacement."""
        tail = self._tails.get(source.name)
        if tail is not None:
            for stream in list(tail.followers):
                stream.end("replaced")

    def follower_count(self, name: str) -> int:
        """Return the number of clients that follow a stream."""
        tail = self._tails.get(name)
        return 0 if tail is None else len(tail.followers)

    def _poll(self, tail: TailCache) -> None:
        tail.call = self.reactor.callLater(self._query_config.poll_interval, self._refresh, tail)

    def _refresh(self, tail: TailCache) -> None:
        self._poll(tail)
        try:
            has_new = tail.refresh(self.sources)
        except (JournalError, OperationalError, OSError) as error:
            tail.source.mark_failed(error)
            return
        if has_new:
            for stream in list(tail.followers):
                stream.send_pending()
