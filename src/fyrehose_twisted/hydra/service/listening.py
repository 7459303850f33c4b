"""Where a hydra node is reached: other nodes, commands on this machine, and whoever reads metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.config import Timers
from fyrehose_twisted.hydra.transports.auth import Proving, proved_factory
from fyrehose_twisted.hydra.transports.udp.endpoint import UdpDoor, UdpPort
from fyrehose_twisted.net.listening import Entrance, Entrances
from fyrehose_twisted.net.options import parse_listen

EXAMPLE = "tcp:6174"


class Doors(Entrances):
    """Where a hydra node is reached.

    :param listen: where other nodes come in: server endpoints, or ``udp:PORT:interface=ADDRESS``.
    :param secret: what other nodes have to know.
    :ivar udp: the UDP port, if there is one.
    :raises ConfigurationError: if something is no endpoint.
    """

    def __init__(
        self,
        reactor: Any,
        listen: Sequence[str],
        secret: bytes | None,
        timers: Timers,
        *,
        proving: Proving | None = None,
    ) -> None:
        super().__init__(reactor, EXAMPLE, "hydra")
        self.udp: UdpPort | None = None
        proved = self.door if proving is None else proved_factory(self.door, proving, reactor)
        for text in listen:
            listening = parse_listen("listen", text, EXAMPLE, datagrams=True)
            if not listening.datagrams:
                self.add("listen", listening.description, proved)
                continue
            if self.udp is not None:
                raise ConfigurationError(f"--listen {text}: there is a UDP port already; a node has one at most")
            assert listening.address is not None
            interface, port = listening.address
            self.udp = UdpPort(reactor, interface, port, secret, timers.max_ping)
            self.add_entrance(Entrance("listen", listening.description, self.udp.server_endpoint(), self.door))

    def add(self, option: str, description: str, factory: Any) -> None:
        """See :meth:`~fyrehose_twisted.net.listening.Entrances.add`."""
        super().add(option, parse_listen(option, description, EXAMPLE).description, factory)

    def say(self, entrance: Entrance, port: Any, place: str) -> None:
        """See :meth:`~fyrehose_twisted.net.listening.Entrances.say`."""
        super().say(entrance, port, f"UDP {place}" if isinstance(port, UdpDoor) else place)

    async def end(self) -> None:
        """Let go of the UDP port, once all links are closed."""
        if self.udp is not None:
            await self.udp.stop()
