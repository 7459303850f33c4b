"""Options and service of ``twistd fyrehose-backbone``."""

from __future__ import annotations

import re
import socket
import tempfile
from collections.abc import Callable
from errno import EADDRINUSE
from ipaddress import IPv4Address
from pathlib import Path
from random import SystemRandom
from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.fyrehose.config import MAX_RETRANSMIT, AddressList, BackboneConfig, check_exposure
from fyrehose_twisted.fyrehose.node.backbone.backbone import SETTLE_TIME
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward, RoundRobinForward
from fyrehose_twisted.fyrehose.protocol.backbone import BackboneProtocol
from fyrehose_twisted.fyrehose.protocol.member import MemberProtocol
from fyrehose_twisted.fyrehose.service.backbone import BackboneService
from fyrehose_twisted.fyrehose.service.connect import DEFAULT_PORT
from fyrehose_twisted.fyrehose.service.member.config import MemberServiceConfig
from fyrehose_twisted.fyrehose.service.member.options import MemberOptions, member_state_path
from fyrehose_twisted.fyrehose.service.member.service import MemberService
from fyrehose_twisted.fyrehose.service.member.state_file import MemberStateFile, check_member_state
from fyrehose_twisted.fyrehose.service.options import (
    StreamNameOption,
    float_option,
    ipv4_interface,
    require_parent_directory,
)
from fyrehose_twisted.fyrehose.service.state_file import SequenceFile
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE
from fyrehose_twisted.interfaces import IForwardPolicy
from fyrehose_twisted.net.options import (
    MetricsOption,
    OpenFlag,
    SecretOption,
    integer_option,
    probe_ports,
    protocol_option,
    require_choice,
    state_option,
)
from fyrehose_twisted.net.socket_activation import activated_udp_socket
from fyrehose_twisted.process.sighup import integer_between, non_empty_strings, positive_number, read_limits

LIMITS = {
    "max-clients": integer_between(1, 1_000_000),
    "max-per-host": integer_between(1, 1_000_000),
    "allow": non_empty_strings,
    "allow-push": non_empty_strings,
    "request-rate": positive_number,
    "request-burst": positive_number,
    "retransmit": integer_between(0, MAX_RETRANSMIT >> 20),
    "min-rate": positive_number,
}
"""Keys of the limits file, with their checks."""

FORMER_NAMES = {"max-subscribers": "max-clients"}
"""Current names of renamed options and limits, by former name."""


class Options(StreamNameOption, SecretOption, OpenFlag, MetricsOption, MemberOptions):
    """Command-line options of the backbone."""

    aliases = {**FORMER_NAMES, "f": "forward", "s": "state"}
    synopsis = "[options]"
    longdesc = (
        "Assigns a number to every message and sends it to all subscribers. Listens on loopback by default. Any other"
        " interface requires --secret-file, --allow or --open. With --member it belongs to a group of backbones: if one"
        " fails, another one takes over."
    )
    optParameters = [
        ["interface", "i", "127.0.0.1", "IPv4 address to listen on"],
        ["port", "p", DEFAULT_PORT, "UDP port to listen on", integer_option("port", 0, 65_535)],
        state_option("fyrehose-NAME.state in the current directory"),
        [
            "start-at",
            None,
            None,
            "first number, for a new stream or a lost state file",
            integer_option("start-at", 1, MAX_SEQUENCE),
        ],
        [
            "settle-time",
            None,
            SETTLE_TIME,
            "seconds to wait for clients before the first number is assigned",
            float_option("settle-time"),
        ],
        ["max-clients", "m", 1_024, "maximum number of clients", integer_option("max-clients", 1, 1_000_000)],
        [
            "max-per-host",
            None,
            None,
            "maximum number of clients per host [default: a quarter of --max-clients, at least 16]",
            integer_option("max-per-host", 1, 1_000_000),
        ],
        ["forward", None, "random", "choice among clients equally likely to hold a message: random or round-robin"],
        [
            "retransmit",
            None,
            32,
            "MiB of recent messages kept for retransmission",
            integer_option("retransmit", 0, MAX_RETRANSMIT >> 20),
        ],
        [
            "min-rate",
            None,
            1_024,
            "KiB/s always granted to publishers, however far repairs lag; 0 never throttles publishers",
            integer_option("min-rate", 0, 2**30),
        ],
        ["limits", None, None, "TOML file with limits, which override these options; reloaded on SIGHUP"],
        ["systemd", None, None, "use the UDP socket with this FileDescriptorName= from systemd instead of binding one"],
        protocol_option("BackboneProtocol"),
    ]

    def opt_listen(self, text: str) -> None:
        """udp:PORT:interface=ADDRESS to listen on, instead of --port and --interface"""
        found = re.fullmatch(r"udp:(\d{1,5})(?::interface=([^:]+))?", text)
        if found is None or int(found[1]) > 65_535:
            raise usage.UsageError(f"--listen {text!r} is not udp:PORT or udp:PORT:interface=ADDRESS")
        self["port"] = int(found[1])
        if found[2] is not None:
            self["interface"] = found[2]

    optFlags = [["trust-addresses", None, "trust the ADDR of clients, for clients behind address translation"]]

    def __init__(self) -> None:
        super().__init__()
        self["allow"] = []
        self["allow-push"] = []

    def opt_allow(self, network: str) -> None:
        """IPv4 network to serve, in CIDR form (repeatable) [default: all]"""
        self["allow"].append(network)

    def opt_allow_push(self, network: str) -> None:
        """IPv4 network that may publish, in CIDR form (repeatable) [default: all]"""
        self["allow-push"].append(network)

    def _check(self) -> None:
        self.check_name()
        interface = ipv4_interface(self["interface"])
        require_choice("forward", self["forward"], "random", "round-robin")
        if not 0 <= self["settle-time"] <= 60:
            raise usage.UsageError(f"--settle-time {self['settle-time']}: choose 0 to 60 s")
        self["state"] = self["state"] or f"fyrehose-{self['name']}.state"
        self["state"] = self.absolute_path("state")
        require_parent_directory(self["state"])
        self["limits"] = self.absolute_path("limits")
        self.read_secret()
        self["config"] = self.read_config()
        self["inherited"] = None
        if self["systemd"]:
            if self["port"] != DEFAULT_PORT or self["interface"] != "127.0.0.1":
                raise usage.UsageError(
                    "--port and --interface do not apply with --systemd; set the address in the .socket unit"
                )
            self["inherited"] = activated_udp_socket("systemd", self["systemd"])
            interface, self["port"] = (
                IPv4Address(self["inherited"].getsockname()[0]),
                self["inherited"].getsockname()[1],
            )
        if not self["open"]:
            check_exposure(str(interface), self["config"])
        self["group-member"] = self.parse_member((str(interface), self["port"]), self["secret"])
        self.load_protocol(BackboneProtocol if self["group-member"] is None else MemberProtocol)

    def read_config(self) -> BackboneConfig:
        """Return the configuration from the options and the current limits file.

        :raises ConfigurationError: if the file is invalid.
        """
        found = read_limits(self["limits"], LIMITS, FORMER_NAMES) if self["limits"] else {}
        allow = found.get("allow", self["allow"])
        allow_push = found.get("allow-push", self["allow-push"])
        return BackboneConfig(
            max_clients=found.get("max-clients", self["max-clients"]),
            max_per_host=found.get("max-per-host", self["max-per-host"]),
            allow=AddressList(allow) if allow else None,
            allow_push=AddressList(allow_push) if allow_push else None,
            secret=self["secret"],
            trust_addresses=bool(self["trust-addresses"]),
            request_rate=found.get("request-rate", BackboneConfig().request_rate),
            request_burst=found.get("request-burst", BackboneConfig().request_burst),
            retransmit=found.get("retransmit", self["retransmit"]) * 2**20,
            min_rate=found.get("min-rate", self["min-rate"]) * 2**10 or None,
        )


