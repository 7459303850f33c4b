"""Twisted service of a parcels node."""

from __future__ import annotations

import warnings
from contextlib import suppress
from random import Random
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger
from twisted.python.failure import Failure

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.interfaces import IEventListener
from fyrehose_twisted.net.addresses import endpoint_factory_from, format_address, tcp_endpoint
from fyrehose_twisted.net.connection import ConnectionLimits
from fyrehose_twisted.net.listening import ListeningPorts
from fyrehose_twisted.net.node_service import NodeService
from fyrehose_twisted.net.stream_driver import StreamDriver
from fyrehose_twisted.parcels.client.publications import publish_error
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.events import EventsDelivered, EventsSkipped, PublishConfirmed, PublishUnconfirmed
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.protocol import ParcelProtocol
from fyrehose_twisted.parcels.service.dialer import Dialer
from fyrehose_twisted.parcels.service.events_api import OrderedEventsMixin
from fyrehose_twisted.parcels.service.http import HttpSite
from fyrehose_twisted.parcels.service.observers import log_event
from fyrehose_twisted.parcels.service.storage import Storage
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import node_id
from fyrehose_twisted.process.sd_notify import systemd_notifier

DEFAULT_PORT = 7878
DEFAULT_LISTEN = f"tcp:{DEFAULT_PORT}:interface=127.0.0.1"

SHUTDOWN_TIMEOUT = 1.5
"""Seconds to wait for peers to close their connections when the node stops."""


