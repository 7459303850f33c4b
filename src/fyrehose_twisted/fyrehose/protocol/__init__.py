"""Twisted protocols of fyrehose backbones, subscribers and publishers, made to be subclassed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted._exports import exports

if TYPE_CHECKING:
    from fyrehose_twisted.fyrehose.protocol.backbone import BackboneProtocol as BackboneProtocol
    from fyrehose_twisted.fyrehose.protocol.client import ClientProtocol as ClientProtocol
    from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol as SubscriberProtocol
    from fyrehose_twisted.fyrehose.protocol.journal import JournalProtocol as JournalProtocol
    from fyrehose_twisted.fyrehose.protocol.member import MemberProtocol as MemberProtocol
    from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol as PublisherProtocol
    from fyrehose_twisted.fyrehose.protocol.relay import RelayProtocol as RelayProtocol
    from fyrehose_twisted.fyrehose.protocol.stream import StreamProtocol as StreamProtocol
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "BackboneProtocol": "backbone",
            "ClientProtocol": "client",
            "JournalProtocol": "journal",
            "MemberProtocol": "member",
            "PublisherProtocol": "publisher",
            "RelayProtocol": "relay",
            "StreamProtocol": "stream",
            "SubscriberProtocol": "client",
        },
    )
