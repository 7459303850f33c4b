"""Event loops that tests of clients on asyncio run on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

try:
    import uvloop
except ImportError:
    uvloop = None
else:
    # From its first loop on, it keeps a pipe, which is no leak of the test that comes first.
    uvloop.run(asyncio.sleep(0))

DEADLINE = 60.0
"""Seconds after which a test has failed."""

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def on_asyncio(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, DEADLINE))


def on_uvloop(main: Coroutine[Any, Any, Any]) -> Any:
    return uvloop.run(asyncio.wait_for(main, DEADLINE))


LOOPS = [
    pytest.param(on_asyncio, id="asyncio"),
    pytest.param(
        on_uvloop,
        id="uvloop",
        marks=[pytest.mark.extended, pytest.mark.skipif(uvloop is None, reason="uvloop is not installed")],
    ),
]
"""Parameters of a fixture that runs a coroutine."""
