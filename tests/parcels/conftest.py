"""Fixtures of a small cluster in memory, on a manual clock."""

from __future__ import annotations

import pytest
from parcels.harness import Host, Wires


@pytest.fixture
def wires() -> Wires:
    """Return an empty network; :meth:`Wires.node` starts a node."""
    return Wires()


@pytest.fixture
def trio(wires: Wires) -> tuple[Host, Host, Host]:
    """Return three working nodes of one cluster; the first leads."""
    wires.node("Ivan", 1, (2, 3), bootstrap=True)
    hosts = wires.hosts
    wires.run(1.2)
    wires.node("Boris", 2, (1, 3))
    wires.node("Vera", 3, (1, 2))
    done = wires.run(30.0, lambda: all(len(host.node.state(wires.now).members) == 3 for host in hosts.values()))
    assert done
    assert wires.run(5.0, lambda: all(host.node.mode.value == "Wrk" for host in hosts.values()))
    return hosts["Ivan"], hosts["Boris"], hosts["Vera"]
