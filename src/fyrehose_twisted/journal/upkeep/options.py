"""Options of services that keep a journal."""

from __future__ import annotations

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.retention import Retention, parse_age, parse_retention
from fyrehose_twisted.journal.store import JournalConfig
from fyrehose_twisted.journal.tier.config import TierConfig
from fyrehose_twisted.journal.tier.objects import load_pyarrow_fs
from fyrehose_twisted.net.options import ServiceOptions, require_writable_directory

DEFAULT_AGE = "1d"
"""Default of ``--tier-after``."""


class RetentionOption(ServiceOptions):
    """``--retention``, ``--tier-to`` and ``--tier-after``."""

    optParameters = [
        ["retention", "r", None, "retention of the journal, such as 7d, 50GB or 7d,50GB [default: unlimited]"],
        [
            "tier-to",
            None,
            None,
            "object storage for old segments, such as s3://bucket/prefix [default: keep them here]",
        ],
        ["tier-after", None, None, "age at which segments move there, such as 12h [default: 1d]"],
    ]

    def parse_retention(self) -> JournalConfig:
        """Return the configuration of the journal. :raises ConfigurationError: if an option is invalid."""
        return JournalConfig(
            retention=parse_retention(self["retention"]) if self["retention"] else Retention(), tier=self._parse_tier()
        )

    def _parse_tier(self) -> TierConfig | None:
        url, age = self["tier-to"], self["tier-after"]
        if url is None:
            if age is not None:
                raise ConfigurationError("--tier-after requires --tier-to URL")
            return None
        try:
            found = TierConfig(url, parse_age(DEFAULT_AGE if age is None else age))
        except ConfigurationError as error:
            raise ConfigurationError(f"--tier-to, --tier-after: {error}") from None
        load_pyarrow_fs()
        return found


class JournalOptions(RetentionOption):
    """``--journal`` and ``--retention`` of a node that keeps a journal if asked to."""

    optParameters = [["journal", "j", None, "directory for the journal, used by this node alone [default: no journal]"]]

    def parse_journal(self, *dependent: str) -> None:
        """Store the directory as ``directory``, ``None`` without one, and the configuration as ``journal-config``.

        :param dependent: further options that require ``--journal``.
        :raises ConfigurationError: if an option has no effect, or the retention is invalid.
        """
        self["directory"] = self.absolute_path("journal")
        for option in (*dependent, "retention", "tier-to", "tier-after"):
            if self[option] and self["directory"] is None:
                raise ConfigurationError(f"--{option} requires --journal DIR")
        self["journal-config"] = self.parse_retention()

    def require_writable_journal(self) -> None:
        """Check that the directory, if any, can be written. :raises ConfigurationError: if not."""
        if self["directory"] is not None:
            require_writable_directory("journal", self["directory"])
