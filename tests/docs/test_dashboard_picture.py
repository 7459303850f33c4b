"""Picture of the dashboard in README: the command takes it of a running demo."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from integration.running.browser import Browser

DOCS = Path(__file__).parents[2] / "docs"
PICTURE = DOCS / "dashboard.webp"
MAX_BYTES = 200_000

NODES = {"backbone", "relay", "publisher", *(f"{kind}-{n}" for kind, n in [("journal", 1), ("journal", 2)])}
NODES |= {f"subscriber-{number}" for number in (1, 2, 3)}

LOOK = """(async () => {
    const picture = new Image();
    picture.src = "data:image/webp;base64,%s";
    await picture.decode();
    const canvas = Object.assign(document.createElement("canvas"), {width: picture.width, height: picture.height});
    const drawing = canvas.getContext("2d");
    drawing.drawImage(picture, 0, 0);
    const { data } = drawing.getImageData(0, 0, picture.width, picture.height);
    const counts = new Map();
    for (let at = 0; at < data.length; at += 4) {
        const colour = data[at] << 16 | data[at + 1] << 8 | data[at + 2];
        counts.set(colour, (counts.get(colour) ?? 0) + 1);
    }
    const most = Math.max(...counts.values());
    return [picture.width, picture.height, counts.size, 4 * most / data.length];
})()"""
"""Return the size of a picture, its number of colours, and the share of the most frequent one."""


@pytest.fixture
def look(browser: Callable[..., list[str]]) -> Any:
    """Return a function that returns width, height, colours and share of the most frequent colour of a picture."""

    def looked(path: Path) -> Any:
        page = Browser([option for option in browser() if "virtual-time" not in option])
        try:
            return page.run(LOOK % b64encode(path.read_bytes()).decode())
        finally:
            page.close()

    return looked


def assert_is_picture(found: list[float]) -> None:
    width, height, colours, most = found
    assert width == 2_000
    assert 800 < height < 2_000
    assert colours > 100
    assert most < 0.95


def test_readme_shows_the_picture_of_the_dashboard() -> None:
    assert re.search(r"!\[[^\]]{40,}\]\(docs/dashboard\.webp\)", (DOCS.parent / "README.md").read_text("utf-8"))
    assert PICTURE.read_bytes()[8:12] == b"WEBP"
    assert PICTURE.stat().st_size < MAX_BYTES


@pytest.mark.extended
def test_command_takes_a_picture_of_all_nodes_of_a_running_demo(look: Any, tmp_path: Path) -> None:
    assert_is_picture(look(PICTURE))
    path = tmp_path / "dashboard.webp"
    command = [sys.executable, str(DOCS / "dashboard_picture.py"), "--flights=600", f"--out={path}"]
    environment = os.environ | {"PYTHONPATH": str(DOCS.parent / "tests")}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = re.fullmatch(r"dashboard\.webp: (\d+) x (\d+) pixels, [\d,]+ bytes; (.*)\n", ran.stdout)
    assert told, ran.stdout
    assert set(told[3].split(", ")) == NODES
    found = look(path)
    assert_is_picture(found)
    assert found[:2] == [int(told[1]), int(told[2])]
    assert path.stat().st_size < MAX_BYTES
