"""Fixtures for tests of simulated connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sim.tcp.talkers import JoinLines, LengthCodec, Lines, MakeLines


@pytest.fixture(scope="session")
def lines_of() -> MakeLines:
    """Return what makes a network of talkers, given their names."""
    return Lines


@pytest.fixture(scope="session")
def joined() -> JoinLines:
    """Return what makes two talkers, a and b, that are connected."""

    def make(**options: Any) -> Lines:
        lines = Lines("a", "b", **options)
        lines.link("a", "b")
        return lines

    return make


@pytest.fixture(scope="session")
def length_codec() -> Callable[[], LengthCodec]:
    """Return what makes a codec that puts the length in front."""
    return LengthCodec


@pytest.fixture(params=[False, True], ids=["objects", "bytes"])
def codec(request: pytest.FixtureRequest) -> LengthCodec | None:
    """Let messages travel as objects, and then as bytes."""
    return LengthCodec() if request.param else None
