"""State that is handed over between nodes."""

from __future__ import annotations

import pytest

from fyrehose_twisted.hydra.events import LinesMissed, LinesReceived
from fyrehose_twisted.hydra.irc.bots import Bot, BotRunner, IrcLine, StatefulBot
from fyrehose_twisted.hydra.irc.shared_state import SharedState


class Counting(StatefulBot):
    """Bot that counts lines."""

    def __init__(self) -> None:
        self.count = 0

    def line_received(self, line: IrcLine) -> tuple[str, ...]:
        self.count += 1
        return ()

    def snapshot(self) -> bytes:
        return b"%d" % self.count

    def restore(self, state: bytes) -> None:
        self.count = int(state)


class Broken(StatefulBot):
    """Bot whose state cannot be handed over."""

    def snapshot(self) -> bytes:
        raise RuntimeError("broken on purpose")

    def restore(self, state: bytes) -> None:
        raise RuntimeError("broken on purpose")


class Huge(StatefulBot):
    """Bot with too much state."""

    def snapshot(self) -> bytes:
        return bytes(2**20 + 1)


def leader(*bots: Bot, lines: int = 3) -> BotRunner:
    runner = BotRunner(bots, lambda line: None)
    runner.shared.bootstrapped()
    runner.leading(True)
    runner.lines_received(LinesReceived(1, 0, [b":x!y@z PRIVMSG #c :hi"] * lines))
    return runner


def hand_over(source: BotRunner, target: BotRunner, first: int = 3) -> None:
    target.lines_received(LinesReceived(1, first, source.shared.lines()))


def test_new_node_takes_over_the_state_and_goes_on_from_there() -> None:
    bot = Counting()
    target = BotRunner([bot], lambda line: None)
    hand_over(leader(Counting()), target)
    assert (bot.count, target.shared.complete) == (3, True)
    target.lines_received(LinesReceived(1, 9, [b":x!y@z PRIVMSG #c :hi"]))
    assert bot.count == 4


def test_complete_state_that_differs_is_replaced_by_the_leaders() -> None:
    bot = Counting()
    target = BotRunner([bot], lambda line: None)
    hand_over(leader(Counting()), target)
    bot.count = 17
    hand_over(leader(Counting()), target)
    assert (bot.count, target.shared.counters["state_differs"]) == (3, 1)
    hand_over(leader(Counting()), target)
    assert target.shared.counters["state_differs"] == 1


def test_adopted_state_of_a_leader_replaces_no_complete_state() -> None:
    source = BotRunner([Counting()], lambda line: None)
    source.leading(True)
    source.shared.adopt()
    complete, incomplete = Counting(), Counting()
    for bot, known in ((complete, True), (incomplete, False)):
        target = BotRunner([bot], lambda line: None)
        if known:
            hand_over(leader(Counting()), target)
        bot.count = 17
        hand_over(source, target)
        assert target.shared.complete
    assert (complete.count, incomplete.count) == (17, 0)
    source.shared.bootstrapped()
    hand_over(source, target)
    assert len(source.shared.lines()) == 2


def test_gap_makes_the_state_incomplete_until_the_next_snapshot() -> None:
    bot = Counting()
    target = BotRunner([bot], lambda line: None)
    source = leader(Counting(), lines=8)
    hand_over(leader(Counting()), target)
    target.lines_missed(LinesMissed(1, 4, 9))
    assert not target.shared.complete
    hand_over(source, target)
    assert (bot.count, target.shared.complete) == (8, True)


def test_snapshot_with_a_gap_in_it_is_not_used() -> None:
    bot = Counting()
    target = BotRunner([bot], lambda line: None)
    lines = leader(Counting()).shared.lines()
    target.lines_received(LinesReceived(1, 3, lines[:1]))
    assert bot.count == 3  # Each part is restored by itself ...
    target.lines_missed(LinesMissed(1, 4, 4))
    assert not target.shared.complete  # ... but the state is complete with the last one only.


def test_leader_does_not_use_its_own_snapshot() -> None:
    bot = Counting()
    source = leader(bot)
    lines = source.shared.lines()
    bot.count = 5
    source.lines_received(LinesReceived(1, 3, lines))
    assert (bot.count, source.shared.counters) == (5, {})


def test_replayed_journal_is_incomplete_because_the_network_may_have_gone_on() -> None:
    bot = Counting()
    target = BotRunner([bot], lambda line: None)
    snapshot = leader(Counting()).shared.lines()
    target.replay([LinesReceived(1, 0, snapshot), LinesReceived(1, len(snapshot), [b":x!y@z PRIVMSG #c :hi"])])
    assert (bot.count, target.shared.complete) == (4, False)


def test_bots_of_one_class_keep_their_own_state() -> None:
    bots = Counting(), Counting()
    target = BotRunner(bots, lambda line: None)
    one, two = Counting(), Counting()
    source = leader(one, two)
    two.count = 9
    hand_over(source, target)
    assert [bot.count for bot in bots] == [3, 9]
    assert list(target.shared.parts) == ["bot.Counting", "bot.Counting.2", "irc"]


def test_bot_that_cannot_be_handed_over_does_not_stop_the_others() -> None:
    bot = Counting()
    target = BotRunner([Broken(), bot], lambda line: None)
    source = leader(Broken(), Counting(), Huge())
    hand_over(source, target)
    assert (bot.count, target.shared.complete) == (3, True)
    assert source.shared.counters["state_failed"] == 2
    receiver = BotRunner([Broken()], lambda line: None)
    receiver.shared.parts = {"bot.Counting": Broken(), "irc": receiver.view}
    hand_over(source, receiver)
    assert receiver.shared.counters["state_failed"] == 1
    hand_over(source, receiver)
    assert receiver.shared.counters["state_failed"] == 2


def test_state_of_a_bot_that_is_not_run_here_is_ignored() -> None:
    target = BotRunner([], lambda line: None)
    hand_over(leader(Counting()), target)
    assert (target.shared.complete, target.shared.counters["state_unknown"]) == (True, 1)


def test_warnings_name_the_bot() -> None:
    told: list[str] = []
    state = SharedState(told.append)
    state.parts = {"bot.Broken": Broken()}
    assert state.lines() == []
    assert told == ["the state of bot.Broken is not handed over: its snapshot failed: RuntimeError: broken on purpose"]


def test_base_class_of_stateful_bots_has_no_state_of_its_own() -> None:
    with pytest.raises(NotImplementedError):
        StatefulBot().snapshot()
    with pytest.raises(NotImplementedError):
        StatefulBot().restore(b"")
