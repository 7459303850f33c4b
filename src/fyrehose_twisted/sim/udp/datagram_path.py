"""Datagram path: one direction between two hosts."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from random import Random

from fyrehose_twisted.effects import Address
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import MAX_DATAGRAM_SIZE, Link, corrupt
from fyrehose_twisted.sim.network_core import NetworkCore
from fyrehose_twisted.sim.observer import SimPacket
from fyrehose_twisted.sim.udp.datagram_socket import DatagramArrival, DatagramSocket


class _NoRandom(Random):
    """Stands where nothing is drawn. A generator takes 2.5 kB, and most paths of a large network never need theirs."""

    def random(self) -> float:
        """Do not be called: what is drawn here would depend on what other paths draw."""
        raise AssertionError("Link.draws says that nothing is drawn")

    def getrandbits(self, k: int, /) -> int:
        """Do not be called either."""
        return int(self.random())


NO_RANDOM = _NoRandom()


class DatagramPath:
    """The way from ``source`` to ``to``, with random numbers of its own: what happens here does not depend on what
    is drawn elsewhere, nor on the order in which a host serves its peers.

    :param sockets: where datagrams arrive, by the address of their host.
    :ivar rng: random numbers for this path alone, from when its link first draws any.
    """

    __slots__ = ("_busy_until", "_link", "_sockets", "_version", "network", "rng", "source", "to")

    def __init__(
        self, network: NetworkCore, sockets: Mapping[Address, DatagramSocket], source: Host, to: Address
    ) -> None:
        self.network = network
        self._sockets = sockets
        self.source = source
        self.to = to
        self.rng: Random = NO_RANDOM
        self._busy_until = 0.0
        self._version = network.link_version
        self._link: Link = network.link_between(source, to)
        self._ensure_rng()

    @property
    def link(self) -> Link:
        """Current link properties."""
        if self._version != self.network.link_version:
            self._version = self.network.link_version
            self._link_changed(self.network.link_between(self.source, self.to))
        return self._link

    def transmit(self, datagram: bytes) -> None:
        """Transmit a datagram."""
        network, link = self.network, self.link
        rng = self.rng  # after the link, which may create the generator
        now, counts, size = network.scheduler.now, network.counters, len(datagram)
        packet = SimPacket(next(network.packet_numbers), self.source, self.to, datagram, now)
        counts["sent"] += 1
        for observe in network.observers.sent:
            observe(packet)
        why = link.draw_loss(size, rng) if size <= MAX_DATAGRAM_SIZE else "too long"
        leaves = now
        if why is None and link.bandwidth is not None:
            leaves = max(self._busy_until, now)
            if (leaves - now) * link.bandwidth + size > link.queue:
                why = "queue"
            else:
                self._busy_until = leaves = leaves + size / link.bandwidth
        if why is not None:
            network.drop(packet, why)
            return
        self._deliver(packet, link, leaves)
        if link.duplication and rng.random() < link.duplication:
            counts["duplicated"] += 1
            self._deliver(packet, link, leaves)

    def _link_changed(self, link: Link) -> None:
        # Queued datagrams continue at the new bandwidth.
        now, old = self.network.now, self._link.bandwidth
        if old is not None and old != link.bandwidth:
            waiting = max(0.0, self._busy_until - now) * old
            self._busy_until = now if link.bandwidth is None else now + waiting / link.bandwidth
        self._link = link
        self._ensure_rng()

    def _ensure_rng(self) -> None:
        if self.rng is NO_RANDOM and self._link.is_random:
            self.rng = Random(f"{self.network.seed}/{self.source.name}/{self.to[0]}:{self.to[1]}")

    def _deliver(self, packet: SimPacket, link: Link, leaves: float) -> None:
        network, rng = self.network, self.rng
        when = leaves + link.latency(rng)
        socket = self._sockets.get(self.to)
        if socket is None:
            network.drop(packet, "nobody")
            return
        datagram, truncated = packet.data, False
        if link.corruption and rng.random() < link.corruption:
            if link.checksum:
                network.drop(packet, "checksum")
                return
            network.counters["corrupted"] += 1
            datagram = corrupt(datagram, rng)
        if link.truncation and datagram and rng.random() < link.truncation:
            network.counters["truncated"] += 1
            datagram, truncated = datagram[: rng.randrange(len(datagram))], True
        moment = network.moment
        read_at = max(ceil(when / moment) * moment, when) if moment else when
        socket.schedule_arrival(
            read_at, DatagramArrival(when, self.source.index, packet.number, datagram, truncated, packet)
        )
