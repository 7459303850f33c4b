"""Freenet: publish/subscribe trees that grow by routing on a ring of locations (document 003).

:class:`FreenetService` runs a node, configured by a :class:`FreenetConfig`. The layers below:
:mod:`~fyrehose_twisted.freenet.wire` has messages, codecs and signatures, :mod:`~fyrehose_twisted.freenet.node` the
rules without I/O, :mod:`~fyrehose_twisted.freenet.protocol` the Twisted protocol,
:mod:`~fyrehose_twisted.freenet.service` what ``twistd`` runs. Experiments with many nodes are in
:mod:`fyrehose_twisted.experiments`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted._exports import exports

if TYPE_CHECKING:
    from fyrehose_twisted.freenet.config import NodeConfig as NodeConfig
    from fyrehose_twisted.freenet.events import Packet as Packet
    from fyrehose_twisted.freenet.policy import Policy as Policy
    from fyrehose_twisted.freenet.protocol import FreenetPeerProtocol as FreenetPeerProtocol
    from fyrehose_twisted.freenet.service.config import FreenetConfig as FreenetConfig
    from fyrehose_twisted.freenet.service.service import FreenetService as FreenetService
    from fyrehose_twisted.freenet.wire.signing import SigningKey as SigningKey
    from fyrehose_twisted.freenet.wire.signing import named_key as named_key
    from fyrehose_twisted.freenet.wire.signing import parse_key as parse_key
    from fyrehose_twisted.freenet.wire.signing import stream_key as stream_key
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "FreenetConfig": "service.config",
            "FreenetPeerProtocol": "protocol",
            "FreenetService": "service.service",
            "NodeConfig": "config",
            "Packet": "events",
            "Policy": "policy",
            "SigningKey": "wire.signing",
            "named_key": "wire.signing",
            "parse_key": "wire.signing",
            "stream_key": "wire.signing",
        },
    )
