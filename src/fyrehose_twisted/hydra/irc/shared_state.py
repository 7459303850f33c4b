"""State of the application that the leader hands over to nodes that lack it."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.hydra.wire.state_lines import Snapshot, SnapshotAssembler, decode_part, encode_snapshot

ADOPTED = "adopted"
"""Name of a part without content, which begins a snapshot of a leader whose state was incomplete."""
VIEW = "irc"
"""Name of the part that ends a snapshot, and that every node has."""


class StatePart(Protocol):
    """Part of the state."""

    def snapshot(self) -> bytes:
        """Return the state; equal states give equal bytes."""

    def restore(self, data: bytes, /) -> None:
        """Replace the state.

        :raises ValueError: if it is invalid.
        """


class SharedState:
    """State that is a function of the lines, and its completeness on this node.

    A node that received every line since the network was bootstrapped has the complete state. Any other takes over the
    next snapshot. A node with complete state compares, and takes over what differs: it may have received other lines
    than the leader at the end of the last term, or a bot is not a function of the lines.

    A leader without the complete state may adopt the one that it has. Its snapshot then replaces no complete state.

    :param warn: warns the operator.
    :ivar parts: parts by name, the one named :data:`VIEW` last.
    :ivar complete: whether the state of this node is complete.
    :ivar leading: whether this node leads, and so relays snapshots instead of using them.
    :ivar counters: counters since the start.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.parts: Mapping[str, StatePart] = {}
        self.complete = False
        self.leading = False
        self.counters: Counter[str] = Counter()
        self._warn = warn
        self._is_adopted = False
        self._may_replace = True
        self._assembler = SnapshotAssembler()

    def bootstrapped(self) -> None:
        """Take the state of this node for that of the network, which it has just bootstrapped."""
        self.complete, self._is_adopted = True, False

    def adopt(self) -> None:
        """Take the state of this node for that of the network, as no other node has offered any."""
        self.complete = self._is_adopted = True

    def invalidate(self) -> None:
        """Take the state for incomplete: lines are missing."""
        self.complete, self._is_adopted, self._may_replace = False, False, True
        self._assembler.reset()

    def lines(self) -> list[bytes]:
        """Return the lines of a snapshot; a part that fails or is too large is left out."""
        found = encode_snapshot(Snapshot(ADOPTED, b"")) if self._is_adopted else []
        for name, part in self.parts.items():
            try:
                found += encode_snapshot(Snapshot(name, part.snapshot()))
            except UnencodableMessage as error:
                self._failed(name, f"is not handed over: {error}")
            except Exception as error:
                self._failed(name, f"is not handed over: its snapshot failed: {type(error).__name__}: {error}")
        return found

    def line_received(self, line: bytes) -> None:
        """Handle a line of a snapshot."""
        part = decode_part(line)
        found = None if part is None or self.leading else self._assembler.feed(part)
        if found is None or self.leading:
            return
        if found.name == ADOPTED:
            self._may_replace = False
            return
        mine = self.parts.get(found.name)
        if mine is None:
            self.counters["state_unknown"] += 1
        elif self.complete:
            self._compare(found, mine)
        else:
            self._restore(found, mine)
        if found.name == VIEW:
            if not self.complete:
                self.complete = True
                self.counters["state_restored"] += 1
            self._may_replace = True

    def _restore(self, found: Snapshot, mine: StatePart) -> None:
        try:
            mine.restore(found.state)
        except Exception as error:
            self._failed(found.name, f"cannot be restored: {type(error).__name__}: {error}")

    def _compare(self, found: Snapshot, mine: StatePart) -> None:
        try:
            differs = zlib.crc32(mine.snapshot()) != zlib.crc32(found.state)
        except Exception as error:
            self._failed(found.name, f"cannot be compared: {type(error).__name__}: {error}")
            return
        if differs:
            self.counters["state_differs"] += 1
            self._warn(
                f"the state of {found.name} differs from the leader's: lines were lost with the last leader, or it"
                " depends on more than the lines"
            )
            if self._may_replace:
                self._restore(found, mine)

    def _failed(self, name: str, text: str) -> None:
        self.counters["state_failed"] += 1
        self._warn(f"the state of {name} {text}")
