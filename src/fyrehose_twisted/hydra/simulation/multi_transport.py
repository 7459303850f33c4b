"""Simulated node with several transports: the simulator's TCP, and the real UDP and IRC sessions on its datagrams.

A dial to :data:`UDP_PORT` opens a session of :mod:`~fyrehose_twisted.hydra.transports.udp.session`. A dial to
:data:`IRC_PORT` opens one of :mod:`~fyrehose_twisted.hydra.transports.notice_stream` at the rate of IRC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from random import Random
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Close, Dial, Peer, Send, Write
from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.hydra.node.node import HydraNode
from fyrehose_twisted.hydra.transports.notice_stream import TOKEN_SIZE, NoticeState, NoticeStream
from fyrehose_twisted.hydra.transports.udp.demux import SessionDemux
from fyrehose_twisted.hydra.transports.udp.session import UdpSession
from fyrehose_twisted.hydra.wire.codec import HydraCodec
from fyrehose_twisted.interfaces import IDatagramNode, ILinkNode, IStreamDecoder, Outputs

PORT = 6_174
UDP_PORT = 6_175
IRC_PORT = 6_176
_UDP, _IRC = b"U", b"I"
_FIRST_LINK_NUMBER = 10**9
"""Number of the first link over datagrams."""
HIGH_WATERMARK = 65_536
"""Unsent bytes above which a link over datagrams reports backpressure."""


@dataclass(eq=False)
class _SimulatedLink:
    """A link over datagrams."""

    peer: Peer
    session: Any
    decoder: IStreamDecoder
    blocked: bool = False


@implementer(ILinkNode, IDatagramNode)
class MultiTransportNode:
    """A node with its links over UDP and IRC.

    :param node: node.
    :param address: address of its host.
    :param clock: returns the time on the host's clock.
    """

    def __init__(self, node: HydraNode, address: Address, rng: Random, clock: Callable[[], float]) -> None:
        self.node = node
        self._address = address
        self._rng = rng
        self._clock = clock
        self._codec = HydraCodec()
        self._demux = SessionDemux(max_ping=node.config.timers.max_ping, token=rng.randbytes)
        self._demux.accepting = True
        self._numbers = count(_FIRST_LINK_NUMBER)
        self._simulated_links: dict[Any, _SimulatedLink] = {}
        """Links by session."""
        self._dialled: dict[Any, Address] = {}
        """Addresses of sessions that are still opening."""
        self._closed: set[Any] = set()
        """Sessions closed by this side."""
        self._effects: list[Any] = []

    @property
    def _now(self) -> float:
        return self._clock()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the node, so that observers can use this object as the node."""
        return getattr(self.node, name)

    # Streams

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self.node.connected(peer, now)

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self.node.dial_failed(address, reason, now)

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self.node.disconnected(peer, reason, now)

    def receive(self, message: Any, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self.node.receive(message, peer, now)

    def blocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self.node.blocked(peer, now)

    def unblocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self.node.unblocked(peer, now)

    # Datagrams

    def receive_batch(self, batch: Batch, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IDatagramNode`."""
        for run in batch.runs:
            for datagram in batch.datagrams(run):
                kind, content = bytes(datagram[:1]), bytes(datagram[1:])
                if kind == _UDP:
                    self._demux.receive(content, run.peer, now)
                elif kind == _IRC:
                    for session, address in self._irc_sessions():
                        if address[0] == run.peer[0]:
                            session.receive(content, now)
        self._pump()

    def tick(self, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        self._demux.tick(now)
        for session, _ in self._irc_sessions():
            session.tick(now)
        self._pump()
        due = self.node.next_deadline()
        if due is not None and due <= now:
            self.node.tick(now)

    def next_deadline(self) -> float | None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        every = [self.node.next_deadline(), self._demux.next_deadline()]
        every += [session.next_deadline() for session, _ in self._irc_sessions()]
        due = min((one for one in every if one is not None), default=inf)
        return None if due == inf else due

    def drain(self) -> Outputs:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        persist, effects, events = self.node.drain()
        out: list[Any] = []
        for effect in effects:
            if not self._execute(effect):
                out.append(effect)
        self._pump()
        out += self._effects
        self._effects = []
        return Outputs(persist, out, events)

    # Helpers

    def _irc_sessions(self) -> list[tuple[NoticeStream, Address]]:
        known = [(wire.session, wire.peer.address) for wire in self._simulated_links.values()]
        known += list(self._dialled.items())
        return [(session, address) for session, address in known if isinstance(session, NoticeStream)]

    def _execute(self, effect: Any) -> bool:
        """Carry out an effect on a link over datagrams; return ``False`` for other links."""
        if isinstance(effect, Dial):
            host, port = effect.address
            if port == UDP_PORT:
                self._dialled[self._demux.dial((host, PORT), self._now)] = effect.address
            elif port == IRC_PORT:
                ends = self._address[0].encode(), host.encode()
                session = NoticeStream(
                    *ends, self._rng.randbytes(TOKEN_SIZE), self._now, silence=3 * self.node.config.timers.max_ping
                )
                self._dialled[session] = effect.address
                session.tick(self._now)
            return port in (UDP_PORT, IRC_PORT)
        if not isinstance(effect, Write | Close) or effect.peer.number < _FIRST_LINK_NUMBER:
            return False
        wire = next((wire for wire in self._simulated_links.values() if wire.peer == effect.peer), None)
        if wire is None:
            return True
        if isinstance(effect, Write):
            self._write(wire, effect.messages)
        else:
            del self._simulated_links[wire.session]
            self._closed.add(wire.session)
            if isinstance(wire.session, UdpSession):
                wire.session.close(self._now)
                self._demux.schedule(wire.session)
            else:
                wire.session.end("closed here", self._now)
                self._send_irc(wire.session, wire.peer.address)
        return True

    def _write(self, wire: _SimulatedLink, messages: Sequence[Any]) -> None:
        wire.session.write(b"".join(map(self._codec.encode, messages)), self._now)
        if isinstance(wire.session, UdpSession):
            self._demux.schedule(wire.session)
        if wire.session.waiting > HIGH_WATERMARK and not wire.blocked:
            wire.blocked = True
            self.node.blocked(wire.peer, self._now)

    def _send_irc(self, session: NoticeStream, address: Address) -> bytes:
        messages, data = session.drain()
        if messages:
            self._effects.append(Send([_IRC + message for message in messages], [(address[0], PORT)]))
        return data

    def _pump(self) -> None:
        """Deliver received data of the sessions and send their datagrams."""
        replies, turns = self._demux.drain()
        for datagram, address in replies:
            self._effects.append(Send([_UDP + datagram], [address]))
        for session, (datagrams, data, ended) in turns:
            if datagrams:
                self._effects.append(Send([_UDP + datagram for datagram in datagrams], [session.address]))
            self._update_link(session, session.address, opened=session.opened, data=data, over=ended is not None)
        for irc, address in self._irc_sessions():
            data = self._send_irc(irc, address)
            self._update_link(
                irc, address, opened=irc.state is NoticeState.OPEN, data=data, over=irc.state is NoticeState.OVER
            )

    def _update_link(self, session: Any, address: Address, *, opened: bool, data: bytes, over: bool) -> None:
        wire = self._simulated_links.get(session)
        dialled = self._dialled.get(session)
        if session in self._closed:
            if over:
                self._closed.discard(session)
            return
        if wire is None and opened:
            self._dialled.pop(session, None)
            peer = Peer(address if dialled is None else dialled, next(self._numbers), dialled is not None)
            wire = self._simulated_links[session] = _SimulatedLink(peer, session, self._codec.decoder())
            self.node.connected(peer, self._now)
        if wire is not None and data:
            self._receive_stream(wire, data)
        if wire is not None and wire.blocked and session.waiting <= HIGH_WATERMARK // 2:
            wire.blocked = False
            self.node.unblocked(wire.peer, self._now)
        if over:
            if self._simulated_links.pop(session, None) is not None and wire is not None:
                self.node.disconnected(wire.peer, "closed", self._now)
            elif self._dialled.pop(session, None) is not None and dialled is not None:
                self.node.dial_failed(dialled, "no answer", self._now)

    def _receive_stream(self, wire: _SimulatedLink, data: bytes) -> None:
        try:
            messages = wire.decoder.feed(data)
        except RemoteError:
            return
        for message in messages:
            if wire.session in self._simulated_links:
                self.node.receive(message, wire.peer, self._now)
