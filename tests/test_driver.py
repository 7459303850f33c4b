from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent, capturedLogs
from zope.interface import implementer

from fyrehose_twisted.driver import CATCH_UP, HELD_UP, NodeDriver
from fyrehose_twisted.effects import Send
from fyrehose_twisted.interfaces import ConcurrentPersist, INode, Outputs

PEER = ("192.0.2.7", 2323)
NOTHING = Outputs(None, [], [])


def sending(word: str) -> Send:
    return Send([word.encode()], [PEER])


@implementer(INode)
class ScriptedNode:
    """A node with scripted outputs."""

    def __init__(self) -> None:
        self.wanted: list[Outputs] = []
        self.deadline: float | None = None
        self.ticks: list[float] = []
        self.drains = 0
        self.on_tick: Callable[[float], None] = lambda now: None

    def want(self, persist: object = None, effects: tuple[str, ...] = (), events: tuple[object, ...] = ()) -> None:
        self.wanted.append(Outputs(persist, list(map(sending, effects)), list(events)))

    def tick(self, now: float) -> None:
        self.ticks.append(now)
        if self.deadline is not None and self.deadline <= now:
            self.deadline = None  # Otherwise the clock would tick endlessly.
        self.on_tick(now)

    def next_deadline(self) -> float | None:
        return self.deadline

    def drain(self) -> Outputs:
        self.drains += 1
        return self.wanted.pop(0) if self.wanted else NOTHING


class Driven:
    """A driver with a scripted node and a fake clock, recording its actions in order."""

    def __init__(self, *, start: float = 1_000.0, **options: Any) -> None:
        self.done: list[tuple[str, object]] = []
        self.node = ScriptedNode()
        self.clock = Clock()
        self.clock.advance(start)
        self.on_event: Callable[[object], None] = lambda event: None
        self.on_persist: Callable[[object], None] = lambda mark: None
        options.setdefault("persist", self.persist)
        options.setdefault("on_failure", lambda error: self.done.append(("failed", error)))
        self.driver = NodeDriver(self.node, self.clock, perform=self.send, on_event=self.tell, **options)

    def persist(self, mark: object) -> None:
        self.done.append(("persist", mark))
        self.on_persist(mark)

    def send(self, effect: Send) -> None:
        self.done.append(("send", b"".join(map(bytes, effect.iter_datagrams())).decode()))

    def tell(self, event: object) -> None:
        self.done.append(("tell", event))
        self.on_event(event)

    @property
    def timers(self) -> list[float]:
        return [call.getTime() for call in self.clock.getDelayedCalls()]

    def wake_at(self, deadline: float | None) -> None:
        self.node.deadline = deadline
        self.driver.flush()


@pytest.fixture
def driven() -> Driven:
    return Driven()


@pytest.fixture
def logged() -> Iterator[list[LogEvent]]:
    with capturedLogs() as events:
        yield events


class TestOrder:
    def test_the_driver_persists_then_performs_effects_then_emits_events(self, driven: Driven) -> None:
        driven.node.want("mark", ("a", "b"), (1, 2))
        driven.driver.flush()
        assert driven.done == [("persist", "mark"), ("send", "a"), ("send", "b"), ("tell", 1), ("tell", 2)]

    def test_concurrent_effects_come_before_the_state_and_all_others_after(self, driven: Driven) -> None:
        driven.node.want(ConcurrentPersist([sending("first")], "mark"), ("a",), (1,))
        driven.driver.flush()
        assert driven.done == [("send", "first"), ("persist", "mark"), ("send", "a"), ("tell", 1)]

    def test_each_group_of_effects_is_told_as_done(self) -> None:
        driven = Driven(on_effects_done=lambda: driven.done.append(("done", None)))
        driven.node.want(ConcurrentPersist([sending("first")], "mark"), ("a",))
        driven.driver.flush()
        assert [what for what, _ in driven.done] == ["send", "done", "persist", "send", "done"]

    def test_the_driver_persists_nothing_without_a_checkpoint(self, driven: Driven) -> None:
        driven.node.want(None, ("a",))
        driven.driver.flush()
        assert driven.done == [("send", "a")]

    def test_a_node_without_persistence_runs(self) -> None:
        driven = Driven(persist=None)
        driven.node.want("mark", ("a",))
        driven.driver.flush()
        assert driven.done == [("send", "a")]

    def test_a_node_without_events_is_drained_once(self, driven: Driven) -> None:
        driven.node.want(None, ("a",))
        driven.driver.flush()
        assert driven.node.drains == 1

    def test_the_driver_uses_the_time_of_its_clock(self, driven: Driven) -> None:
        driven.clock.advance(0.5)
        assert driven.driver.now() == 1_000.5


