"""Columns of journal tables, with their Spark and Arrow types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fyrehose_twisted.errors import ConfigurationError

COLUMNS = {
    "stream": "STRING",
    "epoch": "BIGINT",
    "sequence": "BIGINT",
    "received_at": "TIMESTAMP",
    "payload": "BINARY",
    "status": "STRING",
    "journal": "STRING",
    "segment": "STRING",
}
"""All columns and their Spark types. ``received_at`` and ``payload`` are null where ``status`` is not ``ok``.

``journal`` is the journal from which a record was read. ``segment`` is its file, and null for a remote journal."""

RECORD = ("stream", "epoch", "sequence", "received_at", "payload", "status")
"""Default columns of a read, and columns of the files of ``fyrehose journal seal --parquet``."""

OK, LOST, REFUSED = "ok", "lost", "refused"
"""Values of ``status``. Only reads with keys of sealed payloads refuse."""


def check_columns(names: Sequence[str], columns: Mapping[str, str] = COLUMNS) -> tuple[str, ...]:
    """Validate column names and return them.

    :param columns: known columns.

    :raises ConfigurationError: if a name is unknown or repeated, or there are none.
    """
    for name in names:
        if name not in columns:
            raise ConfigurationError(f"there is no column {name!r}; known: {', '.join(columns)}")
    if not names or len(set(names)) != len(names):
        raise ConfigurationError(f"columns {', '.join(names)!r}: give at least one column, and each only once")
    return tuple(names)


def ddl(names: Sequence[str] = RECORD, columns: Mapping[str, str] = COLUMNS) -> str:
    """Return the schema of these columns as Spark DDL.

    :param columns: types of the columns.
    """
    return ", ".join(f"{name} {columns[name]}" for name in names)


def arrow_schema(names: Sequence[str] = RECORD) -> Any:
    """Return the schema of these columns as :class:`pyarrow.Schema`. Spark requires these exact types and order."""
    import pyarrow

    types = {
        "STRING": pyarrow.string(),
        "BIGINT": pyarrow.int64(),
        "TIMESTAMP": pyarrow.timestamp("us", "UTC"),
        "BINARY": pyarrow.binary(),
    }
    return pyarrow.schema([(name, types[COLUMNS[name]]) for name in names])
