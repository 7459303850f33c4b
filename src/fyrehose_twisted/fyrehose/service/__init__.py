"""Sockets and ``twistd`` services of fyrehose backbones and clients."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from fyrehose_twisted.errors import FyrehoseError, NotConnected, OperationalError
from fyrehose_twisted.fyrehose.config import BackboneConfig, check_exposure
from fyrehose_twisted.fyrehose.protocol import BackboneProtocol, ClientProtocol
from fyrehose_twisted.fyrehose.service.clients_page import ClientsPage
from fyrehose_twisted.fyrehose.service.metrics import BackboneCollector, ClientCollector
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS
from fyrehose_twisted.interfaces import ISequenceStore
from fyrehose_twisted.net.addresses import resolve_host_port
from fyrehose_twisted.net.datagram_protocol import DatagramNodeProtocol
from fyrehose_twisted.net.metrics import InfoCollector
from fyrehose_twisted.net.metrics_port import MetricsPort
from fyrehose_twisted.net.udp import KERNEL_BUFFER, DatagramPort, source_address_for
from fyrehose_twisted.process.sd_notify import systemd_notifier
from fyrehose_twisted.process.shutdown import exit_with_failure
from fyrehose_twisted.process.sighup import ReloadOnHup, diff

DEFAULT_PORT = 2323
DEFAULT_BACKBONE = f"127.0.0.1:{DEFAULT_PORT}"

ClientT = TypeVar("ClientT", bound=ClientProtocol)

_log = Logger()


def warn_if_buffer_small(port: DatagramPort) -> None:
    """Log a warning if the receive buffer is smaller than requested."""
    if port.receive_buffer < KERNEL_BUFFER:
        _log.warn(
            "the kernel granted {given:,} bytes of receive buffer, {wanted:,} were requested; bursts may be lost."
            " As root: sysctl -w net.core.rmem_max={wanted}",
            given=port.receive_buffer,
            wanted=KERNEL_BUFFER,
        )


async def bind_client(
    reactor: Any, protocol: ClientProtocol, backbone: str, *, port: int = 0, interface: str | None = None
) -> None:
    """Bind ``protocol`` to a port and start to send KEEPALIVEs to ``backbone``, ``HOST:PORT``.

    :param interface: local IPv4 address; by default the one from which the backbone is reached.
    :raises ConfigurationError: if ``backbone`` is not ``HOST:PORT``.
    :raises OperationalError: if the name has no IPv4 address.
    """
    protocol.reactor = reactor
    protocol.backbone = await resolve_host_port(reactor, backbone)
    try:
        if interface is None:
            interface = source_address_for(protocol.backbone)
    except OSError as error:
        raise NotConnected(f"there is no route to the backbone {backbone}: {error.strerror}") from error
    datagram_port = DatagramPort(port, protocol, interface, reactor)
    try:
        datagram_port.bind()
    except CannotListenError as error:
        raise OperationalError(f"cannot listen on {interface}:{port}: {_error_text(error.socketError)}") from error
    if protocol.config.secret is not None and protocol.config.address == ANY_ADDRESS:
        # A token is bound to an address, so with a secret the address must be explicit.
        bound = datagram_port.getHost()
        protocol.config = replace(protocol.config, address=(bound.host, bound.port))
    warn_if_buffer_small(datagram_port)
    datagram_port.start()


async def join(
    reactor: Any, protocol: ClientT, backbone: str = DEFAULT_BACKBONE, *, port: int = 0, timeout: float = 10.0
) -> ClientT:
    """Connect ``protocol`` to a backbone. Return it after the first answer.

    :param backbone: ``HOST:PORT``.
    :param port: local UDP port; 0 for any that is free.
    :param timeout: seconds to wait for the first answer.
    :raises ConfigurationError: if ``backbone`` is not ``HOST:PORT``.
    :raises NotConnected: if the backbone does not answer in time, does not admit us, or cannot be reached.
    :raises OperationalError: if the name has no IPv4 address, or ``port`` cannot be bound.
    """
    await bind_client(reactor, protocol, backbone, port=port)
    connected: Deferred[None] = protocol.connected_first
    connected.addTimeout(timeout, reactor)
    try:
        await connected
    except DeferredTimeout:
        await protocol.leave()
        secret = "does it need a secret" if protocol.config.secret is None else "is the secret the same there"
        raise NotConnected(
            f"backbone {backbone} did not answer within {timeout:g} s;"
            f" is it running, {secret}, and does it admit this address?"
        ) from None
    except CancelledError:
        await protocol.leave()
        raise
    return protocol


class DatagramService(Service):
    """Service that stops the process with exit status 1 if its protocol fails."""

    log = Logger()

    def __init__(self, reactor: Any = None) -> None:
        if reactor is None:
            from twisted.internet import reactor
        self.reactor = reactor

    def watch(self, protocol: DatagramNodeProtocol) -> None:
        """Stop the process if ``protocol`` fails. The protocol logs the error itself."""
        protocol.stopped.addErrback(lambda failure: self._stop_process())

    def fail(self, failure: Failure) -> None:
        """Log the error and stop the process."""
        if isinstance(failure.value, FyrehoseError):
            self.log.critical("stopping: {error}", error=failure.value)
        else:
            self.log.failure("stopping", failure)
        self._stop_process()

    def _stop_process(self) -> None:
        exit_with_failure(self.reactor)


class BackboneService(DatagramService):
    """Backbone under ``twistd``. It binds its port before privileges are dropped and opens its state file afterwards.

    :param open_state: called when the service starts; returns the sequence store.
    :param open_to_all: serve all clients, also on interfaces other than loopback. Otherwise ``protocol.config`` needs a
        secret or an allow list there, or :class:`~fyrehose_twisted.errors.ConfigurationError` is raised.
    :param metrics: endpoint description for Prometheus metrics. TCP endpoints without an interface use loopback.
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
        read_config: Callable[[], BackboneConfig] | None = None,
        inherited: socket.socket | None = None,
        reactor: Any = None,
    ) -> None:
        super().__init__(reactor)
        if inherited is not None:
            interface, port = inherited.getsockname()
        if not open_to_all:
            check_exposure(interface, protocol.config)
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
        self.watch(self.protocol)
        warn_if_buffer_small(self._port)
        self._port.start()
        self._reloading.start()
        bound = self._port.getHost()
        self.log.info(
            "listening on {host}:{port}, the next number is {number}",
            host=bound.host,
            port=bound.port,
            number=self.protocol.state.last + 1,
        )
        if self.protocol.state.hole is not None:
            self.log.warn(
                "the last stop left no exact record: numbers {first} to {last} are lost or were never assigned",
                first=self.protocol.state.hole[0],
                last=self.protocol.state.hole[1],
            )
        self._metrics.listen(BackboneCollector(self.protocol), on_failure=self.fail)
        systemd_notifier.ready(self.reactor, f"listening on {bound.host}:{bound.port}")

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

    def _reconfigure(self, config: BackboneConfig) -> list[str]:
        if not self._open_to_all:
            check_exposure(self._interface, config)
        changes = diff(self.protocol.config, config)
        self.protocol.reconfigure(config)
        return changes


