from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from zope.interface.verify import verifyObject

from fyrehose_twisted.errors import ConfigurationError, NotConnected, RemoteError
from fyrehose_twisted.interfaces import IJournalReader
from fyrehose_twisted.journal.errors import JournalDamaged, JournalError, JournalReplaced, NotInJournal
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.memory import MemoryJournal
from fyrehose_twisted.journal.reader import JournalReader, open_reader
from fyrehose_twisted.journal.remote import client as remote_module
from fyrehose_twisted.journal.remote import wire
from fyrehose_twisted.journal.remote.client import RemoteJournal, SecretRejected, UnknownStream, connect
from fyrehose_twisted.journal.remote.server import JournalServerFactory, ServingLimits
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.record import Record

STREAM, EPOCH, WRAP = "test://stream", 3, 10_000
SECRET = b"a secret of some length"
DEADLINE = 120.0


def records(first: int, last: int, size: int = 10) -> list[Record]:
    return [Record(STREAM, EPOCH, number % WRAP, number, b"%d" % number * size) for number in range(first, last + 1)]


@pytest.fixture(params=["memory", "disk"])
def make_journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Return a factory of journals in memory and on disk, with records committed in groups."""
    made: list[Any] = []

    def make(*groups: list[Record], retention: Retention | None = None) -> Any:
        if request.param == "memory":
            journal: Any = MemoryJournal(STREAM, wrap=WRAP, retention=retention)
        else:
            config = JournalConfig(segment_bytes=4_096, retention=retention or Retention())
            journal = Journal(LocalDirectory(tmp_path), STREAM, wrap=WRAP, config=config)
        made.append(journal)
        for group in groups:
            journal.append(group)
            journal.commit()
        return journal

    yield make
    for journal in made:
        journal.close()


class Served:
    """Journals served on loopback, and their clients."""

    def __init__(self) -> None:
        self.ports: list[Any] = []
        self.clients: list[RemoteJournal] = []
        self.factory: Any = None
        self.factories: list[Any] = []

    def __call__(self, *journals: Any, secret: bytes | None = None, **limits: Any) -> int:
        from twisted.internet import reactor

        readers = {journal.stream: journal for journal in journals}
        self.factory = JournalServerFactory(lambda: readers, secret, ServingLimits(**limits))
        self.factories.append(self.factory)
        self.ports.append(reactor.listenTCP(0, self.factory, interface="127.0.0.1"))  # type: ignore[attr-defined]
        return int(self.ports[-1].getHost().port)

    def client(self, port: int, *arguments: Any, **more: Any) -> RemoteJournal:
        self.clients.append(RemoteJournal("127.0.0.1", port, *arguments, **{"timeout": DEADLINE, **more}))
        return self.clients[-1]

    async def gone(self) -> None:
        """Wait until the servers have noticed their clients' disconnects."""
        from twisted.internet import reactor

        while any(factory.connections for factory in self.factories):
            await deferLater(reactor, 0)  # type: ignore[arg-type]


@pytest.fixture
def serve() -> Iterator[Served]:
    served = Served()
    yield served
    for client in served.clients:
        client.close()
    for port in served.ports:
        pytest_twisted.blockon(port.stopListening())
    pytest_twisted.blockon(Deferred.fromCoroutine(served.gone()))


def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    from twisted.internet import reactor

    return deferToThread(function, *arguments).addTimeout(DEADLINE, reactor)  # type: ignore[arg-type]


def rows(blocks: Any) -> list[tuple[Any, ...]]:
    return [
        (block.stream, block.epoch, position, *record[2:])
        for block in blocks
        for position, record in zip(block.positions.tolist(), block.records(), strict=True)
    ]


def span(blocks: Any) -> list[int]:
    """Return the positions of blocks."""
    return [position for block in blocks for position in block.positions.tolist()]


