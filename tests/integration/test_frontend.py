"""Frontend processes that publish lines and HTTP requests, under load and under faults."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import pytest
from integration.running.backbone import RunningBackbone, StartBackbone
from integration.running.browser import OpenStrangePage
from integration.running.journal import CheckTold, StartJournal
from integration.running.programs import AwaitTrue, Program, Start

from fyrehose_twisted.journal.reader import open_reader

DEADLINE = 120.0
NDJSON = {"Content-Type": "application/x-ndjson"}

ANN, BOB = "ann-0123456789abcdef", "bob-0123456789abcdef"


class Lines:
    """Line connection with a reader thread.

    :ivar answers: received replies.
    """

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE)
        self.answers: list[str] = []
        self.changed = threading.Condition()
        self.over = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        rest = b""
        try:
            while data := self.socket.recv(65_536):
                *lines, rest = (rest + data).split(b"\n")
                with self.changed:
                    self.answers += [line.decode() for line in lines]
                    self.changed.notify_all()
        except OSError:
            pass  # It was reset, or timed out.
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def send(self, data: bytes) -> Lines:
        self.socket.sendall(data)
        return self

    def end(self) -> Lines:
        """Half-close the connection."""
        with suppress(OSError):  # The server may have closed before.
            self.socket.shutdown(socket.SHUT_WR)
        return self

    def wait_for(self, count: int) -> list[str]:
        """Return the replies once there are ``count``."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.answers) >= count, DEADLINE), self.answers[-3:]
        return self.answers

    def wait_for_end(self) -> list[str]:
        """Return all replies once the server has closed."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.over, DEADLINE), self.answers[-3:]
        return self.answers

    def close(self) -> None:
        self.socket.close()
        self._thread.join(DEADLINE)


class RunningFrontend:
    """``twistd fyrehose-frontend`` in a process of its own."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._open: list[Any] = []

    @property
    def http(self) -> int:
        """Return its HTTP port once it is bound."""
        return int(self.program.wait_for(r"--http: listening on 127.0.0.1:(\d+)")[1])

    @property
    def lines(self) -> int:
        """Return its line port once it is bound."""
        return int(self.program.wait_for(r"--lines: listening on 127.0.0.1:(\d+)")[1])

    def connect(self) -> Lines:
        """Open a line connection."""
        self._open.append(Lines(self.lines))
        return self._open[-1]  # type: ignore[no-any-return]

    def dial(self) -> socket.socket:
        """Open a raw connection to the HTTP port."""
        self._open.append(socket.create_connection(("127.0.0.1", self.http), DEADLINE))
        return self._open[-1]  # type: ignore[no-any-return]

    def client(self) -> http.client.HTTPConnection:
        """Open an HTTP connection."""
        self._open.append(http.client.HTTPConnection("127.0.0.1", self.http, timeout=DEADLINE))
        return self._open[-1]  # type: ignore[no-any-return]

    def put(self, body: bytes, headers: dict[str, str] | None = None, client: Any = None) -> tuple[int, Any]:
        """Publish; return status and content of the response."""
        client = client or self.client()
        client.request("POST", "/messages", body, headers or {})
        response = client.getresponse()
        return response.status, json.loads(response.read())

    def metrics(self) -> dict[str, float]:
        """Return its counters."""
        client = self.client()
        client.request("GET", "/metrics")
        text = client.getresponse().read().decode()
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return {name.removeprefix("fyrehose_frontend_"): float(value) for name, value in lines}

    def stop(self) -> None:
        """Stop it with SIGTERM. Twisted then ends itself by the same signal."""
        assert self.program.signal(signal.SIGTERM).finish() == -signal.SIGTERM, self.program
        assert "Traceback" not in self.program.out, self.program

    def close(self) -> None:
        for one in self._open:
            one.close()


StartFrontend = Callable[..., RunningFrontend]


@pytest.fixture
def start_frontend(start: Start, tmp_path: Path) -> Iterator[StartFrontend]:
    """Return a function that starts a frontend of a backbone on free ports."""
    frontends: list[RunningFrontend] = []

    def started(backbone: RunningBackbone, *options: object) -> RunningFrontend:
        command = "twistd", "-n", "--pidfile=", "fyrehose-frontend", "-b", backbone.text
        ports = "--http", "tcp:0", "--lines", "tcp:0"
        program = start(*command, *ports, *options, cwd=tmp_path, stderr=subprocess.STDOUT)
        frontends.append(RunningFrontend(program))
        return frontends[-1]

    yield started
    for frontend in frontends:
        frontend.close()


