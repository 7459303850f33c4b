"""Fixtures of a small cluster in memory, on a manual clock."""

from __future__ import annotations

import pytest
from parcels.harness import Host, Net


@pytest.fixture
def net() -> Net:
    """Return an empty network; :meth:`Net.node` starts a node."""
    return Net()


@pytest.fixture
def trio(net: Net) -> tuple[Host, Host, Host]:
    """Return three working nodes of one cluster; the first leads."""
    net.node("Ivan", 1, (2, 3), bootstrap=True)
    hosts = net.hosts
    net.run(1.2)
    net.node("Boris", 2, (1, 3))
    net.node("Vera", 3, (1, 2))
    done = net.run(30.0, lambda: all(len(host.node.state(net.now).members) == 3 for host in hosts.values()))
    assert done
    assert net.run(5.0, lambda: all(host.node.mode.value == "Wrk" for host in hosts.values()))
    return hosts["Ivan"], hosts["Boris"], hosts["Vera"]
