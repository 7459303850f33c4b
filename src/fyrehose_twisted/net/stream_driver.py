"""Runs a node on stream connections: those that it dials, and those that others open to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from fyrehose_twisted.driver import NodeDriver
from fyrehose_twisted.effects import Address, Dial, HangUp, Peer, Write
from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.interfaces import ILinkNode
from fyrehose_twisted.net.addresses import tcp_endpoint
from fyrehose_twisted.net.connection import Link, LinkLimits
from fyrehose_twisted.net.connector import Dials, EndpointFor
from fyrehose_twisted.net.write_buffer import Outgoing
from fyrehose_twisted.rate_limited_log import Complaints

SWEEP = 1.0
"""Seconds between looks at what has been open or silent for too long."""


class Links:
    """The connections of one node, and the driver that it runs on.

    What many connections bring in one turn of the reactor is given to the node before anything is done about it: it is
    flushed once, at the beginning of the next turn.

    :param make_link: returns what speaks on a new connection.
    :param tell: hands one event of the node to the application.
    :param persist: makes what the node wants durable.
    :param failed: told if that could not be done; nothing is sent any more.
    :param endpoint_for: how an address is dialled.
    :ivar node: the node.
    :ivar factory: lets others in; give it to an endpoint that listens.
    :ivar counters: what was counted since the start.
    """

    log = Logger()

    def __init__(
        self,
        node: ILinkNode,
        make_link: Callable[[], Link],
        reactor: Any,
        *,
        tell: Callable[[Any], None],
        persist: Callable[[Any], None] | None = None,
        failed: Callable[[Exception], None] | None = None,
        endpoint_for: EndpointFor = tcp_endpoint,
        limits: LinkLimits | None = None,
    ) -> None:
        self.node = node
        self.limits = LinkLimits() if limits is None else limits
        self.counters: Counter[str] = Counter()
        self.factory = Door(self)
        self._make_link = make_link
        self._reactor = reactor
        self._complaints = Complaints(self.log, reactor.seconds)
        self._driver = NodeDriver(
            node, reactor, send=self._carry_out, tell=tell, persist=persist, failed=failed, sent=self._sent
        )
        self._dials = Dials(reactor, endpoint_for, self._dial_failed, self.limits.dial)
        self._outgoing = Outgoing(self.counters, self._complaints)
        self._links: dict[Link, Peer] = {}
        """Every connection that Twisted has not let go of."""
        self._open: dict[Peer, Link] = {}
        """Those that the node knows."""
        self._sources: Counter[str] = Counter()
        """How many connections each address has opened to this node."""
        self._inputs: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """What the node is told in the next turn."""
        self._crowded: set[Peer] = set()
        self._sending = False
        self._number = 0
        self._flush: IDelayedCall | None = None
        self._sweeping: IDelayedCall | None = None
        self._alone: Deferred[None] | None = None
        self._stopped: Deferred[None] | None = None

    def now(self) -> float:
        """UTC seconds since 1970, as the node's clock has them."""
        return self._driver.now()

    @property
    def accepted(self) -> int:
        """Connections that others have opened and that are not gone."""
        return self._sources.total()

    def __len__(self) -> int:
        return len(self._links)

    # Turns

    def flush(self) -> None:
        """Do what the node wants, now."""
        inputs, self._inputs = self._inputs, []
        for tell, arguments in inputs:
            self._feed(tell, *arguments)
        self._driver.flush()
        if self._inputs:
            self.flush_soon()

    def flush_soon(self) -> None:
        """Do what the node wants in the next turn of the reactor."""
        if self._flush is None and self._stopped is None:
            self._flush = self._reactor.callLater(0, self._turn)

    def halt(self) -> None:
        """Do nothing that the node wants from now on."""
        self._driver.stop()

    def when_alone(self) -> Deferred[None]:
        """Return a Deferred that fires when the node has no open connection any more."""
        if not self._open:
            return succeed(None)
        self._alone = self._alone or Deferred()
        return _follow(self._alone)

    def stop(self) -> Deferred[None]:
        """Halt, and close all connections; the Deferred fires when they are gone."""
        self.halt()
        if self._stopped is None:
            self._stopped = Deferred()
            if self._flush is not None:
                self._flush.cancel()
                self._flush = None
            self._dials.cancel()
            for link in tuple(self._links):
                self._hang_up(link)
            self._look_if_stopped()
        return _follow(self._stopped)

    def _turn(self) -> None:
        self._flush = None
        self.flush()

    def _tell_node(self, tell: Callable[..., None], *arguments: Any) -> None:
        """Tell the node something, but not while it is being done what it wanted: what it wants next comes after."""
        if self._sending or self._inputs:
            self._inputs.append((tell, arguments))
        else:
            self._feed(tell, *arguments)
        self.flush_soon()

    def _feed(self, tell: Callable[..., None], *arguments: Any) -> None:
        try:
            tell(*arguments, self.now())
        except Exception:  # Twisted would not let go of the connection.
            self.counters["failed"] += 1
            self.log.failure("the node failed to take {what} in", what=tell.__name__)

    # What the node wants

    def _carry_out(self, effect: Dial | Write | HangUp) -> None:
        self._sending = True
        if isinstance(effect, Dial):
            self.counters["dialled"] += 1
            self._dials.dial(effect.address, lambda: self._prepare(effect.address, dialled=True))
            return
        link = self._open.get(effect.peer)
        if link is None:
            return
        if isinstance(effect, Write):
            self._outgoing.put(link, effect.messages)
        else:
            self._outgoing.write(link)
            self._hang_up(link)

    def _sent(self) -> None:
        self._sending = False
        self._outgoing.write_all()

    def _hang_up(self, link: Link) -> None:
        self._open.pop(self._links[link], None)
        self._crowded.discard(self._links[link])
        link.since = self.now()
        link.hang_up()
        self._look_if_alone()

    def _dial_failed(self, address: Address, reason: str) -> None:
        self.counters["dials_failed"] += 1
        if self._stopped is None:
            self._tell_node(self.node.dial_failed, address, reason)

    # What connections bring

    def accept(self, address: Any) -> Link | None:
        """Return what speaks on a connection from ``address``, ``None`` if there are too many already."""
        source: str = getattr(address, "host", "this machine")
        if self._stopped is not None:
            return None
        if self.accepted >= self.limits.accepted or self._sources[source] >= self.limits.per_source:
            self.counters["refused"] += 1
            text = "refused a connection from {source}: {count} open already, {own} of them from there"
            self._complaints.complain("refused", source, text, count=self.accepted, own=self._sources[source])
            return None
        return self._prepare((source, getattr(address, "port", 0)), dialled=False)

    def link_opened(self, link: Link) -> None:
        """See :class:`~fyrehose_twisted.net.connection.LinkOwner`."""
        peer = link.peer
        assert peer is not None, "it is one of ours"
        self._links[link] = peer
        link.since = self.now()
        if self._stopped is not None:
            link.hang_up()
            return
        if not peer.dialled:
            self.counters["accepted"] += 1
            self._sources[link.source] += 1
        self._open[peer] = link
        self._sweep_soon()
        self._tell_node(self.node.connected, peer)

    def link_received(self, link: Link, messages: Sequence[Any]) -> None:
        """See :class:`~fyrehose_twisted.net.connection.LinkOwner`.

        :raises RemoteError: if the node finds that it cannot be.
        """
        peer = link.peer
        if peer not in self._open:
            return
        now = link.since = self.now()
        self.counters["messages_received"] += len(messages)
        if self._sending or self._inputs:
            self._inputs += [(self._receive, (message, peer)) for message in messages]
        else:
            receive = self.node.receive
            for message in messages:
                receive(message, peer, now)
        self.flush_soon()

    def link_crowded(self, link: Link) -> None:
        """See :class:`~fyrehose_twisted.net.connection.LinkOwner`."""
        self._inputs.append((self._tell_crowded, (link,)))
        self.flush_soon()

    def link_ended(self, link: Link, reason: str) -> None:
        """See :class:`~fyrehose_twisted.net.connection.LinkOwner`."""
        peer = link.peer
        if peer is None or self._open.pop(peer, None) is None:
            return
        self._crowded.discard(peer)
        self._outgoing.forget(link)
        if link.fault is not None:
            self.counters["malformed"] += 1
            self.counters[f"malformed_{link.fault}"] += 1
            self._complaints.complain("malformed", link.source, "hung up on {source}: {reason}", reason=reason)
        elif link.overflowed:
            self.counters["unread"] += 1
            self._complaints.complain("unread", link.source, "hung up on {source}: it does not read")
        elif peer.dialled and not link.heard:
            text = "a connection to {source} opened and ended before anything came: {reason}"
            self._complaints.complain("unanswered", link.source, text, reason=reason)
        if self._stopped is None:
            self._tell_node(self.node.disconnected, peer, reason)
        self._look_if_alone()

    def link_gone(self, link: Link) -> None:
        """See :class:`~fyrehose_twisted.net.connection.LinkOwner`."""
        peer = self._links.pop(link, None)
        if peer is not None and not peer.dialled and self._sources[link.source]:
            self._sources[link.source] -= 1
            if not self._sources[link.source]:
                del self._sources[link.source]
        self._look_if_stopped()

    def _prepare(self, address: Address, *, dialled: bool) -> Link:
        link = self._make_link()
        self._number += 1
        link.peer = Peer(address, self._number, dialled)
        link.source = address[0]
        link.limits = self.limits
        link.owner = self
        return link

    def _receive(self, message: Any, peer: Peer, now: float) -> None:
        """Give the node what had to wait; see :meth:`link_received`."""
        link = self._open.get(peer)
        if link is None:
            return
        try:
            self.node.receive(message, peer, now)
        except RemoteError as problem:
            link.malformed(problem)
        except Exception:
            link.failed()

    def _tell_crowded(self, link: Link, now: float) -> None:
        peer = link.peer
        if peer is None or peer not in self._open:
            return
        crowded = link.waiting > link.limits.crowded
        if crowded and peer not in self._crowded:
            self._crowded.add(peer)
            self.node.blocked(peer, now)
        elif not crowded and peer in self._crowded:
            self._crowded.discard(peer)
            self.node.unblocked(peer, now)

    # What takes too long

    def _sweep_soon(self) -> None:
        if self._sweeping is None and self._links:
            self._sweeping = self._reactor.callLater(SWEEP, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        try:
            self._cut_off_late()
        finally:
            self._sweep_soon()

    def _cut_off_late(self) -> None:
        now, limits = self.now(), self.limits
        for link, peer in tuple(self._links.items()):
            age = now - link.since
            if age < 0:  # The clock was set back.
                link.since = now
            elif link.over:
                if age >= limits.closing:
                    self.counters["cut_off"] += 1
                    link.cut_off("does not go away")
            elif not peer.dialled and age >= (limits.idle if link.heard else limits.first):
                self.counters["silent"] += 1
                link.cut_off("silent")

    def _look_if_alone(self) -> None:
        alone = self._alone
        if alone is not None and not self._open:
            self._alone = None
            alone.callback(None)

    def _look_if_stopped(self) -> None:
        if self._stopped is None or self._links or self._stopped.called:
            return
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self._stopped.callback(None)


class Door(Factory):
    """Lets others in."""

    noisy = False

    def __init__(self, links: Links) -> None:
        self._links = links

    def buildProtocol(self, addr: Any) -> Link | None:
        """Twisted: somebody has connected."""
        return self._links.accept(addr)


def _follow(done: Deferred[None]) -> Deferred[None]:
    """Return another Deferred for the same end."""
    if done.called:
        return succeed(None)
    following: Deferred[None] = Deferred()
    done.addCallback(following.callback)
    return following