def printed(path: Path) -> list[tuple[int, bytes]]:
    """Return numbers and messages printed by ``fyrehose sub`` so far."""
    *lines, _ = path.read_bytes().split(b"\n")
    found = map(json.loads, lines)
    return [(one["sequence"], b64decode(one["data"]) if "encoding" in one else one["data"].encode()) for one in found]


class Stream:
    """Two independent subscribers beside the frontend, of which one prints repeats, too."""

    def __init__(
        self, start: Start, await_true: AwaitTrue, check_told: CheckTold, backbone: RunningBackbone, directory: Path
    ) -> None:
        self._await_true = await_true
        self._check_told = check_told
        self._path, self._raw = directory / "stream", directory / "raw"
        subscribe = "fyrehose", "sub", "-b", backbone.text, "--format", "json"
        with self._path.open("wb") as file, self._raw.open("wb") as raw_file:
            self.program = start(*subscribe, stdout=file)
            self.raw_program = start(*subscribe, "--raw", stdout=raw_file)
        backbone.wait_for_clients(2)

    @property
    def messages(self) -> dict[int, bytes]:
        """Return received messages by number."""
        found = printed(self._path)
        assert len(dict(found)) == len(found)
        return dict(found)

    def wait_for(self, data: str) -> dict[int, bytes]:
        """Return received messages once ``data`` is among them."""
        mark = json.dumps(data).encode() + b"}\n"
        self._await_true(lambda: mark in self._path.read_bytes(), lambda: self.program)
        return self.messages

    def check(self, told: Iterable[tuple[int, bytes]]) -> None:
        """Compare the reported numbers with received messages; see ``check_told``."""
        told, seen = list(told), printed(self._path)
        last = max(number for number, _ in (*told, *seen))
        self._await_true(lambda: self._last_of_raw() >= last, lambda: self.raw_program)
        self._check_told(told, printed(self._raw), seen)

    def _last_of_raw(self) -> int:
        line = self._raw.read_bytes().rpartition(b"\n")[0].rpartition(b"\n")[2]
        return int(json.loads(line)["sequence"]) if line else 0


@pytest.fixture
def stream(
    start: Start, await_true: AwaitTrue, check_told: CheckTold, backbone: RunningBackbone, tmp_path: Path
) -> Stream:
    return Stream(start, await_true, check_told, backbone, tmp_path)


@pytest.fixture
def frontend(backbone: RunningBackbone, stream: Stream, start_frontend: StartFrontend) -> RunningFrontend:
    """Return a frontend without tokens whose backbone has subscribers."""
    made: RunningFrontend = start_frontend(backbone)
    return made


@pytest.mark.extended
def test_lines_of_four_connections_are_all_published_in_order(
    backbone: RunningBackbone, frontend: RunningFrontend, stream: Stream
) -> None:
    def publish(name: str) -> None:
        text = "".join(f"{name} {number}\n" for number in range(5_000))
        connections[name].send(text.encode()).end()

    connections = {name: frontend.connect() for name in "abcd"}
    writers = [threading.Thread(target=publish, args=(name,)) for name in connections]
    for writer in writers:
        writer.start()
    numbers = {name: [int(answer) for answer in connection.wait_for_end()] for name, connection in connections.items()}
    for writer in writers:
        writer.join()
    last = frontend.connect().send(b"the end").end()
    told = [(int(last.wait_for_end()[0]), b"the end")]
    assert len(stream.wait_for("the end")) == 20_001
    for name, own in numbers.items():
        assert own == sorted(own) or backbone.has_lost
        told += [(number, f"{name} {index}".encode()) for index, number in enumerate(own)]
    assert len(told) == 20_001
    stream.check(told)
    counted = frontend.metrics()
    assert counted["published_total"] == counted['line_events_total{what="lines"}'] == 20_001
    assert counted["waiting_bytes"] == counted["batches"] == counted["line_connections"] == 0
    frontend.stop()


