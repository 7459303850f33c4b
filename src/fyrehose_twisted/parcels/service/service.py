"""A node of a cluster as a Twisted service."""

from __future__ import annotations

from contextlib import suppress
from random import Random, SystemRandom
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger
from twisted.python.failure import Failure

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.net.addresses import endpoints_from, show_place, tcp_endpoint
from fyrehose_twisted.net.connection import Link, LinkLimits
from fyrehose_twisted.net.listening import Entrances
from fyrehose_twisted.net.stream_driver import Links
from fyrehose_twisted.parcels.client.publications import not_ordered
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.events import Answered, Delivered, NotTaken, Skipped
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.protocol import ParcelProtocol
from fyrehose_twisted.parcels.service.dialer import Places
from fyrehose_twisted.parcels.service.events_api import OrderedEvents
from fyrehose_twisted.parcels.service.http import NodeSite
from fyrehose_twisted.parcels.service.observers import say
from fyrehose_twisted.parcels.service.storage import Keeping
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import node_id
from fyrehose_twisted.process.sd_notify import supervisor
from fyrehose_twisted.process.shutdown import end_process
from fyrehose_twisted.process.sighup import Reloading

DEFAULT_PORT = 7878
DEFAULT_LISTEN = f"tcp:{DEFAULT_PORT}:interface=127.0.0.1"

GOODBYE = 1.5
"""Seconds after which a node that is told to stop does so, whatever others still have to say."""


