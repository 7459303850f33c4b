"""Simulator seeds: few in ``make test``, more in ``make test-all``."""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def seeds(few: Sequence[int], *, more: Sequence[int]) -> pytest.MarkDecorator:
    """Return a decorator that runs a test with ``few`` seeds, and as extended test with ``more``."""
    return pytest.mark.parametrize(
        "seeds", [pytest.param(few, id="few"), pytest.param(more, id="more", marks=pytest.mark.extended)]
    )
