"""What a node has decided and not yet handed over."""

from __future__ import annotations

from typing import Any

from fyrehose_twisted.effects import Address, Dial, HangUp, Peer, Write
from fyrehose_twisted.hydra.events import Event, Received
from fyrehose_twisted.hydra.node.durable_state import Vow
from fyrehose_twisted.hydra.wire.messages import Message
from fyrehose_twisted.interfaces import Drained


class Outbox:
    """Messages by link, events in order, and what must be durable before either."""

    def __init__(self) -> None:
        self._persist: Vow | None = None
        self._writes: dict[Peer, list[Message]] = {}
        self._after: list[Any] = []
        self._events: list[Event] = []
        self._lines: tuple[int, int, list[bytes]] | None = None

    def keep(self, vow: Vow) -> None:
        """Make a vow durable."""
        self._persist = vow

    def write(self, peer: Peer, message: Message) -> None:
        """Send a message over one link."""
        waiting = self._writes.get(peer)
        if waiting is None:
            self._writes[peer] = [message]
        else:
            waiting.append(message)

    def dial(self, address: Address) -> None:
        """Open a link."""
        self._after.append(Dial(address))

    def hang_up(self, peer: Peer) -> None:
        """Close a link once everything was written."""
        self._after.append(HangUp(peer))

    def tell(self, event: Event) -> None:
        """Tell the application something."""
        self._end_lines()
        self._events.append(event)

    def deliver(self, term: int, idx: int, line: bytes) -> None:
        """Tell it of a line from IRC; what comes in a row is told together."""
        if self._lines is not None:
            known, first, lines = self._lines
            if known == term and first + len(lines) == idx:
                lines.append(line)
                return
        self._end_lines()
        self._lines = term, idx, [line]

    def drain(self) -> Drained:
        """Take everything."""
        self._end_lines()
        effects: list[Any] = [Write(messages, peer) for peer, messages in self._writes.items()]
        drained = Drained(self._persist, effects + self._after, self._events)
        self._persist, self._writes, self._after, self._events = None, {}, [], []
        return drained

    def _end_lines(self) -> None:
        if self._lines is not None:
            self._events.append(Received(*self._lines))
            self._lines = None
