from __future__ import annotations

from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.effects import Peer
from fyrehose_twisted.parcels.node.discovery.dial_target import DIAL_BACKOFF, DialState, DialTarget


def test_failed_dial_backs_off_exponentially() -> None:
    target = DialTarget(("10.0.0.1", 1), 5.0, configured=True)
    assert (target.state, target.next_at) == (DialState.IDLE, 5.0)
    waits = []
    for _ in range(6):
        target.state = DialState.DISCOVERING
        target.connection_closed(10.0, immediately=False)
        assert target.state is DialState.IDLE
        waits.append(target.next_at - 10.0)
    assert waits == [0.25, 0.5, 1.0, 2.0, 2.0, 2.0]
    assert DIAL_BACKOFF == (0.25, 2.0)
    target.peer, target.member = Peer(("10.0.0.1", 1), 1, True), MemberId("Boris", 1)
    target.connection_closed(20.0, immediately=True)
    assert (target.next_at, target.peer, target.member, target.hello) == (20.0, None, None, None)