class TestFailedPersist:
    def test_nothing_but_the_concurrent_effects_is_carried_out(self, driven: Driven) -> None:
        error = OSError("disk full")

        def fail(mark: object) -> None:
            raise error

        driven.on_persist = fail
        driven.node.want(ConcurrentPersist([sending("first")], "mark"), ("a",), (1,))
        driven.driver.flush()
        assert driven.done == [("send", "first"), ("persist", "mark"), ("failed", error)]

    def test_a_failed_persist_sends_and_emits_nothing_and_stops_the_node(self, driven: Driven) -> None:
        error = OSError("disk full")

        def fail(mark: object) -> None:
            raise error

        driven.wake_at(1_001)
        driven.on_persist = fail
        driven.node.want("mark", ("a",), (1,))
        driven.driver.flush()
        assert driven.done == [("persist", "mark"), ("failed", error)]
        assert driven.timers == []
        driven.node.want("mark", ("b",), (2,))
        driven.driver.flush()
        assert len(driven.done) == 2

    def test_a_failed_persist_without_a_handler_is_raised_and_stops_the_node(self) -> None:
        driven = Driven(on_failure=None)

        def fail(mark: object) -> None:
            raise OSError("disk full")

        driven.on_persist = fail
        driven.node.want("mark", ("a",), (1,))
        with pytest.raises(OSError, match="disk full"):
            driven.driver.flush()
        driven.node.want(None, ("b",))
        driven.wake_at(1_001)
        assert (driven.done, driven.timers) == ([("persist", "mark")], [])


class TestReentrance:
    def test_a_command_from_an_event_handler_runs_after_the_events_at_hand(self, driven: Driven) -> None:
        def publish(event: object) -> None:
            if event == 1:
                driven.node.want("later", ("answer",))
                driven.driver.flush()

        driven.on_event = publish
        driven.node.want("mark", ("a",), (1, 2))
        driven.driver.flush()
        assert driven.done == [
            ("persist", "mark"),
            ("send", "a"),
            ("tell", 1),
            ("tell", 2),
            ("persist", "later"),
            ("send", "answer"),
        ]

    def test_the_driver_drains_until_no_events_follow(self, driven: Driven) -> None:
        def count_down(event: object) -> None:
            assert isinstance(event, int)
            if event:
                driven.node.want(None, (), (event - 1,))
                driven.driver.flush()

        driven.on_event = count_down
        driven.node.want(None, (), (3,))
        driven.driver.flush()
        assert driven.done == [("tell", 3), ("tell", 2), ("tell", 1), ("tell", 0)]

    def test_the_timer_is_armed_after_the_flush(self, driven: Driven) -> None:
        def sooner(event: object) -> None:
            driven.wake_at(1_002)
            assert driven.timers == []

        driven.on_event = sooner
        driven.node.deadline = 1_005
        driven.node.want(None, (), (1,))
        driven.driver.flush()
        assert driven.timers == [1_002]


