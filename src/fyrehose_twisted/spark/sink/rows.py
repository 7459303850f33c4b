"""Row payloads: the bytes of a column, or the row as JSON."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from fyrehose_twisted.errors import ConfigurationError, LocalError, MessageTooLarge
from fyrehose_twisted.fyrehose.wire.message_key import add_key
from fyrehose_twisted.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

PAYLOAD = "payload"
_BYTES = ("binary", "string")
_IDS = (*_BYTES, "tinyint", "smallint", "int", "bigint")
_NO_JSON = ("variant", "geometry", "geography")


class RowNotPublishable(LocalError):
    """A row has no payload, no id, or a key of a wrong size."""


class RowTooLarge(MessageTooLarge):
    """A row exceeds the size of a UDP datagram."""

    def __init__(self, size: int, limit: int, row: int, partition: int) -> None:
        super().__init__(size, limit)
        self.args = (f"row {row:,} of partition {partition}, counted from 0: {self.args[0]}",)


class SinkRow(NamedTuple):
    """Payload and id of a row to publish."""

    payload: bytes
    row_id: bytes = b""


class RowExtractor:
    """Extractor of payloads, with their keys, and ids from record batches. Spark pickles it to workers.

    :raises ConfigurationError: if the table lacks a column that the options require, or its type is not allowed.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        names = schema.fieldNames()
        kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigurationError(f"the table has two columns {twice[0]!r}: rename one")
        column = options.column
        if column is None and kinds.get(PAYLOAD) in _BYTES:
            column = PAYLOAD
        columns = (
            ("column", column, _BYTES),
            ("idColumn", options.id_column, _IDS),
            ("keyColumn", options.key_column, _IDS),
        )
        for option, name, allowed in columns:
            if name is None:
                continue
            if name not in kinds:
                raise ConfigurationError(f"{option} {name!r} is not in the table, which has {', '.join(names)}")
            if kinds[name] not in allowed:
                raise ConfigurationError(
                    f"{option} {name!r} is {kinds[name].upper()}; cast it to one of {', '.join(allowed).upper()}"
                )
        unwritable = [name for name, kind in kinds.items() if any(word in kind for word in _NO_JSON)]
        if column is None and unwritable:
            name = unwritable[0]
            raise ConfigurationError(f"column {name!r} is {kinds[name].upper()}, which has no JSON form: cast it")
        self._column = column
        self._id_column = options.id_column
        self._key_column = options.key_column
        self._limit = options.max_payload

    def extract(self, batches: Iterable[Any], partition: int) -> Iterator[SinkRow]:
        """Yield the rows of Arrow record batches.

        :raises RowNotPublishable: if a row has no payload, no id, or a key of a wrong size.
        :raises RowTooLarge: if a row exceeds a datagram.
        """
        number = 0
        for batch in batches:
            payloads = self._payloads(batch)
            ids = None if self._id_column is None else map(_id_bytes, batch.column(self._id_column).to_pylist())
            keys = None if self._key_column is None else map(_id_bytes, batch.column(self._key_column).to_pylist())
            for payload in payloads:
                row_id = b"" if ids is None else next(ids)
                if payload is None or row_id is None:
                    what = self._column if payload is None else self._id_column
                    raise RowNotPublishable(
                        f"row {number:,} of partition {partition}, counted from 0, has no {what}: it is null;"
                        f' exclude such rows with .where("{what} is not null")'
                    )
                key = None if keys is None else next(keys)
                if key is not None:
                    payload = _add_key(payload, key, number, partition)
                if len(payload) > self._limit:
                    raise RowTooLarge(len(payload), self._limit, number, partition)
                yield SinkRow(payload, row_id)
                number += 1

    def _payloads(self, batch: Any) -> Iterator[bytes | None]:
        if self._column is not None:
            return map(_to_bytes, batch.column(self._column).to_pylist())
        return map(row_to_json, batch.to_pylist(maps_as_pydicts="strict"))


def _add_key(payload: bytes, key: bytes, row: int, partition: int) -> bytes:
    try:
        return add_key(payload, key)
    except ConfigurationError as error:
        raise RowNotPublishable(f"row {row:,} of partition {partition}, counted from 0: {error}") from None


def chunks(rows: Iterable[SinkRow], size: int) -> Iterator[list[SinkRow]]:
    """Split ``rows`` into lists of ``size`` rows; the last list may be shorter."""
    iterator = iter(rows)
    while chunk := list(islice(iterator, size)):
        yield chunk


def row_to_json(row: dict[str, Any]) -> bytes:
    """Encode a row as compact JSON in UTF-8, including nulls.

    Instants become ISO 8601 in UTC, bytes Base64, decimals strings, durations seconds, and NaN and infinities null.
    """
    return json.dumps({name: _to_json_value(value) for name, value in row.items()}, **_COMPACT).encode()


_COMPACT: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}


def _to_json_value(value: Any) -> Any:
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, dict):
        return {str(_to_json_value(key)): _to_json_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_json_value(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    for kind, written in _FORMATTERS:
        if isinstance(value, kind):
            return written(value)
    raise ConfigurationError(f"a {type(value).__name__} has no JSON form: cast its column to STRING")


def _format_instant(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat()
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


_FORMATTERS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (datetime, _format_instant),
    (date, date.isoformat),
    (bytes, lambda value: b64encode(value).decode("ascii")),
    (Decimal, str),
    (timedelta, timedelta.total_seconds),
)


def _to_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _id_bytes(value: bytes | str | int | None) -> bytes | None:
    return str(value).encode() if isinstance(value, int) else _to_bytes(value)
