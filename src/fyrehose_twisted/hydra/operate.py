"""``fyrehose hydra status`` and ``say``, and the conversation with a node that all commands have."""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.endpoints import TCP4ClientEndpoint, UNIXClientEndpoint, clientFromString

from fyrehose_twisted.errors import ConfigurationError, MalformedPacket, NotConnected, OperationalError
from fyrehose_twisted.hydra.control import MAX_ANSWER, JsonLines
from fyrehose_twisted.net.link import Link, LinkFactory, LinkLimits, describe
from fyrehose_twisted.terminal import LinePublisher, complain, open_input

WINDOW = 100
"""Lines that are waited for at once."""
MAX_SAID = 4_096
"""Bytes of a line of standard input; how many of them IRC takes the node says."""

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
        self._said: dict[int, Deferred[dict[str, Any]]] = {}
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

    def say(self, line: str, *, retry: bool) -> Deferred[dict[str, Any]]:
        """Have a line said; return a Deferred of what became of it."""
        if self._problem:
            raise NotConnected(self._problem)
        self._number += 1
        said: Deferred[dict[str, Any]] = Deferred(lambda one: None)
        self._said[self._number] = said
        self.send([{"ask": "say", "line": line, "retry": retry, "id": self._number}])
        return said

    def messages_received(self, messages: Sequence[dict[str, Any]]) -> None:
        """See :meth:`~fyrehose_twisted.net.link.Link.messages_received`."""
        for message in messages:
            number = message.get("id")
            if number is not None:
                said = self._said.pop(number, None)
                if said is not None and not said.called:
                    said.callback(message)
            elif self._waiting and message.keys() & {"status", "following", "error"}:
                answer = self._waiting.popleft()
                if not answer.called:
                    answer.callback(message)
            elif self.told is not None:
                self.told(message)

    def connection_ended(self, reason: str) -> None:
        """See :meth:`~fyrehose_twisted.net.link.Link.connection_ended`."""
        self._problem = f"the node hung up: {reason}"
        waiting = [*self._waiting, *self._said.values()]
        self._waiting.clear()
        self._said.clear()
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
            f"--control {place!r} is no endpoint such as unix:/run/hydra.sock or tcp:6175 ({error})"
        ) from error


async def answer_to(asked: Deferred[dict[str, Any]], reactor: Any, timeout: float) -> dict[str, Any]:
    """Return the answer. :raises NotConnected: if it does not come in time."""
    try:
        return await asked.addTimeout(timeout, reactor)
    except DeferredTimeout:
        raise NotConnected(f"the node does not answer within {timeout:g} s") from None


# status


async def show_status(options: argparse.Namespace, node: Conversation, reactor: Any) -> int:
    """Run the command and return its exit status."""
    answer = await answer_to(node.ask(ask="status"), reactor, options.timeout)
    state = answer.get("status")
    if not isinstance(state, dict):
        return complain(answer.get("error", "the node answers something that is no status"))
    if options.json:
        print(json.dumps(state))
        return 0
    try:
        lines = list(describe_state(state))
    except (KeyError, TypeError, ValueError):
        raise MalformedPacket("status", "a node describes itself in a way that is not known here; try --json") from None
    print("\n".join(lines))
    return 0


def describe_state(state: dict[str, Any]) -> Iterable[str]:
    """Return lines for people."""
    return map(printable, _describe(state))