class TestApplication:
    def test_an_exception_of_an_event_handler_is_logged_and_survived(
        self, driven: Driven, logged: list[LogEvent]
    ) -> None:
        def fail(event: object) -> None:
            if event == 1:
                raise ZeroDivisionError("application")

        driven.on_event = fail
        driven.node.want(None, (), (1, 2))
        driven.wake_at(1_001)
        assert driven.done == [("tell", 1), ("tell", 2)]
        (event,) = [event for event in logged if "log_failure" in event]
        assert event["log_failure"].check(ZeroDivisionError)
        assert event["event"] == 1
        assert driven.timers == [1_001]

    @pytest.mark.parametrize("last", [1, 2])
    def test_an_event_handler_that_stops_the_driver_ends_the_flush(self, driven: Driven, last: int) -> None:
        def stop(event: object) -> None:
            if event == last:
                driven.node.want("mark", ("late",), (3,))
                driven.driver.stop()

        driven.on_event = stop
        driven.node.want(None, ("a",), (1, 2))
        driven.wake_at(1_001)
        assert driven.done == [("send", "a"), ("tell", 1), ("tell", 2)][: last + 1]
        assert driven.timers == []

    def test_an_interrupt_in_an_event_handler_ends_only_the_flush(self, driven: Driven) -> None:
        def interrupt(event: object) -> None:
            raise KeyboardInterrupt

        driven.on_event = interrupt
        driven.node.want(None, (), (1,))
        with pytest.raises(KeyboardInterrupt):
            driven.driver.flush()
        driven.node.want(None, ("a",))
        driven.driver.flush()
        assert driven.done[-1] == ("send", "a")


class TestTimer:
    def test_a_node_without_a_deadline_has_no_timer(self, driven: Driven) -> None:
        driven.driver.flush()
        assert driven.timers == []

    def test_a_node_is_ticked_at_its_deadline_and_flushed(self, driven: Driven) -> None:
        def tick(now: float) -> None:
            driven.node.want(None, ("ticked",))

        driven.node.on_tick = tick
        driven.wake_at(1_002.5)
        driven.clock.advance(2.4)
        assert driven.node.ticks == []
        driven.clock.advance(0.1)
        assert driven.node.ticks == [1_002.5]
        assert (driven.done, driven.timers) == ([("send", "ticked")], [])

    def test_a_deadline_in_the_past_is_ticked_in_the_next_reactor_turn(self, driven: Driven) -> None:
        driven.wake_at(500)
        assert (driven.node.ticks, driven.timers) == ([], [1_000])
        driven.clock.advance(0)
        assert driven.node.ticks == [1_000]

    @pytest.mark.parametrize("deadlines", [(1_005, 1_002), (1_002, 1_005), (1_002, 1_002), (1_005, 1_002, 1_007)])
    def test_the_driver_has_one_timer_that_is_never_late(self, driven: Driven, deadlines: tuple[float, ...]) -> None:
        for deadline in deadlines:
            driven.wake_at(deadline)
            assert len(driven.timers) == 1
            assert driven.timers[0] <= deadline
        driven.clock.pump([0.25] * 60)
        assert driven.node.ticks[-1] >= deadlines[-1]

    def test_the_timer_of_an_unchanged_deadline_is_not_moved_while_the_clock_goes_on(self, driven: Driven) -> None:
        driven.node.deadline = driven.clock.seconds() + 5.0
        call_later = driven.clock.callLater

        def late(delay: float, *arguments: Any) -> Any:
            driven.clock.rightNow += 1e-6
            return call_later(delay, *arguments)

        driven.clock.callLater = late  # type: ignore[assignment, method-assign]
        driven.driver.flush()
        (timer,) = driven.clock.getDelayedCalls()
        before = timer.getTime()
        driven.driver.flush()
        assert timer.getTime() == before > driven.node.deadline

    def test_a_timer_that_fires_early_is_armed_again(self, driven: Driven) -> None:
        driven.wake_at(1_002)
        driven.wake_at(1_005)
        driven.clock.advance(2)
        assert (driven.node.ticks, driven.timers) == ([1_002], [1_005])

    def test_a_timer_that_fires_a_rounding_error_early_is_on_time(self, driven: Driven) -> None:
        driven.wake_at(1_002)
        driven.node.deadline = 1_002 + 1e-6
        driven.clock.advance(2)
        assert (driven.node.ticks, driven.timers) == ([1_002 + 1e-6], [])

    def test_the_timer_is_cancelled_when_the_deadline_is_removed(self, driven: Driven) -> None:
        driven.wake_at(1_002)
        driven.wake_at(None)
        assert driven.timers == []
        driven.wake_at(1_003)
        assert driven.timers == [1_003]

    def test_stopping_the_driver_cancels_its_timer(self, driven: Driven) -> None:
        driven.wake_at(1_002)
        driven.driver.stop()
        driven.driver.stop()
        driven.wake_at(1_003)
        driven.clock.advance(60)
        assert (driven.timers, driven.node.ticks) == ([], [])

    def test_a_stopped_driver_does_not_drain_its_node(self, driven: Driven) -> None:
        driven.driver.stop()
        driven.node.want("mark", ("a",), (1,))
        driven.driver.flush()
        assert (driven.done, driven.node.drains) == ([], 0)

    def test_the_timer_is_armed_after_an_interrupted_flush(self, driven: Driven) -> None:
        def interrupt(event: object) -> None:
            raise KeyboardInterrupt

        driven.on_event = interrupt
        driven.node.want(None, (), (1,))
        with pytest.raises(KeyboardInterrupt):
            driven.wake_at(1_002)
        assert driven.timers == [1_002]


