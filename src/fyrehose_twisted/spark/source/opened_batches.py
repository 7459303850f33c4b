"""Opening of sealed payloads in record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, MAGIC
from fyrehose_twisted.journal.arrow.schema import OK, REFUSED
from fyrehose_twisted.sealing.opener import PayloadOpener
from fyrehose_twisted.sealing.outcome import Refusal


def open_batches(batches: Iterable[Any], opener: PayloadOpener) -> Iterator[Any]:
    """Open the payloads of record batches of one stream.

    An opened payload follows its envelope, as if it had never been sealed. Where one is refused, ``status`` is
    ``refused`` and ``payload`` is null.
    """
    import pyarrow

    for batch in batches:
        names = batch.schema.names
        if "payload" not in names:
            yield batch
            continue
        payloads = [_open(opener, data) for data in batch.column("payload").to_pylist()]
        columns = dict(zip(names, batch.columns, strict=True))
        columns["payload"] = pyarrow.array(payloads, pyarrow.binary())
        if "status" in columns:
            statuses = columns["status"].to_pylist()
            columns["status"] = pyarrow.array(
                [
                    REFUSED if status == OK and payload is None else status
                    for status, payload in zip(statuses, payloads, strict=True)
                ],
                pyarrow.string(),
            )
        yield pyarrow.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)


def _open(opener: PayloadOpener, data: bytes | None) -> bytes | None:
    if data is None:
        return None
    size = ENVELOPE_SIZE if data.startswith(MAGIC) and len(data) >= ENVELOPE_SIZE else 0
    opened = opener.open(data, size)
    return None if isinstance(opened, Refusal) else data[:size] + opened.data
