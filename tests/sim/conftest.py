"""Fixtures for tests of the simulator."""

from __future__ import annotations

import pytest
from sim.worlds import MakeWorld, World


@pytest.fixture(scope="session")
def make_world() -> MakeWorld:
    """Return a factory of networks of recording nodes."""
    return World
