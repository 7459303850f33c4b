from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import SystemRandom
from secrets import token_bytes
from time import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import ConfigurationError, MessageTooLarge, OperationalError
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import MessagesDelivered
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, MAX_ENVELOPED, Envelope, unwrap
from fyrehose_twisted.fyrehose.wire.message_key import KEY_MAGIC, add_key, split_key
from fyrehose_twisted.spark.sink import make_stream_writer, make_writer, publish
from fyrehose_twisted.spark.sink.identity import encode_scope, wrap_by_id, wrap_by_position
from fyrehose_twisted.spark.sink.ledger import FinishedBatches, Ledger
from fyrehose_twisted.spark.sink.options import sink_options
from fyrehose_twisted.spark.sink.publisher import BlockingPublisher, resolve_backbone, resolve_backbones
from fyrehose_twisted.spark.sink.rows import RowExtractor, RowNotPublishable, RowTooLarge, chunks, row_to_json
from fyrehose_twisted.spark.sink.task import PublishTask, Receipt
from fyrehose_twisted.spark.sink.threaded_client import ThreadedClient, bind_towards
from fyrehose_twisted.spark.sink.writer import PublishedPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BACKBONE = "127.0.0.1:2323"
DEADLINE = 120.0
"""Seconds after which a test fails."""


