"""Server of the journal protocol, which is described in docs/reference/journal-wire.md."""

from __future__ import annotations

import hmac
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import islice
from typing import Any

from twisted.internet.endpoints import UNIXServerEndpoint
from twisted.internet.interfaces import IAddress, IPullProducer, IStreamServerEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError, RemoteError
from fyrehose_twisted.host_addresses import source_network
from fyrehose_twisted.interfaces import IJournalReader
from fyrehose_twisted.journal.block import Block, merge_blocks
from fyrehose_twisted.journal.compaction import FRAME_RECORDS
from fyrehose_twisted.journal.errors import Damage, JournalDamaged, JournalError, NotFetched, NotInJournal
from fyrehose_twisted.journal.format.frames import MAX_RECORDS
from fyrehose_twisted.journal.remote import wire
from fyrehose_twisted.net.addresses import loopback_endpoint
from fyrehose_twisted.process.secret import check_secret
from fyrehose_twisted.wording import pluralize

Readers = Callable[[], Mapping[str, IJournalReader]]

WINDOW = 65_536
"""Positions read at once; four times as many after a window without records."""
MAX_BLOCKS = 64
"""Blocks merged before other connections get a turn."""
FETCH_WAIT = 0.01
"""Seconds after which a block that is being fetched from object storage is tried again."""

WRITE_CHUNK = 65_536
"""Bytes up to which small messages are coalesced into one write."""
_LARGEST_SPAN = 2**32 - 1


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """Limits of a journal server.

    :ivar connections: concurrent connections.
    :ivar per_host: concurrent connections from one host, or from one IPv6 /64.
    :ivar waiting: requests of one connection that are pending or being answered.
    :ivar handshake: seconds for a client to send hello, and for a refused client to close.
    :ivar idle: seconds without a request, or without progress of a response, after which a connection is closed.
    :ivar chunk: approximate payload bytes read and written at once. A larger record is sent whole.
    :ivar answer: approximate limit of the bytes of frames in one response. Clients request the rest separately.
    :ivar rate: bytes a second for each connection; ``None`` for no limit.
    """

    connections: int = 64
    per_host: int = 16
    waiting: int = 16
    handshake: float = 10.0
    idle: float = 300.0
    chunk: int = 2**20
    answer: int = 64 * 2**20
    rate: float | None = None

    def __post_init__(self) -> None:
        counts = min(self.connections, self.per_host, self.waiting, self.chunk, self.answer)
        times = min(self.handshake, self.idle, 1.0 if self.rate is None else self.rate)
        if counts < 1 or not times > 0:
            raise ConfigurationError(f"{self} would serve no client; all limits must be above 0")


@dataclass(slots=True)
class ServingCounters:
    """Counters of a journal server since its start.

    :ivar refused: refusals by name; see :mod:`~fyrehose_twisted.journal.remote.wire`.
    :ivar stalled: connections aborted because the client stopped reading a response.
    :ivar waits: number of times a response waited for a block from object storage.
    """

    connections: int = 0
    requests: int = 0
    records: int = 0
    bytes: int = 0
    stalled: int = 0
    waits: int = 0
    refused: Counter[str] = field(default_factory=Counter)


def journal_endpoint(reactor: Any, description: str, secret: bytes | None) -> IStreamServerEndpoint:
    """Return an endpoint for a :class:`JournalServerFactory`. A TCP endpoint without an interface listens on loopback.

    :raises ConfigurationError: if the description is invalid, the secret is too short, or there is no secret and the
        endpoint may be reachable from other machines.
    """
    endpoint = loopback_endpoint(reactor, description)
    if secret is not None:
        check_secret(secret)
    elif not isinstance(endpoint, UNIXServerEndpoint) and not _is_loopback(getattr(endpoint, "_interface", None)):
        raise ConfigurationError(
            f"{description!r} is not on loopback, so any host could read the journals; give a secret"
        )
    return endpoint


def _is_loopback(interface: object) -> bool:
    with suppress(ValueError):
        return isinstance(interface, str) and ip_address(interface).is_loopback
    return False


