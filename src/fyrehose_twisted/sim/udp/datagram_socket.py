"""The socket of a host: datagrams that have arrived, until the node has read them."""

from __future__ import annotations

from typing import NamedTuple

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.network_core import NetworkCore
from fyrehose_twisted.sim.observer import Packet

RECEIVE_BUFFER = 4 * 2**20
"""Bytes of datagrams that wait for a host that stands still; what else comes is dropped."""


class Arrival(NamedTuple):
    """A datagram at its destination. They sort by when each really arrived, and then by who sent it first, so that
    the order does not depend on how the sender grouped what it sent."""

    when: float
    source: int
    number: int
    datagram: bytes
    truncated: bool
    packet: Packet

    @property
    def received(self) -> Packet:
        """The packet as the node gets it."""
        sent, datagram = self.packet.data, self.datagram
        if datagram is sent:
            return self.packet
        # What was garbled only behind the cut came undamaged as far as it came.
        damaged = datagram != (sent[: len(datagram)] if self.truncated else sent)
        return self.packet._replace(data=datagram, damaged=damaged, truncated=self.truncated)


class DatagramSocket:
    """The datagrams that arrive at ``host``: read together when it reads, and kept while it stands still."""

    __slots__ = ("_host", "_inbox", "_late", "_late_bytes", "_network")

    def __init__(self, network: NetworkCore, host: Host) -> None:
        self._network = network
        self._host = host
        self._inbox: dict[float, list[Arrival]] = {}
        self._late: list[Arrival] = []
        self._late_bytes = 0

    def host_stopped(self) -> None:
        """The node is gone, and what waits for it is lost."""
        lost, self._late, self._late_bytes = self._late, [], 0
        for arrival in lost:
            self._network.drop(arrival.packet, "down")

    def host_resumed(self) -> None:
        """The node reads again: first what waits."""
        waiting, self._late, self._late_bytes = self._late, [], 0
        if waiting:
            self._receive(waiting)

    def arrive(self, read_at: float, arrival: Arrival) -> None:
        """A datagram will have come when the socket is read at ``read_at``."""
        inbox = self._inbox.get(read_at)
        if inbox is None:
            inbox = self._inbox[read_at] = []
            self._network.scheduler.call_at(read_at, self._read)
        inbox.append(arrival)

    def _read(self) -> None:
        arrivals = self._inbox.pop(self._network.now)
        if len(arrivals) > 1:
            arrivals.sort(key=_order)
        self._receive(arrivals)

    def _receive(self, arrivals: list[Arrival]) -> None:
        split, chance = self._network.split, self._network.split_rng
        # Who is to crash once something is durable would crash elsewhere if what comes were cut elsewhere.
        if not split or len(arrivals) == 1 or self._host.crashes_once_durable:
            self._hand_over(arrivals)
            return
        start = 0
        for end in range(1, len(arrivals) + 1):
            if end == len(arrivals) or chance.random() < split:
                self._hand_over(arrivals[start:end])
                start = end

    def _hand_over(self, arrivals: list[Arrival]) -> None:
        host, network = self._host, self._network
        if not host.up or host.standing:
            self._keep(arrivals)
            return
        receive_batch = getattr(host.node, "receive_batch", None)
        if receive_batch is None:  # It lives on streams, and no socket is bound.
            for arrival in arrivals:
                network.drop(arrival.packet, "nobody")
            return
        network.acting = host
        network.counts["arrived"] += len(arrivals)
        network.counts["batches"] += 1
        for observe in network.observers.arrived:
            for arrival in arrivals:
                observe(arrival.received, host)
        batch = Batch.pack(
            [(arrival.datagram, arrival.packet.source.address) for arrival in arrivals],
            truncated=[row for row, arrival in enumerate(arrivals) if arrival.truncated],
        )
        host.feed(receive_batch, batch)

    def _keep(self, arrivals: list[Arrival]) -> None:
        """Keep what comes until the host goes on; a host that is down keeps nothing."""
        for arrival in arrivals:
            size = len(arrival.datagram)
            if not self._host.up:
                self._network.drop(arrival.packet, "down")
            elif self._late_bytes + size > RECEIVE_BUFFER:
                self._network.drop(arrival.packet, "buffer")
            else:
                self._late.append(arrival)
                self._late_bytes += size


def _order(arrival: Arrival) -> tuple[float, int, int]:
    return arrival.when, arrival.source, arrival.number
