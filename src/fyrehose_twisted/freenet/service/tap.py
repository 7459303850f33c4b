"""``twistd freenet-node``."""

from __future__ import annotations

from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.freenet.protocol import FreenetPeerProtocol
from fyrehose_twisted.freenet.service.config import DEFAULT_LISTEN, MAX_NEIGHBOURS, FreenetConfig
from fyrehose_twisted.freenet.service.service import FreenetService
from fyrehose_twisted.freenet.service.storage import PacketStorage
from fyrehose_twisted.freenet.wire.location import is_location
from fyrehose_twisted.freenet.wire.messages import MAX_HTL
from fyrehose_twisted.freenet.wire.signing import parse_key
from fyrehose_twisted.journal.upkeep.options import JournalOptions
from fyrehose_twisted.net.options import (
    ControlOptions,
    NodeOptions,
    endpoint_description,
    integer_option,
    number_option,
    probe_ports,
    protocol_option,
    require_writable_directory,
    state_option,
)

_DEFAULT_POLICY = Policy()


class Options(NodeOptions, JournalOptions, ControlOptions):
    """Command-line options of ``twistd freenet-node``."""

    aliases = {"p": "peer", "s": "subscribe"}
    synopsis = "--peer HOST:PORT [options]"
    longdesc = (
        "Runs one node of a publish/subscribe network. Each stream of packets has a tree, which grows as requests are"
        " routed to the location of its key on a ring, and repairs itself. The node listens on loopback by default; any"
        " other interface requires --secret-file or --open."
    )
    optParameters = [
        ["location", None, None, "location on the ring, from 0 up to 1 [default: as in --state, else random]"],
        state_option("none, and a new id at each start"),
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
        protocol_option("FreenetPeerProtocol"),
    ]
    optFlags = [["confirm-root", None, "search once more for a nearer node before becoming a root"]]

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

    def opt_subscribe(self, key: str) -> None:
        """KEY of a stream to subscribe to: 40 hexadecimal digits, or name:NAME (repeatable)"""
        self["streams"].append(key)

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
        self.read_secret()
        self.parse_listens(self["listens"], DEFAULT_LISTEN)
        self.parse_control("tcp:6181", "publishes in this node's name")
        self["state-path"] = self.absolute_path("state")
        self.parse_journal()
        self.load_protocol(FreenetPeerProtocol)
        directory, settings = self["directory"], self["journal-config"]
        self["config"] = FreenetConfig(
            self["peers"],
            listen=[listening.description for listening in self["listening"]],
            location=self["place"],
            policy=self["policy"],
            secret=self["secret"],
            state=self["state-path"],
            storage=None if directory is None else PacketStorage(directory, config=settings),
            control=endpoint_description(self["control-listening"]),
            metrics=endpoint_description(self["metrics-listening"]),
            streams=self["keys"],
            max_neighbours=self["max-neighbours"],
        )


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
    config: FreenetConfig = options["config"]
    try:
        # twistd still has the terminal here, so that errors can be reported in one line.
        probe_ports(options.named_endpoints())
        if config.state is not None:
            require_writable_directory("state", config.state.parent)
        options.require_writable_journal()
        if config.storage is not None:
            config.storage.check(config.streams)
        service: Any = FreenetService(config, protocol=options["class"])
    except FyrehoseError as error:
        raise SystemExit(f"freenet-node: {error}") from None
    return service  # type: ignore[no-any-return]