class ParcelsNode(OrderedEvents, Service):
    """See :class:`~fyrehose_twisted.interfaces.IOrderedEvents`: one node of a cluster, and what it needs to run.

        node = ParcelsNode(NodeConfig("a", found=True))
        node.setServiceParent(application)
        number = await node.publish(b"...")

    :param config: what the node is told. Hosts of neighbours may be names here; an advertised port of 0 stands for
        the one that it listens on.
    :param listen: where other nodes reach it, a server endpoint.
    :param http: where to serve its web site, a server endpoint; ``None`` for nowhere.
    :param token: what clients of the web site have to know.
    :param web: further settings of the web site, a :class:`~fyrehose_twisted.parcels.web.config.WebConfig`.
    :param keeping: opens where events and promises are kept; without it, nothing outlives the process.
    :param dial: how others are dialled, a client endpoint with ``{host}`` and ``{port}`` in it; TCP by default.
    :param protocol: what speaks on each connection.
    :param failed: told what stopped it; by default the process ends, with status 1.
    :ivar address: where it listens; ``None`` while it does not.
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
        keeping: Keeping | None = None,
        dial: str | None = None,
        protocol: type[ParcelProtocol] = ParcelProtocol,
        limits: LinkLimits | None = None,
        failed: Any = None,
        rng: Random | None = None,
        reactor: Any = None,
    ) -> None:
        if reactor is None:
            from twisted.internet import reactor
        super().__init__(config)
        self.reactor = reactor
        self.address: Address | None = None
        self._started: Deferred[Exception | None] = Deferred()
        self._entrances = Entrances(reactor, DEFAULT_LISTEN, "parcels")
        self._entrances.add("listen", listen, self._entrances.door)
        self._keeping = keeping
        self._http: NodeSite | None = None
        if http is not None:
            directory = None if keeping is None else keeping.directory
            self._http = NodeSite(self, token, web, directory, reactor)
            self._entrances.add("http", http, self._http.factory)
        self._places = Places(reactor, tcp_endpoint if dial is None else endpoints_from(dial))
        self._codec = ParcelCodec(node_id(config.name))
        self._protocol = protocol
        self._limits = link_limits(config) if limits is None else limits
        self._failed = failed
        self._rng = SystemRandom() if rng is None else rng
        self._starting: Deferred[None] = succeed(None)
        self._reloading = Reloading.of_nothing(reactor)

    # Starting and stopping

    def privilegedStartService(self) -> None:
        """Twisted: bind ports, while there may be privileges."""
        super().privilegedStartService()
        self._entrances.bind()

    def startService(self) -> None:
        """Twisted: start."""
        super().startService()
        self._usable = True
        self._reloading.start()
        self._starting = Deferred.fromCoroutine(self._start())
        self._starting.addCallbacks(self._started.callback, self._not_started)

    def when_started(self) -> Deferred[None]:
        """Return a Deferred that fires with ``None`` when it runs, or fails with what kept it from that."""
        started: Deferred[None] = Deferred()

        def tell(error: Exception | None) -> Exception | None:
            if error is None:
                started.callback(None)
            else:
                started.errback(error)
            return error

        self._started.addCallback(tell)
        return started

    def stopService(self) -> Deferred[None]:
        """Twisted: say goodbye, make everything durable and stop."""
        super().stopService()
        self._usable = False
        return Deferred.fromCoroutine(self._stop())

    def fail(self, error: Exception) -> None:
        """Stop because of ``error``."""
        if self._error is not None:
            return
        self._error = error
        self.log.critical("stopping: {error}", error=error)
        if self.node is not None and self.links is not None:
            self.node.panic(str(error), self.links.now())
            self.links.halt()
        if self._failed is None:
            end_process(self.reactor)
        else:
            self._failed(error)
        self._give_up(f"the node failed: {error}")

    async def _start(self) -> None:
        if self._keeping is not None:
            self._keeping.open(self.config, self.reactor, self.fail)
        await self._entrances.bound()
        (host,) = self._entrances.hosts["listen"]
        self.address = getattr(host, "host", "127.0.0.1"), getattr(host, "port", 0)
        config = self.config = await self._places.complete(self.config, self.address)
        now = float(self.reactor.seconds())
        keeping = self._keeping
        self.node = ClusterNode(
            config,
            self._rng,
            now,
            promises=None if keeping is None else keeping.promises,
            history=None if keeping is None else keeping.history,
        )
        self.links = Links(
            self.node,
            self._make_link,
            self.reactor,
            tell=self._told,
            persist=None if keeping is None else keeping.keep,
            failed=self.fail,
            endpoint_for=self._places.endpoint_for,
            limits=self._limits,
        )
        self.log.info(
            "node {name} of cluster {cluster} listens on {address}, the next event is {number:,}",
            name=config.name,
            cluster=config.cluster,
            address=show_place(self.address),
            number=self.last + 1,
        )
        self._entrances.open(self.links.factory)
        self.links.flush()
        if self._http is not None:
            self._http.start()
        supervisor.ready(self.reactor, f"node {config.name} listens on {show_place(self.address)}")

    def _not_started(self, failure: Failure) -> None:
        if failure.check(CancelledError):
            return
        error: Any = failure.value
        if not isinstance(error, FyrehoseError):
            self.log.failure("the node cannot start", failure)
        self.fail(error)
        self._started.callback(error)

    async def _stop(self) -> None:
        self._reloading.stop()
        self._starting.cancel()  # Or a name that is still being looked up would start it afterwards.
        await self._entrances.close()
        if self._http is not None:
            await self._http.stop()
        if self.node is not None and self.links is not None and self._error is None:
            self.node.leave(self.links.now())
            self.links.flush()
            with suppress(DeferredTimeout):
                await self.links.when_alone().addTimeout(GOODBYE, self.reactor)
        if self.links is not None:
            await self.links.stop()
        self._give_up("the node has stopped")
        if self._keeping is not None:
            try:
                await self._keeping.close()
            except FyrehoseError as error:
                self.fail(error)
        self.address = None

    def _make_link(self) -> Link:
        return self._protocol(self._codec)

    # What the node tells

    def _told(self, event: Any) -> None:
        match event:
            case Delivered(events):
                self._save()
                self._listeners.events_ordered(events)
            case Answered(token, numbers):
                token.answered(numbers)
            case NotTaken(token, _, why, text, unknown):
                token.fail(not_ordered(why, text, unknown=unknown))
            case Skipped(first, last):
                self.log.error("events {first:,} to {last:,} can no longer be had", first=first, last=last)
                self._save()
                self._listeners.events_skipped(first, last)
            case _:
                say(self.log, event)

    def _save(self) -> None:
        if self._keeping is not None:
            try:
                self._keeping.save()
            except FyrehoseError as error:
                self.fail(error)


def link_limits(config: NodeConfig) -> LinkLimits:
    """Return what connections may take: of those that others open, one machine has half at most."""
    return LinkLimits(accepted=config.max_links, per_source=max(min(32, config.max_links), config.max_links // 2))
