"""``fyrehose hydra status``, ``say`` and ``reload``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.net.control.client import ControlClient, with_timeout
from fyrehose_twisted.net.control.line_input import LineSender, send_standard_input
from fyrehose_twisted.net.control.output import print_status
from fyrehose_twisted.process.terminal import format_table, print_error, sanitize
from fyrehose_twisted.wording import pluralize

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
    if state.get("summary"):  # Nodes of earlier versions have none.
        yield state["summary"]
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


# reload


async def reload(options: argparse.Namespace, node: ControlClient, reactor: Any) -> int:
    """Run the command and return its exit status."""
    answer = await with_timeout(node.request(ask="reload"), reactor, options.timeout)
    if "error" in answer:
        return print_error(str(answer["error"]))
    print(sanitize("; ".join(answer["reloaded"]) or "no changes"))
    return 0


# say


async def say(options: argparse.Namespace, node: ControlClient, reactor: Any) -> int:
    """Run the command and return its exit status."""

    async def send(line: str) -> str | None:
        request = node.request_numbered(ask="say", line=line, retry=options.retry)
        return send_failure(await with_timeout(request, reactor, options.timeout))

    async def send_line(line: bytes) -> int:
        problem = await send(line.rstrip(b"\r").decode("utf-8", "surrogateescape"))
        if problem is not None:
            raise OperationalError(problem)
        return 0

    if options.line:
        problem = await send(" ".join(options.line))
        return 0 if problem is None else print_error(problem)
    return await send_standard_input(LineSender(MAX_LINE_BYTES, "lines", send_line), reactor, "not sent")


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
