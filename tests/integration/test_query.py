"""Query service process, whose clients receive every record once and in order."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
import zlib
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from integration.running.backbone import MakePeer, RunningBackbone
from integration.running.browser import OpenStrangePage
from integration.running.cluster import StartCluster
from integration.running.journal import StartJournal
from integration.running.programs import AwaitTrue, Program, Start
from twisted.python.usage import UsageError

from fyrehose_twisted.freenet.events import Packet, PacketsDelivered, StreamRenumbered
from fyrehose_twisted.freenet.service import storage as freenet
from fyrehose_twisted.freenet.wire.signing import SigningKey
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE
from fyrehose_twisted.hydra.events import LinesMissed, LinesReceived
from fyrehose_twisted.hydra.service.storage import LineJournal
from fyrehose_twisted.hydra.wire.lines import add_tag
from fyrehose_twisted.journal.reader import open_reader
from fyrehose_twisted.journal.store import Journal, open_journal
from fyrehose_twisted.query.tap import Options
from fyrehose_twisted.record import Record

PATIENCE = 120.0
"""Socket timeout in seconds."""

RECORDS = "/streams/fyrehose-default/records"


class Answer(NamedTuple):
    """HTTP response."""

    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def numbers(self) -> list[int]:
        return [record["sequence"] for record in self.json]

    @property
    def next(self) -> str | None:
        found = re.fullmatch(r'<(.*)>; rel="next"', self.headers["Link"] or "<>")
        return found and found[1]


class Event(NamedTuple):
    """Event of a stream."""

    kind: str
    id: str
    data: Any


class Reader:
    """Independent client of server-sent events, which follows the standard.

    :ivar id: last id on the stream.
    :ivar read: all data received.
    """

    def __init__(self, port: int, path: str, id: str = "", **headers: str) -> None:
        self.id = id
        self.read = self._rest = b""
        self._frames: deque[bytes] = deque()
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": id} if id else {}) | headers
        self._connection.request("GET", path, headers=headers)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()

    def events(self, bytes_at_most: int = 2**62) -> Iterator[Event]:
        """Yield events until the stream ends or so many bytes were read; a partial event is discarded."""
        while True:
            while self._frames:
                lines = [line.partition(b": ") for line in self._frames.popleft().split(b"\n")]
                fields = {name: value.decode() for name, _, value in lines}
                self.id = fields.get(b"id", self.id)
                event = Event(fields.get(b"event", "message"), self.id, json.loads(fields.get(b"data", "null")))
                if b"data" in fields and event.kind != "position":
                    yield event
            try:
                data = self._answer.read1(min(65_536, bytes_at_most)) if bytes_at_most > 0 else b""
            except (OSError, http.client.HTTPException):
                return
            if not data:
                return
            self.read += data
            bytes_at_most -= len(data)
            *frames, self._rest = (self._rest + data).split(b"\n\n")
            self._frames.extend(frames)

    def take(self, count: int) -> list[Event]:
        """Return the next events."""
        found: list[Event] = []
        for event in self.events() if count else ():
            found.append(event)
            if len(found) == count:
                break
        return found

    def wait_for(self, mark: bytes, unpacked: Callable[[bytes], bytes] = bytes) -> None:
        """Read until ``mark`` was received."""
        while mark not in unpacked(self.read):
            data = self._answer.read1(65_536)
            assert data, self.read[-200:]
            self.read += data

    def read_to_end(self) -> bytes:
        """Return all data up to the end; fail if the stream is aborted."""
        rest = self._answer.read()
        self.read += rest
        return rest

    def close(self) -> None:
        """Disconnect."""
        self._answer.close()
        self._connection.close()


class Query:
    """``twistd fyrehose-query``, restarted with the same options."""

    def __init__(self, start: Start, port: int, directory: Path, options: tuple[object, ...]) -> None:
        self._start = start
        self._options = ("--directory", directory, "--http", f"tcp:{port}", *options)
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.program: Program

    def start(self) -> Query:
        """Start or restart it, and wait until it listens."""
        self.program = self._start(
            "twistd", "-n", "--pidfile=", "fyrehose-query", *self._options, stderr=subprocess.STDOUT
        )
        self.program.wait_for(r"--http: listening on \S+")
        return self

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self.program.signal(signal.SIGKILL).finish() == -signal.SIGKILL, self.program
        assert "Traceback" not in self.program.out, self.program

    def stop(self) -> None:
        """Stop it with SIGTERM. Twisted then ends itself by the same signal."""
        assert self.program.signal(signal.SIGTERM).finish() == -signal.SIGTERM, self.program
        assert "Traceback" not in self.program.out, self.program

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Return the response to a request."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())

    def follow(self, path: str = RECORDS, id: str = "", **headers: str) -> Reader:
        """Open a stream."""
        return Reader(self.port, path, id, **{name.replace("_", "-"): text for name, text in headers.items()})

    def metric(self, name: str, **headers: str) -> float:
        """Return a metric, 0 if it is missing."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.ask("/metrics", **headers).body.decode(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    @property
    def memory(self) -> int:
        """Return the resident memory of the process in bytes."""
        return int(Path(f"/proc/{self.program.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


FindProgram = Callable[[str, str], Path]
StartQuery = Callable[..., Query]


@pytest.fixture
def make_query(start: Start, free_port: Callable[[], int]) -> StartQuery:
    """Return a factory of services that are not started yet."""
    return lambda directory, *options: Query(start, free_port(), directory, options)


@pytest.fixture
def start_query(make_query: StartQuery) -> StartQuery:
    """Return a function that starts a service and waits until it listens."""
    return lambda directory, *options: make_query(directory, *options).start()


def write(directory: Path, count: int, *, size: int = 0, first: int = 1, stream: str = "fyrehose://default") -> None:
    """Write records with one second in between and payloads like ``{"n": 1, "odd": true}``."""
    with closing(open_journal(directory, stream)) as journal:
        append(journal, count, size=size, first=first)


def append(journal: Journal, count: int, *, size: int = 0, first: int = 1) -> None:
    filling = b'"%s"' % (b"x" * size)
    for low in range(first, first + count, 1_000):
        journal.append(
            [
                Record(
                    journal.stream,
                    0,
                    n,
                    (START + n) * 1_000_000,
                    b'{"n": %d, "odd": %s, "x": %s}' % (n, b"true" if n % 2 else b"false", filling),
                )
                for n in range(low, min(low + 1_000, first + count))
            ]
        )
        journal.commit()


START = 1_700_000_000
"""UTC seconds."""


def numbered(first: int, last: int) -> bytes:
    return b"".join(b'{"n": %d}\n' % number for number in range(first, last + 1))


SEEDS = [1, pytest.param(None, marks=pytest.mark.soak)]
"""A soak uses a new seed each time."""


def random_of(seed: int | None) -> Random:
    """Return the random generator of a test and print its seed."""
    chosen = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    print(f"seed {chosen}")
    return Random(chosen)


@pytest.mark.extended
@pytest.mark.parametrize("seed", SEEDS)
def test_follower_receives_each_record_once_despite_disconnects_and_crashes(
    backbone: RunningBackbone,
    start_query: StartQuery,
    start_journal: StartJournal,
    start: Start,
    await_true: AwaitTrue,
    tmp_path: Path,
    seed: int | None,
) -> None:
    rng = random_of(seed)
    query = start_query(tmp_path / "kept", "--backbone", backbone.text)
    other = start_journal(backbone, "beside")  # Messages published while the service is down are repaired from here.
    backbone.wait_for_clients(2)
    publisher = start("fyrehose", "pub", "--backbone", backbone.text)
    publisher.write(numbered(1, 3_000))
    await_true(lambda: RECORDS.split("/")[2] in query.ask("/streams").body.decode(), lambda: query.program)

    found: list[Event] = []
    cuts = 0

    def follow(count: int) -> None:
        """Follow until there are ``count`` records, disconnecting again and again."""
        nonlocal cuts
        while len(found) < count:
            # There is no id before the first record.
            reader = query.follow(RECORDS + "?from=1", found[-1].id if found else "")
            for event in reader.events(rng.randint(1, 60_000)):
                found.append(event)
                assert event.data["sequence"] == len(found), event
                if len(found) == count:
                    break
            reader.close()
            cuts += 1

    follow(1_500)
    reader = query.follow(id=found[-1].id)
    found += reader.take(rng.randint(1, 200))
    query.kill()
    found += reader.events()
    reader.close()
    publisher.write(numbered(3_001, 4_000))
    other.wait_for(4_000)
    query.start()
    publisher.write(numbered(4_001, 5_000))
    assert publisher.finish() == 0, publisher
    end = backbone.sequence
    follow(end)
    assert len(found) == end
    assert cuts > 5
    # A message pushed again because it came back late has two numbers.
    assert [(event.kind, event.data["sequence"]) for event in found] == [("message", n) for n in range(1, end + 1)]
    assert [event.id for event in found] == [str(n) for n in range(1, end + 1)]
    other.wait_for(end)
    kept = [json.loads(payload[ENVELOPE_SIZE:]) for _, payload in other.records()]
    assert [event.data["json"] for event in found] == kept
    assert {one["n"] for one in kept} == set(range(1, 5_001))
    assert query.ask(RECORDS + "?last=3").numbers == [end - 2, end - 1, end]
    query.stop()
    with closing(open_reader(tmp_path / "kept" / "fyrehose-default")) as reader_of_files:
        assert list(reader_of_files.held(0, 1, end)) == [(1, end)]


class Crowd:
    """Many followers in one thread, whose record ids are recorded, not their contents.

    :ivar told: record ids of each stream.
    """

    def __init__(self, readers: list[socket.socket]) -> None:
        self.told: list[list[int]] = [[] for _ in readers]
        self._rests = [b""] * len(readers)
        self._selector = selectors.DefaultSelector()
        for number, reader in enumerate(readers):
            self._selector.register(reader, selectors.EVENT_READ, number)

    def read_up_to(self, last: int) -> None:
        """Read until all streams have delivered ``last``."""
        behind = set(range(len(self.told)))
        end = time.monotonic() + PATIENCE
        while behind:
            ready = self._selector.select(PATIENCE)
            assert ready, "nothing comes"
            assert time.monotonic() < end, f"{len(behind)} are behind"
            for key, _ in ready:
                data = key.fileobj.recv(2**18)  # type: ignore[union-attr]
                assert data, f"stream {key.data} has ended"
                *frames, self._rests[key.data] = (self._rests[key.data] + data).split(b"\n\n")
                told = self.told[key.data]
                told += [int(frame[frame.rindex(b"id: ") + 4 :]) for frame in frames if frame.startswith(b"data: ")]
                if told and told[-1] >= last:
                    behind.discard(key.data)


Dial = Callable[..., socket.socket]


@pytest.fixture
def dial() -> Iterator[Dial]:
    """Return a function that opens connections with a request during the test."""
    opened: list[socket.socket] = []

    def dialled(port: int, request: bytes, window: int = 0) -> socket.socket:
        opened.append(socket.socket())
        if window:  # Small kernel buffer, for a client that does not read.
            opened[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        opened[-1].settimeout(PATIENCE)
        opened[-1].connect(("127.0.0.1", port))
        opened[-1].sendall(request)
        return opened[-1]

    yield dialled
    for one in opened:
        one.close()


FOLLOW = f"GET {RECORDS}?from=1 HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()


def fill(query: Query, journal: Journal, dial: Dial, readers: int, stalled: int, megabytes: int) -> None:
    """Fill the buffers of stalled clients while others receive everything."""
    for _ in range(stalled):
        dial(query.port, FOLLOW, 4_096)
    crowd = Crowd([dial(query.port, FOLLOW) for _ in range(readers)])
    append(journal, 500, size=1_000)
    crowd.read_up_to(500)
    before = query.memory
    for first in range(501, 1_000 * megabytes, 1_000):
        append(journal, 1_000, size=1_000, first=first)
        crowd.read_up_to(first + 999)
    for told in crowd.told:
        assert told == list(range(1, first + 1_000))
    # All of it would be pending for each stalled client.
    assert query.memory - before < stalled * megabytes * 2**20 // 3


@pytest.mark.extended
def test_stalled_followers_do_not_delay_others(start_query: StartQuery, dial: Dial, tmp_path: Path) -> None:
    with closing(open_journal(tmp_path, "fyrehose://default")) as journal:
        journal.begin(0, 1)
        journal.commit()
        query = start_query(tmp_path)
        fill(query, journal, dial, readers=20, stalled=12, megabytes=8)
    query.stop()


@pytest.mark.extended
def test_journals_of_all_protocols_are_served(
    backbone: RunningBackbone,
    start_query: StartQuery,
    start_cluster: StartCluster,
    peer: MakePeer,
    await_true: AwaitTrue,
    tmp_path: Path,
) -> None:
    kept = tmp_path / "kept"
    (node,) = start_cluster("east", options=lambda node: ["--journal", kept]).values()
    assert [node.publish(event) for event in (b'{"door": 1}', b"plain", b"\xff")] == [1, 2, 3]
    with closing(open_journal(kept, "hydra://net")) as journal:
        lines = LineJournal(journal)
        lines.append(
            LinesReceived(1, 1, [b":ann!a@host PRIVMSG #x :hello", add_tag("t1", b":bot!b@host PRIVMSG #x :hi")])
        )
        lines.append(LinesMissed(1, 3, 4))
        lines.append(LinesReceived(1, 5, [b":ann!a@host PART #x"]))
        lines.append(LinesReceived(2, 1, [b":ann!a@host JOIN #x"]))
        journal.commit()
    key = SigningKey.generate()
    signed = freenet.stream_uri(key.key)
    with closing(open_journal(kept, signed)) as journal:
        packets = [Packet(number, key.sign(number, b'{"n": %d}' % number)) for number in range(3)]
        packet_journal = freenet.PacketJournal(journal)
        packet_journal.write(PacketsDelivered(key.key, packets))
        packet_journal.write(StreamRenumbered(key.key, 0))
        packet_journal.write(PacketsDelivered(key.key, [Packet(0, key.sign(0, b'{"n": 9}'))]))
        journal.commit()
    query = start_query(kept, "--backbone", backbone.text)
    backbone.wait_for_clients(1)
    peer(backbone).publish_once([b'{"a": 1.50}', b"two"])
    names = {"fyrehose://default": 2, "parcels://default": 3, "hydra://net": 4, signed: 4}

    def held() -> dict[str, int]:
        return {one["stream"]: one["records"] for one in query.ask("/streams").json}

    await_true(lambda: held() == names, held)
    names_in_paths = {one["stream"]: one["name"] for one in query.ask("/streams").json}

    def records(stream: str, query_string: str = "") -> list[Any]:
        answer = query.ask(f"/streams/{names_in_paths[stream]}/records{query_string}")
        assert answer.status == 200, answer
        return [[value for name, value in one.items() if name not in ("stream", "received_at")] for one in answer.json]

    assert records("fyrehose://default") == [[0, 1, {"a": 1.5}], [0, 2, "two"]]
    assert b'"json":{"a": 1.50}' in query.ask(RECORDS).body  # The payload is returned verbatim.
    assert records("parcels://default") == [[0, 1, {"door": 1}], [0, 2, "plain"], [0, 3, "/w=="]]
    assert records("hydra://net") == [
        [1, 1, ":ann!a@host PRIVMSG #x :hello"],
        [1, 2, ":bot!b@host PRIVMSG #x :hi"],
        [1, 5, ":ann!a@host PART #x"],
        [2, 1, ":ann!a@host JOIN #x"],
    ]
    assert records(signed, "?where=n>`0`") == [[0, 1, {"n": 1}], [0, 2, {"n": 2}], [1, 0, {"n": 9}]]
    # An id of the first epoch stays valid when there is another one.
    with closing(query.follow(f"/streams/{names_in_paths[signed]}/records", "0")) as reader:
        assert [event.id for event in reader.take(3)] == ["1", "2", "1:0"]
    with closing(query.follow("/streams/hydra-net/records?from=1:2")) as reader:
        told = [(event.kind, event.id) for event in reader.take(4)]
    assert told == [("message", "1:2"), ("skipped", "1:4"), ("message", "1:5"), ("message", "2:1")]
    assert query.ask("/health").json == {"streams": 4, "problems": 0}
    query.stop()


@pytest.fixture
def query(start_query: StartQuery, tmp_path: Path) -> Query:
    """Return a service with a journal of 2,500 records."""
    write(tmp_path / "kept", 2_500)
    return start_query(tmp_path / "kept")


def test_record_ranges_are_paged(query: Query) -> None:
    path: str | None = RECORDS
    found: list[int] = []
    pages = 0
    while path is not None:
        answer = query.ask(path)
        found += answer.numbers
        path, pages = answer.next, pages + 1
    assert (found, pages) == (list(range(1, 2_501)), 3)
    lines = query.ask(RECORDS + "?from=11&to=2000&limit=700", Accept="application/x-ndjson", Accept_Encoding="gzip")
    assert (lines.headers["Content-Encoding"], lines.headers["Content-Type"]) == ("gzip", "application/x-ndjson")
    rows = [json.loads(line) for line in gzip.decompress(lines.body).splitlines()]
    assert [row["json"]["n"] for row in rows] == list(range(11, 711))
    assert lines.next == RECORDS + "?from=0:711&to=0:2000&limit=700"
    # A filter and a time range, over several pages.
    found, path = [], f"{RECORDS}?where=odd&since={START + 101}&until=2023-11-14T22:50:00Z&limit=400"
    while path is not None:
        answer = query.ask(path)
        found += answer.numbers
        path = answer.next
    assert found == [number for number in range(101, 2_200) if number % 2]
    assert query.ask(RECORDS + "?last=5&where=!odd").numbers == [2_492, 2_494, 2_496, 2_498, 2_500]
    assert query.ask(RECORDS + "?last=5&from=2498").numbers == [2_498, 2_499, 2_500]
    assert b64decode(query.ask(RECORDS + "?from=7&to=7&encoding=base64").json[0]["data"]).startswith(b'{"n": 7,')
    with closing(query.follow(f"{RECORDS}?where=n>`2490`&last=100")) as reader:
        assert [event.data["sequence"] for event in reader.take(10)] == list(range(2_491, 2_501))
    for wrong in (
        "?from=x",
        "?limit=0",
        "?limit=1001",
        "?where=(",
        "?where=sort(@)",
        "?since=now",
        "?a=1",
    ):
        answer = query.ask(RECORDS + wrong)
        assert (answer.status, answer.json["error"]) == (400, "bad-request"), wrong
    assert query.ask(RECORDS.replace("default", "none")).json["error"] == "no-stream"


def test_curl_reads_ranges_and_streams(query: Query, program: FindProgram, start: Start) -> None:
    command = [program("curl", "curl"), "-sN", "--compressed", "-w", "%{http_code}"]
    ran = subprocess.run([*command, f"{query.url}{RECORDS}?from=1&to=2"], capture_output=True, text=True, check=True)
    assert [one["sequence"] for one in json.loads(ran.stdout.removesuffix("200"))] == [1, 2]
    headers = "-H", "Accept: text/event-stream", "-H", "Last-Event-ID: 2498"
    following = start(*command, *headers, f"{query.url}{RECORDS}", of_ours=False)
    following.wait_for("id: 2500\n\n")
    assert re.findall("^id: (.*)$", following.out, re.MULTILINE) == ["2498", "2499", "2500"]


def test_query_service_limits_requests_and_streams_per_token(make_query: StartQuery, tmp_path: Path) -> None:
    write(tmp_path / "kept", 3)
    tokens, limits = tmp_path / "tokens", tmp_path / "limits.toml"
    tokens.write_text("# who may ask\nann correct-horse-battery\nbob staple-correct-horse\n")
    tokens.chmod(0o600)
    limits.write_text("streams-per-client = 1\n")
    query = make_query(tmp_path / "kept", "--tokens-file", tokens, "--limits", limits).start()
    ann, bob = ({"Authorization": f"Bearer {token}"} for token in ("correct-horse-battery", "staple-correct-horse"))
    assert query.ask(RECORDS, **ann).numbers == [1, 2, 3]
    for headers in ({}, {"Authorization": "Bearer correct-horse-batteri"}, {"Authorization": "Basic " + "x" * 24}):
        for path in (RECORDS, "/streams", "/overview", "/metrics", f"{RECORDS}?token=correct-horse-battery"):
            answer = query.ask(path, **headers)
            assert (answer.status, answer.json["error"]) == (401, "unauthorized"), path
            assert b"horse" not in answer.body
    assert [query.ask(path).status for path in ("/health", "/openapi.json")] == [200, 200]
    # The limit of one client does not affect another.
    with closing(query.follow(**ann)):
        assert query.ask(RECORDS, Accept="text/event-stream", **ann).json["error"] == "too-many-streams"
        with closing(query.follow(**bob)):
            assert query.metric("fyrehose_query_streams", **bob) == 2
        tokens.write_text("bob staple-correct-horse\n")
        query.program.signal(signal.SIGHUP).wait_for("SIGHUP: 1 token")
        assert [query.ask("/streams", **headers).status for headers in (ann, bob)] == [401, 200]
    query.stop()
    assert not re.search("horse|battery|staple", query.program.out)


def test_unknown_host_names_and_origins_are_refused_by_the_query_service(query: Query) -> None:
    for host in (f"127.0.0.1:{query.port}", "localhost", "LOCALHOST:80", "[::1]:80", "192.0.2.1"):
        assert query.ask("/streams", Host=host).status == 200, host
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:8480", "[::1"):
        assert query.ask("/streams", Host=host).json["error"] == "wrong-host", host
    own = {"Host": f"localhost:{query.port}"}
    assert query.ask("/streams", Origin=f"http://localhost:{query.port}", **own).status == 200
    for origin in ("http://evil.example", f"http://127.0.0.1:{query.port + 1}", "null", "http://localhost"):
        answer = query.ask("/streams", Origin=origin, **own)
        assert answer.json["error"] == "cross-origin", origin
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert query.ask("/streams", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").json["error"] == "cross-origin"


TRIES = """
const tries = {};
const note = (name, done) => done.catch(String).then((value) => { tries[name] = value; });
const read = (response) => response.type === "opaque" ? "opaque" : response.text();
const followed = (url) => new Promise((done) => {
  const source = new EventSource(url);
  source.onmessage = (event) => done(event.data);
  source.onerror = () => { source.close(); done("refused"); };
});
const socket = (url) => new Promise((done) => {
  const opened = new WebSocket(url);
  opened.onmessage = (event) => done(event.data);
  opened.onerror = () => done("refused");
});
const loaded = (kind, url) => new Promise((done) => {
  const made = document.createElement(kind);
  made.onload = () => done("loaded");
  made.onerror = () => done("refused");
  made.src = url;
  document.body.append(made);
});
const posted = (url) => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.name = "target";
  const form = document.createElement("form");
  Object.assign(form, {method: "POST", action: url, target: "target"});
  document.body.append(frame, form);
  frame.onload = () => {
    try { done(frame.contentDocument.body.innerText); } catch (error) { done(String(error)); }
  };
  form.submit();
});
Promise.all([
  note("fetch", fetch(URL_OF_RECORDS).then(read)),
  note("with a header", fetch(URL_OF_RECORDS, {headers: {Authorization: "Bearer x"}}).then(read)),
  note("no-cors", fetch(URL_OF_RECORDS, {mode: "no-cors"}).then(read)),
  note("post", fetch(URL_OF_RECORDS, {method: "POST", body: "x"}).then(read)),
  note("events", followed(URL_OF_RECORDS + "?from=1")),
  note("overview", followed(URL_OF_RECORDS.replace(/streams.*/, "overview"))),
  note("socket", socket(URL_OF_RECORDS.replace("http", "ws") + "?from=1")),
  note("script", loaded("script", URL_OF_RECORDS)),
  note("image", loaded("img", URL_OF_RECORDS.replace(/streams.*/, "icon.svg"))),
  note("form", posted(URL_OF_RECORDS)),
]).then(() => fetch("/told", {method: "POST", body: JSON.stringify(tries)}));
"""


# Without a browser, this skips the test before anything else is made.
@pytest.mark.extended
def test_page_of_another_origin_cannot_read_records(open_strange_page: OpenStrangePage, query: Query) -> None:
    script = TRIES.replace("URL_OF_RECORDS", json.dumps(query.url + RECORDS))
    tries = open_strange_page(f"<!doctype html><title>elsewhere</title><body><script>{script}</script>")
    failed = "TypeError: Failed to fetch"
    assert {name: tries.pop(name) for name in ("fetch", "with a header", "post")} == dict.fromkeys(
        ("fetch", "with a header", "post"), failed
    )
    assert tries.pop("no-cors") in ("opaque", failed)
    assert re.search("SecurityError|TypeError", tries.pop("form"))
    assert tries == dict.fromkeys(("events", "overview", "socket", "script", "image"), "refused")
    # All attempts failed, and none of them returned data.
    text = query.ask("/metrics").body.decode()
    answered = re.findall(r'fyrehose_query_requests_total\{.*route="/streams/.*status="(\d+)"\}', text)
    assert set(answered) <= {"403", "405"}, text


def answered(connection: socket.socket) -> bytes:
    """Return all data up to the close by the server."""
    pieces = []
    with suppress(ConnectionResetError):
        while data := connection.recv(65_536):
            pieces.append(data)
    return b"".join(pieces)


@pytest.mark.parametrize("seed", SEEDS)
def test_garbage_and_slow_requests_do_not_disturb_the_query_service(
    make_query: StartQuery, dial: Dial, tmp_path: Path, seed: int | None
) -> None:
    rng = random_of(seed)
    write(tmp_path / "kept", 100)
    (tmp_path / "limits.toml").write_text("max-connections = 100\n")
    query = make_query(tmp_path / "kept", "--limits", tmp_path / "limits.toml").start()
    heads = (
        b"GET ",
        b"\x16\x03\x01",
        b"GET / HTTP/1.1\r\n",
        b"\x81\xff",
        b"POST /streams HTTP/1.1\r\nContent-Length: 9" * 9,
    )
    for number in range(60):
        garbage = heads[number % len(heads)] + rng.randbytes(rng.randint(1, 3_000)) + b"\r\n\r\n"
        with dial(query.port, garbage) as connection:
            with suppress(OSError):  # The server may have closed before.
                connection.shutdown(socket.SHUT_WR)
            assert answered(connection)[:12] in (b"", b"HTTP/1.1 400"), garbage
    for request, status in (
        (b"GET /streams HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", b"400"),
        (b"GET /streams HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 2_000 + b"\r\n", b"400"),
        (b"POST /streams HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n", b"413"),
        (b"POST /streams HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n", b"400"),
        (b"POST /streams HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2_000, b"413"),
    ):
        with dial(query.port, request) as connection:
            assert connection.recv(65_536).split()[1:2] == [status], request[:80]
    # As many unfinished requests as there may be connections do not keep others out.
    slow = [dial(query.port, b"GET /streams HTTP/1.1\r\nHost: local") for _ in range(100)]
    assert query.ask(RECORDS + "?limit=3").numbers == [1, 2, 3]
    assert answered(slow[0]) == b""
    assert query.metric("fyrehose_query_refused_connections_total") >= 1
    for one in slow:
        one.close()
    query.stop()


@pytest.mark.soak(seconds=50)
def test_slow_or_stalled_query_clients_are_disconnected(
    start_query: StartQuery, dial: Dial, await_true: AwaitTrue, tmp_path: Path
) -> None:
    with closing(open_journal(tmp_path, "fyrehose://default")) as journal:
        journal.begin(0, 1)
        journal.commit()
        query = start_query(tmp_path)
        slow = [dial(query.port, b"GET /streams HTTP/1.1\r\nHost: local") for _ in range(50)]
        fill(query, journal, dial, readers=20, stalled=10, megabytes=60)
        for one in slow:
            one.settimeout(PATIENCE)
            assert answered(one).startswith(b"HTTP/1.1 408 ")
        stalled = 'fyrehose_query_streams_ended_total{reason="stalled"}'
        await_true(lambda: query.metric(stalled) == 10, lambda: query.ask("/metrics").body.decode())
    query.stop()


def test_sigterm_ends_query_streams_cleanly(query: Query) -> None:
    readers = [
        query.follow(f"{RECORDS}?from={2_500 - number}", Accept_Encoding=coding)
        for number, coding in enumerate(("identity", "gzip"))
    ]
    overview = query.follow("/overview")
    assert [event.id for event in readers[0].take(1)] == ["2500"]
    readers[1].wait_for(b"\nid: 2500\n\n", lambda packed: zlib.decompressobj(31).decompress(packed))
    overview.wait_for(b"}\n\n")
    query.stop()
    assert readers[0].read_to_end() == b""
    readers[1].read_to_end()
    unpacking = zlib.decompressobj(31)
    assert unpacking.decompress(readers[1].read).endswith(b"\nid: 2500\n\n")
    assert unpacking.eof
    overview.read_to_end()
    assert overview.read.endswith(b"}\n\n")
    for reader in (*readers, overview):
        reader.close()


@pytest.mark.extended
def test_query_service_reports_startup_errors_in_one_line(
    query: Query, backbone: RunningBackbone, start: Start, free_port: Callable[[], int], tmp_path: Path
) -> None:
    (tmp_path / "open").write_text("ann correct-horse-battery\n")
    (tmp_path / "open").chmod(0o644)
    port, kept = f"tcp:{free_port()}", tmp_path / "kept"
    for options, said in (
        (["--http", f"tcp:{query.port}", "-d", kept], f"127.0.0.1:{query.port}: Address already in use; stop what"),
        (["--http", port, "-d", tmp_path / "none"], "/none is not a directory"),
        (["--http", port, "-d", kept, "--tokens-file", tmp_path / "open"], "is accessible to all users; chmod 600 it"),
    ):
        program = start("twistd", "-n", "--pidfile=", "fyrehose-query", *options, stderr=subprocess.STDOUT)
        assert program.finish() == 1, program
        *before, line = program.out.rstrip().splitlines()
        assert said in line, program
        # An error about an option lists the valid ones.
        assert before == [] or before[0].startswith("Usage: "), program
    usage: Any = Options
    wrong: list[tuple[list[object], str]] = [
        (["--http", port], "--directory DIR is required"),
        (["--http", f"{port}:interface=0.0.0.0", "-d", kept], "is not on loopback"),
        (["--http", port, "-d", kept, "--retention", "7d"], "--retention requires --backbone"),
    ]
    for arguments, said in wrong:
        with pytest.raises(UsageError, match=said):
            usage().parseOptions(list(map(str, arguments)))
    with closing(open_journal(tmp_path / "ours", "fyrehose://default")):
        command = ("fyrehose-query", "-d", tmp_path / "ours", "--http", port, "--backbone", backbone.text)
        program = start("twistd", "-n", "--pidfile=", *command, stderr=subprocess.STDOUT)
        assert program.finish() == 1, program
        (line,) = program.out.splitlines()
        assert "is in use" in line


def test_unreadable_journal_fails_the_health_check(query: Query, await_true: AwaitTrue, tmp_path: Path) -> None:
    bad = tmp_path / "kept" / "fyrehose-bad"
    bad.mkdir()
    (good,) = (tmp_path / "kept" / "fyrehose-default").glob("*.log")
    (bad / good.name).write_bytes(b"no journal" * 100)
    await_true(lambda: query.ask("/health").status == 503, lambda: query.program)
    assert query.ask("/health").json["problems"] == 1
    assert [one["name"] for one in query.ask("/overview").json["streams"] if one["problem"]] == ["fyrehose-bad"]
    query.program.wait_for("fyrehose-bad")
    assert query.program.out.count("fyrehose-bad") == 1
    assert query.metric("fyrehose_query_problems") == 1
    assert query.ask(RECORDS + "?limit=2").numbers == [1, 2]
    shutil.rmtree(bad)
    await_true(lambda: query.ask("/health").status == 200, lambda: query.program)


def test_watched_service_appears_in_the_overview_until_it_is_down(
    backbone: RunningBackbone, start_query: StartQuery, await_true: AwaitTrue, tmp_path: Path
) -> None:
    url = backbone.program.wait_for(r"metrics at (http://\S+)")[1]
    query = start_query(tmp_path, "--watch", f"backbone={url}")

    def seen() -> Any:
        (service,) = query.ask("/overview").json["services"]
        return service

    await_true(lambda: seen()["up"], seen)
    service = seen()
    assert (service["name"], service["why"]) == ("backbone", "")
    assert service["metrics"]["fyrehose_backbone_clients"] == [[{}, 0.0]]
    assert service["metrics"]["fyrehose_info"][0][0]["service"] == "backbone"
    backbone.kill()
    await_true(lambda: not seen()["up"], seen)
    service = seen()
    assert "refused" in service["why"], service
    assert service["metrics"]["fyrehose_backbone_clients"] == [[{}, 0.0]]  # The last figures.
    assert query.metric('fyrehose_query_watched{name="backbone"}') == 0
    query.program.wait_for(re.escape(f"backbone at {url}"))
    assert query.program.out.count(f"backbone at {url}") == 1


SEED = 20_043


def check(query: Query, directory: Path, *options: str, seed: int = SEED) -> None:
    """Run Schemathesis against a service; its output contains the seed."""
    program = str(Path(sys.executable).parent / "schemathesis")
    run = [program, "run", f"{query.url}/openapi.json", "--no-color", f"--seed={seed}", "--generation-database=none"]
    run += ["--request-timeout=60", "--suppress-health-check=all", *options]
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    ran = subprocess.run(run, env=env, cwd=directory, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"seed {seed}\n{ran.stdout}\n{ran.stderr}"
    query.stop()
    assert not re.search(r"#(warn|error|critical)\]", query.program.out), query.program


@pytest.fixture
def patient(make_query: StartQuery, tmp_path: Path) -> Callable[..., Query]:
    """Return a function that starts a service without a request rate limit."""
    if find_spec("schemathesis") is None:
        pytest.skip("there is no Schemathesis")
    write(tmp_path / "kept", 3)
    limits = tmp_path / "limits.toml"
    limits.write_text("requests-per-client = 1e6\nburst-per-client = 1e6\nstreams-per-client = 256\n")
    return lambda *options: make_query(tmp_path / "kept", "--limits", limits, *options).start()


@pytest.mark.extended
def test_query_service_conforms_to_its_openapi_description(patient: Callable[..., Query], tmp_path: Path) -> None:
    check(patient(), tmp_path)


@pytest.mark.extended
def test_query_service_with_a_token_conforms_to_its_openapi_description(
    patient: Callable[..., Query], tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text("ann correct-horse-battery\n")
    (tmp_path / "tokens").chmod(0o600)
    query = patient("--tokens-file", tmp_path / "tokens")
    check(
        query,
        tmp_path,
        "--phases=fuzzing,stateful",
        "--max-examples=5",
        "--header=Authorization: Bearer correct-horse-battery",
    )


@pytest.mark.soak(seconds=300)
def test_query_service_conforms_to_its_openapi_description_for_many_examples(
    patient: Callable[..., Query], tmp_path: Path
) -> None:
    for seed in range(3):
        check(patient(), tmp_path, "--max-examples=300", seed=seed)
