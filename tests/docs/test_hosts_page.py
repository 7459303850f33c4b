"""The page about tests on several hosts lists all faults, rounds and packages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from hosts.run import ROUNDS, table
from suite.spaces import PROGRAMS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "hosts.md").read_text(encoding="utf-8")
EVERYWHERE = {"mount", "util-linux"}
"""Packages of every Debian system."""
FAULTS = frozenset[str]().union(*(kind.injects for kind in ROUNDS.values()))


@pytest.mark.parametrize(
    ("heading", "names"), [("Output", FAULTS), ("What the checkers verify", ROUNDS)], ids=["faults", "rounds"]
)
def test_table_of_host_rounds_is_complete(heading: str, names: Iterable[str]) -> None:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([\w-]+)`", section, re.MULTILINE)) == set(names)


def test_hosts_page_lists_every_required_package() -> None:
    named = re.findall(r"[\w-]+", PAGE.partition("apt install ")[2].partition("`")[0])
    assert {"nftables", "ngircd", *PROGRAMS.values()} - EVERYWHERE == set(named)


def test_hosts_page_shows_the_columns_of_the_summary() -> None:
    assert re.search(rf"^{re.sub(' +', ' +', table([]))}$", PAGE, re.MULTILINE)
