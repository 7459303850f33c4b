"""``twistd hydra-node``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.hydra.config import MAX_NODES, OverlongPolicy, Quorum, Timers
from fyrehose_twisted.hydra.irc.active import Channel, IrcConfig
from fyrehose_twisted.hydra.irc.bots import load_bot
from fyrehose_twisted.hydra.irc.nick_service import NickServiceConfig
from fyrehose_twisted.hydra.irc.password import read_password
from fyrehose_twisted.hydra.protocol import HydraProtocol
from fyrehose_twisted.hydra.service.config import DEFAULT_LISTEN, HydraConfig, HydraSettings
from fyrehose_twisted.hydra.service.service import HydraService
from fyrehose_twisted.hydra.service.storage import LineStorage
from fyrehose_twisted.hydra.transports.link_url import parse_link
from fyrehose_twisted.journal.upkeep.options import JournalOptions
from fyrehose_twisted.net.addresses import parse_address
from fyrehose_twisted.net.options import (
    SYNC_FLAG,
    ControlOptions,
    NodeOptions,
    endpoint_description,
    integer_option,
    max_links_option,
    number_option,
    probe_ports,
    protocol_option,
    require_choice,
    require_writable_directory,
    state_option,
)
from fyrehose_twisted.process.secret import read_secret
from fyrehose_twisted.process.sighup import non_empty_strings, read_limits

_IRC_OPTIONS = (
    "nick",
    "irc-password-file",
    "sasl-account",
    "sasl-password-file",
    "nickserv-password-file",
    "nickserv-account",
)
"""Options without a default that are of no use without ``--irc``."""


class Options(NodeOptions, JournalOptions, ControlOptions):
    """Command-line options."""

    aliases = {"found": "bootstrap", "n": "network", "s": "network-size"}
    synopsis = "--tag TAG --link LINK --irc HOST:PORT --channel CHANNEL [options]"
    longdesc = (
        "Runs one node of a network that elects a leader. Only the leader is on IRC. Every node receives the lines from"
        " IRC and can send lines to it. The first node bootstraps the network (--bootstrap). All nodes need the same"
        " --network-size. Listens on loopback by default. Any other interface requires --secret-file or --open."
    )
    optParameters = [
        ["tag", "t", None, "readable name of this node"],
        ["network", None, "default", "name of the network"],
        [
            "network-size",
            None,
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
        ["udp-listen", None, None, "HOST:PORT for links over UDP; short for --listen udp:PORT:interface=HOST"],
        ["nick", None, None, "nick on IRC [default: the tag]"],
        ["accept-secret-file", None, None, "file with another secret that nodes may prove; may be missing"],
        [
            "reload-file",
            None,
            None,
            "TOML file with channels and bots, read again on SIGHUP",
        ],
        ["irc-password-file", None, None, "file with the password of the IRC server"],
        ["sasl-account", None, None, "account for SASL PLAIN"],
        ["sasl-password-file", None, None, "file with the password of the SASL account"],
        ["nickserv-password-file", None, None, "file with the password of the account with NickServ"],
        ["nickserv-account", None, None, "account with NickServ [default: that of the nick]"],
        ["nickserv", None, "NickServ", "nick of the service, safest with its server: NickServ@services.example.org"],
        ["nickserv-release", None, "GHOST", "how NickServ frees the nick: GHOST, REGAIN, RECOVER or RELEASE"],
        ["ctcp-version", None, "fyrehose_twisted hydra", "reply to CTCP VERSION; empty leaves all CTCP to bots"],
        ["irc-rate", None, 1.0, "lines per second sent to IRC", number_option("irc-rate", 0.01, 1_000_000)],
        ["irc-burst", None, 5, "lines sent to IRC at once after a pause", integer_option("irc-burst", 1, 100_000)],
        ["irc-patience", None, 5.0, "seconds for IRC to acknowledge a line", number_option("irc-patience", 1, 600)],
        ["irc-long", None, "split", "handling of a message that is too long for IRC: split or refuse"],
        state_option("none, and each start takes longer"),
        max_links_option(64),
        protocol_option("HydraProtocol"),
    ]
    optFlags = [
        ["bootstrap", None, "bootstrap a network if no linked node is in one"],
        SYNC_FLAG,
        [
            "no-quick-lease",
            None,
            "as leader, keep to the document's timers: it is missed for 15 s if it falls silent",
        ],
        ["no-guardian", None, "run no guardian process, which sends a DROP if this process is killed"],
    ]

    def __init__(self) -> None:
        super().__init__()
        self._loaded_bots: dict[str, Any] = {}
        self._paths: dict[str, Path | None] = {}
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

    def _check(self) -> None:
        if not self["tag"]:
            raise usage.UsageError("--tag TAG is required")
        require_choice("quorum", self["quorum"], "fixed", "registry")
        require_choice("irc-long", self["irc-long"], "split", "refuse")
        quorum = Quorum(self["quorum"])
        links = self["links"] = list(dict.fromkeys(self["links"]))
        for link in links:
            parse_link(link)
        if not links and not self["bootstrap"] and not self["listens"] and not self["udp-listen"]:
            raise usage.UsageError("no peers: give --link LINK for each existing node, or --bootstrap on the first one")
        self.read_secret()
        if self["accept-secret-file"] and not self["secret-file"]:
            raise usage.UsageError("--accept-secret-file requires --secret-file")
        # A daemon may have another working directory.
        for option in ("secret-file", "accept-secret-file", "reload-file"):
            self._paths[option] = self.absolute_path(option)
        self._read_settings_file()
        self._check_listening()
        self._check_irc()
        self["state-path"] = self.absolute_path("state")
        if self["sync"] and not self["state"]:
            raise usage.UsageError("--sync requires --state FILE")
        self.parse_journal()
        self.load_protocol(HydraProtocol)
        directory, settings = self["directory"], self["journal-config"]
        self["config"] = HydraConfig(
            network=self["network"],
            tag=self["tag"],
            network_size=self["network-size"] if quorum is Quorum.FIXED else None,
            quorum=quorum,
            bootstrap=bool(self["bootstrap"]),
            timers=Timers(self["timescale"]),
            irc_rate=self["irc-rate"],
            irc_burst=self["irc-burst"],
            irc_patience=self["irc-patience"],
            irc_long=OverlongPolicy(self["irc-long"]),
            max_links=self["max-links"],
            links=links,
            listen=[listening.description for listening in self["listening"]],
            irc=self["irc-config"],
            secret=self["secret"],
            other_secrets=self._other_secrets(),
            state=self["state-path"],
            sync=bool(self["sync"]),
            storage=None if directory is None else LineStorage(directory, config=settings),
            control=endpoint_description(self["control-listening"]),
            metrics=endpoint_description(self["metrics-listening"]),
            guardian=not self["no-guardian"],
            quick_lease=not self["no-quick-lease"],
        )

    def reload(self) -> HydraSettings:
        """Return the settings in the files.

        :raises ConfigurationError: if they are invalid; usage errors of the command line do not occur here.
        """
        path = self._paths["secret-file"]
        secret = None if path is None else read_secret(str(path))
        self._read_settings_file()
        channels = tuple(map(_parse_channel, dict.fromkeys(self["channels"])))
        config = self["irc-config"]
        if config is not None:
            replace(config, channels=channels)
        return HydraSettings(secret, self._other_secrets(), channels, self.load_bots())

    def load_bots(self) -> tuple[Any, ...]:
        """Return the bots; one that is already loaded keeps its state."""
        loaded = self._loaded_bots
        self._loaded_bots = {name: loaded.get(name) or load_bot(name) for name in dict.fromkeys(self["bots"])}
        return tuple(self._loaded_bots.values())

    def _read_settings_file(self) -> None:
        path = self._paths["reload-file"]
        if path is not None:
            for name, values in read_limits(path, {"channels": non_empty_strings, "bots": _strings}).items():
                self[name] = values

    def _other_secrets(self) -> tuple[bytes, ...]:
        path = self._paths["accept-secret-file"]
        if path is None or not path.exists() or not path.stat().st_size:
            return ()
        return (read_secret(str(path)),)

    def _check_listening(self) -> None:
        listens = self["listens"]
        if self["udp-listen"]:
            host, port = parse_address(self["udp-listen"])
            escaped = host.replace(":", "\\:")
            listens.append(f"udp:{port}:interface={escaped}")
        self.parse_listens(listens, DEFAULT_LISTEN, datagrams=True)
        if sum(listening.datagrams for listening in self["listening"]) > 1:
            raise usage.UsageError("a node has at most one UDP port; omit the others")
        self.parse_control("tcp:6175", "sends lines to IRC in this node's name")

    def _check_irc(self) -> None:
        servers, channels = self["servers"], self["channels"]
        self["irc-config"] = None
        if not servers:
            for option in _IRC_OPTIONS:
                if self[option]:
                    raise usage.UsageError(f"--{option} requires --irc HOST:PORT")
            if channels:
                raise usage.UsageError("--channel requires --irc HOST:PORT")
            return
        if not channels:
            raise usage.UsageError("--irc requires --channel CHANNEL")
        if (self["sasl-account"] is None) != (self["sasl-password-file"] is None):
            raise usage.UsageError("--sasl-account and --sasl-password-file require each other")
        if self["nickserv-account"] and not self["nickserv-password-file"]:
            raise usage.UsageError("--nickserv-account requires --nickserv-password-file")
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
            nick_service=self._nick_service(),
            ctcp_version=self["ctcp-version"],
        )

    def _nick_service(self) -> NickServiceConfig | None:
        path = self["nickserv-password-file"]
        if not path:
            return None
        return NickServiceConfig(
            read_password("--nickserv-password-file", path),
            self["nickserv-account"] or "",
            self["nickserv"],
            self["nickserv-release"].upper(),
        )


def _strings(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError('a list of texts, such as ["karma.KarmaBot"]')
    return value


def _parse_channel(text: str) -> Channel:
    name, _, key = text.partition(",")
    return Channel(name, key or None)


def makeService(options: Options) -> IService:
    """Twisted: return the service for the options.

    :raises SystemExit: with a one-line message, if the service could not start.
    """
    config: HydraConfig = options["config"]
    try:
        # twistd still has the terminal here, so report foreseeable errors in one line now.
        probe_ports(options.named_endpoints())
        if config.state is not None:
            require_writable_directory("state", config.state.parent)
        options.require_writable_journal()
        if config.storage is not None:
            config.storage.check(config.network)
        service: Any = HydraService(config, bots=options.load_bots(), protocol=options["class"], reload=options.reload)
    except FyrehoseError as error:
        raise SystemExit(f"hydra-node: {error}") from None
    return service  # type: ignore[no-any-return]
