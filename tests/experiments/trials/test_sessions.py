from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from random import Random
from statistics import mean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments import Topology, TreeExperiment
from fyrehose_twisted.experiments.trials.sessions import (
    Durations,
    Session,
    check_sessions,
    parse_durations,
    read_sessions,
)
from fyrehose_twisted.experiments.trials.trial import Trial, TrialPlan

KEY = bytes(20)
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str) -> Path:
        file = tmp_path / "sessions.txt"
        file.write_text(text)
        return file

    return written


def draws(text: str, count: int = 20_000) -> list[float]:
    durations, rng = parse_durations(text), Random(1)
    return [durations.draw(rng) for _ in range(count)]


@pytest.mark.parametrize(
    ("text", "half"),
    [
        ("exponential:600", 600 * 0.6931),
        ("weibull:0.5:600", 300 * 0.6931**2),
        ("weibull:1:600", 600 * 0.6931),
        ("pareto:3:600", 400 * 2 ** (1 / 3)),
        ("constant:600", 600),
    ],
)
def test_durations_have_the_mean_and_the_median_of_their_distribution(text: str, half: float) -> None:
    found = draws(text)
    assert mean(found) == pytest.approx(600, rel=0.05)
    assert median(found) == pytest.approx(half, rel=0.05)
    assert parse_durations(text).text == text


def test_pareto_durations_are_never_shorter_than_the_minimum() -> None:
    assert min(draws("pareto:1.5:300")) >= 100


def test_recorded_durations_are_drawn_with_replacement(write: Write) -> None:
    file = write("# seconds\n10\n\n20.5\n10\n")
    found = draws(f"file:{file}", 3_000)
    assert set(found) == {10.0, 20.5}
    assert found.count(10.0) == pytest.approx(2_000, rel=0.1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "give exponential:MEAN"),
        ("normal:3", "give exponential:MEAN"),
        ("exponential", "give exponential:MEAN"),
        ("pareto:3", "pareto:SHAPE:MEAN"),
        ("exponential:x", "parameters of exponential are numbers"),
        ("exponential:0", "mean=0: give a number of more than 0"),
        ("exponential:inf", "mean=inf"),
        ("exponential:nan", "mean=nan"),
        ("pareto:1:600", "shape=1: give a number of more than 1"),
        ("weibull:0.01:600", "shape=0.01: give a number of 0.05 or more"),
        ("weibull:1:-1", "mean=-1"),
        ("constant:0", "seconds=0"),
    ],
)
def test_malformed_distributions_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        parse_durations(text)


@pytest.mark.parametrize(
    ("contents", "problem"),
    [("", "has no durations"), ("5\nx\n", "line 2: 'x' is not a number"), ("0\n", "more than 0 seconds")],
)
def test_malformed_files_of_durations_are_refused(write: Write, contents: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        parse_durations(f"file:{write(contents)}")


def test_sessions_are_read_in_order(write: Write) -> None:
    file = write("# node join leave\nb 4 -\n\na 0 2.5\nb 0 1\n")
    assert read_sessions(file, {"a": 0, "b": 1}) == [Session(0, 0, 2.5), Session(1, 0, 1), Session(1, 4, inf)]


@pytest.mark.parametrize(
    ("contents", "problem"),
    [
        ("0 1\n", "line 1: '0 1': a session is NODE JOIN LEAVE"),
        ("9 0 1\n", "line 1: there is no node '9'"),
        ("0 1 1\n", "line 1: the node leaves at 1 s, but joins at 1 s"),
        ("0 - 1\n", "line 1: '-' is not a number"),
        ("0 0 nan\n", "line 1: 'nan' is not a number"),
        ("0 0 5\n1 0 5\n0 4 6\n", "line 3: the node joins at 4 s, within the session of line 1"),
        ("0 0 -\n0 4 6\n", "line 2: the node joins at 4 s"),
    ],
)
def test_malformed_sessions_are_refused(write: Write, contents: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read_sessions(write(contents), {"0": 0, "1": 1})


def test_files_that_are_no_text_or_too_long_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="is not text"):
        read_sessions(file, {})
    monkeypatch.setattr("fyrehose_twisted.experiments.trials.sessions.MAX_RECORDED", 2)
    file.write_text("1\n2\n3\n")
    with pytest.raises(ConfigurationError, match="more than 2 lines"):
        Durations.from_file(file)


@pytest.mark.parametrize("session", [Session(5, 0, 1), Session(-1, 0, 1), Session(0, 2, 2), Session(0, -1, 2)])
def test_impossible_sessions_are_refused(session: Session) -> None:
    with pytest.raises(ConfigurationError, match="the node must exist"):
        check_sessions([session], 5)
    with pytest.raises(ConfigurationError, match="overlap"):
        check_sessions([Session(0, 0, 5), Session(0, 4, 6)], 5)


def test_nodes_run_and_stay_away_in_turn() -> None:
    experiment = TreeExperiment(Topology.ring(4, seed=1))
    process = experiment.sessions(Durations.constant(10), Durations.constant(5))
    running = []
    for second in range(1, 40):
        experiment.run(second + 0.5)
        running.append(sum(experiment.is_up(node) for node in range(4)))
    # All leave at 10 s but the last one, return at 15 s, and so on.
    assert running[8:10] == [4, 1]
    assert running[13:15] == [1, 4]
    process.stop()
    experiment.run(100)
    assert sum(experiment.is_up(node) for node in range(4)) == running[-1]


def test_the_share_of_running_nodes_is_that_of_the_durations() -> None:
    experiment = TreeExperiment(Topology.kleinberg(200, 6, seed=1))
    experiment.sessions(Durations.weibull(0.7, 300), Durations.exponential(100))
    shares = []
    for when in range(1_000, 3_000, 100):
        experiment.run(when)
        shares.append(sum(experiment.is_up(node) for node in range(200)) / 200)
    assert mean(shares) == pytest.approx(0.75, abs=0.04)


def test_sessions_that_are_ahead_begin_with_their_later_share_of_running_nodes() -> None:
    experiment = TreeExperiment(Topology.ring(4, seed=1))
    experiment.sessions(Durations.constant(10), Durations.constant(5), warm_up=12.0)
    assert sum(experiment.is_up(node) for node in range(4)) == 1
    experiment.run(2.5)
    assert sum(experiment.is_up(node) for node in range(4)) == 1
    experiment.run(3.5)
    assert sum(experiment.is_up(node) for node in range(4)) == 4
    many = TreeExperiment(Topology.kleinberg(400, 6, seed=1))
    many.sessions(Durations.weibull(0.7, 300), Durations.exponential(100), warm_up=3_000.0)
    assert sum(many.is_up(node) for node in range(400)) / 400 == pytest.approx(0.75, abs=0.06)
    with pytest.raises(ConfigurationError, match="warm_up=-1"):
        many.sessions(Durations.constant(1), Durations.constant(1), warm_up=-1)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(1, 20) | st.none()), max_size=12))
