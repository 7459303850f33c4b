"""``twistd parcels-node``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from fyrehose_twisted.errors import ConfigurationError, FyrehoseError
from fyrehose_twisted.journal.retention import Retention, parse_retention
from fyrehose_twisted.journal.store import JournalConfig
from fyrehose_twisted.net.addresses import endpoint_factory_from, parse_address
from fyrehose_twisted.net.options import (
    ServerEndpoint,
    ServiceOptions,
    integer_option,
    parse_server_endpoint,
    probe_port,
    protocol_class,
    require_protection,
    require_writable_directory,
)
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.protocol import ParcelProtocol
from fyrehose_twisted.parcels.service.http import ExtraMissing, web_extra
from fyrehose_twisted.parcels.service.options import parse_advertised, read_token
from fyrehose_twisted.parcels.service.service import DEFAULT_LISTEN, ParcelsNode
from fyrehose_twisted.parcels.service.storage import Storage
from fyrehose_twisted.parcels.wire.messages import MAX_EVENT
from fyrehose_twisted.process.secret import read_secret


class Options(ServiceOptions):
    """Command-line options of a node."""

    synopsis = "--name NAME [options]"
    longdesc = (
        "Runs one node of a cluster that puts the events published at any of its nodes into one total order. The"
        " first node founds the cluster. Each other node needs one --neighbour or more, and discovers the rest."
        " Listens on loopback by default. Any other interface requires --cluster-secret-file or --open."
    )
    optParameters = [
        ["name", "n", None, "unique name of this node"],
        ["cluster", "c", "default", "name of the cluster"],
        ["listen", "l", DEFAULT_LISTEN, "endpoint for other nodes and publishers"],
        ["advertise", "a", None, "HOST:PORT at which other nodes reach this node [default: the listening address]"],
        ["dial", None, None, "endpoint for connections to other nodes, such as tls:{host}:{port} [default: TCP]"],
        ["cluster-secret-file", None, None, "file with the shared secret of nodes and publishers"],
        ["http", None, None, "endpoint of the HTTP API, such as tcp:8080 (on loopback)"],
        ["token-file", None, None, "file with the token that HTTP clients must send"],
        ["journal", "j", None, "directory for events and state of this node [default: memory only]"],
        ["retention", "r", None, "retention of the journal, such as 7d, 50GB or 7d,50GB [default: unlimited]"],
        ["window-mib", None, 64, "MiB of memory for recent events", integer_option("window-mib", 1, 65_536)],
        ["max-event", None, MAX_EVENT, "maximum size of an event in bytes", integer_option("max-event", 1, MAX_EVENT)],
        [
            "max-pending-mib",
            None,
            8,
            "maximum MiB of events not ordered yet",
            integer_option("max-pending-mib", 1, 4_096),
        ],
        ["max-links", None, 256, "maximum number of inbound connections", integer_option("max-links", 1, 100_000)],
        ["protocol", None, None, "dotted name of a subclass of ParcelProtocol"],
    ]
    optFlags = [
        ["found", None, "found a cluster if no neighbour is in one"],
        ["sync", None, "make state survive power failures; each change costs an fsync"],
        ["allow-private-callbacks", None, "allow callbacks to addresses that are not public"],
        ["open", None, "run without secret and token, even on interfaces other than loopback"],
    ]

    def __init__(self) -> None:
        super().__init__()
        self["neighbours"] = []
        self["http-host"] = []
        self["callback-port"] = []

    def opt_neighbour(self, place: str) -> None:
        """HOST:PORT of another node (repeatable)"""
        self["neighbours"].append(place)

    def opt_http_host(self, name: str) -> None:
        """host name accepted from HTTP clients without a token, besides localhost and addresses (repeatable)"""
        self["http-host"].append(name)

    def opt_callback_port(self, port: str) -> None:
        """port allowed for callbacks, besides 80 and 443 (repeatable)"""
        try:
            self["callback-port"].append(integer_option("callback-port", 1, 65_535)(port))
        except ValueError as error:
            raise usage.UsageError(str(error)) from None

    def postOptions(self) -> None:
        """Validate the options.

        :raises SystemExit: with one line, if an extra is missing.
        """
        try:
            self._check()
        except ExtraMissing as error:
            raise SystemExit(f"parcels-node: {error}") from None
        except (FyrehoseError, ValueError) as error:
            raise usage.UsageError(str(error)) from error

    def _check(self) -> None:
        if not self["name"]:
            raise usage.UsageError("--name NAME is required")
        listening = self["listening"] = parse_server_endpoint("listen", self["listen"], DEFAULT_LISTEN)
        secret = read_secret(self["cluster-secret-file"]) if self["cluster-secret-file"] else None
        self["config"] = NodeConfig(
            name=self["name"],
            cluster=self["cluster"],
            advertise=parse_advertised(self["advertise"], listening),
            neighbours=tuple(dict.fromkeys(map(parse_address, self["neighbours"]))),
            bootstrap=bool(self["found"]),
            secret=secret,
            max_event=self["max-event"],
            window_bytes=self["window-mib"] * 2**20,
            pending_bytes=self["max-pending-mib"] * 2**20,
            max_links=self["max-links"],
        )
        require_protection("listen", listening, bool(self["open"]) or secret is not None, "--cluster-secret-file")
        if self["dial"] is not None:
            endpoint_factory_from(self["dial"])
        self._check_http()
        self._check_journal()
        self["class"] = protocol_class(self["protocol"], ParcelProtocol) if self["protocol"] else ParcelProtocol

    def _check_http(self) -> None:
        self["serving"], self["token"], self["web"] = None, None, None
        if self["http"] is None:
            for option in ("token-file", "allow-private-callbacks", "callback-port", "http-host"):
                if self[option]:
                    raise usage.UsageError(f"--{option} requires --http ENDPOINT")
            return
        serving: ServerEndpoint = parse_server_endpoint("http", self["http"], "tcp:8080")
        self["serving"] = serving
        self["token"] = read_token(self["token-file"]) if self["token-file"] else None
        require_protection("http", serving, bool(self["open"]) or self["token"] is not None, "--token-file")
        with web_extra():  # Report a missing extra now, not at the first callback.
            import fyrehose_twisted.parcels.web.webhooks.http_sender  # noqa: F401
            from fyrehose_twisted.parcels.web.config import WebConfig
        self["web"] = WebConfig(
            max_body=self["max-event"],
            allow_private_callbacks=bool(self["allow-private-callbacks"]),
            callback_ports=(*WebConfig.callback_ports, *self["callback-port"]),
            hosts=tuple(self["http-host"]),
        )

    def _check_journal(self) -> None:
        if self["journal"] is None:
            for option in ("sync", "retention"):
                if self[option]:
                    raise usage.UsageError(f"--{option} requires --journal DIR")
            self["directory"] = None
            return
        # twistd changes to this directory before the service starts.
        start = Path(self.parent["rundir"] if self.parent is not None else ".")
        self["directory"] = (start / self["journal"]).absolute()
        retention = parse_retention(self["retention"]) if self["retention"] else Retention()
        self["journal-config"] = JournalConfig(retention=retention)


def makeService(options: Options) -> IService:
    """Twisted: return the service of a node.

    :raises SystemExit: with one line, if the node cannot start.
    """
    listening: ServerEndpoint = options["listening"]
    serving: ServerEndpoint | None = options["serving"]
    storage = None
    try:
        # twistd still has the terminal here, so report foreseeable failures now, in one line.
        probe_port("listen", listening)
        if serving is not None:
            probe_port("http", serving)
            if serving.address == listening.address and serving.address is not None and serving.address[1]:
                raise ConfigurationError("--listen and --http are the same port; give each its own")
        if options["directory"] is not None:
            require_writable_directory("journal", options["directory"])
            storage = Storage(options["directory"], sync=bool(options["sync"]), journal=options["journal-config"])
            storage.check(options["config"])
        service: Any = ParcelsNode(
            options["config"],
            listening.description,
            http=None if serving is None else serving.description,
            token=options["token"],
            web=options["web"],
            storage=storage,
            dial=options["dial"],
            protocol=options["class"],
        )
    except FyrehoseError as error:
        raise SystemExit(f"parcels-node: {error}") from None
    return service  # type: ignore[no-any-return]
