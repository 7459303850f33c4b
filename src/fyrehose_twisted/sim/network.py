"""In-memory network with lossy links, and hosts that run real nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.interfaces import INode
from fyrehose_twisted.sim.crash_mode import Boot
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network_core import NetworkCore
from fyrehose_twisted.sim.tcp.streams import StreamConnections
from fyrehose_twisted.sim.udp.datagram_path import DatagramPath
from fyrehose_twisted.sim.udp.datagram_socket import DatagramSocket
from fyrehose_twisted.sim.udp.multicast import MulticastGroups

DEFAULT_START = 1_767_225_600.0
"""2026-01-01, so that timestamps have the magnitude and resolution of production."""

HOST_NAME_PATTERN = r"(?!(\*|for)$)[^\s,#]+"
"""Pattern of valid host names, chosen so that the text of a fault is unambiguous."""


class Network(NetworkCore):
    """Simulated hosts and the links between them.

    :param seed: seed of all randomness, drawn separately for each direction between two hosts.
    :param link: default properties of links.
    :param start: virtual time at the start, UTC seconds since 1970.
    :param moment: seconds. Packets that arrive at a host within one such interval are delivered together at its end, as
        on a busy socket. 0 combines only packets that arrive at exactly the same time.
    :param split: probability of a batch boundary between two datagrams that are delivered together. Unless it is 0,
        stream reads are split too; see :mod:`~fyrehose_twisted.sim.tcp.segments`.
    :param split_seed: seed of these boundaries only, on which the outcome must not depend. Segmentation by the sender
        of a stream uses ``seed``.
    :raises ValueError: if ``moment`` or ``split`` is out of range.
    :ivar hosts: hosts by their first address.
    :ivar counters: datagrams ``sent``, ``duplicated``, ``corrupted``, ``truncated``, ``arrived``, ``dropped`` and
        ``dropped: why`` (a duplicate that is dropped counts too), and delivered ``batches``. ``sent``, ``arrived`` and
        ``dropped`` include stream messages. ``connections`` counts opened connections, and ``stream_buffered`` is the
        maximum number of bytes buffered at one end of a connection.
    :ivar link_version: incremented whenever a link changes.
    :ivar sockets: datagram sockets, by host address.
    :ivar multicast: groups and their members; see :class:`~fyrehose_twisted.sim.udp.multicast.MulticastGroups`.
    :ivar streams: stream connections; see :class:`~fyrehose_twisted.sim.tcp.streams.StreamConnections`.
    :ivar active_host: host whose node is being called, or was when an exception was raised.
    """

    def __init__(
        self,
        seed: int,
        link: Link | None = None,
        *,
        start: float = DEFAULT_START,
        moment: float = 0.0,
        split: float = 0.0,
        split_seed: int = 0,
    ) -> None:
        super().__init__(seed, link, start=start, moment=moment, split=split, split_seed=split_seed)
        self.streams = StreamConnections(self)
        self.multicast = MulticastGroups(self)
        self.sockets: dict[Address, DatagramSocket] = {}
        self._paths: list[dict[Address, DatagramPath]] = []  # by the index of the source

    def add(self, name: str, address: Address, start: Callable[[Boot], INode], *, start_delay: float = 0.0) -> Host:
        """Add a host to the network; :meth:`Host.start` starts it.

        :param start: creates the node, at the first start and after every crash.
        :param start_delay: seconds after the start of a run at which a scenario starts the host.
        :raises ValueError: if the name is invalid, or the name or address is taken.
        """
        if not re.fullmatch(HOST_NAME_PATTERN, name):
            raise ValueError(f"a host cannot be called {name!r}: no spaces, commas, '#', and neither '*' nor 'for'")
        if name in self._names or address in self.hosts:
            raise ValueError(f"there is a host {name!r} or one at {address} already")
        host = self.hosts[address] = self._names[name] = Host(self, len(self.hosts), name, address, start)
        host.start_delay = start_delay
        self.sockets[address] = DatagramSocket(self, host)
        self._paths.append({})
        self._at_ip[address[0]] = None if address[0] in self._at_ip else host
        return host

    def add_address(self, host: Host, address: Address) -> None:
        """Give a host a second address, of the other IP version. Call before anything is sent.

        :raises ValueError: if the address is taken, or not of the other IP version.
        """
        if address in self.sockets or (":" in address[0]) == (":" in host.address[0]):
            raise ValueError(f"{address} is no second address of {host.name} at {host.address}")
        host.other_address = address
        self.sockets[address] = self.sockets[host.address]
        self._second_addresses[address] = host

    # Datagrams

    def path(self, source: Host, to: Address) -> DatagramPath:
        """Return the datagram path from ``source`` to ``to``."""
        paths = self._paths[source.index]
        path = paths.get(to)
        if path is None:
            path = paths[to] = DatagramPath(self, self.sockets, source, to)
        return path

    def send(self, source: Host, effect: Send) -> None:
        """Transmit copies of the datagrams of ``effect``."""
        datagrams = [bytes(datagram) for datagram in effect.iter_datagrams()]
        paths = self._paths[source.index]
        for peer in effect.peers:
            if self.multicast.has_group(peer):
                self._send_to_group(source, peer, datagrams)
                continue
            path = paths.get(peer) or self.path(source, peer)
            for datagram in datagrams:
                path.transmit(datagram)

    def forge(self, source: Host, claimed: Address, to: Address, datagram: bytes) -> None:
        """Transmit a datagram of ``source`` that seems to come from the address ``claimed``."""
        path = self.path(source, to)
        own, path.source_address = path.source_address, claimed
        path.transmit(datagram)
        path.source_address = own

    def _send_to_group(self, source: Host, group: Address, datagrams: Sequence[bytes]) -> None:
        for datagram in datagrams:
            for member, lost in self.multicast.forward(source, group):
                self.path(source, member).transmit(datagram, group, lost)
