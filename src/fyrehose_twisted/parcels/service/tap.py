"""``twistd parcels-node``."""

from __future__ import annotations

from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.journal.upkeep.options import JournalOptions
from fyrehose_twisted.net.addresses import endpoint_factory_from, parse_address
from fyrehose_twisted.net.options import (
    SYNC_FLAG,
    MetricsOption,
    NodeOptions,
    TokenOptions,
    endpoint_description,
    integer_option,
    max_links_option,
    parse_server_endpoint,
    probe_ports,
    protocol_option,
    subclass_named,
)
from fyrehose_twisted.parcels.config import JOIN_EVENTS
from fyrehose_twisted.parcels.protocol import ParcelProtocol
from fyrehose_twisted.parcels.replicated_state import ReplicatedState
from fyrehose_twisted.parcels.service.config import DEFAULT_LISTEN, ParcelsConfig
from fyrehose_twisted.parcels.service.http import ExtraMissing, web_extra
from fyrehose_twisted.parcels.service.options import parse_advertised, read_token
from fyrehose_twisted.parcels.service.service import ParcelsNode
from fyrehose_twisted.parcels.service.storage import Storage
from fyrehose_twisted.parcels.wire.messages import MAX_EVENT
from fyrehose_twisted.web.tokens import Tokens, shared_token

HTTP_OPTIONS = (
    *("tokens-file", "token-file", "hosts", "allowed-origin"),
    *("allow-private-callbacks", "callback-port"),
)
"""Options that require ``--http``."""


