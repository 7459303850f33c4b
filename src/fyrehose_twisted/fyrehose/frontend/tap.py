"""Options and service of ``twistd fyrehose-frontend``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.fyrehose.frontend.config import RELOADABLE, FrontendConfig
from fyrehose_twisted.fyrehose.frontend.service import FrontendService
from fyrehose_twisted.fyrehose.service.connect import DEFAULT_BACKBONE
from fyrehose_twisted.fyrehose.wire.packets import MAX_HOLDINGS
from fyrehose_twisted.net.addresses import parse_host_port
from fyrehose_twisted.net.options import (
    ServiceOptions,
    endpoint_description,
    integer_option,
    parse_server_endpoint,
    probe_ports,
    require_protection,
)
from fyrehose_twisted.process.secret import read_secret
from fyrehose_twisted.process.sighup import limit_checks, with_limits
from fyrehose_twisted.web.tokens import Tokens, read_tokens

DEFAULT_HTTP, DEFAULT_LINES = "tcp:8481", "tcp:8482"

DISABLED = "none"
"""Value of an endpoint option that turns the endpoint off."""


class Options(ServiceOptions):
    """Command-line options of the frontend."""

    synopsis = "[options]"
    longdesc = (
        "Publishes to a backbone for applications that use HTTP, or TCP with one message per line, and returns the"
        " numbers. Listens on loopback by default. Any other interface requires --tokens-file or --open."
    )
    optParameters = [
        ["backbone", "b", DEFAULT_BACKBONE, "HOST:PORT of the backbone"],
        ["http", None, DEFAULT_HTTP, "endpoint of the HTTP server, or none"],
        ["lines", None, DEFAULT_LINES, "endpoint of the line protocol, or none"],
        ["tokens-file", None, None, "file with a client name and its token on each line"],
        ["limits", None, None, "TOML file with limits; reloaded with the tokens on SIGHUP"],
        ["allowed-origin", None, None, "origin, such as https://example.org, whose pages may publish"],
        ["secret-file", None, None, "file with the backbone's secret"],
        [
            "kept",
            None,
            0,
            "durable journals that must sync a message to disk before its number is returned",
            integer_option("kept", 0, MAX_HOLDINGS),
        ],
    ]
    optFlags = [["open", None, "require no tokens, even on interfaces other than loopback"]]

    def __init__(self) -> None:
        super().__init__()
        self["hosts"] = []

    def opt_host(self, name: str) -> None:
        """host name to accept without a token, besides localhost and addresses (repeatable)"""
        self["hosts"].append(name)

    def postOptions(self) -> None:
        """Check the options and build the configuration."""
        try:
            self._check()
        except (FyrehoseError, ValueError) as error:
            raise usage.UsageError(str(error)) from error

    def _check(self) -> None:
        parse_host_port(self["backbone"])
        # twistd changes to this directory before the service starts.
        start = Path(self.parent["rundir"] if self.parent is not None else ".")
        for option in ("limits", "tokens-file"):
            self[option] = (start / self[option]).absolute() if self[option] else None
        self["tokens"] = self.read_tokens()
        self["secret"] = read_secret(self["secret-file"]) if self["secret-file"] else None
        protected = bool(self["open"]) or self["tokens"] is not None
        for option, example in (("http", DEFAULT_HTTP), ("lines", DEFAULT_LINES)):
            if self[option] == DISABLED:
                self[f"{option}-listening"] = None
                continue
            listening = self[f"{option}-listening"] = parse_server_endpoint(option, self[option], example)
            require_protection(option, listening, protected, "--tokens-file")
        if self["http-listening"] is None and self["lines-listening"] is None:
            raise usage.UsageError("--http and --lines are both none; at least one endpoint is required")
        self["config"] = self.read_config()

    def read_config(self) -> FrontendConfig:
        """Return the configuration from the options and limits file. :raises ConfigurationError: if it is invalid."""
        basis = FrontendConfig(allowed_origin=self["allowed-origin"], hosts=tuple(self["hosts"]))
        return with_limits(basis, self["limits"], limit_checks(basis, *RELOADABLE))

    def read_tokens(self) -> Tokens | None:
        """Read the tokens file, if any. :raises ConfigurationError: if it is invalid."""
        return read_tokens(str(self["tokens-file"])) if self["tokens-file"] else None

    def reload(self) -> tuple[FrontendConfig, Tokens | None]:
        """Return the current configuration and tokens."""
        return self.read_config(), self.read_tokens()


def makeService(options: Options) -> IService:
    """Twisted: return the service for ``options``.

    :raises SystemExit: with a message of one line, if the service could not start.
    """
    try:
        # Report errors now, in one line, while twistd still has the terminal.
        probe_ports([(option, options[f"{option}-listening"]) for option in ("http", "lines")])
        service: Any = FrontendService(
            options["backbone"],
            http=endpoint_description(options["http-listening"]),
            lines=endpoint_description(options["lines-listening"]),
            tokens=options["tokens"],
            secret=options["secret"],
            kept=options["kept"],
            config=options["config"],
            reload=options.reload if options["limits"] or options["tokens-file"] else None,
        )
    except FyrehoseError as error:
        raise SystemExit(f"fyrehose-frontend: {error}") from None
    return service  # type: ignore[no-any-return]
