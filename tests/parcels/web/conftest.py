"""Fixtures of a cluster of one node in memory, with its web site on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from parcels.web.harness import FakeSender, Memory, Serve, Served, WaitUntil, reactor, wait_until

from fyrehose_twisted.parcels.web import WebConfig, site


@pytest.fixture
def memory() -> Memory:
    """A cluster of one, in memory."""
    return Memory()


@pytest.fixture
def another() -> type[Memory]:
    """Make more clusters."""
    return Memory


@pytest.fixture
def reached() -> WaitUntil:
    """Let the reactor go on until something is so of which nobody tells."""
    return wait_until


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Let the site of a cluster listen on loopback until the test is over."""
    served: list[Served] = []

    def listening(node: Memory, config: WebConfig | None = None, *, clock: Any = None, **more: Any) -> Served:
        made = site(node, reactor=clock or reactor, config=config, **more)
        served.append(Served(node, made, reactor.listenTCP(0, made, interface="127.0.0.1")))
        return served[-1]

    yield listening
    for one in served:
        one.stop()


@pytest.fixture
def web(memory: Memory, serve: Serve) -> Served:
    """The site of ``memory``."""
    return serve(memory)


@pytest.fixture
def sender() -> FakeSender:
    """What sends to callbacks, without a network."""
    return FakeSender()
