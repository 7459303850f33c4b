"""Parser and validation of the lines of a trace."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from fyrehose_twisted.freenet.wire.location import KEY_SIZE
from fyrehose_twisted.freenet.wire.messages import MAX_PACKET

STREAM_CHANGES = {
    "attached": "parent",
    "root": None,
    "detached": None,
    "dropped": None,
    "subscribed": None,
    "unsubscribed": None,
    "published": "number",
    "delivered": "number",
}
"""Changes of a stream, each with its field besides key and node."""

NETWORK_CHANGES = {"down": None, "up": None, "moved": "location", "linked": "b", "unlinked": "b"}
"""Changes of the network, which affect all streams, each with its field besides the node.

A node that comes ``up`` has ``kept`` (true) its streams if it was only disconnected. Otherwise it starts without them.
"""

MAX_DURATION = 1e9
"""Maximum duration of a recording in seconds."""

_KEY = re.compile(rf"[0-9a-f]{{{2 * KEY_SIZE}}}")
_REQUIRE_RUNNING_NODE = frozenset({"attached", "root", "detached", "published", "delivered"})


class TraceChange(NamedTuple):
    """Change in a trace. Changes sort in the order of the trace."""

    line: int
    """Line number in the trace."""
    t: float
    """Seconds since the start."""
    kind: str
    """A key of :data:`STREAM_CHANGES` or of :data:`NETWORK_CHANGES`."""
    node: int
    value: int | float | None = None
    """Parent, packet number, location or other end of a link, depending on the kind. For ``up``, 1 if the node kept its
    streams."""


class TraceParser:
    """Incremental parser of a trace.

    :ivar seed: seed of the experiment; ``None`` if the trace has none.
    :ivar policy: policy of the nodes.
    :ivar locations: initial locations of all nodes.
    :ivar links: initial links as pairs of nodes, the lower number first.
    :ivar network: changes of the network.
    :ivar streams: changes of each stream by key, in order of the keys' first appearance.
    :ivar t: time of the last change.
    :raises ValueError: if the first line does not describe a network.
    """

    def __init__(self, entry: dict[str, Any]) -> None:
        if entry.get("what") != "network":
            raise ValueError(f"what is {_abbreviate(entry.get('what'))}: the first line must describe the network")
        self.t = _time(entry.get("t"))
        locations = entry.get("locations")
        if not isinstance(locations, list) or not locations:
            raise ValueError("locations is not a list of one location or more")
        self.locations = tuple(_location(location) for location in locations)
        links = entry.get("links")
        if not isinstance(links, list) or not all(isinstance(link, list) and len(link) == 2 for link in links):
            raise ValueError("links is not a list of pairs of nodes")
        self.links = frozenset(self._link(one, other) for one, other in links)
        self.seed = entry.get("seed")
        if self.seed is not None and (isinstance(self.seed, bool) or not isinstance(self.seed, int)):
            raise ValueError(f"seed is {_abbreviate(self.seed)}, not a whole number")
        self.policy = entry.get("policy", {})
        if not isinstance(self.policy, dict):
            raise ValueError(f"policy is {_abbreviate(self.policy)}, not an object")
        self.network: list[TraceChange] = []
        self.streams: dict[bytes, list[TraceChange]] = {}
        self._down: dict[int, float] = {}

    def add(self, line: int, entry: dict[str, Any]) -> None:
        """Add a further line.

        :param line: number of the line.
        :raises ValueError: if the entry is malformed, inconsistent or out of order.
        """
        kind = entry.get("what")
        if not isinstance(kind, str) or not (kind in STREAM_CHANGES or kind in NETWORK_CHANGES):
            known = ", ".join([*STREAM_CHANGES, *NETWORK_CHANGES])
            raise ValueError(f"what is {_abbreviate(kind)}; after the first line it is one of {known}")
        t = _time(entry.get("t"))
        if t < self.t:
            raise ValueError(f"t is {t}, but the previous line has {self.t}; sort the trace by time")
        self.t = t
        if kind in NETWORK_CHANGES:
            self._add_to_network(line, t, kind, entry)
            return
        node = self._node("node", entry.get("node"))
        if kind in _REQUIRE_RUNNING_NODE and node in self._down:
            raise ValueError(f"node {node} is {kind}, but has been down since {self._down[node]} s")
        name = STREAM_CHANGES[kind]
        value = None
        if name == "parent":
            value = self._node(name, entry.get(name))
            if value == node:
                raise ValueError(f"node {node} is its own parent")
        elif name == "number":
            value = _packet(entry.get(name))
        key = _key(entry.get("key"))
        self.streams.setdefault(key, []).append(TraceChange(line, t, kind, node, value))

    def _add_to_network(self, line: int, t: float, kind: str, entry: dict[str, Any]) -> None:
        value: int | float | None = None
        if NETWORK_CHANGES[kind] == "b":
            node, value = self._link(entry.get("a"), entry.get("b"))
        else:
            node = self._node("node", entry.get("node"))
        if kind == "down":
            self._down.setdefault(node, t)
        elif kind == "up":
            self._down.pop(node, None)
            value = _kept(entry.get("kept", False))
        elif kind == "moved":
            value = _location(entry.get("location"))
        self.network.append(TraceChange(line, t, kind, node, value))

    def _link(self, one: object, other: object) -> tuple[int, int]:
        low, high = sorted((self._node("a", one), self._node("b", other)))
        if low == high:
            raise ValueError(f"node {low} is linked to itself")
        return low, high

    def _node(self, name: str, value: object) -> int:
        count = len(self.locations)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
            raise ValueError(f"{name} is {_abbreviate(value)}; the nodes are 0 to {count - 1}")
        return value


def parse_line(line: str) -> dict[str, Any]:
    """Return the JSON object on a line.

    :raises ValueError: if the line is not a JSON object.
    :raises RecursionError: if the object is nested too deeply.
    """
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(entry, dict):
        raise ValueError("not an object")
    return entry


def _time(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_DURATION:
        raise ValueError(f"t is {_abbreviate(value)}, not a time from 0 to {MAX_DURATION:.0f} s")
    return float(value)


def _location(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"location {_abbreviate(value)}: it goes from 0 up to, but not including, 1")
    return float(value)


def _packet(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_PACKET:
        raise ValueError(f"number is {_abbreviate(value)}, not a packet number")
    return value


def _kept(value: object) -> int:
    if not isinstance(value, bool):
        raise ValueError(f"kept is {_abbreviate(value)}, neither true nor false")
    return int(value)


def _key(value: object) -> bytes:
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise ValueError(f"key is {_abbreviate(value)}, not {2 * KEY_SIZE} hexadecimal digits in lower case")
    return bytes.fromhex(value)


def _abbreviate(value: object) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
