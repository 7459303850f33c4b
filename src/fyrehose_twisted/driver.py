"""The one place that joins a node to a reactor: feed it, do what it wants, re-arm one timer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from fyrehose_twisted.interfaces import INode

CLOCK_RESOLUTION = 1e-3
"""Seconds by which a timer may be early."""


class NodeDriver:
    """Runs one node.

    :param clock: gives ``now`` and carries the timer.
    :param send: carries out one effect.
    :param tell: hands one event to the application; what it raises is logged and does not stop the node.
    :param persist: makes what the node wants durable; what it raises goes to ``failed`` and stops the node.
    :param failed: told once, with the exception, if ``persist`` could not do its work.
    :param sent: called when all effects of one turn were carried out, before the application is told of anything.
    """

    log = Logger()

    def __init__(
        self,
        node: INode,
        clock: IReactorTime,
        *,
        perform: Callable[[Any], None],
        on_event: Callable[[Any], None],
        persist: Callable[[Any], None] | None = None,
        on_failure: Callable[[Exception], None] | None = None,
        on_effects_done: Callable[[], None] | None = None,
    ) -> None:
        self.node = node
        self.clock = clock
        self._perform = perform
        self._on_event = on_event
        self._persist = persist
        self._on_failure = on_failure
        self._on_effects_done = on_effects_done
        self._timer: IDelayedCall | None = None
        self._flushing = False
        self._stopped = False

    def now(self) -> float:
        """UTC seconds since 1970, as the node's clock has them."""
        return float(self.clock.seconds())

    def stop(self) -> None:
        """Let go of the timer; whatever the node wants from now on is not done."""
        self._stopped = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def flush(self) -> None:
        """Do what the node wants and re-arm the timer. Call it after every input and command."""
        if self._flushing or self._stopped:
            return  # An application called back into the node from an event: the outer call goes on.
        self._flushing = True
        try:
            while self._process_outputs():
                pass
        finally:
            self._flushing = False
            self._schedule_timer()

    def _process_outputs(self) -> bool:
        persist, effects, events = self.node.drain()
        if persist is not None and self._persist is not None:
            try:
                self._persist(persist)
            except Exception as error:
                self.stop()
                if self._on_failure is None:
                    raise
                self._on_failure(error)
                return False
        for effect in effects:
            self._perform(effect)
        if effects and self._on_effects_done is not None:
            self._on_effects_done()
        for event in events:
            if self._stopped:
                return False
            try:
                self._on_event(event)
            except Exception:
                self.log.failure("the application failed on {event!r}", event=event)
        return bool(events) and not self._stopped

    def _schedule_timer(self) -> None:
        if self._stopped:
            return
        deadline = self.node.next_deadline()
        timer = self._timer
        if deadline is None:
            if timer is not None and timer.active():
                timer.cancel()
            self._timer = None
            return
        delay = max(0.0, deadline - self.now())
        if timer is not None and timer.active():
            # A timer that fires too early costs one idle tick, moving it on every datagram costs more.
            if timer.getTime() <= deadline:
                return
            timer.reset(delay)
            return
        self._timer = self.clock.callLater(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now, deadline = self.now(), self.node.next_deadline()
        if deadline is not None and now < deadline < now + CLOCK_RESOLUTION:
            now = deadline  # Rounding made the timer a hair early; it would be early again, for ever.
        self.node.tick(now)
        self.flush()
