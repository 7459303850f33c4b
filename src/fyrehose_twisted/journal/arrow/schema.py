"""The columns of the source: what Spark calls them, and what Arrow does."""

from __future__ import annotations

from collections.abc import Sequence
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
"""Every column and its type. ``received_at`` and ``payload`` are null where ``status`` is not ``ok``. ``journal`` says
where a record was read, and ``segment`` in which file; it is null if a server read the file."""

RECORD = ("stream", "epoch", "sequence", "received_at", "payload", "status")
"""What a read gives if no columns are named; files of ``fyrehose journal seal --parquet`` have the same."""

OK, LOST = "ok", "lost"
"""Values of ``status``."""


def check_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return ``names``. :raises ConfigurationError: if one is unknown or there twice, or there are none."""
    for name in names:
        if name not in COLUMNS:
            raise ConfigurationError(f"there is no column {name!r}; there are {', '.join(COLUMNS)}")
    if not names or len(set(names)) != len(names):
        raise ConfigurationError(f"columns {', '.join(names)!r}: name each that you want once, and at least one")
    return tuple(names)


def ddl(names: Sequence[str] = RECORD) -> str:
    """Return the schema with these columns as Spark writes it."""
    return ", ".join(f"{name} {COLUMNS[name]}" for name in names)


def arrow_schema(names: Sequence[str] = RECORD) -> Any:
    """Return the same as :class:`pyarrow.Schema`. Spark wants exactly these types, in this order."""
    import pyarrow

    types = {
        "STRING": pyarrow.string(),
        "BIGINT": pyarrow.int64(),
        "TIMESTAMP": pyarrow.timestamp("us", "UTC"),
        "BINARY": pyarrow.binary(),
    }
    return pyarrow.schema([(name, types[COLUMNS[name]]) for name in names])
