"""Sealed payloads between processes, with hosts on the path that read, forge and replay."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from base64 import b64decode
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from integration.running.backbone import MakePeer, Peer, RunningBackbone
from integration.running.journal import StartJournal
from integration.running.programs import Start, wait_until
from pyspark.sql import SparkSession
from suite.sealing import ring, seal_key

from fyrehose_twisted.sealing.key_file import create_key_ring, create_signing_key, replace_key_ring
from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.signing import SigningKey
from fyrehose_twisted.spark.pipeline.envelopes import unwrapped

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECRET_TEXT = b"the price is 41.3"

PRINTER = """
from fyrehose_twisted.fyrehose.protocol import SubscriberProtocol


class Printer(SubscriberProtocol):
    def messages_received(self, messages):
        for message in messages:
            print(f"got {message.data.decode()} in {len(message.payload)} bytes", flush=True)
"""


class Tap:
    """Host on the path that reads the stream as on the wire, and publishes without a key."""

    def __init__(self, start: Start, backbone: RunningBackbone, peer: Peer) -> None:
        self._program = start("fyrehose", "sub", "-b", backbone.text, "--raw", "--format", "json")
        self.publish = peer.publish
        backbone.wait_for_clients(1)

    def seen(self, count: int) -> list[bytes]:
        """Return DATA of the first ``count`` messages."""
        self._program.wait_until(lambda: self._program.out.count("\n") >= count)
        rows = map(json.loads, self._program.out.splitlines()[:count])
        return [b64decode(row["data"]) if "encoding" in row else row["data"].encode() for row in rows]


@pytest.fixture
def tap(start: Start, backbone: RunningBackbone, peer: MakePeer) -> Tap:
    return Tap(start, backbone, peer(backbone))


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "prices.keys"
    create_key_ring(path, ring(1))
    return path


def test_nobody_on_the_way_sees_the_payload_and_what_is_forged_or_replayed_is_dropped(
    start: Start, backbone: RunningBackbone, tap: Tap, start_journal: StartJournal, keys: Path
) -> None:
    to = ("-b", backbone.text, "--seal-key-file", keys)
    journal = start_journal(backbone, "journal")
    subscriber = start("fyrehose", "sub", *to, "--format", "json", "--count", 3)
    backbone.wait_for_clients(3)
    tap.publish(b"not sealed")
    tap.seen(1)
    assert start("fyrehose", "pub", *to).finish(SECRET_TEXT + b"\nsecond\n") == 0
    first = tap.seen(3)[1]
    changed = first[:-1] + bytes([first[-1] ^ 1])
    other_envelope = first[:19] + bytes([first[19] ^ 64]) + first[20:]
    tap.publish(first, changed, other_envelope)
    seen = tap.seen(6)
    assert seen[3:] == [first, changed, other_envelope]
    assert start("fyrehose", "pub", *to).finish(b"third\n") == 0
    assert subscriber.finish() == 0
    assert re.findall(r'"sequence": (\d+).*"data": "([^"]*)"', subscriber.out) == [
        ("2", SECRET_TEXT.decode()),
        ("3", "second"),
        ("7", "third"),
    ]
    assert "dropped in all: 1 seal_missing, 2 seal_forged\n" in subscriber.err
    late = start("fyrehose", "sub", *to, "--from", "oldest", "--count", 3)
    assert late.finish() == 0
    assert late.out == f"{SECRET_TEXT.decode()}\nsecond\nthird\n", "old messages of two publishers, from a journal"
    journal.stop()
    stored = b"".join(path.read_bytes() for path in journal.path.iterdir())
    assert first in stored
    mine = keys.with_name("default.keys")
    create_key_ring(mine, KeyRing("fyrehose://default", ring().keys))
    cat = start("fyrehose", "journal", "cat", journal.path, "--seal-key-file", mine)
    assert cat.finish() == 0
    assert cat.out == "", "the stream is called prices where it was sealed"
    assert not any(SECRET_TEXT in data for data in [stored, *seen])


@pytest.mark.extended
def test_replays_are_dropped_across_a_restart(
    start: Start, backbone: RunningBackbone, tap: Tap, keys: Path, tmp_path: Path
) -> None:
    to = ("-b", backbone.text, "--seal-key-file", keys)
    sub = ("fyrehose", "sub", *to, "--state", tmp_path / "state")
    before = start(*sub, "--count", 2)
    backbone.wait_for_clients(2)
    assert start("fyrehose", "pub", *to).finish(b"one\ntwo\n") == 0
    captured = tap.seen(2)
    assert before.finish() == 0
    after = start(*sub, "--count", 1)
    # Without their envelopes the payloads do not open, and with them they are repeats.
    tap.publish(*captured, *(data[20:] for data in captured))
    tap.seen(6)
    assert start("fyrehose", "pub", *to).finish(b"three\n") == 0
    assert after.finish() == 0
    assert (before.out, after.out) == ("one\ntwo\n", "three\n")
    assert "2 seal_forged" in after.err


@pytest.mark.extended
def test_sealed_messages_are_repaired_through_a_lossy_relay_without_a_key(
    start: Start, backbone: RunningBackbone, start_journal: StartJournal, keys: Path
) -> None:
    start_journal(backbone, "journal")
    relay = start("python", EXAMPLES / "lossy_relay.py", "--backbone", backbone.text, "--port", 0, "--loss", "0.1")
    through = relay.wait_for(r"relaying 127.0.0.1:(\d+)")
    far = start(
        "fyrehose", "sub", "-b", f"127.0.0.1:{through[1]}", "--seal-key-file", keys, "--from", 1, "--count", 2_000
    )
    backbone.wait_for_clients(2)
    lines = b"".join(b"line %d\n" % number for number in range(2_000))
    assert start("fyrehose", "pub", "-b", backbone.text, "--seal-key-file", keys).finish(lines) == 0
    assert far.finish() == 0
    assert far.outputs[1] == lines
    assert far.err == ""


@pytest.mark.extended
def test_keys_rotate_without_a_stop(start: Start, backbone: RunningBackbone, keys: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "subscriber.keys"
    create_key_ring(theirs, ring(1))
    subscriber = start("fyrehose", "sub", "-b", backbone.text, "--seal-key-file", theirs, "--count", 3)
    backbone.wait_for_clients(1)
    publisher = start("fyrehose", "pub", "-b", backbone.text, "--seal-key-file", keys)
    publisher.write(b"old key\n")
    subscriber.wait_for("old key")
    theirs.write_text("nonsense\n")
    subscriber.signal(signal.SIGHUP)
    subscriber.wait_until(lambda: "line 1: expected 'stream URI'" in subscriber.err)
    replace_key_ring(theirs, ring(1, 2))
    subscriber.signal(signal.SIGHUP)
    assert start("fyrehose", "pub", "-b", backbone.text, "--seal-key-file", keys).finish(b"still the old key\n") == 0
    subscriber.wait_for("still the old key")
    replace_key_ring(keys, ring(2, 1))
    publisher.signal(signal.SIGHUP)
    # A signal has no reply: the publisher handles it before a line that arrives later.
    assert publisher.finish(b"new key\n") == 0
    assert subscriber.finish() == 0
    assert subscriber.out == "old key\nstill the old key\nnew key\n"
    assert subscriber.err.count("dropped") == 0


def test_a_client_service_opens_what_a_frontend_seals_and_signs(
    start: Start, backbone: RunningBackbone, tap: Tap, keys: Path, tmp_path: Path
) -> None:
    signing = SigningKey(b"7" * 32)
    create_signing_key(tmp_path / "frontend.key", signing)
    replace_key_ring(keys, KeyRing(ring().stream, ring().keys, {"frontend": signing.public}))
    (tmp_path / "printing.py").write_text(PRINTER)
    to = ("-b", backbone.text, "--seal-key-file", keys.name)
    subscriber = start(
        "twistd",
        "-n",
        "--pidfile=",
        "fyrehose-client",
        *to,
        "--protocol",
        "printing.Printer",
        cwd=tmp_path,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    backbone.wait_for_clients(2)
    assert start("fyrehose", "pub", "-b", backbone.text, "--seal-key-file", keys).finish(b"unsigned\n") == 0
    frontend = start(
        "twistd",
        "-n",
        "--pidfile=",
        "fyrehose-frontend",
        *to,
        "--sign-key-file",
        "frontend.key",
        "--http",
        "none",
        "--lines",
        "tcp:0",
        cwd=tmp_path,
        stderr=subprocess.STDOUT,
    )
    port = int(frontend.wait_for(r"--lines: listening on 127.0.0.1:(\d+)")[1])
    with socket.create_connection(("127.0.0.1", port)) as lines:
        lines.sendall(b"signed\n")
        assert lines.recv(100) == b"2\n"
        subscriber.wait_for("got signed in")
        # Both services read the keys again, subscribers first.
        for keys_now, program in ((ring(1, 2), subscriber), (ring(2, 1), frontend)):
            replace_key_ring(keys, KeyRing(ring().stream, keys_now.keys, {"frontend": signing.public}))
            program.signal(signal.SIGHUP)
            program.wait_for(f"SIGHUP: .*key {seal_key(2).id.hex()} added")
        lines.sendall(b"rotated\n")
        assert lines.recv(100) == b"3\n"
    subscriber.wait_for("got rotated in")
    assert "got unsigned" not in subscriber.out
    assert not any(b"signed" in data or b"rotated" in data for data in tap.seen(3))


@pytest.mark.extended
def test_the_query_service_shows_opened_records_and_reads_keys_again(
    start: Start, backbone: RunningBackbone, keys: Path, tmp_path: Path
) -> None:
    query = start(
        *("twistd", "-n", "--pidfile=", "fyrehose-query", "-d", "journals", "-b", backbone.text, "--name", "prices"),
        *("--http", "tcp:0", "--seal-key-file", keys.name),
        cwd=tmp_path,
        stderr=subprocess.STDOUT,
    )
    port = int(query.wait_for(r"--http: listening on 127\.0\.0\.1:(\d+)")[1])
    site = f"http://127.0.0.1:{port}"

    def shown() -> list[str]:
        with suppress(HTTPError), urlopen(f"{site}/streams/fyrehose-prices/records") as answer:
            return [record["text"] for record in json.load(answer)]
        return []

    backbone.wait_for_clients(1)
    theirs = tmp_path / "publisher.keys"
    create_key_ring(theirs, ring(1))
    to = ("-b", backbone.text)
    assert start("fyrehose", "pub", *to).finish(b"not sealed\n") == 0
    assert start("fyrehose", "pub", *to, "--seal-key-file", theirs).finish(b"old key\n") == 0
    wait_until(lambda: shown() == ["old key"], shown)
    replace_key_ring(keys, ring(1, 2))
    query.signal(signal.SIGHUP)
    query.wait_for("SIGHUP: key .* added")
    replace_key_ring(theirs, ring(2))
    assert start("fyrehose", "pub", *to, "--seal-key-file", theirs).finish(b"new key\n") == 0
    wait_until(lambda: shown() == ["old key", "new key"], shown)
    with urlopen(f"{site}/metrics") as answer:
        refused = r'fyrehose_query_refused_total\{reason="seal_missing",stream="fyrehose://prices"\} [1-9]'
        assert re.search(refused, answer.read().decode())


@pytest.mark.extended
def test_spark_publishes_sealed_and_reads_what_a_journal_kept(
    spark: SparkSession, start: Start, backbone: RunningBackbone, start_journal: StartJournal, tmp_path: Path
) -> None:
    keys = tmp_path / "default.keys"
    create_key_ring(keys, ring(1, stream="fyrehose://default"))
    journal = start_journal(backbone, "journal")
    backbone.wait_for_clients(1)
    options = {"backbone": backbone.text, "sealKeyFile": str(keys)}
    frame = spark.range(20).selectExpr("concat('row ', id) as payload")
    frame.write.format("fyrehose").mode("append").options(**options).save()
    assert start("fyrehose", "pub", "-b", backbone.text).finish(b"not sealed\n") == 0
    journal.wait_for(21)
    journal.stop()
    assert not any(b"row 7" in path.read_bytes() for path in journal.path.iterdir())
    reader = spark.read.format("fyrehose").option("sealKeyFile", str(keys))
    rows = unwrapped(reader.load(str(journal.path))).select("payload", "status").collect()
    assert sorted(bytes(row.payload).decode() for row in rows if row.status == "ok") == sorted(
        f"row {number}" for number in range(20)
    )
    assert [row.payload for row in rows if row.status == "refused"] == [None]


def test_options_without_what_they_need_are_told(start: Start, keys: Path, tmp_path: Path) -> None:
    for command, message in (
        (("pub", "--sign-key-file", "x"), "--sign-key-file requires --seal-key-file FILE"),
        (("sub", "--allow-plain"), "--allow-plain requires --seal-key-file FILE"),
        (("sub", "--raw", "--seal-key-file", keys), "--raw prints messages as on the wire, sealed; omit it or"),
        (("pub", "--seal-key-file", tmp_path / "none"), f"seal key file {tmp_path / 'none'} cannot be read: No such"),
    ):
        program = start("fyrehose", *command)
        assert program.finish() == 1
        assert program.err.startswith(f"fyrehose: {message}"), program.err
