"""Layout of the topology on the dashboard, run by Node.js without a browser."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

SCRIPT = files("fyrehose_twisted.query").joinpath("page", "topology.js").read_text()
LAYOUT = SCRIPT[: SCRIPT.index("class TopologyView")].replace('"use strict";', "")
RUN = f"""
const MARKS = {{}};
{LAYOUT}
const shown = JSON.parse(require("fs").readFileSync(0, "utf8")).map(({{ nodes, width }}) => {{
  const {{ places, order, lines, width: wide, height }} = layoutTree(nodes, width);
  const drawn = {{ order: order.map(({{ id }}) => id), lines: lines.map(({{ node }}) => node.id) }};
  return {{ ...drawn, places: [...places], wide, height }};
}});
console.log(JSON.stringify({{ box: BOX, shown }}));
"""
FORESTS = 500


def forest(rng: Random) -> dict[str, Any]:
    """Return nodes and a width: any number of roots, some of them in groups, and nodes below nodes before them."""
    nodes: list[dict[str, Any]] = []
    for number in range(rng.randint(1, 60)):
        is_root = number == 0 or rng.random() < 0.1
        parent = None if is_root else f"n{rng.randrange(number)}"
        group = f"g{rng.randrange(2)}" if is_root and rng.random() < 0.5 else ""
        nodes.append({"id": f"n{number}", "parent": parent, "group": group, "kind": "relay"})
    return {"nodes": nodes, "width": rng.randint(142, 1_600)}


def test_nodes_of_any_forest_are_placed_once_inside_the_drawing_and_apart(
    program: Callable[[str, str], Path],
) -> None:
    node = program("node", "nodejs")
    rng = Random(31)
    forests = [forest(rng) for _ in range(FORESTS)]
    ran = subprocess.run(
        [node, "-e", RUN], input=json.dumps(forests), capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    width, height = told["box"]["width"], told["box"]["height"]
    for drawn, shown in zip(forests, told["shown"], strict=True):
        nodes = drawn["nodes"]
        places: dict[str, dict[str, float]] = dict(shown["places"])
        assert sorted(shown["order"]) == sorted(places) == sorted(one["id"] for one in nodes)
        assert sorted(shown["lines"]) == sorted(one["id"] for one in nodes if one["parent"] is not None)
        found = list(places.values())
        for at, one in enumerate(found):
            assert 0 <= one["x"] <= shown["wide"] - width
            assert 0 <= one["y"] <= shown["height"] - height
            for other in found[:at]:
                assert abs(one["x"] - other["x"]) >= width or abs(one["y"] - other["y"]) >= height
        for one in nodes:
            if one["parent"] is not None:
                assert places[one["id"]]["y"] > places[one["parent"]]["y"]
