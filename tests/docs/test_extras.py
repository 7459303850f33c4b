"""A command that lacks an extra ends at once and names it in one line."""

from __future__ import annotations

import os
import re

import pytest
from documented.environments import CORE, Environments
from documented.terminal import Terminal

pytestmark = pytest.mark.extended

JOURNAL = """\
from pathlib import Path
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.record import Record
journal = open_journal(Path("kept"), "fyrehose://ticks")
journal.append([Record("fyrehose://ticks", 0, number, 1, b"x") for number in range(1, 4)])
journal.commit()
journal.close()
"""

COMMANDS = [
    ("twistd -n --pidfile= fyrehose-query --directory=kept", "query"),
    ("twistd --pidfile=query.pid --logfile=query.log fyrehose-query --directory=kept", "query"),
    ("twistd -n --pidfile= parcels-node --name=a --bootstrap --http=tcp:8878", "web"),
    ("fyrehose parcels follow", "web"),
    ("fyrehose parcels cluster", "web"),
    ("fyrehose parcels reform --http http://127.0.0.1:8878 --cluster default --yes", "web"),
    ("fyrehose freenet key --new my.key", "keys"),
    ("fyrehose journal seal kept --parquet lake", "parquet"),
    ("fyrehose-pipeline verify east=kept west=other --out verified", "spark"),
    ("fyrehose-pipeline run east=kept --out tables --once", "spark"),
    ("fyrehose-pipeline sql 'select 1' east=kept", "spark"),
    ("fyrehose-experiments sweep examples/sweep.toml --out swept", "spark"),
    ("fyrehose-experiments report swept -o page.html", "report"),
]


@pytest.mark.parametrize(("command", "extra"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_command_without_its_extra_names_it(terminal: Terminal, command: str, extra: str) -> None:
    (terminal.directory / "make.py").write_text(JOURNAL)
    terminal.run("python make.py && cp -r kept other")
    before = sorted(os.listdir(terminal.directory))
    terminal.run(f"{command} 2> said && echo it started || true")
    said = (terminal.directory / "said").read_text()
    assert terminal.output == ""
    assert re.fullmatch(rf"[a-z-]+: .* pip install 'fyrehose_twisted\[{extra}\]'\n", said), said
    # A refused command leaves nothing behind.
    assert sorted(os.listdir(terminal.directory)) == sorted([*before, "said"])


def test_example_without_its_extra_names_it(terminal: Terminal) -> None:
    terminal.run("python examples/cluster.py 2> said && echo it started || true")
    assert terminal.output == ""
    assert (terminal.directory / "said").read_text().endswith(" pip install 'fyrehose_twisted[web]'\n")


def test_doctor_lists_missing_extras(shell: Terminal, environments: Environments) -> None:
    shell.enter(environments.programs(CORE))
    missing = "ok    extras          usable: none; not installed: keys, parquet, query, report, spark, web\n"
    shell.run("fyrehose doctor | grep -m 1 extras", missing)
