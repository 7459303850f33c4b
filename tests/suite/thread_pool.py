"""Reactor whose clock and threads stand still until the test moves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock
from twisted.python.failure import Failure


class Pool:
    """A thread pool that runs its work on request."""

    def __init__(self) -> None:
        self._work: list[tuple[Callable[[bool, Any], None], Callable[[], Any]]] = []

    def __len__(self) -> int:
        return len(self._work)

    def callInThreadWithCallback(  # noqa: N802
        self, done: Callable[[bool, Any], None], work: Callable[..., Any], *arguments: Any, **options: Any
    ) -> None:
        self._work.append((done, lambda: work(*arguments, **options)))

    def work(self) -> None:
        done, work = self._work.pop(0)
        try:
            result = work()
        except Exception:
            done(False, Failure())
        else:
            done(True, result)


class PoolReactor(Clock):
    """A fake clock with a controlled thread pool."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool()

    def getThreadPool(self) -> Pool:  # noqa: N802
        return self.pool

    def callFromThread(self, call: Callable[..., Any], *arguments: Any) -> None:  # noqa: N802
        call(*arguments)
