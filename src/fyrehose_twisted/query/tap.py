"""``twistd fyrehose-query``."""

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
"""Options that mean something only with ``--backbone``."""


class Options(ServiceOptions):
    """What an operator can say."""

    synopsis = "--directory DIR [options]"
    longdesc = (
        "Serves the journals in a directory over HTTP, of any protocol: ranges, what comes live, and a page that shows"
        " how everything fares. With --backbone it is a client of that backbone, and keeps its stream there itself."
        " Listens on loopback unless told otherwise; on any other interface it wants --tokens-file or --open."
    )
    optParameters = [
        ["directory", "d", None, "where journals lie"],
        ["http", None, DEFAULT_HTTP, "endpoint to serve HTTP on"],
        ["tokens-file", None, None, "file with a client's name and its token on each line; clients must know one"],
        ["limits", None, None, "TOML file with limits; it and the tokens are read anew on SIGHUP"],
        ["allowed-origin", None, None, "the origin, https://example.org, whose pages may ask from a browser"],
        ["backbone", "b", None, "HOST:PORT of a backbone whose stream to keep, too"],
        ["name", "n", "default", "with --backbone: name of its stream, fyrehose://NAME"],
        ["from", None, "oldest", "with --backbone: where a new journal starts: live, oldest or a number"],
        ["secret-file", None, None, "with --backbone: file with its secret"],
        ["retention", "r", None, "with --backbone: what to keep, such as 7d, 50GB or 7d,50GB [default: everything]"],
    ]
    optFlags = [["open", None, "do without tokens, also on an interface other than loopback"]]

    def __init__(self) -> None:
        super().__init__()
        self["watch"] = []
        self["hosts"] = []

    def opt_watch(self, text: str) -> None:
        """NAME=URL of a service's metrics to show, such as backbone=http://127.0.0.1:9100/metrics (repeatable)"""
        self["watch"].append(text)

    def opt_host(self, name: str) -> None:
        """a name by which clients without a token may ask, beside localhost and addresses (repeatable)"""
        self["hosts"].append(name)

    def postOptions(self) -> None:
        """Check what can be checked before anything starts."""
        try:
            self._check()
        except (FyrehoseError, ValueError) as error:
            raise usage.UsageError(str(error)) from error

    def _check(self) -> None:
        if not self["directory"]:
            raise usage.UsageError("--directory DIR is missing: where do the journals lie?")
        # twistd goes there before the service starts.
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
                    raise usage.UsageError(f"--{option} is of no use without --backbone: what shall be kept?")
        else:
            self._check_backbone()

    def read_tokens(self) -> Tokens | None:
        """Return the tokens that there are now. :raises ConfigurationError: if their file will not do."""
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
    """Twisted: return the service that ``options`` describe.

    :raises SystemExit: with one line, if it could not start.
    """
    try:
        service: Any = _make(options)
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"fyrehose-query: it needs {error.name}, which is not installed: pip install 'fyrehose_twisted[query]'"
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
    watched = [parse_scrape_target(text) for text in options["watch"]]
    if len({one.name for one in watched}) < len(watched):
        raise ConfigurationError("two services to --watch have the same name; give each its own")
    # Here twistd still has the terminal: what would go wrong in a moment is better said now, in one line.
    probe_port("http", serving)
    if options["backbone"] is None and not path.is_dir():
        raise ConfigurationError(f"--directory {path} is no directory; where do the journals lie?")
    basis = QueryConfig(allowed_origin=options["allowed-origin"], hosts=tuple(options["hosts"]))
    known = limit_checks(basis, *RELOADED)

    def read() -> tuple[QueryConfig, Tokens | None]:
        return with_limits(basis, options["limits"], known), options.read_tokens()

    query = QueryService(
        JournalDirectory(path, strip_framing, envelope_finder=envelope_finder),
        serving.description,
        targets=watched,
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