class TestHeldUpProcess:
    """A process that was held up reads what arrived meanwhile before its node decides what is missing."""

    @pytest.fixture
    def inputs(self, driven: Driven) -> list[float]:
        """Times of the inputs that were read. A tick is recorded with their number."""
        times: list[float] = []
        driven.node.on_tick = lambda now: driven.done.append(("tick", len(times)))
        return times

    def read(self, driven: Driven, inputs: list[float], count: int, seconds: float) -> None:
        """Read ``count`` inputs from 0.1 s on, one per turn, which take ``seconds`` each."""

        def arrive() -> None:
            inputs.append(driven.clock.seconds())
            driven.clock.rightNow += seconds
            if len(inputs) < count:
                driven.clock.callLater(0, arrive)
            driven.driver.flush()

        driven.clock.callLater(0.1, arrive)

    def test_input_precedes_a_missed_deadline(self, driven: Driven, inputs: list[float]) -> None:
        driven.wake_at(1_000.01)
        self.read(driven, inputs, 3, 0.001)
        driven.clock.advance(0.1)
        assert driven.done == [("tick", 3)]

    def test_endless_input_delays_the_tick_only_for_a_while(self, driven: Driven, inputs: list[float]) -> None:
        driven.wake_at(1_000.01)
        self.read(driven, inputs, 100, CATCH_UP / 4)
        driven.clock.advance(0.1)
        assert [len(inputs), *driven.done] == [100, ("tick", 4)]

    def test_timer_in_time_does_not_wait_for_input(self, driven: Driven, inputs: list[float]) -> None:
        driven.wake_at(1_000.1)
        self.read(driven, inputs, 3, 0.001)
        driven.clock.advance(0.1)
        assert driven.done == [("tick", 0)]

    def test_process_that_is_late_each_time_does_not_wait(self, driven: Driven, inputs: list[float]) -> None:
        for _ in range(20):
            driven.wake_at(driven.clock.seconds())
            driven.clock.advance(2 * HELD_UP)
        driven.done.clear()
        driven.wake_at(driven.clock.seconds() + 0.1 - 2 * HELD_UP)
        self.read(driven, inputs, 3, 0.001)
        driven.clock.advance(0.1)
        assert driven.done == [("tick", 0)]
