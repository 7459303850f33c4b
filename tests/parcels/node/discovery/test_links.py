from __future__ import annotations

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.parcels.node.discovery.links import InboundPeer


def test_new_inbound_peer_is_unauthenticated() -> None:
    caller = InboundPeer(Peer(("10.0.0.1", 1), 1, False), 3.0)
    assert (caller.authenticated, caller.expected_proof, caller.member, caller.info, caller.heard_at) == (
        False,
        None,
        None,
        None,
        3.0,
    )
