"""Twisted service of a freenet node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger
from twisted.python.failure import Failure

from fyrehose_twisted.errors import ConfigurationError, FyrehoseError, NotConnected, OperationalError, PublishRefused
from fyrehose_twisted.freenet.config import NodeConfig
from fyrehose_twisted.freenet.events import (
    UNCERTAIN_REASONS,
    Packet,
    PacketNotPublished,
    PacketPublished,
    PacketsDelivered,
    PacketsMissed,
    ParentChanged,
    ParentLost,
    StreamDropped,
    StreamRenumbered,
    Subscribed,
    SubscribeFailed,
)
from fyrehose_twisted.freenet.node.node import FreenetNode
from fyrehose_twisted.freenet.node.status import NodeStatus
from fyrehose_twisted.freenet.protocol import FreenetPeerProtocol
from fyrehose_twisted.freenet.service.config import DEFAULT_PORT, FreenetConfig
from fyrehose_twisted.freenet.service.control import FreenetControl
from fyrehose_twisted.freenet.service.dialer import endpoint_for, parse_peer
from fyrehose_twisted.freenet.service.event_log import log_event
from fyrehose_twisted.freenet.service.metrics import FreenetCollector
from fyrehose_twisted.freenet.service.state_file import StateFile
from fyrehose_twisted.freenet.service.storage import PacketJournal
from fyrehose_twisted.freenet.wire.codec import FreenetCodec
from fyrehose_twisted.freenet.wire.location import check_key
from fyrehose_twisted.freenet.wire.messages import MAX_UID, NONE_SEEN
from fyrehose_twisted.freenet.wire.signing import SigningKey, is_signed
from fyrehose_twisted.interfaces import IFreenetListener
from fyrehose_twisted.net.boottime import BoottimeReactor
from fyrehose_twisted.net.control.server import ControlFactory
from fyrehose_twisted.net.listening import ListeningPorts
from fyrehose_twisted.net.metrics import metrics_site
from fyrehose_twisted.net.node_service import NodeService
from fyrehose_twisted.net.service_config import accepts_old_parameters
from fyrehose_twisted.net.stream_driver import StreamDriver
from fyrehose_twisted.process.sd_notify import systemd_notifier

LEAVE_TIMEOUT = 2.0
"""Seconds to wait for neighbours to close their links when the node leaves."""
FIRST_NEIGHBOUR_TIMEOUT = 2.0
"""Seconds to wait for the first neighbour after a start before streams are searched."""

FAILURE_REASONS = {
    "no-stream": "this node, or one on the path to the root, is not a member of the stream; subscribe first",
    "no-subscribers": "the stream has no other subscriber, and nothing was published; publish when one has subscribed,"
    " or allow it to have none (--allow-no-subscribers, allow_no_subscribers=True)",
    "not-subscribed": "the parent does not list this node as a subscriber; try again in a moment",
    "collision": "another packet already has this number",
    "timed-out": "the root did not answer in time; the packet may or may not be published",
    "uncertain": "the path to the root changed before the root answered; the packet may or may not be published",
    "queue-full": "a node on the path to the root has too many pending packets; try again in a moment",
    "bad-signature": "the signature is not of the stream's key, or not for this number",
    "too-large": "the packet with its signature is too long",
    "loop": "the packet returned to a node that had forwarded it",
    "stopped": "the node stopped before the root answered; the packet may or may not be published",
}
"""Explanation of each reason for which a packet was not published."""


class FreenetService(NodeService):
    """One node, with its ports and files.

        node = FreenetService(FreenetConfig(peers=["10.0.0.7:6180"]))
        node.setServiceParent(application)
        node.listen(listener)
        await node.subscribe(named_key("news"))
        number = await node.publish(named_key("news"), b"hello")

    :param config: configuration.
    :param protocol: protocol of each link.
    :param failed: called with the error that stopped the service; by default the process exits with status 1.
    :ivar node: the node; ``None`` before the start.
    :ivar links: driver of its links; ``None`` before the start.
    """

    observed = IFreenetListener
    log = Logger()

    @accepts_old_parameters(FreenetConfig, "peers", "listen")
    def __init__(
        self,
        config: FreenetConfig | None = None,
        *,
        protocol: type[FreenetPeerProtocol] = FreenetPeerProtocol,
        failed: Callable[[Exception], object] | None = None,
        rng: Random | None = None,
        reactor: Any = None,
    ) -> None:
        if reactor is None:
            from twisted.internet import reactor
        reactor = reactor if isinstance(reactor, BoottimeReactor) else BoottimeReactor(reactor)
        config = self.config = FreenetConfig() if config is None else config
        ports = ListeningPorts(reactor, f"tcp:{DEFAULT_PORT}", "freenet")
        super().__init__(
            config, ports, protocol=protocol, codec=FreenetCodec(), failed=failed, rng=rng, reactor=reactor
        )
        self.node: FreenetNode | None = None
        self.links: StreamDriver | None = None
        self.policy = config.policy
        self._targets = tuple(dict.fromkeys(parse_peer(peer, self.reactor) for peer in config.peers))
        # Raises ConfigurationError now rather than at the start.
        self._node_config(0, 0.0 if config.location is None else config.location)
        self._state: StateFile | None = None
        self._subscriptions: Counter[bytes] = Counter(dict.fromkeys(config.streams, 1))
        """Subscriptions of the application by stream."""
        self._journal_subscriptions = self._subscriptions.copy()
        """Those of them whose packets a journal keeps."""
        self._last_seen: dict[bytes, int] = {}
        """Last packet number that the application has, by stream, of subscriptions made before the start."""
        for key in self._subscriptions:
            check_key(key)
        self._connecting: dict[bytes, list[Deferred[None]]] = {}
        self._pending_publishes: dict[int, Deferred[int]] = {}
        self._tokens = count()
        for endpoint in config.listen:
            self._ports.add("listen", endpoint, self._ports.gate)
        self._control = ControlFactory(lambda gone: FreenetControl(self, gone))
        if config.control is not None:
            self._ports.add("control", config.control, self._control)
        if config.metrics is not None:
            self._ports.add("metrics", config.metrics, metrics_site(FreenetCollector(self)))

    # For applications

    def subscribe(self, key: bytes, *, last_seen: int | None = None, keep: bool = True) -> Deferred[None]:
        """Belong to the tree of ``key``; the Deferred fires when the node does. Packets go to those who
        :meth:`listen`. Each call wants its own :meth:`unsubscribe`.

        :param last_seen: the last packet number that the application has; by default that of the journal.
        :param keep: whether packets are kept in a journal, which is made if need be; without, they are only if there is
            one already. Who only publishes needs none.

        It fails with :class:`~fyrehose_twisted.errors.ConfigurationError` if ``key`` is none,
        :class:`~fyrehose_twisted.errors.TooManyStreams`, :class:`~fyrehose_twisted.journal.errors.JournalError`, and
        :class:`~fyrehose_twisted.errors.NotConnected` if the service ends before; then nothing has to be taken back.
        """
        node, links = self.node, self.links
        try:
            check_key(key)
            if not self._subscriptions[key]:
                if node is not None and links is not None:
                    self._subscribe_node(key, last_seen, keep=keep)
                    links.flush_soon()
                elif last_seen is not None:
                    self._last_seen[key] = last_seen
        except FyrehoseError as error:
            return fail(error)
        self._subscriptions[key] += 1
        self._journal_subscriptions[key] += keep

        def failed(failure: Failure) -> Failure:
            self.unsubscribe(key, keep=keep)
            return failure

        return self.when_connected(key).addErrback(failed)

    def when_connected(self, key: bytes) -> Deferred[None]:
        """Return a Deferred that fires when the node belongs to the tree of a stream that it is subscribed to."""
        if self._error is not None:
            return fail(NotConnected(f"the node stopped: {self._error}"))
        stream = None if self.node is None else self.node.streams.get(key)
        # Deferreds that wait already fire with the next event, before newer ones, so that packets keep their order.
        if stream is not None and stream.connected and key not in self._connecting:
            return succeed(None)
        connected: Deferred[None] = Deferred()
        self._connecting.setdefault(key, []).append(connected)
        return connected

    def is_local(self, key: bytes) -> bool:
        """Return whether the service is subscribed to a stream."""
        return bool(self._subscriptions[key])

    def unsubscribe(self, key: bytes, *, keep: bool = True) -> None:
        """Take back one :meth:`subscribe` with the same ``keep``. The node stays in the tree so long as others need it
        there."""
        if not self._subscriptions[key]:
            return
        self._journal_subscriptions[key] = max(0, self._journal_subscriptions[key] - keep)
        self._subscriptions[key] -= 1
        if not self._subscriptions[key]:
            del self._subscriptions[key]
            self._journal_subscriptions.pop(key, None)
            self._last_seen.pop(key, None)
            if self.node is not None and self.links is not None:
                self.node.unsubscribe(key, self.links.now())
                self.links.flush_soon()

    def publish(
        self,
        key: bytes,
        data: bytes,
        *,
        number: int | None = None,
        signing_key: SigningKey | None = None,
        allow_no_subscribers: bool = False,
    ) -> Deferred[int]:
        """Publish a packet in the tree of ``key``, to which this service must be subscribed; return a Deferred of its
        number, which fires when the root has received it.

        :param number: number of the packet; by default the next one, or another one if that is taken.
        :param signing_key: key of a signed stream. Without it, ``data`` must already be signed for ``number``.
        :param allow_no_subscribers: whether the packet is published even if the stream has no subscriber besides the
            publisher. Each other subscription counts, that of another publisher too: here, each further
            :meth:`subscribe` of this service.

        It fails with :class:`~fyrehose_twisted.errors.PublishRefused`, whose ``why`` is one of :data:`FAILURE_REASONS`,
        within ``publish_timeout`` of the policy, and at once with :class:`~fyrehose_twisted.errors.MessageTooLarge`,
        :class:`~fyrehose_twisted.errors.PublishQueueFull`, :class:`~fyrehose_twisted.errors.UnencodableMessage`, and
        :class:`~fyrehose_twisted.errors.ConfigurationError` if the stream is another key's.
        """
        node, links = self.node, self.links
        if node is None or links is None or not self.running or self._error is not None:
            return fail(NotConnected("the node is not running"))
        token = next(self._tokens)
        done = self._pending_publishes[token] = Deferred()
        try:
            sign = _signer(key, data, number, signing_key)
            packet = b"" if sign is not None else data
            alone = not allow_no_subscribers and self._subscriptions[key] <= 1
            node.publish(key, packet, token, links.now(), number=number, sign=sign, need_subscriber=alone)
        except FyrehoseError as error:
            del self._pending_publishes[token]
            return fail(error)
        links.flush_soon()
        return done

    def retained_packets(self, key: bytes, last_seen: int = NONE_SEEN) -> list[Packet]:
        """Return the packets after a number that the node still has, oldest first.

        Listeners have been told of all of them: call this before :meth:`listen` to get each packet exactly once.
        """
        if self.links is not None:
            self.links.flush()
        stream = None if self.node is None else self.node.streams.get(key)
        return [] if stream is None else stream.packets.packets_after(last_seen)

    def next_number(self, key: bytes) -> int:
        """Return the next packet number that the node knows to be free."""
        stream = None if self.node is None else self.node.streams.get(key)
        following = None if stream is None else stream.packets.next_number
        return 0 if following is None else following

    def move(self, location: float) -> None:
        """Be elsewhere on the ring from now on.

        :raises ConfigurationError: if that is no location.
        :raises StateFileError: if it cannot be remembered.
        :raises NotConnected: if the node is not running.
        """
        if self.node is None or self.links is None:
            raise NotConnected("the node is not running")
        self.node.move(location, self.links.now())
        self.links.flush_soon()
        if self._state is not None:
            self._state.save(location)

    def state(self) -> NodeStatus | None:
        """Return the status of the node; ``None`` before the start."""
        if self.node is None or self.links is None:
            return None
        state = self.node.state(self.links.now())
        return state._replace(
            counts={**state.counts, **{f"links_{name}": count for name, count in self.links.counters.items()}}
        )

    def status(self) -> dict[str, Any]:
        """Return the status as JSON-compatible objects; ids and keys are hexadecimal."""
        state = self.state()
        if state is None:
            return {"node": None, "listening": self._ports.addresses}
        return {
            **state._asdict(),
            "node": _hex(state.node),
            "boot": _hex(state.boot),
            "neighbours": [{**one._asdict(), "node": _hex(one.node)} for one in state.neighbours],
            "streams": [
                {
                    **one._asdict(),
                    "key": one.key.hex(),
                    "parent": None if one.parent is None else _hex(one.parent),
                    "subscribers": list(map(_hex, one.subscribers)),
                }
                for one in state.streams
            ],
            "listening": self._ports.addresses,
        }

    # Starting and stopping

    def _halt(self, error: Exception) -> None:
        if self.links is not None:
            self.links.halt()

    def _node_config(self, node: int, location: float) -> NodeConfig:
        return NodeConfig(
            node,
            self._rng.randrange(MAX_UID + 1),
            location,
            policy=self.policy,
            targets=self._targets,
            secret=self.config.secret,
            max_neighbours=self.config.max_neighbours,
            first_neighbour_timeout=FIRST_NEIGHBOUR_TIMEOUT,
            routing=self.config.routing,
        )

    def _draw_identity(self) -> tuple[int, float]:
        location = self._rng.random() if self.config.location is None else self.config.location
        return self._rng.randrange(MAX_UID + 1), location

    def _start_node(self) -> None:
        if self.config.state is None:
            number, location = self._draw_identity()
        else:
            state = self._state = StateFile(self.config.state, self._draw_identity)
            if self.config.location is not None:
                state.save(self.config.location)
            number, location = state.node, state.location
        self._ports.bind()
        self._ports.report_failures(self.fail)
        self.node = FreenetNode(self._node_config(number, location), self._rng, float(self.reactor.seconds()))
        self.links = StreamDriver(
            self.node,
            self._build_connection,
            self.reactor,
            on_event=self._on_event,
            on_failure=self.fail,
            endpoint_factory=endpoint_for,
            limits=self._limits,
        )
        self._ports.open(self.links.factory)
        self.log.info("node {node:016x} at {location:.6f} on the ring", node=number, location=location)
        for key in self._subscriptions:
            self._subscribe_node(key, self._last_seen.pop(key, None), keep=bool(self._journal_subscriptions[key]))
        self.links.flush()
        if self._error is None:
            systemd_notifier.ready(self.reactor, f"listening on {self._ports}")

    async def _stop_node(self) -> None:
        node, links = self.node, self.links
        if node is not None and links is not None and self._error is None:
            node.leave(links.now())
            links.flush()
            with suppress(DeferredTimeout):
                await links.when_all_closed().addTimeout(LEAVE_TIMEOUT, self.reactor)
        self._control.close()
        await self._ports.close()
        if links is not None:
            await links.stop()
        self._fail_pending(None)
        if self._state is not None:
            self._state.close()
        await self._close_storage(self.config.storage)

    def _subscribe_node(self, key: bytes, last_seen: int | None, *, keep: bool) -> None:
        assert self.node is not None, "the callers have looked"
        assert self.links is not None, "it comes with the node"
        journal = self._open_journal(key, create=keep)
        if last_seen is None:
            last_seen = NONE_SEEN if journal is None else journal.last_seen
        self.node.subscribe(key, self.links.now(), last_seen=last_seen)

    def _open_journal(self, key: bytes, *, create: bool) -> PacketJournal | None:
        keeping = self.config.storage
        if keeping is None or not (create or keeping.has(key)):
            return None
        return keeping.open(key, self.reactor, self.fail)

    def _fail_pending(self, error: Exception | None) -> None:
        publishing, self._pending_publishes = self._pending_publishes, {}
        connecting, self._connecting = self._connecting, {}
        for done in publishing.values():
            done.errback(PublishRefused("stopped", f"not known to be published: {FAILURE_REASONS['stopped']}"))
        for waiting in connecting.values():
            for connected in waiting:
                connected.errback(NotConnected("the node stopped before it was connected"))

    # Events of the node

    def _on_event(self, event: Any) -> None:
        match event:
            case PacketPublished(token, _, number):
                done = self._pending_publishes.pop(token, None)
                if done is not None:
                    done.callback(number)
                return
            case PacketNotPublished(token, key, reason, following):
                done = self._pending_publishes.pop(token, None)
                if done is not None:
                    outcome = "is not known to be published" if reason in UNCERTAIN_REASONS else "was not published"
                    detail = f"a packet of {key.hex()} {outcome} ({reason}): {FAILURE_REASONS.get(reason, 'by a peer')}"
                    done.errback(PublishRefused(reason, detail, following))
                return
            case PacketsDelivered():
                self._journal_event(event)
                self._observers.notify("packets_received", event.key, event.packets)
                return
            case PacketsMissed():
                self._journal_event(event)
                self._observers.notify("packets_missed", event.key, event.first, event.last)
            case StreamRenumbered():
                self._journal_event(event)
                self._observers.notify("stream_changed", event)
            case Subscribed() | SubscribeFailed() | ParentLost() | ParentChanged() | StreamDropped():
                self._observers.notify("stream_changed", event)
                self._resolve_connecting(event)
        log_event(self.log, event)

    def _resolve_connecting(self, event: Any) -> None:
        match event:
            case Subscribed(key, _, _):
                for connected in self._connecting.pop(key, []):
                    connected.callback(None)
            case SubscribeFailed(key, reason) if not self.policy.retry:
                for connected in self._connecting.pop(key, []):
                    connected.errback(OperationalError(f"{key.hex()} is not connected: {reason}"))

    def _journal_event(self, event: PacketsDelivered | PacketsMissed | StreamRenumbered) -> None:
        if self._error is not None:
            return
        try:
            journal = self._open_journal(event.key, create=bool(self._journal_subscriptions[event.key]))
            if journal is not None:
                journal.write(event)
        except FyrehoseError as error:
            self.fail(error)


def _signer(
    key: bytes, data: bytes, number: int | None, signing_key: SigningKey | None
) -> Callable[[int], bytes] | None:
    """Return the function that signs a packet; ``None`` if the packet needs no signature or has one."""
    if signing_key is not None:
        if signing_key.key != key:
            raise ConfigurationError(f"the signing key is of {signing_key.key.hex()}, not of {key.hex()}")
        return lambda number: signing_key.sign(number, data)
    if is_signed(key) and number is None:
        raise ConfigurationError(f"packets of {key.hex()} must be signed; pass the signing key of the stream")
    return None


def _hex(number: int) -> str:
    return f"{number:016x}"
