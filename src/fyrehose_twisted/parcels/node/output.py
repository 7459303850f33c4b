"""Pending outputs of a node."""

from __future__ import annotations

from fyrehose_twisted.effects import Address, Close, Dial, Effect, Peer, Write
from fyrehose_twisted.parcels.events import NodeEvent, OperatorWarning
from fyrehose_twisted.parcels.wire.messages import Message


class NodeOutput:
    """Pending messages, connection requests and events.

    :ivar events: events for the application.
    """

    def __init__(self) -> None:
        self.events: list[NodeEvent] = []
        self._dials: list[Effect] = []
        self._writes: dict[Peer, list[Message]] = {}
        self._closes: list[Peer] = []

    def dial(self, address: Address) -> None:
        """Request to dial an address."""
        self._dials.append(Dial(address))

    def write(self, peer: Peer, message: Message) -> None:
        """Queue a message for a connection."""
        writes = self._writes.get(peer)
        if writes is None:
            self._writes[peer] = [message]
        else:
            writes.append(message)

    def close(self, peer: Peer) -> None:
        """Request to close a connection once its messages are written."""
        self._closes.append(peer)

    def warn(self, text: str) -> None:
        """Emit a warning for the operator."""
        self.events.append(OperatorWarning(text))

    def drain_effects(self) -> list[Effect]:
        """Remove and return the effects to carry out."""
        if not (self._writes or self._dials or self._closes):
            return []
        effects = self._dials
        effects.extend(Write(messages, peer) for peer, messages in self._writes.items())
        effects.extend(Close(peer) for peer in self._closes)
        self._dials, self._writes, self._closes = [], {}, []
        return effects
