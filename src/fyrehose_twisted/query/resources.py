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
from fyrehose_twisted.query.records.journals import Source, Sources
from fyrehose_twisted.query.records.live import Followers, Following
from fyrehose_twisted.query.records.query_params import FOLLOW, RANGE, Place, Selection, place_of, select
from fyrehose_twisted.query.records.scans import Search, Searches
from fyrehose_twisted.query.websockets import FollowingSocket, check_socket, wants_socket
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.request import accepts, header, queries
from fyrehose_twisted.web.response import Answer, Headers, Problem, answer, dump, problem_of
from fyrehose_twisted.web.streaming import STREAM, Stream, Streams, beyond_end

NDJSON = b"application/x-ndjson"


class StreamPages:
    """``/streams`` and what is below it."""

    def __init__(self, sources: Sources, searches: Searches, followers: Followers, config: QueryConfig) -> None:
        self._sources = sources
        self._searches = searches
        self._followers = followers
        self._config = config

    def list(self, request: WebRequest) -> Answer:
        """Answer with all streams."""
        queries(request)
        self._sources.look_at_all()
        return answer([self._described(source) for source in self._sources])

    def get(self, request: WebRequest) -> Answer:
        """Answer with one stream, and which numbers of it are not there."""
        queries(request)
        source = self._source(request)
        source.refresh()
        return answer(self._described(source, ranges=True))

    def records(self, request: WebRequest) -> Answer | None:
        """Answer with a range, or with a stream where that is what is accepted."""
        source = self._source(request)
        source.refresh()
        if wants_socket(request):
            check_socket(request)
            return self._follow(request, source, FollowingSocket)
        if accepts(request, STREAM):
            return self._follow(request, source, Following)
        _seen(request, source, {})  # Of no use here, but to be told if it is none.
        wanted = self._selection(request, source, RANGE)
        if wanted.first is not None:
            _check_kept(source, wanted.first)
        search = Search(source, self._sources, wanted, self._config)
        searching = self._searches.run(search, request.client_name)
        request.when_gone = searching.cancel
        searching.addCallbacks(_found, _failed, (request, wanted), errbackArgs=(request,))
        searching.addErrback(request.broken)
        return None

    def _follow(self, request: WebRequest, source: Source, kind: type[Following]) -> Answer | None:
        query = queries(request, *FOLLOW)
        last = _seen(request, source, query)
        if last is not None:
            # Browsers come back with the query that they began with, which may mean nothing any more.
            query = {name: value for name, value in query.items() if name not in (b"from", b"last", b"since")}
        wanted = self._select(query, source)
        place = wanted.first
        if last is not None:
            place = Place(last.epoch, last.position + 1)
        elif wanted.newest is not None:
            if source.marker.looks and not wanted.repeats and request.method != b"HEAD":
                return self._follow_shown(request, source, wanted, kind)
            newest = source.before_end(wanted.newest)
            place = newest if place is None else max(place, newest)
        elif wanted.since is not None and place is None:
            place = source.beginning(wanted.since)
        if place is not None:
            _check_begun(source, place, "what follows Last-Event-ID" if last is not None else "from")
        if request.method == b"HEAD":
            return Answer(HTTPStatus.OK, b"", ((b"Content-Type", STREAM),))
        self._followers.open(request, source, wanted, place, kind)
        return None

    def _follow_shown(
        self, request: WebRequest, source: Source, wanted: Selection, kind: type[Following]
    ) -> Answer | None:
        """Let a client follow from the newest records on, of which repeats do not count."""
        first = wanted.first
        if first is not None:
            _check_begun(source, first, "from")
        end = source.end()
        search = Search(source, self._sources, Selection(first, newest=wanted.newest), self._config)
        searching = self._searches.run(search, request.client_name)
        request.when_gone = searching.cancel

        def found(search: Search) -> None:
            request.when_gone = None
            oldest = search.found[0] if search.found else None
            place = end if oldest is None else Place(oldest.epoch, oldest.position)
            self._followers.open(request, source, wanted, place if first is None else max(place, first), kind)

        searching.addCallback(found)
        searching.addErrback(_failed, request)
        searching.addErrback(request.broken)
        return None

    def _selection(self, request: WebRequest, source: Source, known: tuple[bytes, ...]) -> Selection:
        return self._select(queries(request, *known), source)

    def _select(self, query: dict[bytes, bytes], source: Source) -> Selection:
        config = self._config
        return select(query, source.reader, longest=config.max_expression, page=config.page_records)

    def _source(self, request: WebRequest) -> Source:
        name = unquote(request.parts[0].decode("ascii", "replace"))
        # The name as it is in the list may have percent signs of its own.
        for one in (request.parts[0].decode("ascii", "replace"), name):
            source = self._sources.get(one)
            if source is not None:
                return source
        raise Problem(HTTPStatus.NOT_FOUND, "no-stream", "there is no such stream; /streams has all of them")

    def _described(self, source: Source, *, ranges: bool = False) -> dict[str, Any]:
        return describe_source(source, ranges=ranges) | {"followers": self._followers.following(source.name)}


