"""Fixtures of the tests on several hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hosts.bridge import Bridge
from suite.spaces import PROGRAMS, refusal


@pytest.fixture
def bridge(tmp_path: Path, program: Callable[[str, str], Path]) -> Iterator[Bridge]:
    """Return a bridge for hosts."""
    for name, package in (*PROGRAMS.items(), ("nft", "nftables")):
        program(name, package)
    if why := refusal():
        pytest.skip(why)
    made = Bridge(tmp_path)
    yield made
    made.close()
