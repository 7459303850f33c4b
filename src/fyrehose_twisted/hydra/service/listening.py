"""Listening ports of a hydra node for links, control and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.config import Timers
from fyrehose_twisted.hydra.transports.udp.endpoint import UdpListener, UdpPort
from fyrehose_twisted.net.auth import Authenticator, auth_server_factory
from fyrehose_twisted.net.listening import ListeningEndpoint, ListeningPorts
from fyrehose_twisted.net.options import parse_server_endpoint

EXAMPLE = "tcp:6174"


class HydraPorts(ListeningPorts):
    """Listening ports of one hydra node.

    :param listen: endpoints for links: server endpoints, or ``udp:PORT:interface=ADDRESS``.
    :param secret: shared secret of the nodes.
    :ivar udp: UDP port, ``None`` without one.
    :raises ConfigurationError: if an endpoint is invalid.
    """

    def __init__(
        self,
        reactor: Any,
        listen: Sequence[str],
        secret: bytes | None,
        timers: Timers,
        *,
        authenticator: Authenticator | None = None,
    ) -> None:
        super().__init__(reactor, EXAMPLE, "hydra")
        self.udp: UdpPort | None = None
        proved = self.gate if authenticator is None else auth_server_factory(self.gate, authenticator, reactor)
        for text in listen:
            listening = parse_server_endpoint("listen", text, EXAMPLE, datagrams=True)
            if not listening.datagrams:
                self.add("listen", listening.description, proved)
                continue
            if self.udp is not None:
                raise ConfigurationError(f"--listen {text}: the node already has a UDP port, and can have only one")
            assert listening.address is not None
            interface, port = listening.address
            self.udp = UdpPort(reactor, interface, port, secret, timers.max_ping)
            self.add_port(ListeningEndpoint("listen", listening.description, self.udp.server_endpoint(), self.gate))

    def add(self, option: str, description: str, factory: Any) -> None:
        """See :meth:`~fyrehose_twisted.net.listening.ListeningPorts.add`."""
        super().add(option, parse_server_endpoint(option, description, EXAMPLE).description, factory)

    def log_listening(self, listening: ListeningEndpoint, port: Any, address: str) -> None:
        """See :meth:`~fyrehose_twisted.net.listening.ListeningPorts.log_listening`."""
        super().log_listening(listening, port, f"UDP {address}" if isinstance(port, UdpListener) else address)

    async def close_udp(self) -> None:
        """Close the UDP port, after all links are closed."""
        if self.udp is not None:
            await self.udp.stop()