def makeService(options: Options) -> IService:
    """Twisted: return the service for ``options``.

    :raises SystemExit: with a message of one line, if the service could not start.
    """
    stream = options.stream
    path: Path = options["state"]
    member: MemberServiceConfig | None = options["group-member"]

    def open_state() -> SequenceFile:
        return SequenceFile(path, stream, start_at=options["start-at"])

    try:
        # Report errors now, in one line, while twistd still has the terminal.
        if options["inherited"] is None:
            _probe_port(options["interface"], options["port"])
        if path.exists():
            SequenceFile.check(path, stream, start_at=options["start-at"])
        else:
            _probe_directory(path)
        service: Any
        rest: dict[str, Any] = {
            "metrics": options["metrics"],
            "open_to_all": bool(options["open"]),
            "read_config": options.read_config if options["limits"] else None,
            "inherited": options["inherited"],
        }
        place = options["port"], options["interface"]
        if member is None:
            protocol = options["class"](options["config"], _policy(options), settle_time=options["settle-time"])
            service = BackboneService(protocol, open_state, *place, **rest)
        else:
            service = _make_member(options, member, open_state, place, rest)
    except FyrehoseError as error:
        raise SystemExit(f"fyrehose-backbone: {error}") from None
    return service  # type: ignore[no-any-return]


def _make_member(
    options: Options,
    member: MemberServiceConfig,
    open_state: Callable[[], SequenceFile],
    place: tuple[int, str],
    rest: dict[str, Any],
) -> MemberService:
    path = member_state_path(options["state"])
    probe_ports([("peer-listen", member.endpoint), ("control", member.control_endpoint)])
    check_member_state(path, options.stream, member.name)
    protocol = options["class"](config=options["config"], policy=_policy(options), settle_time=options["settle-time"])
    return MemberService(
        protocol,
        member,
        open_state,
        lambda: MemberStateFile(path, options.stream, member.name),
        *place,
        stream=options.stream,
        **rest,
    )


def _policy(options: Options) -> IForwardPolicy:
    return RoundRobinForward() if options["forward"] == "round-robin" else RandomForward(SystemRandom())


def _probe_directory(path: Path) -> None:
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise SystemExit(f"fyrehose-backbone: state file {path} cannot be created: {error.strerror}") from None


def _probe_port(interface: str, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((interface, port))
        except OSError as error:
            hint = "; is another backbone running?" if error.errno == EADDRINUSE else ""
            raise SystemExit(
                f"fyrehose-backbone: cannot listen on {interface}:{port}: {error.strerror}{hint}"
            ) from None
