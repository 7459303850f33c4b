"""The page about traffic lists all options of the command and all fields of the dissectors."""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from suite.tshark import LAYERS, PLUGIN

from fyrehose_twisted.cli.dump import command

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "wireshark.md").read_text(encoding="utf-8")


def test_table_of_options_of_dump_is_complete() -> None:
    options = command.add_parser(argparse.ArgumentParser().add_subparsers())
    names = {action.option_strings[-1] for action in options._actions if action.option_strings} - {"--help"}
    assert names == set(re.findall(r"^\| `(--[a-z]+)", PAGE, re.MULTILINE))


def test_table_of_fields_of_the_dissectors_is_complete(program: Callable[[str, str], Path], tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    listed = subprocess.run(
        [program("tshark", "tshark"), "-G", "fields", "-X", f"lua_script:{PLUGIN}"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    ).stdout
    fields = {line.split("\t")[2] for line in listed.splitlines() if line.startswith("F\t")}
    ours = {field for field in fields if field.split(".")[0] in LAYERS}
    assert len(ours) > 100
    table = PAGE.partition("### Filters\n")[2]
    rows = "\n".join(line for line in table.splitlines() if line.startswith("| "))
    named = re.findall(r"`([a-z_0-9.]+)`", rows)
    assert len(named) == len(set(named))
    assert set(named) == ours
