"""Completeness of the README of the examples."""

from __future__ import annotations

import re
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_every_example_is_listed() -> None:
    rows = re.findall(r"^\| (`.*?) \|", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    found = {path.name for path in EXAMPLES.iterdir() if not path.name.startswith((".", "__"))} - {"README.md"}
    assert sorted(named) == sorted(found)