def printable(text: str) -> str:
    """Return a text as a terminal may be given it, whatever others put in."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _describe(state: dict[str, Any]) -> Iterable[str]:
    size = "any number of" if state["size"] is None else f"{state['size']}"
    yield f"network {state['network']} of {size} nodes, seen from {state['tag']} ({_id(state['id'])})"
    yield f"{state['role']} in term {state['term']:,}: {state['why']}"
    leader = state["leader"]
    if leader is None:
        yield f"nobody leads; {state['quorum']} have to agree"
    else:
        tags = {one["id"]: one["tag"] for one in state["nodes"]}
        who = "this node leads" if leader == state["id"] else f"{tags.get(leader) or 'a node'} ({_id(leader)}) leads"
        lease = "" if state["lease"] is None else f", its lease goes on for {state['lease']:.1f} s"
        yield f"{who}{lease}; {state['quorum']} have to agree"
    yield f"IRC is {state['irc']}; {state['waiting']:,} lines wait for it; the next from there is {state['expected']:,}"
    yield ""
    yield "nodes"
    yield from _table(
        ("tag", "id", "hops", "by way of", "heard of"),
        (
            (
                one["tag"] or "-",
                _id(one["id"]),
                "-" if one["hops"] is None else one["hops"],
                one["neighbour"] or "-",
                "-" if one["silent"] is None else f"{one['silent']:.1f} s ago",
            )
            for one in state["nodes"]
        ),
    )
    yield ""
    yield "links"
    yield from _table(
        ("link", "leads to", "speaks", "open"),
        (
            (
                one["name"],
                _id(one["node"]),
                "the reference's" if one["legacy"] else "hydra",
                "yes" if one["open"] else "no",
            )
            for one in state["links"]
        ),
    )
    if state["counts"]:
        yield ""
        yield "counts"
        yield from _table(("what", "how often"), ((name, f"{n:,}") for name, n in sorted(state["counts"].items())))


def _id(number: int | None) -> str:
    return "-" if number is None else f"{number}"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterable[str]:
    lines = [head, *(list(map(str, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


# say


async def say(options: argparse.Namespace, node: Conversation, reactor: Any) -> int:
    """Run the command and return its exit status."""
    if options.line:
        answer = await answer_to(node.say(" ".join(options.line), retry=options.retry), reactor, options.timeout)
        problem = problem_of(answer)
        return 0 if problem is None else complain(problem)
    speaker = Speaker(node, options.retry, reactor, options.timeout)
    try:
        await speaker.read(open_input(None), reactor)
    except CancelledError:
        speaker.stop("interrupted")
        raise
    if speaker.problem is None:
        return 0
    missing = speaker.seen - speaker.published
    return complain(f"{missing:,} of {speaker.seen:,} lines not said: {speaker.problem}")


def problem_of(answer: dict[str, Any]) -> str | None:
    """Return why a line was not said for certain, ``None`` if it was."""
    if answer.get("said") == "said":
        return None
    if "error" in answer:
        return str(answer["error"])
    why = answer.get("why", "")
    if answer.get("said") == "uncertain":
        return f"{why}: it may or may not have been said"
    return f"{why}: it was not said, and will not be"


class Speaker(LinePublisher):
    """Has each line of standard input said."""

    def __init__(self, node: Conversation, retry: bool, reactor: Any, timeout: float) -> None:
        super().__init__(MAX_SAID, "lines")
        self._node = node
        self._retry = retry
        self._reactor = reactor
        self._timeout = timeout
        self._under_way = 0
        self._room: Deferred[None] | None = None

    async def when_room(self) -> None:
        """See :class:`~fyrehose_twisted.terminal.LinePublisher`."""
        if self._under_way >= WINDOW:
            self._room = Deferred()
            await self._room

    def publish(self, line: bytes) -> Deferred[int]:
        """See :class:`~fyrehose_twisted.terminal.LinePublisher`."""
        text = line.rstrip(b"\r").decode("utf-8", "surrogateescape")
        said = self._node.say(text, retry=self._retry)
        self._under_way += 1
        return Deferred.fromCoroutine(self._wait_for(said))

    def failed(self, line: int, error: BaseException | None) -> None:
        """See :class:`~fyrehose_twisted.terminal.LinePublisher`."""
        self.problem = self.problem or f"line {line:,}: {error}"

    def came_back(self, line: int, sequence: int) -> None:
        """See :class:`~fyrehose_twisted.terminal.LinePublisher`."""
        self.published += 1

    async def _wait_for(self, said: Deferred[dict[str, Any]]) -> int:
        try:
            problem = problem_of(await answer_to(said, self._reactor, self._timeout))
        finally:
            self._under_way -= 1
            if self._room is not None:
                room, self._room = self._room, None
                room.callback(None)
        if problem is not None:
            raise OperationalError(problem)
        return 0
