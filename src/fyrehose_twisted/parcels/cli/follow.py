"""``fyrehose parcels follow``: print events in order as they come."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from zope.interface import implementer

from fyrehose_twisted.errors import FoundedAnew
from fyrehose_twisted.interfaces import IEventListener
from fyrehose_twisted.parcels.client.http_client import Following, OrderedEvent, ParcelsClient
from fyrehose_twisted.process.terminal import StandardOutput, complain


@implementer(IEventListener)
class Printer:
    """Prints events on standard output, no faster than that takes them.

    :param first: number of the first event; ``None`` for the next one.
    :param founding: of the cluster that it is a number of; empty if that is not known.
    :param count: how many to print; ``None`` for all.
    :ivar ended: fires with what went wrong, ``None`` for nothing.
    """

    def __init__(
        self,
        client: ParcelsClient,
        output: StandardOutput,
        first: int | None,
        founding: str,
        count: int | None,
        format_event: Callable[[OrderedEvent, str], bytes],
        reactor: Any,
    ) -> None:
        self.ended: Deferred[object] = Deferred()
        self._client = client
        self._output = output
        self._next = first
        self._founding = founding
        self._left = count
        self._format = format_event
        self._reactor = reactor
        self._wanted = True
        self._turning = False
        self._following: Following | None = None

    def start(self) -> None:
        """Begin to print."""
        self._output.register(self)
        self._output.when_closed(self.end)
        self._turn()

    def stop(self) -> None:
        """Print no more."""
        self._wanted = False
        self._turn()

    def end(self, problem: object) -> None:
        """It is over."""
        if not self.ended.called:
            self.ended.callback(problem)

    def events_ordered(self, events: Sequence[OrderedEvent]) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IEventListener`."""
        if self._left is not None:
            events = events[: self._left]
            self._left -= len(events)
        founding = self._founding if self._following is None else self._following.founding
        self._output.write(b"".join(self._format(event, founding) for event in events))
        if self._left == 0:
            self.end(None)

    def events_skipped(self, first: int, last: int) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IEventListener`."""
        if self._left != 0:
            print(f"fyrehose: no node has {first:,} to {last:,} any more", file=sys.stderr)

    def pauseProducing(self) -> None:
        """Twisted: enough for now. What a node has sent already is still printed."""
        self._wanted = False
        self._turn_soon()

    def resumeProducing(self) -> None:
        """Twisted: go on."""
        self._wanted = True
        self._turn_soon()

    def stopProducing(self) -> None:
        """Twisted: nobody reads any more."""
        self.pauseProducing()

    def _turn_soon(self) -> None:
        # This may have been called by what a stream is handing on just now.
        if not self._turning:
            self._turning = True
            self._reactor.callLater(0, self._turn)

    def _turn(self) -> None:
        self._turning = False
        if self._wanted and self._following is None:
            self._following = self._client.follow(self, self._next, self._founding)
            self._following.stopped.addErrback(lambda failure: self.end(failure.value))
        elif not self._wanted and self._following is not None:
            self._next, self._founding = self._following.next, self._following.founding
            self._following.stop()
            self._following = None


def _as_line(event: OrderedEvent, founding: str) -> bytes:
    return event.data + b"\n"


def _as_json(event: OrderedEvent, founding: str) -> bytes:
    fields: dict[str, object] = {"sequence": event.sequence, "founding": founding, "publisher": event.publisher}
    try:
        fields["data"] = event.data.decode()
    except UnicodeDecodeError:
        fields |= {"data": base64.b64encode(event.data).decode(), "encoding": "base64"}
    return json.dumps(fields).encode() + b"\n"


async def follow(options: argparse.Namespace, client: ParcelsClient, reactor: Any) -> int:
    """Run the command and return its exit status."""
    output = StandardOutput()
    as_text = _as_json if options.format == "json" else _as_line
    printer = Printer(client, output, options.start, options.founding or "", options.count, as_text, reactor)
    output.open(reactor)
    # Following goes on for ever, whatever nodes say; a wrong address or token is better said at once.
    await client.cluster()
    printer.start()
    try:
        problem, patience = await printer.ended, None
    except CancelledError:
        problem, patience = None, 1.0
    printer.stop()
    output.end()
    await output.emptied(reactor, patience)
    if isinstance(problem, FoundedAnew):
        problem = f"{problem}: --from 1, without --founding or with --founding {problem.founding}"
    return 0 if problem is None else complain(problem)