class ClientService(DatagramService):
    """Client under ``twistd``.

    :param backbone: ``HOST:PORT``.
    :param metrics: endpoint description for Prometheus metrics; see :class:`BackboneService`.
    :param stream: name of the backbone's stream in the metric ``fyrehose_info``.
    """

    def __init__(
        self,
        protocol: ClientProtocol,
        backbone: str,
        *,
        port: int = 0,
        metrics: str | None = None,
        stream: str | None = None,
        reactor: Any = None,
    ) -> None:
        super().__init__(reactor)
        self._metrics = MetricsPort(self.reactor, metrics)
        self._stream = stream
        self.protocol = protocol
        self.backbone = backbone
        self._local_port = port
        self._binding: Deferred[None] = succeed(None)

    def startService(self) -> None:
        """Twisted: start."""
        super().startService()
        self.watch(self.protocol)
        binding = bind_client(self.reactor, self.protocol, self.backbone, port=self._local_port)
        self._binding = Deferred.fromCoroutine(binding)
        self._binding.addErrback(lambda failure: None if failure.check(CancelledError) else self.fail(failure))
        info = InfoCollector("client", stream=self._stream, backbone=self.backbone)
        self._metrics.listen(info, ClientCollector(self.protocol), on_failure=self.fail)

    async def _stop(self) -> None:
        self._binding.cancel()  # Otherwise a pending name lookup would open a port afterwards.
        await self._metrics.close()
        await self.protocol.leave()

    def stopService(self) -> Deferred[None]:
        """Twisted: leave the backbone and stop."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())


def _error_text(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)
