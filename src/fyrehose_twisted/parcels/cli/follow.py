"""``fyrehose parcels follow``: print ordered events as they arrive."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from zope.interface import implementer

from fyrehose_twisted.errors import ClusterIdMismatch
from fyrehose_twisted.interfaces import IEventListener
from fyrehose_twisted.parcels.client.event_ids import cluster_id_members
from fyrehose_twisted.parcels.client.http_client import EventFollower, OrderedEvent, ParcelsClient
from fyrehose_twisted.process.terminal import StandardOutput, print_error


@implementer(IEventListener)
class OrderedEventPrinter:
    """Prints events on standard output, subject to its backpressure.

    :param first: sequence number of the first event; ``None`` for the next one.
    :param cluster_id: id of the cluster that it belongs to; empty if unknown.
    :param count: number of events to print; ``None`` for all.
    :ivar ended: Deferred that fires with the failure, or with ``None``.
    """

    def __init__(
        self,
        client: ParcelsClient,
        output: StandardOutput,
        first: int | None,
        cluster_id: str,
        count: int | None,
        format_event: Callable[[OrderedEvent, str], bytes],
        reactor: Any,
    ) -> None:
        self.ended: Deferred[object] = Deferred()
        self._client = client
        self._output = output
        self._next = first
        self._cluster_id = cluster_id
        self._remaining = count
        self._format = format_event
        self._reactor = reactor
        self._wanted = True
        self._update_pending = False
        self._follower: EventFollower | None = None

    def start(self) -> None:
        """Start to print."""
        self._output.register(self)
        self._output.when_closed(self.end)
        self._update_stream()

    def stop(self) -> None:
        """Stop printing."""
        self._wanted = False
        self._update_stream()

    def end(self, problem: object) -> None:
        """Stop, and fire :attr:`ended`."""
        if not self.ended.called:
            self.ended.callback(problem)

    def events_ordered(self, events: Sequence[OrderedEvent]) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IEventListener`."""
        if self._remaining is not None:
            events = events[: self._remaining]
            self._remaining -= len(events)
        cluster_id = self._cluster_id if self._follower is None else self._follower.cluster_id
        self._output.write(b"".join(self._format(event, cluster_id) for event in events))
        if self._remaining == 0:
            self.end(None)

    def events_skipped(self, first: int, last: int) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IEventListener`."""
        if self._remaining != 0:
            print(f"fyrehose: no node holds {first:,} to {last:,} any more", file=sys.stderr)

    def pauseProducing(self) -> None:
        """Twisted: pause. Events already received are still printed."""
        self._wanted = False
        self._update_soon()

    def resumeProducing(self) -> None:
        """Twisted: resume."""
        self._wanted = True
        self._update_soon()

    def stopProducing(self) -> None:
        """Twisted: standard output is closed."""
        self.pauseProducing()

    def _update_soon(self) -> None:
        # The caller may be a stream that is delivering events right now.
        if not self._update_pending:
            self._update_pending = True
            self._reactor.callLater(0, self._update_stream)

    def _update_stream(self) -> None:
        self._update_pending = False
        if self._wanted and self._follower is None:
            self._follower = self._client.follow(self, self._next, self._cluster_id)
            self._follower.stopped.addErrback(lambda failure: self.end(failure.value))
        elif not self._wanted and self._follower is not None:
            self._next, self._cluster_id = self._follower.next, self._follower.cluster_id
            self._follower.stop()
            self._follower = None


def _as_line(event: OrderedEvent, cluster_id: str) -> bytes:
    return event.data + b"\n"


def _as_json(event: OrderedEvent, cluster_id: str) -> bytes:
    ids = cluster_id_members(cluster_id)
    fields: dict[str, object] = {"sequence": event.sequence, **ids, "publisher": event.publisher}
    try:
        fields["data"] = event.data.decode()
    except UnicodeDecodeError:
        fields |= {"data": base64.b64encode(event.data).decode(), "encoding": "base64"}
    return json.dumps(fields).encode() + b"\n"


async def follow(options: argparse.Namespace, client: ParcelsClient, reactor: Any) -> int:
    """Run the command and return its exit status."""
    output = StandardOutput()
    as_text = _as_json if options.format == "json" else _as_line
    printer = OrderedEventPrinter(
        client, output, options.start, options.cluster_id or "", options.count, as_text, reactor
    )
    output.open(reactor)
    # A follower retries forever. Report a wrong address or token at once.
    await client.cluster()
    printer.start()
    try:
        problem, patience = await printer.ended, None
    except CancelledError:
        problem, patience = None, 1.0
    printer.stop()
    output.end()
    await output.wait_closed(reactor, patience)
    if isinstance(problem, ClusterIdMismatch):
        problem = f"{problem}: --from 1, without --cluster-id or with --cluster-id {problem.cluster_id}"
    return 0 if problem is None else print_error(problem)