class ParcelsNode(OrderedEventsMixin, NodeService):
    """One node of a cluster, with its ports, files and web site; see
    :class:`~fyrehose_twisted.interfaces.IOrderedEvents`.

        node = ParcelsNode(NodeConfig("a", bootstrap=True))
        node.setServiceParent(application)
        number = await node.publish(b"...")

    :param config: configuration of the node. Hosts of neighbours may be names here; an advertised port of 0 stands for
        the one that it listens on.
    :param listen: server endpoint for other nodes.
    :param http: server endpoint of the web site; ``None`` for no web site.
    :param token: bearer token of the web site.
    :param web: further settings of the web site, a :class:`~fyrehose_twisted.parcels.web.config.WebConfig`.
    :param storage: files of events and of the persistent state. Without it, nothing survives the process.
    :param dial: client endpoint with ``{host}`` and ``{port}`` to dial other nodes; TCP by default.
    :param protocol: protocol of each connection.
    :param failed: called with the error that stopped the service; by default the process exits with status 1.
    :param keeping: deprecated name of ``storage``.
    :ivar address: listening address; ``None`` before the start.
    """

    log = Logger()

    def __init__(
        self,
        config: NodeConfig,
        listen: str = DEFAULT_LISTEN,
        *,
        http: str | None = None,
        token: bytes | None = None,
        web: Any = None,
        storage: Storage | None = None,
        dial: str | None = None,
        protocol: type[ParcelProtocol] = ParcelProtocol,
        limits: ConnectionLimits | None = None,
        failed: Any = None,
        rng: Random | None = None,
        reactor: Any = None,
        keeping: Storage | None = None,
    ) -> None:
        if keeping is not None:
            warnings.warn("ParcelsNode(keeping=...) is now called storage", DeprecationWarning, stacklevel=2)
            storage = keeping
        if reactor is None:
            from twisted.internet import reactor
        OrderedEventsMixin.__init__(self, config)
        NodeService.__init__(
            self,
            ListeningPorts(reactor, DEFAULT_LISTEN, "parcels"),
            IEventListener,
            protocol=protocol,
            codec=ParcelCodec(node_id(config.name)),
            limits=connection_limits(config) if limits is None else limits,
            on_failure=failed,
            rng=rng,
            reactor=reactor,
        )
        self.address: Address | None = None
        self._started: Deferred[Exception | None] = Deferred()
        self._ports.add("listen", listen, self._ports.gate)
        self._storage = storage
        self._http: HttpSite | None = None
        if http is not None:
            directory = None if storage is None else storage.directory
            self._http = HttpSite(self, token, web, directory, reactor)
            self._ports.add("http", http, self._http.factory)
        self._dialer = Dialer(reactor, tcp_endpoint if dial is None else endpoint_factory_from(dial))
        self._starting: Deferred[None] = succeed(None)

    # Starting and stopping

    def _start_node(self) -> None:
        self._starting = Deferred.fromCoroutine(self._start())
        self._starting.addCallbacks(self._started.callback, self._start_failed)

    def when_started(self) -> Deferred[None]:
        """Return a Deferred that fires when the node runs, or fails with the error that prevented it."""
        started: Deferred[None] = Deferred()

        def tell(error: Exception | None) -> Exception | None:
            if error is None:
                started.callback(None)
            else:
                started.errback(error)
            return error

        self._started.addCallback(tell)
        return started

    def _halt(self, error: Exception) -> None:
        if self.node is not None and self.driver is not None:
            self.node.panic(str(error), self.driver.now())
            self.driver.halt()

    def _fail_pending(self, error: Exception | None) -> None:
        self._fail_publications("the node has stopped" if error is None else f"the node failed: {error}")

    async def _start(self) -> None:
        if self._storage is not None:
            self._storage.open(self.config, self.reactor, self.fail)
        await self._ports.wait_bound()
        (host,) = self._ports.hosts_by_option["listen"]
        self.address = getattr(host, "host", "127.0.0.1"), getattr(host, "port", 0)
        config = self.config = await self._dialer.resolve_config(self.config, self.address)
        now = float(self.reactor.seconds())
        storage = self._storage
        self.node = ClusterNode(
            config,
            self._rng,
            now,
            persistent_state=None if storage is None else storage.persistent_state,
            history=None if storage is None else storage.history,
        )
        self.driver = StreamDriver(
            self.node,
            self._build_connection,
            self.reactor,
            on_event=self._on_event,
            persist=None if storage is None else storage.persist,
            on_failure=self.fail,
            endpoint_factory=self._dialer.endpoint_for,
            limits=self._limits,
        )
        self.log.info(
            "node {name} of cluster {cluster} listens on {address}, the next event is {number:,}",
            name=config.name,
            cluster=config.cluster,
            address=format_address(self.address),
            number=self.last + 1,
        )
        self._ports.open(self.driver.factory)
        self.driver.flush()
        if self._http is not None:
            self._http.start()
        systemd_notifier.ready(self.reactor, f"node {config.name} listens on {format_address(self.address)}")

    def _start_failed(self, failure: Failure) -> None:
        if failure.check(CancelledError):
            return
        error: Any = failure.value
        if not isinstance(error, FyrehoseError):
            self.log.failure("the node cannot start", failure)
        self.fail(error)
        self._started.callback(error)

    async def _stop_node(self) -> None:
        self._starting.cancel()  # Otherwise a pending name lookup would start the node afterwards.
        await self._ports.close()
        if self._http is not None:
            await self._http.stop()
        if self.node is not None and self.driver is not None and self._error is None:
            self.node.leave(self.driver.now())
            self.driver.flush()
            with suppress(DeferredTimeout):
                await self.driver.when_all_closed().addTimeout(SHUTDOWN_TIMEOUT, self.reactor)
        if self.driver is not None:
            await self.driver.stop()
        self._fail_pending(None)
        await self._close_storage(self._storage)
        self.address = None

    # Events of the node

    def _on_event(self, event: Any) -> None:
        match event:
            case EventsDelivered(events):
                self._save()
                self._observers.notify("events_ordered", events)
            case PublishConfirmed(token, numbers):
                token.answered(numbers)
            case PublishUnconfirmed(token, _, why, text, unknown):
                token.fail(publish_error(why, text, unknown=unknown))
            case EventsSkipped(first, last):
                self.log.error("no node holds events {first:,} to {last:,} any more", first=first, last=last)
                self._save()
                self._observers.notify("events_skipped", first, last)
            case _:
                log_event(self.log, event)

    def _save(self) -> None:
        if self._storage is not None:
            try:
                self._storage.save()
            except FyrehoseError as error:
                self.fail(error)


def connection_limits(config: NodeConfig) -> ConnectionLimits:
    """Return the limits of accepted connections; one source may open half of them."""
    return ConnectionLimits(
        max_accepted=config.max_links, max_per_source=max(min(32, config.max_links), config.max_links // 2)
    )
