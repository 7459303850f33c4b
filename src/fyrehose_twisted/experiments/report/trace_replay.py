"""Recording of an experiment, read from its trace, and its replay.

A trace has one JSON object per line, in order of time. The first line describes the network. Each further line
describes one change: its time ``t`` in seconds since the start, its kind ``what``, and the nodes concerned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from typing import Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.report.trace_parser import TraceChange, TraceParser, parse_line
from fyrehose_twisted.experiments.report.tree_state import TreeState


@dataclass(frozen=True)
class Recording:
    """Complete trace of an experiment.

    :ivar seed: seed of the experiment; ``None`` if the trace has none.
    :ivar policy: policy of the nodes.
    :ivar locations: initial locations of all nodes.
    :ivar links: initial links as pairs of nodes, the lower number first.
    :ivar network: changes of the network.
    :ivar streams: changes of each stream by key, in order of the keys' first appearance.
    :ivar finish: time of the last change in seconds since the start.
    """

    seed: int | None
    policy: dict[str, Any]
    locations: tuple[float, ...]
    links: frozenset[tuple[int, int]]
    network: tuple[TraceChange, ...]
    streams: dict[bytes, tuple[TraceChange, ...]]
    finish: float

    @classmethod
    def read(cls, lines: Iterable[str]) -> Recording:
        """Read a trace, ignoring empty lines.

        :raises ConfigurationError: if the trace is empty, or a line is malformed, inconsistent or out of order.
        """
        parser: TraceParser | None = None
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                entry = parse_line(line)
                if parser is None:
                    parser = TraceParser(entry)
                else:
                    parser.add(number, entry)
            except (ValueError, RecursionError) as error:
                raise ConfigurationError(f"line {number} of the trace: {error}") from None
        if parser is None:
            raise ConfigurationError("the trace is empty; its first line must describe the network")
        streams = {key: tuple(changes) for key, changes in parser.streams.items()}
        network = tuple(parser.network)
        return cls(parser.seed, parser.policy, parser.locations, parser.links, network, streams, finish=parser.t)

    def key(self, prefix: str = "") -> bytes:
        """Return the only key whose hexadecimal digits begin with ``prefix``.

        :raises ConfigurationError: if no key or several keys match.
        """
        found = [key for key in self.streams if key.hex().startswith(prefix.lower())]
        if len(found) == 1:
            return found[0]
        if not self.streams:
            raise ConfigurationError("the trace has no streams, since no node subscribed")
        some = ", ".join(key.hex()[:12] for key in (found or list(self.streams))[:8])
        if found:
            raise ConfigurationError(f"{len(found)} keys begin with {prefix!r}; give more digits of one of {some}")
        raise ConfigurationError(f"no key begins with {prefix!r}; there are {some}")

    def changes(self, key: bytes) -> Iterator[TraceChange]:
        """Return the changes of a stream and of the network, in the order of the trace.

        :raises ConfigurationError: if the trace has no such stream.
        """
        if key not in self.streams:
            raise ConfigurationError(f"the trace has no stream with key {key.hex()}")
        return merge(self.network, self.streams[key])

    def state_at(self, key: bytes, t: float) -> TreeState:
        """Return the state of a tree after all changes up to and including ``t``.

        :raises ConfigurationError: if the trace has no such stream.
        """
        tree = _TreeReplay(self)
        for change in self.changes(key):
            if change.t > t:
                break
            tree.apply(change)
        return tree.snapshot(t)


class _TreeReplay:
    def __init__(self, recording: Recording) -> None:
        self._locations = list(recording.locations)
        self._links = set(recording.links)
        self._parents: dict[int, int] = {}
        self._suspended: dict[int, tuple[int | None, bool, bool]] = {}
        self._sets: dict[str, set[int]] = {name: set() for name in ("root", "detached", "subscribed", "down")}

    def apply(self, change: TraceChange) -> None:
        kind, node, value = change.kind, change.node, change.value
        sets = self._sets
        if kind in ("attached", "root", "detached", "dropped", "down"):
            if kind == "down" and node not in sets["down"]:
                self._suspended[node] = (self._parents.get(node), node in sets["root"], node in sets["detached"])
            self._parents.pop(node, None)
            sets["root"].discard(node)
            sets["detached"].discard(node)
        if kind == "attached":
            assert isinstance(value, int)
            self._parents[node] = value
        elif kind in sets:
            sets[kind].add(node)
        elif kind == "unsubscribed":
            sets["subscribed"].discard(node)
        elif kind == "up":
            sets["down"].discard(node)
            self._restore(node, kept=bool(value))
        elif kind == "moved":
            assert value is not None
            self._locations[node] = float(value)
        elif kind in ("linked", "unlinked"):
            assert isinstance(value, int)
            link = (min(node, value), max(node, value))
            (self._links.add if kind == "linked" else self._links.discard)(link)

    def _restore(self, node: int, *, kept: bool) -> None:
        parent, root, detached = self._suspended.pop(node, (None, False, False))
        if kept and parent is not None:
            self._parents[node] = parent
        if kept and root:
            self._sets["root"].add(node)
        if kept and detached:
            self._sets["detached"].add(node)

    def snapshot(self, t: float) -> TreeState:
        sets = {name: frozenset(nodes) for name, nodes in self._sets.items()}
        return TreeState(
            t=t,
            locations=tuple(self._locations),
            links=frozenset(self._links),
            parents=dict(self._parents),
            roots=sets["root"],
            detached=sets["detached"],
            subscribers=sets["subscribed"],
            down=sets["down"],
        )
