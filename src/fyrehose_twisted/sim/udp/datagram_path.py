"""Datagram path: one direction between two hosts."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from random import Random

from fyrehose_twisted._native import mypyc_attr
from fyrehose_twisted.effects import Address
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import MAX_DATAGRAM_SIZE, Link, corrupt
from fyrehose_twisted.sim.network_core import NetworkCore
from fyrehose_twisted.sim.observer import SimPacket
from fyrehose_twisted.sim.udp.datagram_socket import DatagramArrival, DatagramSocket


@mypyc_attr(native_class=False)
class _NoRandom(Random):
    """Placeholder for a generator, which takes 2.5 kB. Most paths of a large network never draw."""

    def random(self) -> float:
        """Raise: a shared generator would make paths depend on one another."""
        raise AssertionError("a link without randomness must not draw")

    def getrandbits(self, k: int, /) -> int:
        """Raise; see :meth:`random`."""
        return int(self.random())


NO_RANDOM = _NoRandom()


class DatagramPath:
    """Path of datagrams from ``source`` to ``to`` with its own random numbers, so that it depends neither on other
    paths nor on the order in which a host serves its peers.

    :param sockets: destination sockets by address of their host.
    :ivar source_address: address that the receiver sees; ``None`` if the source has none of that IP version.
    :ivar rng: random number generator of this path, created when its link first draws.
    """

    __slots__ = ("_busy_until", "_link", "_sockets", "_version", "network", "rng", "source", "source_address", "to")

    def __init__(
        self, network: NetworkCore, sockets: Mapping[Address, DatagramSocket], source: Host, to: Address
    ) -> None:
        self.network = network
        self._sockets = sockets
        self.source = source
        self.to = to
        self.source_address = source.address_towards(to)
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

    def transmit(self, datagram: bytes, group: Address | None = None, lost: str | None = None) -> None:
        """Transmit a datagram.

        :param group: multicast group that it was sent to, if any.
        :param lost: why it does not get here from there, if it does not.
        """
        network, link = self.network, self.link
        rng = self.rng  # after the link, which may create the generator
        now, counts, size = network.scheduler.now, network.counters, len(datagram)
        packet = SimPacket(next(network.packet_numbers), self.source, self.to, datagram, now, group=group)
        counts["sent"] += 1
        for observe in network.observers.sent.of(datagram):
            observe(packet)
        if self.source_address is None or lost is not None:
            network.drop(packet, lost or "no route")
            return
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
        assert self.source_address is not None, "a datagram without a route is dropped before"
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
            read_at,
            DatagramArrival(when, self.source.index, packet.number, datagram, truncated, packet, self.source_address),
        )
