"""Column ``key`` of the data source, as tasks read it, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from suite.sealing import ring, seal_one, sealer

from fyrehose_twisted.fyrehose.wire.envelope import encode_envelope, wrap
from fyrehose_twisted.fyrehose.wire.message_key import add_key
from fyrehose_twisted.journal.arrow.schema import RECORD
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.record import Record
from fyrehose_twisted.sealing.key_file import create_key_ring
from fyrehose_twisted.spark.source.options import read_options
from fyrehose_twisted.spark.source.partitions import make_partitions, read_partition
from fyrehose_twisted.spark.source.planning import epoch_ranges

STREAM = "fyrehose://test"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., None]:
    def write(*payloads: bytes, stream: str = STREAM) -> None:
        journal = open_journal(tmp_path, stream)
        journal.append([Record(stream, 0, number, number, data) for number, data in enumerate(payloads, 1)])
        journal.lose(0, len(payloads) + 1, len(payloads) + 1)
        journal.commit()
        journal.close()

    return write


def rows_of(columns: str, **options: str) -> list[dict[str, Any]]:
    read = read_options({**options, "columns": columns}, streaming=False)
    parts = make_partitions(epoch_ranges(read), read)
    return [row for part in parts for batch in read_partition(part, read.columns, read) for row in batch.to_pylist()]


@pytest.mark.parametrize("columns", ["key", "key,payload", "sequence,key,status", "payload,key"])
def test_keys_are_a_column_of_their_own(write: Callable[..., None], tmp_path: Path, columns: str) -> None:
    keyed, plain = wrap(b"someones", 0, add_key(b"x", b"a")), wrap(b"someones", 1, b"no key")
    write(keyed, plain, add_key(b"no envelope", b"a"))
    rows = rows_of(columns, path=str(tmp_path))
    assert [row["key"] for row in rows] == [b"a", None, None, None]
    assert list(rows[0]) == columns.split(",")
    if "payload" in columns:
        assert [row["payload"] for row in rows] == [keyed, plain, bytes(add_key(b"no envelope", b"a")), None]


def test_keys_of_sealed_messages_are_read_with_the_key_of_the_stream(
    write: Callable[..., None], tmp_path: Path
) -> None:
    made = sealer(ring(stream=STREAM))
    write(
        seal_one(made, add_key(b"x", b"a"), encode_envelope(b"someones", 0)), wrap(b"forger!!", 0, add_key(b"", b"b"))
    )
    create_key_ring(tmp_path / "test.keys", ring(stream=STREAM))
    assert [row["key"] for row in rows_of("key", path=str(tmp_path))] == [None, b"b", None]
    rows = rows_of("status,key", path=str(tmp_path), sealKeyFile=str(tmp_path / "test.keys"))
    assert [(row["status"], row["key"]) for row in rows] == [("ok", b"a"), ("refused", None), ("lost", None)]


def test_other_protocols_have_no_keys(write: Callable[..., None], tmp_path: Path) -> None:
    write(wrap(b"someones", 0, add_key(b"x", b"a")), stream="hydra://net")
    assert [row["key"] for row in rows_of("key", path=str(tmp_path))] == [None, None]


def test_keys_are_read_on_request_only(write: Callable[..., None], tmp_path: Path) -> None:
    assert "key" not in RECORD
    write(wrap(b"someones", 0, add_key(b"x", b"a")))
    assert read_options({"path": str(tmp_path)}, streaming=False).columns == RECORD
