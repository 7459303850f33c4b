"""The conversation with a node that commands on the same machine have."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.endpoints import TCP4ClientEndpoint, UNIXClientEndpoint, clientFromString

from fyrehose_twisted.errors import ConfigurationError, NotConnected
from fyrehose_twisted.net.connection import Link, LinkFactory, LinkLimits, describe
from fyrehose_twisted.net.control.json_lines import MAX_ANSWER, JsonLines

ANSWERS = frozenset(("status", "following", "next", "error"))
"""What answers to :meth:`Conversation.ask` have; other messages are told."""

# Twisted's, which are not annotated.
_client_from_string: Any = clientFromString
_unix_endpoint: Any = UNIXClientEndpoint


class Conversation(Link):
    """Questions and answers. What is not an answer goes to :attr:`told`.

    :ivar told: called with each of them.
    :ivar ended: fires with the reason when the node hung up.
    """

    def __init__(self) -> None:
        super().__init__(JsonLines(MAX_ANSWER), LinkLimits())
        self.ended: Deferred[str] = Deferred()
        self.told: Any = None
        self._waiting: deque[Deferred[dict[str, Any]]] = deque()
        self._demanded: dict[int, Deferred[dict[str, Any]]] = {}
        self._number = 0
        self._problem = ""

    def ask(self, **question: Any) -> Deferred[dict[str, Any]]:
        """Ask; return a Deferred of the answer, which is the next one. It fails if none comes."""
        if self._problem:
            raise NotConnected(self._problem)
        answer: Deferred[dict[str, Any]] = Deferred(lambda one: None)
        self._waiting.append(answer)
        self.send([question])
        return answer

    def demand(self, **question: Any) -> Deferred[dict[str, Any]]:
        """Ask for what may take a while; return a Deferred of the answer, which others may come before."""
        if self._problem:
            raise NotConnected(self._problem)
        self._number += 1
        answer: Deferred[dict[str, Any]] = Deferred(lambda one: None)
        self._demanded[self._number] = answer
        self.send([{**question, "id": self._number}])
        return answer

    def messages_received(self, messages: Sequence[dict[str, Any]]) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.Link.messages_received`."""
        for message in messages:
            number = message.get("id")
            if number is not None:
                answer = self._demanded.pop(number, None)
                if answer is not None and not answer.called:
                    answer.callback(message)
            elif self._waiting and message.keys() & ANSWERS:
                asked = self._waiting.popleft()
                if not asked.called:
                    asked.callback(message)
            elif self.told is not None:
                self.told(message)

    def connection_ended(self, reason: str) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.Link.connection_ended`."""
        self._problem = f"the node hung up: {reason}"
        waiting = [*self._waiting, *self._demanded.values()]
        self._waiting.clear()
        self._demanded.clear()
        for one in waiting:
            if not one.called:
                one.errback(NotConnected(self._problem))
        if not self.ended.called:
            self.ended.callback(self._problem)


async def connect(place: str, reactor: Any, timeout: float) -> Conversation:
    """Return a conversation with the node whose --control is ``place``.

    :raises ConfigurationError: if that is no endpoint.
    :raises NotConnected: if nobody is there.
    """
    dial: Deferred[Any] = client_endpoint(place, reactor).connect(LinkFactory(Conversation))
    dial.addTimeout(timeout, reactor)
    try:
        node: Conversation = await dial
    except CancelledError:
        raise
    except Exception as error:
        reason = describe(error)
        raise NotConnected(f"no node at {place}: {reason}; is that its --control, and may you use it?") from error
    return node


async def asking(
    options: argparse.Namespace,
    reactor: Any,
    act: Callable[[argparse.Namespace, Conversation, Any], Coroutine[Any, Any, int]],
) -> int:
    """Let a command ask the node that ``options.control`` names, and return its exit status."""
    node = await connect(options.control, reactor, options.timeout)
    try:
        return await act(options, node, reactor)
    finally:
        node.hang_up()


def client_endpoint(place: str, reactor: Any) -> Any:
    """Return what connects to a server endpoint on this machine, or the client endpoint that ``place`` is.

    :raises ConfigurationError: if it is neither.
    """
    kind, _, rest = place.partition(":")
    if "/" in kind:
        return _unix_endpoint(reactor, place)
    if kind == "unix" and not rest.startswith("path="):
        # As the node was given it: with a mode, say, which means nothing to who connects.
        return _unix_endpoint(reactor, rest.partition(":")[0])
    port = place if place.isdecimal() else rest.partition(":")[0] if kind == "tcp" else ""
    if port.isdecimal() and 1 <= int(port) <= 65_535:
        return TCP4ClientEndpoint(reactor, "127.0.0.1", int(port))
    try:
        return _client_from_string(reactor, place)
    except Exception as error:  # What parsers of endpoints raise is their own affair.
        raise ConfigurationError(
            f"--control {place!r} is no endpoint such as unix:/run/node.sock or tcp:6175 ({error})"
        ) from error


async def answer_to(asked: Deferred[dict[str, Any]], reactor: Any, timeout: float) -> dict[str, Any]:
    """Return the answer. :raises NotConnected: if it does not come in time."""
    try:
        return await asked.addTimeout(timeout, reactor)
    except DeferredTimeout:
        raise NotConnected(f"the node does not answer within {timeout:g} s") from None
