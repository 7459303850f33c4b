"""What can go wrong with a journal."""

from __future__ import annotations

from typing import NamedTuple

from fyrehose_twisted.errors import LocalError, OperationalError


class Damage(NamedTuple):
    """Bytes of a segment that are not what was written."""

    name: str
    """Of the file."""
    offset: int
    length: int
    """0 if no bytes are damaged, but what they should tell of is not there."""
    reason: str
    epoch: int | None = None
    first: int | None = None
    """Lowest position that was there, where that is known."""
    last: int | None = None

    def __str__(self) -> str:
        what = "" if self.first is None else f", numbers {self.first} to {self.last} of epoch {self.epoch}"
        where = f", bytes {self.offset:,} to {self.offset + self.length:,}" if self.length else ""
        return f"{self.name}{where}{what}: {self.reason}"


class JournalError(OperationalError):
    """A journal cannot be read or written."""


class JournalInUse(JournalError):
    """Somebody else writes to the journal."""


class JournalFull(JournalError):
    """There is no room to write; what was not written is still in the group."""


class JournalBroken(JournalError):
    """The disk failed to make something durable. Whoever opens the journal anew finds what is really there."""


class JournalDamaged(JournalError):
    """A part of a journal is not what was written.

    :ivar damage: which part.
    """

    def __init__(self, damage: Damage) -> None:
        super().__init__(
            f"{damage}. `fyrehose journal check` shows all damage; `fyrehose journal repair` cuts it out, takes what is"
            " missing from a copy, or declares it lost"
        )
        self.damage = damage


class JournalReplaced(JournalError):
    """Another journal lies where one was read from."""

    def __init__(self, where: object, before: int | None, now: int | None) -> None:
        super().__init__(
            f"{where} holds another journal now: its tag is {now or 0:08x}, and that of the one read so far"
            f" {before or 0:08x}."
            " Its numbers are not those of the old one: open it anew, from its beginning"
        )


class NotInJournal(LocalError, LookupError):
    """What was asked for lies before the beginning of the journal: it is not kept any more, or never was."""
