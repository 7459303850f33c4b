"""``twistd freenet-node``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.freenet.protocol import FreenetPeerProtocol
from fyrehose_twisted.freenet.service.service import DEFAULT_LISTEN, MAX_NEIGHBOURS, FreenetService
from fyrehose_twisted.freenet.service.storage import Storage
from fyrehose_twisted.freenet.wire.location import is_location
from fyrehose_twisted.freenet.wire.messages import MAX_HTL
from fyrehose_twisted.freenet.wire.signing import parse_key
from fyrehose_twisted.journal.retention import Retention, parse_retention
from fyrehose_twisted.journal.store import JournalConfig
from fyrehose_twisted.net.options import (
    ServiceOptions,
    endpoint_description,
    integer_option,
    number_option,
    parse_server_endpoint,
    probe_ports,
    protocol_class,
    require_loopback,
    require_protection,
    require_writable_directory,
)
from fyrehose_twisted.process.secret import read_secret

_DEFAULT_POLICY = Policy()


class Options(ServiceOptions):
    """Command-line options of ``twistd freenet-node``."""

    synopsis = "--peer HOST:PORT [options]"
    longdesc = (
        "Runs one node of a publish/subscribe network. Each stream of packets has a tree, which grows as requests are"
        " routed to the location of its key on a ring, and repairs itself. The node listens on loopback by default; any"
        " other interface requires --secret-file or --open."
    )
    optParameters = [
        ["location", None, None, "location on the ring, from 0 up to 1 [default: as in --state, else random]"],
        [
            "state",
            None,
            None,
            "file for the node's id and location, used by no other node [default: a new id at each start]",
        ],
        ["journal", "j", None, "directory for journals of the streams subscribed to, used by this node alone"],
        ["retention", "r", None, "retention of each journal, such as 7d, 1GB or 7d,1GB [default: unlimited]"],
        ["control", "c", None, "endpoint for `fyrehose freenet`: unix:/run/freenet.sock or tcp:6181 (on loopback)"],
        ["metrics", None, None, "endpoint to serve Prometheus metrics on, such as tcp:9100 (on loopback)"],
        ["secret-file", None, None, "file with the shared secret of the network"],
        [
            "max-neighbours",
            None,
            MAX_NEIGHBOURS,
            "maximum number of neighbours",
            integer_option("max-neighbours", 1, 100_000),
        ],
        [
            "max-streams",
            None,
            _DEFAULT_POLICY.max_streams,
            "maximum number of streams",
            integer_option("max-streams", 1, 1_000_000),
        ],
        [
            "keep",
            None,
            _DEFAULT_POLICY.keep_packets,
            "packets of a stream retained for later subscribers",
            integer_option("keep", 1, 1_000_000),
        ],
        [
            "max-htl",
            None,
            _DEFAULT_POLICY.max_htl,
            "maximum hops to live (HTL) of a request",
            integer_option("max-htl", 1, MAX_HTL),
        ],
        [
            "p-max",
            None,
            _DEFAULT_POLICY.p_max,
            "probability that a link decrements the maximum HTL",
            number_option("p-max", 0, 1),
        ],
        [
            "p-min",
            None,
            _DEFAULT_POLICY.p_min,
            "probability that a link decrements an HTL of 1",
            number_option("p-min", 0, 1),
        ],
        [
            "htl-on-closer",
            None,
            _DEFAULT_POLICY.htl_on_closer,
            "HTL of a request that has come nearer to its key: reset or keep",
        ],
        ["accept", None, _DEFAULT_POLICY.accept, "location that a resubscriber is compared with: root or own"],
        [
            "coalesce",
            None,
            _DEFAULT_POLICY.coalesce,
            "handling of a second request for a stream: queue, reject or parallel",
        ],
        [
            "on-parent-lost",
            None,
            _DEFAULT_POLICY.on_parent_lost,
            "subtree after the loss of the parent: graft (keep it) or teardown (dismiss it)",
        ],
        ["protocol", None, None, "dotted name of your subclass of FreenetPeerProtocol"],
    ]
    optFlags = [
        ["confirm-root", None, "search once more for a nearer node before becoming a root"],
        ["open", None, "allow interfaces other than loopback without a secret"],
    ]

    def __init__(self) -> None:
        super().__init__()
        for option in ("listens", "peers", "streams"):
            self[option] = []

    def opt_listen(self, endpoint: str) -> None:
        """endpoint for other nodes (repeatable) [default: tcp:6180 on loopback]"""
        self["listens"].append(endpoint)

    opt_l = opt_listen

    def opt_peer(self, peer: str) -> None:
        """HOST:PORT of a node to keep a link to, or a client endpoint such as tls:HOST:PORT (repeatable)"""
        self["peers"].append(peer)

    opt_p = opt_peer

    def opt_subscribe(self, key: str) -> None:
        """KEY of a stream to subscribe to: 40 hexadecimal digits, or name:NAME (repeatable)"""
        self["streams"].append(key)

    opt_s = opt_subscribe

    def postOptions(self) -> None:
        """Check the options before the service starts."""
        try:
            self._check()
        except (FyrehoseError, ValueError) as error:
            raise usage.UsageError(str(error)) from error

    def _check(self) -> None:
        self["keys"] = list(dict.fromkeys(map(parse_key, self["streams"])))
        self["policy"] = Policy(
            max_htl=self["max-htl"],
            p_max=self["p-max"],
            p_min=self["p-min"],
            htl_on_closer=self["htl-on-closer"],
            accept=self["accept"],
            coalesce=self["coalesce"],
            on_parent_lost=self["on-parent-lost"],
            confirm_root=bool(self["confirm-root"]),
            max_streams=self["max-streams"],
            keep_packets=self["keep"],
        )
        if len(self["keys"]) > self["max-streams"]:
            count = len(self["keys"])
            raise usage.UsageError(f"--subscribe is given {count} times, but --max-streams is {self['max-streams']}")
        self["place"] = None if self["location"] is None else _parse_location(self["location"])
        secret = self["secret"] = read_secret(self["secret-file"]) if self["secret-file"] else None
        self["listening"] = [
            parse_server_endpoint("listen", text, DEFAULT_LISTEN) for text in self["listens"] or [DEFAULT_LISTEN]
        ]
        for listening in self["listening"]:
            require_protection("listen", listening, bool(self["open"]) or secret is not None, "--secret-file")
        for option, example in (("control", "tcp:6181"), ("metrics", "tcp:9100")):
            text = self[option]
            listening = self[f"{option}-listening"] = parse_server_endpoint(option, text, example) if text else None
            if listening is not None and option == "control":
                require_loopback(option, listening, "publishes in this node's name")
        self._check_files()
        self["class"] = (
            protocol_class(self["protocol"], FreenetPeerProtocol) if self["protocol"] else FreenetPeerProtocol
        )

    def _check_files(self) -> None:
        # twistd changes to this directory before the service starts.
        start = Path(self.parent["rundir"] if self.parent is not None else ".")
        self["state-path"] = (start / self["state"]).absolute() if self["state"] else None
        self["directory"] = None
        if self["journal"] is None:
            if self["retention"]:
                raise usage.UsageError("--retention requires --journal DIR")
            return
        self["directory"] = (start / self["journal"]).absolute()
        retention = parse_retention(self["retention"]) if self["retention"] else Retention()
        self["journal-config"] = JournalConfig(retention=retention)


def _parse_location(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"--location {text!r} is not a number") from None
    if not is_location(value):
        raise ValueError(f"--location {text}: a location goes from 0 up to, but not including, 1")
    return value


def makeService(options: Options) -> IService:
    """Return the service that ``options`` describe; called by Twisted.

    :raises SystemExit: with one line, if the service could not start.
    """
    try:
        # twistd still has the terminal here, so that errors can be reported in one line.
        named = [("listen", listening) for listening in options["listening"]]
        probe_ports(named + [(option, options[f"{option}-listening"]) for option in ("control", "metrics")])
        if options["state-path"] is not None:
            require_writable_directory("state", options["state-path"].parent)
        storage = None
        if options["directory"] is not None:
            require_writable_directory("journal", options["directory"])
            storage = Storage(options["directory"], config=options["journal-config"])
            storage.check(options["keys"])
        service: Any = FreenetService(
            options["peers"],
            [listening.description for listening in options["listening"]],
            location=options["place"],
            policy=options["policy"],
            secret=options["secret"],
            state=options["state-path"],
            storage=storage,
            control=endpoint_description(options["control-listening"]),
            metrics=endpoint_description(options["metrics-listening"]),
            streams=options["keys"],
            protocol=options["class"],
            max_neighbours=options["max-neighbours"],
        )
    except FyrehoseError as error:
        raise SystemExit(f"freenet-node: {error}") from None
    return service  # type: ignore[no-any-return]
