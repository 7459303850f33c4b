"""One member of a group without sockets."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.task import Clock

from fyrehose_twisted.fyrehose.events import TakenOver
from fyrehose_twisted.fyrehose.node.member.config import MemberConfig
from fyrehose_twisted.fyrehose.protocol.member import MemberProtocol
from fyrehose_twisted.net.udp import DatagramPort


class MemberBench:
    """A member that runs on a port without a socket, with a fake clock, and its service."""

    def __init__(self, *, witness: bool = False) -> None:
        self.clock = Clock()
        self.clock.advance(1_000.0)
        config = MemberConfig(
            name="a",
            stream="fyrehose://ticks",
            peers=(("127.0.0.1", 9),),
            client_address=("127.0.0.1", 7),
            peer_address=("127.0.0.1", 8),
            witness=witness,
        )
        self.protocol = MemberProtocol(config, rng=Random(1), settle_time=0.0, reactor=self.clock)
        self.protocol.reactor = self.clock
        port: Any = DatagramPort(0, self.protocol, "127.0.0.1", self.clock)  # type: ignore[arg-type]
        port.send = lambda datagrams, peers: None
        port.guard = lambda may_send: None
        port.getHost = lambda: SimpleNamespace(host="127.0.0.1", port=7)
        self.protocol.makeConnection(port)

    def take_over(self) -> None:
        """Report a takeover that skipped 8 numbers."""
        self.protocol.event_received(TakenOver(3, 1, 10, 2, 0.25))

    def problems(self) -> dict[str, int]:
        """As of a service."""
        return {"silent": 2}


@pytest.fixture
def bench() -> MemberBench:
    return MemberBench()
