"""Options of services that keep a journal."""

from __future__ import annotations

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.retention import Retention, parse_retention
from fyrehose_twisted.journal.store import JournalConfig
from fyrehose_twisted.net.options import ServiceOptions, require_writable_directory


class RetentionOption(ServiceOptions):
    """``--retention``."""

    optParameters = [
        ["retention", "r", None, "retention of the journal, such as 7d, 50GB or 7d,50GB [default: unlimited]"]
    ]

    def parse_retention(self) -> JournalConfig:
        """Return the configuration of the journal. :raises ConfigurationError: if the retention is invalid."""
        return JournalConfig(retention=parse_retention(self["retention"]) if self["retention"] else Retention())


class JournalOptions(RetentionOption):
    """``--journal`` and ``--retention`` of a node that keeps a journal if asked to."""

    optParameters = [["journal", "j", None, "directory for the journal, used by this node alone [default: no journal]"]]

    def parse_journal(self, *dependent: str) -> None:
        """Store the directory as ``directory``, ``None`` without one, and the configuration as ``journal-config``.

        :param dependent: further options that require ``--journal``.
        :raises ConfigurationError: if an option has no effect, or the retention is invalid.
        """
        self["directory"] = self.absolute_path("journal")
        for option in (*dependent, "retention"):
            if self[option] and self["directory"] is None:
                raise ConfigurationError(f"--{option} requires --journal DIR")
        self["journal-config"] = self.parse_retention()

    def require_writable_journal(self) -> None:
        """Check that the directory, if any, can be written. :raises ConfigurationError: if not."""
        if self["directory"] is not None:
            require_writable_directory("journal", self["directory"])
