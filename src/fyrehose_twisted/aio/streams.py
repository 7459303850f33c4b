"""Fyrehose stream of an asyncio application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Sequence
from types import TracebackType
from typing import Any, Self

from twisted.internet.defer import Deferred

from fyrehose_twisted.aio.futures import result_of, wake
from fyrehose_twisted.aio.logs import use_standard_logging
from fyrehose_twisted.aio.loop_reactor import LoopReactor
from fyrehose_twisted.errors import PublishQueueFull
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.fyrehose.protocol.publisher_file import PublisherState
from fyrehose_twisted.fyrehose.protocol.stream import StreamItem, StreamProtocol
from fyrehose_twisted.fyrehose.service.connect import DEFAULT_BACKBONE, join
from fyrehose_twisted.fyrehose.wire.message_key import add_key
from fyrehose_twisted.inbox import MAX_WAITING_BYTES
from fyrehose_twisted.interfaces import IMessageStore, IPayloadOpener, IPayloadSealer


class Stream:
    """Stream of a backbone: an asynchronous iterator over its messages, which publishes, too. See :func:`connect`.

    Messages come in order, each once. If some are lost, the iteration raises
    :class:`~fyrehose_twisted.errors.MessagesMissing` in their place, and goes on behind them if it is begun anew;
    :meth:`items` yields losses instead. It stops when the stream is closed, and raises the error if that was the cause.
    If several tasks iterate, each message goes to one of them.

    An iteration can be cancelled, also by a time limit: no message is lost by that. While it is slow, the stream is
    paused, and messages that do not fit the buffers are requested again later.
    """

    def __init__(self, protocol: StreamProtocol, loop: asyncio.AbstractEventLoop) -> None:
        self.protocol = protocol
        self._loop = loop

    @property
    def connected(self) -> bool:
        """Whether the backbone answers. If it does not, the stream waits for it, and goes on."""
        return self.protocol.connected

    @property
    def max_message(self) -> int:
        """Maximum size of a message in bytes."""
        return self.protocol.max_message

    @property
    def pending(self) -> int:
        """Number of published messages that are not acknowledged yet."""
        return self.protocol.pending

    def __aiter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(at_once=kind is not None)

    async def __anext__(self) -> Message:
        """Return the next message.

        :raises MessagesMissing: if messages before it are lost.
        """
        return await self.protocol.__anext__()

    def items(self) -> AsyncIterator[StreamItem]:
        """Yield messages and, in their places, losses and takeovers.

        See :meth:`~fyrehose_twisted.fyrehose.protocol.stream.StreamProtocol.items`.
        """
        return self.protocol.items()

    def batches(self) -> AsyncIterator[Sequence[StreamItem]]:
        """Yield what :meth:`items` yields, in batches as they arrived, which costs less for each message."""
        return self.protocol.batches()

    async def publish(self, data: bytes, *, kept: int = 0, key: bytes | None = None) -> int:
        """Publish a message; return its sequence number. While the send queue is full, wait.

        A message whose publication is cancelled may have been published all the same.

        :param kept: number of durable journals that must have synced the message to disk.
        :param key: key of the message, 1 to 255 bytes.
        :raises PublishTimeout: if the backbone does not acknowledge the message in time.
        :raises MessageNotKept: if too few journals sync it in time.
        :raises MessageTooLarge: if it does not fit a datagram.
        :raises NotConnected: if the stream is closed before.
        :raises ConfigurationError: if the key is empty or too long.
        """
        while True:
            try:
                published = self.submit(data, kept=kept, key=key)
                break
            except PublishQueueFull:
                await self.room()
        return await published

    async def publish_many(self, messages: Sequence[bytes], *, kept: int = 0) -> list[int]:
        """Publish a batch of messages, which costs less than :meth:`publish` for each; return their numbers in order.

        It fails as soon as one message fails, as :meth:`publish` does; others may be published all the same.

        :raises PublishQueueFull: if the batch does not fit an empty send queue.
        """
        while True:
            try:
                return await result_of(self.protocol.publish_many(messages, kept=kept))
            except PublishQueueFull:
                if not self.pending:
                    raise
                await self.room()

    def submit(self, data: bytes, *, kept: int = 0, key: bytes | None = None) -> asyncio.Future[int]:
        """Publish a message without waiting; return a Future of its sequence number. See :meth:`publish`.

        :raises PublishQueueFull: if the send queue is full; wait for :meth:`room`.
        """
        published: asyncio.Future[int] = self._loop.create_future()

        def number(index: int, sequence: int) -> None:
            if not published.done():
                published.set_result(sequence)

        def fail(index: int, error: Exception) -> None:
            if not published.done():
                published.set_exception(error)

        payload = data if key is None else add_key(data, key)
        self.protocol.publish_each((payload,), number, fail, kept=kept)
        return published

    async def room(self) -> None:
        """Wait until the send queue is less than half full.

        :raises NotConnected: if the stream is closed.
        """
        await result_of(self.protocol.when_room())

    async def close(self, *, at_once: bool = False) -> None:
        """Leave the backbone.

        A publisher stays for up to 10 s to answer repair requests for its last messages; see
        :meth:`~fyrehose_twisted.fyrehose.protocol.PublisherProtocol.leave`.

        :param at_once: do not stay.
        """
        try:
            await result_of(self.protocol.leave(at_once=at_once))
        except asyncio.CancelledError:
            await result_of(self.protocol.leave(at_once=True))
            raise


class Connecting:
    """Connection to a backbone under way: ``async with`` it, or ``await`` it."""

    def __init__(
        self,
        backbone: str,
        protocol_options: dict[str, Any],
        port: int,
        timeout: float,
        sealer: IPayloadSealer | None,
        opener: IPayloadOpener | None,
    ) -> None:
        self._backbone = backbone
        self._options = protocol_options
        self._port = port
        self._timeout = timeout
        self._sealer, self._opener = sealer, opener
        self._stream: Stream | None = None

    def __await__(self) -> Generator[Any, None, Stream]:
        return self._connect().__await__()

    async def __aenter__(self) -> Stream:
        self._stream = await self._connect()
        return self._stream

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._stream is not None:
            await self._stream.__aexit__(kind, error, traceback)

    async def _connect(self) -> Stream:
        use_standard_logging()
        loop = asyncio.get_running_loop()
        reactor = LoopReactor(loop)
        protocol = StreamProtocol(reactor=reactor, make_waiter=loop.create_future, wake=wake, **self._options)
        protocol.sealer, protocol.opener = self._sealer, self._opener
        try:
            joining = join(reactor, protocol, self._backbone, port=self._port, timeout=self._timeout)
            await result_of(Deferred.fromCoroutine(joining))
        except asyncio.CancelledError:
            await result_of(protocol.close())
            raise
        return Stream(protocol, loop)


def connect(
    backbone: str = DEFAULT_BACKBONE,
    *,
    config: ClientConfig | None = None,
    port: int = 0,
    timeout: float = 10.0,
    max_waiting: int = MAX_WAITING_BYTES,
    store: IMessageStore | None = None,
    state: PublisherState | None = None,
    sealer: IPayloadSealer | None = None,
    opener: IPayloadOpener | None = None,
) -> Connecting:
    """Connect to a backbone, as ``async with connect(...) as stream`` or ``stream = await connect(...)``.

    Leaving the block closes the stream, as :meth:`Stream.close` does: at once if there was an exception.

    :param backbone: ``HOST:PORT``; for backbones that take over from one another, one or more, separated by commas.
    :param config: settings such as the start of the stream and the secret.
    :param port: local UDP port; 0 for any that is free.
    :param timeout: seconds to wait for the first answer.
    :param max_waiting: maximum bytes of payload that wait for the application, about.
    :param store: message store for repairs; by default in memory.
    :param state: state of a publisher that resumes after a restart.
    :param sealer: seals the payloads that are published, and ``opener`` opens those that are received.

    Entering or awaiting raises :class:`~fyrehose_twisted.errors.ConfigurationError` if ``backbone`` has another form,
    :class:`~fyrehose_twisted.errors.NotConnected` if it does not answer in time or does not admit us, and
    :class:`~fyrehose_twisted.errors.OperationalError` if no name has an IP address or ``port`` cannot be bound.
    """
    options = {"config": config, "max_waiting": max_waiting, "store": store, "state": state}
    return Connecting(backbone, options, port, timeout, sealer, opener)
