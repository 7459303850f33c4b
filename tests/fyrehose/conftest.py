from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

Vector = dict[str, Any]
"""Object of fyrehose.json, with its bytes under ``datagram``."""

PATH = Path(__file__).parent.parent / "vectors" / "fyrehose.json"
VECTORS: list[Vector] = json.loads(PATH.read_text(encoding="utf-8"))


def expand(vector: Vector) -> Vector:
    fill = vector.get("fill", {"byte": "", "count": 0})
    datagram = bytes.fromhex(vector["hex"]) + bytes.fromhex(fill["byte"]) * fill["count"]
    assert len(datagram) == vector["size"]
    assert sha256(datagram).hexdigest() == vector["sha256"]
    return vector | {"datagram": datagram}


def of_kind(*kinds: str) -> list[Any]:
    return [pytest.param(vector, id=vector["name"]) for vector in VECTORS if vector["kind"] in kinds]


@pytest.fixture(params=of_kind("golden", "reading"))
def golden(request: pytest.FixtureRequest) -> Vector:
    """Packet of the documents, or of our reading of an open point."""
    return expand(request.param)


@pytest.fixture(params=of_kind("malformed", "contradiction"))
def malformed(request: pytest.FixtureRequest) -> Vector:
    """Return a malformed datagram."""
    return expand(request.param)


@pytest.fixture(params=of_kind("edge"))
def edge(request: pytest.FixtureRequest) -> Vector:
    """Well-formed packet that is dangerous or misleading."""
    return expand(request.param)


@pytest.fixture(scope="session")
def vectors() -> dict[str, Vector]:
    """All vectors by name."""
    return {vector["name"]: expand(vector) for vector in VECTORS}
