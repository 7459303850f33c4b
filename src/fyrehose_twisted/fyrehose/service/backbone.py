"""Service of a backbone."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from prometheus_client.registry import Collector
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred

from fyrehose_twisted.fyrehose.config import BackboneConfig, check_exposure
from fyrehose_twisted.fyrehose.protocol import BackboneProtocol
from fyrehose_twisted.fyrehose.service.clients_page import ClientsPage
from fyrehose_twisted.fyrehose.service.connect import DatagramService, warn_if_buffer_small
from fyrehose_twisted.fyrehose.service.metrics import BackboneCollector
from fyrehose_twisted.host_addresses import address_fields, format_address
from fyrehose_twisted.interfaces import ISequenceStore
from fyrehose_twisted.net.metrics import LabelledCollector
from fyrehose_twisted.net.metrics_port import MetricsPort
from fyrehose_twisted.net.udp import DatagramPort
from fyrehose_twisted.process.sd_notify import systemd_notifier
from fyrehose_twisted.process.sighup import ReloadOnHup, diff
from fyrehose_twisted.web.metrics import MetricsPage
from fyrehose_twisted.wording import pluralize


class MulticastSending(NamedTuple):
    """How to send to a multicast group."""

    interface: str
    """IPv4 address of the network interface."""
    ttl: int = 1
    """Number of networks that a datagram may pass; with 1, routers forward none."""


class BackboneService(DatagramService):
    """Backbone under ``twistd``. It binds its port before privileges are dropped and opens its state file afterwards.

    :param open_state: called when the service starts; returns the sequence store.
    :param open_to_all: serve all clients, also on interfaces other than loopback. Otherwise ``protocol.config`` needs a
        secret or an allow list there, or :class:`~fyrehose_twisted.errors.ConfigurationError` is raised.
    :param metrics: endpoint description for Prometheus metrics. TCP endpoints without an interface use loopback.
    :param multicast: how to send to the multicast group of the configuration, if there is one.
    :param read_config: called on SIGHUP; returns the new configuration.
    :param inherited: bound socket to use instead of ``interface`` and ``port``.
    """

    def __init__(
        self,
        protocol: BackboneProtocol,
        open_state: Callable[[], ISequenceStore],
        port: int,
        interface: str,
        *,
        metrics: str | None = None,
        open_to_all: bool = False,
        multicast: MulticastSending | None = None,
        read_config: Callable[[], BackboneConfig] | None = None,
        inherited: socket.socket | None = None,
        reactor: Any = None,
    ) -> None:
        super().__init__(reactor)
        if inherited is not None:
            interface, port = inherited.getsockname()[:2]
        if not open_to_all:
            check_exposure(interface, protocol.config)
        self._multicast = multicast
        self._interface, self._open_to_all = interface, open_to_all
        self.protocol = protocol
        self._open_state = open_state
        self._metrics = MetricsPort(self.reactor, metrics, {"/clients": ClientsPage(protocol).get})
        self._port = DatagramPort(port, protocol, interface, self.reactor, activated_socket=inherited)
        self._reloading = ReloadOnHup(read_config, self._reconfigure, self.reactor)
        self._opened = False

    def privilegedStartService(self) -> None:
        """Twisted: bind the port, which may need privileges."""
        super().privilegedStartService()
        self._bind()

    def startService(self) -> None:
        """Twisted: start."""
        super().startService()
        self._bind()
        self.protocol.state = self._open_state()
        self._opened = True
        self._run()

    def _run(self) -> None:
        """Start the protocol, once the state file is open."""
        self.watch(self.protocol)
        warn_if_buffer_small(self._port)
        self._port.start()
        self._reloading.start()
        self._report_start()
        self._metrics.listen(*self._collectors(), on_failure=self.fail)
        self._report_ready()

    def _report_ready(self) -> None:
        systemd_notifier.ready(self.reactor, self._describe())

    def _report_start(self) -> None:
        bound = self._port.getHost()
        self.log.info(
            "listening on {place}, the next number is {number}",
            **address_fields((bound.host, bound.port)),
            number=self.protocol.state.last + 1,
        )
        self._report_group()
        if self.protocol.state.hole is not None:
            self.log.warn(
                "the last stop left no exact record: numbers {first} to {last} are lost, or were never assigned",
                first=self.protocol.state.hole[0],
                last=self.protocol.state.hole[1],
            )

    def _report_group(self) -> None:
        group = self.protocol.config.multicast
        if group is not None and self._multicast is not None:
            self.log.info(
                "sending to multicast group {place} from {interface}",
                **address_fields(group),
                interface=self._multicast.interface,
            )

    def _describe(self) -> str:
        bound = self._port.getHost()
        return f"listening on {format_address((bound.host, bound.port))}"

    def _collectors(self) -> tuple[Collector, ...]:
        return (BackboneCollector(self.protocol),)

    async def _stop(self) -> None:
        self._reloading.stop()
        await self._metrics.close()
        if self._port.connected:
            await maybeDeferred(self._port.stopListening)
        if self._opened:
            self._opened = False
            self.protocol.state.close()

    def stopService(self) -> Deferred[None]:
        """Twisted: stop and store the last number, so that no numbers are skipped."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    def _bind(self) -> None:
        if not self._port.connected:
            self._port.bind()
            if self._multicast is not None:
                self._port.send_to_groups(*self._multicast)

    def _reconfigure(self, config: BackboneConfig) -> list[str]:
        if not self._open_to_all:
            check_exposure(self._interface, config)
        changes = diff(self.protocol.config, config)
        self.protocol.reconfigure(config)
        return changes


