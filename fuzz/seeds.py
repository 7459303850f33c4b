"""Seed inputs: the test vectors of the protocols, and messages encoded by the library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

VECTORS = Path(__file__).resolve().parents[1] / "tests" / "vectors"

Drawn = TypeVar("Drawn")


def vectors(protocol: str) -> list[dict[str, Any]]:
    """Return the test vectors of a protocol."""
    found: list[dict[str, Any]] = json.loads((VECTORS / f"{protocol}.json").read_text())
    return found


def bytes_of(protocol: str) -> list[bytes]:
    """Return the bytes of the test vectors of a protocol; of a transcript, all sent data."""
    found = []
    for vector in vectors(protocol):
        if "hex" in vector:
            found.append(bytes.fromhex(vector["hex"]))
            continue
        lines = [vector["line"], *(step.get("line") for step in vector.get("steps", ()))]
        found.append("".join(filter(None, lines)).encode("utf-8", "surrogateescape"))
    return [data for data in found if len(data) <= 4_096]


def draw(strategy: st.SearchStrategy[Drawn], count: int = 40) -> list[Drawn]:
    """Return reproducible examples of ``strategy``."""
    found: list[Drawn] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: Drawn) -> None:
        found.append(value)

    collect()
    return found
