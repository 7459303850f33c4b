"""``twistd hydra-node``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.hydra.config import MAX_NODES, NodeConfig, OverlongPolicy, Quorum, Timers
from fyrehose_twisted.hydra.irc.active import Channel, IrcConfig
from fyrehose_twisted.hydra.irc.bots import load_bot
from fyrehose_twisted.hydra.irc.password import read_password
from fyrehose_twisted.hydra.protocol import HydraProtocol
from fyrehose_twisted.hydra.service.service import DEFAULT_LISTEN, HydraService
from fyrehose_twisted.hydra.service.storage import Storage
from fyrehose_twisted.hydra.transports.link_url import parse_link
from fyrehose_twisted.journal.retention import Retention, parse_retention
from fyrehose_twisted.journal.store import JournalConfig
from fyrehose_twisted.net.addresses import parse_address
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


class Options(ServiceOptions):
    """Command-line options."""

    synopsis = "--tag TAG --link LINK --irc HOST:PORT --channel CHANNEL [options]"
    longdesc = (
        "Runs one node of a network that elects a leader. Only the leader is on IRC. Every node receives the lines from"
        " IRC and can send lines to it. The first node founds the network with --found. All nodes need the same"
        " --network-size. Listens on loopback by default. Any other interface requires --secret-file or --open."
    )
    optParameters = [
        ["tag", "t", None, "readable name of this node"],
        ["network", "n", "default", "name of the network"],
        [
            "network-size",
            "s",
            3,
            "maximum number of nodes in the network",
            integer_option("network-size", 1, MAX_NODES),
        ],
        ["quorum", None, "fixed", "quorum rule: fixed (more than half of --network-size), or registry (unsafe)"],
        [
            "timescale",
            None,
            1.0,
            "factor for all timers, the same on every node",
            number_option("timescale", 0.001, 100),
        ],
        ["secret-file", None, None, "file with the shared secret of the network"],
        ["udp-listen", None, None, "HOST:PORT for links over UDP; short for --listen udp:PORT:interface=HOST"],
        ["nick", None, None, "nick on IRC [default: the tag]"],
        ["irc-password-file", None, None, "file with the password of the IRC server"],
        ["sasl-account", None, None, "account for SASL PLAIN"],
        ["sasl-password-file", None, None, "file with the password of the SASL account"],
        ["irc-rate", None, 1.0, "lines per second sent to IRC", number_option("irc-rate", 0.01, 1_000_000)],
        ["irc-burst", None, 5, "lines sent to IRC at once after a pause", integer_option("irc-burst", 1, 100_000)],
        ["irc-patience", None, 5.0, "seconds for IRC to acknowledge a line", number_option("irc-patience", 1, 600)],
        ["irc-long", None, "split", "handling of a message that is too long for IRC: split or refuse"],
        ["state", None, None, "file for this node's promises, used by no other; without it, each start takes longer"],
        ["journal", "j", None, "directory for a journal of lines from IRC, used by this node alone"],
        ["retention", "r", None, "retention of the journal, such as 7d, 50GB or 7d,50GB [default: unlimited]"],
        ["control", "c", None, "endpoint for `fyrehose hydra`, such as unix:/run/hydra.sock or tcp:6175 (on loopback)"],
        ["metrics", None, None, "endpoint to serve Prometheus metrics on, such as tcp:9100 (on loopback)"],
        ["max-links", None, 64, "maximum number of inbound links", integer_option("max-links", 1, 100_000)],
        ["protocol", None, None, "dotted name of your subclass of HydraProtocol"],
    ]
    optFlags = [
        ["found", None, "found a network if no linked node is in one"],
        ["sync", None, "make promises survive power failures; each costs an fsync"],
        ["no-guardian", None, "run no guardian process, which sends a DROP if this process is killed"],
        ["open", None, "run without a secret, even on interfaces other than loopback"],
    ]

    def __init__(self) -> None:
        super().__init__()
        for option in ("listens", "links", "servers", "channels", "bots"):
            self[option] = []

    def opt_listen(self, endpoint: str) -> None:
        """endpoint for other nodes, such as tcp:6174 or udp:6174 (repeatable) [default: tcp:6174 on loopback]"""
        self["listens"].append(endpoint)

    opt_l = opt_listen

    def opt_link(self, link: str) -> None:
        """link to keep open (repeatable): {tcp,tls,udp}:HOST:PORT, irc:SERVER:PORT:NICK:PEER or fifo:DIRECTORY"""
        self["links"].append(link)

    def opt_irc(self, server: str) -> None:
        """HOST:PORT of an IRC server, or a client endpoint such as tls:HOST:PORT (repeatable: tried in turn)"""
        self["servers"].append(server)

    def opt_channel(self, channel: str) -> None:
        """CHANNEL or CHANNEL,KEY to join (repeatable)"""
        self["channels"].append(channel)

    def opt_bot(self, name: str) -> None:
        """dotted name of a callable that returns a bot (repeatable)"""
        self["bots"].append(name)

    def postOptions(self) -> None:
        """Check the options before the service starts."""
        try:
            self._check()
        except (FyrehoseError, ValueError) as error:
            raise usage.UsageError(str(error)) from error

    def _check(self) -> None:
        if not self["tag"]:
            raise usage.UsageError("--tag TAG is required")
        if self["quorum"] not in ("fixed", "registry"):
            raise usage.UsageError(f"--quorum {self['quorum']!r}: choose fixed or registry")
        if self["irc-long"] not in ("split", "refuse"):
            raise usage.UsageError(f"--irc-long {self['irc-long']!r}: choose split or refuse")
        quorum = Quorum(self["quorum"])
        links = self["links"] = list(dict.fromkeys(self["links"]))
        for link in links:
            parse_link(link)
        if not links and not self["found"] and not self["listens"] and not self["udp-listen"]:
            raise usage.UsageError("no peers: give --link LINK for each existing node, or --found on the first one")
        secret = self["secret"] = read_secret(self["secret-file"]) if self["secret-file"] else None
        self._check_listening(secret is not None)
        self["config"] = NodeConfig(
            network=self["network"],
            tag=self["tag"],
            network_size=self["network-size"] if quorum is Quorum.FIXED else None,
            quorum=quorum,
            bootstrap=bool(self["found"]),
            timers=Timers(self["timescale"]),
            irc_rate=self["irc-rate"],
            irc_burst=self["irc-burst"],
            irc_patience=self["irc-patience"],
            irc_long=OverlongPolicy(self["irc-long"]),
            max_links=self["max-links"],
        )
        self._check_irc()
        self._check_files()
        self["class"] = protocol_class(self["protocol"], HydraProtocol) if self["protocol"] else HydraProtocol

    def _check_listening(self, secret: bool) -> None:
        listens = self["listens"]
        if self["udp-listen"]:
            host, port = parse_address(self["udp-listen"])
            escaped = host.replace(":", "\\:")
            listens.append(f"udp:{port}:interface={escaped}")
        if not listens:
            listens.append(DEFAULT_LISTEN)
        self["listening"] = [parse_server_endpoint("listen", text, DEFAULT_LISTEN, datagrams=True) for text in listens]
        for listening in self["listening"]:
            require_protection("listen", listening, bool(self["open"]) or secret, "--secret-file")
        if sum(listening.datagrams for listening in self["listening"]) > 1:
            raise usage.UsageError("a node has at most one UDP port; omit the others")
        for option, example in (("control", "tcp:6175"), ("metrics", "tcp:9100")):
            text = self[option]
            listening = self[f"{option}-listening"] = parse_server_endpoint(option, text, example) if text else None
            if listening is not None and option == "control":
                require_loopback(option, listening, "sends lines to IRC in this node's name")

    def _check_irc(self) -> None:
        servers, channels = self["servers"], self["channels"]
        self["irc-config"] = None
        if not servers:
            for option in ("nick", "irc-password-file", "sasl-account", "sasl-password-file"):
                if self[option]:
                    raise usage.UsageError(f"--{option} requires --irc HOST:PORT")
            if channels:
                raise usage.UsageError("--channel requires --irc HOST:PORT")
            return
        if not channels:
            raise usage.UsageError("--irc requires --channel CHANNEL")
        if (self["sasl-account"] is None) != (self["sasl-password-file"] is None):
            raise usage.UsageError("--sasl-account and --sasl-password-file require each other")
        password = self["irc-password-file"]
        sasl = None
        if self["sasl-account"] is not None:
            sasl = self["sasl-account"], read_password("--sasl-password-file", self["sasl-password-file"])
        self["irc-config"] = IrcConfig(
            servers=tuple(dict.fromkeys(servers)),
            nick=self["nick"] or self["tag"],
            channels=tuple(map(_parse_channel, dict.fromkeys(channels))),
            password=read_password("--irc-password-file", password) if password else None,
            sasl=sasl,
        )

    def _check_files(self) -> None:
        # twistd changes to this directory before the service starts.
        start = Path(self.parent["rundir"] if self.parent is not None else ".")
        self["state-path"] = (start / self["state"]).absolute() if self["state"] else None
        if self["sync"] and not self["state"]:
            raise usage.UsageError("--sync requires --state FILE")
        self["directory"] = None
        if self["journal"] is None:
            if self["retention"]:
                raise usage.UsageError("--retention requires --journal DIR")
            return
        self["directory"] = (start / self["journal"]).absolute()
        retention = parse_retention(self["retention"]) if self["retention"] else Retention()
        self["journal-config"] = JournalConfig(retention=retention)


def _parse_channel(text: str) -> Channel:
    name, _, key = text.partition(",")
    return Channel(name, key or None)


def makeService(options: Options) -> IService:
    """Twisted: return the service for the options.

    :raises SystemExit: with a one-line message, if the service could not start.
    """
    config: NodeConfig = options["config"]
    try:
        # twistd still has the terminal here, so report foreseeable errors in one line now.
        named = [("listen", listening) for listening in options["listening"]]
        probe_ports(named + [(option, options[f"{option}-listening"]) for option in ("control", "metrics")])
        if options["state-path"] is not None:
            require_writable_directory("state", options["state-path"].parent)
        storage = None
        if options["directory"] is not None:
            require_writable_directory("journal", options["directory"])
            storage = Storage(options["directory"], config=options["journal-config"])
            storage.check(config.network)
        service: Any = HydraService(
            config,
            options["links"],
            [listening.description for listening in options["listening"]],
            irc=options["irc-config"],
            secret=options["secret"],
            state=options["state-path"],
            sync=bool(options["sync"]),
            storage=storage,
            control=endpoint_description(options["control-listening"]),
            metrics=endpoint_description(options["metrics-listening"]),
            bots=[load_bot(name) for name in options["bots"]],
            guardian=not options["no-guardian"],
            protocol=options["class"],
        )
    except FyrehoseError as error:
        raise SystemExit(f"hydra-node: {error}") from None
    return service  # type: ignore[no-any-return]