def test_batches_and_single_messages_are_published_over_http(
    backbone: RunningBackbone, frontend: RunningFrontend, stream: Stream
) -> None:
    def publish(name: str) -> None:
        client = frontend.client()
        for batch in range(5):
            lines = [json.dumps({"from": name, "n": 1_000 * batch + row}).encode() for row in range(1_000)]
            status, content = frontend.put(b"\n".join(lines), NDJSON, client)
            assert status == 201
            told[name] += zip(content["sequences"], lines, strict=True)

    told: dict[str, list[tuple[int, bytes]]] = {"a": [], "b": []}
    writers = [threading.Thread(target=publish, args=(name,)) for name in told]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    for data in (b"\x00 one \xff\n", b"the end"):
        status, content = frontend.put(data)
        assert (status, list(content)) == (201, ["sequence"])
        told["a"].append((content["sequence"], data))
    assert len(told["a"]) + len(told["b"]) == 10_002
    assert len(stream.wait_for("the end")) == 10_002
    stream.check(told["a"] + told["b"])
    for each in told.values():
        assert [number for number, _ in each] == sorted(number for number, _ in each) or backbone.has_lost
    frontend.stop()


@pytest.mark.extended
def test_half_closed_connection_receives_the_remaining_replies(frontend: RunningFrontend, stream: Stream) -> None:
    lines = [b"%d" % number for number in range(3_000)]
    many = frontend.connect().send(b"".join(line + b"\n" for line in lines)).send(b"\nlast").end()
    answers = many.wait_for_end()
    assert answers.pop(3_000) == "error empty"
    assert len(stream.wait_for("last")) == 3_001
    stream.check(zip(map(int, answers), [*lines, b"last"], strict=True))
    nothing = frontend.connect().end()
    assert nothing.wait_for_end() == []


class Loads:
    """Connections that publish lines without end, each at most a few lines ahead of its replies.

    :ivar sent: lines sent by each.
    """

    def __init__(self, frontend: RunningFrontend, names: str, ahead: int = 200) -> None:
        self.connections = {name: frontend.connect() for name in names}
        self.sent: dict[str, list[bytes]] = {name: [] for name in names}
        self._ahead = ahead
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._publish, args=(name,), daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    def _publish(self, name: str) -> None:
        connection, sent = self.connections[name], self.sent[name]

        def may_go_on() -> bool:
            return connection.over or len(sent) - len(connection.answers) < self._ahead

        while not self._stop.is_set():
            with connection.changed:
                connection.changed.wait_for(may_go_on, DEADLINE)
                if connection.over:
                    return
            lines = [b"%s %d" % (name.encode(), number) for number in range(len(sent), len(sent) + 20)]
            try:
                connection.send(b"".join(line + b"\n" for line in lines))
            except OSError:
                return
            sent += lines

    def wait_for(self, more: int) -> None:
        """Wait until each has this many further replies."""
        for connection in self.connections.values():
            connection.wait_for(len(connection.answers) + more)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE)

    def finish(self) -> dict[str, list[str]]:
        """Stop publishing and return the replies."""
        self.stop()
        for connection in self.connections.values():
            connection.end()
        return {name: connection.wait_for_end() for name, connection in self.connections.items()}


@pytest.mark.extended
def test_acknowledged_messages_survive_a_kill_of_the_backbone_under_load(
    backbone: RunningBackbone,
    frontend: RunningFrontend,
    stream: Stream,
    start_backbone: StartBackbone,
    start_journal: StartJournal,
) -> None:
    start_journal(backbone, "kept")  # Serves repairs to a subscriber on a busy machine.

    def batches() -> None:
        client = frontend.client()
        while not over.is_set():
            lines = [b'"http %d"' % number for number in range(len(by_http), len(by_http) + 100)]
            status, content = frontend.put(b"\n".join(lines), NDJSON, client)
            assert status == 201, content
            by_http.extend(zip(content["sequences"], lines, strict=True))

    by_http: list[tuple[int, bytes]] = []
    over = threading.Event()
    posting = threading.Thread(target=batches)
    loads = Loads(frontend, "abc")
    posting.start()
    loads.wait_for(1_000)
    backbone.kill()
    start_backbone("--metrics", "tcp:0", port=backbone.address[1], settle=2)
    loads.wait_for(1_000)
    over.set()
    posting.join()
    answers = loads.finish()
    status, content = frontend.put(b"the end")
    assert status == 201
    stream.wait_for("the end")
    told = [*by_http, (content["sequence"], b"the end")]
    for name, numbers in answers.items():
        told += zip(map(int, numbers), loads.sent[name], strict=True)
    # The kill may have come between two DELIVERs of a message, which was then pushed again and has two numbers, of
    # which the lower one is reported.
    stream.check(told)
    assert sorted(told) == sorted(stream.messages.items())
    frontend.stop()


