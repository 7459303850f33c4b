"""Driver that runs a node on a reactor: carries out its outputs and schedules its timer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.interfaces import ConcurrentPersist, INode

CLOCK_RESOLUTION = 1e-3
"""Seconds by which a timer may fire early."""
TIMER_SLACK = 1e-4
"""Seconds by which a timer may be late without being moved."""
HELD_UP = 0.02
"""Seconds by which a deadline is missed if the process was held up, for example by the garbage collector. It is also
three times what is usual for the node."""
MAX_LATE = 1.0
"""Seconds up to which a missed deadline counts towards what is usual."""
CATCH_UP = 0.02
"""Maximum number of seconds for which input is then handled before the timer."""

_log = Logger("fyrehose_twisted.driver")
"""Logger, whose namespace is explicit because compiled code has no frame to find it in."""


class NodeDriver:
    """Driver of one node.

    :param clock: source of ``now`` and of the timer.
    :param perform: carries out one effect.
    :param on_event: passes one event to the application; exceptions are logged and do not stop the node.
    :param persist: makes state durable; an exception stops the node and is passed to ``on_failure``.
    :param on_failure: called once with the exception if ``persist`` fails.
    :param on_effects_done: called after all effects of one turn, before the events of that turn.
    """

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
        self._timer_at = 0.0
        self._catch_up_until: float | None = None
        self._usually_late = 0.0
        self._has_input = False
        self._flushing = False
        self._stopped = False

    @property
    def is_flushing(self) -> bool:
        """Whether :meth:`flush` is running, which ignores further calls."""
        return self._flushing

    def now(self) -> float:
        """Return the time of the node's clock, UTC seconds since 1970."""
        return float(self.clock.seconds())

    def receive_batch(self, batch: Batch) -> None:
        """Pass a batch to the node, which is a datagram node, and carry out its outputs."""
        node: Any = self.node
        node.receive_batch(batch, self.now())
        self.flush()

    def stop(self) -> None:
        """Cancel the timer and ignore all further outputs of the node."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def flush(self) -> None:
        """Carry out the outputs of the node and reschedule the timer. Call it after every input and command."""
        if self._flushing or self._stopped:
            return  # The application called the node from an event handler; the outer call continues.
        self._flushing = self._has_input = True
        try:
            while self._process_outputs():
                pass
        finally:
            self._flushing = False
            self._schedule_timer()

    def _process_outputs(self) -> bool:
        persist, effects, events = self.node.drain()
        if type(persist) is ConcurrentPersist:
            self._carry_out(persist.effects)
            persist = persist.state
        if persist is not None and self._persist is not None:
            try:
                self._persist(persist)
            except Exception as error:
                self.stop()
                if self._on_failure is None:
                    raise
                self._on_failure(error)
                return False
        self._carry_out(effects)
        for event in events:
            if self._stopped:
                return False
            try:
                self._on_event(event)
            except Exception:
                _log.failure("the application failed on {event!r}", event=event)
        return bool(events) and not self._stopped

    def _carry_out(self, effects: list[Any]) -> None:
        for effect in effects:
            self._perform(effect)
        if effects and self._on_effects_done is not None:
            self._on_effects_done()

    def _schedule_timer(self) -> None:
        if self._stopped:
            return
        deadline = self.node.next_deadline()
        timer = self._timer
        if deadline is None:
            if timer is not None:
                timer.cancel()
            self._timer = None
            return
        # An early timer costs one idle tick. Moving it on every datagram costs more. Timers are set relative to a clock
        # that goes on meanwhile, so that the timer of this very deadline is a little late.
        if timer is not None and self._timer_at <= deadline + TIMER_SLACK:
            return
        now = self.now()
        delay = max(0.0, deadline - now)
        self._timer_at = now + delay
        if timer is not None:
            timer.reset(delay)
        else:
            self._timer = self.clock.callLater(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now, deadline = self.now(), self.node.next_deadline()
        if self._input_comes_first(now, deadline):
            self._timer_at, self._timer = now, self.clock.callLater(0.0, self._tick)
            return
        if deadline is not None and now < deadline < now + CLOCK_RESOLUTION:
            now = deadline  # Rounding made the timer fire early, and would again.
        self.node.tick(now)
        self.flush()

    def _input_comes_first(self, now: float, deadline: float | None) -> bool:
        """Return whether the process was held up, and may not have read yet what arrived meanwhile.

        Otherwise a node would miss answers that have long been there.
        """
        if self._catch_up_until is None:
            late = 0.0 if deadline is None else min(max(now - deadline, 0.0), MAX_LATE)
            # Where each turn takes long, being late means nothing.
            is_held_up = late > HELD_UP and late > 3 * self._usually_late
            self._usually_late += (late - self._usually_late) / 8
            if not is_held_up:
                return False
            self._catch_up_until = now + CATCH_UP
        elif not self._has_input or now >= self._catch_up_until:
            self._catch_up_until = None
            return False
        self._has_input = False
        return True
