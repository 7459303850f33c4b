from __future__ import annotations

from random import Random

from fyrehose_twisted.freenet.config import NodeConfig
from fyrehose_twisted.freenet.node.context import NodeContext
from fyrehose_twisted.freenet.node.stream import PendingRequest, Stream
from fyrehose_twisted.freenet.policy import Policy


def test_a_node_does_not_wake_up_for_a_request_that_has_ended() -> None:
    context = NodeContext(NodeConfig(1, 0, 0.5, Policy()), Random(1))
    search = PendingRequest(Stream(bytes(20), 8), 1, None, 5, -1, 0.5, None, is_closest=True)
    called: list[float] = []
    context.call_at(1.0, lambda request, now: called.append(now), search)
    context.call_at(2.0, called.append)
    assert context.next_deadline() == 1.0
    search.finished = True
    assert context.next_deadline() == 2.0
    context.tick(2.0)
    assert called == [2.0]
