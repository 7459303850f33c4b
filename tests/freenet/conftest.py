"""Fixtures of one node with simulated neighbours."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from suite.freenet_bench import Bench

from fyrehose_twisted.freenet.wire.messages import RejectedLoop


@pytest.fixture
def bench() -> Bench:
    """Node at distance 0.2 from the key, with neighbours 1 to 4 at distances 0.1, 0.15, 0.3 and 0.4."""
    return Bench(0.2, {1: 0.1, 2: -0.15, 3: 0.3, 4: -0.4})


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    """Factory of benches: distance of the node, distances of its neighbours by number, and policy settings."""
    return Bench


@pytest.fixture
def root(bench: Bench) -> Bench:
    """The same node, subscribed without nodes near the key: the root, with neighbours 3 and 4."""
    bench.disconnect(1)
    bench.disconnect(2)
    bench.call("move", bench.at(0.05))
    bench.call("subscribe", bench.key)
    for _ in (3, 4):
        number, request = bench.take_request()
        bench.receive(number, RejectedLoop(request.uid))
    assert bench.stream.is_root
    bench.sent.clear()
    bench.events.clear()
    return bench


@pytest.fixture
def member(bench: Bench) -> Bench:
    """The same node, subscribed, with parent 1 and a root located on the key."""
    bench.attach()
    return bench