@pytest.mark.extended
def test_frontend_stopped_under_load_answers_every_message_it_published(
    frontend: RunningFrontend, stream: Stream, start_frontend: StartFrontend, backbone: RunningBackbone
) -> None:
    loads = Loads(frontend, "abcd", 5_000)
    loads.wait_for(1_000)
    frontend.stop()
    loads.stop()
    answers = {name: connection.wait_for_end() for name, connection in loads.connections.items()}
    assert start_frontend(backbone).put(b"the end")[0] == 201
    published = set(stream.wait_for("the end").values())
    # The shutdown waits a few seconds for messages in flight, and reports when that was not enough.
    in_time = "batches that were not published in time" not in frontend.program.out
    told: list[tuple[int, bytes]] = []
    for name, own in answers.items():
        assert len(own) <= len(loads.sent[name])
        for line, answer in zip(loads.sent[name], own, strict=False):
            if answer.isdigit():
                told.append((int(answer), line))
            elif in_time or answer != "error unknown":
                assert answer == "error not-published"
                assert line not in published
    stream.check(told)


@pytest.mark.extended
def test_stopping_frontend_answers_messages_in_flight(
    backbone: RunningBackbone, frontend: RunningFrontend, stream: Stream, await_true: AwaitTrue
) -> None:
    client = frontend.connect().send(b"first\n")
    client.wait_for(1)
    answers: list[Any] = []
    backbone.program.signal(signal.SIGSTOP)
    try:
        client.send(b"by line\n")
        posting = threading.Thread(target=lambda: answers.append(frontend.put(b"by HTTP")))
        posting.start()
        await_true(lambda: frontend.metrics()["batches"] == 2, frontend.metrics)
        frontend.program.signal(signal.SIGTERM).wait_for(r"Port \d+ Closed", times=2)
    finally:
        backbone.program.signal(signal.SIGCONT)
    assert frontend.program.finish() == -signal.SIGTERM, frontend.program
    posting.join()
    told = [int(answer) for answer in client.wait_for_end()]
    [(status, content)] = answers
    assert status == 201
    assert len(stream.wait_for("by HTTP")) == 3
    stream.check(zip((*told, content["sequence"]), (b"first", b"by line", b"by HTTP"), strict=True))


@pytest.mark.soak
def test_uncertain_outcome_is_reported_to_line_and_http_clients(
    backbone: RunningBackbone, frontend: RunningFrontend, await_true: AwaitTrue
) -> None:
    client = frontend.connect().send(b"known\n")
    assert client.wait_for(1)[0].isdigit()
    backbone.kill()
    client.send(b"in doubt\n")
    answers: list[Any] = []
    posting = threading.Thread(target=lambda: answers.append(frontend.put(b"in doubt too")))
    posting.start()
    await_true(lambda: frontend.metrics()["batches"] == 2, frontend.metrics)
    frontend.stop()
    posting.join()
    assert client.wait_for_end()[1:] == ["error unknown"]
    [(status, content)] = answers
    assert (status, content["error"], content["unknown"]) == (503, "stopping", True)


def has_limits(tmp_path: Path, **limits: int) -> tuple[str, Path]:
    """Return options with these limits."""
    path = tmp_path / "limits.toml"
    path.write_text("".join(f"{name.replace('_', '-')} = {value}\n" for name, value in limits.items()))
    return "--limits", path


