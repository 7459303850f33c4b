"""Handshake of stream connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import ILinkNode
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.tcp.connection import ConnectionEnd, ConnectionState, EndStreams
from fyrehose_twisted.sim.tcp.retransmission import INITIAL_RETRANSMIT_TIMEOUT, MAX_RETRANSMIT_TIMEOUT
from fyrehose_twisted.sim.tcp.route import StreamRoute


class HandshakeStreams(EndStreams, Protocol):
    """Interface of the stream connections to handshakes."""

    def make_accepted_peer(self, dialler: Host) -> Peer:
        """Return the peer for a new connection from ``dialler``."""

    def refuses_dials(self, host: Host) -> bool:
        """Return whether ``host`` refuses dials."""


class Handshake:
    """Handshake of the dialling ``end``: sends connection requests until a reply arrives or the dial times out."""

    __slots__ = ("_deadline", "_network", "_retry_after", "_route", "_streams", "end")

    def __init__(self, streams: HandshakeStreams, end: ConnectionEnd) -> None:
        self.end = end
        self._streams = streams
        self._network = streams.network
        self._route = StreamRoute(streams, end.host, end.peer.address)
        self._retry_after = INITIAL_RETRANSMIT_TIMEOUT
        self._deadline = self._network.now + streams.limits.dial_timeout

    def dial(self) -> None:
        """Send a connection request."""
        if self.end.state is not ConnectionState.DIALLING:
            return
        if self._network.now >= self._deadline:
            self.end.terminate("timed out")
        elif self._route.is_lost():
            self._retry()
        else:
            self._schedule(self._route.latency(), self._dial_arrived)

    def _retry(self) -> None:
        self._schedule(self._retry_after, self.dial)
        self._retry_after = min(2 * self._retry_after, MAX_RETRANSMIT_TIMEOUT)

    def _schedule(self, seconds: float, call: Callable[[], None]) -> None:
        when = self._network.now + seconds
        self._network.scheduler.call_at(min(when, self._deadline), call if when < self._deadline else self.dial)

    def _dial_arrived(self) -> None:
        """Handle an arrived connection request."""
        if self.end.state is not ConnectionState.DIALLING:
            return
        host = self._network.hosts.get(self.end.peer.address)
        if host is None:
            self._send_reply(self._route, self._refused)
        elif host.powered_off:
            self._retry()
        elif is_refusing(self._streams, host):
            self._send_reply(StreamRoute(self._streams, host, self.end.host.address), self._refused)
        else:
            if self.end.other is None or self.end.other.is_gone:
                accept(self._streams, host, self.end)
            self._send_reply(StreamRoute(self._streams, host, self.end.host.address), self._accepted)

    def _send_reply(self, back: StreamRoute, on_arrival: Callable[[], None]) -> None:
        if back.is_lost():
            self._retry()
        else:
            self._schedule(back.latency(), on_arrival)

    def _refused(self) -> None:
        self.end.terminate("refused")

    def _accepted(self) -> None:
        if self.end.state is ConnectionState.DIALLING:
            self.end.dial_accepted()


def is_refusing(streams: HandshakeStreams, host: Host) -> bool:
    """Return whether ``host`` refuses connections."""
    return not host.up or streams.refuses_dials(host) or not ILinkNode.providedBy(host.node)


def accept(streams: HandshakeStreams, host: Host, dialler: ConnectionEnd) -> ConnectionEnd:
    """Create and return the end on ``host`` of the connection that ``dialler`` requests.

    :raises ConfigurationError: if only one of the hosts has a codec.
    """
    if (streams.codec_of(host) is None) is not (streams.codec_of(dialler.host) is None):
        raise ConfigurationError(f"of {dialler.host.name} and {host.name}, give both a codec or none")
    dialler.other = ConnectionEnd(
        streams, host, streams.make_accepted_peer(dialler.host), ConnectionState.ACCEPTING, dialler
    )
    return dialler.other