@pytest_twisted.ensureDeferred
async def test_a_remote_reader_reads_the_same_as_the_journal(serve: Served, make_journal: Any) -> None:
    journal = make_journal(*(records(100 * group, 100 * group + 98) for group in range(90, 110)))
    journal.lose(EPOCH, 9_099, 9_099)
    journal.lose(EPOCH, 9_199, 9_199)
    journal.append(records(9_299, 9_299))
    journal.commit()
    client = serve.client(serve(journal, chunk=5_000), page=20_000)

    def ask() -> tuple[Any, ...]:
        reader = client.reader(STREAM)
        verifyObject(IJournalReader, reader)
        return (
            *(rows(reader.read(EPOCH, *some)) for some in [(9_000, 9_399), (9_150, 9_250), (9_050, 9_050)]),
            reader.losses(EPOCH, 0, 20_000),
            list(reader.held(EPOCH, 0, 20_000)),
            reader.get(EPOCH, 9_299),
            [reader.get(*what) for what in [(EPOCH, 9_099), (EPOCH, 8_999), (EPOCH, 9_400), (EPOCH + 1, 9_100)]],
            (reader.epochs(), reader.bounds(EPOCH), reader.bounds(EPOCH + 1), reader.wrap),
            (rows(reader.read(EPOCH + 1, 0, 9)), reader.losses(EPOCH + 1, 0, 9), list(reader.held(EPOCH, 5, 4))),
            [(*one[:3], one.tag, one.damages) for one in client.streams()],
        )

    bounds = journal.bounds(EPOCH)
    assert bounds.next == 9_399
    below = [(9_000, 9_098), (9_100, 9_198), (9_200, 9_398)]
    assert (await in_thread(ask)) == (
        *(rows(journal.read(EPOCH, *some)) for some in [(9_000, 9_398), (9_150, 9_250), (9_050, 9_050)]),
        [(9_099, 9_099), (9_199, 9_199)],
        below,
        journal.get(EPOCH, 9_299),
        [None] * 4,
        ([EPOCH], bounds, None, WRAP),
        ([], [], []),
        [(STREAM, WRAP, (wire.EpochInfo(EPOCH, *bounds),), journal.tag, ())],
    )


@pytest_twisted.ensureDeferred
async def test_a_remote_reader_reads_wrapping_numbers(serve: Served, make_journal: Any) -> None:
    journal = make_journal(records(9_990, 10_010))
    port = serve(journal)
    found = await in_thread(lambda: rows(serve.client(port).reader(STREAM).read(EPOCH, 9_990, 10_010)))
    assert [(row[2], row[3]) for row in found] == [(number, number % WRAP) for number in range(9_990, 10_011)]


@pytest_twisted.ensureDeferred
async def test_a_journal_written_by_another_process_is_served(serve: Served, tmp_path: Path) -> None:
    journal = Journal(LocalDirectory(tmp_path), STREAM, wrap=WRAP)
    journal.append(records(1, 9))
    journal.commit()
    with closing(JournalReader(LocalDirectory(tmp_path))) as reader:
        port = serve(reader)
        found = await in_thread(lambda: rows(serve.client(port).reader(STREAM).read(EPOCH, 1, 100)))
    assert found == rows(journal.read(EPOCH, 1, 9))
    journal.close()


@pytest_twisted.ensureDeferred
async def test_two_remote_readers_read_at_once(serve: Served, make_journal: Any) -> None:
    journal = make_journal(*(records(500 * group, 500 * group + 499, 50) for group in range(10)))
    port = serve(journal, chunk=10_000)

    def ask(first: int) -> list[int]:
        return span(serve.client(port, page=50_000).reader(STREAM).read(EPOCH, first, 9_999))

    found = await gatherResults([in_thread(ask, 0), in_thread(ask, 1_234)])
    assert found == [list(range(5_000)), list(range(1_234, 5_000))]


@pytest_twisted.ensureDeferred
async def test_a_remote_reader_reads_a_growing_journal_up_to_its_last_refresh(serve: Served, make_journal: Any) -> None:
    journal = make_journal(records(0, 999), records(1_001, 1_500))
    client = serve.client(serve(journal, chunk=5_000), page=10_000)
    reader = await in_thread(client.reader, STREAM)
    blocks = reader.read(EPOCH, 0, 9_999)
    first = await in_thread(next, blocks)
    journal.append(records(1_000, 1_000))
    journal.commit()
    assert span([first, *(await in_thread(list, blocks))]) == list(range(1_000))
    assert await in_thread(reader.get, EPOCH, 1_000) is None
    assert await in_thread(lambda: list(reader.held(EPOCH, 0, 9_999))) == [(0, 999)]
    assert reader.bounds(EPOCH).next == 1_000
    assert await in_thread(reader.refresh)
    assert not await in_thread(reader.refresh)
    assert reader.bounds(EPOCH).next == 1_501
    assert span(await in_thread(list, reader.read(EPOCH, 999, 9_999))) == list(range(999, 1_501))


