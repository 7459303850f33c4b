"""Service of a relay."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from prometheus_client.registry import Collector
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall

from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.node.backbone.sequencer import VolatileSequenceStore
from fyrehose_twisted.fyrehose.protocol.relay import RelayProtocol
from fyrehose_twisted.fyrehose.service.backbone import BackboneService, MulticastSending
from fyrehose_twisted.fyrehose.service.connect import bind_client
from fyrehose_twisted.fyrehose.service.metrics import ClientCollector, RelayCollector
from fyrehose_twisted.host_addresses import address_fields

PATIENCE = 5.0
"""Seconds after which a relay warns that no parent has answered yet."""


class RelayService(BackboneService):
    """Relay under ``twistd``. It needs no state file: the numbers are those of its parent.

    :param parents: ``HOST:PORT``, or several, separated by commas.
    :param stream: name of the stream in the metric ``fyrehose_info``.
    """

    protocol: RelayProtocol

    def __init__(
        self,
        protocol: RelayProtocol,
        parents: str,
        port: int,
        interface: str,
        *,
        stream: str | None = None,
        metrics: str | None = None,
        open_to_all: bool = False,
        multicast: MulticastSending | None = None,
        read_config: Callable[[], BackboneConfig] | None = None,
        inherited: socket.socket | None = None,
        reactor: Any = None,
    ) -> None:
        super().__init__(
            protocol,
            VolatileSequenceStore,
            port,
            interface,
            metrics=metrics,
            open_to_all=open_to_all,
            multicast=multicast,
            read_config=read_config,
            inherited=inherited,
            reactor=reactor,
        )
        self.parents = parents
        self._stream = stream
        self._binding: Deferred[None] = succeed(None)
        self._patience: IDelayedCall | None = None

    def _run(self) -> None:
        super()._run()
        self.watch(self.protocol.upstream)
        self._binding = Deferred.fromCoroutine(bind_client(self.reactor, self.protocol.upstream, self.parents))
        self._binding.addErrback(lambda failure: None if failure.check(CancelledError) else self.fail(failure))
        self._patience = self.reactor.callLater(PATIENCE, self._report_silence)

    def _report_start(self) -> None:
        bound = self._port.getHost()
        self.log.info(
            "listening on {place}, relaying from {parents}",
            **address_fields((bound.host, bound.port)),
            parents=self.parents,
        )
        self._report_group()

    def _report_silence(self) -> None:
        self._patience = None
        if not self.protocol.upstream.connected_first.called:
            self.log.warn(
                "{parents} has not answered for {seconds:g} s; is it running, is the secret the same there, and does it"
                " admit this address? Clients are not acknowledged before",
                parents=self.parents,
                seconds=PATIENCE,
            )

    def _collectors(self) -> tuple[Collector, ...]:
        return RelayCollector(self.protocol, self._stream, self.parents), ClientCollector(self.protocol.upstream)

    async def _stop(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._binding.cancel()  # Otherwise a pending name lookup would open a port afterwards.
        await self.protocol.upstream.leave()
        await super()._stop()
