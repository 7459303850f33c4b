"""Topology of watched fyrehose services: which server sends the stream to which client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fyrehose_twisted.query.monitoring.backbone_clients import UNLISTED
from fyrehose_twisted.query.monitoring.figures import MAIN, ServiceFigures, label, total
from fyrehose_twisted.query.monitoring.findings import ATTENTION, OK
from fyrehose_twisted.query.monitoring.health_rules import MAX_LAG

MAX_NODES = 200
"""Nodes in a topology; the others are counted."""
MAX_SILENCE = 3.0
"""Seconds since the latest KEEPALIVE of a client after which it needs attention. KEEPALIVEs are a second apart."""
UNKNOWN = "unknown"
"""State of a node of which nothing current is known."""
SERVER = "server"
"""Kind of a node that is known only as the server of a watched client."""

_SERVERS = ("backbone", "relay")
_LISTED_AS = {
    "relay": ("relay",),
    "journal": ("journal",),
    "client": ("subscriber", "journal", "other", "publisher"),
    "frontend": ("publisher", "other", "subscriber"),
}
"""Kinds of clients in the list of a server that a watched service may be, by its kind."""
_RESENT = {
    "backbone": "backbone_retransmitted_total",
    "relay": "relay_retransmitted_total",
    "journal": "client_answered_total",
    "client": "client_answered_total",
}
"""Counter of the messages that a node resent to others, by its kind."""
_SCHEME = "fyrehose://"


class WatchedService(NamedTuple):
    """Watched service as in the overview."""

    figures: ServiceFigures
    state: str
    reasons: Sequence[str]
    lag: float | None
    clients: Mapping[str, Any] | None
    """Clients that it lists, as described by
    :meth:`~fyrehose_twisted.query.monitoring.backbone_clients.ClientRates.describe`; ``None`` without a list."""


@dataclass(slots=True)
class _Node:
    id: str
    name: str
    kind: str
    stream: str
    state: str
    reasons: Sequence[str] = ()
    address: str | None = None
    role: str = ""
    group: str = ""
    watched: bool = False
    lag: float | None = None
    missing: float | None = None
    lost: float | None = None
    repaired: float | None = None
    resent: float | None = None
    number: float | None = None
    rate: float | None = None
    parent: _Node | None = None
    link: dict[str, Any] | None = None
    level: int = 0
    more: int = 0

    def json(self) -> dict[str, Any]:
        names = (name for name in self.__slots__ if name != "parent")
        found = {name: getattr(self, name) for name in names}
        return {**found, "reasons": list(self.reasons), "parent": None if self.parent is None else self.parent.id}


@dataclass(slots=True)
class _Listed:
    """Client in the lists of one or more servers of its stream."""

    row: Mapping[str, Any]
    server: _Node
    rank: tuple[bool, bool, float]
    """Plausibility that ``server`` sends it the stream; the lowest is the most plausible."""
    is_current: bool
    taken: bool = field(default=False)
    """Whether it is a watched service."""


def describe_topology(services: Iterable[WatchedService]) -> dict[str, Any]:
    """Return the nodes of all watched streams as JSON, servers before their clients.

    At most :data:`MAX_NODES` are listed, servers and watched services first. The others are counted as ``more`` of
    their server, and in total.
    """
    watched = [(one, _watched_node(one)) for one in services if _takes_part(one.figures)]
    servers = [(one, node) for one, node in watched if node.kind in _SERVERS]
    listed = _listed_clients(servers)
    found: dict[str, _Node] = {}
    for one, node in watched:
        if node.kind != "backbone":
            _connect(one, node, listed, servers, found)
    nodes = [*(node for _, node in servers), *found.values()]
    nodes += [node for _, node in watched if node.kind not in _SERVERS]
    others = [_listed_node(key, client) for key, client in listed.items() if not client.taken]
    nodes += sorted(others, key=lambda node: node.state == OK)
    _break_cycles(nodes)
    for node in nodes:
        node.level = sum(1 for _ in _ancestors(node))
    shown = nodes[:MAX_NODES]
    for node in nodes[MAX_NODES:]:
        if node.parent is not None:
            node.parent.more += 1
    unlisted = sum(node.more for node in nodes) + sum(node.parent is None for node in nodes[MAX_NODES:])
    shown.sort(key=lambda node: node.level)
    return {"nodes": [node.json() for node in shown], "more": unlisted}


def _takes_part(one: ServiceFigures) -> bool:
    stream = label(one.metrics, "stream")
    return one.kind in (*_SERVERS, *_LISTED_AS) and (not stream or stream.startswith(_SCHEME))


def _watched_node(one: WatchedService) -> _Node:
    figures = one.figures
    metrics, kind, name = figures.metrics, figures.kind, figures.scrape.name
    stream = label(metrics, "stream")
    number = total(metrics, f"{kind}_sequence" if kind in _SERVERS else "client_sequence")
    node = _Node(f"service {name}", name, kind, stream, one.state, one.reasons, watched=True, lag=one.lag)
    node.number, node.address = number, _client_label(metrics, "address") or None
    node.missing, node.lost = total(metrics, "client_missing"), total(metrics, "client_lost_total")
    node.repaired, node.resent = total(metrics, "client_repaired_total"), total(metrics, _RESENT.get(kind, ""))
    node.rate = figures.rates.get(MAIN[kind])
    if kind == "backbone" and label(metrics, "member"):
        node.group = stream
        leads, votes = total(metrics, "backbone_leading"), total(metrics, "backbone_witness")
        node.role = "votes" if votes else "leads" if leads else "stands by"
    if one.clients is not None and _sends(node):
        node.more = max(0, int(one.clients["total"]) - sum(row["address"] != UNLISTED for row in one.clients["list"]))
    return node


def _sends(server: _Node) -> bool:
    return server.role in ("", "leads")


def _listed_clients(servers: Iterable[tuple[WatchedService, _Node]]) -> dict[tuple[str, str], _Listed]:
    """Return the listed clients by stream and address, each with the server that most plausibly sends to it."""
    found: dict[tuple[str, str], _Listed] = {}
    for one, server in servers:
        if one.clients is None:
            continue
        is_current = bool(one.clients["up"]) and one.figures.scrape.up
        for row in one.clients["list"]:
            if row["address"] == UNLISTED:
                continue
            silence = row["silent_seconds"]
            rank = (not _sends(server), not is_current, float("inf") if silence is None else silence)
            key = server.stream, row["address"]
            if key not in found or rank < found[key].rank:
                found[key] = _Listed(row, server, rank, is_current)
    return found


def _connect(
    one: WatchedService,
    node: _Node,
    listed: Mapping[tuple[str, str], _Listed],
    servers: Sequence[tuple[WatchedService, _Node]],
    found: dict[str, _Node],
) -> None:
    """Set the server of a watched client; add it to ``found`` if it is not watched."""
    client = _listed_as(node, listed)
    if client is not None:
        client.taken = True
        node.parent, node.link = client.server, _link(client)
        if node.kind == "client":
            node.kind = client.row["kind"]
        if client.row["lag"] is not None and client.is_current:
            # Unlike that of two scrapes, it is of one moment.
            node.lag = client.row["lag"]
        return
    if total(one.figures.metrics, "client_connected") == 0 or not one.figures.scrape.up:
        return
    # A server with an incomplete list may serve it nevertheless.
    incomplete = [server for service, server in servers if _may_serve(service, server, node)]
    address = _client_label(one.figures.metrics, "backbone")
    if len(incomplete) == 1:
        node.parent = incomplete[0]
        node.parent.more = max(0, node.parent.more - 1)
    elif address:
        key = f"server {node.stream} {address}"
        reasons = ("not watched, or behind address translation",)
        node.parent = found.setdefault(key, _Node(key, address, SERVER, node.stream, UNKNOWN, reasons, address))


def _listed_as(node: _Node, listed: Mapping[tuple[str, str], _Listed]) -> _Listed | None:
    """Return the listed client that a watched service is, if there is exactly one.

    Address translation may change the host and keep the port. A service that binds all addresses knows only its port.
    """
    if node.address is None:
        return None
    port, exact, ports = node.address.rpartition(":")[2], [], []
    for (stream, address), client in listed.items():
        if client.taken or client.row["kind"] not in _LISTED_AS[node.kind]:
            continue
        if node.stream and stream and stream != node.stream:
            continue
        if address == node.address:
            exact.append(client)
        elif address.rpartition(":")[2] == port:
            ports.append(client)
    matching = exact or ports
    return matching[0] if len(matching) == 1 else None


def _may_serve(service: WatchedService, server: _Node, node: _Node) -> bool:
    clients = service.clients
    is_partial = clients is None or not clients["up"] or clients["total"] > len(clients["list"])
    return server is not node and _sends(server) and is_partial and node.stream in ("", server.stream)


def _listed_node(key: tuple[str, str], client: _Listed) -> _Node:
    stream, address = key
    row, silence = client.row, client.row["silent_seconds"]
    state, reasons = OK, []
    if not client.is_current:
        state, reasons = UNKNOWN, ["the list of its server is outdated"]
    elif silence is not None and silence > MAX_SILENCE:
        state, reasons = ATTENTION, [f"silent for {silence:.0f} s"]
    elif row["lag"] is not None and row["lag"] > MAX_LAG:
        state, reasons = ATTENTION, [f"{row['lag']:,.0f} messages behind"]
    node = _Node(f"client {stream} {address}", address, row["kind"], stream, state, reasons, address)
    node.lag, node.parent, node.link = row["lag"], client.server, _link(client)
    return node


def _link(client: _Listed) -> dict[str, Any]:
    row = client.row
    return {
        "serves": _sends(client.server) and client.is_current,
        "rate": row["rates"]["delivered"],
        "requests": row["requests"],
        "resent": row["retransmitted"],
        "queued": row["retransmitting"],
    }


def _ancestors(node: _Node) -> Iterator[_Node]:
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def _break_cycles(nodes: Iterable[_Node]) -> None:
    """Make a node of each cycle a root. Lists of different age may contain cycles."""
    for node in nodes:
        seen, one = {node.id}, node
        while one.parent is not None:
            if one.parent.id in seen:
                one.parent = one.link = None
                break
            seen.add(one.parent.id)
            one = one.parent


def _client_label(metrics: Mapping[str, Any], name: str) -> str:
    samples = metrics.get("fyrehose_client_info", ())
    return next((labels[name] for labels, _ in samples if labels.get(name)), "")
