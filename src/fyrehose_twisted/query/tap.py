"""Plugin ``twistd fyrehose-query``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.application.service import IService, MultiService
from twisted.python import usage

from fyrehose_twisted.errors import ConfigurationError, FyrehoseError
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.protocol.journal import JournalProtocol
from fyrehose_twisted.fyrehose.service.client_tap import parse_start
from fyrehose_twisted.fyrehose.service.journal import JournalService
from fyrehose_twisted.fyrehose.service.options import check_stream_name
from fyrehose_twisted.journal.retention import Retention, parse_retention
from fyrehose_twisted.journal.store import JournalConfig, check_unlocked, open_journal
from fyrehose_twisted.net.addresses import parse_host_port
from fyrehose_twisted.net.options import (
    ServerEndpoint,
    ServiceOptions,
    parse_server_endpoint,
    probe_port,
    require_protection,
    require_writable_directory,
)
from fyrehose_twisted.payloads import envelope_finder, strip_framing
from fyrehose_twisted.process.secret import read_secret
from fyrehose_twisted.process.sighup import limit_checks, with_limits
from fyrehose_twisted.web.tokens import Tokens, read_tokens

DEFAULT_HTTP = "tcp:8480"

BACKBONE_OPTIONS = "name", "from", "secret-file", "retention"
"""Options that require ``--backbone``."""


class Options(ServiceOptions):
    """Command-line options of the query service."""

    synopsis = "--directory DIR [options]"
    longdesc = (
        "Serves the journals in a directory over HTTP, of any protocol: ranges, live streams, and a dashboard."
        " With --backbone it also records the stream of that backbone in the directory."
        " It listens on loopback by default; any other interface requires --tokens-file or --open."
    )
    optParameters = [
        ["directory", "d", None, "directory of the journals"],
        ["http", None, DEFAULT_HTTP, "endpoint of the HTTP server"],
        ["tokens-file", None, None, "file with a client name and its token on each line"],
        ["limits", None, None, "TOML file with limits; reloaded with the tokens on SIGHUP"],
        ["allowed-origin", None, None, "origin, such as https://example.org, whose pages may send requests"],
        ["backbone", "b", None, "HOST:PORT of a backbone whose stream to record"],
        ["name", "n", "default", "with --backbone: name of the stream, fyrehose://NAME"],
        ["from", None, "oldest", "with --backbone: start position of a new journal: live, oldest or a number"],
        ["secret-file", None, None, "with --backbone: file with the shared secret"],
        ["retention", "r", None, "with --backbone: retention, such as 7d, 50GB or 7d,50GB [default: unlimited]"],
    ]
    optFlags = [["open", None, "require no tokens, even on interfaces other than loopback"]]

    def __init__(self) -> None:
        super().__init__()
        self["watch"] = []
        self["hosts"] = []

    def opt_watch(self, text: str) -> None:
        """NAME=URL of a service's metrics to show, such as backbone=http://127.0.0.1:9100/metrics (repeatable)"""
        self["watch"].append(text)

    def opt_host(self, name: str) -> None:
        """host name to accept without a token, besides localhost and addresses (repeatable)"""
        self["hosts"].append(name)

    def postOptions(self) -> None:
        """Validate the options before the service starts."""
        try:
            self._check()
        except (FyrehoseError, ValueError) as error:
            raise usage.UsageError(str(error)) from error

    def _check(self) -> None:
        if not self["directory"]:
            raise usage.UsageError("--directory DIR is required")
        # twistd changes to this directory before the service starts.
        start = Path(self.parent["rundir"] if self.parent is not None else ".")
        self["directory"] = (start / self["directory"]).absolute()
        serving: ServerEndpoint = parse_server_endpoint("http", self["http"], DEFAULT_HTTP)
        self["serving"] = serving
        for option in ("limits", "tokens-file"):
            self[option] = (start / self[option]).absolute() if self[option] else None
        self["tokens"] = self.read_tokens()
        require_protection("http", serving, bool(self["open"]) or self["tokens"] is not None, "--tokens-file")
        if self["backbone"] is None:
            for option in BACKBONE_OPTIONS:
                if self[option] != dict(name="default", **{"from": "oldest"}).get(option):
                    raise usage.UsageError(f"--{option} requires --backbone HOST:PORT")
        else:
            self._check_backbone()

    def read_tokens(self) -> Tokens | None:
        """Read the tokens file, if there is one.

        :raises ConfigurationError: if the file is invalid.
        """
        return read_tokens(str(self["tokens-file"])) if self["tokens-file"] else None

    def _check_backbone(self) -> None:
        check_stream_name(self["name"])
        parse_host_port(self["backbone"])
        self["client"] = ClientConfig(
            start=parse_start(self["from"]),
            secret=read_secret(self["secret-file"]) if self["secret-file"] else None,
        )
        retention = parse_retention(self["retention"]) if self["retention"] else Retention()
        self["journal"] = JournalConfig(retention=retention)


def makeService(options: Options) -> IService:
    """Twisted: return the service for ``options``.

    :raises SystemExit: with a one-line message if it cannot start.
    """
    try:
        service: Any = _make(options)
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"fyrehose-query: {error.name} is not installed; install it with pip install 'fyrehose_twisted[query]'"
        ) from None
    except FyrehoseError as error:
        raise SystemExit(f"fyrehose-query: {error}") from None
    return service  # type: ignore[no-any-return]


def _make(options: Options) -> MultiService:
    from fyrehose_twisted.query.config import RELOADED, QueryConfig
    from fyrehose_twisted.query.monitoring.scraper import parse_scrape_target
    from fyrehose_twisted.query.records.journals import JournalDirectory
    from fyrehose_twisted.query.service import QueryService

    path: Path = options["directory"]
    serving: ServerEndpoint = options["serving"]
    targets = [parse_scrape_target(text) for text in options["watch"]]
    if len({target.name for target in targets}) < len(targets):
        raise ConfigurationError("two --watch options have the same name; give each service its own")
    # twistd still has the terminal here, so report failures of binding now, in one line.
    probe_port("http", serving)
    if options["backbone"] is None and not path.is_dir():
        raise ConfigurationError(f"--directory {path} is not a directory")
    basis = QueryConfig(allowed_origin=options["allowed-origin"], hosts=tuple(options["hosts"]))
    known = limit_checks(basis, *RELOADED)

    def read() -> tuple[QueryConfig, Tokens | None]:
        return with_limits(basis, options["limits"], known), options.read_tokens()

    query = QueryService(
        JournalDirectory(path, strip_framing, envelope_finder=envelope_finder),
        serving.description,
        targets=targets,
        tokens=options["tokens"],
        config=with_limits(basis, options["limits"], known),
        reread=read if options["limits"] or options["tokens-file"] else None,
    )
    made = MultiService()
    if options["backbone"] is not None:
        _journal_service(options, path).setServiceParent(made)
    query.setServiceParent(made)
    return made


def _journal_service(options: Options, path: Path) -> JournalService:
    stream = f"fyrehose://{options['name']}"
    require_writable_directory("directory", path)
    check_unlocked(path, stream)

    def make_protocol(**keywords: Any) -> JournalProtocol:
        return JournalProtocol(options["client"], **keywords)

    return JournalService(
        lambda: open_journal(path, stream, config=options["journal"]), make_protocol, options["backbone"]
    )
