from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments import Topology


@pytest.mark.parametrize("name", ["network.txt", "network.GZ", "network.txt.gz", "x.csv.txt"])
def test_a_written_topology_is_read_back_unchanged(tmp_path: Path, name: str) -> None:
    for topology in (
        Topology.kleinberg(100, 5, 3),
        Topology.from_edges([(0, 1)], n=4, seed=5),
        Topology.from_edges([("x", "y"), ("y", "z")], seed=5),
        Topology.from_edges([("7", "5"), ("7", "900")], seed=5),
    ):
        topology.to_file(tmp_path / name)
        found = Topology.from_file(tmp_path / name, seed=9)
        for array in ("locations", "indptr", "indices"):
            assert np.array_equal(getattr(found, array), getattr(topology, array))
        assert found.labels == topology.labels


def test_files_may_declare_some_locations(tmp_path: Path) -> None:
    path = tmp_path / "network.txt"
    path.write_text("# Three nodes.\nnode 1 0.25\n\n  # And links.\n0 1\n1\t2\n2 1\nnode 3\n")
    topology = Topology.from_file(path, seed=4)
    assert topology.edges().tolist() == [[0, 1], [1, 2]]
    assert topology.locations[1] == 0.25
    assert topology.n == 4
    assert topology.repeated == 1
    assert not np.array_equal(topology.locations, Topology.from_file(path, seed=5).locations)


@pytest.mark.parametrize("head", ["", "source,target\n", "From, To\n", "# made by hand\n"])
def test_columns_are_read_with_and_without_a_heading(tmp_path: Path, head: str) -> None:
    (tmp_path / "network.csv").write_text(head + '0,1\n"1", 2\n')
    (tmp_path / "network.csv.gz").write_bytes(gzip.compress((head + "0,1\n1,2\n").encode()))
    for name in ("network.csv", "network.csv.gz"):
        assert Topology.from_file(tmp_path / name).edges().tolist() == [[0, 1], [1, 2]]


def test_only_a_first_line_is_a_heading(tmp_path: Path) -> None:
    (tmp_path / "network.csv").write_text("c,a\na,b\n")
    topology = Topology.from_file(tmp_path / "network.csv")
    assert topology.labels == ("c", "a", "b")
    assert topology.links == 2


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("x.txt", "0 1\n1 1\n", r"line 2: '1' is linked to itself; leave the link out"),
        ("x.txt", "0 1\n\n1 2 0.5\n", r"line 3: 3 fields, '1 2 0.5': a link is two names"),
        ("x.txt", "0\n", r"line 1: 1 fields, '0'"),
        ("x.txt", "node\n", r"line 1: 'node': after 'node' come a name and perhaps a location"),
        ("x.txt", "node 1 1.0\n", r"line 1: location '1.0': it goes from 0 up to, but not including, 1"),
        ("x.txt", "node 1 north\n", r"line 1: location 'north'"),
        ("x.txt", "node 1 nan\n", r"line 1: location 'nan'"),
        ("x.txt", "node 1 0.1\nnode 1 0.2\n", r"line 2: '1' is at 0.1 already, not at 0.2"),
        ("x.csv", "0,1\n2,\n", r"line 2: 2 fields, '2 '"),
        ("x.csv", "0,1\nnode,1,0.5\n", r"line 2: 3 fields"),
        ("x.txt", "# nothing\n", r"x.txt has no links and no nodes"),
        ("x.gz", "0 1\n", r"x.gz is not compressed text"),
    ],
)
def test_errors_in_a_links_file_name_the_line(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigurationError, match=complaint):
        Topology.from_file(tmp_path / name)


def test_files_that_cannot_be_read_back_are_not_written(tmp_path: Path) -> None:
    topology = Topology.ring(3)
    with pytest.raises(ConfigurationError, match="cannot hold locations"):
        topology.to_file(tmp_path / "x.csv.gz")
    for name in ("a b", "#a", "node", "a\t"):
        with pytest.raises(ConfigurationError, match="node name"):
            Topology.from_edges([(name, "other")]).to_file(tmp_path / "x.txt")
    assert not list(tmp_path.iterdir())
    (tmp_path / "x.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="is not text"):
        Topology.from_file(tmp_path / "x.txt")