def test_replayed_nodes_run_exactly_during_their_sessions(drawn: list[tuple[int, int, int | None]]) -> None:
    sessions: list[Session] = []
    for node, join, length in drawn:
        session = Session(node, join, inf if length is None else join + length)
        if all(one.node != node or one.leave <= session.join or session.leave <= one.join for one in sessions):
            sessions.append(session)
    experiment = TreeExperiment(Topology.ring(5, seed=1))
    experiment.run(7.0)
    experiment.replay(sessions)
    known = {session.node for session in sessions}
    for second in range(45):
        experiment.run(7.0 + second + 0.5)
        for node in range(5):
            inside = any(one.node == node and one.join <= second < one.leave for one in sessions)
            assert experiment.is_up(node) == (inside or node not in known)


def test_a_session_that_begins_when_another_ends_continues_it() -> None:
    experiment = TreeExperiment(Topology.ring(5, seed=1))
    experiment.replay([Session(0, 5, 9), Session(0, 0, 5)])
    experiment.run(7)
    assert experiment.is_up(0)
    experiment.run(10)
    assert not experiment.is_up(0)


def test_a_stopped_replay_changes_nothing() -> None:
    experiment = TreeExperiment(Topology.ring(5, seed=1))
    process = experiment.replay([Session(0, 0, 5), Session(1, 3, 9)])
    process.stop()
    experiment.run(20)
    assert experiment.is_up(0)
    assert not experiment.is_up(1)


def test_a_trial_replays_a_session_file(write: Write) -> None:
    file = write("0 0 30\n1 10 -\n")
    experiment = TreeExperiment(Topology.kleinberg(60, 6, seed=1))
    trial = Trial(experiment, TrialPlan(subscribers=10, duration=60.0, session_file=str(file)))
    trial.run()
    assert not experiment.is_up(0)
    assert experiment.is_up(1)
    assert (trial.stages[-1].name, trial.stages[-1].up) == ("churned", 59)
    assert trial.violation is None


def test_a_trial_draws_sessions() -> None:
    experiment = TreeExperiment(Topology.kleinberg(60, 6, seed=1))
    trial = Trial(experiment, TrialPlan(subscribers=10, sessions="pareto:1.5:100", pauses="constant:50"))
    trial.run()
    assert 20 < trial.stages[-1].up < 60
    assert trial.violation is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"life": 5.0, "sessions": "constant:1"}, "exclude one another"),
        ({"session_file": "x", "sessions": "constant:1"}, "exclude one another"),
        ({"pauses": "constant:1"}, "pauses require sessions"),
        ({"sessions": "constant"}, "give exponential"),
        ({"sessions": "constant:1", "pauses": "x"}, "give exponential"),
    ],
)
def test_contradictory_plans_are_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        TrialPlan(**options)  # type: ignore[arg-type]
