"""The port on which Prometheus reads a service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger
from twisted.python.failure import Failure

from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.net.metrics import metrics_site
from fyrehose_twisted.net.names import loopback_endpoint


class MetricsPort:
    """Serves ``/metrics`` while a service runs, if the operator said where.

    :param description: server endpoint, what ``--metrics`` was given; a TCP one that names no interface listens on
        loopback. ``None`` for a service that nobody reads, which listens on nothing.
    :raises ConfigurationError: if ``description`` is no endpoint.
    """

    log = Logger()

    def __init__(self, reactor: Any, description: str | None) -> None:
        self._description = description
        self._endpoint = None if description is None else loopback_endpoint(reactor, description)
        self._listening: Deferred[IListeningPort | None] = succeed(None)

    def listen(self, *collectors: Collector, failed: Callable[[Failure], object]) -> None:
        """Serve what ``collectors`` yield, until :meth:`close`.

        :param failed: told, with an :class:`~fyrehose_twisted.errors.OperationalError`, if that cannot be listened on.
        """
        if self._endpoint is None:
            return

        def explain(failure: Failure) -> None:
            if failure.check(CancelledError):
                return
            error: Any = failure.value
            error = getattr(error, "socketError", error)
            reason = getattr(error, "strerror", None) or str(error)
            failed(Failure(OperationalError(f"--metrics {self._description} cannot be listened on: {reason}")))

        listening = maybeDeferred(self._endpoint.listen, metrics_site(_Together(collectors)))
        self._listening = listening.addCallbacks(self._bound, explain)

    async def close(self) -> None:
        """Stop listening."""
        listening, self._listening = self._listening, succeed(None)
        listening.cancel()
        port = await listening
        if port is not None:
            await maybeDeferred(port.stopListening)

    def _bound(self, port: IListeningPort) -> IListeningPort:
        address: Any = port.getHost()
        host, number = getattr(address, "host", address), getattr(address, "port", "")
        self.log.info("metrics at http://{host}:{port}/metrics", host=host, port=number)
        return port


class _Together(Collector):
    """Several collectors as one."""

    def __init__(self, collectors: tuple[Collector, ...]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        for collector in self._collectors:
            yield from collector.collect()
