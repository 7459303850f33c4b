"""Sealing by the tasks of the sink, without Spark's processes."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.sql.types import StructType
from suite.sealing import opener, ring

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, MAX_ENVELOPED, unwrap
from fyrehose_twisted.sealing.key_file import create_key_ring, create_signing_key
from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.outcome import OpenedPayload
from fyrehose_twisted.sealing.payload import SEAL_OVERHEAD
from fyrehose_twisted.sealing.signing import MAX_SIGNATURE_OVERHEAD, SigningKey
from fyrehose_twisted.spark.sink.options import sink_options
from fyrehose_twisted.spark.sink.rows import SinkRow
from fyrehose_twisted.spark.sink.task import PublishTask
from fyrehose_twisted.spark.sink.writer import task_for

SIGNING = SigningKey(b"7" * 32)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "prices.keys"
    create_key_ring(path, ring())
    create_signing_key(tmp_path / "spark.key", SIGNING)
    return path


def task(**options: str) -> PublishTask:
    """Return a task as a worker gets it."""
    made = task_for(sink_options({"backbone": "127.0.0.1:2323", **options}), StructType().add("payload", "binary"))
    return pickle.loads(pickle.dumps(made))  # type: ignore[no-any-return]  # noqa: S301


def messages(sent: PublishTask, *payloads: bytes) -> list[bytes]:
    rows = [SinkRow(payload, b"%d" % number) for number, payload in enumerate(payloads)]
    return list(sent._messages(rows, 0, b"place", b"unique", sent.options.sealer()))


def test_tasks_seal_and_sign(keys: Path, tmp_path: Path) -> None:
    sent = task(sealKeyFile=str(keys), signKeyFile=str(tmp_path / "spark.key"))
    reader = opener(KeyRing(ring().stream, ring().keys, {"spark": SIGNING.public}))
    found = [reader.open(data, ENVELOPE_SIZE) for data in messages(sent, b"one", b"two")]
    assert [one.data for one in found if isinstance(one, OpenedPayload)] == [b"one", b"two"]
    assert sent.options.max_payload == MAX_ENVELOPED - SEAL_OVERHEAD - MAX_SIGNATURE_OVERHEAD


@pytest.mark.parametrize("options", [{}, {"idColumn": "payload"}])
def test_a_repeated_task_has_the_same_envelopes_and_other_seals(keys: Path, options: dict[str, str]) -> None:
    sent = task(sealKeyFile=str(keys), **options)
    first, again = messages(sent, b"one", b"two"), messages(sent, b"one", b"two")
    assert [unwrap(data) for data in first] == [unwrap(data) for data in again]
    assert not set(first) & set(again)


@pytest.mark.parametrize("options", [{}, {"idColumn": "payload"}])
def test_envelopes_of_sealed_payloads_are_keyed_hashes(keys: Path, options: dict[str, str]) -> None:
    plain, sealed = (messages(task(**more, **options), b"one") for more in ({}, {"sealKeyFile": str(keys)}))
    assert plain[0][:12] != sealed[0][:12]


def test_raw_payloads_are_sealed_without_envelopes(keys: Path) -> None:
    [data] = messages(task(sealKeyFile=str(keys), raw="true"), b"one")
    found = opener().open(data, 0)
    assert isinstance(found, OpenedPayload)
    assert found.data == b"one"


def test_options_show_no_key_and_need_one_to_sign(keys: Path, tmp_path: Path) -> None:
    assert "01" * 8 not in repr(task(sealKeyFile=str(keys)))
    with pytest.raises(ConfigurationError, match="signKeyFile requires sealKeyFile"):
        task(signKeyFile=str(tmp_path / "spark.key"))
