"""Fixtures for tests of simulated connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sim.tcp.stream_nodes import LengthCodec, MakeConnectedPair, MakeStreamNetwork, StreamNetwork


@pytest.fixture(scope="session")
def stream_network() -> MakeStreamNetwork:
    """Return a factory of networks of recording stream nodes by name."""
    return StreamNetwork


@pytest.fixture(scope="session")
def connected_pair() -> MakeConnectedPair:
    """Return a factory of two connected nodes, a and b."""

    def make(**options: Any) -> StreamNetwork:
        network = StreamNetwork("a", "b", **options)
        network.link("a", "b")
        return network

    return make


@pytest.fixture(scope="session")
def length_codec() -> Callable[[], LengthCodec]:
    """Return the class of a length-prefix codec."""
    return LengthCodec


@pytest.fixture(params=[False, True], ids=["objects", "bytes"])
def codec(request: pytest.FixtureRequest) -> LengthCodec | None:
    """Run with messages as objects, and as bytes."""
    return LengthCodec() if request.param else None
