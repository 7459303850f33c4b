"""Plugin ``twistd fyrehose-query``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.application.service import IService, MultiService
from twisted.python import usage

from fyrehose_twisted.errors import ConfigurationError, FyrehoseError
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.protocol.journal import JournalProtocol
from fyrehose_twisted.fyrehose.service.journal import JournalService
from fyrehose_twisted.fyrehose.service.options import (
    MULTICAST_FLAG,
    BackboneOptions,
    StreamNameOption,
    parse_start,
    start_option,
)
from fyrehose_twisted.journal.store import check_unlocked, open_journal
from fyrehose_twisted.journal.upkeep.options import RetentionOption
from fyrehose_twisted.net.options import (
    LimitedTokenOptions,
    ServerEndpoint,
    probe_port,
    require_writable_directory,
)
from fyrehose_twisted.payloads import PayloadReader, envelope_finder
from fyrehose_twisted.process.sighup import limit_checks, with_limits
from fyrehose_twisted.sealing.key_source import KeySource
from fyrehose_twisted.web.tokens import Tokens

DEFAULT_HTTP = "tcp:8480"

BACKBONE_OPTIONS = "name", "from", "secret-file", "retention", "multicast", "require-mac"
"""Options that require ``--backbone``."""


class Options(LimitedTokenOptions, StreamNameOption, BackboneOptions, RetentionOption):
    """Command-line options of the query service."""

    synopsis = "--directory DIR [options]"
    longdesc = (
        "Serves the journals in a directory over HTTP, of any protocol: ranges, live streams, and a dashboard."
        " With --backbone it also records the stream of that backbone in the directory; --name, --from, --secret-file"
        " and --retention belong to it."
        " It listens on loopback by default; any other interface requires --tokens-file or --open."
    )
    default_backbone = None
    optParameters = [
        ["directory", "d", None, "directory of the journals"],
        ["http", None, DEFAULT_HTTP, "endpoint of the HTTP server"],
        start_option("oldest"),
    ]
    optFlags = [
        ["allow-plain", None, "with --seal-key-file, deliver messages that are not sealed, too"],
        MULTICAST_FLAG,
    ]

    def __init__(self) -> None:
        super().__init__()
        self["watch"] = []
        self["seal-key-files"] = []

    def opt_backbone(self, text: str) -> None:
        """HOST:PORT of a backbone whose stream to record; several that take over from one another with commas
        (repeatable)"""
        super().opt_backbone(text)

    opt_b = opt_backbone

    def opt_seal_key_file(self, path: str) -> None:
        """file with the keys of a sealed stream, which is shown opened; reloaded on SIGHUP (repeatable)"""
        self["seal-key-files"].append(path)

    def opt_watch(self, text: str) -> None:
        """NAME=URL of a service's metrics to show, such as backbone=http://127.0.0.1:9100/metrics (repeatable)"""
        self["watch"].append(text)

    def _check(self) -> None:
        if not self["directory"]:
            raise usage.UsageError("--directory DIR is required")
        self["directory"] = self.absolute_path("directory")
        allow_plain = bool(self["allow-plain"])
        if allow_plain and not self["seal-key-files"]:
            raise usage.UsageError("--allow-plain requires --seal-key-file FILE")
        # twistd changes to this directory before the service starts.
        start = Path(self.parent["rundir"] if self.parent is not None else ".")
        paths = [(start / path).absolute() for path in self["seal-key-files"]]
        self["keys"] = [KeySource(path, allow_plain=allow_plain) for path in paths]
        self["reader"] = PayloadReader(self["keys"])
        protected = self.parse_tokens()
        self["serving"] = self.parse_protected("http", self["http"], DEFAULT_HTTP, "--tokens-file", protected=protected)
        if self["backbone"] is None:
            for option in BACKBONE_OPTIONS:
                if self[option] != {"name": "default", "multicast": 0, "require-mac": 0, "from": "oldest"}.get(option):
                    raise usage.UsageError(f"--{option} requires --backbone HOST:PORT")
        else:
            self._check_backbone()

    def _check_backbone(self) -> None:
        self.check_name()
        self.check_backbone()
        self["client"] = ClientConfig(
            start=parse_start(self["from"]),
            secret=self.read_secret(),
            mac=self.mac_policy,
            multicast=bool(self["multicast"]),
        )
        self["journal"] = self.parse_retention()


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
        JournalDirectory(path, options["reader"], envelope_finder=envelope_finder),
        serving.description,
        targets=targets,
        tokens=options["tokens"],
        config=with_limits(basis, options["limits"], known),
        keys=options["keys"],
        reread=read if options.reloadable else None,
    )
    made = MultiService()
    if options["backbone"] is not None:
        _journal_service(options, path).setServiceParent(made)
    query.setServiceParent(made)
    return made


def _journal_service(options: Options, path: Path) -> JournalService:
    stream = options.stream
    require_writable_directory("directory", path)
    check_unlocked(path, stream)

    def make_protocol(**keywords: Any) -> JournalProtocol:
        return JournalProtocol(options["client"], **keywords)

    return JournalService(
        lambda: open_journal(path, stream, config=options["journal"]), make_protocol, options["backbone"]
    )
