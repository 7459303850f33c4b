"""Base of the services that run one node on stream connections."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random, SystemRandom
from typing import Any, ClassVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface.interface import InterfaceClass

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.net.connection import NodeConnection
from fyrehose_twisted.net.listening import ListeningPorts
from fyrehose_twisted.net.service_config import ServiceConfig
from fyrehose_twisted.process.shutdown import exit_with_failure
from fyrehose_twisted.process.sighup import ReloadOnHup


class Observers:
    """Observers of a service. An exception of one observer is logged; the others are still notified.

    :param interface: interface that each observer provides.
    """

    log = Logger()

    def __init__(self, interface: InterfaceClass) -> None:
        self._interface = interface
        self._observers: list[Any] = []

    def add(self, observer: Any) -> None:
        """Add an observer. :raises TypeError: if it does not provide the interface."""
        self._observers.append(self._interface(observer))

    def discard(self, observer: Any) -> None:
        """Remove an observer, if present."""
        with suppress(ValueError):
            self._observers.remove(observer)

    def notify(self, method: str, *arguments: Any) -> None:
        """Call a method of each observer."""
        for observer in tuple(self._observers):
            try:
                getattr(observer, method)(*arguments)
            except Exception:
                self.log.failure("{listener!r} failed in {method}()", listener=observer, method=method)


class NodeService(Service):
    """Service that runs one node, with its ports, start, failure and stop.

    Subclasses start the node in :meth:`_start_node`, stop it in :meth:`_stop_node`, and halt it after a failure in
    :meth:`_halt`.

    :cvar observed: interface of the observers.
    :param config: configuration, of which this class uses the limits of links.
    :param ports: ports of the service.
    :param protocol: protocol of each connection.
    :param codec: codec of the protocol.
    :param failed: called with the error that stopped the service; by default the process exits with status 1.
    """

    observed: ClassVar[InterfaceClass]
    log = Logger()

    def __init__(
        self,
        config: ServiceConfig,
        ports: ListeningPorts,
        *,
        protocol: Callable[[Any], NodeConnection],
        codec: Any,
        failed: Callable[[Exception], object] | None,
        rng: Random | None,
        reactor: Any,
    ) -> None:
        self.reactor = reactor
        self._ports = ports
        self._observers = Observers(self.observed)
        self._protocol = protocol
        self._codec = codec
        self._limits = config.connection_limits()
        self._on_failure = failed
        self._rng = SystemRandom() if rng is None else rng
        self._error: Exception | None = None
        self._accepting = False
        self._reload_on_hup: ReloadOnHup[Any] = ReloadOnHup.ignore(reactor)

    def listen(self, listener: Any) -> None:
        """Add a listener."""
        self._observers.add(listener)

    def unlisten(self, listener: Any) -> None:
        """Remove a listener."""
        self._observers.discard(listener)

    def privilegedStartService(self) -> None:
        """Twisted: bind ports, before privileges are dropped."""
        super().privilegedStartService()
        self._ports.bind()

    def startService(self) -> None:
        """Twisted: start."""
        super().startService()
        self._accepting = True
        self._reload_on_hup.start()
        try:
            self._start_node()
        except FyrehoseError as error:
            self.fail(error)
        except Exception as error:
            self.log.failure("the node cannot start")
            self.fail(error)

    def stopService(self) -> Deferred[None]:
        """Twisted: leave the network, make all state durable and stop."""
        super().stopService()
        self._accepting = False
        self._reload_on_hup.stop()
        return Deferred.fromCoroutine(self._stop_node())

    def fail(self, error: Exception) -> None:
        """Stop because of ``error``."""
        if self._error is not None:
            return
        self._error = error
        self.log.critical("stopping: {error}", error=error)
        self._halt(error)
        if self._on_failure is None:
            exit_with_failure(self.reactor)
        else:
            self._on_failure(error)
        self._fail_pending(error)

    def _start_node(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not override _start_node()")

    async def _stop_node(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not override _stop_node()")

    def _halt(self, error: Exception) -> None:
        """Stop all activity of the node after a failure."""
        raise NotImplementedError(f"{type(self).__name__} does not override _halt()")

    def _fail_pending(self, error: Exception | None) -> None:
        """Fail the operations in flight because of ``error``, or ``None`` for the stop of the service."""
        raise NotImplementedError(f"{type(self).__name__} does not override _fail_pending()")

    def _build_connection(self) -> NodeConnection:
        return self._protocol(self._codec)

    async def _close_storage(self, storage: Any) -> None:
        """Close ``storage``, if any, with its coroutine ``close``; an error fails the service."""
        if storage is not None:
            try:
                await storage.close()
            except FyrehoseError as error:
                self.fail(error)