def test_reply_waits_for_journals_and_a_repeated_request_publishes_nothing(
    backbone: RunningBackbone, start_journal: StartJournal, start_frontend: StartFrontend, tmp_path: Path
) -> None:
    journal = start_journal(backbone, "kept")
    backbone.wait_for_clients(1)
    frontend = start_frontend(backbone, "--kept", 1, *has_limits(tmp_path, keep_timeout=2))
    lines = frontend.connect().send(b"one\n")
    assert lines.wait_for(1) == ["1"]
    key = {"Idempotency-Key": "order-4711"}
    journal.program.signal(signal.SIGSTOP)
    try:
        status, content = frontend.put(b"two", key)
        assert (status, content["sequence"], content["had"], content["wanted"]) == (504, 2, 0, 1)
        assert lines.send(b"three\n").wait_for(2)[1] == "error not-kept 3"
    finally:
        journal.program.signal(signal.SIGCONT)
    assert frontend.put(b"two", key) == (201, {"sequence": 2})
    assert frontend.put(b"two", {**key, "Kept": "1"}) == (201, {"sequence": 2})
    assert frontend.put(b"four") == (201, {"sequence": 4})
    assert frontend.metrics()["unkept_total"] == 2
    frontend.stop()
    journal.kill()
    backbone.kill()
    assert journal.lines() == [b"one", b"two", b"three", b"four"]


def test_frontend_repairs_messages_that_no_other_client_holds(
    start: Start, start_backbone: StartBackbone, start_frontend: StartFrontend
) -> None:
    backbone = start_backbone("--retransmit", 0)
    frontend = start_frontend(backbone)
    backbone.wait_for_clients(1)
    lines = [b'"line %d"' % number for number in range(1_000)]
    assert frontend.put(b"\n".join(lines), NDJSON)[1] == {"sequences": list(range(1, 1_001))}
    late = start("fyrehose", "sub", "-b", backbone.text, "--from", "1", "--count", 1_000)
    assert late.finish() == 0, late
    assert late.out.encode().splitlines() == lines
    frontend.stop()


@pytest.mark.extended
def test_acknowledged_message_is_in_a_journal_despite_a_flood_of_large_ones(
    backbone: RunningBackbone, start_journal: StartJournal, start_frontend: StartFrontend, tmp_path: Path
) -> None:
    journals = [start_journal(backbone, name) for name in ("one", "two")]
    backbone.wait_for_clients(2)
    frontend = start_frontend(backbone, *has_limits(tmp_path, line_connections_per_client=65))
    honest, flood = frontend.connect(), [frontend.connect() for _ in range(64)]
    over = threading.Event()

    def publish(connection: Lines) -> None:
        while not over.is_set():
            connection.send(b"x" * 60_000 + b"\n")
        connection.end()

    writers = [threading.Thread(target=publish, args=(connection,)) for connection in flood]
    for writer in writers:
        writer.start()
    try:
        while sum(len(connection.answers) for connection in flood) < 4_000:
            honest.send(b"honest\n").wait_for(len(honest.answers) + 1)
    finally:
        over.set()
        for writer in writers:
            writer.join()
    answers = [answer for connection in (honest.end(), *flood) for answer in connection.wait_for_end()]
    told = set(map(int, answers))
    lost = set(told)
    for journal in journals:
        journal.wait_for(max(told))
        with closing(open_reader(journal.path)) as reader:
            bounds = reader.bounds(0)
            assert bounds is not None
            gaps = [(1, bounds.first - 1), *reader.losses(0, bounds.first, bounds.last)]
            lost &= {number for first, last in gaps for number in range(first, last + 1)}
    assert lost == set()
    frontend.stop()


