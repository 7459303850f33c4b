"""Silver tables: one row per number, merged from all journals."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.wire.envelope import MAX_ENVELOPED, wrap
from fyrehose_twisted.fyrehose.wire.term_start import TermStart, decode_term_start, encode_term_start
from fyrehose_twisted.journal.arrow.schema import COLUMNS, ddl
from fyrehose_twisted.repeats import WINDOW, EnvelopeRun, RepeatDetector
from fyrehose_twisted.spark.pipeline import buckets
from fyrehose_twisted.spark.pipeline.envelopes import unwrapped, with_repeats
from fyrehose_twisted.spark.pipeline.json_payloads import (
    check_field,
    inferred_schema,
    parse_schema,
    parse_schema_option,
    with_messages,
)
from fyrehose_twisted.spark.pipeline.json_payloads import sent_time_micros as sent_micros
from fyrehose_twisted.spark.pipeline.silver import JUMP_US, quarantine, silver, silver_schema

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

STREAM = "fyrehose://test"
START = 1_700_000_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def when(micros: int | None) -> datetime | None:
    return None if micros is None else EPOCH + timedelta(microseconds=micros)


def table(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    """Make a table of rows of journal, number, microseconds after START and payload; lost without the last two."""
    full = [
        (
            STREAM,
            0,
            number,
            when(None if payload is None else START + at),
            None if payload is None else bytearray(payload),
            "lost" if payload is None else "ok",
            journal,
            "seg",
        )
        for journal, number, at, payload in rows
    ]
    return spark.createDataFrame(full, ddl(tuple(COLUMNS)))


def by_number(result: DataFrame) -> dict[int, Any]:
    rows = result.collect()
    found = {row.sequence: row for row in rows}
    assert len(found) == len(rows)
    return found


def expected(rows: list[tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
    """Reference implementation of silver without Spark."""
    journals: dict[str, dict[int, tuple[int, bytes]]] = defaultdict(dict)
    numbers = {number for _, number, _, _ in rows}
    for journal, number, at, payload in rows:
        if payload is not None:
            journals[journal][number] = at, payload
    result: dict[int, tuple[Any, ...]] = {}
    for number in numbers:
        copies = [(name, *held[number]) for name, held in journals.items() if number in held]
        if not copies:
            result[number] = None, None, "lost", 0, 0, None
            continue
        first = min(at for _, at, _ in copies)
        late, delay = 0, 0
        for name, at, _ in copies:
            higher = [
                then
                for other, (then, _) in journals[name].items()
                if other > number and other // buckets.NUMBERS == number // buckets.NUMBERS
            ]
            late += bool(higher) and at > min(higher)
            delay = max(delay, at - min([first, *higher]))
        agree = len({payload for _, _, payload in copies}) == 1
        payload = copies[0][2] if agree else None
        result[number] = START + first, payload, "ok" if agree else "quarantined", len(copies), late, delay
    return result


def test_silver_equals_its_reference_implementation(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "NUMBERS", 100)
    chance = random.Random(4)
    rows: list[tuple[Any, ...]] = []
    for journal in "abc":
        for number in range(150, 420):
            drawn = chance.random()
            at = number * 1_000 + chance.choice([0, 0, 0, 7, 50_000])
            if drawn < 0.6:
                rows.append((journal, number, at, b"%d" % number if drawn > 0.02 else b"forged"))
            elif drawn < 0.9:
                rows.append((journal, number, 0, None))
    chance.shuffle(rows)
    bronze = table(spark, rows)
    got = {
        number: (
            None if row.received_at is None else round(row.received_at.timestamp() * 1e6),
            None if row.payload is None else bytes(row.payload),
            row.status,
            row.copies,
            row.late_copies,
            row.latency_us,
        )
        for number, row in by_number(silver(bronze)).items()
    }
    want = expected(rows)
    assert got == want
    assert {status for _, _, status, *_ in want.values()} == {"ok", "lost", "quarantined"}
    assert any(late for *_, late, _ in want.values())

    disputed = {number for number, row in want.items() if row[2] == "quarantined"}
    versions = sorted((row.sequence, row.journal, bytes(row.payload)) for row in quarantine(bronze).collect())
    assert versions == sorted((n, j, p) for j, n, _, p in rows if p is not None and n in disputed)


def test_payloads_are_compared_byte_by_byte_in_silver(spark: SparkSession) -> None:
    big = bytes(MAX_ENVELOPED)
    rows = [
        ("a", 1, 1, wrap(b"someone!", 2**64 - 1, big)),
        ("b", 1, 1, wrap(b"someone!", 2**64 - 1, big[:-1] + b"\x01")),
        ("a", 2, 2, b""),
        ("b", 2, 2, b""),
        ("a", 3, 3, b"\xff\xfe"),
        ("a", 3, 3, b"\xff\xfe"),
        ("a", 4, 4, wrap(b"someone!", 7, big)),
    ]
    found = by_number(silver(table(spark, rows)))
    assert found[1].status == "quarantined"
    assert found[1].payload is None
    assert found[1].publisher is None
    assert (bytes(found[2].payload), found[2].copies, found[2].status) == (b"", 2, "ok")
    assert (bytes(found[3].payload), found[3].copies) == (b"\xff\xfe", 1)
    assert (bytes(found[4].payload), found[4].publisher, found[4].counter) == (big, b"someone!".hex(), 7)


def test_a_clock_jump_marks_no_other_record_late(spark: SparkSession) -> None:
    hour = JUMP_US
    rows = [("a", number, number, b"x") for number in range(10, 60)]
    rows[20] = ("a", 30, -START, b"from 1970")
    rows[30] = ("a", 40, 6_000_000 * hour // 3_600 * 1_000, b"from 2200 or so")
    rows[40] = ("a", 50, 100, b"repaired")
    found = by_number(silver(table(spark, rows)))
    assert {number for number, row in found.items() if row.late_copies} == {40, 50}
    assert {number for number, row in found.items() if row.latency_us} == {40, 50}
    assert found[50].latency_us == 100 - 51
    assert found[30].received_at.year == 1970


def test_repeats_are_marked_across_bucket_boundaries(spark: SparkSession) -> None:
    edge = buckets.NUMBERS
    sent = {edge - WINDOW: 1, edge - 2: 2, edge - 1: 3, edge: 1, edge + 1: 1, edge + 5: 2, edge + WINDOW: 3}
    rows = [("a", number, number, wrap(b"someone!", counter, b"x")) for number, counter in sent.items()]
    rows += [("a", edge + 6, 6, wrap(b"somebody", 1, b"x")), ("a", edge + 7, 7, b"bare"), ("a", edge + 8, 8, b"bare")]
    expected = {edge, edge + 1, edge + 5}
    whole = silver(table(spark, rows))
    assert {number for number, row in by_number(whole).items() if row["repeat"]} == expected

    earlier = whole.where("bucket = 0")
    later = silver(table(spark, [row for row in rows if row[1] >= edge]), earlier=earlier)
    assert {number for number, row in by_number(later).items() if row["repeat"]} == expected
    assert later.count() == 7


def test_silver_marks_the_repeats_that_subscribers_drop(spark: SparkSession) -> None:
    rng = random.Random(11)
    kept: list[tuple[str, int, bytes]] = []
    expected = set()
    for stream in range(60):
        repeats, number = RepeatDetector(), 1
        for _ in range(rng.randint(1, 25)):
            number += rng.choice((1, 1, 1, 2, WINDOW - 1, WINDOW, rng.randint(1, WINDOW)))
            publisher, counter = rng.choice((b"someone!", b"somebody")), rng.randint(0, 3)
            kept.append((f"fyrehose://{stream}", number, wrap(publisher, counter, b"x")))
            if repeats.add(EnvelopeRun(number, int.from_bytes(publisher, "big"), counter, 1)):
                expected.add((f"fyrehose://{stream}", number))
    rows = spark.createDataFrame(
        [(stream, 0, number, bytearray(payload)) for stream, number, payload in kept],
        "stream STRING, epoch BIGINT, sequence BIGINT, payload BINARY",
    )
    marked = with_repeats(unwrapped(rows)).where("`repeat`").select("stream", "sequence").collect()
    assert expected
    assert {tuple(row) for row in marked} == expected


def test_silver_marks_the_starts_of_terms_that_subscribers_leave_out(spark: SparkSession) -> None:
    start = encode_term_start(TermStart(3, 4, 9))
    messages = {
        9: start,
        10: start,
        11: wrap(b"someone!", 1, start),
        12: start[:-1],
        13: encode_term_start(TermStart(2**64 - 1, 12, 13)),
        14: start[:4] + bytes(8) + start[12:20] + (14).to_bytes(8, "big"),
        15: start[:12] + (15).to_bytes(8, "big") * 2,
        2**40: encode_term_start(TermStart(1, 0, 2**40)),
    }
    rows = spark.createDataFrame(
        [("fyrehose://a", 0, number, bytearray(payload)) for number, payload in messages.items()],
        "stream STRING, epoch BIGINT, sequence BIGINT, payload BINARY",
    )
    marked = with_repeats(unwrapped(rows)).where("`repeat`").select("sequence").collect()
    assert {row.sequence for row in marked} == {9, 13, 2**40}
    assert {number for number, data in messages.items() if decode_term_start(number, data)} == {9, 13, 2**40}


def test_envelopes_are_removed_from_payloads(spark: SparkSession) -> None:
    payloads = [wrap(b"\x00abcdef\xff", 258, b"text"), wrap(b"\x00abcdef\xff", 1, b""), b"\xf7FY\x01short", b"", None]
    rows = spark.createDataFrame(
        [(number, None if one is None else bytearray(one)) for number, one in enumerate(payloads)],
        "n INT, payload BINARY",
    )
    got = [
        (None if row.payload is None else bytes(row.payload), row.publisher, row.counter)
        for row in unwrapped(rows).orderBy("n").collect()
    ]
    publisher = b"\x00abcdef\xff".hex()
    assert got == [
        (b"text", publisher, 258),
        (b"", publisher, 1),
        (payloads[2], None, None),
        (b"", None, None),
        (None, None, None),
    ]


BAD = {
    b"": "empty",
    b'{"n": 1, "x": "\xff"}': "not UTF-8",
    b'{"n": 1': "not JSON",
    b"plain": "not JSON",
    b"5": "not an object",
    b'[{"n": 1}]': "not an object",
    b"null": "not an object",
    b'{"n": "one"}': "does not fit the schema",
}


def test_invalid_json_is_kept_with_its_reason(spark: SparkSession) -> None:
    good = {b'{"n": 1, "in": {"x": [1.5]}}': (1, [1.5]), b' {"n": null}': (None, None), b"{}": (None, None)}
    payloads = [*good, *BAD]
    rows = spark.createDataFrame([(bytearray(one),) for one in payloads], "payload BINARY")
    schema = parse_schema("n BIGINT, in STRUCT<x: ARRAY<DOUBLE>>")
    found = {bytes(row.payload): row for row in with_messages(rows, schema).collect()}
    assert {payload: row.bad_json for payload, row in found.items()} == BAD | dict.fromkeys(good)
    assert all(found[payload].message is None for payload in BAD)
    read = {payload: found[payload].message for payload in good}
    assert {payload: (one.n, one["in"] and one["in"].x) for payload, one in read.items()} == good
    assert silver_schema(schema).fieldNames()[-2:] == ["message", "bad_json"]


def test_the_schema_is_inferred_from_valid_json_payloads(spark: SparkSession) -> None:
    payloads = [b"no", b"\xff{}", b'{"n": 1, "N": 2, "in": {"a b": "x"}}', b'{"n": 2.5}', b'{"n": 1']
    rows = spark.createDataFrame([(bytearray(one),) for one in payloads], "payload BINARY")
    found = inferred_schema(rows, 100)
    assert found is not None
    assert sorted(field.name.lower() for field in found.fields) == ["in", "n"]
    assert found["in"].dataType.simpleString() == "struct<a b:string>"
    assert inferred_schema(rows, 2) is None


def test_the_sent_time_is_read_from_a_json_field(spark: SparkSession) -> None:
    said = {
        "1700000000": 1_700_000_000_000_000,
        "1700000000.25": 1_700_000_000_250_000,
        "1700000000123": 1_700_000_000_123_000,
        "1700000000123456": 1_700_000_000_123_456,
        "1700000000123456000": 1_700_000_000_123_456,
        '"2023-11-14T22:13:20.5Z"': 1_700_000_000_500_000,
        '"2023-11-14 23:13:20+01:00"': 1_700_000_000_000_000,
        '"soon"': None,
        "{}": None,
    }
    payloads = [(one, bytearray(b'{"a": {"at": %s}}' % one.encode())) for one in said]
    rows = spark.createDataFrame([*payloads, ("none", bytearray(b"\xff"))], "said STRING, payload BINARY")
    found = {row.said: row.at for row in rows.select("said", sent_micros("a.at").alias("at")).collect()}
    assert found == said | {"none": None}
    field = silver(table(spark, [("a", 1, 5, b'{"at": 1700000000}'), ("b", 1, 9, b'{"at": 1700000000}')]), sent_at="at")
    assert [row.latency_us for row in field.collect()] == [9]


@pytest.mark.parametrize("text", ["price DOUBEL", "BIGINT", "v VARIANT", "_corrupt_record STRING", "{}", ""])
def test_an_invalid_schema_is_refused(spark: SparkSession, text: str) -> None:
    with pytest.raises(ConfigurationError, match="--schema"):
        parse_schema_option(spark, text)


def test_a_schema_can_be_read_from_a_file(spark: SparkSession, tmp_path: Path) -> None:
    wanted = parse_schema("price DOUBLE, at TIMESTAMP")
    for text in ("price DOUBLE,\n  at TIMESTAMP\n", wanted.json()):
        path = tmp_path / "schema"
        path.write_text(text)
        assert parse_schema_option(spark, str(path)) == wanted
    assert json.loads(wanted.json())["type"] == "struct"


@pytest.mark.parametrize("field", ["", "a..b", "a'b"])
def test_an_invalid_sent_at_field_is_refused(field: str) -> None:
    with pytest.raises(ConfigurationError, match="--sent-at"):
        check_field(field)
