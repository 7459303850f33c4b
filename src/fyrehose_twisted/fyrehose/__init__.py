"""Fyrehose: a backbone numbers every message and fans it out; clients repair gaps from one another.

Applications subclass :class:`SubscriberProtocol` or :class:`PublisherProtocol` and :func:`join` a backbone. The layers
below: :mod:`~fyrehose_twisted.fyrehose.wire` has packets and codecs, :mod:`~fyrehose_twisted.fyrehose.node` the rules
without I/O, :mod:`~fyrehose_twisted.fyrehose.protocol` the Twisted protocols,
:mod:`~fyrehose_twisted.fyrehose.service` what ``twistd`` runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted._exports import exports

if TYPE_CHECKING:
    from fyrehose_twisted.fyrehose.config import AddressList as AddressList
    from fyrehose_twisted.fyrehose.config import BackboneConfig as BackboneConfig
    from fyrehose_twisted.fyrehose.config import ClientConfig as ClientConfig
    from fyrehose_twisted.fyrehose.config import OutboxConfig as OutboxConfig
    from fyrehose_twisted.fyrehose.config import RepairConfig as RepairConfig
    from fyrehose_twisted.fyrehose.config import Start as Start
    from fyrehose_twisted.fyrehose.config import WindowConfig as WindowConfig
    from fyrehose_twisted.fyrehose.events import Message as Message
    from fyrehose_twisted.fyrehose.events import Messages as Messages
    from fyrehose_twisted.fyrehose.protocol.backbone import BackboneProtocol as BackboneProtocol
    from fyrehose_twisted.fyrehose.protocol.client import ClientProtocol as ClientProtocol
    from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol as SubscriberProtocol
    from fyrehose_twisted.fyrehose.protocol.journal import JournalProtocol as JournalProtocol
    from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol as PublisherProtocol
    from fyrehose_twisted.fyrehose.protocol.relay import RelayProtocol as RelayProtocol
    from fyrehose_twisted.fyrehose.protocol.stream import StreamProtocol as StreamProtocol
    from fyrehose_twisted.fyrehose.service.backbone import BackboneService as BackboneService
    from fyrehose_twisted.fyrehose.service.client import ClientService as ClientService
    from fyrehose_twisted.fyrehose.service.connect import DEFAULT_BACKBONE as DEFAULT_BACKBONE
    from fyrehose_twisted.fyrehose.service.connect import bind_client as bind_client
    from fyrehose_twisted.fyrehose.service.connect import join as join
    from fyrehose_twisted.fyrehose.service.journal import JournalService as JournalService
    from fyrehose_twisted.fyrehose.service.relay import RelayService as RelayService
    from fyrehose_twisted.fyrehose.wire.envelope import MAX_ENVELOPED as MAX_ENVELOPED
    from fyrehose_twisted.fyrehose.wire.envelope import unwrap as unwrap
    from fyrehose_twisted.fyrehose.wire.message_key import add_key as add_key
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "AddressList": "config",
            "BackboneConfig": "config",
            "BackboneProtocol": "protocol",
            "BackboneService": "service",
            "ClientConfig": "config",
            "ClientProtocol": "protocol",
            "ClientService": "service",
            "DEFAULT_BACKBONE": "service",
            "JournalProtocol": "protocol.journal",
            "JournalService": "service.journal",
            "MAX_ENVELOPED": "wire.envelope",
            "Message": "events",
            "Messages": "events",
            "OutboxConfig": "config",
            "PublisherProtocol": "protocol",
            "RelayProtocol": "protocol",
            "RelayService": "service.relay",
            "RepairConfig": "config",
            "Start": "config",
            "StreamProtocol": "protocol",
            "SubscriberProtocol": "protocol",
            "WindowConfig": "config",
            "add_key": "wire.message_key",
            "bind_client": "service",
            "join": "service",
            "unwrap": "wire.envelope",
        },
    )