@pytest.mark.extended
def test_misbehaving_clients_do_not_affect_others(
    backbone: RunningBackbone, stream: Stream, start_frontend: StartFrontend, tmp_path: Path
) -> None:
    frontend = start_frontend(backbone, *has_limits(tmp_path, max_connections=20, line_connections_per_client=20))
    # Partial requests and partial lines, more of both than allowed.
    heads = [frontend.dial() for _ in range(19)]
    for head in heads:
        head.sendall(b"POST /messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n")
    parts = [frontend.connect().send(b"half a li") for _ in range(19)]
    client = frontend.client()
    assert frontend.put(b"one", client=client)[0] == 201
    assert frontend.connect().send(b"two\n").wait_for(1)[0].isdigit()
    assert frontend.connect().wait_for_end() == ["error too-many-connections"]
    garbage = Random(1).randbytes(50_000)
    heads[0].sendall(garbage + b"\r\n\r\n")
    assert heads[0].recv(65_536).startswith(b"HTTP/1.1 400 ")
    parts[0].send(b"ne\n" + b"x" * 70_000 + b"\nthree\n")
    assert parts[0].wait_for(3)[1] == "error too-large"
    parts[1].send(garbage.replace(b"\n", b"") + b"\n")
    assert parts[1].wait_for(1)[0].isdigit()
    for size, kind in ((65_479, "text/plain"), (2**20 + 1, NDJSON["Content-Type"])):
        status, content = frontend.put(b"x" * size, {"Content-Type": kind}, client)
        assert (status, content["error"]) == (413, "too-large")
    assert frontend.put(b"the end")[0] == 201
    found = list(stream.wait_for("the end").values())
    assert found == [b"one", b"two", b"half a line", b"three", b"half a li" + garbage.replace(b"\n", b""), b"the end"]
    frontend.stop()


@pytest.mark.soak(seconds=45)
def test_slow_frontend_clients_are_disconnected(
    backbone: RunningBackbone, stream: Stream, start_frontend: StartFrontend, tokens: Path
) -> None:
    frontend = start_frontend(backbone, "--tokens-file", tokens)
    slow = [frontend.dial() for _ in range(50)]
    silent = [frontend.connect() for _ in range(10)]
    over = threading.Event()

    def dribble() -> None:
        text = b"POST /messages HTTP/1.1\r\nX: " + b"x" * 1_000
        for byte in text:
            for one in slow:
                with suppress(OSError):
                    one.sendall(bytes([byte]))
            if over.wait(0.5):
                return

    dribbling = threading.Thread(target=dribble)
    dribbling.start()
    try:
        for one in slow:
            one.settimeout(2 * DEADLINE)
            with suppress(ConnectionResetError):  # A client that was sending at that moment may not receive the reply.
                assert one.recv(65_536).startswith(b"HTTP/1.1 408 ")
            assert frontend.put(b"x", {"Authorization": f"Bearer {ANN}"})[0] == 201
        assert [one.wait_for_end() for one in silent] == [["error timeout"]] * 10
    finally:
        over.set()
        dribbling.join()
    frontend.stop()


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"ann {ANN}\nbob {BOB}\n")
    path.chmod(0o600)
    return path