class Subscriber(ThreadedClient):
    """A subscriber that receives raw messages."""

    def __init__(self, backbone: str) -> None:
        address = resolve_backbone(backbone)
        node = Client(address, ClientConfig(raw=True), SystemRandom(), time())
        super().__init__(node, bind_towards(address, 4 * 2**20))
        self.backbone = backbone
        self.data: list[bytes] = []
        self.more = threading.Condition()
        self.start()
        assert self.wait_connected(DEADLINE)

    def _handle_event(self, event: object) -> None:
        if isinstance(event, MessagesDelivered):
            with self.more:
                self.data += [message.payload for message in event.messages]
                self.more.notify_all()
        super()._handle_event(event)

    def take(self) -> list[bytes]:
        """Return messages with envelopes since the last call; late acks may cause duplicates."""
        end = token_bytes(32)
        with BlockingPublisher(self.backbone) as publisher:
            publisher.publish([end])
            publisher.flush()
        with self.more:
            assert self.more.wait_for(lambda: end in self.data, DEADLINE), self.data
            place = self.data.index(end)
            taken, self.data = self.data[:place], self.data[place + 1 :]
            return [data for data in taken if unwrap(data) is not None]


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a backbone in a subprocess."""
    twistd = Path(sys.executable).parent / "twistd"
    command = [twistd, "-n", "--pidfile=", "fyrehose-backbone", "--port", "0", "--settle-time", "0"]
    directory = tmp_path_factory.mktemp("backbone")
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=directory, **options) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        listening = next(found for line in lines if (found := re.search(r"listening on ([0-9.]+:\d+)", line)))
        yield listening[1]
        process.kill()


@pytest.fixture
def subscriber(backbone: str) -> Iterator[Subscriber]:
    subscriber = Subscriber(backbone)
    yield subscriber
    subscriber.close()


def schema_of(*columns: str) -> Any:
    """Return a stand-in for a Spark schema with the attributes that Rows uses."""
    fields = [
        SimpleNamespace(name=name, dataType=SimpleNamespace(simpleString=lambda kind=kind: kind))
        for name, kind in (column.split(":", 1) for column in columns)
    ]
    return SimpleNamespace(fields=fields, fieldNames=lambda: [field.name for field in fields])


def rows(table: Mapping[str, Any], *columns: str, **options: str) -> list[tuple[bytes, bytes]]:
    taken = RowExtractor(sink_options({"backbone": BACKBONE} | options), schema_of(*columns))
    return [tuple(row) for row in taken.extract(pyarrow.table(table).to_batches(max_chunksize=2), 7)]


def payloads(data: list[bytes]) -> list[bytes]:
    """Return payloads as delivered by subscribers."""
    first: dict[Envelope, bytes] = {}
    for one in data:
        first.setdefault(unwrap(one) or pytest.fail(f"no envelope: {one!r}"), one[ENVELOPE_SIZE:])
    return list(first.values())


def test_payloads_are_read_from_a_column() -> None:
    texts = {"payload": [b"a", b"\xff", b""], "text": ["ä", "b", "c"], "n": [3, 4, -5]}
    columns = ("payload:binary", "text:string", "n:bigint")
    assert rows(texts, *columns) == [(b"a", b""), (b"\xff", b""), (b"", b"")]
    assert rows(texts, *columns, column="text", idColumn="n") == [("ä".encode(), b"3"), (b"b", b"4"), (b"c", b"-5")]
    assert [row[1] for row in rows(texts, *columns, idColumn="text")] == ["ä".encode(), b"b", b"c"]


def test_keys_are_read_from_a_column() -> None:
    table = {"payload": [b"a", b"b", b"c"], "place": ["hall", None, "ü"], "n": [7, 8, 9]}
    columns = ("payload:binary", "place:string", "n:bigint")
    found = rows(table, *columns, keyColumn="place", idColumn="n")
    assert found == [(add_key(b"a", b"hall"), b"7"), (b"b", b"8"), (add_key(b"c", "ü".encode()), b"9")]
    assert [row[0] for row in rows(table, *columns, keyColumn="n")] == [
        add_key(data, key) for data, key in ((b"a", b"7"), (b"b", b"8"), (b"c", b"9"))
    ]
    with pytest.raises(RowNotPublishable, match="row 1 of partition 7, counted from 0: key of 256 bytes"):
        rows({"payload": [b"a", b"b"], "key": [b"k", b"k" * 256]}, "payload:binary", "key:binary", keyColumn="key")
    with pytest.raises(ConfigurationError, match="keyColumn 'nowhere' is not in the table"):
        rows(table, *columns, keyColumn="nowhere")
    with pytest.raises(ConfigurationError, match="raw and keyColumn exclude each other"):
        sink_options({"backbone": BACKBONE, "keyColumn": "n", "raw": "true"})
    with pytest.raises(RowTooLarge):
        rows({"payload": [bytes(MAX_ENVELOPED)], "n": [1]}, "payload:binary", "n:bigint", keyColumn="n")


def test_a_published_row_has_its_key(subscriber: Subscriber, backbone: str) -> None:
    options = sink_options({"backbone": backbone, "keyColumn": "place"})
    table = pyarrow.table({"payload": [b"21", KEY_MAGIC + b"\x01kx"], "place": ["hall", None]})
    task = PublishTask(options, RowExtractor(options, schema_of("payload:binary", "place:string")))
    task.publish(table.to_batches(), 0, "scope")
    messages = [split_key(data, ENVELOPE_SIZE) for data in subscriber.take()]
    assert messages == [(b"hall", b"21"), (None, KEY_MAGIC + b"\x01kx")]


def test_rows_without_a_payload_column_are_json() -> None:
    found = rows({"n": [1, None], "text": ["ä", "b"]}, "n:bigint", "text:string")
    assert [payload for payload, _ in found] == ['{"n":1,"text":"ä"}'.encode(), b'{"n":null,"text":"b"}']
    # A payload column that is not binary is an ordinary column.
    assert rows({"payload": [1.5]}, "payload:double") == [(b'{"payload":1.5}', b"")]


def test_every_spark_type_is_encoded_as_json() -> None:
    row = {
        "instant": datetime(2026, 1, 31, 12, 0, 0, 5, UTC),
        "local": datetime(2026, 1, 31, 12),
        "day": date(2026, 1, 31),
        "bytes": b"\xff\x00",
        "decimal": Decimal("1.10"),
        "wait": timedelta(seconds=1.5),
        "nothing": float("nan"),
        "true": True,
        "nested": {"list": [{"far": float("inf"), "key": b"a"}, None]},
    }
    assert json.loads(row_to_json(row)) == {
        "instant": "2026-01-31T12:00:00.000005Z",
        "local": "2026-01-31T12:00:00",
        "day": "2026-01-31",
        "bytes": "/wA=",
        "decimal": "1.10",
        "wait": 1.5,
        "nothing": None,
        "true": True,
        "nested": {"list": [{"far": None, "key": "YQ=="}, None]},
    }


def test_rows_that_cannot_be_published_are_reported_by_number() -> None:
    with pytest.raises(RowNotPublishable, match=r"row 2 of partition 7, counted from 0, has no payload: it is null"):
        rows({"payload": [b"", b"", None]}, "payload:binary")
    with pytest.raises(RowNotPublishable, match=r"has no n: it is null; .*\"n is not null\""):
        rows({"payload": [b""], "n": pyarrow.array([None], "int64")}, "payload:binary", "n:bigint", idColumn="n")
    with pytest.raises(MessageTooLarge, match=r"row 1 of partition 7, counted from 0: message of 65,479 bytes is over"):
        rows({"payload": [bytes(MAX_ENVELOPED), bytes(MAX_ENVELOPED + 1)]}, "payload:binary")
    assert rows({"payload": [bytes(MAX_ENVELOPED + 20)]}, "payload:binary", raw="true")


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        ("a:int b:int", {"column": "c"}, r"column 'c' is not in the table, which has a, b"),
        ("a:int", {"column": "a"}, r"column 'a' is INT; cast it to one of BINARY, STRING"),
        ("a:binary i:double", {"idColumn": "i"}, r"idColumn 'i' is DOUBLE; cast it to one of BINARY, STRING, TINYINT"),
        ("a:binary", {"idColumn": "i"}, r"idColumn 'i' is not in the table"),
        ("a:int a:int", {}, r"the table has two columns 'a'"),
        ("a:int v:array<variant>", {}, r"column 'v' is ARRAY<VARIANT>, which has no JSON form"),
    ],
)
def test_a_table_without_the_required_columns_is_refused(columns: str, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        make_writer({"backbone": BACKBONE} | options, schema_of(*columns.split()), False)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, r'the sink requires a backbone: \.option\("backbone", "HOST:PORT"\)'),
        ({"backbone": "here"}, r"backbone 'here' is not HOST:PORT"),
        ({"secret": "x"}, r"use secretFile"),
        ({"secretFile": "no/where"}, r"secret file no/where cannot be read"),
        ({"raw": "yes"}, r"raw 'yes' is neither true nor false"),
        ({"raw": "true", "idColumn": "a"}, r"raw and idColumn exclude each other"),
        ({"idScope": "a"}, r"idScope requires idColumn"),
        ({"ackTimeout": "0"}, r"ackTimeout '0': give seconds above 0"),
        ({"publishTimeout": "soon"}, r"publishTimeout 'soon': give seconds"),
        ({"publishTimeout": "nan"}, r"publishTimeout 'nan': give seconds"),
        ({"maxInFlight": "0"}, r"maxInFlight '0': give a number of messages from 1 to 16384"),
    ],
)
def test_invalid_sink_options_are_refused(options: dict[str, str], complaint: str) -> None:
    given_options = options if not options or "backbone" in options else {"backbone": BACKBONE} | options
    with pytest.raises(ConfigurationError, match=complaint):
        sink_options(given_options)


def test_sink_options_are_case_insensitive(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret that is long enough\n")
    secret.chmod(0o600)
    text = {"BACKBONE": BACKBONE, "acktimeout": "1.5s", "MAXinflight": "7", "SecretFile": str(secret), "RAW": "True"}
    options = sink_options(text)
    assert (options.backbone, options.ack_timeout, options.max_in_flight, options.raw) == (BACKBONE, 1.5, 7, True)
    assert options.secret == b"a secret that is long enough"
    assert "long enough" not in repr(options)
    secret.write_text("short")
    with pytest.raises(ConfigurationError, match=r"secret file .*secret: the secret has 5 bytes"):
        sink_options(text)


def test_the_overwrite_mode_of_the_sink_is_refused() -> None:
    for make in (make_writer, make_stream_writer):
        with pytest.raises(ConfigurationError, match="published messages cannot be overwritten"):
            make({"backbone": BACKBONE}, schema_of("payload:binary"), True)


def envelopes(data: list[bytes]) -> list[Envelope]:
    return [unwrap(one) or pytest.fail("no envelope") for one in data]


@given(st.lists(st.binary(max_size=8), min_size=1), st.binary(max_size=4), st.integers(0, 9))
def test_equal_rows_get_equal_envelopes(rows: list[bytes], scope: bytes, chunk: int) -> None:
    first = wrap_by_position(scope, chunk, rows)
    assert first == wrap_by_position(scope, chunk, list(rows))
    assert [data[ENVELOPE_SIZE:] for data in first] == rows
    assert [counter for _, counter in envelopes(first)] == list(range(len(rows)))


@given(
    st.tuples(st.binary(max_size=2), st.integers(0, 2), st.lists(st.binary(max_size=1), min_size=1, max_size=3)),
    st.tuples(st.binary(max_size=2), st.integers(0, 2), st.lists(st.binary(max_size=1), min_size=1, max_size=3)),
)
def test_different_rows_get_different_envelopes(one: Any, other: Any) -> None:
    shared = set(envelopes(wrap_by_position(*one))) & set(envelopes(wrap_by_position(*other)))
    assert bool(shared) == (one == other)


@given(st.lists(st.tuples(st.binary(max_size=2), st.binary(max_size=2))), st.randoms())
def test_the_envelope_of_an_id_does_not_depend_on_its_position(rows: list[tuple[bytes, bytes]], rng: Any) -> None:
    def by_row(rows: list[tuple[bytes, bytes]], scope: bytes = b"") -> set[tuple[bytes, Envelope]]:
        data = wrap_by_id(scope, [row_id for row_id, _ in rows], [payload for _, payload in rows])
        return set(zip([row_id for row_id, _ in rows], envelopes(data), strict=True))

    once = by_row(rows)
    shuffled = rows[:]
    rng.shuffle(shuffled)
    assert by_row(shuffled) == once
    assert len({envelope for _, envelope in once}) == len({row_id for row_id, _ in once})
    assert not once & by_row(rows, b"other")


@given(st.lists(st.text(max_size=3)), st.lists(st.text(max_size=3)))
def test_scopes_differ_if_any_part_differs(one: list[str], other: list[str]) -> None:
    assert (encode_scope(*one) == encode_scope(*other)) == (one == other)


def test_rows_are_split_into_chunks() -> None:
    assert [list(chunk) for chunk in chunks(iter(range(5)), 2)] == [[0, 1], [2, 3], [4]]  # type: ignore[arg-type]
    assert list(chunks([], 2)) == []


def checkpoint(path: Path, query: str = "q") -> Path:
    path.mkdir(exist_ok=True)
    (path / "metadata").write_text(json.dumps({"id": query}))
    return path


def test_the_ledger_keeps_finished_batches(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "a b")
    ledger = Ledger.at(str(path))
    assert ledger is not None
    assert ledger.read() is None
    ledger.write(4, 10)
    again = Ledger.at(f"file:{path}".replace(" ", "%20"))
    assert again is not None
    finished = again.read()
    assert finished == FinishedBatches("q", 4)
    assert [finished.covers("q", 4), finished.covers("q", 0), finished.covers("q", 5), finished.covers("r", 4)] == [
        *(True, True),
        *(False, False),
    ]
    (path / "fyrehose-sink" / "finished.json").write_text('{"query"')
    assert ledger.read() is None


def test_a_checkpoint_on_another_file_system_has_no_ledger(tmp_path: Path) -> None:
    assert Ledger.at(None) is None
    assert Ledger.at("hdfs://host/checkpoint") is None
    ledger = Ledger.at(str(tmp_path))
    assert ledger is not None
    ledger.write(1, 1)
    assert not list(tmp_path.iterdir())


def test_committing_a_micro_batch_writes_the_ledger(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "checkpoint")
    options = {"backbone": BACKBONE, "checkpointLocation": str(path)}
    writer = make_stream_writer(options, schema_of("payload:binary"), False)
    writer.commit([PublishedPartition(Receipt(0, 2, 1, 2)), PublishedPartition(Receipt(1, 3, 3, 5))], 8)
    written = json.loads((path / "fyrehose-sink" / "finished.json").read_text())
    assert written == {"query": "q", "batch": 8, "messages": 5}
    writer.commit([PublishedPartition(Receipt(0), skipped=True)], 3)
    assert json.loads((path / "fyrehose-sink" / "finished.json").read_text()) == written
    (path / "fyrehose-sink" / "finished.new").mkdir()
    with pytest.raises(OperationalError, match=r"finished.new cannot be written: Is a directory"):
        writer.commit([], 9)


@pytest.fixture
def registered(spark: SparkSession) -> SparkSession:
    from fyrehose_twisted.spark import register

    register(spark)
    return spark


def test_a_table_written_to_the_sink_is_published(
    registered: SparkSession, backbone: str, subscriber: Subscriber
) -> None:
    frame = registered.range(0, 3_000, 1, 2).selectExpr("cast(id as string) as payload")
    frame.write.format("fyrehose").mode("append").option("backbone", backbone).save()
    data = list(dict.fromkeys(subscriber.take()))
    assert sorted(map(int, payloads(data))) == list(range(3_000))
    by_publisher: dict[bytes, list[int]] = {}
    for one in data:
        by_publisher.setdefault(envelopes([one])[0].publisher, []).append(int(one[ENVELOPE_SIZE:]))
    # Each of two partitions has two chunks, and order is kept within a chunk.
    assert len(by_publisher) == 4
    assert all(numbers == sorted(numbers) for numbers in by_publisher.values())


def test_publish_returns_the_number_of_messages(
    registered: SparkSession, backbone: str, subscriber: Subscriber
) -> None:
    frame = registered.range(0, 10, 1, 2).selectExpr("id", "id % 5 as five", "named_struct('a', array(id)) as s")
    assert publish(frame, backbone) == 10
    first = sorted(map(json.loads, payloads(subscriber.take())), key=lambda row: row["id"])
    assert first == [{"id": n, "five": n % 5, "s": {"a": [n]}} for n in range(10)]
    # Rows with equal ids are one message, also across writes with the same scope.
    for _ in range(2):
        assert publish(frame.filter("id < 5"), backbone, idColumn="five", idScope="fives") == 5
    data = subscriber.take()
    assert len(data) >= 10
    assert len(payloads(data)) == 5
    assert publish(frame.filter("id < 0"), "127.0.0.1:9") == 0, "there was nothing to connect for"


@pytest.mark.parametrize(
    ("expression", "options", "complaint"),
    [
        ("repeat('x', 70000)", {}, r"row 0 of partition 0, counted from 0: message of 70,000 bytes is over the limit"),
        ("cast(null as binary)", {}, r"row 0 of partition 0, counted from 0, has no payload"),
        ("'x'", {"backbone": "127.0.0.1:9", "ackTimeout": "0.2"}, r"backbone 127.0.0.1:9 did not answer within 0.2 s"),
        ("'x'", {"backbone": "here"}, r"backbone 'here' is not HOST:PORT"),
    ],
)
def test_sink_errors_are_raised_with_their_reason(
    registered: SparkSession, backbone: str, expression: str, options: dict[str, str], complaint: str
) -> None:
    from pyspark.errors import PySparkException

    frame = registered.range(0, 1, 1, 1).selectExpr(f"{expression} as payload")
    with pytest.raises(PySparkException, match=complaint):
        frame.write.format("fyrehose").mode("append").options(backbone=backbone).options(**options).save()


def test_overwriting_through_the_data_source_is_refused(registered: SparkSession, backbone: str) -> None:
    from pyspark.errors import PySparkException

    writer = registered.range(1).selectExpr("'x' as payload").write.format("fyrehose")
    with pytest.raises(PySparkException, match="overwritten"):
        writer.mode("overwrite").option("backbone", backbone).save()


@pytest.fixture
def run(registered: SparkSession, backbone: str, tmp_path: Path) -> Callable[[], None]:
    """Return a function that publishes new lines of a directory of text files."""
    (tmp_path / "in").mkdir()

    def ran() -> None:
        lines = registered.readStream.text(str(tmp_path / "in")).withColumnRenamed("value", "payload")
        stream = lines.writeStream.format("fyrehose").option("backbone", backbone).trigger(availableNow=True)
        query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(60)

    return ran


def test_a_restarted_streaming_query_publishes_each_row_once(
    run: Callable[[], None], subscriber: Subscriber, tmp_path: Path
) -> None:
    (tmp_path / "in" / "1.txt").write_text("one\ntwo\n")
    run()
    assert payloads(subscriber.take()) == [b"one", b"two"]
    commits = tmp_path / "checkpoint" / "commits"

    # As after a crash before Spark's commit, with the batch in the ledger: nothing is published.
    (commits / "0").unlink()
    (commits / ".0.crc").unlink(missing_ok=True)
    (tmp_path / "in" / "2.txt").write_text("three\n")
    run()
    data = subscriber.take()
    assert payloads(data) == [b"three"]

    # As after a crash before the ledger was written: the same envelopes are sent again.
    (commits / "1").unlink()
    (commits / ".1.crc").unlink(missing_ok=True)
    (tmp_path / "checkpoint" / "fyrehose-sink" / "finished.json").unlink()
    run()
    assert set(subscriber.take()) == set(data)


def test_a_sink_accepts_several_backbones() -> None:
    assert resolve_backbones("127.0.0.1:1,127.0.0.2:2,127.0.0.1:1") == [("127.0.0.1", 1), ("127.0.0.2", 2)]
    assert resolve_backbones("name.invalid:1,127.0.0.2:2") == [("127.0.0.2", 2)]
    with pytest.raises(OperationalError, match="has no IP address"):
        resolve_backbones("name.invalid:1")
    with pytest.raises(ConfigurationError, match="is not HOST:PORT"):
        sink_options({"backbone": "127.0.0.1:1,127.0.0.2"})
