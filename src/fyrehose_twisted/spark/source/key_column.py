"""Column ``key`` of the data source: the key of a message, which its payload holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, has_envelope
from fyrehose_twisted.fyrehose.wire.message_key import split_key
from fyrehose_twisted.journal.arrow.schema import COLUMNS, check_columns, ddl

KEY, _PAYLOAD = "key", "payload"

SOURCE_COLUMNS = {**COLUMNS, KEY: "BINARY"}
"""All columns of the source and their Spark types. ``key`` is null for messages without a key, and where ``payload`` is
null."""


def check_source_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Validate column names of the source and return them. Raises the errors of :func:`.check_columns`."""
    return check_columns(names, SOURCE_COLUMNS)


def source_ddl(names: Sequence[str]) -> str:
    """Return the schema of columns of the source as Spark DDL."""
    return ddl(names, SOURCE_COLUMNS)


def stored_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns to read from a journal for these columns of the source."""
    stored = tuple(name for name in names if name != KEY)
    return stored if KEY not in names or _PAYLOAD in names else (*stored, _PAYLOAD)


def with_keys(batches: Iterable[Any], names: Sequence[str], stream: str) -> Iterator[Any]:
    """Yield batches of :func:`stored_columns`, opened if they are sealed, with the columns ``names``."""
    import pyarrow

    for batch in batches:
        payloads = batch.column(_PAYLOAD)
        found = map(_key_of, payloads.to_pylist()) if stream.startswith("fyrehose://") else [None] * len(batch)
        keys = pyarrow.array(found, pyarrow.binary())
        yield pyarrow.RecordBatch.from_arrays(
            [keys if name == KEY else batch.column(name) for name in names],
            schema=pyarrow.schema(
                [pyarrow.field(KEY, keys.type) if name == KEY else batch.schema.field(name) for name in names]
            ),
        )


def _key_of(data: bytes | None) -> bytes | None:
    return None if data is None or not has_envelope(data) else split_key(data, ENVELOPE_SIZE)[0]