def test_frontend_requires_a_valid_token_for_lines_and_http(
    backbone: RunningBackbone, stream: Stream, start_frontend: StartFrontend, tokens: Path
) -> None:
    def bearer(token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    frontend = start_frontend(backbone, "--tokens-file", tokens)
    for headers in ({}, bearer("eve" + ANN), bearer(ANN[:-1]), {"Authorization": f"Basic {ANN}"}):
        assert frontend.put(b"no", headers)[0] == 401
    for first in (b"no\n", b"token eve-0123456789abcdef\n", b"token\n", b"x" * 600, b"token " + ANN.encode() + b"\n"):
        answers = frontend.connect().send(first + b"no\n").end().wait_for_end()
        if ANN.encode() in first:
            assert answers[0].isdigit()
        else:
            assert answers == ["error token"]
    assert frontend.put(b"http", bearer(ANN))[0] == 201
    tokens.write_text(f"bob {BOB}\n")
    frontend.program.signal(signal.SIGHUP).wait_for("SIGHUP: .*1 token")
    assert frontend.put(b"no", bearer(ANN))[0] == 401
    assert frontend.put(b"the end", bearer(BOB))[0] == 201
    assert list(stream.wait_for("the end").values()) == [b"no", b"http", b"the end"]
    frontend.stop()
    for token in (ANN, BOB):
        assert token not in frontend.program.out
        assert token not in " ".join(frontend.program.process.args)


def test_frontend_with_a_port_in_use_fails_to_start(start: Start, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        places = [("--http", f"tcp:{port}", "--lines", "none"), ("--http", "tcp:0", "--lines", f"tcp:{port}")]
        twistd = "twistd", "-n", "--pidfile=", "fyrehose-frontend"
        refused = [start(*twistd, *place, cwd=tmp_path, stderr=subprocess.STDOUT) for place in places]
        for program, option in zip(refused, ("http", "lines"), strict=True):
            assert program.finish() == 1
            assert program.out.count("\n") == 1
            assert program.out.startswith(f"fyrehose-frontend: --{option}")
            assert "Address already in use" in program.out


def test_small_publisher_is_served_while_others_fill_the_queue(
    backbone: RunningBackbone, start_frontend: StartFrontend, tmp_path: Path
) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text("waiting-bytes = 2000000\nwaiting-bytes-per-client = 2000000\n")
    frontend = start_frontend(backbone, "--limits", limits)
    body = b"\n".join([b'"%b"' % (b"x" * 10_000)] * 20)
    head = ("POST /messages HTTP/1.1", "Host: localhost", "Content-Type: application/x-ndjson")
    request = "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body

    def batches() -> float:
        return frontend.metrics()["batches"]

    backbone.program.signal(signal.SIGSTOP)
    try:
        waiting: list[socket.socket] = []
        for host in ("127.0.0.2", "127.0.0.3", "127.0.0.4"):
            answered: list[socket.socket] = []
            while not answered:
                before = batches()
                waiting.append(socket.create_connection(("127.0.0.1", frontend.http), DEADLINE, (host, 0)))
                waiting[-1].sendall(request)
                while not answered and batches() == before:
                    answered = select.select(waiting[-1:], [], [], 0)[0]
            refusal = waiting.pop().makefile("rb")
            assert refusal.readline() == b"HTTP/1.1 503 Service Unavailable\r\n"
            assert b"Retry-After: 1\r\n" in list(iter(refusal.readline, b"\r\n"))
            refusal.close()
            answered[0].close()
        before = batches()
        honest, line = frontend.client(), frontend.connect()
        honest.request("POST", "/messages", b"honest")
        line.send(b"honest\n")
        while batches() < before + 2:
            assert not select.select([honest.sock], [], [], 0)[0], honest.getresponse().read()
    finally:
        backbone.program.signal(signal.SIGCONT)
    assert honest.getresponse().status == 201
    assert line.wait_for(1)[0].isdigit()
    for one in waiting:
        assert one.makefile("rb").readline() == b"HTTP/1.1 201 Created\r\n"
        one.close()
    frontend.stop()


def impatient(path: Path) -> Path:
    """Return limits with a minimal wait for journals, of which there are none."""
    (path / "impatient.toml").write_text("keep-timeout = 0.1\n")
    return path / "impatient.toml"


EXPECTED = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "504"]
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "422", "429", "5xx"]
"""
"""Responses beyond Schemathesis' defaults: no journal in time, and a key with another body."""


