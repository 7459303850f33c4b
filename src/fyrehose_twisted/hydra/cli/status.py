"""``fyrehose hydra status`` and ``say``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.net.control.client import ControlClient, with_timeout
from fyrehose_twisted.net.control.output import print_status
from fyrehose_twisted.process.terminal import LinePublisher, format_table, open_input, print_error, sanitize
from fyrehose_twisted.wording import pluralize

MAX_IN_FLIGHT = 100
"""Largest number of lines in flight."""
MAX_LINE_BYTES = 4_096
"""Largest line of standard input in bytes; the node enforces the limit of IRC."""

# status


async def show_status(options: argparse.Namespace, node: ControlClient, reactor: Any) -> int:
    """Run the command and return its exit status."""
    return await print_status(format_status, options, node, reactor)


def format_status(state: dict[str, Any]) -> Iterable[str]:
    """Format a status as readable lines."""
    return map(sanitize, _describe(state))


def _describe(state: dict[str, Any]) -> Iterable[str]:
    size = "any number of nodes" if state["size"] is None else pluralize(state["size"], "node")
    yield f"network {state['network']} of {size}, seen from {state['tag']} ({_id(state['id'])})"
    yield f"{state['role']} in term {state['term']:,}: {state['why']}"
    leader = state["leader"]
    if leader is None:
        yield f"no node leads; {state['quorum']} have to agree"
    else:
        tags = {one["id"]: one["tag"] for one in state["nodes"]}
        who = "this node leads" if leader == state["id"] else f"{tags.get(leader) or 'a node'} ({_id(leader)}) leads"
        lease = "" if state["lease"] is None else f", its lease ends in {state['lease']:.1f} s"
        yield f"{who}{lease}; {state['quorum']} have to agree"
    waiting = pluralize(state["waiting"], "line")
    yield f"IRC is {state['irc']}; {waiting} queued for it; the next line from it is {state['expected']:,}"
    yield ""
    yield "nodes"
    yield from format_table(
        ("tag", "id", "hops", "via", "last heard"),
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
    yield from format_table(
        ("link", "node", "protocol", "open"),
        (
            (
                one["name"],
                _id(one["node"]),
                "reference" if one["legacy"] else "hydra",
                "yes" if one["open"] else "no",
            )
            for one in state["links"]
        ),
    )
    if state["counts"]:
        yield ""
        yield "counts"
        yield from format_table(("event", "count"), ((name, f"{n:,}") for name, n in sorted(state["counts"].items())))


def _id(number: int | None) -> str:
    return "-" if number is None else f"{number}"


# say


async def say(options: argparse.Namespace, node: ControlClient, reactor: Any) -> int:
    """Run the command and return its exit status."""
    if options.line:
        answer = await with_timeout(
            node.request_numbered(ask="say", line=" ".join(options.line), retry=options.retry), reactor, options.timeout
        )
        problem = send_failure(answer)
        return 0 if problem is None else print_error(problem)
    speaker = LineSender(node, options.retry, reactor, options.timeout)
    try:
        await speaker.read(open_input(None), reactor)
    except CancelledError:
        speaker.stop("interrupted")
        raise
    if speaker.problem is None:
        return 0
    missing = speaker.lines_read - speaker.published
    return print_error(f"{missing:,} of {pluralize(speaker.lines_read, 'line')} not sent: {speaker.problem}")


def send_failure(answer: dict[str, Any]) -> str | None:
    """Return the reason why a line was not or may not have been sent, ``None`` if it was sent."""
    if answer.get("said") == "said":
        return None
    if "error" in answer:
        return str(answer["error"])
    why = answer.get("why", "")
    if answer.get("said") == "uncertain":
        return f"{why}: the line may or may not have been sent"
    return f"{why}: the line was not sent and will not be"


class LineSender(LinePublisher):
    """Sender of the lines of standard input."""

    def __init__(self, node: ControlClient, retry: bool, reactor: Any, timeout: float) -> None:
        super().__init__(MAX_LINE_BYTES, "lines")
        self._node = node
        self._retry = retry
        self._reactor = reactor
        self._timeout = timeout
        self._sends_in_flight = 0
        self._window_open: Deferred[None] | None = None

    async def when_room(self) -> None:
        """See :class:`~fyrehose_twisted.process.terminal.LinePublisher`."""
        if self._sends_in_flight >= MAX_IN_FLIGHT:
            self._window_open = Deferred()
            await self._window_open

    def publish(self, line: bytes) -> Deferred[int]:
        """See :class:`~fyrehose_twisted.process.terminal.LinePublisher`."""
        text = line.rstrip(b"\r").decode("utf-8", "surrogateescape")
        said = self._node.request_numbered(ask="say", line=text, retry=self._retry)
        self._sends_in_flight += 1
        return Deferred.fromCoroutine(self._wait_for(said))

    def failed(self, line: int, error: BaseException | None) -> None:
        """See :class:`~fyrehose_twisted.process.terminal.LinePublisher`."""
        self.problem = self.problem or f"line {line:,}: {error}"

    def acknowledged(self, line: int, sequence: int) -> None:
        """See :class:`~fyrehose_twisted.process.terminal.LinePublisher`."""
        self.published += 1

    async def _wait_for(self, reply: Deferred[dict[str, Any]]) -> int:
        try:
            problem = send_failure(await with_timeout(reply, self._reactor, self._timeout))
        finally:
            self._sends_in_flight -= 1
            if self._window_open is not None:
                room, self._window_open = self._window_open, None
                room.callback(None)
        if problem is not None:
            raise OperationalError(problem)
        return 0
