from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.sweep.cost import TASK_SECONDS, estimate, make_tasks, take_wave
from fyrehose_twisted.experiments.sweep.grid import Grid, make_grid, read_grid
from fyrehose_twisted.experiments.sweep.metrics import METRICS
from fyrehose_twisted.experiments.sweep.settings import DEFAULTS, POLICY_DEFAULTS, TOPOLOGIES, NetworkSettings
from fyrehose_twisted.freenet.policy import Policy

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[2] / "examples" / "sweep.toml"
PAGE = HERE.parents[2] / "docs" / "howto" / "sweeps.md"


def grid(said: dict[str, Any], directory: Path = HERE) -> Grid:
    return make_grid(said, directory)


def test_a_grid_is_a_product_in_the_order_of_settings() -> None:
    made = grid({"accept": ["root", "own"], "n": [200, 300], "seed": 7, "replicas": 3})
    assert [(one.number, one.replica) for one in made.cells()] == [(cell, of) for cell in range(4) for of in range(3)]
    assert [(one.settings.n, one.settings.policy.accept) for one in made.cells() if not one.replica] == [
        (200, "root"),
        (200, "own"),
        (300, "root"),
        (300, "own"),
    ]
    assert len(made) == 12
    # What is written in another order is the same grid.
    assert grid({"n": [200, 300], "accept": ["root", "own"], "replicas": 3, "seed": 7}).digest() == made.digest()


def test_several_grids_share_the_settings_above_them() -> None:
    made = grid({"n": 200, "keys": 2, "grid": [{"name": "a", "n": [300, 400]}, {"name": "b", "kill": 0.1}]})
    assert [(one.grid, one.number, one.settings.n, one.settings.kill) for one in made.cells()] == [
        ("a", 0, 300, 0.0),
        ("a", 1, 400, 0.0),
        ("b", 2, 200, 0.1),
    ]


def test_missing_settings_have_their_defaults() -> None:
    (cell,) = grid({}).cells()
    assert cell.settings.values() == DEFAULTS
    assert len(DEFAULTS) == len(fields(Policy)) + len(fields(NetworkSettings)) - 1
    (cell,) = grid({"degree": 8, "hold": 5}).cells()
    assert cell.settings.degree == 8.0
    assert cell.settings.policy.hold == 5.0


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({}, True),
        ({"replicas": 9}, True),
        ({"seed": 2}, False),
        ({"n": [200]}, False),
        ({"p_max": 0.2}, False),
        ({"keys": 40}, True),
    ],
)
def test_digests_of_different_grids_differ(change: dict[str, Any], is_same: bool) -> None:
    said = {"n": [200, 300]}
    assert (grid(said).digest() == grid(said | change).digest()) is is_same


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"subscriber": 3}, "there is no setting 'subscriber'; did you mean subscribers?"),
        ({"xyzzy": 3}, "there is no setting 'xyzzy'; there are seed, replicas, grid, topology"),
        ({"n": []}, "n=[]: give at least one value"),
        ({"n": [200, 200]}, "n=[200, 200]: a value appears twice; use replicas = N to repeat networks"),
        ({"n": 1.5}, "n=1.5: it must be a whole number"),
        ({"n": True}, "n=True: it must be a whole number"),
        ({"lattice": 1}, "lattice=1: it must be true or false"),
        ({"loss": "much"}, "loss='much': it must be a number"),
        ({"loss": 1}, "loss=1.0: a share goes from 0 up to, not including, 1"),
        ({"loss": math.nan}, "loss=nan: a share"),
        ({"kill": -0.1}, "kill=-0.1: a share"),
        ({"churn": -1}, "churn=-1.0 is outside 0 to 1,000"),
        ({"latency": math.inf}, "latency=inf: a time is 0 or more seconds"),
        ({"keys": 0}, "keys=0 is outside 1 to 100,000"),
        ({"n": 50}, "subscribers=100: with n=50 there are too few nodes"),
        ({"topology": "star"}, "topology='star': choose one of kleinberg, random, ring, swapped, file"),
        ({"accept": "none"}, "accept='none': choose one of root, own"),
        ({"p_max": 2}, "p_max=2.0: a probability goes from 0 to 1"),
        ({"max_htl": [10, 1_000_000]}, "max_htl=1000000 is outside"),
        ({"degree": 1_000}, "degree=1000: with n=1000 it goes from 0 to 999"),
        ({"topology": "ring", "degree": 3}, "degree=3: in a ring it is even"),
        ({"topology": "random", "lattice": True}, "lattice=True does not apply to topology='random', only with"),
        ({"rounds": 3}, "rounds=3 does not apply to topology='kleinberg', only with swapped"),
        ({"topology": "file"}, "topology='file' needs file='PATH'"),
        ({"topology": "file", "file": "x", "n": 9}, "n=9 does not apply to topology='file'"),
        ({"topology": "file", "file": "no-such-file"}, "No such file"),
        ({"replicas": 0}, "replicas=0: it must be a single whole number of 1 or more"),
        ({"seed": [1, 2]}, "seed=[1, 2]: it must be a single whole number of 0 or more"),
        ({"replicas": 2_000_000}, "it has more than 1,000,000 networks"),
        ({"n": list(range(200, 900)), "keys": list(range(1, 900)), "packets": [1, 2]}, "it has more than 1,000,000"),
        ({"grid": {"n": 3}}, "grid: write [[grid]] above each grid"),
        ({"grid": [{"n": 200}, {"n": 300}]}, "[[grid]] number 1 needs a name"),
        ({"grid": [{"name": "a"}, {"name": "a"}]}, "two [[grid]] have the name 'a'"),
        ({"grid": [{"name": "a", "htl": 3}]}, "[[grid]] 'a': there is no setting 'htl'; did you mean max_htl?"),
    ],
)
def test_invalid_grids_are_refused_with_the_setting(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        grid(said)
    assert problem in str(caught.value)


def test_an_invalid_grid_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("n = \n")
    with pytest.raises(ConfigurationError, match=r"a\.toml is not valid TOML: .*line 1"):
        read_grid(path)
    path.write_text("nn = 3\n")
    with pytest.raises(ConfigurationError, match=r"a\.toml: there is no setting 'nn'"):
        read_grid(path)


def test_a_links_file_determines_the_number_of_nodes(tmp_path: Path) -> None:
    links = tmp_path / "links.txt"
    links.write_text("a b\nb c\nc d\n")
    said = {"topology": "file", "file": "links.txt", "subscribers": [2, 4]}
    made = grid(said, tmp_path)
    assert [(one.settings.n, one.settings.degree, one.settings.file) for one in made.cells()] == [
        (4, 1.5, str(links.resolve()))
    ] * 2
    with pytest.raises(ConfigurationError, match="subscribers=5: with n=4"):
        grid(said | {"subscribers": 5}, tmp_path)
    before = made.digest()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "links.txt").write_bytes(links.read_bytes())
    assert grid(said, elsewhere).digest() == before
    # As many nodes and links, and other ones.
    links.write_text("a b\nb c\nb d\n")
    assert grid(said, tmp_path).digest() != before


