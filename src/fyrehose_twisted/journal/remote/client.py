"""Reading journals of another machine, with a plain socket that blocks: no reactor is needed.

A :class:`RemoteJournal` and its readers may be pickled. Each process then has a connection of its own, which is opened
when it is used. One thread at a time may use one.
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
"""Bytes of frames that are asked for at once."""
RECEIVE_CHUNK = 2**18
PART_OVERHEAD = 1_000
"""Bytes that a part of an answer costs beside its frames, so that a limit means memory."""
MAX_HELD = 2 * wire.MAX_FRAMES
"""Bytes that may come before they are wanted."""
MAX_LOSSES = 2**22
"""Lost ranges that a server may tell of at once."""
MAX_STREAMS = 100_000
"""Streams and epochs that a server may tell of."""
MAX_PREFETCHES = 8
"""Pages that may be under way before they are wanted, each of another iterator."""


class UnknownStream(LocalError, LookupError):
    """The server has no journal of this stream."""


class SecretRejected(NotConnected):
    """The server wants a secret, and was not given the right one."""


def connect(host: str, port: int, secret: bytes | None = None, timeout: float = 10.0) -> RemoteJournal:
    """Return the journals of a server, connected. See :class:`RemoteJournal`, also for what it raises."""
    remote = RemoteJournal(host, port, secret, timeout)
    remote.open()
    return remote


class ServedStream(NamedTuple):
    """A stream that a server has the journal of."""

    stream: str
    wrap: int
    """How many sequence numbers there are before they begin anew; 0 if they never do."""
    epochs: tuple[wire.EpochInfo, ...]
    tag: int | None
    """The journal's own number; ``None`` if the server does not tell."""
    damages: tuple[Damage, ...]
    """What is damaged or gone in it, as far as the server tells."""


