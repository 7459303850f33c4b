"""Transactional outbox: publish the rows of an SQLite table exactly once, across crashes and restarts.

An application writes a message into the table in the same transaction as its change to the database. This program
publishes the table. Rows are only ever added, and row n is message n of the publisher.

    sqlite3 shop.db 'CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, message TEXT)'
    sqlite3 shop.db "INSERT INTO outbox (message) VALUES ('order 1'), ('order 2')"
    python examples/outbox.py shop.db
"""

from __future__ import annotations

import argparse
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from twisted.internet.defer import ensureDeferred
from twisted.internet.task import deferLater, react

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.fyrehose import DEFAULT_BACKBONE, PublisherProtocol, join
from fyrehose_twisted.fyrehose.protocol.publisher_file import PublisherState

ROWS = 500
"""Rows to publish at once."""


async def publish_rows(reactor: Any, publisher: PublisherProtocol, path: Path, position: int, follow: bool) -> int:
    """Publish the rows after the first ``position``; with ``follow``, wait for more. Return the number of rows."""
    with closing(sqlite3.connect(path)) as database:
        while True:
            query = "SELECT message FROM outbox ORDER BY id LIMIT ? OFFSET ?"
            rows = database.execute(query, (ROWS, position)).fetchall()
            await publisher.publish_many([message.encode() for (message,) in rows])
            position += len(rows)
            if not rows:
                if not follow:
                    return position
                await deferLater(reactor, 0.25)


async def main(reactor: Any, options: argparse.Namespace) -> None:
    try:
        with closing(PublisherState(options.database.with_suffix(".state"), options.backbone)) as state:
            began = state.position
            publisher = await join(reactor, PublisherProtocol(state=state), options.backbone)
            total = await publish_rows(reactor, publisher, options.database, began, options.follow)
            await publisher.leave()
            print(f"{total - began} rows published, {began} were before")
    except (FyrehoseError, OSError, sqlite3.Error) as error:
        raise SystemExit(f"outbox: {error}") from None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", type=Path)
    parser.add_argument("--backbone", default=DEFAULT_BACKBONE)
    parser.add_argument("--follow", action="store_true", help="wait for more rows")
    arguments = parser.parse_args()
    react(lambda reactor: ensureDeferred(main(reactor, arguments)))
