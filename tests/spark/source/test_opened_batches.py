"""Opening of sealed payloads by a task, without Spark."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from suite.sealing import ring, seal_one, sealer

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.wire.envelope import encode_envelope, wrap
from fyrehose_twisted.journal.arrow.schema import RECORD
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.record import Record
from fyrehose_twisted.sealing.key_file import create_key_ring
from fyrehose_twisted.spark.source.options import ReadOptions, read_options
from fyrehose_twisted.spark.source.partitions import make_partitions, read_partition
from fyrehose_twisted.spark.source.planning import epoch_ranges

STREAM = "fyrehose://test"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    made = sealer(ring(stream=STREAM))
    envelopes = [encode_envelope(b"someones", counter) for counter in range(3)]
    genuine = [seal_one(made, b"%d" % number, envelope) for number, envelope in enumerate(envelopes)]
    written = open_journal(tmp_path, STREAM)
    data = [genuine[0], wrap(b"forger!!", 0, b"plain"), genuine[1][:-1] + b"?", genuine[2], seal_one(made, b"raw")]
    written.append([Record(STREAM, 0, number, number, payload) for number, payload in enumerate(data, 1)])
    written.lose(0, 6, 6)
    written.commit()
    written.close()
    return tmp_path


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "test.keys"
    create_key_ring(path, ring(stream=STREAM))
    return path


def rows_of(options: ReadOptions, columns: tuple[str, ...] = RECORD) -> list[dict[str, Any]]:
    """Return the rows that workers read, to which Spark pickles options and partitions."""
    sent = pickle.loads(pickle.dumps((options, make_partitions(epoch_ranges(options), options))))  # noqa: S301
    return [row for part in sent[1] for batch in read_partition(part, columns, sent[0]) for row in batch.to_pylist()]


def test_opened_payloads_follow_their_envelopes_and_refused_ones_are_null(journal: Path, keys: Path) -> None:
    rows = rows_of(read_options({"path": str(journal), "sealKeyFile": str(keys)}, streaming=False))
    assert [(row["sequence"], row["status"], row["payload"]) for row in rows] == [
        (1, "ok", wrap(b"someones", 0, b"0")),
        (2, "refused", None),
        (3, "refused", None),
        (4, "ok", wrap(b"someones", 2, b"2")),
        (5, "ok", b"raw"),
        (6, "lost", None),
    ]


def test_plain_payloads_are_returned_if_they_are_allowed(journal: Path, keys: Path) -> None:
    given = {"path": str(journal), "sealKeyFile": str(keys), "allowPlain": "true"}
    rows = rows_of(read_options(given, streaming=False), ("sequence", "payload"))
    assert rows[1] == {"sequence": 2, "payload": wrap(b"forger!!", 0, b"plain")}
    assert rows[2] == {"sequence": 3, "payload": None}


def test_nothing_is_opened_without_payloads(journal: Path, keys: Path) -> None:
    options = read_options({"path": str(journal), "sealKeyFile": str(keys)}, streaming=False)
    assert [row["status"] for row in rows_of(options, ("status",))] == ["ok"] * 5 + ["lost"]


def test_keys_do_not_show(journal: Path, keys: Path) -> None:
    assert "01" * 8 not in repr(read_options({"path": str(journal), "sealKeyFile": str(keys)}, streaming=False))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sealKeyFile": "/no/where"}, "seal key file /no/where cannot be read"),
        ({"sealKeyFile": "{keys},{keys}"}, "has two files for one stream"),
        ({"allowPlain": "true"}, "allowPlain requires sealKeyFile"),
    ],
)
def test_invalid_options_are_told(keys: Path, given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_options({"path": ".", **{name: value.format(keys=keys) for name, value in given.items()}}, streaming=False)
