"""Peer that supports only document 004, like the reference implementation: one parcel per connection."""

from __future__ import annotations

from collections.abc import Iterable

from zope.interface import implementer

from fyrehose_twisted.effects import Address, Close, Dial, Effect, Peer, Write
from fyrehose_twisted.interfaces import ILinkNode, Outputs
from fyrehose_twisted.parcels.wire.messages import Message, Mode, NodeInfo, Parcel, ParcelType, node_id

MAX_LISTED = 3
"""Neighbours that it lists besides itself. More would break the reference implementation."""


class UnexpectedMessage(AssertionError):
    """The peer got an extension parcel, which it does not support."""


@implementer(ILinkNode)
class ReferencePeer:
    """Peer that asks its neighbours once and answers requests.

    :param name: name of the node.
    :param address: listening address.
    :param neighbours: addresses to ask.
    """

    def __init__(self, name: str, address: Address, neighbours: Iterable[Address]) -> None:
        self.info = NodeInfo(node_id(name), Mode.DSC, name, address)
        self.known: dict[str, NodeInfo] = {}
        self._effects: list[Effect] = [Dial(neighbour) for neighbour in neighbours]

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        if peer.dialled:
            request = Parcel(False, ParcelType.DSC_REQ, self.info.id, self.info)
            self._effects.append(Write((request,), peer))

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`. It does not retry."""

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""

    def receive(self, message: Message, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`.

        :raises UnexpectedMessage: if it is an extension parcel, which would crash the reference implementation.
        """
        if not isinstance(message, Parcel):
            raise UnexpectedMessage(f"{self.info.name} got a {type(message).__name__}")
        if peer.dialled:
            self.known.update((info.name, info) for info in message.neighbours or ())
        elif message.type is ParcelType.DSC_REQ and message.identity is not None:
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
