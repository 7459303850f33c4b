"""Seeds of the simulator: few in ``make test``, more in ``make test-all``."""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def seeds(few: Sequence[int], *, more: Sequence[int]) -> pytest.MarkDecorator:
    """Return a decorator for tests that take ``seeds``: run them with ``few``, and extended with ``more``."""
    return pytest.mark.parametrize(
        "seeds", [pytest.param(few, id="few"), pytest.param(more, id="more", marks=pytest.mark.extended)]
    )