@pytest_twisted.ensureDeferred
async def test_records_removed_by_retention_during_a_remote_read_are_reported(serve: Served, make_journal: Any) -> None:
    groups = [records(100 * group, 100 * group + 99, 20) for group in range(40)]
    journal = make_journal(*groups, retention=Retention(size=20_000))
    client = serve.client(serve(journal, chunk=2_000), page=4_000)
    reader = await in_thread(client.reader, STREAM)
    blocks = reader.read(EPOCH, 0, 9_999)
    begun = await in_thread(next, blocks)
    journal.trim()

    def rest() -> list[int]:
        found: list[int] = []
        with pytest.raises(NotInJournal, match="begins at"):
            found.extend(position for block in blocks for position in span([block]))
        return found

    found = [*span([begun]), *(await in_thread(rest))]
    assert found == list(range(len(found)))
    assert len(found) < 1_000
    with pytest.raises(NotInJournal):
        await in_thread(list, reader.read(EPOCH, 5, 9))
    assert await in_thread(reader.get, EPOCH, 5) is None
    await in_thread(reader.refresh)
    with pytest.raises(NotInJournal):
        reader.read(EPOCH, 5, 9)


@pytest_twisted.ensureDeferred
async def test_a_remote_reader_raises_or_skips_damage_like_a_local_one(serve: Served, tmp_path: Path) -> None:
    journal = Journal(LocalDirectory(tmp_path), STREAM, wrap=WRAP)
    for group in records(1, 9), records(10, 19), records(20, 29):
        journal.append(group)
        journal.commit()
    (path,) = tmp_path.glob("*.log")
    path.write_bytes(path.read_bytes().replace(b"15" * 10, b"51" * 10))
    reader = await in_thread(serve.client(serve(journal)).reader, STREAM)
    with pytest.raises(JournalDamaged) as here:
        list(journal.read(EPOCH, 1, 29))
    with pytest.raises(JournalDamaged) as there:
        await in_thread(list, reader.read(EPOCH, 1, 29))
    assert there.value.damage == here.value.damage
    with pytest.raises(JournalDamaged):
        await in_thread(reader.get, EPOCH, 15)
    found: list[Any] = []
    blocks = await in_thread(list, reader.read(EPOCH, 1, 29, found.append))
    assert found == [here.value.damage]
    assert span(blocks) == [*range(1, 10), *range(20, 30)]
    journal.close()


@pytest_twisted.ensureDeferred
async def test_a_remote_reader_reports_records_missing_at_the_end(serve: Served, tmp_path: Path) -> None:
    with closing(Journal(LocalDirectory(tmp_path), STREAM, wrap=WRAP)) as journal:
        for group in records(1, 9), records(10, 19):
            journal.append(group)
            journal.commit()
    (path,) = tmp_path.glob("*.log")
    path.write_bytes(path.read_bytes().replace(b"15" * 10, b"51" * 10))
    local = open_reader(tmp_path)
    reader = await in_thread(serve.client(serve(local)).reader, STREAM)
    assert reader.damages == local.damages != []
    assert [(damage.first, damage.last) for damage in reader.damages] == [(10, 19)]
    assert reader.tag == local.tag
    local.close()


@pytest_twisted.ensureDeferred
async def test_a_remote_reader_refuses_a_replaced_journal(serve: Served) -> None:
    journal = MemoryJournal(STREAM)
    reader = await in_thread(serve.client(serve(journal)).reader, STREAM)
    assert not await in_thread(reader.refresh)
    journal.tag ^= 1
    with pytest.raises(JournalReplaced, match=f"for {STREAM}, holds another journal now"):
        await in_thread(reader.refresh)