class StreamService(BackboneService):
    """Backbone of one of the streams of :class:`StreamsService`.

    :param stream: URI of the stream.
    """

    def __init__(self, stream: str, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.stream = stream

    def collector(self) -> Collector:
        """Return a collector of its metrics, without a label for the stream."""
        return BackboneCollector(self.protocol)

    def _report_start(self) -> None:
        bound = self._port.getHost()
        self.log.info("{stream} is at {place}", stream=self.stream, **address_fields((bound.host, bound.port)))
        super()._report_start()

    def _report_ready(self) -> None:
        """Leave it to the service of all streams."""


class StreamsService(MultiService):
    """Backbones of several streams in one process. If one fails, all stop with it.

    ``/metrics`` has the metrics of all streams, with a label for the stream. ``/streams/NAME/metrics`` and
    ``/streams/NAME/clients`` are those of a backbone of one stream.

    :param services: backbones by name of the stream.
    :param metrics: see :class:`BackboneService`.
    """

    def __init__(
        self, services: Mapping[str, StreamService], *, metrics: str | None = None, reactor: Any = None
    ) -> None:
        super().__init__()
        if reactor is None:
            from twisted.internet import reactor
        self.reactor = reactor
        self.streams = services
        pages = {}
        for name, service in services.items():
            service.setServiceParent(self)
            pages[f"/streams/{name}/metrics"] = MetricsPage([service.collector()]).get
            pages[f"/streams/{name}/clients"] = ClientsPage(service.protocol).get
        self._metrics = MetricsPort(reactor, metrics, pages)

    def startService(self) -> None:
        """Twisted: start all streams, then serve their metrics."""
        super().startService()
        collectors = {service.stream: service.collector() for service in self.streams.values()}
        on_failure = next(iter(self.streams.values())).fail
        self._metrics.listen(LabelledCollector("stream", collectors), on_failure=on_failure)
        systemd_notifier.ready(self.reactor, f"serving {pluralize(len(self.streams), 'stream')}")

    def stopService(self) -> Deferred[None]:
        """Twisted: stop, and store the last number of each stream."""
        stopped = super().stopService()
        return Deferred.fromCoroutine(self._stop(stopped))

    async def _stop(self, stopped: Deferred[Any]) -> None:
        await self._metrics.close()
        await stopped