class Options(NodeOptions, MetricsOption, TokenOptions, JournalOptions):
    """Command-line options of a node."""

    aliases = {
        "found": "bootstrap",
        "cluster-secret-file": "secret-file",
        "c": "cluster",
        "neighbour": "peer",
        "http-host": "host",
        "p": "peer",
    }
    synopsis = "--name NAME [options]"
    longdesc = (
        "Runs one node of a cluster that puts the events published at any of its nodes into one total order. The"
        " first node bootstraps the cluster. Each other node needs one --peer or more, and discovers the rest."
        " Its state is in its journal. It listens on loopback by default. Any other interface requires --secret-file or"
        " --open."
    )
    optParameters = [
        ["name", "n", None, "unique name of this node"],
        ["cluster", None, "default", "name of the cluster"],
        ["listen", "l", DEFAULT_LISTEN, "endpoint for other nodes and publishers"],
        ["advertise", "a", None, "HOST:PORT at which other nodes reach this node [default: the listening address]"],
        ["dial", None, None, "endpoint for connections to other nodes, such as tls:{host}:{port} [default: TCP]"],
        ["http", None, None, "endpoint of the HTTP API, such as tcp:8080 (on loopback)"],
        ["token-file", None, None, "file with one token that all HTTP clients share"],
        ["window-mib", None, 64, "MiB of memory for recent events", integer_option("window-mib", 1, 65_536)],
        ["max-event", None, MAX_EVENT, "maximum size of an event in bytes", integer_option("max-event", 1, MAX_EVENT)],
        [
            "max-pending-mib",
            None,
            8,
            "maximum MiB of events not ordered yet",
            integer_option("max-pending-mib", 1, 4_096),
        ],
        max_links_option(256),
        protocol_option("ParcelProtocol"),
        ["state-class", None, None, "subclass of ReplicatedState, by its dotted name, that this node keeps up to date"],
        [
            "join-events",
            None,
            None,
            "events before the present that a new node fetches [default: 100000; 0 with --state-class]",
            integer_option("join-events", 0, 2**53),
        ],
    ]
    optFlags = [
        ["bootstrap", None, "bootstrap a cluster if no peer is in one"],
        SYNC_FLAG,
        ["allow-private-callbacks", None, "allow callbacks to addresses that are not public"],
    ]

    def __init__(self) -> None:
        super().__init__()
        self["peers"] = []
        self["callback-port"] = []

    def opt_peer(self, place: str) -> None:
        """HOST:PORT of another node (repeatable)"""
        self["peers"].append(place)

    def opt_callback_port(self, port: str) -> None:
        """port allowed for callbacks, besides 80 and 443 (repeatable)"""
        try:
            self["callback-port"].append(integer_option("callback-port", 1, 65_535)(port))
        except ValueError as error:
            raise usage.UsageError(str(error)) from None

    def _check(self) -> None:
        if not self["name"]:
            raise usage.UsageError("--name NAME is required")
        self.read_secret()
        self.parse_listens([self["listen"]], DEFAULT_LISTEN)
        (listening,) = self["listening"]
        if self["dial"] is not None:
            endpoint_factory_from(self["dial"])
        self._check_http()
        self.parse_journal("sync")
        self.load_protocol(ParcelProtocol)
        state = None
        if self["state-class"] is not None:
            state = subclass_named("state-class", self["state-class"], ReplicatedState)()
        join_events = self["join-events"]
        if join_events is None:
            join_events = 0 if state is not None else JOIN_EVENTS
        directory, settings = self["directory"], self["journal-config"]
        self["config"] = ParcelsConfig(
            name=self["name"],
            cluster=self["cluster"],
            advertise=parse_advertised(self["advertise"], listening),
            neighbours=tuple(dict.fromkeys(map(parse_address, self["peers"]))),
            bootstrap=bool(self["bootstrap"]),
            secret=self["secret"],
            max_event=self["max-event"],
            window_bytes=self["window-mib"] * 2**20,
            pending_bytes=self["max-pending-mib"] * 2**20,
            max_links=self["max-links"],
            join_events=join_events,
            state=state,
            listen=listening.description,
            http=endpoint_description(self["serving"]),
            tokens=self["tokens"],
            metrics=endpoint_description(self["metrics-listening"]),
            web=self["web"],
            storage=None if directory is None else Storage(directory, sync=bool(self["sync"]), journal=settings),
            dial=self["dial"],
        )

    def _check_http(self) -> None:
        metrics = self["metrics"]
        self["metrics-listening"] = parse_server_endpoint("metrics", metrics, "tcp:9100") if metrics else None
        self["serving"], self["tokens"], self["web"] = None, None, None
        if self["http"] is None:
            for option in HTTP_OPTIONS:
                if self[option]:
                    raise usage.UsageError(f"--{option.replace('hosts', 'host')} requires --http ENDPOINT")
            return
        if self["tokens-file"] and self["token-file"]:
            raise usage.UsageError("--tokens-file and --token-file exclude each other")
        self["token-file"] = self.absolute_path("token-file")
        protected = self.parse_tokens()
        self["serving"] = self.parse_protected("http", self["http"], "tcp:8080", "--tokens-file", protected=protected)
        try:
            with web_extra():  # Report a missing extra now, not at the first callback.
                import fyrehose_twisted.parcels.web.webhooks.http_sender  # noqa: F401
                from fyrehose_twisted.parcels.web.config import WebConfig
        except ExtraMissing as error:
            raise SystemExit(f"parcels-node: {error}") from None
        self["web"] = WebConfig(
            max_body=self["max-event"],
            allow_private_callbacks=bool(self["allow-private-callbacks"]),
            callback_ports=(*WebConfig.callback_ports, *self["callback-port"]),
            hosts=tuple(self["hosts"]),
            allowed_origin=self["allowed-origin"],
        )

    def read_tokens(self) -> Tokens | None:
        """Read the file of tokens, or of one token, if any. :raises ConfigurationError: if it is invalid."""
        return shared_token(read_token(str(self["token-file"]))) if self["token-file"] else super().read_tokens()

    @property
    def reloadable(self) -> bool:
        """Whether SIGHUP has a file to read again."""
        return bool(self["token-file"]) or super().reloadable


def makeService(options: Options) -> IService:
    """Twisted: return the service of a node.

    :raises SystemExit: with one line, if the node cannot start.
    """
    config: ParcelsConfig = options["config"]
    try:
        # twistd still has the terminal here, so report foreseeable failures now, in one line.
        ports = [("listen", options["listening"][0]), ("http", options["serving"])]
        probe_ports([*ports, ("metrics", options["metrics-listening"])])
        options.require_writable_journal()
        if config.storage is not None:
            config.storage.check(config)
        reread = options.read_tokens if options.reloadable else None
        service: Any = ParcelsNode(config, protocol=options["class"], reread_tokens=reread)
    except FyrehoseError as error:
        raise SystemExit(f"parcels-node: {error}") from None
    return service  # type: ignore[no-any-return]