@pytest_twisted.ensureDeferred
async def test_remote_iterators_share_one_connection(serve: Served, make_journal: Any) -> None:
    journal = make_journal(*(records(100 * group, 100 * group + 99) for group in range(20)))
    client = serve.client(serve(journal, chunk=1_000, waiting=10), page=5_000)

    def ask() -> tuple[list[int], list[int]]:
        reader, found = client.reader(STREAM), []
        begun = [reader.read(EPOCH, 10, 9_999) for _ in range(20)]
        for blocks in begun:
            next(blocks)  # The iterator is dropped.
        del begun, blocks
        for block in (other := reader.read(EPOCH, 0, 9_999)):
            assert reader.get(EPOCH, block.last).payload == block.payloads()[-1]
            found += span([block])
        return found, span(other)

    assert await in_thread(ask) == (list(range(2_000)), [])
    assert serve.factory.counters.connections == 1
    assert client._connection is not None
    assert not client._connection.answers
    assert client._connection._held == 0


@pytest_twisted.ensureDeferred
async def test_a_remote_reader_reconnects_after_a_lost_connection(serve: Served, make_journal: Any) -> None:
    journal = make_journal(*(records(100 * group, 100 * group + 99) for group in range(20)))
    client = serve.client(serve(journal, chunk=1_000), page=5_000)
    reader = await in_thread(client.reader, STREAM)
    blocks = reader.read(EPOCH, 0, 9_999)
    begun = await in_thread(next, blocks)
    for protocol in list(serve.factory.connections):
        protocol.abort()
    assert span([begun, *(await in_thread(list, blocks))]) == list(range(2_000))
    for protocol in list(serve.factory.connections):
        protocol._timed_out()
    assert len(await in_thread(client.streams)) == 1
    assert serve.factory.counters.connections == 3


@pytest_twisted.ensureDeferred
async def test_a_remote_reader_reconnects_between_pages(
    serve: Served, make_journal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = make_journal(*(records(100 * group, 100 * group + 99) for group in range(20)))
    client = serve.client(serve(journal, chunk=1_000), page=5_000)
    reader = await in_thread(client.reader, STREAM)

    def hang_up() -> bool:
        assert client._connection is not None
        client._connection._socket.shutdown(socket.SHUT_RDWR)
        monkeypatch.undo()
        return True

    monkeypatch.setattr(client, "can_prefetch", hang_up)
    assert span(await in_thread(list, reader.read(EPOCH, 0, 9_999))) == list(range(2_000))
    assert serve.factory.counters.connections == 2


@pytest_twisted.ensureDeferred
async def test_received_records_are_returned_before_a_lost_connection_is_raised(
    serve: Served, make_journal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = make_journal(*(records(100 * group, 100 * group + 99) for group in range(20)))
    client = serve.client(serve(journal, chunk=1_000), page=5_000)
    reader = await in_thread(client.reader, STREAM)
    blocks = reader.read(EPOCH, 0, 9_999)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))

        def lose() -> bool:
            client.close()
            client.port = nobody.getsockname()[1]
            return True

        monkeypatch.setattr(client, "can_prefetch", lose)
        assert span([await in_thread(next, blocks)])[0] == 0
        with pytest.raises(NotConnected, match="cannot be reached"):
            await in_thread(list, blocks)


@pytest_twisted.ensureDeferred
async def test_a_pickled_remote_reader_opens_its_own_connection(serve: Served, make_journal: Any) -> None:
    client = serve.client(serve(make_journal(records(0, 99)), secret=SECRET), SECRET)
    reader = await in_thread(client.reader, STREAM)
    other = pickle.loads(pickle.dumps(reader))  # noqa: S301
    assert other.bounds(EPOCH) == reader.bounds(EPOCH)
    assert span(await in_thread(list, other.read(EPOCH, 0, 9_999))) == list(range(100))
    assert serve.factory.counters.connections == 2
    other._remote.close()


@pytest_twisted.ensureDeferred
async def test_a_forked_process_opens_its_own_connection(serve: Served, make_journal: Any) -> None:
    client = serve.client(serve(make_journal(records(0, 99))))
    await in_thread(client.open)
    assert client._connection is not None
    assert client._connection.process == os.getpid()
    client._connection.process -= 1
    await in_thread(client.streams)
    assert serve.factory.counters.connections == 2


