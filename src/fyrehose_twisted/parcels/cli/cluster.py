"""``fyrehose parcels cluster`` and ``reform``: cluster status and forced bootstrap."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from twisted.internet.task import deferLater

from fyrehose_twisted.parcels.client.event_ids import cluster_id_member
from fyrehose_twisted.parcels.client.failover import NodeRequest
from fyrehose_twisted.parcels.client.http_client import ParcelsClient
from fyrehose_twisted.parcels.client.sse_client import InvalidResponse
from fyrehose_twisted.process.terminal import print_error, print_output


async def show_cluster(options: argparse.Namespace, client: ParcelsClient) -> int:
    """Run the command and return its exit status."""
    state = await client.cluster()
    if options.json:
        print_output(json.dumps(state))
        return 0
    try:
        lines = list(_describe_cluster(state))
    except (KeyError, TypeError, ValueError):
        raise InvalidResponse("a node returned a cluster status in an unknown format; try --json") from None
    print_output("\n".join(lines))
    return 0


async def reform(options: argparse.Namespace, client: ParcelsClient) -> int:
    """Run the command and return its exit status."""
    state = await client.cluster()
    (node,) = client.nodes.urls
    name, mode, sequence = state.get("name"), state.get("mode"), state.get("sequence")
    if not options.yes:
        print(
            f"Node {name} at {node} is in mode {mode}: {state.get('why')}\n"
            f"It would continue alone after event {sequence}. Other nodes can join it as new members; running\n"
            "nodes of the old cluster have to be restarted without their state. If another node has a higher\n"
            "number, choose that node instead. To proceed, pass --yes.",
            file=sys.stderr,
        )
        return print_error("nothing was done")
    data = json.dumps({"reform": options.cluster}).encode()
    headers = {"Content-Type": "application/json"}
    answer = await client.nodes.request(NodeRequest("POST", "/cluster/reform", data, headers))
    print_output(f"node {name} continues alone after event {sequence}, mode {answer.field('mode')}")
    return 0


async def transfer_leadership(options: argparse.Namespace, client: ParcelsClient, reactor: Any) -> int:
    """Run the command for one node and return its exit status.

    :raises NotLeader: if the node does not lead.
    """
    end = reactor.seconds() + options.timeout
    data = json.dumps({} if options.to is None else {"to": options.to}).encode()
    headers = {"Content-Type": "application/json"}
    answer = await client.nodes.request(NodeRequest("POST", "/cluster/transfer", data, headers))
    successor = answer.field("to")
    while True:
        state = await client.cluster()
        if state.get("leader") == successor:
            print_output(f"{successor} orders events, term {state.get('term'):,}")
            return 0
        if reactor.seconds() > end:
            return print_error(f"{successor} has not taken over within {options.timeout:g} s; see its log")
        await deferLater(reactor, 0.05, lambda: None)


async def remove(options: argparse.Namespace, client: ParcelsClient, reactor: Any) -> int:
    """Run the command for one node and return its exit status.

    :raises NotLeader: if the node does not lead.
    """
    end = reactor.seconds() + options.timeout
    data = json.dumps({"name": options.member}).encode()
    headers = {"Content-Type": "application/json"}
    await client.nodes.request(NodeRequest("POST", "/cluster/remove", data, headers))
    while True:
        members = [member["name"] for member in (await client.cluster())["members"]]
        if options.member not in members:
            print_output(f"{options.member} is removed; members are {', '.join(members)}")
            return 0
        if reactor.seconds() > end:
            return print_error(
                f"{options.member} is still a member after {options.timeout:g} s; see the log of the leader"
            )
        await deferLater(reactor, 0.05, lambda: None)


def _describe_cluster(state: dict[str, Any]) -> Iterable[str]:
    yield f"cluster {state['cluster']}, seen from {state['name']} ({state['incarnation']})"
    yield f"cluster id {cluster_id_member(state) or 'not known'}"
    yield f"mode {state['mode']}: {state['why']}"
    orders = "no node orders events" if state["leader"] is None else f"{state['leader']} orders events"
    yield f"{orders}, term {state['term']:,}"
    held = f"{state['oldest']:,} to {state['sequence']:,}" if state["oldest"] <= state["sequence"] else "none"
    yield f"last event {state['sequence']:,}, held {held}"
    yield ""
    yield f"members, of which {state['quorum']} have to agree"
    yield from _table(
        ("name", "address", "alive", "term", "last event", "lag", "incarnation"),
        (
            (
                member["name"],
                member["address"],
                "yes" if member["alive"] else "no",
                *(_number(member.get(key)) for key in ("term", "sequence", "lag")),
                member["incarnation"],
            )
            for member in state["members"]
        ),
    )
    yield ""
    yield "neighbours"
    yield from _table(
        ("name", "address", "mode", "votes", "protocol", "last heard"),
        (
            (
                neighbour["name"],
                neighbour["address"],
                neighbour["mode"],
                "yes" if neighbour["votes"] else "no",
                "parcels" if neighbour["ours"] else "document 004",
                f"{neighbour['silent']:.1f} s ago",
            )
            for neighbour in state["neighbours"]
        ),
    )


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    lines = [head, *(list(map(str, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