def test_seeds_depend_on_the_place_of_a_network_only() -> None:
    made = {(one.number, one.replica): one.seeds() for one in grid({"n": [200, 300], "replicas": 50}).cells()}
    assert len({seed for seeds in made.values() for seed in seeds}) == 4 * 100
    more = {(one.number, one.replica): one.seeds() for one in grid({"n": [200, 400], "replicas": 60}).cells()}
    assert all(more[place] == seeds for place, seeds in made.items())
    state = np.random.SeedSequence(1, spawn_key=(1, 7)).generate_state(4, np.uint64)
    assert made[1, 7] == tuple(int(one) // 2 for one in state)
    other = next(iter(grid({"seed": 2}).cells())).seeds()
    assert not set(other) & set(made[0, 0])


def test_tasks_have_all_networks_once_and_take_long_enough() -> None:
    costs = [(place, 0.1 + place % 7 / 10) for place in range(1_000)]
    tasks = list(make_tasks(costs, 2))
    assert [place for task in tasks for place in task.positions] == list(range(1_000))
    assert all(task.seconds == pytest.approx(sum(costs[place][1] for place in task.positions)) for task in tasks)
    assert all(TASK_SECONDS <= task.seconds < TASK_SECONDS + 0.8 for task in tasks[:-1])


@pytest.mark.parametrize(
    ("costs", "cores", "sizes"),
    [
        # Enough for each core, though it is less than a task should be.
        ([0.2] * 10, 2, [5, 5]),
        ([0.1] * 10, 4, [5, 5]),
        ([0.01] * 10, 4, [10]),
        ([5.0] * 3, 2, [1, 1, 1]),
        ([], 2, []),
    ],
)
def test_small_sweeps_are_spread(costs: list[float], cores: int, sizes: list[int]) -> None:
    tasks = make_tasks(list(enumerate(costs)), cores)
    assert [len(task.positions) for task in tasks] == sizes


def test_a_wave_is_the_first_networks_and_its_longest_task_comes_first() -> None:
    costs = [(place, 1.0 + place) for place in range(10)]
    tasks = take_wave(costs, 2, 5.0)
    assert sorted(place for task in tasks for place in task.positions) == [0, 1, 2, 3]
    assert [task.seconds for task in tasks] == sorted((task.seconds for task in tasks), reverse=True)
    assert [task.positions for task in take_wave([(0, 99.0), (1, 99.0)], 2, 5.0)] == [(0,)]


@pytest.mark.parametrize(
    "changes",
    [
        ({}, {"n": 2_000}),
        ({}, {"keys": 80}),
        ({}, {"subscribers": 200}),
        ({"kill": 0.1}, {"kill": 0.3}),
        ({"churn": 0.1}, {"churn": 0.1, "duration": 9_000}),
        ({"topology": "swapped"}, {"topology": "swapped", "rounds": 200}),
    ],
)
def test_larger_networks_have_higher_estimates(changes: tuple[dict[str, Any], ...]) -> None:
    less, more = (estimate(grid(said).cell(0)) for said in changes)
    assert 0 < less < more


def test_each_topology_has_a_cost(tmp_path: Path) -> None:
    (tmp_path / "links").write_text("a b\n")
    for name in TOPOLOGIES:
        said = {"topology": name, "subscribers": 1} | ({"file": "links"} if name == "file" else {})
        assert estimate(next(iter(grid(said, tmp_path).cells()))) > 0


def test_example_grid_file_can_be_read() -> None:
    made = read_grid(EXAMPLE)
    assert [part.name for part in made.parts] == ["trees", "trees, each hop counted", "repair"]


def test_documentation_page_lists_all_settings_and_metrics() -> None:
    text = PAGE.read_text("utf-8")
    said = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", text, re.MULTILINE))
    assert said == {name: json.dumps(value) for name, value in DEFAULTS.items() if name not in POLICY_DEFAULTS}
    listed = text.partition("- the metrics, ")[2].partition(";\n")[0]
    assert re.findall(r"`(\w+)`", listed) == list(METRICS)
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert len(make_grid(tomllib.loads(example), HERE)) == (4 + 8) * 20
