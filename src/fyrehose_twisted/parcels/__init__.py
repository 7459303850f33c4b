"""Parcels: a cluster that keeps one order for an unbounded stream of events (document 004).

:class:`ParcelsNode` runs a node, configured by a :class:`ParcelsConfig`; :class:`ParcelsClient` (HTTP) and
:class:`ParcelsPublisher` (TCP) use a cluster. The layers below: :mod:`~fyrehose_twisted.parcels.wire` has messages and
codecs, :mod:`~fyrehose_twisted.parcels.node` the rules without I/O, :mod:`~fyrehose_twisted.parcels.protocol` the
Twisted protocol, :mod:`~fyrehose_twisted.parcels.service` what ``twistd`` runs, :mod:`~fyrehose_twisted.parcels.web`
the HTTP interface.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted._exports import exports

if TYPE_CHECKING:
    from fyrehose_twisted.parcels.client.http_client import ParcelsClient as ParcelsClient
    from fyrehose_twisted.parcels.client.sse_client import OrderedEvent as OrderedEvent
    from fyrehose_twisted.parcels.client.tcp_publisher import ParcelsPublisher as ParcelsPublisher
    from fyrehose_twisted.parcels.config import NodeConfig as NodeConfig
    from fyrehose_twisted.parcels.protocol import ParcelProtocol as ParcelProtocol
    from fyrehose_twisted.parcels.replicated_state import ReplicatedState as ReplicatedState
    from fyrehose_twisted.parcels.service.config import ParcelsConfig as ParcelsConfig
    from fyrehose_twisted.parcels.service.service import ParcelsNode as ParcelsNode
    from fyrehose_twisted.parcels.service.storage import Storage as Storage
    from fyrehose_twisted.parcels.wire.messages import Event as Event
    from fyrehose_twisted.parcels.wire.messages import Mode as Mode
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "ParcelsConfig": "service.config",
            "Event": "wire.messages",
            "Mode": "wire.messages",
            "NodeConfig": "config",
            "OrderedEvent": "client.sse_client",
            "ParcelProtocol": "protocol",
            "ParcelsClient": "client.http_client",
            "ParcelsNode": "service.service",
            "ParcelsPublisher": "client.tcp_publisher",
            "ReplicatedState": "replicated_state",
            "Storage": "service.storage",
        },
    )
