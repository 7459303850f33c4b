"""Somebody who speaks only the document, as its reference does: one parcel a connection, and nothing more."""

from __future__ import annotations

from collections.abc import Iterable

from zope.interface import implementer

from fyrehose_twisted.effects import Address, Close, Dial, Effect, Peer, Write
from fyrehose_twisted.interfaces import ILinkNode, Outputs
from fyrehose_twisted.parcels.wire.messages import Message, Mode, NodeInfo, Parcel, ParcelType, node_id

MAX_LISTED = 3
"""Neighbours that it lists next to itself: with more, the reference breaks."""


class UnexpectedMessage(AssertionError):
    """It was sent something that it cannot know."""


@implementer(ILinkNode)
class ReferencePeer:
    """Asks everybody whom it knows for neighbours once, and answers who asks it.

    :param name: of the node.
    :param address: where it listens.
    :param neighbours: whom it asks.
    """

    def __init__(self, name: str, address: Address, neighbours: Iterable[Address]) -> None:
        self.info = NodeInfo(node_id(name), Mode.DSC, name, address)
        self.known: dict[str, NodeInfo] = {}
        self.request_count = 0
        self._effects: list[Effect] = [Dial(neighbour) for neighbour in neighbours]

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        if peer.dialled:
            request = Parcel(False, ParcelType.DSC_REQ, self.info.id, self.info)
            self._effects.append(Write((request,), peer))

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`: it does not try again."""

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""

    def receive(self, message: Message, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`.

        :raises OutOfPlace: if it is none of the document's parcels: the reference would die of it.
        """
        if not isinstance(message, Parcel):
            raise UnexpectedMessage(f"{self.info.name} got a {type(message).__name__}")
        if peer.dialled:
            self.known.update((info.name, info) for info in message.neighbours or ())
        elif message.type is ParcelType.DSC_REQ and message.identity is not None:
            self.request_count += 1
            self.known[message.identity.name] = message.identity
            listed = (*list(self.known.values())[:MAX_LISTED], self.info._replace(mode=Mode.WRK))
            answer = Parcel(True, ParcelType.DSC_RES, self.info.id, listed)
            self._effects.append(Write((answer,), peer))
        self._effects.append(Close(peer))

    def blocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""

    def unblocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""

    def tick(self, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""

    def next_deadline(self) -> float | None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        return None

    def drain(self) -> Outputs:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        effects, self._effects = self._effects, []
        return Outputs(None, effects, [])
