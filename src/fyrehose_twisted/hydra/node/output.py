"""Pending outputs of a node."""

from __future__ import annotations

from typing import Any

from fyrehose_twisted.effects import Address, Close, Dial, Peer, Write
from fyrehose_twisted.hydra.events import Event, LinesReceived
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.hydra.wire.messages import Message
from fyrehose_twisted.interfaces import Outputs


class NodeOutput:
    """Pending messages, connection requests and events, and the state to persist before them."""

    def __init__(self) -> None:
        self._persist: DurableState | None = None
        self._writes: dict[Peer, list[Message]] = {}
        self._connection_effects: list[Any] = []
        self._events: list[Event] = []
        self._lines: tuple[int, int, list[bytes]] | None = None

    def persist(self, state: DurableState) -> None:
        """Persist a state before later outputs take effect."""
        self._persist = state

    def write(self, peer: Peer, message: Message) -> None:
        """Queue a message for a link."""
        waiting = self._writes.get(peer)
        if waiting is None:
            self._writes[peer] = [message]
        else:
            waiting.append(message)

    def dial(self, address: Address) -> None:
        """Request to dial an address."""
        self._connection_effects.append(Dial(address))

    def close(self, peer: Peer) -> None:
        """Request to close a link once its messages are written."""
        self._connection_effects.append(Close(peer))

    def emit(self, event: Event) -> None:
        """Queue an event for the application."""
        self._flush_lines()
        self._events.append(event)

    def emit_line(self, term: int, idx: int, line: bytes) -> None:
        """Queue a line from IRC. Consecutive lines become one event."""
        if self._lines is not None:
            known, first, lines = self._lines
            if known == term and first + len(lines) == idx:
                lines.append(line)
                return
        self._flush_lines()
        self._lines = term, idx, [line]

    def drain(self) -> Outputs:
        """Remove and return all pending outputs."""
        self._flush_lines()
        effects: list[Any] = [Write(messages, peer) for peer, messages in self._writes.items()]
        drained = Outputs(self._persist, effects + self._connection_effects, self._events)
        self._persist, self._writes, self._connection_effects, self._events = None, {}, [], []
        return drained

    def _flush_lines(self) -> None:
        if self._lines is not None:
            self._events.append(LinesReceived(*self._lines))
            self._lines = None
