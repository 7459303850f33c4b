"""Options of the services that clients use as their backbone."""

from __future__ import annotations

import re
import socket
from errno import EADDRINUSE
from typing import Any, ClassVar

from twisted.python import usage

from fyrehose_twisted.fyrehose.config import MAX_RETRANSMIT, AddressList, BackboneConfig, check_exposure
from fyrehose_twisted.fyrehose.service.backbone import MulticastSending
from fyrehose_twisted.fyrehose.service.connect import DEFAULT_PORT
from fyrehose_twisted.fyrehose.service.options import StreamNameOption, check_interface
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS
from fyrehose_twisted.net.addresses import format_address, parse_host_port
from fyrehose_twisted.net.options import MetricsOption, OpenFlag, SecretOption, integer_option
from fyrehose_twisted.net.socket_activation import activated_udp_socket
from fyrehose_twisted.net.udp import ANY_HOST, family_of
from fyrehose_twisted.process.sighup import integer_between, non_empty_strings, positive_number, read_limits

LIMITS = {
    "max-clients": integer_between(1, 1_000_000),
    "max-per-host": integer_between(1, 1_000_000),
    "allow": non_empty_strings,
    "allow-push": non_empty_strings,
    "request-rate": positive_number,
    "request-burst": positive_number,
    "retransmit": integer_between(0, MAX_RETRANSMIT >> 20),
}
"""Keys of the limits file, with their checks."""

FORMER_NAMES = {"max-subscribers": "max-clients"}
"""Current names of renamed options and limits, by former name."""


class ServingOptions(StreamNameOption, SecretOption, OpenFlag, MetricsOption):
    """Options of a service that clients use as their backbone: its port, limits and access control.

    :cvar default_port: UDP port without ``--port`` and ``--listen``.
    :cvar limits: keys of the limits file, with their checks.
    """

    default_port: ClassVar[int] = DEFAULT_PORT
    limits: ClassVar[dict[str, Any]] = LIMITS

    optParameters = [
        ["interface", "i", "127.0.0.1", "IP address to listen on; :: for all addresses of both families"],
        ["max-clients", "m", 1_024, "maximum number of clients", integer_option("max-clients", 1, 1_000_000)],
        [
            "max-per-host",
            None,
            None,
            "maximum number of clients per host [default: a quarter of --max-clients, at least 16]",
            integer_option("max-per-host", 1, 1_000_000),
        ],
        [
            "retransmit",
            None,
            32,
            "MiB of recent messages kept for retransmission",
            integer_option("retransmit", 0, MAX_RETRANSMIT >> 20),
        ],
        ["multicast", None, None, "multicast group to send to for all clients that hear it, such as 239.1.1.1:2324"],
        [
            "multicast-interface",
            None,
            None,
            "IPv4 address of the network interface to send to the group from [default: --interface]",
        ],
        ["multicast-ttl", None, 1, "number of networks to cross to the group", integer_option("multicast-ttl", 0, 255)],
        ["limits", None, None, "TOML file with limits, which override these options; reloaded on SIGHUP"],
        ["systemd", None, None, "use the UDP socket with this FileDescriptorName= from systemd instead of binding one"],
    ]

    optFlags = [["trust-addresses", None, "trust the ADDR of clients, for clients behind address translation"]]

    def __init__(self) -> None:
        super().__init__()
        self["allow"] = []
        self["allow-push"] = []

    def opt_listen(self, text: str) -> None:
        """udp:PORT:interface=ADDRESS to listen on, such as udp:2323:interface=\\:\\:, instead of --port and
        --interface"""
        found = re.fullmatch(r"udp:(\d{1,5})(?::interface=((?:[^:\\]|\\:)+))?", text)
        if found is None or int(found[1]) > 65_535:
            raise usage.UsageError(f"--listen {text!r} is not udp:PORT or udp:PORT:interface=ADDRESS")
        self["port"] = int(found[1])
        if found[2] is not None:
            self["interface"] = found[2].replace("\\:", ":")

    def opt_allow(self, network: str) -> None:
        """network to serve, in CIDR form (repeatable) [default: all]"""
        self["allow"].append(network)

    def opt_allow_push(self, network: str) -> None:
        """network that may publish, in CIDR form (repeatable) [default: all]"""
        self["allow-push"].append(network)

    def check_serving(self) -> str:
        """Check these options, and read the secret and the limits. Return the interface.

        :raises UsageError: if one is invalid.
        :raises ConfigurationError: if one is invalid, or clients of other hosts would be served without restriction.
        """
        self.check_name()
        interface: str = check_interface(self["interface"])
        self["interface"] = interface
        self["limits"] = self.absolute_path("limits")
        self.read_secret()
        self["config"] = self.read_config()
        self["multicast-sending"] = None
        self["inherited"] = None
        if self["systemd"]:
            if self["port"] != self.default_port or self["interface"] != "127.0.0.1":
                raise usage.UsageError(
                    "--port and --interface do not apply with --systemd; set the address in the .socket unit"
                )
            self["inherited"] = activated_udp_socket("systemd", self["systemd"])
            interface, self["port"] = self["inherited"].getsockname()[:2]
        if not self["open"]:
            check_exposure(interface, self["config"])
        self["multicast-sending"] = self._check_multicast(interface)
        return interface

    def _check_multicast(self, interface: str) -> MulticastSending | None:
        """Return how to send to the multicast group, if there is one.

        :param interface: IP address to listen on.
        """
        chosen = self["multicast-interface"]
        if self["config"].multicast is None:
            if chosen is not None or self["multicast-ttl"] != 1:
                raise usage.UsageError("--multicast-interface and --multicast-ttl require --multicast GROUP:PORT")
            return None
        if chosen is None and interface in (ANY_HOST, ANY_ADDRESS[0]):
            raise usage.UsageError(
                f"--multicast with --interface {interface}: several networks are possible; choose one by the address of"
                " this host there, with --multicast-interface ADDRESS"
            )
        chosen = check_interface(interface if chosen is None else chosen, "multicast-interface")
        if ":" in chosen:
            raise usage.UsageError(
                f"--multicast from {chosen}: a group has an IPv4 address; pass --multicast-interface with one of this"
                " host, and --interface :: to serve clients of both families"
            )
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(chosen))
        except OSError:
            raise usage.UsageError(
                f"--multicast from {chosen}: no network interface has the address {chosen}; choose one of this host"
            ) from None
        return MulticastSending(chosen, self["multicast-ttl"])

    def read_config(self) -> BackboneConfig:
        """Return the configuration from the options and the current limits file.

        :raises ConfigurationError: if the file is invalid.
        """
        found = self.read_limits()
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
            multicast=parse_host_port(self["multicast"]) if self["multicast"] else None,
            stream=self.stream,
        )

    def read_limits(self) -> dict[str, Any]:
        """Return the contents of the limits file. :raises ConfigurationError: if the file is invalid."""
        return read_limits(self["limits"], self.limits, FORMER_NAMES) if self["limits"] else {}


def probe_port(service: str, interface: str, port: int) -> None:
    """Check that a UDP port is free, while twistd still has the terminal.

    :param service: name of the service, for the message.
    :raises SystemExit: if the port is not free, with a message of one line.
    """
    try:
        with socket.socket(family_of(interface), socket.SOCK_DGRAM) as probe:
            if interface == ANY_HOST:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind((interface, port))
    except OSError as error:
        hint = f"; is another {service.removeprefix('fyrehose-')} running?" if error.errno == EADDRINUSE else ""
        place = format_address((interface, port))
        raise SystemExit(f"{service}: cannot listen on {place}: {error.strerror}{hint}") from None