class JournalServerFactory(Factory):
    """Factory of a journal server.

    :param readers: called for each request; returns the readers by stream. It should refresh readers of journals that
        another process writes.
    :param secret: shared secret of the clients; ``None`` for none. See :func:`journal_endpoint`.
    :raises ConfigurationError: if the secret is too short.
    """

    noisy = False
    log = Logger()

    def __init__(
        self,
        readers: Readers,
        secret: bytes | None = None,
        limits: ServingLimits | None = None,
        *,
        reactor: Any = None,
    ) -> None:
        if reactor is None:
            from twisted.internet import reactor
        self.reactor = reactor
        self.readers = readers
        self.secret = None if secret is None else check_secret(secret)
        self.limits = ServingLimits() if limits is None else limits
        self.counters = ServingCounters()
        self.connections: dict[JournalServerProtocol, str] = {}

    def buildProtocol(self, addr: IAddress | None) -> JournalServerProtocol:
        """Twisted: a client has connected."""
        protocol = JournalServerProtocol(self)
        host = source_network(getattr(addr, "host", "this machine"))
        from_host = sum(other == host for other in self.connections.values())
        if len(self.connections) >= self.limits.connections + self.limits.per_host:
            protocol.rejection = ""  # Too many refusals are in progress to send another.
        elif len(self.connections) >= self.limits.connections or from_host >= self.limits.per_host:
            connections = pluralize(len(self.connections), "connection")
            protocol.rejection = f"{connections} open already, {from_host} of them from your host"
        self.connections[protocol] = host
        self.counters.connections += 1
        return protocol

    def stopFactory(self) -> None:
        """Twisted: the port is closed. Abort all connections."""
        for protocol in list(self.connections):
            protocol.abort()


