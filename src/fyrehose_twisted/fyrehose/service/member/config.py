"""Configuration of the service of a member of a group of backbones."""

from __future__ import annotations

from dataclasses import dataclass, field

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.wire.address import can_be_packed
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, MAX_MEMBERS
from fyrehose_twisted.net.addresses import endpoint_factory_from, format_address, ip_version
from fyrehose_twisted.net.options import ServerEndpoint, parse_server_endpoint
from fyrehose_twisted.net.udp import ANY_HOST
from fyrehose_twisted.process.secret import check_secret

CONTROL_EXAMPLE = "unix:/run/fyrehose-backbone/control"
PEER_EXAMPLE = "tcp:2324:interface=10.0.0.1"


@dataclass(frozen=True, kw_only=True)
class MemberServiceConfig:
    """Configuration of the service of one member.

    :ivar name: name of this member, unique in its group.
    :ivar peers: addresses at which the other members accept connections; hosts may be names.
    :ivar listen: server endpoint for connections from other members.
    :ivar advertise: host at which clients and other members reach this member; by default those that it listens on.
    :ivar secret: secret of the members; without one, ``listen`` must be on loopback.
    :ivar dial: template of the client endpoint of another member, such as ``tls:{host}:{port}``; by default TCP.
    :ivar bootstrap: bootstrap the group, if no peer has been in one.
    :ivar witness: only vote, and serve no clients.
    :ivar control: server endpoint of the control port; ``None`` for none.
    :raises ConfigurationError: if a value is invalid, or an exposed port has no secret.
    """

    name: str
    peers: tuple[Address, ...]
    listen: str
    advertise: str | None = None
    secret: bytes | None = field(default=None, repr=False)
    dial: str | None = None
    bootstrap: bool = False
    witness: bool = False
    control: str | None = None

    def __post_init__(self) -> None:
        if not self.peers:
            raise ConfigurationError("--member requires --peer HOST:PORT for each other member")
        if len(self.peers) >= MAX_MEMBERS:
            raise ConfigurationError(
                f"--peer: {len(self.peers)} other members given; a group has at most {MAX_MEMBERS}"
            )
        if self.secret is not None:
            check_secret(self.secret)
        if self.dial is not None:
            endpoint_factory_from(self.dial)
        if self.advertise is not None and not (ip_version(self.advertise) and _is_reachable(self.advertise)):
            raise ConfigurationError(f"--advertise-host {self.advertise!r} is not an IP address that clients can reach")
        endpoint = self.endpoint
        if not endpoint.local and self.secret is None:
            raise ConfigurationError(
                f"--peer-listen {endpoint.description} is not on loopback, and any program that reaches it could take"
                " over the stream: pass --secret-file FILE"
            )

    @property
    def endpoint(self) -> ServerEndpoint:
        """The endpoint for other members."""
        return parse_server_endpoint("peer-listen", self.listen, PEER_EXAMPLE)

    @property
    def control_endpoint(self) -> ServerEndpoint | None:
        """The endpoint of the control port."""
        return None if self.control is None else parse_server_endpoint("control", self.control, CONTROL_EXAMPLE)

    def advertised(self, client: Address, peer: Address) -> tuple[Address, Address]:
        """Return the addresses for clients and for other members.

        :param client: address that the port for clients is bound to.
        :param peer: address that the port for members is bound to.
        :raises ConfigurationError: if that is any address, and none is to be advertised.
        """
        if client[0] == ANY_HOST:
            raise ConfigurationError(
                "--interface :: serves both IP versions, but a member tells clients one address of each other member:"
                " choose an IPv4 or IPv6 address, or 0.0.0.0 with --advertise-host"
            )
        return self._reachable("--interface", client), self._reachable("--peer-listen", peer)

    def _reachable(self, option: str, bound: Address) -> Address:
        host, port = bound
        if self.advertise is not None:
            return self.advertise, port
        if host in (ANY_ADDRESS[0], ANY_HOST):
            raise ConfigurationError(
                f"{option} {format_address(bound)} is every address of this host: pass --advertise-host with the one at"
                " which clients and other members reach it"
            )
        return bound


def _is_reachable(host: str) -> bool:
    """Return whether an IP address can be told to clients on other hosts."""
    return host not in (ANY_ADDRESS[0], ANY_HOST) and can_be_packed((host, 0))
