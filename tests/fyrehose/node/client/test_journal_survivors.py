"""Regression tests for mutants of the journal client that other tests let pass."""

from __future__ import annotations

from random import Random

from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.node.client.journal_client import JournalClient
from fyrehose_twisted.fyrehose.node.client.journal_store import EPOCH
from fyrehose_twisted.journal.memory import MemoryJournal


def test_a_journal_whose_first_record_is_0_continues_at_1() -> None:
    journal = MemoryJournal("fyrehose://test")
    journal.begin(EPOCH, 0)
    journal.commit()
    client = JournalClient(("10.0.0.1", 2323), ClientConfig(), journal, Random(1), 1_700_000_000.0)
    assert client.next_sequence == 1
