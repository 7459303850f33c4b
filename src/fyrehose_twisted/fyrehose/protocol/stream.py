"""Twisted protocol whose messages are read with ``async for``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self

from twisted.internet.defer import Deferred

from fyrehose_twisted.errors import MessagesMissing
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import Message, Messages, MessagesLost, NumbersSkipped, TermStarted
from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.fyrehose.protocol.publisher_file import PublisherState
from fyrehose_twisted.inbox import MAX_WAITING_BYTES, Inbox, wake_deferred
from fyrehose_twisted.interfaces import IMessageStore

StreamItem = Message | MessagesLost | NumbersSkipped | TermStarted


class StreamProtocol(PublisherProtocol):
    """Client that is iterated over, and publishes.

        async with await join(reactor, StreamProtocol(), "127.0.0.1:2323") as stream:
            await stream.publish(b"...")
            async for message in stream:
                print(message.sequence, message.data)

    Messages come in order, each once. If some are lost, the iteration raises
    :class:`~fyrehose_twisted.errors.MessagesMissing` in their place, and goes on behind them if it is begun anew. It
    stops when the protocol has stopped, and raises the error if there was one. While the application is slow, the
    protocol pauses; see :class:`~fyrehose_twisted.fyrehose.protocol.SubscriberProtocol`.

    Within ``async with``, the protocol leaves at the end; at once if there was an exception.

    :param max_waiting: maximum bytes of payload that wait for the application, about.
    :param make_waiter: returns what the application awaits, and ``wake`` fires it; Deferreds by default.
    """

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        store: IMessageStore | None = None,
        state: PublisherState | None = None,
        max_waiting: int = MAX_WAITING_BYTES,
        reactor: Any = None,
        make_waiter: Callable[[], Awaitable[Any]] = Deferred,
        wake: Callable[[Any], object] = wake_deferred,
    ) -> None:
        super().__init__(config, store=store, state=state, reactor=reactor)
        self._inbox: Inbox[StreamItem] = Inbox(
            max_waiting, pause=self.pauseProducing, resume=self.resumeProducing, make_waiter=make_waiter, wake=wake
        )

    @property
    def connected(self) -> bool:
        """Whether the backbone answers. If it does not, the stream waits for it, and goes on."""
        return self.transport is not None and self.node is not None and self.node.keepalive.connected

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Return the next message.

        :raises MessagesMissing: if messages before it are lost.
        """
        while True:
            item = await self._inbox.take()
            if isinstance(item, Message):
                return item
            if isinstance(item, MessagesLost):
                raise MessagesMissing(item.first, item.last)

    async def items(self) -> AsyncIterator[StreamItem]:
        """Yield messages and, in their places, what else the stream consists of.

        Losses are :class:`~fyrehose_twisted.fyrehose.events.MessagesLost`. Where another backbone has taken over, there
        are :class:`~fyrehose_twisted.fyrehose.events.NumbersSkipped` and
        :class:`~fyrehose_twisted.fyrehose.events.TermStarted`.
        """
        while True:
            try:
                item = await self._inbox.take()
            except StopAsyncIteration:
                return
            yield item

    async def batches(self) -> AsyncIterator[Sequence[StreamItem]]:
        """Yield what :meth:`items` yields, in batches as they arrived, which costs less for each message."""
        while True:
            try:
                batch = await self._inbox.take_batch()
            except StopAsyncIteration:
                return
            yield batch

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.leave(at_once=kind is not None)

    def messages_received(self, messages: Sequence[Message]) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.protocol.SubscriberProtocol.messages_received`."""
        assert isinstance(messages, Messages)
        self._inbox.push(messages, messages.payload_bytes)

    def messages_lost(self, first: int, last: int) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.protocol.SubscriberProtocol.messages_lost`."""
        self._inbox.push((MessagesLost(first, last),), 0)

    def numbers_skipped(self, first: int, last: int) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.ISeamListener.numbers_skipped`."""
        self._inbox.push((NumbersSkipped(first, last),), 0)

    def term_started(self, term: int, held_up_to: int, first: int) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.ISeamListener.term_started`."""
        self._inbox.push((TermStarted(term, held_up_to, first),), 0)

    def stopProtocol(self) -> None:
        """Twisted: the port is closed. End the iteration."""
        super().stopProtocol()
        self._inbox.end(self._error)
