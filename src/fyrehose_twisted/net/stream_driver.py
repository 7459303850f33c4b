"""Driver of a node on stream connections, dialled and accepted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from fyrehose_twisted.driver import NodeDriver
from fyrehose_twisted.effects import Address, Close, Dial, Peer, Write
from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.host_addresses import address_from_socket, source_network
from fyrehose_twisted.interfaces import ILinkNode
from fyrehose_twisted.net.addresses import tcp_endpoint
from fyrehose_twisted.net.connection import ConnectionLimits, NodeConnection
from fyrehose_twisted.net.connector import EndpointFactory, PendingConnects
from fyrehose_twisted.net.write_buffer import WriteCoalescer
from fyrehose_twisted.process.rate_limited_log import RateLimitedLog

LINK_EFFECTS = (Dial, Write, Close)
ALONE = 1e-4
"""Seconds since the last flush after which a message is taken to be the only one of its reactor turn."""
FEW_READS = 4
"""Reads of a turn above which the following turns are expected to have many, too."""
CROWDED_TURNS = 16
"""Turns with few reads after which messages are flushed at once again."""
SWEEP_INTERVAL = 1.0
"""Seconds between checks of connection timeouts."""


class LoneReadPrediction:
    """Prediction of whether a read is the only one of its reactor turn.

    Twisted does not tell whether other connections are readable, too. If they are, the next read follows at once.
    """

    def __init__(self) -> None:
        self._flushed_at = -inf
        self._joined_reads = 0
        self._crowded_turns = 0
        """Turns still expected to have many reads, because one before them had."""

    def is_alone(self, now: float) -> bool:
        """Return whether a read at ``now`` is probably the only one."""
        return not self._crowded_turns and not 0 <= now - self._flushed_at < ALONE

    def read_flushed(self, now: float) -> None:
        """Record that a read was flushed at once, until ``now``."""
        self._flushed_at = now

    def read_joined(self) -> None:
        """Record a read that is flushed with others."""
        self._joined_reads += 1

    def turn_flushed(self) -> None:
        """Record that all reads of a turn are flushed."""
        self._crowded_turns = CROWDED_TURNS if self._joined_reads > FEW_READS else max(self._crowded_turns - 1, 0)
        self._joined_reads = 0


class StreamDriver:
    """Driver of one node and its connections.

    The node receives the input of all connections of a reactor turn before it is flushed once, at the start of the next
    turn. A message that arrives alone is flushed at once, which saves the timer of that turn.

    :param make_connection: returns a new connection.
    :param on_event: passes one event of the node to the application.
    :param persist: makes state of the node durable.
    :param on_failure: called if ``persist`` fails; the driver then sends nothing more.
    :param endpoint_factory: returns the client endpoint of an address.
    :param perform_other: carries out an effect that is not one of connections, for a node that has datagrams, too.
    :ivar node: the node.
    :ivar driver: driver of the node. Input other than that of connections uses it directly.
    :ivar factory: factory for accepted connections, to be passed to a server endpoint.
    :ivar counters: counters since the start.
    """

    log = Logger()

    def __init__(
        self,
        node: ILinkNode,
        make_connection: Callable[[], NodeConnection],
        reactor: Any,
        *,
        on_event: Callable[[Any], None],
        persist: Callable[[Any], None] | None = None,
        on_failure: Callable[[Exception], None] | None = None,
        endpoint_factory: EndpointFactory = tcp_endpoint,
        limits: ConnectionLimits | None = None,
        perform_other: Callable[[Any], None] | None = None,
    ) -> None:
        self.node = node
        self.limits = ConnectionLimits() if limits is None else limits
        self.counters: Counter[str] = Counter()
        self.factory = AcceptFactory(self)
        self._make_connection = make_connection
        self._reactor = reactor
        self._rate_limited_log = RateLimitedLog(self.log, reactor.seconds)
        self.driver = NodeDriver(
            node,
            reactor,
            perform=self._perform if perform_other is None else self._perform_any(perform_other),
            on_event=on_event,
            persist=persist,
            on_failure=on_failure,
            on_effects_done=self._effects_done,
        )
        self._pending_connects = PendingConnects(reactor, endpoint_factory, self._dial_failed, self.limits.dial_timeout)
        self._write_coalescer = WriteCoalescer(self.counters, self._rate_limited_log)
        self._connections: dict[NodeConnection, Peer] = {}
        """All connections that Twisted has not released."""
        self._open: dict[Peer, NodeConnection] = {}
        """Connections known to the node."""
        self._sources: Counter[str] = Counter()
        """Accepted connections per source address, or IPv6 /64."""
        self._inputs: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """Queued inputs for the next turn."""
        self._blocked_peers: set[Peer] = set()
        self._sending = False
        self._number = 0
        self._flush_call: IDelayedCall | None = None
        self._prediction = LoneReadPrediction()
        self._sweep_call: IDelayedCall | None = None
        self._all_closed: Deferred[None] | None = None
        self._stopped: Deferred[None] | None = None

    def now(self) -> float:
        """Return the time of the node's clock, UTC seconds since 1970."""
        return self.driver.now()

    @property
    def accepted(self) -> int:
        """Number of accepted connections not yet released."""
        return self._sources.total()

    def __len__(self) -> int:
        return len(self._connections)

    # Turns

    def flush(self) -> None:
        """Carry out the outputs of the node now."""
        inputs, self._inputs = self._inputs, []
        for tell, arguments in inputs:
            self._call_node(tell, *arguments)
        self.driver.flush()
        if self._inputs:
            self.flush_soon()

    def flush_soon(self) -> None:
        """Carry out the outputs of the node in the next reactor turn."""
        if self._flush_call is None and self._stopped is None:
            self._flush_call = self._reactor.callLater(0, self._turn)

    def halt(self) -> None:
        """Ignore all further outputs of the node."""
        self.driver.stop()

    def when_all_closed(self) -> Deferred[None]:
        """Return a Deferred that fires when the node has no open connections."""
        if not self._open:
            return succeed(None)
        self._all_closed = self._all_closed or Deferred()
        return _chain(self._all_closed)

    def stop(self) -> Deferred[None]:
        """Halt and close all connections; the Deferred fires when they are released."""
        self.halt()
        if self._stopped is None:
            self._stopped = Deferred()
            if self._flush_call is not None:
                self._flush_call.cancel()
                self._flush_call = None
            self._pending_connects.cancel()
            for link in tuple(self._connections):
                self._close(link)
            self._check_stopped()
        return _chain(self._stopped)

    def _turn(self) -> None:
        self._flush_call = None
        self._prediction.turn_flushed()
        self.flush()

    def _flush_read(self, now: float) -> None:
        """Flush what was read at ``now``: at once if it is probably alone, otherwise with the rest of the turn."""
        if self._flush_call is None and not self.driver.is_flushing and self._prediction.is_alone(now):
            self.flush()
            self._prediction.read_flushed(self.now())
        else:
            self._prediction.read_joined()
            self.flush_soon()

    def _queue_input(self, handler: Callable[..., None], *arguments: Any) -> None:
        """Queue an input while the node's previous outputs are still being carried out; otherwise apply it."""
        if self._sending or self._inputs:
            self._inputs.append((handler, arguments))
        else:
            self._call_node(handler, *arguments)
        self.flush_soon()

    def _call_node(self, handler: Callable[..., None], *arguments: Any) -> None:
        try:
            handler(*arguments, self.now())
        except Exception:  # An exception here would keep Twisted from releasing the connection.
            self.counters["failed"] += 1
            self.log.failure("the node failed in {what}", what=handler.__name__)

    # Effects

    def _perform_any(self, perform_other: Callable[[Any], None]) -> Callable[[Any], None]:
        def perform(effect: Any) -> None:
            if isinstance(effect, LINK_EFFECTS):
                self._perform(effect)
            else:
                perform_other(effect)

        return perform

    def _perform(self, effect: Dial | Write | Close) -> None:
        self._sending = True
        if isinstance(effect, Dial):
            self.counters["dialled"] += 1
            self._pending_connects.connect(effect.address, lambda: self._prepare(effect.address, dialled=True))
            return
        link = self._open.get(effect.peer)
        if link is None:
            return
        if isinstance(effect, Write):
            self._write_coalescer.enqueue(link, effect.messages)
        else:
            self._write_coalescer.write(link)
            self._close(link)

    def _effects_done(self) -> None:
        self._sending = False
        self._write_coalescer.write_all()

    def _close(self, connection: NodeConnection) -> None:
        self._open.pop(self._connections[connection], None)
        self._blocked_peers.discard(self._connections[connection])
        connection.last_activity_at = self.now()
        connection.close()
        self._check_all_closed()

    def _dial_failed(self, address: Address, reason: str) -> None:
        self.counters["dials_failed"] += 1
        if self._stopped is None:
            self._queue_input(self.node.dial_failed, address, reason)

    # Connection events

    def accept(self, address: Any) -> NodeConnection | None:
        """Return a connection for a client at ``address``; ``None`` if a limit is reached."""
        host: str = getattr(address, "host", "this machine")
        port: int = getattr(address, "port", 0)
        source, _ = address_from_socket((host, port))
        network = source_network(source)
        if self._stopped is not None:
            return None
        if self.accepted >= self.limits.max_accepted or self._sources[network] >= self.limits.max_per_source:
            self.counters["refused"] += 1
            text = "refused a connection from {source}: {count} already open, {own} of them from the same source"
            self._rate_limited_log.warn("refused", source, text, count=self.accepted, own=self._sources[network])
            return None
        return self._prepare((source, port), dialled=False)

    def connection_opened(self, connection: NodeConnection) -> None:
        """See :class:`~fyrehose_twisted.net.connection.ConnectionOwner`."""
        peer = connection.peer
        assert peer is not None, "the driver created the connection"
        self._connections[connection] = peer
        connection.last_activity_at = self.now()
        if self._stopped is not None:
            connection.close()
            return
        if not peer.dialled:
            self.counters["accepted"] += 1
            self._sources[source_network(connection.source)] += 1
        self._open[peer] = connection
        self._sweep_soon()
        self._queue_input(self.node.connected, peer)

    def connection_received(self, connection: NodeConnection, messages: Sequence[Any]) -> None:
        """See :class:`~fyrehose_twisted.net.connection.ConnectionOwner`.

        :raises RemoteError: if the node rejects a message.
        """
        peer = connection.peer
        if peer not in self._open:
            return
        now = connection.last_activity_at = self.now()
        self.counters["messages_received"] += len(messages)
        if self._sending or self._inputs:
            self._inputs += [(self._receive, (message, peer)) for message in messages]
        else:
            receive = self.node.receive
            for message in messages:
                receive(message, peer, now)
        self._flush_read(now)

    def connection_pressure_changed(self, connection: NodeConnection) -> None:
        """See :class:`~fyrehose_twisted.net.connection.ConnectionOwner`."""
        self._inputs.append((self._report_pressure, (connection,)))
        self.flush_soon()

    def connection_closed(self, connection: NodeConnection, reason: str) -> None:
        """See :class:`~fyrehose_twisted.net.connection.ConnectionOwner`."""
        peer = connection.peer
        if peer is None or self._open.pop(peer, None) is None:
            return
        self._blocked_peers.discard(peer)
        self._write_coalescer.discard(connection)
        if connection.malformed_reason is not None:
            self.counters["malformed"] += 1
            self.counters[f"malformed_{connection.malformed_reason}"] += 1
            self._rate_limited_log.warn("malformed", connection.source, "hung up on {source}: {reason}", reason=reason)
        elif connection.has_overflowed:
            self.counters["unread"] += 1
            self._rate_limited_log.warn("unread", connection.source, "hung up on {source}: it does not read")
        elif connection.has_failed_tls and not peer.dialled:
            self.counters["tls_failed"] += 1
            self._rate_limited_log.warn("tls", connection.source, "no TLS with {source}: {reason}", reason=reason)
        elif peer.dialled and not connection.has_received:
            text = "the connection to {source} ended before the first message: {reason}"
            self._rate_limited_log.warn("unanswered", connection.source, text, reason=reason)
        if self._stopped is None:
            self._queue_input(self.node.disconnected, peer, reason)
        self._check_all_closed()

    def connection_released(self, connection: NodeConnection) -> None:
        """See :class:`~fyrehose_twisted.net.connection.ConnectionOwner`."""
        peer = self._connections.pop(connection, None)
        network = source_network(connection.source)
        if peer is not None and not peer.dialled and self._sources[network]:
            self._sources[network] -= 1
            if not self._sources[network]:
                del self._sources[network]
        self._check_stopped()

    def _prepare(self, address: Address, *, dialled: bool) -> NodeConnection:
        link = self._make_connection()
        self._number += 1
        link.peer = Peer(address, self._number, dialled)
        link.source = address[0]
        link.limits = self.limits
        link.owner = self
        return link

    def _receive(self, message: Any, peer: Peer, now: float) -> None:
        """Pass a queued message to the node; see :meth:`connection_received`."""
        link = self._open.get(peer)
        if link is None:
            return
        try:
            self.node.receive(message, peer, now)
        except RemoteError as problem:
            link.malformed(problem)
        except Exception:
            link.abort_on_exception()

    def _report_pressure(self, connection: NodeConnection, now: float) -> None:
        peer = connection.peer
        if peer is None or peer not in self._open:
            return
        crowded = connection.unsent_bytes > connection.limits.high_watermark
        if crowded and peer not in self._blocked_peers:
            self._blocked_peers.add(peer)
            self.node.blocked(peer, now)
        elif not crowded and peer in self._blocked_peers:
            self._blocked_peers.discard(peer)
            self.node.unblocked(peer, now)

    # Timeouts

    def _sweep_soon(self) -> None:
        if self._sweep_call is None and self._connections:
            self._sweep_call = self._reactor.callLater(SWEEP_INTERVAL, self._sweep)

    def _sweep(self) -> None:
        self._sweep_call = None
        try:
            self._abort_expired()
        finally:
            self._sweep_soon()

    def _abort_expired(self) -> None:
        now, limits = self.now(), self.limits
        for link, peer in tuple(self._connections.items()):
            age = now - link.last_activity_at
            if age < 0:  # The clock was set back.
                link.last_activity_at = now
            elif link.is_closed:
                if age >= limits.close_timeout:
                    self.counters["cut_off"] += 1
                    link.abort("does not go away")
            elif not peer.dialled and age >= (
                limits.idle_timeout if link.has_received else limits.first_message_timeout
            ):
                self.counters["silent"] += 1
                link.abort("silent")

    def _check_all_closed(self) -> None:
        alone = self._all_closed
        if alone is not None and not self._open:
            self._all_closed = None
            alone.callback(None)

    def _check_stopped(self) -> None:
        if self._stopped is None or self._connections or self._stopped.called:
            return
        if self._sweep_call is not None:
            self._sweep_call.cancel()
            self._sweep_call = None
        self._stopped.callback(None)


class AcceptFactory(Factory):
    """Factory of accepted connections."""

    noisy = False

    def __init__(self, driver: StreamDriver) -> None:
        self._driver = driver

    def buildProtocol(self, addr: Any) -> NodeConnection | None:
        """Twisted: return the protocol of a new connection."""
        return self._driver.accept(addr)


def _chain(done: Deferred[None]) -> Deferred[None]:
    """Return a new Deferred that fires together with ``done``."""
    if done.called:
        return succeed(None)
    following: Deferred[None] = Deferred()
    done.addCallback(following.callback)
    return following
