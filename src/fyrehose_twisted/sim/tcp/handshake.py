"""How a stream connection opens, or fails to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import ILinkNode
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.tcp.connection import End, EndStreams, State
from fyrehose_twisted.sim.tcp.retransmission import FIRST_RETRY, LONGEST_RETRY
from fyrehose_twisted.sim.tcp.route import Route


class HandshakeStreams(EndStreams, Protocol):
    """The stream connections that open by handshakes."""

    def accepted_from(self, dialler: Host) -> Peer:
        """Return what a node calls a new connection that ``dialler`` opened."""

    def refuses(self, host: Host) -> bool:
        """Return whether ``host`` was told to refuse dials."""


class Handshake:
    """Opens the connection of ``end``, which is dialling: asks, again and again if need be, until there is an answer or
    it has taken too long."""

    __slots__ = ("_deadline", "_network", "_retry_after", "_route", "_streams", "end")

    def __init__(self, streams: HandshakeStreams, end: End) -> None:
        self.end = end
        self._streams = streams
        self._network = streams.network
        self._route = Route(streams, end.host, end.peer.address)
        self._retry_after = FIRST_RETRY
        self._deadline = self._network.now + streams.limits.dial_timeout

    def ask(self) -> None:
        """Ask whether the other side accepts."""
        if self.end.state is not State.DIALLING:
            return
        if self._network.now >= self._deadline:
            self.end.end("timed out")
        elif self._route.is_lost():
            self._ask_again()
        else:
            self._later(self._route.latency(), self._asked)

    def _ask_again(self) -> None:
        self._later(self._retry_after, self.ask)
        self._retry_after = min(2 * self._retry_after, LONGEST_RETRY)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        when = self._network.now + seconds
        self._network.scheduler.call_at(min(when, self._deadline), call if when < self._deadline else self.ask)

    def _asked(self) -> None:
        """The question has arrived."""
        if self.end.state is not State.DIALLING:
            return
        host = self._network.hosts.get(self.end.peer.address)
        if host is None:
            self._answer(self._route, self._refused)
        elif host.dark:
            self._ask_again()
        elif refuses(self._streams, host):
            self._answer(Route(self._streams, host, self.end.host.address), self._refused)
        else:
            if self.end.other is None or self.end.other.gone:
                accept(self._streams, host, self.end)
            self._answer(Route(self._streams, host, self.end.host.address), self._accepted)

    def _answer(self, back: Route, answered: Callable[[], None]) -> None:
        if back.is_lost():
            self._ask_again()
        else:
            self._later(back.latency(), answered)

    def _refused(self) -> None:
        self.end.end("refused")

    def _accepted(self) -> None:
        if self.end.state is State.DIALLING:
            self.end.answered()


def refuses(streams: HandshakeStreams, host: Host) -> bool:
    """Say whether nobody listens on ``host``."""
    return not host.up or streams.refuses(host) or not ILinkNode.providedBy(host.node)


def accept(streams: HandshakeStreams, host: Host, dialler: End) -> End:
    """Make the other end of what ``dialler`` asks for.

    :raises ConfigurationError: if bytes would arrive where objects are expected, or the other way round.
    """
    if (streams.codec_of(host) is None) is not (streams.codec_of(dialler.host) is None):
        raise ConfigurationError(f"of {dialler.host.name} and {host.name}, give both a codec or none")
    dialler.other = End(streams, host, streams.accepted_from(dialler.host), State.ACCEPTING, dialler)
    return dialler.other