def check_description(url: str, path: Path, *options: str) -> None:
    """Run Schemathesis against the description; its output contains the seed."""
    if find_spec("schemathesis") is None:
        pytest.skip("there is no Schemathesis")
    program = str(Path(sys.executable).with_name("schemathesis"))
    (path / "schemathesis.toml").write_text(EXPECTED)
    run = ["run", f"{url}/openapi.json", "--no-color", "--seed=20041", "--generation-database=none"]
    run += ["--request-timeout=60", "--suppress-health-check=all", *options]
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([program, *run], cwd=path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.extended
def test_frontend_conforms_to_its_openapi_description(
    backbone: RunningBackbone, start_frontend: StartFrontend, tmp_path: Path
) -> None:
    frontend = start_frontend(backbone, "--limits", impatient(tmp_path))
    check_description(f"http://127.0.0.1:{frontend.http}", tmp_path)
    frontend.stop()


@pytest.mark.soak(seconds=120)
def test_frontend_conforms_to_its_openapi_description_for_many_examples(
    backbone: RunningBackbone, start_frontend: StartFrontend, tmp_path: Path, tokens: Path
) -> None:
    frontend = start_frontend(backbone, "--tokens-file", tokens, "--limits", impatient(tmp_path))
    url = f"http://127.0.0.1:{frontend.http}"
    check_description(url, tmp_path, "--max-examples=150", f"--header=Authorization: Bearer {ANN}")
    frontend.stop()


PAGE = """<!doctype html><title>evil</title><body><script>
const lines = "http://127.0.0.1:LINES", messages = "http://127.0.0.1:HTTP/messages", evil = "evil\\n{}\\nevil";
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const ended = (promise) => Promise.race([promise, wait(30000)]).then((x) => x, (error) => String(error));
const put = (url, options) => ended(fetch(url, {method: "POST", body: evil, ...options}));
const form = (action, enctype) => new Promise((done) => {
  const frame = document.createElement("iframe"), form = document.createElement("form");
  frame.name = action + enctype;
  Object.assign(form, {method: "POST", action, enctype, target: frame.name});
  const field = document.createElement("textarea");
  field.name = "evil\\nevil";
  field.value = evil;
  form.append(field);
  document.body.append(frame, form);
  frame.onload = done;
  form.submit();
});
const socket = (url) => new Promise((done) => {
  const made = new WebSocket(url);
  made.onerror = made.onclose = done;
});
const call = async (server, tcp) => {  // WebRTC greets over TCP what a page calls a relay, or the other side.
  const peer = new RTCPeerConnection({iceServers: server ? [server] : []});
  peer.createDataChannel("evil");
  const offer = await peer.createOffer();
  await peer.setLocalDescription(offer);
  if (tcp) {
    let sdp = offer.sdp.replace(/a=candidate.*\\r\\n/g, "").replace("a=setup:actpass", "a=setup:active");
    sdp = sdp.replace(/a=ice-ufrag:.*/, "a=ice-ufrag:evilevil").replace(/a=ice-pwd:.*/, "a=ice-pwd:" + "e".repeat(24));
    await peer.setRemoteDescription({type: "answer", sdp});
    const candidate = "candidate:1 1 tcp 1518280447 127.0.0.1 LINES typ host tcptype passive";
    await peer.addIceCandidate({candidate, sdpMid: "0"});
  }
  await wait(1000);
  peer.close();
};
(async () => {
  const modes = [{mode: "no-cors"}, {mode: "cors"}, {mode: "no-cors", keepalive: true, credentials: "include"}];
  const found = [];
  for (const mode of modes) {
    for (const url of [lines, lines + "/" + "x".repeat(300000), messages]) found.push(await put(url, mode));
  }
  found.push(await put(messages, {headers: {"Content-Type": "application/json"}, body: "1"}));
  found.push(await put(messages, {mode: "no-cors", referrerPolicy: "no-referrer"}));
  for (const url of [lines, messages]) {
    navigator.sendBeacon(url, evil);
    navigator.sendBeacon(url, new Blob([evil], {type: "text/plain"}));
    for (const enctype of ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded"]) {
      await ended(form(url, enctype));
    }
    await ended(socket(url.replace("http", "ws")));
    // The port for HTTP waits for the end of a line, which TLS does not send.
    await Promise.race([put(url.replace("http", "https"), {mode: "no-cors"}), wait(1500)]);
    const image = new Image();
    image.src = url + "?evil=%0Aevil%0A";
    await ended(image.decode());
  }
  await Promise.all([
    ended(call({urls: "turn:127.0.0.1:LINES?transport=tcp", username: "evil", credential: "evil"})),
    ended(call(null, true)),
    ended(call({urls: "turns:127.0.0.1:LINES?transport=tcp", username: "evil", credential: "evil"})),
  ]);
  navigator.sendBeacon("/done", JSON.stringify(found.map(String)));
})();
</script>"""


@pytest.mark.extended
def test_page_of_another_origin_cannot_publish(
    open_strange_page: OpenStrangePage, frontend: RunningFrontend, stream: Stream, await_true: AwaitTrue
) -> None:
    page = PAGE.replace("LINES", str(frontend.lines)).replace("HTTP", str(frontend.http))
    told = open_strange_page(page, host="localhost")
    # The attempts were refused by the frontend, not by the browser. No page waits for a beacon, so the test does.
    least = {
        'line_events_total{what="http"}': 10,
        'web_requests_total{method="POST",route="/messages",status="403"}': 8,
    }
    await_true(lambda: all(frontend.metrics().get(name, 0) >= count for name, count in least.items()), frontend.metrics)
    assert told.count("[object Response]") == 3, told
    assert frontend.put(b"the end")[0] == 201
    assert list(stream.wait_for("the end").values()) == [b"the end"]
