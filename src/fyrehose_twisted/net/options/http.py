"""Options of the HTTP services with tokens per client."""

from __future__ import annotations

from fyrehose_twisted.net.options.groups import OpenFlag
from fyrehose_twisted.web.tokens import Tokens, read_tokens


class TokenOptions(OpenFlag):
    """Tokens, limits, origins and host names of an HTTP service."""

    optParameters = [
        ["tokens-file", None, None, "file with a client name and its token on each line"],
        ["limits", None, None, "TOML file with limits; reloaded with the tokens on SIGHUP"],
        ["allowed-origin", None, None, "origin, such as https://example.org, whose pages may send requests"],
    ]

    def __init__(self) -> None:
        super().__init__()
        self["hosts"] = []

    def opt_host(self, name: str) -> None:
        """host name to accept without a token, besides localhost and addresses (repeatable)"""
        self["hosts"].append(name)

    def parse_tokens(self) -> bool:
        """Read the tokens, and return whether there are any; also make the paths absolute.

        :raises ConfigurationError: if the file is invalid.
        """
        for option in ("limits", "tokens-file"):
            self[option] = self.absolute_path(option)
        self["tokens"] = self.read_tokens()
        return self["tokens"] is not None

    def read_tokens(self) -> Tokens | None:
        """Read the tokens file, if any. :raises ConfigurationError: if it is invalid."""
        return read_tokens(str(self["tokens-file"])) if self["tokens-file"] else None

    @property
    def reloadable(self) -> bool:
        """Whether SIGHUP has a file to read again."""
        return bool(self["limits"] or self["tokens-file"])