@implementer(IPullProducer)
class JournalServerProtocol(Protocol):
    """One connection. It answers one request at a time, a chunk whenever the transport has sent the previous one."""

    transport: Any

    def __init__(self, factory: JournalServerFactory) -> None:
        self.rejection: str | None = None
        self._factory = factory
        self._limits = factory.limits
        self._decoder = wire.request_decoder()
        self._nonce = secrets.token_bytes(wire.NONCE_SIZE)
        self._admitted = self._closing = False
        self._waiting: deque[wire.Request] = deque()
        self._answer: Iterator[bytes | None] | None = None
        self._paid_until = 0.0
        self._timer: Any = None
        self._resume_call: Any = None

    def connectionMade(self) -> None:
        """Twisted: send the greeting or a refusal."""
        self._timer = self._factory.reactor.callLater(self._limits.handshake, self._timed_out)
        if self.rejection == "":
            self._factory.counters.refused[wire.TOO_MANY] += 1
            self.abort()
        elif self.rejection is not None:
            self._refuse(wire.TOO_MANY, self.rejection)
        else:
            with suppress(AttributeError):  # Not every transport is TCP.
                self.transport.setTcpNoDelay(True)
            greeting = wire.Greeting(wire.VERSION, self._nonce, self._factory.secret is not None)
            self.transport.write(wire.encode(greeting))

    def dataReceived(self, data: bytes) -> None:
        """Twisted: data has arrived."""
        for message in [] if self._closing else self._decoded(data):
            if not self._closing:
                self._receive(message)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: the connection is closed."""
        self._closing = True
        self._factory.connections.pop(self, None)
        self._drop_work()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def abort(self) -> None:
        """Abort the connection."""
        self._closing = True
        self._drop_work()
        self.transport.abortConnection()

    # Requests

    def _decoded(self, data: bytes) -> list[wire.Message]:
        try:
            return self._decoder.feed(data)
        except RemoteError as error:
            self._refuse(wire.BAD_REQUEST, str(error))
            return []

    def _receive(self, message: Any) -> None:
        if isinstance(message, wire.Hello):
            self._admit(message)
        elif not self._admitted:
            self._refuse(wire.BAD_REQUEST, "hello must come first")
        elif len(self._waiting) + (self._answer is not None) >= self._limits.waiting:
            self._refuse(wire.TOO_MANY, f"more than {self._limits.waiting} requests at once")
        else:
            self._factory.counters.requests += 1
            self._waiting.append(message)
            self._restart_timer(self._limits.idle)
            if self._answer is None and len(self._waiting) == 1:
                self._begin()
                self.transport.registerProducer(self, False)

    def _admit(self, hello: wire.Hello) -> None:
        secret = self._factory.secret
        if self._admitted or hello.version != wire.VERSION:
            self._refuse(wire.BAD_REQUEST, f"expected exactly one hello of version {wire.VERSION}")
        elif secret is not None and not hmac.compare_digest(wire.proof(secret, self._nonce), hello.mac):
            self._refuse(wire.WRONG_SECRET, "the secret is wrong" if hello.mac else "a secret is required")
        else:
            self._admitted = True
            self._restart_timer(self._limits.idle)
            self.transport.write(wire.encode(wire.Welcome(wire.VERSION)))

    def _begin(self) -> None:
        self._answer = _encoded(self._factory, self._waiting.popleft())

    # Responses

    def resumeProducing(self) -> None:
        """Twisted: the transport has sent the last chunk; write the next one."""
        self._cancel_resume()
        if self._closing or self._answer is None:
            return
        pieces, size, now = [], 0, self._factory.reactor.seconds()
        waits = self._factory.counters.waits
        if self._limits.rate is not None and now < self._paid_until:
            self._resume_in(self._paid_until - now)
            return
        while self._answer is not None and size < WRITE_CHUNK:
            try:
                piece = next(self._answer)
            except StopIteration:
                self._answer = None
                if self._waiting:
                    self._begin()
                continue
            if piece is None:
                break
            pieces.append(piece)
            size += len(piece)
        self._throttle(size, now)
        done = self._answer is None
        if size:
            self._restart_timer(self._limits.idle)
            self.transport.write(b"".join(pieces))
        if done:
            self.transport.unregisterProducer()
        elif not size:
            self._resume_in(FETCH_WAIT if self._factory.counters.waits > waits else 0.0)

    def stopProducing(self) -> None:
        """Twisted: the transport accepts no more data."""
        self._drop_work()

    def _throttle(self, size: int, now: float) -> None:
        self._factory.counters.bytes += size
        if self._limits.rate is not None:
            self._paid_until = max(now, self._paid_until) + size / self._limits.rate

    def _resume_in(self, seconds: float) -> None:
        self._restart_timer(self._limits.idle + seconds)
        self._resume_call = self._factory.reactor.callLater(seconds, self.resumeProducing)

    # Closing

    def _restart_timer(self, seconds: float) -> None:
        self._timer.reset(seconds)

    def _timed_out(self) -> None:
        if self._answer is not None:
            self._factory.counters.stalled += 1
            self.abort()
        elif self._closing:
            self.abort()
        else:
            self._refuse(wire.TIMED_OUT, "no request in time" if self._admitted else "no hello in time")

    def _refuse(self, name: str, text: str) -> None:
        """Send a refusal and close the connection, whether or not the client reads it."""
        self._factory.counters.refused[name] += 1
        if self._answer is not None:
            self.transport.unregisterProducer()
        self._drop_work()
        self._closing = True
        self.transport.write(wire.encode(wire.Refusal(None, name, text[: wire.MAX_TEXT])))
        if self._timer.active():
            self._timer.reset(self._limits.handshake)
        else:
            self._timer = self._factory.reactor.callLater(self._limits.handshake, self.abort)
        self.transport.loseConnection()

    def _drop_work(self) -> None:
        self._answer = None
        self._waiting.clear()
        self._cancel_resume()

    def _cancel_resume(self) -> None:
        if self._resume_call is not None and self._resume_call.active():
            self._resume_call.cancel()
        self._resume_call = None


# Responses


def _encoded(serving: JournalServerFactory, request: wire.Request) -> Iterator[bytes | None]:
    """Yield the encoded messages of a response; ``None`` where other connections may get a turn."""
    try:
        for message in _answer(serving.readers(), request, serving.limits, serving.counters):
            yield None if message is None else wire.encode(message)
        return
    except NotInJournal as error:
        refusal = wire.Refusal(request.id, wire.NOT_IN_JOURNAL, str(error))
    except JournalDamaged as error:
        refusal = wire.Refusal(request.id, wire.DAMAGED, str(error), _truncate_damage(error.damage))
    except JournalError as error:
        refusal = wire.Refusal(request.id, wire.FAILED, str(error))
    except Exception:  # A failing request must not affect the others.
        serving.log.failure("request failed")
        refusal = wire.Refusal(request.id, wire.FAILED, "the request failed; see the log of the server")
    serving.counters.refused[refusal.name] += 1
    yield wire.encode(wire.Refusal(refusal.id, refusal.name, refusal.text[: wire.MAX_TEXT], refusal.damage))


def _answer(
    readers: Mapping[str, IJournalReader], request: wire.Request, limits: ServingLimits, counters: ServingCounters
) -> Iterator[wire.Message | None]:
    if isinstance(request, wire.ListStreams):
        yield from _streams(readers, request.id)
    elif request.stream not in readers:
        counters.refused[wire.UNKNOWN_STREAM] += 1
        yield wire.Refusal(request.id, wire.UNKNOWN_STREAM, f"there is no journal of {request.stream}")
    else:
        yield from _RangeRead(readers[request.stream], request, limits, counters).parts()


def _streams(readers: Mapping[str, IJournalReader], number: int) -> Iterator[wire.Message]:
    found: list[wire.StreamInfo] = []
    entries = 0

    def message(end: bool) -> wire.Streams:
        tags = tuple(readers[info.stream].tag for info in found)
        damages = ((info.stream, damage) for info in found for damage in readers[info.stream].damages)
        return wire.Streams(number, tuple(found), end, tags, tuple(islice(damages, wire.MAX_DAMAGES)))

    for stream, reader in sorted(readers.items()):
        rows = _epochs(reader)
        while True:
            batch = tuple(islice(rows, wire.MAX_ENTRIES // 2))
            if found and not batch and found[-1].stream == stream:
                break
            if found and entries + len(batch) + 1 > wire.MAX_ENTRIES:
                yield message(False)
                found, entries = [], 0
            found.append(wire.StreamInfo(stream, reader.wrap, batch))
            entries += len(batch) + 1
            if len(batch) < wire.MAX_ENTRIES // 2:
                break
    yield message(True)


def _epochs(reader: IJournalReader) -> Iterator[wire.EpochInfo]:
    for epoch in reader.epochs():
        bounds = reader.bounds(epoch)
        if bounds is not None:
            yield wire.EpochInfo(epoch, *bounds)


class _RangeRead:
    """Response to one range request. It ends at the watermark."""

    def __init__(
        self,
        reader: IJournalReader,
        request: wire.Read | wire.ListRanges,
        limits: ServingLimits,
        counters: ServingCounters,
    ) -> None:
        self._reader = reader
        self._request = request
        self._limits = limits
        self._counters = counters
        self._position = request.first
        self._damages: deque[Damage] = deque()

    def parts(self) -> Iterator[wire.Records | wire.Ranges | None]:
        """Yield the parts of the response, and ``None`` at intervals while it takes long."""
        request, bounds = self._request, self._reader.bounds(self._request.epoch)
        last = request.first - 1
        if bounds is not None:
            self._check_start()
            last = min(request.last, bounds.next - 1)
        if isinstance(request, wire.ListRanges):
            yield from self._ranges(request, last)
            return
        yield from self._read(request, last)
        while len(self._damages) > wire.MAX_DAMAGES:
            yield self._part(self._position, ())
        yield self._part(self._position, (), end=True)

    def _read(self, request: wire.Read, last: int) -> Iterator[wire.Records | None]:
        filled, limit = 0, min(request.limit, self._limits.answer)
        for block in frame_sized_blocks(self._blocks(request, last), self._limits.chunk):
            if block is None:
                yield None
                continue
            for part in self._until(block.last, block):
                filled += len(part.frames)
                yield part
            if filled >= limit:
                return
        yield from self._until(last, None)

    def _ranges(self, request: wire.ListRanges, last: int) -> Iterator[wire.Ranges]:
        find_ranges = self._reader.losses if request.lost else self._reader.held
        first, end = request.first, False
        while not end:
            found = list(islice(find_ranges(request.epoch, first, last), wire.MAX_RANGES + 1))
            end = len(found) <= wire.MAX_RANGES
            del found[wire.MAX_RANGES :]
            following = max(first, last + 1) if end else found[-1][1] + 1
            yield wire.Ranges(request.id, first, following, end, tuple(found))
            first = following

    def _blocks(self, request: wire.Read, last: int) -> Iterator[Block | None]:
        position, window = request.first, WINDOW
        while position <= last:
            end, found = min(last, position + window - 1), False
            on_damage = self._damages.append if request.skip else None
            try:
                for block in self._reader.read(request.epoch, position, end, on_damage):
                    found = True
                    yield block
                    position = block.last + 1
            except NotFetched:
                self._counters.waits += 1
                yield None
                continue
            window = WINDOW if found else window * 4
            position = end + 1

    def _until(self, last: int, block: Block | None) -> Iterator[wire.Records]:
        """Yield everything up to ``last``, in as many parts as the lost ranges require."""
        if self._position > last:
            return
        self._check_start()
        losses = self._reader.losses(self._request.epoch, self._position, last)
        for row in range(0, max(1, len(losses)), wire.MAX_RANGES):
            ranges = losses[row : row + wire.MAX_RANGES]
            end = ranges[-1][1] if row + wire.MAX_RANGES < len(losses) else last
            held = None if block is None else block.within(self._position, end)
            yield self._part(end + 1, tuple(ranges), held)

    def _part(
        self, following: int, losses: tuple[tuple[int, int], ...], block: Block | None = None, *, end: bool = False
    ) -> wire.Records:
        damages = [self._damages.popleft() for _ in range(min(len(self._damages), wire.MAX_DAMAGES))]
        frames = b""
        if block is not None and len(block):
            frames = wire.frame_of(block)
            self._counters.records += len(block)
        first, self._position = self._position, following
        return wire.Records(
            self._request.id, first, following, end, losses, tuple(map(_truncate_damage, damages)), frames
        )

    def _check_start(self) -> None:
        bounds = self._reader.bounds(self._request.epoch)
        if bounds is None or self._position < bounds.first:
            raise NotInJournal(
                f"{self._position} of epoch {self._request.epoch} is not held: {self._request.stream} begins at "
                f"{'a later epoch' if bounds is None else bounds.first} here"
            )


def frame_sized_blocks(blocks: Iterable[Block | None], size: int) -> Iterator[Block | None]:
    """Regroup ordered ``blocks`` into blocks that each fit into a frame; yield ``None`` after many small ones.

    ``None`` among the blocks is passed on.

    Small blocks are merged until they have 4,096 records or ``size`` bytes of payload. Large ones are cut at ``size``.
    """
    waiting: list[Block] = []
    count = filled = 0
    for number, block in enumerate(blocks, 1):
        if block is None:
            yield None
            continue
        waiting.append(block)
        count, filled = count + len(block), filled + int(block.offsets[-1]) - int(block.offsets[0])
        if count >= FRAME_RECORDS or filled >= size:
            yield from _split(waiting, size)
            waiting, count, filled = [], 0, 0
        elif number % MAX_BLOCKS == 0:
            yield None
    if waiting:
        yield from _split(waiting, size)


def _split(blocks: list[Block], size: int) -> Iterator[Block]:
    whole = blocks[0] if len(blocks) == 1 else merge_blocks(blocks)
    low, rows = 0, len(whole)
    while low < rows:
        ends = whole.offsets[low + 1 : low + 1 + MAX_RECORDS]
        fitting = int(ends.searchsorted(min(int(whole.offsets[low]) + size, _LARGEST_SPAN), side="right"))
        reach = int(whole.positions[low]) + _LARGEST_SPAN
        near = int(whole.positions[low : low + MAX_RECORDS].searchsorted(reach, side="right"))
        high = low + max(1, min(fitting, near))
        yield whole.rows(low, high)
        low = high


def _truncate_damage(damage: Damage) -> Damage:
    return damage._replace(name=damage.name[: wire.MAX_TEXT], reason=damage.reason[: wire.MAX_TEXT])
