"""Datagram socket of a host, which queues datagrams until the node reads them."""

from __future__ import annotations

from typing import NamedTuple

from fyrehose_twisted.datagrams import Batch, DatagramRun
from fyrehose_twisted.effects import Address
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.network_core import NetworkCore
from fyrehose_twisted.sim.observer import SimPacket

RECEIVE_BUFFER = 4 * 2**20
"""Receive buffer of a paused host, in bytes; datagrams beyond it are dropped."""


class DatagramArrival(NamedTuple):
    """Datagram at its destination. Arrivals sort by arrival time, then by sender and sending order, so that the order
    does not depend on how the sender grouped its datagrams."""

    arrived_at: float
    source_index: int
    number: int
    datagram: bytes
    truncated: bool
    packet: SimPacket
    source_address: Address

    @property
    def received_packet(self) -> SimPacket:
        """Packet as received by the node, if it was changed in transit."""
        sent, datagram = self.packet.data, self.datagram
        # Corruption only beyond the truncation leaves the received part undamaged.
        damaged = datagram != (sent[: len(datagram)] if self.truncated else sent)
        return self.packet._replace(data=datagram, damaged=damaged, truncated=self.truncated)


class DatagramSocket:
    """Datagram socket of ``host``: datagrams are read in batches, and queued during a pause."""

    __slots__ = ("_arrivals", "_host", "_network", "_socket_backlog", "_socket_backlog_bytes")

    def __init__(self, network: NetworkCore, host: Host) -> None:
        self._network = network
        self._host = host
        self._arrivals: dict[float, list[DatagramArrival]] = {}
        self._socket_backlog: list[DatagramArrival] = []
        self._socket_backlog_bytes = 0

    def host_stopped(self) -> None:
        """Drop the queued datagrams: the node has stopped."""
        lost, self._socket_backlog, self._socket_backlog_bytes = self._socket_backlog, [], 0
        for arrival in lost:
            self._network.drop(arrival.packet, "down")

    def host_resumed(self) -> None:
        """Deliver the queued datagrams: the node has resumed."""
        waiting, self._socket_backlog, self._socket_backlog_bytes = self._socket_backlog, [], 0
        if waiting:
            self._receive(waiting)

    def schedule_arrival(self, read_at: float, arrival: DatagramArrival) -> None:
        """Schedule the arrival of a datagram for the read at ``read_at``."""
        inbox = self._arrivals.get(read_at)
        if inbox is None:
            inbox = self._arrivals[read_at] = []
            self._network.scheduler.call_at(read_at, self._read)
        inbox.append(arrival)

    def _read(self) -> None:
        arrivals = self._arrivals.pop(self._network.scheduler.now)
        if len(arrivals) > 1:
            arrivals.sort(key=_arrival_order)
        self._receive(arrivals)

    def _receive(self, arrivals: list[DatagramArrival]) -> None:
        split, chance = self._network.split, self._network.split_rng
        # Not split if the host is to crash after a persist: batch boundaries would change the place of the crash.
        if len(arrivals) == 1 or not split or self._host.crashes_once_durable:
            self._deliver_batch(arrivals)
            return
        start = 0
        for end in range(1, len(arrivals) + 1):
            if end == len(arrivals) or chance.random() < split:
                self._deliver_batch(arrivals[start:end])
                start = end

    def _deliver_batch(self, arrivals: list[DatagramArrival]) -> None:
        host, network = self._host, self._network
        if not host.up or host.paused:
            self._buffer(arrivals)
            return
        receive_batch = getattr(host.node, "receive_batch", None)
        if receive_batch is None:  # A stream node has no UDP socket.
            for arrival in arrivals:
                network.drop(arrival.packet, "nobody")
            return
        network.active_host = host
        network.counters["arrived"] += len(arrivals)
        network.counters["batches"] += 1
        observers = network.observers.arrived
        for arrival in arrivals:
            packet = arrival.packet if arrival.datagram is arrival.packet.data else arrival.received_packet
            for observe in observers.of(packet.data):
                observe(packet, host)
        host.deliver(receive_batch, _pack(arrivals))

    def _buffer(self, arrivals: list[DatagramArrival]) -> None:
        """Queue datagrams of a paused host; drop those of a host that is down."""
        for arrival in arrivals:
            size = len(arrival.datagram)
            if not self._host.up:
                self._network.drop(arrival.packet, "down")
            elif self._socket_backlog_bytes + size > RECEIVE_BUFFER:
                self._network.drop(arrival.packet, "buffer")
            else:
                self._socket_backlog.append(arrival)
                self._socket_backlog_bytes += size


def _pack(arrivals: list[DatagramArrival]) -> Batch:
    if len(arrivals) == 1:
        _, _, _, datagram, truncated, _, source = arrivals[0]
        size = len(datagram)
        return Batch(bytearray(datagram), [DatagramRun(0, size, size, 1, source, truncated)])
    return Batch.pack(
        [(arrival.datagram, arrival.source_address) for arrival in arrivals],
        truncated=[row for row, arrival in enumerate(arrivals) if arrival.truncated],
    )


def _arrival_order(arrival: DatagramArrival) -> tuple[float, int, int]:
    return arrival.arrived_at, arrival.source_index, arrival.number
