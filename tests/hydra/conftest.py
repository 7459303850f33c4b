"""Fixtures with simulated networks of hydra nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hydra.harness import Cohort, Host, Leader, Net


@pytest.fixture
def net() -> Net:
    """Return an empty network; :meth:`Net.node` starts a node."""
    return Net()


@pytest.fixture
def trio(net: Net) -> tuple[Host, Host, Host]:
    """Return three fully linked nodes; the first leads and is connected to IRC."""
    hosts = net.node("one", 1, bootstrap=True), net.node("two", 2, (1,)), net.node("three", 3, (1, 2))
    assert net.run(30.0, lambda: all(len(host.node._context.registry) == 3 for host in hosts))
    assert net.run(30.0, lambda: hosts[0].irc_online and all(host.node.leader == hosts[0].node.id for host in hosts))
    net.run(0.1)
    return hosts


@pytest.fixture
def cohort(net: Net) -> Cohort:
    """Return a node that follows a scripted leader."""
    return Cohort(net)


@pytest.fixture
def make_cohort(net: Net) -> Callable[..., Cohort]:
    """Return a factory of nodes that follow a scripted leader, by node options."""
    return lambda **options: Cohort(net, **options)


@pytest.fixture
def leader(net: Net) -> Leader:
    """Return a node that leads two scripted nodes."""
    return Leader(net)


@pytest.fixture
def make_leader(net: Net) -> Callable[..., Leader]:
    """Return a factory of nodes that lead two scripted nodes, by node options."""
    return lambda **options: Leader(net, **options)