class RemoteJournal:
    """The journals that one server gives.

    :param secret: what the server wants to know; it is pickled too.
    :param timeout: seconds without a byte from the server, after which it is given up.
    :param page: bytes of frames that are asked for at once, about; twice as many may be held.
    :raises ConfigurationError: if the secret is too short.
    :raises NotConnected: from all that is called later: if the server cannot be reached, does not answer or hangs up.
    :raises SecretRefused: likewise, if it wants another secret.
    :raises RemoteError: likewise, if what it says makes no sense.
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
        """Connect, unless that is done."""
        self._connected()

    def close(self) -> None:
        """Hang up. What is called afterwards connects again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def streams(self) -> list[ServedStream]:
        """Return the streams that are served, with their epochs and how far these go."""
        found: dict[str, ServedStream] = {}
        count = 0
        for part in self.request(wire.ListStreams):
            if not isinstance(part, wire.Streams):
                raise RemoteError(f"{self} answered the question for streams with something else")
            if part.tags and len(part.tags) != len(part.streams):
                self.close()
                raise RemoteError(f"{self} tells of {len(part.tags)} journals of {len(part.streams)} streams")
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
                raise RemoteError(f"{self} tells of more than {MAX_STREAMS:,} streams and epochs")
        return list(found.values())

    def reader(self, stream: str) -> RemoteReader:
        """Return a reader of one stream. :raises UnknownStream: if it is not served."""
        return RemoteReader(self, stream)

    # For readers

    def start_request(self, make: Callable[..., wire.Request], *what: object) -> _PendingRequest:
        """Ask, and do not wait for the answer."""
        return _PendingRequest(self._connected(), make, what)

    def responses(self, pending: _PendingRequest) -> Generator[Any, None, None]:
        """Yield the parts of an answer; ask again if the connection has ended before anything came.

        :raises NotInJournal: and the like, if that is the answer.
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
        """Whether one more page may be under way."""
        return self._connection is not None and len(self._connection.answers) < MAX_PREFETCHES

    def request(self, make: Callable[..., wire.Request], *what: object) -> Generator[Any, None, None]:
        """Ask, and yield the parts of the answer."""
        try:
            asked = self.start_request(make, *what)
        except _ConnectionLost:
            asked = self.start_request(make, *what)
        return self.responses(asked)

    def _connected(self) -> _Connection:
        connection = self._connection
        if connection is None or connection.process != os.getpid() or connection.broken:
            if connection is not None:
                connection.close()
            self._connection = connection = _Connection(self.host, self.port, self._secret, self.timeout)
        return connection


class _ConnectionLost(NotConnected):
    """The connection has ended; another may serve."""


class _PendingRequest:
    """A request that has been sent; it can be sent again."""

    def __init__(self, connection: _Connection, make: Callable[..., wire.Request], what: tuple[object, ...]) -> None:
        self.connection = connection
        self._make = make
        self._what = what
        self.send()

    def send(self) -> None:
        """Send it."""
        self._number = self.connection.send_request(self._make, self._what)

    def parts(self) -> Iterator[Any]:
        """Yield the parts of the answer that have not been handed out."""
        return self.connection.parts(self._number)

    def cancel(self) -> None:
        """The answer is not wanted any more."""
        self.connection.forget(self._number)


class _Connection:
    """One connection, on which answers come in the order in which was asked.

    :ivar answers: parts that have come and are not handed out, by request; none for a request that was forgotten.
    """

    def __init__(self, host: str, port: int, secret: bytes | None, timeout: float) -> None:
        self.process = os.getpid()
        self.broken = False
        self.answers: dict[int, deque[Any] | None] = {}
        self._name = f"the journal server {host}:{port}"
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
            self._fail(RemoteError(f"{self._name} does not greet; is it one?"))
        if greeting.version != wire.VERSION:
            self._fail(RemoteError(f"{self._name} speaks version {greeting.version}; we speak {wire.VERSION}"))
        mac = wire.proof(secret, greeting.nonce) if greeting.secret and secret is not None else b""
        self._send(wire.Hello(wire.VERSION, mac))
        if not isinstance(self._receive(), wire.Welcome):
            self._fail(RemoteError(f"{self._name} does not answer a hello"))

    def send_request(self, make: Callable[..., wire.Request], what: tuple[object, ...]) -> int:
        """Send a request; return its number."""
        number, self._next = self._next, self._next + 1
        self._send(make(number, *what))
        self.answers[number] = deque()
        return number

    def parts(self, number: int) -> Iterator[Any]:
        """Yield the parts of an answer as they come. :raises FyrehoseError: if it is a refusal."""
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
        """Drop the answer to a request, also what of it is still to come."""
        parts = self.answers.get(number)
        if parts is not None:
            self._held -= sum(map(_cost, parts))
            if any(isinstance(part, wire.Refusal) or part.end for part in parts):
                del self.answers[number]
            else:
                self.answers[number] = None

    def close(self) -> None:
        """Hang up."""
        self.broken = True
        self._socket.close()

    def _take(self, message: Any) -> None:
        number = getattr(message, "id", None)
        if number not in self.answers:
            self._fail(RemoteError(f"{self._name} answers what was not asked"))
        parts = self.answers[number]
        if parts is not None:
            parts.append(message)
            self._held += _cost(message)
            if self._held > MAX_HELD:
                self._fail(RemoteError(f"{self._name} sends more than was asked for"))
        elif isinstance(message, wire.Refusal) or message.end:
            del self.answers[number]

    def _send(self, message: wire.Message) -> None:
        if self.broken:
            raise _ConnectionLost(f"{self._name} has hung up")
        try:
            self._socket.sendall(wire.encode(message))
        except OSError as error:
            with suppress(_ConnectionLost):
                while True:
                    self._receive()  # It may have said why before it hung up, which is then raised.
            self._fail(_ConnectionLost(f"{self._name} is gone: {error.strerror or error}"))

    def _receive(self) -> wire.Message:
        while not self._messages:
            if self.broken:
                raise _ConnectionLost(f"{self._name} has hung up")
            try:
                data = self._socket.recv(RECEIVE_CHUNK)
            except TimeoutError:
                self._fail(NotConnected(f"{self._name} did not answer within {self._timeout:g} s"))
            except OSError as error:
                self._fail(_ConnectionLost(f"{self._name} is gone: {error.strerror or error}"))
            if not data:
                self._fail(_ConnectionLost(f"{self._name} has hung up"))
            try:
                self._messages += self._decoder.feed(data)
            except RemoteError as error:
                self._fail(RemoteError(f"{self._name} sends what makes no sense: {error}"))
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
    text = f"{name} says: {refusal.text}"
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
    """See :class:`~fyrehose_twisted.interfaces.IJournalReader`: one stream of a :class:`RemoteJournal`.

    As with a reader of files, what it knows of epochs and bounds stays as it is until :meth:`refresh`, and nothing
    beyond the watermark is read. While one page is used, the next is on its way.

    :ivar wrap: how many sequence numbers there are before they begin anew; 0 if they never do.
    :ivar tag: the journal's own number; ``None`` if the server does not tell.
    :ivar damages: what is damaged or gone, as far as the server tells.
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
        """Ask how far the journal goes now; say whether anything has changed.

        :raises UnknownStream: if it is not served any more.
        :raises JournalReplaced: if it is another journal by now.
        """
        for info in self._remote.streams():
            if info.stream == self.stream:
                if different_tags(self.tag, info.tag):
                    raise JournalReplaced(f"{self._remote}, for {self.stream},", self.tag, info.tag)
                known = self._bounds, self.damages
                self._bounds = {row.epoch: Bounds(*row[1:]) for row in info.epochs}
                self.wrap, self.tag, self.damages = info.wrap, info.tag, list(info.damages)
                return known != (self._bounds, self.damages)
        raise UnknownStream(f"{self._remote} does not serve {self.stream}")

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
            raise RemoteError(f"{self._remote} tells of more than {MAX_LOSSES:,} lost ranges")
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
            raise NotInJournal(f"{first} of epoch {epoch} was asked for, and {self.stream} begins at {bounds.first}")
        return min(last, bounds.next - 1)

    def _read(self, epoch: int, first: int, last: int, on_damage: Callable[[Damage], object] | None) -> Iterator[Block]:
        remote = self._remote
        asked: _PendingRequest | None = None
        try:
            while first <= last:
                what = self.stream, epoch, first, last, remote.page, on_damage is not None
                answer = remote.request(wire.Read, *what) if asked is None else remote.responses(asked)
                asked = None
                page = self._page(answer, first, last)
                following = page[-1].next
                if first < following <= last and remote.can_prefetch():
                    with suppress(NotConnected):  # What has come is handed out; the next question tries again, or says.
                        asked = remote.start_request(wire.Read, *what[:2], following, *what[3:])
                for part in page:
                    for damage in part.damages:
                        if on_damage is not None:
                            on_damage(damage)
                    yield from wire.blocks_of(part, self.stream, epoch, self.wrap)
                if following == first:
                    return
                first = following
        finally:
            if asked is not None:
                asked.cancel()

    def _page(self, answer: Iterator[Any], first: int, last: int) -> list[wire.Records]:
        page: list[wire.Records] = []
        size = 0
        for part in self._parts(answer, wire.Records, first, last):
            page.append(part)
            size += PART_OVERHEAD + len(part.frames)
            if size > self._remote.page + wire.MAX_FRAMES:
                self._remote.close()
                raise RemoteError(f"{self._remote} sends {size:,} bytes where {self._remote.page:,} were asked for")
        return page

    def _parts(self, answer: Iterator[Any], kind: type[Any], first: int, last: int) -> Iterator[Any]:
        for part in answer:
            if not isinstance(part, kind) or part.first != first or part.next > last + 1 or _makes_no_progress(part):
                self._remote.close()
                raise RemoteError(f"{self._remote} does not answer what it was asked, at {first} of {self.stream}")
            first = part.next
            yield part
