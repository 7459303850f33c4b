"""HTTP resources of the query service."""

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
    """Resource ``/streams`` and its children."""

    def __init__(
        self, sources: JournalDirectory, scans: ScanScheduler, live_streams: LiveStreams, config: QueryConfig
    ) -> None:
        self._sources = sources
        self._scans = scans
        self._live_streams = live_streams
        self._config = config

    def list(self, request: WebRequest) -> HttpResponse:
        """Respond with all streams."""
        query_params(request)
        self._sources.refresh_all()
        return json_response([self._describe(source) for source in self._sources])

    def get(self, request: WebRequest) -> HttpResponse:
        """Respond with one stream, including its missing and lost ranges."""
        query_params(request)
        source = self._source(request)
        source.refresh()
        return json_response(self._describe(source, ranges=True))

    def records(self, request: WebRequest) -> HttpResponse | None:
        """Respond with a range of records, or with a live stream if the client accepts one."""
        source = self._source(request)
        source.refresh()
        if wants_websocket(request):
            check_websocket(request)
            return self._follow(request, source, WebSocketStream)
        if accepts(request, STREAM):
            return self._follow(request, source, LiveStream)
        _last_event_position(request, source, {})  # Unused here, but validated.
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
            # Browsers reconnect with their original query, whose start no longer applies.
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
            _check_begun(source, place, "the position after Last-Event-ID" if last is not None else "from")
        if request.method == b"HEAD":
            return HttpResponse(HTTPStatus.OK, b"", ((b"Content-Type", STREAM),))
        self._live_streams.open(request, source, wanted, place, kind)
        return None

    def _follow_newest(
        self, request: WebRequest, source: JournalSource, wanted: RecordQuery, kind: type[LiveStream]
    ) -> HttpResponse | None:
        """Open a stream that begins with the newest records, not counting repeats."""
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
        raise HttpError(HTTPStatus.NOT_FOUND, "no-stream", "no such stream; /streams lists all of them")

    def _describe(self, source: JournalSource, *, ranges: bool = False) -> dict[str, Any]:
        return describe_source(source, ranges=ranges) | {"followers": self._live_streams.follower_count(source.name)}


def _last_event_position(
    request: WebRequest, source: JournalSource, query: Mapping[bytes, bytes]
) -> EpochPosition | None:
    seen = single_header(request, b"Last-Event-ID") or query.get(b"id")
    if seen is None:
        return None
    # An id without an epoch belongs to epoch 0, however many epochs there are now.
    text = seen.decode("ascii", "replace")
    return parse_position("Last-Event-ID", text if ":" in text else f"0:{text}", source.reader)


def _check_kept(source: JournalSource, place: EpochPosition) -> None:
    bounds = source.bounds(place.epoch)
    if bounds is not None and place.position < bounds.first and place.position:
        oldest = str(EpochPosition(place.epoch, bounds.first))
        message = f"{source.stream} begins at {oldest} here; earlier records are not kept"
        raise HttpError(HTTPStatus.GONE, "not-held", message, oldest=oldest)


def _check_begun(source: JournalSource, place: EpochPosition, name: str) -> None:
    """Check that a stream can begin at ``place``, which may be at most the next number.

    :raises HttpError: if it would wait for numbers that may never be assigned.
    """
    end = source.end()
    # An empty journal may start at any number, but streams normally start at 0 or 1.
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
    """Stream of overviews to one client."""

    def __init__(self, streams: OverviewStreams, request: WebRequest) -> None:
        super().__init__(streams, request)
        self.client = request.client_name
        self._last_sent: bytes = b""
        self._overviews = streams

    def send_pending(self) -> None:
        """Write the newest overview; see :meth:`~fyrehose_twisted.web.streaming.StreamingResponse.send_pending`."""
        text = self._overviews.text
        if text is not self._last_sent and not self.paused:
            self._last_sent = text
            self.write(text)


class OverviewStreams(StreamingResponses):
    """Resource ``/overview`` and its streams."""

    def __init__(self, overview: Overview, live_streams: LiveStreams, config: QueryConfig, reactor: Any) -> None:
        super().__init__(config, reactor)
        self._overview = overview
        self._live_streams = live_streams
        self.text = b""

    def get(self, request: WebRequest) -> HttpResponse | None:
        """Respond with the overview, or with a stream of overviews if the client accepts one."""
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
        stream.begin(b"retry: 1000\n")  # With the first event: alone, some clients treat it as one.
        return None

    def history(self, request: WebRequest) -> HttpResponse:
        """Respond with the rates of the last hour."""
        query_params(request)
        return json_response(self._overview.history())

    def send_all(self) -> None:
        """Collect the overview and send it to all clients."""
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

SCRIPTS = "text.js", "table.js", "requests.js", "history.js", "records.js", "kinds.js", "topology.js", "app.js"

KINDS = {
    PAGE: b"text/html; charset=utf-8",
    "style.css": b"text/css; charset=utf-8",
    **dict.fromkeys(SCRIPTS, b"text/javascript; charset=utf-8"),
    "icon.svg": b"image/svg+xml",
}
"""Files of the dashboard and their content types."""


def static(name: str) -> HttpResponse:
    """Return the response for a file of the dashboard."""
    headers: Headers = (
        (b"Content-Security-Policy", POLICY),
        (b"Referrer-Policy", b"no-referrer"),
        (b"Cache-Control", b"no-cache"),
    )
    return HttpResponse(
        HTTPStatus.OK, files("fyrehose_twisted.query").joinpath("page", name).read_bytes(), headers, KINDS[name]
    )
