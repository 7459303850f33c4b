"""Deferreds as awaitables of asyncio."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from twisted.internet.defer import Deferred

T = TypeVar("T")


def wake(waiter: asyncio.Future[None]) -> None:
    """Fire a Future that may have been cancelled."""
    if not waiter.done():
        waiter.set_result(None)


async def result_of(deferred: Deferred[T]) -> T:
    """Wait for a Deferred. Cancelling this cancels the Deferred.

    :raises Exception: what it failed with.
    """
    return await deferred.asFuture(asyncio.get_running_loop())
