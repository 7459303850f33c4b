"""What happened in an experiment, read from its trace.

A trace is text, a JSON object on each line, in order of time. The first tells of the network, each further one of a
change: when (``t``, in seconds since the start), ``what``, and to whom.
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
    """A trace.

    :ivar seed: of the experiment; ``None`` if the trace does not say.
    :ivar policy: what the nodes were told.
    :ivar locations: of all nodes, at the start.
    :ivar links: pairs of nodes, the lower number first, at the start.
    :ivar network: changes of the network.
    :ivar streams: changes of each stream, by key, in the order in which the keys appear.
    :ivar finish: when the last change was, in seconds since the start.
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
        """Read a trace; empty lines do not count.

        :raises ConfigurationError: if a line is malformed, impossible or out of order, and says which; or if there is
            none.
        """
        reading: TraceParser | None = None
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                entry = parse_line(line)
                if reading is None:
                    reading = TraceParser(entry)
                else:
                    reading.add(number, entry)
            except (ValueError, RecursionError) as error:
                raise ConfigurationError(f"line {number} of the trace: {error}") from None
        if reading is None:
            raise ConfigurationError("the trace is empty: its first line has to tell of the network")
        streams = {key: tuple(changes) for key, changes in reading.streams.items()}
        network = tuple(reading.network)
        return cls(reading.seed, reading.policy, reading.locations, reading.links, network, streams, finish=reading.t)

    def key(self, prefix: str = "") -> bytes:
        """Return the one key whose hexadecimal digits begin with ``prefix``.

        :raises ConfigurationError: if there is none, or several.
        """
        found = [key for key in self.streams if key.hex().startswith(prefix.lower())]
        if len(found) == 1:
            return found[0]
        if not self.streams:
            raise ConfigurationError("the trace has no streams: nobody subscribed")
        some = ", ".join(key.hex()[:12] for key in (found or list(self.streams))[:8])
        if found:
            raise ConfigurationError(f"{len(found)} keys begin with {prefix!r}; give more of one of {some}")
        raise ConfigurationError(f"no key begins with {prefix!r}; there are {some}")

    def changes(self, key: bytes) -> Iterator[TraceChange]:
        """Return what happened to a stream and to the network, in the order of the trace.

        :raises ConfigurationError: if the trace has no such stream.
        """
        if key not in self.streams:
            raise ConfigurationError(f"the trace has no stream with key {key.hex()}")
        return merge(self.network, self.streams[key])

    def state_at(self, key: bytes, t: float) -> TreeState:
        """Return the tree of a key after all that happened until ``t``, with what happened just then.

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
        what, node, value = change.kind, change.node, change.value
        sets = self._sets
        if what in ("attached", "root", "detached", "dropped", "down"):
            if what == "down" and node not in sets["down"]:
                self._suspended[node] = (self._parents.get(node), node in sets["root"], node in sets["detached"])
            self._parents.pop(node, None)
            sets["root"].discard(node)
            sets["detached"].discard(node)
        if what == "attached":
            assert isinstance(value, int)
            self._parents[node] = value
        elif what in sets:
            sets[what].add(node)
        elif what == "unsubscribed":
            sets["subscribed"].discard(node)
        elif what == "up":
            sets["down"].discard(node)
            self._restore(node, kept=bool(value))
        elif what == "moved":
            assert value is not None
            self._locations[node] = float(value)
        elif what in ("linked", "unlinked"):
            assert isinstance(value, int)
            link = (min(node, value), max(node, value))
            (self._links.add if what == "linked" else self._links.discard)(link)

    def _restore(self, node: int, *, kept: bool) -> None:
        parent, root, detached = self._suspended.pop(node, (None, False, False))
        if kept and parent is not None:
            self._parents[node] = parent
        if kept and root:
            self._sets["root"].add(node)
        if kept and detached:
            self._sets["detached"].add(node)

    def snapshot(self, t: float) -> TreeState:
        sets = {name: frozenset(some) for name, some in self._sets.items()}
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
