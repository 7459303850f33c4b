"""Durable journal of a stream under ``twistd``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.python.failure import Failure

from fyrehose_twisted.errors import FyrehoseError, OperationalError
from fyrehose_twisted.fyrehose.protocol.journal import JournalProtocol
from fyrehose_twisted.fyrehose.service.connect import DatagramService, bind_client
from fyrehose_twisted.fyrehose.service.metrics import ClientCollector
from fyrehose_twisted.journal.metrics import JournalCollector
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.journal.upkeep.fetching import BlockFetcher
from fyrehose_twisted.journal.upkeep.maintenance import Maintenance
from fyrehose_twisted.net.listening import ListeningEndpoint, ListeningPorts
from fyrehose_twisted.net.metrics import InfoCollector
from fyrehose_twisted.net.metrics_port import MetricsPort
from fyrehose_twisted.process.sd_notify import systemd_notifier
from fyrehose_twisted.process.sighup import ReloadOnHup

SERVE_EXAMPLE = "tcp:2324"

MakeProtocol = Callable[..., JournalProtocol]
"""Called with ``journal`` and ``sync``."""


class JournalService(DatagramService):
    """Service that subscribes to a backbone and writes the stream to a journal.

    :param open_journal: called when the service starts, after privileges were dropped; returns the journal.
    :param make_protocol: called with the keywords ``journal`` and ``sync``; returns the protocol.
    :param backbone: ``HOST:PORT``, or several, separated by commas.
    :param interface: local IP address; by default the one from which the backbone is reached.
    :param sync_interval: seconds between syncs; ``None`` to sync each group of messages before it is delivered.
    :param serve: called with the journal; returns the endpoint that serves it to readers on other machines.
    :param metrics: endpoint description for Prometheus metrics; see
        :class:`~fyrehose_twisted.fyrehose.service.backbone.BackboneService`.
    """

    def __init__(
        self,
        open_journal: Callable[[], Journal],
        make_protocol: MakeProtocol,
        backbone: str,
        *,
        port: int = 0,
        interface: str | None = None,
        sync_interval: float | None = None,
        serve: Callable[[Journal], ListeningEndpoint] | None = None,
        metrics: str | None = None,
        reactor: Any = None,
    ) -> None:
        super().__init__(reactor)
        self.backbone = backbone
        self.journal: Journal | None = None
        self.protocol: JournalProtocol | None = None
        self._open_journal = open_journal
        self._make_protocol = make_protocol
        self._local_port = port
        self._interface = interface
        self._sync_interval = sync_interval
        self._make_listener = serve
        self._metrics = MetricsPort(self.reactor, metrics)
        self._ports = ListeningPorts(self.reactor, SERVE_EXAMPLE, "journal")
        self._maintenance: Maintenance | None = None
        self._reloading = ReloadOnHup.ignore(self.reactor)
        self._binding: Deferred[None] = succeed(None)
        self._failure_logged = False

    def startService(self) -> None:
        """Twisted: start."""
        super().startService()
        try:
            journal = self.journal = self._open_journal()
        except FyrehoseError:
            self.fail(Failure())
            return
        self._log_recovery(journal)
        protocol = self.protocol = self._make_protocol(journal=journal, sync=self._sync_interval is None)
        BlockFetcher(journal, self.reactor)  # A repair must not stop the reactor.
        self._maintenance = Maintenance(
            journal,
            self.reactor,
            sync_interval=self._sync_interval,
            on_failure=self._journal_failed,
            on_synced=protocol.flush,
        )
        self._maintenance.start()
        protocol.stopped.addErrback(self._record_logged_failure)
        self.watch(protocol)
        binding = bind_client(self.reactor, protocol, self.backbone, port=self._local_port, interface=self._interface)
        self._binding = Deferred.fromCoroutine(binding)
        self._binding.addCallback(lambda _: systemd_notifier.ready(self.reactor, f"keeps {journal.stream}"))
        self._binding.addErrback(lambda failure: None if failure.check(CancelledError) else self.fail(failure))
        if self._make_listener is not None:
            self._ports = ListeningPorts(self.reactor, SERVE_EXAMPLE, "journal")
            self._ports.add_port(self._make_listener(journal))
            self._ports.bind()
            self._ports.report_failures(lambda error: self.fail(Failure(error)))
        info = InfoCollector("journal", stream=journal.stream)
        self._metrics.listen(info, ClientCollector(protocol), JournalCollector([journal]), on_failure=self.fail)
        self._reloading.start()

    def stopService(self) -> Deferred[None]:
        """Twisted: leave the backbone, sync the journal and stop."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._reloading.stop()
        self._binding.cancel()  # Otherwise a pending name lookup would open a port afterwards.
        await self._metrics.close()
        await self._ports.close()
        if self.protocol is not None:
            await self.protocol.leave()
            self._log_summary(self.protocol)
        if self._maintenance is not None:
            await self._maintenance.stop()
        if self.journal is not None:
            try:
                self.journal.close()
            except OperationalError as error:
                if not self._failure_logged:
                    self.fail(Failure(error))

    def _journal_failed(self, error: Exception) -> None:
        if self.protocol is not None and self.protocol.transport is not None:
            self.protocol.fail(error)
        elif not self._failure_logged:  # The protocol is not running yet: the name lookup is pending.
            self._failure_logged = True
            self.fail(Failure(error))

    def _record_logged_failure(self, failure: Failure) -> Failure:
        self._failure_logged = True
        return failure

    def _log_recovery(self, journal: Journal) -> None:
        for line in journal.recovery.messages():
            self.log.warn("{journal}: {line}", journal=journal, line=line)
        bounds = journal.bounds(0)
        if bounds is None:
            self.log.info("{journal} is empty", journal=journal)
        else:
            self.log.info(
                "{journal} begins at {first:,} and is complete up to {last:,}",
                journal=journal,
                first=bounds.first,
                last=bounds.next - 1,
            )

    def _log_summary(self, protocol: JournalProtocol) -> None:
        node, journal = protocol.node, self.journal
        if node is not None and journal is not None:
            self.log.info(
                "messages received: {received:,}, {repaired:,} of them as repairs; stored: {taken:,}, lost: {lost:,}",
                received=node.counters.received,
                repaired=node.counters.repaired,
                taken=journal.counters.taken,
                lost=node.counters.lost,
            )
