"""``fyrehose backbone``: the status of a group of backbones, and changes of its leader and members."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from twisted.internet.task import deferLater

from fyrehose_twisted.errors import MalformedPacket, OperationalError
from fyrehose_twisted.fyrehose.node.backbone.backbone import BackboneState
from fyrehose_twisted.net.control.client import ControlClient, with_timeout
from fyrehose_twisted.net.control.output import print_status
from fyrehose_twisted.process.terminal import format_table, print_output, sanitize
from fyrehose_twisted.wording import pluralize

POLL_INTERVAL = 0.005
"""Seconds between two requests for the status, until a command has taken effect."""

Status = dict[str, Any]


async def show_status(options: argparse.Namespace, node: ControlClient, reactor: Any) -> int:
    """Print the status, and return the exit status."""
    return await print_status(format_status, options, node, reactor)


async def show_members(options: argparse.Namespace, node: ControlClient, reactor: Any) -> int:
    """Print the members, and return the exit status."""
    status = await _request({"ask": "status"}, options, node, reactor)
    try:
        members, lines = status["members"], [sanitize(line) for line in format_members(status)]
    except (KeyError, TypeError, ValueError):
        raise MalformedPacket("status", "the node's status has an unknown format; try --json") from None
    print_output(json.dumps(members) if options.json else "\n".join(lines))
    return 0


async def transfer(options: argparse.Namespace, node: ControlClient, reactor: Any) -> int:
    """Hand over the leadership, and return the exit status once another member leads."""
    started_at = reactor.seconds()
    request = {"ask": "transfer"} if options.name is None else {"ask": "transfer", "member": options.name}
    first_term: list[int] = []

    def leads(status: Status, target: str) -> bool:
        term, leader = status["term"], status["leader"]
        first_term.append(term)
        if leader not in (None, target) and term > first_term[0]:
            raise OperationalError(f"{target} does not lead: {leader} leads in term {term:,}")
        return bool(leader == target)

    target, status = await _carry_out(request, "transferring", leads, options, node, reactor)
    seconds = reactor.seconds() - started_at
    if options.json:
        print_output(json.dumps({"leader": target, "term": status["term"], "seconds": round(seconds, 6)}))
    else:
        print_output(sanitize(f"{target} leads in term {status['term']:,}, after {_milliseconds(seconds)}"))
    return 0


async def remove(options: argparse.Namespace, node: ControlClient, reactor: Any) -> int:
    """Remove a member, and return the exit status once it is removed."""

    def is_gone(status: Status, target: str) -> bool:
        return all(not one["votes"] for one in status["members"] if one["name"] == target)

    request = {"ask": "remove", "member": options.name}
    target, status = await _carry_out(request, "removing", is_gone, options, node, reactor)
    if options.json:
        print_output(json.dumps(status["members"]))
        return 0
    names = ", ".join(one["name"] for one in status["members"] if one["votes"])
    print_output(sanitize(f"{target} is removed; the members are {names}, {status['quorum']} have to agree"))
    return 0


async def _carry_out(
    request: dict[str, Any],
    reply: str,
    has_effect: Callable[[Status, str], bool],
    options: argparse.Namespace,
    node: ControlClient,
    reactor: Any,
) -> tuple[str, Status]:
    """Send a command and wait until it has taken effect. Return the member that it is about, and the status.

    :param reply: key of the reply with that member.
    :param has_effect: returns whether a status shows the effect on a member.
    :raises OperationalError: if the member refuses, or the command takes longer than ``options.timeout``.
    """
    deadline = reactor.seconds() + options.timeout
    answer = await with_timeout(node.request(**request), reactor, options.timeout)
    status, target = _status_of(answer), str(answer.get(reply))
    try:
        while not has_effect(status, target):
            if reactor.seconds() >= deadline:
                raise OperationalError(f"{reply} {target} is not done within {options.timeout:g} s; {_leader(status)}")
            await deferLater(reactor, POLL_INTERVAL)
            status = await _request({"ask": "status"}, options, node, reactor)
    except (KeyError, TypeError, ValueError):
        raise MalformedPacket("status", "the node's status has an unknown format") from None
    return target, status


async def _request(request: dict[str, Any], options: argparse.Namespace, node: ControlClient, reactor: Any) -> Status:
    return _status_of(await with_timeout(node.request(**request), reactor, options.timeout))


def _status_of(answer: dict[str, Any]) -> Status:
    status = answer.get("status")
    if not isinstance(status, dict):
        raise OperationalError(sanitize(str(answer.get("error", "the reply of the node is not a status"))))
    return status


def format_status(status: Status) -> Iterable[str]:
    """Format a status as readable lines."""
    yield f"member {status['name']} of {status['stream']}: {_describe_state(status['state'])}"
    if status["quorum"]:
        votes = [one["connected"] for one in status["members"] if one["votes"]]
        connected = f"{sum(votes)} of {pluralize(len(votes), 'member')} connected"
        yield f"{_leader(status)}; {connected}, {status['quorum']} have to agree"
    else:
        yield "there is no group yet: start one member with --bootstrap, and connect it to all its peers"
    clients = pluralize(status["clients"], "client")
    last, bound, kept = status["last"], status["bound"], status["kept"]
    yield f"last number {last:,}, bound {bound:,}, kept up to {kept:,}; {clients}"
    yield ""
    yield "members"
    yield from format_members(status)
    if status["counters"]:
        yield ""
        yield "counts"
        counts = sorted(status["counters"].items())
        yield from format_table(("event", "count"), ((name, f"{count:,}") for name, count in counts))


def format_members(status: Status) -> Iterable[str]:
    """Format the members as a table."""
    rows: list[Sequence[object]] = [
        (
            one["name"],
            "yes" if one["name"] == status["leader"] else "no",
            one["client_address"],
            one["peer_address"],
            *("yes" if one[name] else "no" for name in ("connected", "votes", "witness")),
        )
        for one in status["members"]
    ]
    yield from format_table(("name", "leads", "address", "peer address", "connected", "votes", "witness"), rows)


def _leader(status: Status) -> str:
    if status["leader"] is None:
        return f"no member leads in term {status['term']:,}"
    leads = f"{status['leader']} leads in term {status['term']:,}"
    return f"{leads}, {_milliseconds(status['lease_left'])} of its lease left" if status["leads"] else leads


def _describe_state(name: str) -> str:
    if name == "witness":
        return "votes, and numbers no messages"
    try:
        return BackboneState[name.upper()].value
    except KeyError:
        return name


def _milliseconds(seconds: float) -> str:
    return f"{1_000 * seconds:,.0f} ms"
