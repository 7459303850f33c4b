"""Options of the HTTP services with tokens per client."""

from __future__ import annotations

from fyrehose_twisted.net.options.groups import OpenFlag
from fyrehose_twisted.web.tokens import Tokens, read_tokens


class TokenOptions(OpenFlag):
    """Tokens, origin and host names of an HTTP service."""

    optParameters = [
        ["tokens-file", None, None, "file with a client name and its token on each line; reloaded on SIGHUP"],
        ["allowed-origin", None, None, "origin, such as https://example.org, whose pages may send requests"],
    ]

    def __init__(self) -> None:
        super().__init__()
        self["hosts"] = []

    def opt_host(self, name: str) -> None:
        """host name to accept without a token, besides localhost and addresses (repeatable)"""
        self["hosts"].append(name)

    def parse_tokens(self) -> bool:
        """Read the tokens, and return whether there are any; also make the path absolute.

        :raises ConfigurationError: if the file is invalid.
        """
        self["tokens-file"] = self.absolute_path("tokens-file")
        self["tokens"] = self.read_tokens()
        return self["tokens"] is not None

    def read_tokens(self) -> Tokens | None:
        """Read the tokens file, if any. :raises ConfigurationError: if it is invalid."""
        return read_tokens(str(self["tokens-file"])) if self["tokens-file"] else None

    @property
    def reloadable(self) -> bool:
        """Whether SIGHUP has a file to read again."""
        return bool(self["tokens-file"])


class LimitedTokenOptions(TokenOptions):
    """The same, with a file of limits."""

    optParameters = [["limits", None, None, "TOML file with limits; reloaded on SIGHUP"]]

    def parse_tokens(self) -> bool:
        """See :meth:`TokenOptions.parse_tokens`."""
        self["limits"] = self.absolute_path("limits")
        return super().parse_tokens()

    @property
    def reloadable(self) -> bool:
        """Whether SIGHUP has a file to read again."""
        return bool(self["limits"]) or super().reloadable
