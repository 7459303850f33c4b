"""What is under each path."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

from twisted.internet.defer import CancelledError
from twisted.python.failure import Failure

from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.monitoring.overview import Overview, describe_source
from fyrehose_twisted.query.records.journals import JournalDirectory, JournalSource
from fyrehose_twisted.query.records.live import LiveStream, LiveStreams
from fyrehose_twisted.query.records.query_params import (
    FOLLOW_PARAMS,
    RANGE_PARAMS,
    EpochPosition,
    RecordQuery,
    parse_position,
    parse_record_query,
)
from fyrehose_twisted.query.records.scans import RangeScan, ScanScheduler
from fyrehose_twisted.query.websockets import WebSocketStream, check_websocket, wants_websocket
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.request import accepts, query_params, single_header
from fyrehose_twisted.web.response import Headers, HttpError, HttpResponse, encode_json, json_response, to_http_error
from fyrehose_twisted.web.streaming import STREAM, StreamingResponse, StreamingResponses, beyond_end

NDJSON = b"application/x-ndjson"


class StreamResource:
    """``/streams`` and what is below it."""

    def __init__(
        self, sources: JournalDirectory, scans: ScanScheduler, live_streams: LiveStreams, config: QueryConfig
    ) -> None:
        self._sources = sources
        self._scans = scans
        self._live_streams = live_streams
        self._config = config

    def list(self, request: WebRequest) -> HttpResponse:
        """Answer with all streams."""
        query_params(request)
        self._sources.refresh_all()
        return json_response([self._describe(source) for source in self._sources])

    def get(self, request: WebRequest) -> HttpResponse:
        """Answer with one stream, and which numbers of it are not there."""
        query_params(request)
        source = self._source(request)
        source.refresh()
        return json_response(self._describe(source, ranges=True))

    def records(self, request: WebRequest) -> HttpResponse | None:
        """Answer with a range, or with a stream where that is what is accepted."""
        source = self._source(request)
        source.refresh()
        if wants_websocket(request):
            check_websocket(request)
            return self._follow(request, source, WebSocketStream)
        if accepts(request, STREAM):
            return self._follow(request, source, LiveStream)
        _last_event_position(request, source, {})  # Of no use here, but to be told if it is none.
        wanted = self._selection(request, source, RANGE_PARAMS)
        if wanted.first is not None:
            _check_kept(source, wanted.first)
        search = RangeScan(source, self._sources, wanted, self._config)
        searching = self._scans.run(search, request.client_name)
        request.on_disconnect = searching.cancel
        searching.addCallbacks(_scan_done, _scan_failed, (request, wanted), errbackArgs=(request,))
        searching.addErrback(request.fail)
        return None

    def _follow(self, request: WebRequest, source: JournalSource, kind: type[LiveStream]) -> HttpResponse | None:
        query = query_params(request, *FOLLOW_PARAMS)
        last = _last_event_position(request, source, query)
        if last is not None:
            # Browsers come back with the query that they began with, which may mean nothing any more.
            query = {name: value for name, value in query.items() if name not in (b"from", b"last", b"since")}
        wanted = self._select(query, source)
        place = wanted.first
        if last is not None:
            place = EpochPosition(last.epoch, last.position + 1)
        elif wanted.newest is not None:
            if source.marker.can_mark and not wanted.repeats and request.method != b"HEAD":
                return self._follow_newest(request, source, wanted, kind)
            newest = source.before_end(wanted.newest)
            place = newest if place is None else max(place, newest)
        elif wanted.since is not None and place is None:
            place = source.beginning(wanted.since)
        if place is not None:
            _check_begun(source, place, "what follows Last-Event-ID" if last is not None else "from")
        if request.method == b"HEAD":
            return HttpResponse(HTTPStatus.OK, b"", ((b"Content-Type", STREAM),))
        self._live_streams.open(request, source, wanted, place, kind)
        return None

    def _follow_newest(
        self, request: WebRequest, source: JournalSource, wanted: RecordQuery, kind: type[LiveStream]
    ) -> HttpResponse | None:
        """Let a client follow from the newest records on, of which repeats do not count."""
        first = wanted.first
        if first is not None:
            _check_begun(source, first, "from")
        end = source.end()
        search = RangeScan(source, self._sources, RecordQuery(first, newest=wanted.newest), self._config)
        searching = self._scans.run(search, request.client_name)
        request.on_disconnect = searching.cancel

        def found(search: RangeScan) -> None:
            request.on_disconnect = None
            oldest = search.records[0] if search.records else None
            place = end if oldest is None else EpochPosition(oldest.epoch, oldest.position)
            self._live_streams.open(request, source, wanted, place if first is None else max(place, first), kind)

        searching.addCallback(found)
        searching.addErrback(_scan_failed, request)
        searching.addErrback(request.fail)
        return None

    def _selection(self, request: WebRequest, source: JournalSource, known: tuple[bytes, ...]) -> RecordQuery:
        return self._select(query_params(request, *known), source)

    def _select(self, query: dict[bytes, bytes], source: JournalSource) -> RecordQuery:
        config = self._config
        return parse_record_query(query, source.reader, longest=config.max_expression, page=config.page_records)

    def _source(self, request: WebRequest) -> JournalSource:
        name = unquote(request.parts[0].decode("ascii", "replace"))
        # The name as it is in the list may have percent signs of its own.
        for one in (request.parts[0].decode("ascii", "replace"), name):
            source = self._sources.get(one)
            if source is not None:
                return source
        raise HttpError(HTTPStatus.NOT_FOUND, "no-stream", "there is no such stream; /streams has all of them")

    def _describe(self, source: JournalSource, *, ranges: bool = False) -> dict[str, Any]:
        return describe_source(source, ranges=ranges) | {"followers": self._live_streams.follower_count(source.name)}


def _last_event_position(
    request: WebRequest, source: JournalSource, query: Mapping[bytes, bytes]
) -> EpochPosition | None:
    seen = single_header(request, b"Last-Event-ID") or query.get(b"id")
    if seen is None:
        return None
    # As ids are written: one that names no epoch is of epoch 0, however many there are by now.
    text = seen.decode("ascii", "replace")
    return parse_position("Last-Event-ID", text if ":" in text else f"0:{text}", source.reader)


def _check_kept(source: JournalSource, place: EpochPosition) -> None:
    bounds = source.bounds(place.epoch)
    if bounds is not None and place.position < bounds.first and place.position:
        message = f"{source.stream} begins at {EpochPosition(place.epoch, bounds.first)} here: nothing is kept before"
        raise HttpError(HTTPStatus.GONE, "not-held", message, oldest=str(EpochPosition(place.epoch, bounds.first)))


def _check_begun(source: JournalSource, place: EpochPosition, name: str) -> None:
    """See whether a stream can begin at ``place``: at a number that was given, or at the next one.

    :raises Problem: if it would wait for numbers that may never be given.
    """
    end = source.end()
    # Where nothing is held yet, the first number may be any; no stream of ours counts from more than 1 by itself.
    last = end if source.reader.epochs() else EpochPosition(0, 1)
    if place > last:
        raise beyond_end(f"{name}, {place},", str(end))


def _scan_done(search: RangeScan, request: WebRequest, wanted: RecordQuery) -> None:
    request.on_disconnect = None
    path = request.path.decode("ascii", "replace")
    more: Headers = ()
    if search.next is not None:
        more = ((b"Link", f'<{path}?{wanted.next_query(search.next)}>; rel="next"'.encode()),)
    elif search.previous is not None:
        more = ((b"Link", f'<{path}?{wanted.previous_query(search.previous)}>; rel="prev"'.encode()),)
    texts = [item.text(wanted.plain) for item in search.records]
    if accepts(request, NDJSON):
        body = b"\n".join([*texts, b""]) if texts else b""
        request.respond(HttpResponse(HTTPStatus.OK, body, more, NDJSON))
    else:
        request.respond(HttpResponse(HTTPStatus.OK, b"[%b]" % b",\n".join(texts), more))


def _scan_failed(failure: Failure, request: WebRequest) -> None:
    if failure.check(CancelledError):
        return
    error: Any = failure.value
    problem = to_http_error(error)
    if problem is None:
        request.processingFailed(failure)
    else:
        request.respond(problem.to_response())


class OverviewStream(StreamingResponse):
    """One client that is told how everything fares, again and again."""

    def __init__(self, streams: OverviewStreams, request: WebRequest) -> None:
        super().__init__(streams, request)
        self.client = request.client_name
        self._last_sent: bytes = b""
        self._overviews = streams

    def send_pending(self) -> None:
        """See :meth:`~fyrehose_twisted.web.streaming.StreamingResponse.send_pending`: only the newest is of
        interest."""
        text = self._overviews.text
        if text is not self._last_sent and not self.paused:
            self._last_sent = text
            self.write(text)


class OverviewStreams(StreamingResponses):
    """``/overview``."""

    def __init__(self, overview: Overview, live_streams: LiveStreams, config: QueryConfig, reactor: Any) -> None:
        super().__init__(config, reactor)
        self._overview = overview
        self._live_streams = live_streams
        self.text = b""

    def get(self, request: WebRequest) -> HttpResponse | None:
        """Answer with how everything fares, or tell it again and again where a stream is what is accepted."""
        query_params(request)
        if not accepts(request, STREAM):
            self._overview.collect()
            return json_response(self._overview.content)
        if request.method == b"HEAD":
            return HttpResponse(HTTPStatus.OK, b"", ((b"Content-Type", STREAM),))
        if not self.text:
            self.send_all()
        self._live_streams.admit(request, len(self))
        stream = OverviewStream(self, request)
        self.add(stream)
        stream.begin(b"retry: 1000\n")  # Together with what follows: alone, some clients take it for an event.
        return None

    def history(self, request: WebRequest) -> HttpResponse:
        """Answer with the rates of the last hour."""
        query_params(request)
        return json_response(self._overview.history())

    def send_all(self) -> None:
        """Tell all of them how everything fares now."""
        self._overview.collect()
        self.text = b"data: %b\n\n" % encode_json(self._overview.content)
        for stream in self.all():
            stream.send_pending()

    def stream_ended(self, stream: OverviewStream) -> None:
        """See :meth:`~fyrehose_twisted.web.streaming.StreamingResponses.stream_ended`."""
        self._live_streams.clients.stream_closed(stream.client)

    def last_ended(self) -> None:
        """See :meth:`~fyrehose_twisted.web.streaming.StreamingResponses.last_ended`."""
        self.text = b""


POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

PAGE = "index.html"

SCRIPTS = "text.js", "table.js", "asking.js", "history.js", "records.js", "kinds.js", "app.js"

KINDS = {
    PAGE: b"text/html; charset=utf-8",
    "style.css": b"text/css; charset=utf-8",
    **dict.fromkeys(SCRIPTS, b"text/javascript; charset=utf-8"),
    "icon.svg": b"image/svg+xml",
}
"""The files of the dashboard."""


def static(name: str) -> HttpResponse:
    """Return a file of the dashboard."""
    headers: Headers = (
        (b"Content-Security-Policy", POLICY),
        (b"Referrer-Policy", b"no-referrer"),
        (b"Cache-Control", b"no-cache"),
    )
    return HttpResponse(
        HTTPStatus.OK, files("fyrehose_twisted.query").joinpath("page", name).read_bytes(), headers, KINDS[name]
    )
