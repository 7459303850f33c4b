"""Loads in forked processes, with a reactor if required."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from typing import Any

from parcels.nodes import Unfit


def in_child(work: Callable[..., Any], *arguments: object, patience: float = 60.0) -> Any:
    """Return the result of ``work`` in a forked process. :raises Unfit: if it raises anything."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def run() -> None:
        try:
            theirs.send((True, work(*arguments)))
        except BaseException:
            theirs.send((False, traceback.format_exc()))

    process = context.Process(target=run)
    process.start()
    theirs.close()
    try:
        if not ours.poll(patience):
            raise Unfit(f"{work.__name__} did not end within {patience:g} s")
        done, answer = ours.recv()
        process.join(2)
    except EOFError:
        raise Unfit(f"{work.__name__} died") from None
    finally:
        if process.is_alive():
            process.kill()
        process.join()
        ours.close()
    if not done:
        raise Unfit(answer)
    return answer


def run_in_reactor(work: Callable[[Any], Any]) -> Any:
    """Return the result of the coroutine function ``work``, run with the reactor of this process, which then stops."""
    from twisted.internet import reactor
    from twisted.internet.defer import ensureDeferred
    from twisted.python.failure import Failure

    results: list[Any] = []

    def begin() -> None:
        ensureDeferred(work(reactor)).addBoth(end)

    def end(result: Any) -> None:
        results.append(result)
        reactor.stop()

    reactor.callWhenRunning(begin)
    reactor.run()
    (result,) = results
    if isinstance(result, Failure):
        result.raiseException()
    return result
