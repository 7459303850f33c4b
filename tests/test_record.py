from __future__ import annotations

from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.record import Record


def test_a_record_is_what_a_journal_and_spark_agree_on() -> None:
    assert Record._fields == ("stream", "epoch", "sequence", "received_at", "payload")


def test_a_message_becomes_a_record_with_its_data_as_on_the_wire() -> None:
    message = Message(7, 1_700_000_000_000_000, b"payload", b"envelope and payload")
    assert message.record("fyrehose://ticker") == Record(
        "fyrehose://ticker", 0, 7, 1_700_000_000_000_000, b"envelope and payload"
    )
