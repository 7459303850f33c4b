"""Payloads of messages with keys, in the pipeline."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from fyrehose_twisted.fyrehose.wire.message_key import KEY_MAGIC
from fyrehose_twisted.spark.pipeline.envelopes import unwrapped

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "key.json").read_text())


def test_payloads_have_neither_envelopes_nor_keys(spark: SparkSession) -> None:
    data = [bytes.fromhex(vector["data"]) for vector in VECTORS]
    data += [bytes.fromhex(VECTORS[1]["data"])[:size] for size in range(20, 36)]
    rows = unwrapped(spark.createDataFrame(enumerate(map(bytearray, data)), "number INT, payload BINARY"))
    found = {row.number: bytes(row.payload) for row in rows.collect()}
    expected = [bytes.fromhex(vector["payload"]) for vector in VECTORS]
    cut = [one[20:] for one in data[len(VECTORS) :]]
    expected += [one if len(one) < len(KEY_MAGIC) + 9 else one[13:] for one in cut]
    assert [found[number] for number in range(len(data))] == expected
