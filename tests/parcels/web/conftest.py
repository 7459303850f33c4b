"""Fixtures of an in-memory single-node cluster with its web site on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from parcels.web.harness import FakeSender, Memory, Serve, Served, WaitUntil, reactor, wait_until

from fyrehose_twisted.parcels.web import WebConfig, site


@pytest.fixture
def memory() -> Memory:
    """Return an in-memory cluster of one node."""
    return Memory()


@pytest.fixture
def another() -> type[Memory]:
    """Return a factory of further clusters."""
    return Memory


@pytest.fixture
def reached() -> WaitUntil:
    """Return a function that runs the reactor until a condition holds."""
    return wait_until


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that serves the site of a cluster on loopback during the test."""
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
    """Return the served site of ``memory``."""
    return serve(memory)


@pytest.fixture
def sender() -> FakeSender:
    """Return a webhook sender without a network."""
    return FakeSender()
