"""What can go wrong with a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted.errors import LocalError, OperationalError

if TYPE_CHECKING:
    from fyrehose_twisted.journal.scan import Damage


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
            f"{damage}. `fyrehose journal check` shows all damage, and `fyrehose journal repair` cuts it out"
        )
        self.damage = damage


class NotInJournal(LocalError, LookupError):
    """What was asked for lies before the beginning of the journal: it is not kept any more, or never was."""
