"""Types of fixtures that make journals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fyrehose_twisted.journal.memory import MemoryJournal
from fyrehose_twisted.journal.store import Journal

JournalType = Journal | MemoryJournal
"""A journal on disk or in memory."""

MakeJournal = Callable[..., JournalType]
"""Makes a journal on disk or in memory."""

WriteJournal = Callable[..., Path]
"""Writes a journal and returns the directory of its stream."""