def _seen(request: WebRequest, source: Source, query: Mapping[bytes, bytes]) -> Place | None:
    seen = header(request, b"Last-Event-ID") or query.get(b"id")
    if seen is None:
        return None
    # As ids are written: one that names no epoch is of epoch 0, however many there are by now.
    text = seen.decode("ascii", "replace")
    return place_of("Last-Event-ID", text if ":" in text else f"0:{text}", source.reader)


def _check_kept(source: Source, place: Place) -> None:
    bounds = source.bounds(place.epoch)
    if bounds is not None and place.position < bounds.first and place.position:
        message = f"{source.stream} begins at {Place(place.epoch, bounds.first)} here: nothing is kept before"
        raise Problem(HTTPStatus.GONE, "not-held", message, oldest=str(Place(place.epoch, bounds.first)))


def _check_begun(source: Source, place: Place, name: str) -> None:
    """See whether a stream can begin at ``place``: at a number that was given, or at the next one.

    :raises Problem: if it would wait for numbers that may never be given.
    """
    end = source.end()
    # Where nothing is held yet, the first number may be any; no stream of ours counts from more than 1 by itself.
    last = end if source.reader.epochs() else Place(0, 1)
    if place > last:
        raise beyond_end(f"{name}, {place},", str(end))


def _found(search: Search, request: WebRequest, wanted: Selection) -> None:
    request.when_gone = None
    path = request.path.decode("ascii", "replace")
    more: Headers = ()
    if search.next is not None:
        more = ((b"Link", f'<{path}?{wanted.going_on(search.next)}>; rel="next"'.encode()),)
    elif search.previous is not None:
        more = ((b"Link", f'<{path}?{wanted.going_back(search.previous)}>; rel="prev"'.encode()),)
    texts = [item.text(wanted.plain) for item in search.found]
    if accepts(request, NDJSON):
        body = b"\n".join([*texts, b""]) if texts else b""
        request.answer(Answer(HTTPStatus.OK, body, more, NDJSON))
    else:
        request.answer(Answer(HTTPStatus.OK, b"[%b]" % b",\n".join(texts), more))


def _failed(failure: Failure, request: WebRequest) -> None:
    if failure.check(CancelledError):
        return
    error: Any = failure.value
    problem = problem_of(error)
    if problem is None:
        request.processingFailed(failure)
    else:
        request.answer(problem.answer())


class OverviewStream(Stream):
    """One client that is told how everything fares, again and again."""

    def __init__(self, streams: OverviewStreams, request: WebRequest) -> None:
        super().__init__(streams, request)
        self.client = request.client_name
        self._told: bytes = b""
        self._overviews = streams

    def catch_up(self) -> None:
        """See :meth:`~fyrehose_twisted.web.streaming.Stream.catch_up`: only the newest is of interest."""
        text = self._overviews.text
        if text is not self._told and not self.paused:
            self._told = text
            self.write(text)


class OverviewStreams(Streams):
    """``/overview``."""

    def __init__(self, overview: Overview, followers: Followers, config: QueryConfig, reactor: Any) -> None:
        super().__init__(config, reactor)
        self._overview = overview
        self._followers = followers
        self.text = b""

    def get(self, request: WebRequest) -> Answer | None:
        """Answer with how everything fares, or tell it again and again where a stream is what is accepted."""
        queries(request)
        if not accepts(request, STREAM):
            self._overview.look()
            return answer(self._overview.content)
        if request.method == b"HEAD":
            return Answer(HTTPStatus.OK, b"", ((b"Content-Type", STREAM),))
        if not self.text:
            self.look()
        self._followers.admit(request, len(self))
        stream = OverviewStream(self, request)
        self.add(stream)
        stream.begin(b"retry: 1000\n")  # Together with what follows: alone, some clients take it for an event.
        return None

    def history(self, request: WebRequest) -> Answer:
        """Answer with the rates of the last hour."""
        queries(request)
        return answer(self._overview.history())

    def look(self) -> None:
        """Tell all of them how everything fares now."""
        self._overview.look()
        self.text = b"data: %b\n\n" % dump(self._overview.content)
        for stream in self.all():
            stream.catch_up()

    def stream_ended(self, stream: OverviewStream) -> None:
        """See :meth:`~fyrehose_twisted.web.streaming.Streams.stream_ended`."""
        self._followers.clients.stream_closed(stream.client)

    def last_ended(self) -> None:
        """See :meth:`~fyrehose_twisted.web.streaming.Streams.last_ended`."""
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


def static(name: str) -> Answer:
    """Return a file of the dashboard."""
    headers: Headers = (
        (b"Content-Security-Policy", POLICY),
        (b"Referrer-Policy", b"no-referrer"),
        (b"Cache-Control", b"no-cache"),
    )
    return Answer(
        HTTPStatus.OK, files("fyrehose_twisted.query").joinpath("page", name).read_bytes(), headers, KINDS[name]
    )
