"""Exactly-once publishing of table rows by `examples/outbox.py`."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from integration.running.backbone import RunningBackbone
from integration.running.programs import Start

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "outbox.py"


def add(path: Path, *messages: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, message TEXT)")
        database.executemany("INSERT INTO outbox (message) VALUES (?)", [(message,) for message in messages])


def test_outbox_example_publishes_each_row_once(start: Start, backbone: RunningBackbone, tmp_path: Path) -> None:
    database = tmp_path / "shop.db"
    reader = start("fyrehose", "sub", "-b", backbone.text, "--count", 3)
    backbone.wait_for_clients(1)

    def run() -> str:
        program = start(sys.executable, EXAMPLE, database, "--backbone", backbone.text, of_ours=False)
        assert program.finish() == 0, program
        out: str = program.out
        return out

    add(database, "order 1", "order 2")
    assert run() == "2 rows published, 0 were before\n"
    assert run() == "0 rows published, 2 were before\n"
    add(database, "order 3")
    assert run() == "1 rows published, 2 were before\n"
    assert reader.finish() == 0
    assert reader.out == "order 1\norder 2\norder 3\n"
