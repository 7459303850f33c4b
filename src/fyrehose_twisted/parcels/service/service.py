"""Twisted service of a parcels node."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger
from twisted.python.failure import Failure

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import FyrehoseError, RemovedFromCluster
from fyrehose_twisted.interfaces import IEventListener
from fyrehose_twisted.net.addresses import endpoint_factory_from, format_address, tcp_endpoint
from fyrehose_twisted.net.listening import ListeningPorts
from fyrehose_twisted.net.metrics import metrics_site
from fyrehose_twisted.net.node_service import NodeService
from fyrehose_twisted.net.service_config import accepts_old_parameters
from fyrehose_twisted.net.stream_driver import StreamDriver
from fyrehose_twisted.parcels.client.publications import publish_error
from fyrehose_twisted.parcels.events import (
    EventsDelivered,
    EventsSkipped,
    PublishConfirmed,
    PublishUnconfirmed,
    Removed,
)
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.protocol import ParcelProtocol
from fyrehose_twisted.parcels.service.config import DEFAULT_LISTEN, ParcelsConfig
from fyrehose_twisted.parcels.service.dialer import Dialer
from fyrehose_twisted.parcels.service.event_log import log_event
from fyrehose_twisted.parcels.service.events_api import OrderedEventsMixin
from fyrehose_twisted.parcels.service.http import HttpSite
from fyrehose_twisted.parcels.service.state_keeper import StateKeeper
from fyrehose_twisted.parcels.web.metrics import NodeCollector
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import node_id
from fyrehose_twisted.process.sd_notify import systemd_notifier
from fyrehose_twisted.process.sighup import ReloadOnHup
from fyrehose_twisted.web.tokens import Tokens, shared_token

SHUTDOWN_TIMEOUT = 1.5
"""Seconds to wait for peers to close their connections when the node stops."""


class ParcelsNode(OrderedEventsMixin, NodeService):
    """One node of a cluster, with its ports, files and web site; see
    :class:`~fyrehose_twisted.interfaces.IOrderedEvents`.

        node = ParcelsNode(ParcelsConfig("a", bootstrap=True))
        node.setServiceParent(application)
        number = await node.publish(b"...")

    :param config: configuration.
    :param protocol: protocol of each connection.
    :param failed: called with the error that stopped the service; by default the process exits with status 1.
    :param reread_tokens: returns the tokens of the web site on SIGHUP; ``None`` if there is nothing to reload.
    :ivar address: listening address; ``None`` before the start.
    """

    observed = IEventListener
    log = Logger()

    @accepts_old_parameters(ParcelsConfig, "config", "listen", renamed={"keeping": "storage"})
    def __init__(
        self,
        config: ParcelsConfig,
        *,
        protocol: type[ParcelProtocol] = ParcelProtocol,
        failed: Any = None,
        rng: Random | None = None,
        reactor: Any = None,
        reread_tokens: Callable[[], Tokens | None] | None = None,
    ) -> None:
        if reactor is None:
            from twisted.internet import reactor
        directory = None if config.storage is None else config.storage.directory
        keeper = None if config.state is None else StateKeeper(config.state, directory)
        OrderedEventsMixin.__init__(self, config, keeper)
        NodeService.__init__(
            self,
            config,
            ListeningPorts(reactor, DEFAULT_LISTEN, "parcels"),
            protocol=protocol,
            codec=ParcelCodec(node_id(config.name)),
            failed=failed,
            rng=rng,
            reactor=reactor,
        )
        self.address: Address | None = None
        self._started: Deferred[Exception | None] = Deferred()
        (listen,) = config.listen
        self._ports.add("listen", listen, self._ports.gate)
        self._storage = config.storage
        self._http: HttpSite | None = None
        if config.http is not None:
            tokens = config.tokens if config.token is None else shared_token(config.token)
            self._http = HttpSite(self, tokens, config.web, directory, reactor)
            self._ports.add("http", config.http, self._http.factory)
            if reread_tokens is not None:
                self._reload_on_hup = ReloadOnHup(reread_tokens, self._http.replace_tokens, reactor)
        if config.metrics is not None:
            self._ports.add("metrics", config.metrics, metrics_site(NodeCollector(self)))
        self._dialer = Dialer(reactor, tcp_endpoint if config.dial is None else endpoint_factory_from(config.dial))
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
        if self.node is not None and self.links is not None:
            self.node.panic(str(error), self.links.now())
            self.links.halt()

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
        storage, keeper = self._storage, self._state_keeper
        promises = None if storage is None else storage.persistent_state
        self.node = ClusterNode(
            config,
            self._rng,
            now,
            persistent_state=promises,
            history=None if storage is None else storage.history,
            application=None if keeper is None else keeper.state,
            application_sequence=0 if keeper is None else keeper.load(0 if promises is None else promises.cluster_id),
        )
        self.links = StreamDriver(
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
        self._ports.open(self.links.factory)
        self.links.flush()
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
        if self.node is not None and self.links is not None and self._error is None:
            self.node.leave(self.links.now())
            self.links.flush()
            with suppress(DeferredTimeout):
                await self.links.when_all_closed().addTimeout(SHUTDOWN_TIMEOUT, self.reactor)
        if self.links is not None:
            await self.links.stop()
        self._fail_pending(None)
        if self._state_keeper is not None and self.node is not None and self._error is None:
            try:
                self._state_keeper.save(self.node, always=True)
            except FyrehoseError as error:
                self.log.error("{error}", error=error)
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
            case PublishUnconfirmed(token, _, why, text, unknown, last):
                token.fail(publish_error(why, text, unknown=unknown, last=last))
            case EventsSkipped(first, last):
                self.log.error("no node holds events {first:,} to {last:,} any more", first=first, last=last)
                self._save()
                self._observers.notify("events_skipped", first, last)
            case Removed():
                self._removed()
            case _:
                log_event(self.log, event)

    def _removed(self) -> None:
        """Stop. That is no failure, after which a supervisor would start the node again."""
        error = RemovedFromCluster("the operator removed this node from the cluster")
        self.log.warn("stopping: {error}", error=error)
        if self._on_failure is None:
            self.reactor.stop()
        else:
            self._on_failure(error)

    def _save(self) -> None:
        try:
            if self._storage is not None:
                self._storage.save()
            if self._state_keeper is not None and self.node is not None:
                self._state_keeper.save(self.node)
        except FyrehoseError as error:
            self.fail(error)
