"""Client of the control port of a node."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.endpoints import TCP4ClientEndpoint, UNIXClientEndpoint, clientFromString

from fyrehose_twisted.errors import ConfigurationError, NotConnected
from fyrehose_twisted.net.connection import ConnectionFactory, ConnectionLimits, NodeConnection, describe_failure
from fyrehose_twisted.net.control.json_lines import MAX_REPLY, JsonLines

REPLY_KEYS = frozenset(("status", "following", "next", "reloaded", "error"))
"""Keys that mark a reply to :meth:`ControlClient.request`; other messages are events."""

# Twisted functions without annotations.
_client_from_string: Any = clientFromString
_unix_endpoint: Any = UNIXClientEndpoint


class ControlClient(NodeConnection):
    """Client of the control port of a node.

    :ivar on_event: called with each message that is not a reply.
    :ivar ended: fires with the reason when the node closes the connection.
    """

    def __init__(self) -> None:
        super().__init__(JsonLines(MAX_REPLY), ConnectionLimits())
        self.ended: Deferred[str] = Deferred()
        self.on_event: Any = None
        self._pending: deque[Deferred[dict[str, Any]]] = deque()
        self._pending_numbered: dict[int, Deferred[dict[str, Any]]] = {}
        self._number = 0
        self._problem = ""

    def request(self, **question: Any) -> Deferred[dict[str, Any]]:
        """Send a request; return a Deferred of the next reply."""
        if self._problem:
            raise NotConnected(self._problem)
        answer: Deferred[dict[str, Any]] = Deferred(lambda one: None)
        self._pending.append(answer)
        self.send([question])
        return answer

    def request_numbered(self, **question: Any) -> Deferred[dict[str, Any]]:
        """Send a numbered request; return a Deferred of its reply, which may arrive out of order."""
        if self._problem:
            raise NotConnected(self._problem)
        self._number += 1
        answer: Deferred[dict[str, Any]] = Deferred(lambda one: None)
        self._pending_numbered[self._number] = answer
        self.send([{**question, "id": self._number}])
        return answer

    def messages_received(self, messages: Sequence[dict[str, Any]]) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.NodeConnection.messages_received`."""
        for message in messages:
            number = message.get("id")
            if number is not None:
                answer = self._pending_numbered.pop(number, None)
                if answer is not None and not answer.called:
                    answer.callback(message)
            elif self._pending and message.keys() & REPLY_KEYS:
                asked = self._pending.popleft()
                if not asked.called:
                    asked.callback(message)
            elif self.on_event is not None:
                self.on_event(message)

    def connection_ended(self, reason: str) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.NodeConnection.connection_ended`."""
        self._problem = f"the node closed the connection: {reason}"
        waiting = [*self._pending, *self._pending_numbered.values()]
        self._pending.clear()
        self._pending_numbered.clear()
        for one in waiting:
            if not one.called:
                one.errback(NotConnected(self._problem))
        if not self.ended.called:
            self.ended.callback(self._problem)


async def connect(endpoint: str, reactor: Any, timeout: float) -> ControlClient:
    """Connect to the node whose --control is ``endpoint``.

    :raises ConfigurationError: if ``endpoint`` is not an endpoint.
    :raises NotConnected: if the connection fails.
    """
    dial: Deferred[Any] = client_endpoint(endpoint, reactor).connect(ConnectionFactory(ControlClient))
    dial.addTimeout(timeout, reactor)
    try:
        node: ControlClient = await dial
    except CancelledError:
        raise
    except Exception as error:
        reason = describe_failure(error)
        raise NotConnected(
            f"no node at {endpoint}: {reason}; check that it is the node's --control, and that you have access"
        ) from error
    return node


async def run_with_client(
    options: argparse.Namespace,
    reactor: Any,
    command: Callable[[argparse.Namespace, ControlClient, Any], Coroutine[Any, Any, int]],
) -> int:
    """Run a command with a connection to the node of ``options.control``; return its exit status."""
    node = await connect(options.control, reactor, options.timeout)
    try:
        return await command(options, node, reactor)
    finally:
        node.close()


def client_endpoint(endpoint: str, reactor: Any) -> Any:
    """Return a client endpoint for a server endpoint on this machine, or for a client endpoint description.

    :raises ConfigurationError: if ``endpoint`` is neither.
    """
    kind, _, rest = endpoint.partition(":")
    if "/" in kind:
        return _unix_endpoint(reactor, endpoint)
    if kind == "unix" and not rest.startswith("path="):
        # Drop server-side arguments such as mode.
        return _unix_endpoint(reactor, rest.partition(":")[0])
    port = endpoint if endpoint.isdecimal() else rest.partition(":")[0] if kind == "tcp" else ""
    if port.isdecimal() and 1 <= int(port) <= 65_535:
        return TCP4ClientEndpoint(reactor, "127.0.0.1", int(port))
    try:
        return _client_from_string(reactor, endpoint)
    except Exception as error:  # Endpoint parsers raise arbitrary exceptions.
        raise ConfigurationError(
            f"--control {endpoint!r} is not an endpoint such as unix:/run/node.sock or tcp:6175 ({error})"
        ) from error


async def with_timeout(reply: Deferred[dict[str, Any]], reactor: Any, timeout: float) -> dict[str, Any]:
    """Wait for a reply. :raises NotConnected: on timeout."""
    try:
        return await reply.addTimeout(timeout, reactor)
    except DeferredTimeout:
        raise NotConnected(f"the node did not answer within {timeout:g} s") from None
