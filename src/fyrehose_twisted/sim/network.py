"""A network in memory that loses, repeats, delays, garbles and cuts, and the hosts on it that run real nodes."""

from __future__ import annotations

import re
from collections.abc import Callable

from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.interfaces import INode
from fyrehose_twisted.sim.crash_mode import Boot
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network_core import NetworkCore
from fyrehose_twisted.sim.tcp.streams import StreamConnections
from fyrehose_twisted.sim.udp.datagram_path import DatagramPath
from fyrehose_twisted.sim.udp.datagram_socket import DatagramSocket

DEFAULT_START = 1_767_225_600.0
"""2026-01-01, so that times are as large, and as coarse, as those of production."""

HOST_NAME_PATTERN = r"(?!(\*|for)$)[^\s,#]+"
"""What a host may be called: the text of a fault has to make sense with it."""


class Network(NetworkCore):
    """Hosts, and the links between them.

    :param seed: everything random is drawn from it, for each direction between two hosts separately.
    :param link: what a link is like that nobody has changed.
    :param start: virtual time at the start, UTC seconds since 1970.
    :param moment: seconds; what arrives at one host in one such span is handed over together at its end, as it is when
        a busy socket is read. 0: only what arrives at exactly the same time.
    :param split: probability with which what is handed over together is cut into two batches between any two datagrams.
        Unless it is 0, bytes of streams are cut where they are read too, as often as
        :mod:`~fyrehose_twisted.sim.tcp.segments` says.
    :param split_seed: where these are cut is drawn from this; nothing else is, so the outcome may not depend on it.
        What is cut before it travels on a stream is drawn from ``seed``.
    :raises ValueError: if ``moment`` or ``split`` is out of range.
    :ivar hosts: hosts by address.
    :ivar counters: datagrams ``sent``, ``duplicated``, ``corrupted``, ``truncated``, ``arrived``, ``dropped`` and
        ``dropped: why`` (a duplicate that is dropped counts too), and ``batches`` handed over. Of messages on streams,
        those ``sent``, ``arrived`` and ``dropped`` as well; ``connections`` that opened, and ``stream_buffered``, the
        most bytes that ever waited at one end of one.
    :ivar link_version: grows whenever a link changes.
    :ivar sockets: where datagrams arrive, by the address of their host.
    :ivar streams: stream connections; see :class:`~fyrehose_twisted.sim.tcp.streams.StreamConnections`.
    :ivar active_host: whose node is being called, or was when something raised.
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
        self.sockets: dict[Address, DatagramSocket] = {}
        self._paths: list[dict[Address, DatagramPath]] = []  # by the index of the source

    def add(self, name: str, address: Address, start: Callable[[Boot], INode], *, start_delay: float = 0.0) -> Host:
        """Put a host on the network; :meth:`Host.start` starts it.

        :param start: makes the node, at the first start and after every crash.
        :param start_delay: seconds after the start of a run at which a scenario starts it.
        :raises ValueError: if the name or the address is taken, or the name is none.
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

    # What travels

    def path(self, source: Host, to: Address) -> DatagramPath:
        """Return the way from ``source`` to ``to``."""
        paths = self._paths[source.index]
        path = paths.get(to)
        if path is None:
            path = paths[to] = DatagramPath(self, self.sockets, source, to)
        return path

    def send(self, source: Host, effect: Send) -> None:
        """Send copies of the datagrams of ``effect`` on their way."""
        datagrams = [bytes(datagram) for datagram in effect.iter_datagrams()]
        for peer in effect.peers:
            path = self.path(source, peer)
            for datagram in datagrams:
                path.transmit(datagram)
