"""Invariants of sealed payloads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from fyrehose_twisted.fyrehose.events import MessagesDelivered
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import (
    ADVERSARY,
    PUSH_KINDS,
    ClientInvariant,
    NumbersDurableFirst,
    Participants,
    parse_deliver,
)
from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, unwrap
from fyrehose_twisted.fyrehose.wire.packets import PacketType, Push
from fyrehose_twisted.sealing.payload import decode_header
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.observer import SimPacket

PLAINTEXT = b"publisher"
"""Part of each payload of the workload."""


class SealedContent(NumbersDurableFirst):
    """What publishers send is sealed, and no nonce is used for two messages.

    Messages are deliverable under their lowest number, if a publisher sent them.
    """

    name: ClassVar[str] = "payloads are sealed under nonces of their own"

    sent_kinds = (PacketType.DELIVER, *PUSH_KINDS)

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self.genuine: set[bytes] = set()
        self._nonces: dict[tuple[bytes, bytes, int], bytes] = {}
        self._first: dict[bytes, int] = {}

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if packet.source.name == ADVERSARY:
            return
        if PLAINTEXT in packet.data:
            self.violated("a payload was sent in the clear", packet.source)
        if packet.data[0] != PacketType.DELIVER:
            push = decode(packet.data)
            if isinstance(push, Push) and packet.source in self.by_host:
                self._pushed(packet.source, bytes(push.data))
            return
        super().sent(packet)
        if packet.source is self.participants.backbone.host:
            sequence, data = parse_deliver(packet.data)
            self._first[data] = min(sequence, self._first.get(data, sequence))

    def is_deliverable(self, sequence: int) -> bool:
        """See :class:`NumberedMessages`."""
        data = self.truth.get(sequence)
        return data is not None and data in self.genuine and self._first.get(data) == sequence

    def deliverable(self, first: int, last: int) -> Iterable[int]:
        """See :class:`NumberedMessages`."""
        return filter(self.is_deliverable, range(first, last + 1))

    def _pushed(self, source: Host, data: bytes) -> None:
        header = decode_header(data, 0 if unwrap(data) is None else ENVELOPE_SIZE)
        if header is None:
            self.violated("a publisher sent a payload that is not sealed", source)
        nonce = header.key_id, header.publisher, header.counter
        if self._nonces.setdefault(nonce, data) != data:
            self.violated(f"nonce {header.counter} of {header.publisher.hex()} was used for two messages", source)
        self.genuine.add(data)


class SealedDelivery(ClientInvariant):
    """A subscriber is given only what a publisher published, opened, and each message once."""

    name: ClassVar[str] = "nothing forged or replayed is delivered"

    def __init__(self, participants: Participants, content: SealedContent) -> None:
        super().__init__(participants)
        self._content = content
        self._delivered: dict[object, set[bytes]] = {}
        self._published: set[bytes] = set()

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not isinstance(event, MessagesDelivered):
            return
        # Each payload of the workload is unique.
        delivered = self._delivered.setdefault(self.by_host[host].application, set())
        for message in event.messages:
            if message.payload not in self._content.genuine:
                self.violated(f"{message.sequence} delivered, which no publisher sent", host)
            if not self._is_published(message.data):
                self.violated(f"{message.sequence} delivered as {message.data[:40]!r}, which was not published", host)
            if message.data in delivered:
                self.violated(f"{message.sequence} delivered again", host)
            delivered.add(message.data)

    def _is_published(self, payload: bytes) -> bool:
        if payload not in self._published:
            applications = [each for one in self.participants.clients for each in one.applications]
            self._published = {known for each in applications for known in each.payloads.values()}
        return payload in self._published
