"""Traces of experiments."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fyrehose_twisted.experiments import Policy, Topology, TreeExperiment
from fyrehose_twisted.experiments.report.trace_replay import Recording

KEY = bytes(20)
HEX = KEY.hex()
Make = Callable[..., TreeExperiment]


def lines(file: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.getvalue().splitlines()]


def eventful(seed: int, file: Any, *, told: int = 0, **options: Any) -> TreeExperiment:
    """Run an experiment with changes of all kinds; the trace begins after ``told`` of them."""
    rng = Random(f"{seed}/test")
    experiment = TreeExperiment(Topology.kleinberg(60, 6, 1), seed=seed, **options)
    keys = [rng.randbytes(20) for _ in range(2)]
    for step in range(60):
        if step == told:
            experiment.trace(file)
        node, other = rng.sample(range(60), 2)
        key, what = rng.choice(keys), rng.randrange(9)
        if what <= 3 and experiment.is_up(node):
            experiment.subscribe(node, key).addErrback(lambda _: None)
        elif what == 4 and (subscribers := experiment.subscribers(key)):
            experiment.publish(rng.choice(subscribers), key, b"%d" % step).addErrback(lambda _: None)
        elif what == 5:
            (experiment.kill if experiment.is_up(node) else experiment.restart)(node)
        elif what == 6:
            experiment.swap(node, other)
        elif what == 7:
            rng.choice((experiment.link, experiment.unlink))(node, other)
        elif (subscribers := experiment.subscribers(key)) and rng.random() < 0.3:
            experiment.unsubscribe(rng.choice(subscribers), key)
        experiment.run(experiment.now + rng.random())
    return experiment


class TestLines:
    def test_a_tree_grows_carries_a_packet_and_heals(self, line: Make, published: Callable[..., int]) -> None:
        file = StringIO()
        experiment = line(Policy(restart_jitter=0.0), seed=7)
        experiment.trace(file)
        experiment.subscribe(0, KEY)
        experiment.run(1.0)
        number = published(experiment, 0, b"hello", number=5)
        experiment.run(2.0)
        experiment.kill(3)
        experiment.run(2.5)
        experiment.unsubscribe(0, KEY)
        experiment.run(3.0)
        first, *others = lines(file)
        assert (first["t"], first["what"], first["seed"]) == (0.0, "network", 7)
        assert first["locations"] == [0.51, 0.56, 0.61, 0.66, 0.71]
        assert first["links"] == [[0, 1], [1, 2], [2, 3], [3, 4]]
        assert first["policy"]["restart_jitter"] == 0.0
        assert [(one.pop("t"), one.pop("what"), one) for one in others if one.pop("key", HEX) == HEX] == [
            (0.0, "subscribed", {"node": 0}),
            (0.2, "root", {"node": 4}),
            (0.25, "attached", {"node": 3, "parent": 4}),
            (0.3, "attached", {"node": 2, "parent": 3}),
            (0.35, "attached", {"node": 1, "parent": 2}),
            (0.4, "attached", {"node": 0, "parent": 1}),
            (1.4, "delivered", {"node": 0, "number": number}),
            (1.4, "published", {"node": 0, "number": number}),
            (2.0, "down", {"node": 3}),
            (2.05, "detached", {"node": 2}),
            (2.25, "root", {"node": 2}),
            (2.5, "unsubscribed", {"node": 0}),
            (2.5, "dropped", {"node": 0}),
            (2.55, "dropped", {"node": 1}),
            (2.6, "dropped", {"node": 2}),
        ]

    def test_changes_of_the_network_are_traced(self, line: Make) -> None:
        file = StringIO()
        experiment = line()
        experiment.trace(file)
        experiment.link(0, 2)
        experiment.unlink(1, 0)
        experiment.swap(3, 4)
        experiment.kill(0)
        experiment.restart(0)
        experiment.kill(1)
        experiment.restart(1, new_boot_id=False)
        assert [{**one, "t": None} for one in lines(file)[1:]] == [
            {"t": None, "what": "linked", "a": 0, "b": 2},
            {"t": None, "what": "unlinked", "a": 1, "b": 0},
            {"t": None, "what": "moved", "node": 3, "location": 0.71},
            {"t": None, "what": "moved", "node": 4, "location": 0.66},
            {"t": None, "what": "down", "node": 0},
            {"t": None, "what": "up", "node": 0},
            {"t": None, "what": "down", "node": 1},
            {"t": None, "what": "up", "node": 1, "kept": True},
        ]

    def test_a_trace_is_flushed_after_each_line(self, line: Make, tmp_path: Path) -> None:
        experiment = line()
        for path in (tmp_path / "one", str(tmp_path / "two")):
            experiment.trace(path)
            experiment.kill(0)
            experiment.restart(0)
            assert len(Path(path).read_text().splitlines()) == 3
            experiment._trace._file.close()  # type: ignore[union-attr]
            experiment._trace = None


class TestEqual:
    @pytest.mark.parametrize(
        "options",
        [{}, {"loss": 0.02}, {"latency": lambda a, b, rng: rng.uniform(0.01, 0.3)}],
        ids=["plain", "loss", "latency"],
    )
    def test_equal_seeds_have_equal_traces(self, options: dict[str, Any]) -> None:
        one, same = StringIO(), StringIO()
        eventful(1, one, **options)
        eventful(1, same, **options)
        assert one.getvalue() == same.getvalue()
        assert len(one.getvalue().splitlines()) > 100

    def test_other_seeds_have_other_traces(self) -> None:
        traces = set()
        for seed in range(5):
            file = StringIO()
            experiment = TreeExperiment(Topology.kleinberg(60, 6, 1), seed=seed)
            experiment.trace(file)
            for node in range(10):
                experiment.subscribe(node, KEY).addErrback(lambda _: None)
            experiment.run()
            for node in range(20, 40):
                experiment.kill(node)
            experiment.run()
            traces.add(file.getvalue().partition("\n")[2])
        assert len(traces) == 5

    def test_trace_files_of_equal_experiments_are_identical(self, tmp_path: Path) -> None:
        for name in ("one", "same"):
            with open(tmp_path / name, "w", encoding="utf-8") as file:
                eventful(2, file)
        assert (tmp_path / "one").read_bytes() == (tmp_path / "same").read_bytes()

    def test_tracing_does_not_change_an_experiment(self) -> None:
        looked, unseen = eventful(3, StringIO()), eventful(3, StringIO(), told=-1)
        assert looked.messages == unseen.messages
        assert str(looked.metrics()) == str(unseen.metrics())


class TestRecordings:
    @pytest.mark.parametrize("told", [0, 30])
    @pytest.mark.parametrize("seed", range(6))
    def test_a_replayed_trace_matches_the_trees(self, seed: int, told: int) -> None:
        file = StringIO()
        experiment = eventful(seed, file, told=told)
        recording = Recording.read(file.getvalue().splitlines())
        for key in recording.streams:
            moment = recording.state_at(key, experiment.now)
            # Who searches for the first time has a stream, but no part in a tree.
            tree = {node: parent for node, parent in experiment.tree(key).items() if parent is not None}
            assert moment.parents == tree
            assert moment.subscribers - moment.down == set(experiment.subscribers(key))
            assert moment.down == {node for node in range(60) if not experiment.is_up(node)}
            assert list(moment.locations) == experiment.locations
            assert sorted(map(list, moment.links)) == experiment._network.links()