@pytest_twisted.ensureDeferred
async def test_a_remote_reader_with_a_wrong_secret_is_refused(serve: Served, make_journal: Any) -> None:
    port = serve(make_journal(records(0, 9)), secret=SECRET)
    assert len(await in_thread(serve.client(port, SECRET).streams)) == 1
    for secret, text in [(None, "a secret is required"), (SECRET + b"!", "the secret is wrong")]:
        with pytest.raises(SecretRejected, match=f"127.0.0.1:{port} refused: {text}"):
            await in_thread(connect, "127.0.0.1", port, secret)
    with pytest.raises(ConfigurationError):
        RemoteJournal("127.0.0.1", port, b"short")
    assert "secret" not in repr(serve.client(port, SECRET))


@pytest_twisted.ensureDeferred
async def test_a_stream_that_is_not_served_is_reported_by_name(serve: Served, make_journal: Any) -> None:
    client = serve.client(serve(make_journal(records(5, 9)), per_host=1))
    with pytest.raises(UnknownStream, match="test://none"):
        await in_thread(client.reader, "test://none")
    reader = await in_thread(client.reader, STREAM)
    with pytest.raises(NotInJournal, match="4 of epoch 3"):
        reader.read(EPOCH, 4, 9)
    reader.stream = "test://none"
    with pytest.raises(UnknownStream, match="there is no journal of"):
        await in_thread(list, reader.read(EPOCH, 5, 9))
    with pytest.raises(NotConnected, match="1 connection open already"):
        await in_thread(connect, client.host, client.port)


@pytest_twisted.ensureDeferred
async def test_a_failure_of_the_journal_server_is_a_journal_error(serve: Served) -> None:
    class Failing(MemoryJournal):
        def losses(self, epoch: int, first: int, last: int) -> Any:
            raise JournalError("it is broken")

    journal = Failing(STREAM, wrap=WRAP)
    journal.append(records(1, 2))
    journal.commit()
    reader = await in_thread(serve.client(serve(journal)).reader, STREAM)
    with pytest.raises(JournalError, match="it is broken"):
        await in_thread(list, reader.read(EPOCH, 1, 2))


def test_an_unreachable_journal_server_is_reported_with_its_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound, but not listening.
        port = taken.getsockname()[1]
        with pytest.raises(NotConnected, match=f"127.0.0.1:{port} cannot be reached: Connection refused"):
            connect("127.0.0.1", port)


class FakeServer:
    """A server in a thread that sends scripted messages to each client and then waits."""

    def __init__(self, *messages: wire.Message | bytes, hang_up: bool = False) -> None:
        self._said = b"".join(one if isinstance(one, bytes) else wire.encode(one) for one in messages)
        self._hang_up = hang_up
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.heard = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, suppress(OSError):
                    self.heard += 1
                    connection.sendall(self._said)
                    while not self._hang_up and connection.recv(65_536):
                        pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(DEADLINE)


@pytest.fixture
def fake_server() -> Iterator[Callable[..., RemoteJournal]]:
    made: list[tuple[FakeServer, RemoteJournal]] = []

    def make(*messages: Any, timeout: float = DEADLINE, hang_up: bool = False) -> RemoteJournal:
        one = FakeServer(*messages, hang_up=hang_up)
        made.append((one, RemoteJournal("127.0.0.1", one.port, timeout=timeout)))
        return made[-1][1]

    yield make
    for server, client in made:
        client.close()
        server.close()


HANDSHAKE = wire.Greeting(wire.VERSION, bytes(16), False), wire.Welcome(wire.VERSION)
LISTED = wire.Streams(1, (wire.StreamInfo(STREAM, 0, (wire.EpochInfo(EPOCH, 0, 100, 99),)),), True)


def test_a_silent_journal_server_times_out(fake_server: Any) -> None:
    client = fake_server(timeout=0.05)
    with pytest.raises(NotConnected, match=f"127.0.0.1:{client.port} did not answer within 0.05 s"):
        client.streams()


def test_a_journal_server_that_always_disconnects_is_given_up(fake_server: Any) -> None:
    with pytest.raises(NotConnected):
        fake_server(*HANDSHAKE, hang_up=True).streams()


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "violated the protocol"),
        ((b"\xff" * 100,), "violated the protocol"),
        ((wire.Welcome(1),), "sent no greeting"),
        ((wire.Greeting(2, bytes(16), False),), "version 2"),
        ((HANDSHAKE[0], LISTED), "hello"),
        ((*HANDSHAKE, b"\x03\0\0\0abc"), "violated the protocol"),
        ((*HANDSHAKE, wire.Streams(2, (), True)), "without a request"),
        ((*HANDSHAKE, wire.Ranges(1, 0, 1, True, ())), "another message"),
        ((*HANDSHAKE, wire.Refusal(1, "new-name", "what is this")), "new-name"),
        ((*HANDSHAKE, wire.Refusal(None, "bad-request", "go away")), "go away"),
    ],
)
def test_a_journal_server_with_invalid_messages_is_disconnected(fake_server: Any, messages: Any, text: str) -> None:
    with pytest.raises(RemoteError, match=text):
        fake_server(*messages).streams()


