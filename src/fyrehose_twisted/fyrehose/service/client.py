"""Service of a client."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed

from fyrehose_twisted.fyrehose.protocol import ClientProtocol
from fyrehose_twisted.fyrehose.service.connect import DatagramService, bind_client
from fyrehose_twisted.fyrehose.service.metrics import ClientCollector
from fyrehose_twisted.net.metrics import InfoCollector
from fyrehose_twisted.net.metrics_port import MetricsPort
from fyrehose_twisted.process.sighup import ReloadOnHup
from fyrehose_twisted.sealing.key_source import KeySource


class ClientService(DatagramService):
    """Client under ``twistd``.

    :param backbone: ``HOST:PORT``, or several, separated by commas.
    :param metrics: endpoint description for Prometheus metrics; see :class:`BackboneService`.
    :param stream: name of the backbone's stream in the metric ``fyrehose_info``.
    :param keys: keys with which payloads are sealed and opened; read again on SIGHUP.
    """

    def __init__(
        self,
        protocol: ClientProtocol,
        backbone: str,
        *,
        port: int = 0,
        metrics: str | None = None,
        stream: str | None = None,
        keys: KeySource | None = None,
        reactor: Any = None,
    ) -> None:
        super().__init__(reactor)
        self._keys_reload = None if keys is None else ReloadOnHup(keys.read, keys.apply, self.reactor)
        if keys is not None:
            protocol.sealer, protocol.opener = keys.sealer, keys.opener
        self._metrics = MetricsPort(self.reactor, metrics)
        self._stream = stream
        self.protocol = protocol
        self.backbone = backbone
        self._local_port = port
        self._binding: Deferred[None] = succeed(None)

    def startService(self) -> None:
        """Twisted: start."""
        super().startService()
        if self._keys_reload is not None:
            self._keys_reload.start()
        self.watch(self.protocol)
        binding = bind_client(self.reactor, self.protocol, self.backbone, port=self._local_port)
        self._binding = Deferred.fromCoroutine(binding)
        self._binding.addErrback(lambda failure: None if failure.check(CancelledError) else self.fail(failure))
        info = InfoCollector("client", stream=self._stream, backbone=self.backbone)
        self._metrics.listen(info, ClientCollector(self.protocol), on_failure=self.fail)

    async def _stop(self) -> None:
        if self._keys_reload is not None:
            self._keys_reload.stop()
        self._binding.cancel()  # Otherwise a pending name lookup would open a port afterwards.
        await self._metrics.close()
        await self.protocol.leave()

    def stopService(self) -> Deferred[None]:
        """Twisted: leave the backbone and stop."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())
