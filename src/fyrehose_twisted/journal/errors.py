"""Errors of journals, and the description of damage."""

from __future__ import annotations

from typing import NamedTuple

from fyrehose_twisted.errors import LocalError, OperationalError


class Damage(NamedTuple):
    """Damaged bytes in one file of a journal, or numbers that have gone missing."""

    name: str
    """Name of the file."""
    offset: int
    length: int
    """Number of damaged bytes; 0 if no bytes are damaged but records are missing."""
    reason: str
    epoch: int | None = None
    first: int | None = None
    """Lowest affected position, if known."""
    last: int | None = None

    def __str__(self) -> str:
        numbers = "" if self.first is None else f", numbers {self.first} to {self.last} of epoch {self.epoch}"
        where = f", bytes {self.offset:,} to {self.offset + self.length:,}" if self.length else ""
        return f"{self.name}{where}{numbers}: {self.reason}"


class JournalError(OperationalError):
    """A journal cannot be read or written."""


class JournalInUse(JournalError):
    """Another process has the journal open for writing."""


class JournalFull(JournalError):
    """The disk is full. Records that were not written stay in the commit group."""


class JournalBroken(JournalError):
    """The disk failed to make a write durable. Reopen the journal to recover its actual contents."""


class JournalDamaged(JournalError):
    """A part of a journal is damaged.

    :ivar damage: the damaged part.
    """

    def __init__(self, damage: Damage) -> None:
        super().__init__(
            f"{damage}. `fyrehose journal check` lists all damage; `fyrehose journal repair` removes it and restores"
            " the missing records from a copy, or declares them lost"
        )
        self.damage = damage


class TierError(JournalError):
    """A segment or file in object storage cannot be reached, is missing or has changed. The message names it."""


class NotFetched(TierError):
    """A block of a segment in object storage is being fetched. Read again later."""


class JournalReplaced(JournalError):
    """The directory being read now holds a different journal."""

    def __init__(self, where: object, before: int | None, now: int | None) -> None:
        super().__init__(
            f"{where} holds another journal now: tag {now or 0:08x} instead of {before or 0:08x}."
            " Its numbers are unrelated to those read so far; reopen it and read from the beginning"
        )


class NotInJournal(LocalError, LookupError):
    """The requested position precedes the start of the journal, for example because retention has removed it."""
