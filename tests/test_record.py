from __future__ import annotations

from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.record import Record


def test_a_record_has_the_columns_of_journal_and_spark() -> None:
    assert Record._fields == ("stream", "epoch", "sequence", "received_at", "payload")


def test_the_record_of_a_message_has_its_wire_payload() -> None:
    message = Message(7, 1_700_000_000_000_000, b"payload", b"envelope and payload")
    assert message.record("fyrehose://ticker") == Record(
        "fyrehose://ticker", 0, 7, 1_700_000_000_000_000, b"envelope and payload"
    )
