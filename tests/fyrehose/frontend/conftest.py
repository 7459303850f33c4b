from __future__ import annotations

import pytest
from suite.frontend_bench import Frontend


@pytest.fixture
def frontend() -> Frontend:
    """Return a frontend with the default limits and without tokens."""
    return Frontend()
