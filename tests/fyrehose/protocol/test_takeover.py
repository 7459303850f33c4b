"""Protocols of clients of several backbones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Burst, Datagram, Send
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.packets import Deliver, Keepalive, KeepaliveAck, Leader, Packet
from fyrehose_twisted.fyrehose.wire.term_start import TermStart, encode_term_start
from fyrehose_twisted.interfaces import IDatagramSender, ISeamListener, ISubscriber

A: Address = ("192.0.2.1", 2323)
B: Address = ("192.0.2.2", 2323)


@implementer(IDatagramSender)
class Port:
    def __init__(self) -> None:
        self.sent: list[tuple[Packet, Address]] = []

    def send(self, datagrams: Sequence[Datagram | Burst], peers: Sequence[Address]) -> None:
        for datagram in Send(datagrams, peers).iter_datagrams():
            self.sent += [(decode(datagram), peer) for peer in peers]


class Recording(SubscriberProtocol):
    def __init__(self) -> None:
        super().__init__(ClientConfig(start=1))
        self.told: list[Any] = []

    def messages_received(self, messages: Sequence[Message]) -> None:
        self.told += [message.sequence for message in messages]

    def messages_lost(self, first: int, last: int) -> None:
        self.told.append(("lost", first, last))

    def numbers_skipped(self, first: int, last: int) -> None:
        self.told.append(("skipped", first, last))

    def term_started(self, term: int, held_up_to: int, first: int) -> None:
        self.told.append(("term", term, held_up_to, first))

    def leader_changed(self, backbone: Address, term: int) -> None:
        self.told.append(("leader", backbone, term))


def test_a_subscriber_provides_the_interfaces_of_a_stream_with_terms() -> None:
    assert verifyObject(ISubscriber, SubscriberProtocol())
    assert verifyObject(ISeamListener, SubscriberProtocol())


def test_a_subscriber_reports_the_leader_and_the_seam_in_order() -> None:
    clock, port, subscriber = Clock(), Port(), Recording()
    clock.advance(1_000.0)
    subscriber.reactor = clock
    subscriber.backbones = (A, B)
    subscriber.makeConnection(port)
    clock.advance(0.0)

    def receive(*packets: Packet, peer: Address) -> None:
        subscriber.batch_received(Batch.pack([(encode(packet), peer) for packet in packets]))

    token = next(packet.token for packet, peer in port.sent if isinstance(packet, Keepalive) and peer == A)
    receive(Leader(token, 3, A), KeepaliveAck(token), Deliver(1, b"one"), peer=A)
    with capturedLogs() as logged:
        receive(Leader(token, 4, B, True), peer=B)
    receive(Deliver(9, encode_term_start(TermStart(4, 1, 9))), Deliver(10, b"ten"), peer=B)
    assert subscriber.told == [("leader", A, 3), 1, ("leader", B, 4), ("skipped", 2, 8), ("term", 4, 1, 9), 10]
    assert subscriber.backbone == B
    (event,) = [event for event in logged if "term" in event]
    assert event["log_format"].format(**event) == "backbone 192.0.2.2:2323 leads in term 4"
