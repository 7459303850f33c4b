"""Query site over journals on disk, with clients in memory and a manual clock."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from fyrehose_twisted.framing import Unframed
from fyrehose_twisted.journal.store import Journal, JournalConfig, open_journal
from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.records.journals import JournalDirectory
from fyrehose_twisted.query.site import QuerySite
from fyrehose_twisted.record import Record
from fyrehose_twisted.web.sse import Frame, FrameReader

START = 1_700_000_000
"""UTC seconds at which tests start."""


class Response(NamedTuple):
    """HTTP response."""

    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def numbers(self) -> list[int]:
        """Return the sequence numbers of its records."""
        return [record["sequence"] for record in self.json]

    @property
    def next(self) -> str | None:
        """Return the path of the next page."""
        return self._link("next")

    @property
    def previous(self) -> str | None:
        """Return the path of the previous page."""
        return self._link("prev")

    def _link(self, kind: str) -> str | None:
        link = self.headers.get("link", "")
        assert re.fullmatch('(<[^>]*>; rel="(next|prev)")?', link)
        return link[1 : link.index(">")] if link.endswith(f'"{kind}"') else None


class Turns(Clock):
    """Manual clock that runs due calls one turn at a time, like a reactor."""

    def turn(self) -> None:
        due = [call for call in self.calls if call.getTime() <= self.seconds()]
        for call in due:
            if call in self.calls:
                self.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)


class Wire(StringTransport):
    """In-memory connection."""

    aborted = False

    def setTcpNoDelay(self, enabled: bool) -> None:  # noqa: N802
        pass

    def abortConnection(self) -> None:
        self.aborted = self.disconnecting = True


class Client:
    """One connection to the site."""

    def __init__(self, site: QuerySite, clock: Clock, host: str = "127.0.0.1", local: str = "127.0.0.1") -> None:
        self.clock = clock
        self.wire = Wire(IPv4Address("TCP", local, 8480), IPv4Address("TCP", host, 40_000))
        self.channel = site.buildProtocol(self.wire.getPeer())
        self.channel.makeConnection(self.wire)

    def send(self, path: str, method: str = "GET", headers: dict[str, str] | None = None) -> None:
        lines = [f"{method} {path} HTTP/1.0", "Host: localhost"]
        lines = [lines[0], *([] if "Host" in (headers or {}) else lines[1:])]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.channel.dataReceived("\r\n".join([*lines, "", ""]).encode())

    def settle(self) -> None:
        """Run turns until nothing is due."""
        self.clock.advance(0)

    def response(self) -> Response:
        head, _, body = self.wire.value().partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body) if "content-length" in headers else zlib.decompressobj(31).decompress(body)
        return Response(int(status.split()[1]), headers, body)

    def frames(self) -> list[Frame]:
        return FrameReader().feed(self.response().body)

    @property
    def told(self) -> list[int]:
        """Return the sequence numbers of the records on a stream."""
        return [json.loads(frame.data)["sequence"] for frame in self.frames() if frame.event == "message"]

    @property
    def skipped(self) -> list[tuple[int, int]]:
        found = [json.loads(frame.data) for frame in self.frames() if frame.event == "skipped"]
        return [(one["first"], one["last"]) for one in found]

    @property
    def id(self) -> str:
        """Return the last id on a stream."""
        return self.frames()[-1].id

    def hang_up(self) -> None:
        self.channel.connectionLost(Failure(ConnectionDone()))


class Bench:
    """A directory of journals and the site that serves it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = Turns()
        self.clock.advance(START)
        self.journals: dict[str, Journal] = {}
        self._sites: list[QuerySite] = []
        self.site: QuerySite = self.make()
        self.clients: list[Client] = []

    def make(self, config: QueryConfig | None = None, **more: Any) -> QuerySite:
        """Create a new site."""
        bare = more.pop("bare", lambda stream, payloads: Unframed(payloads))
        sources = JournalDirectory(self.path, bare, envelope_finder=more.pop("envelopes", lambda stream: None))
        self.site = QuerySite(sources, config or QueryConfig(), self.clock, **more)
        self._sites.append(self.site)
        sources.refresh()
        return self.site

    def journal(self, stream: str = "fyrehose://test", config: JournalConfig | None = None) -> Journal:
        """Return the writable journal of a stream."""
        if stream not in self.journals:
            self.journals[stream] = open_journal(self.path, stream, config=config)
        return self.journals[stream]

    def put(
        self,
        *payloads: bytes,
        first: int | None = None,
        epoch: int = 0,
        at: float = START,
        stream: str = "fyrehose://test",
    ) -> None:
        """Write records received one microsecond apart."""
        journal = self.journal(stream)
        if first is None:
            bounds = journal.bounds(epoch)
            first = 1 if bounds is None else bounds.last + 1
        times = int(at * 1_000_000)
        journal.append(
            [Record(stream, epoch, first + row, times + row, payload) for row, payload in enumerate(payloads)]
        )
        journal.commit()
        self.site.sources.refresh()

    def numbers(self, count: int, **more: Any) -> None:
        """Write records with the payloads ``{"n": 1}``, ``{"n": 2}``, ..."""
        self.put(*(b'{"n": %d}' % number for number in range(1, count + 1)), **more)

    def client(self, **more: Any) -> Client:
        self.clients.append(Client(self.site, self.clock, **more))
        return self.clients[-1]

    def ask(self, path: str, method: str = "GET", **headers: str) -> Response:
        """Make a request; ``accept_encoding=`` is a header."""
        client = self.client()
        client.send(path, method, {name.replace("_", "-").title(): value for name, value in headers.items()})
        client.settle()
        return client.response()

    def follow(self, path: str, **headers: str) -> Client:
        """Open a stream."""
        client = self.client()
        names = {name.replace("_", "-").title(): value for name, value in headers.items()}
        client.send(path, headers={"Accept": "text/event-stream", **names})
        client.settle()
        return client

    def advance(self, seconds: float = 0.05) -> None:
        """Advance the clock."""
        steps = max(1, round(seconds / 0.05))
        for _ in range(steps):
            self.clock.advance(0.05)

    def close(self) -> None:
        for site in self._sites:
            site.close()
            site.scans.stop()
            site.sources.close()
        for journal in self.journals.values():
            journal.close()
