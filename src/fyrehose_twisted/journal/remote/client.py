"""Blocking client of the journal protocol. It needs no reactor.

A :class:`RemoteJournal` and its readers can be pickled. Each process then opens its own connection on first use. Only
one thread at a time may use an instance.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple, NoReturn

from zope.interface import implementer

from fyrehose_twisted.errors import LocalError, NotConnected, RemoteError
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.interfaces import IJournalReader
from fyrehose_twisted.journal.arrow.tabular import Tabular
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import Damage, JournalDamaged, JournalError, JournalReplaced, NotInJournal
from fyrehose_twisted.journal.format.segment_header import different_tags
from fyrehose_twisted.journal.remote import wire
from fyrehose_twisted.process.secret import check_secret
from fyrehose_twisted.record import Record

PAGE_BYTES = 8 * 2**20
"""Bytes of frames requested at once."""
RECEIVE_CHUNK = 2**18
PART_OVERHEAD = 1_000
"""Bytes counted for each part of a response in addition to its frames, to approximate memory."""
MAX_HELD = 2 * wire.MAX_FRAMES
"""Bytes that may be buffered before they are consumed."""
MAX_LOSSES = 2**22
"""Limit of the lost ranges in one response."""
MAX_STREAMS = 100_000
"""Limit of the streams and epochs that a server may list."""
MAX_PREFETCHES = 8
"""Pages that may be prefetched at once, each by a different iterator."""


class UnknownStream(LocalError, LookupError):
    """The server has no journal of this stream."""


class SecretRejected(NotConnected):
    """The server requires a secret, and it is missing or wrong."""


def connect(host: str, port: int, secret: bytes | None = None, timeout: float = 10.0) -> RemoteJournal:
    """Connect to a journal server. For parameters and errors see :class:`RemoteJournal`."""
    remote = RemoteJournal(host, port, secret, timeout)
    remote.open()
    return remote


class ServedStream(NamedTuple):
    """A stream whose journal a server provides."""

    stream: str
    wrap: int
    """Modulus of the sequence numbers; 0 if they do not wrap."""
    epochs: tuple[wire.EpochInfo, ...]
    tag: int | None
    """Tag of the journal; ``None`` if the server does not report it."""
    damages: tuple[Damage, ...]
    """Damage and missing files of the journal, as far as the server reports them."""


class RemoteJournal:
    """Journals of one server.

    :param secret: shared secret of the server. It is included when pickling.
    :param timeout: seconds without data from the server after which a request fails.
    :param page: approximate bytes of frames requested at once. Up to twice as many are buffered.
    :raises ConfigurationError: if the secret is too short.
    :raises NotConnected: from later calls, if the server cannot be reached, does not respond, or closes the connection.
    :raises SecretRejected: from later calls, if the server rejects the secret.
    :raises RemoteError: from later calls, if the server violates the protocol.
    """

    def __init__(
        self, host: str, port: int, secret: bytes | None = None, timeout: float = 10.0, *, page: int = PAGE_BYTES
    ) -> None:
        self.host = host
        self.port = port
        self.timeout = timeout
        self.page = page
        self._secret = None if secret is None else check_secret(secret)
        self._connection: _Connection | None = None

    def __repr__(self) -> str:
        return f"RemoteJournal({self.host!r}, {self.port})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    def __enter__(self) -> RemoteJournal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Connect, unless already connected."""
        self._connected()

    def close(self) -> None:
        """Close the connection. Later calls reconnect."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def streams(self) -> list[ServedStream]:
        """Return the streams that the server provides, with their epochs and bounds."""
        found: dict[str, ServedStream] = {}
        count = 0
        for part in self.request(wire.ListStreams):
            if not isinstance(part, wire.Streams):
                raise RemoteError(f"{self} answered list-streams with another message")
            if part.tags and len(part.tags) != len(part.streams):
                self.close()
                raise RemoteError(f"{self} sent {len(part.tags)} tags for {len(part.streams)} streams")
            tags = part.tags or (None,) * len(part.streams)
            for info, tag in zip(part.streams, tags, strict=True):
                count += 1 + len(info.epochs)
                known = found.get(info.stream)
                epochs = info.epochs if known is None else known.epochs + info.epochs
                damages = () if known is None else known.damages
                damages += tuple(damage for stream, damage in part.damages if stream == info.stream)
                found[info.stream] = ServedStream(info.stream, info.wrap, epochs, tag, tuple(dict.fromkeys(damages)))
            if count > MAX_STREAMS:
                self.close()
                raise RemoteError(f"{self} listed more than {MAX_STREAMS:,} streams and epochs")
        return list(found.values())

    def reader(self, stream: str) -> RemoteReader:
        """Return a reader of one stream.

        :raises UnknownStream: if the server does not have it.
        """
        return RemoteReader(self, stream)

    # For readers

    def start_request(self, make: Callable[..., wire.Request], *arguments: object) -> _PendingRequest:
        """Send a request without waiting for the response."""
        return _PendingRequest(self._connected(), make, arguments)

    def responses(self, pending: _PendingRequest) -> Generator[Any, None, None]:
        """Yield the parts of a response. If the connection was lost before the first part, send the request again.

        :raises NotInJournal: and other errors, if the server refuses the request.
        """
        try:
            try:
                first = next(pending.parts())
            except _ConnectionLost:
                pending.connection = self._connected()
                pending.send()
                first = next(pending.parts())
            yield first
            if not first.end:
                yield from pending.parts()
        finally:
            pending.cancel()

    def can_prefetch(self) -> bool:
        """Return whether another page may be prefetched."""
        return self._connection is not None and len(self._connection.answers) < MAX_PREFETCHES

    def request(self, make: Callable[..., wire.Request], *arguments: object) -> Generator[Any, None, None]:
        """Send a request and return an iterator over the parts of its response."""
        try:
            pending = self.start_request(make, *arguments)
        except _ConnectionLost:
            pending = self.start_request(make, *arguments)
        return self.responses(pending)

    def _connected(self) -> _Connection:
        connection = self._connection
        if connection is None or connection.process != os.getpid() or connection.broken:
            if connection is not None:
                connection.close()
            self._connection = connection = _Connection(self.host, self.port, self._secret, self.timeout)
        return connection


class _ConnectionLost(NotConnected):
    """The connection was lost. The request may be repeated on a new one."""


class _PendingRequest:
    """A request that has been sent, and can be sent again."""

    def __init__(
        self, connection: _Connection, make: Callable[..., wire.Request], arguments: tuple[object, ...]
    ) -> None:
        self.connection = connection
        self._make = make
        self._arguments = arguments
        self.send()

    def send(self) -> None:
        """Send the request."""
        self._number = self.connection.send_request(self._make, self._arguments)

    def parts(self) -> Iterator[Any]:
        """Return an iterator over the parts of the response that have not been consumed."""
        return self.connection.parts(self._number)

    def cancel(self) -> None:
        """Discard the response."""
        self.connection.forget(self._number)


class _Connection:
    """One connection. The server responds to requests in order.

    :ivar answers: received parts that have not been consumed, by request; ``None`` for a discarded response.
    """

    def __init__(self, host: str, port: int, secret: bytes | None, timeout: float) -> None:
        self.process = os.getpid()
        self.broken = False
        self.answers: dict[int, deque[Any] | None] = {}
        self._name = f"the journal server {format_address((host, port))}"
        self._decoder = wire.answer_decoder()
        self._messages: deque[wire.Message] = deque()
        self._next = 1
        self._held = 0
        try:
            self._socket = socket.create_connection((host, port), timeout)
        except TimeoutError:
            raise NotConnected(f"{self._name} did not answer within {timeout:g} s") from None
        except OSError as error:
            raise NotConnected(f"{self._name} cannot be reached: {error.strerror or error}") from error
        self._timeout = timeout
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._handshake(secret)
        except BaseException:
            self.close()
            raise

    def _handshake(self, secret: bytes | None) -> None:
        greeting = self._receive()
        if not isinstance(greeting, wire.Greeting):
            self._fail(RemoteError(f"{self._name} sent no greeting; it may not be a journal server"))
        if greeting.version != wire.VERSION:
            self._fail(RemoteError(f"{self._name} has protocol version {greeting.version}; expected {wire.VERSION}"))
        mac = wire.proof(secret, greeting.nonce) if greeting.secret and secret is not None else b""
        self._send(wire.Hello(wire.VERSION, mac))
        if not isinstance(self._receive(), wire.Welcome):
            self._fail(RemoteError(f"{self._name} sent no welcome after hello"))

    def send_request(self, make: Callable[..., wire.Request], arguments: tuple[object, ...]) -> int:
        """Send a request; return its number."""
        number, self._next = self._next, self._next + 1
        self._send(make(number, *arguments))
        self.answers[number] = deque()
        return number

    def parts(self, number: int) -> Iterator[Any]:
        """Yield the parts of a response as they arrive.

        :raises FyrehoseError: if the server refuses the request.
        """
        while True:
            waiting = self.answers.get(number)
            while not waiting:
                self._take(self._receive())
            part = waiting.popleft()
            self._held -= _cost(part)
            if isinstance(part, wire.Refusal) or part.end:
                del self.answers[number]
            if isinstance(part, wire.Refusal):
                _raise_refusal(part, self._name)
            yield part
            if part.end:
                return

    def forget(self, number: int) -> None:
        """Discard the response to a request, including parts that have not arrived yet."""
        parts = self.answers.get(number)
        if parts is not None:
            self._held -= sum(map(_cost, parts))
            if any(isinstance(part, wire.Refusal) or part.end for part in parts):
                del self.answers[number]
            else:
                self.answers[number] = None

    def close(self) -> None:
        """Close the connection."""
        self.broken = True
        self._socket.close()

    def _take(self, message: Any) -> None:
        number = getattr(message, "id", None)
        if number not in self.answers:
            self._fail(RemoteError(f"{self._name} sent a response without a request"))
        parts = self.answers[number]
        if parts is not None:
            parts.append(message)
            self._held += _cost(message)
            if self._held > MAX_HELD:
                self._fail(RemoteError(f"{self._name} sent more than was requested"))
        elif isinstance(message, wire.Refusal) or message.end:
            del self.answers[number]

    def _send(self, message: wire.Message) -> None:
        if self.broken:
            raise _ConnectionLost(f"{self._name} closed the connection")
        try:
            self._socket.sendall(wire.encode(message))
        except OSError as error:
            with suppress(_ConnectionLost):
                while True:
                    self._receive()  # Raises the refusal that the server may have sent before it closed.
            self._fail(_ConnectionLost(f"the connection to {self._name} failed: {error.strerror or error}"))

    def _receive(self) -> wire.Message:
        while not self._messages:
            if self.broken:
                raise _ConnectionLost(f"{self._name} closed the connection")
            try:
                data = self._socket.recv(RECEIVE_CHUNK)
            except TimeoutError:
                self._fail(NotConnected(f"{self._name} did not answer within {self._timeout:g} s"))
            except OSError as error:
                self._fail(_ConnectionLost(f"the connection to {self._name} failed: {error.strerror or error}"))
            if not data:
                self._fail(_ConnectionLost(f"{self._name} closed the connection"))
            try:
                self._messages += self._decoder.feed(data)
            except RemoteError as error:
                self._fail(RemoteError(f"{self._name} violated the protocol: {error}"))
        message = self._messages.popleft()
        if isinstance(message, wire.Refusal) and message.id is None:
            self.close()
            _raise_refusal(message, self._name)
        return message

    def _fail(self, error: Exception) -> NoReturn:
        self.close()
        raise error


def _cost(part: Any) -> int:
    return PART_OVERHEAD + len(getattr(part, "frames", b""))


def _makes_no_progress(part: Any) -> bool:
    return part.next == part.first and not (part.end or getattr(part, "damages", ()))


def _raise_refusal(refusal: wire.Refusal, name: str) -> NoReturn:
    text = f"{name} refused: {refusal.text}"
    match refusal.name:
        case wire.NOT_IN_JOURNAL:
            raise NotInJournal(text)
        case wire.UNKNOWN_STREAM:
            raise UnknownStream(text)
        case wire.DAMAGED if refusal.damage is not None:
            raise JournalDamaged(refusal.damage)
        case wire.DAMAGED | wire.FAILED:
            raise JournalError(text)
        case wire.WRONG_SECRET:
            raise SecretRejected(text)
        case wire.TIMED_OUT:
            raise _ConnectionLost(text)
        case wire.TOO_MANY:
            raise NotConnected(text)
        case _:
            raise RemoteError(f"{text} ({refusal.name})")


@implementer(IJournalReader)
class RemoteReader(Tabular):
    """Reader of one stream of a :class:`RemoteJournal`; see :class:`~fyrehose_twisted.interfaces.IJournalReader`.

    As with a local reader, epochs and bounds change only in :meth:`refresh`, and nothing beyond the watermark is read.
    The next page is prefetched while one is consumed.

    :ivar wrap: modulus of the sequence numbers; 0 if they do not wrap.
    :ivar tag: tag of the journal; ``None`` if the server does not report it.
    :ivar damages: damage and missing files, as far as the server reports them.
    """

    def __init__(self, remote: RemoteJournal, stream: str) -> None:
        self.stream = stream
        self.wrap = 0
        self.tag: int | None = None
        self.damages: list[Damage] = []
        self._remote = remote
        self._bounds: dict[int, Bounds] = {}
        self.refresh()

    def refresh(self) -> bool:
        """Query the current bounds of the journal; return whether anything has changed.

        :raises UnknownStream: if the server no longer has the stream.
        :raises JournalReplaced: if the server now has another journal of the stream.
        """
        for info in self._remote.streams():
            if info.stream == self.stream:
                if different_tags(self.tag, info.tag):
                    raise JournalReplaced(f"{self._remote}, for {self.stream},", self.tag, info.tag)
                known = self._bounds, self.damages
                self._bounds = {row.epoch: Bounds(*row[1:]) for row in info.epochs}
                self.wrap, self.tag, self.damages = info.wrap, info.tag, list(info.damages)
                return known != (self._bounds, self.damages)
        raise UnknownStream(f"{self._remote} has no journal of {self.stream}")

    def epochs(self) -> list[int]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalReader.epochs`."""
        return sorted(self._bounds)

    def bounds(self, epoch: int) -> Bounds | None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalReader.bounds`."""
        return self._bounds.get(epoch)

    def read(
        self, epoch: int, first: int, last: int, on_damage: Callable[[Damage], object] | None = None
    ) -> Iterator[Block]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalReader.read`; nothing beyond the watermark."""
        return self._read(epoch, first, self._end(epoch, first, last), on_damage)

    def get(self, epoch: int, position: int) -> Record | None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalReader.get`; nothing beyond the watermark."""
        bounds = self._bounds.get(epoch)
        if bounds is None or not bounds.first <= position < bounds.next:
            return None
        with suppress(NotInJournal):
            for block in self._read(epoch, position, position, None):
                return next(block.records())
        return None

    def losses(self, epoch: int, first: int, last: int) -> list[tuple[int, int]]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalReader.losses`; nothing beyond the watermark."""
        found = list(islice(self._ranges(epoch, first, last, True), MAX_LOSSES + 1))
        if len(found) > MAX_LOSSES:
            raise RemoteError(f"{self._remote} sent more than {MAX_LOSSES:,} lost ranges")
        return found

    def held(self, epoch: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.held`; nothing beyond the watermark."""
        return self._ranges(epoch, first, last, False)

    def _ranges(self, epoch: int, first: int, last: int, lost: bool) -> Iterator[tuple[int, int]]:
        bounds = self._bounds.get(epoch)
        if bounds is None:
            return
        first, last = max(first, bounds.first), min(last, bounds.next - 1)
        if first > last:
            return
        answer = self._remote.request(wire.ListRanges, self.stream, epoch, first, last, lost)
        for part in self._parts(answer, wire.Ranges, first, last):
            yield from part.ranges

    def _end(self, epoch: int, first: int, last: int) -> int:
        bounds = self._bounds.get(epoch)
        if bounds is None:
            return first - 1
        if first < bounds.first:
            raise NotInJournal(f"{first} of epoch {epoch} is not held: {self.stream} begins at {bounds.first}")
        return min(last, bounds.next - 1)

    def _read(self, epoch: int, first: int, last: int, on_damage: Callable[[Damage], object] | None) -> Iterator[Block]:
        remote = self._remote
        prefetched: _PendingRequest | None = None
        try:
            while first <= last:
                arguments = self.stream, epoch, first, last, remote.page, on_damage is not None
                if prefetched is None:
                    answer = remote.request(wire.Read, *arguments)
                else:
                    answer = remote.responses(prefetched)
                    prefetched = None
                page = self._page(answer, first, last)
                following = page[-1].next
                if first < following <= last and remote.can_prefetch():
                    with suppress(NotConnected):  # Yield what has arrived; the next request retries or raises.
                        prefetched = remote.start_request(wire.Read, *arguments[:2], following, *arguments[3:])
                for part in page:
                    for damage in part.damages:
                        if on_damage is not None:
                            on_damage(damage)
                    yield from wire.blocks_of(part, self.stream, epoch, self.wrap)
                if following == first:
                    return
                first = following
        finally:
            if prefetched is not None:
                prefetched.cancel()

    def _page(self, answer: Iterator[Any], first: int, last: int) -> list[wire.Records]:
        page: list[wire.Records] = []
        size = 0
        for part in self._parts(answer, wire.Records, first, last):
            page.append(part)
            size += PART_OVERHEAD + len(part.frames)
            if size > self._remote.page + wire.MAX_FRAMES:
                self._remote.close()
                raise RemoteError(f"{self._remote} sent {size:,} bytes where {self._remote.page:,} were requested")
        return page

    def _parts(self, answer: Iterator[Any], kind: type[Any], first: int, last: int) -> Iterator[Any]:
        for part in answer:
            if not isinstance(part, kind) or part.first != first or part.next > last + 1 or _makes_no_progress(part):
                self._remote.close()
                raise RemoteError(f"{self._remote} sent a response that does not match, at {first} of {self.stream}")
            first = part.next
            yield part
