"""Marks of tests that a compiled build cannot run."""

from __future__ import annotations

import pytest

from fyrehose_twisted.fyrehose.wire import codec

COMPILED = codec.__file__.endswith(".so")
"""True if the nodes under test are compiled."""
REASON = "replaces code of modules that call one another directly when they are compiled"


def require_interpreted() -> None:
    """Skip a test, from a fixture that replaces code, on a compiled build."""
    if COMPILED:
        pytest.skip(f"compiled: {REASON}")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", f"interpreted(reason): the test {REASON}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip marked tests on a compiled build."""
    if COMPILED:
        for item in items:
            mark = item.get_closest_marker("interpreted")
            if mark is not None:
                item.add_marker(pytest.mark.skip(reason=f"compiled: {mark.kwargs.get('reason', REASON)}"))
