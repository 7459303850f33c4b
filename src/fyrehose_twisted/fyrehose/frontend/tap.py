"""Options and service of ``twistd fyrehose-frontend``."""

from __future__ import annotations

import os
from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.frontend.config import RELOADABLE, FrontendConfig
from fyrehose_twisted.fyrehose.frontend.service import FrontendService
from fyrehose_twisted.fyrehose.service.options import BackboneOptions, SealOptions
from fyrehose_twisted.fyrehose.wire.packets import MAX_HOLDINGS
from fyrehose_twisted.net.options import LimitedTokenOptions, endpoint_description, integer_option, probe_ports
from fyrehose_twisted.process.sighup import limit_checks, with_limits
from fyrehose_twisted.web.tokens import Tokens

DEFAULT_HTTP, DEFAULT_LINES = "tcp:8481", "tcp:8482"

DISABLED = "none"
"""Value of an endpoint option that turns the endpoint off."""


class Options(BackboneOptions, LimitedTokenOptions, SealOptions):
    """Command-line options of the frontend."""

    synopsis = "[options]"
    longdesc = (
        "Publishes to a backbone for applications that use HTTP, or TCP with one message per line, and returns the"
        " numbers. Listens on loopback by default. Any other interface requires --tokens-file or --open."
    )
    optParameters = [
        ["http", None, DEFAULT_HTTP, "endpoint of the HTTP server, or none"],
        ["lines", None, DEFAULT_LINES, "endpoint of the line protocol, or none"],
        ["key-separator", None, None, "each line of the line protocol is a key, this text and the message"],
        [
            "kept",
            None,
            0,
            "durable journals that must sync a message to disk before its number is returned",
            integer_option("kept", 0, MAX_HOLDINGS),
        ],
    ]

    def _check(self) -> None:
        self.check_backbone()
        protected = self.parse_tokens()
        self["client"] = ClientConfig(secret=self.read_secret(), mac=self.mac_policy)  # Report errors now.
        for option, example in (("http", DEFAULT_HTTP), ("lines", DEFAULT_LINES)):
            if self[option] == DISABLED:
                self[f"{option}-listening"] = None
                continue
            listening = self.parse_protected(option, self[option], example, "--tokens-file", protected=protected)
            self[f"{option}-listening"] = listening
        if self["http-listening"] is None and self["lines-listening"] is None:
            raise usage.UsageError("--http and --lines are both none; at least one endpoint is required")
        if self["key-separator"] is not None and (not self["key-separator"] or self["lines-listening"] is None):
            raise usage.UsageError("--key-separator requires a text and --lines")
        self["keys"] = self.read_keys()
        self["config"] = self.read_config()

    def read_config(self) -> FrontendConfig:
        """Return the configuration from the options and limits file. :raises ConfigurationError: if it is invalid."""
        basis = FrontendConfig(
            allowed_origin=self["allowed-origin"],
            hosts=tuple(self["hosts"]),
            key_separator=os.fsencode(self["key-separator"] or ""),
        )
        return with_limits(basis, self["limits"], limit_checks(basis, *RELOADABLE))

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
            mac=options.mac_policy,
            kept=options["kept"],
            config=options["config"],
            keys=options["keys"],
            reload=options.reload if options.reloadable else None,
        )
    except FyrehoseError as error:
        raise SystemExit(f"fyrehose-frontend: {error}") from None
    return service  # type: ignore[no-any-return]