def frame(first: int, last: int) -> bytes:
    journal = MemoryJournal(STREAM)
    journal.append([Record(STREAM, EPOCH, number, 0, b"") for number in range(first, last + 1)])
    journal.commit()
    (block,) = journal.read(EPOCH, first, last)
    return wire.frame_of(block)


@pytest.mark.parametrize(
    "parts",
    [
        [wire.Ranges(2, 10, 20, True, ())],
        [wire.Records(2, 9, 20, True)],
        [wire.Records(2, 11, 20, True)],
        [wire.Records(2, 10, 21, True)],
        [wire.Records(2, 10, 15, False), wire.Records(2, 16, 20, True)],
        [wire.Records(2, 10, 10, False)],
        [wire.Records(2, 10, 15, True, frames=frame(9, 12))],
        [wire.Records(2, 10, 15, True, frames=frame(12, 15))],
        [wire.Records(2, 10, 15, True, frames=b"no frame at all")],
    ],
)
def test_an_answer_to_another_request_is_refused(fake_server: Any, parts: list[Any]) -> None:
    reader = fake_server(*HANDSHAKE, LISTED, *parts).reader(STREAM)
    with pytest.raises(RemoteError):
        list(reader.read(EPOCH, 10, 19))


def test_well_formed_answers_of_a_fake_server_are_accepted(fake_server: Any) -> None:
    parts = [wire.Records(2, 10, 15, False, frames=frame(10, 12)), wire.Records(2, 15, 20, True, frames=frame(16, 19))]
    reader = fake_server(*HANDSHAKE, LISTED, *parts).reader(STREAM)
    assert span(reader.read(EPOCH, 10, 19)) == [10, 11, 12, 16, 17, 18, 19]


def test_an_endless_page_is_refused(fake_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_FRAMES", 10_000)
    client = fake_server(*HANDSHAKE, LISTED, *(wire.Records(2, number, number + 1, False) for number in range(100)))
    client.page = 10_000
    with pytest.raises(RemoteError, match="were requested"):
        list(client.reader(STREAM).read(EPOCH, 0, 99))


def test_the_read_ahead_of_a_remote_reader_is_bounded(fake_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_module, "MAX_HELD", 50_000)
    early = (wire.Records(3, 15 + number % 5, 20, False) for number in range(60))
    client = fake_server(*HANDSHAKE, LISTED, wire.Records(2, 10, 15, True, frames=frame(10, 14)), *early)
    reader = client.reader(STREAM)
    kept = reader.read(EPOCH, 10, 19)  # The next page is requested when the first is returned.
    assert next(kept).first == 10
    with pytest.raises(RemoteError, match="more than was requested"):
        next(reader.read(EPOCH, 10, 19))


def test_streams_and_losses_kept_by_a_remote_reader_are_limited(
    fake_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_module, "MAX_STREAMS", 2)
    monkeypatch.setattr(remote_module, "MAX_LOSSES", 3)
    pairs = tuple((number, number) for number in range(0, 8, 2))
    client = fake_server(*HANDSHAKE, LISTED, wire.Ranges(2, 0, 100, True, pairs))
    with pytest.raises(RemoteError, match="lost ranges"):
        client.reader(STREAM).losses(EPOCH, 0, 99)
    infos = tuple(wire.StreamInfo(f"test://{number}", 0, ()) for number in range(3))
    with pytest.raises(RemoteError, match="streams"):
        fake_server(*HANDSHAKE, wire.Streams(1, infos, True)).streams()


def test_the_remote_reader_imports_no_reactor() -> None:
    program = "import fyrehose_twisted.journal.remote.client, sys; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert not {name for name in ran.stdout.split() if name.split(".")[0] in ("twisted", "asyncio")}
