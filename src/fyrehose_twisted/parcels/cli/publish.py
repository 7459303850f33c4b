"""``fyrehose parcels publish``: publish one event per line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import NotOrdered
from fyrehose_twisted.net.addresses import endpoint_factory_from, format_address, parse_address, tcp_endpoint
from fyrehose_twisted.parcels.client.node_warnings import NO_ANSWER
from fyrehose_twisted.parcels.client.tcp_publisher import ParcelsPublisher
from fyrehose_twisted.parcels.wire.messages import MAX_EVENT
from fyrehose_twisted.process.line_publisher import LinePublisher
from fyrehose_twisted.process.terminal import (
    StandardOutput,
    open_input,
    print_error,
    secret_from_options,
)
from fyrehose_twisted.wording import pluralize

if TYPE_CHECKING:
    from fyrehose_twisted.parcels.client.http_client import ParcelsClient

MAX_IN_FLIGHT_EVENTS, MAX_IN_FLIGHT_BYTES = 10_000, 2 * 2**20
"""Maximum size of events in flight; far below the limit of the publisher, which also counts overhead."""

_ADVICE = {
    "refused": "start it, or pass another --node",
    NO_ANSWER: "find out why it hangs, or pass another --node",
}
_DEFAULT_ADVICE = "see the log of the node, or pass another --node"


class EventPublisher(LinePublisher):
    """Publishes lines to a cluster. After the first failure, no more lines are read.

    :param publish: publishes one event; returns a Deferred of its number.
    :param numbers: output for sequence numbers; ``None`` prints none.
    :ivar lowest: lowest sequence number.
    :ivar highest: highest sequence number.
    :ivar unknown: number of failed lines that may still be ordered.
    """

    def __init__(self, publish: Callable[[bytes], Deferred[int]], numbers: StandardOutput | None) -> None:
        super().__init__(MAX_EVENT, "events")
        self.lowest = self.highest = 0
        self.unknown = 0
        self._publish_event = publish
        self._numbers = numbers
        self._in_flight_events = 0
        self._in_flight_bytes = 0
        self._output_ready = True
        self._room: Deferred[None] | None = None

    async def when_room(self) -> None:
        while not self._has_room:
            self._room = Deferred()
            await self._room

    @property
    def _has_room(self) -> bool:
        return self._stopped or (
            self._output_ready
            and self._in_flight_events < MAX_IN_FLIGHT_EVENTS
            and self._in_flight_bytes < MAX_IN_FLIGHT_BYTES
        )

    def publish(self, line: bytes) -> Deferred[int]:
        self._in_flight_events += 1
        self._in_flight_bytes += len(line)
        return self._publish_event(line).addBoth(self._line_done, len(line))

    def _line_done(self, result: Any, size: int) -> Any:
        self._in_flight_events -= 1
        self._in_flight_bytes -= size
        self._resume_input()
        return result

    def _resume_input(self) -> None:
        if self._room is not None and self._has_room:
            room, self._room = self._room, None
            room.callback(None)

    def acknowledged(self, line: int, sequence: int) -> None:
        self.lowest = sequence if self.published == 1 else min(self.lowest, sequence)
        self.highest = max(self.highest, sequence)
        if self._numbers is not None and not self._numbers.closed.called:
            self._numbers.write(b"%d\n" % sequence)

    def failed(self, line: int, error: BaseException | None) -> None:
        unknown = isinstance(error, NotOrdered) and error.unknown
        self.unknown += unknown
        why = f"{error.why}: " if isinstance(error, NotOrdered) else ""
        outcome = "it may still be ordered" if unknown else "it will not be ordered"
        self.end_with(f"line {line:,}: {why}{error}; {outcome}")

    def end_with(self, problem: object) -> None:
        """Stop reading because of ``problem``. Events in flight continue."""
        self.end(problem)
        self._resume_input()

    # Backpressure of the sequence numbers on standard output pauses the input.

    def pauseProducing(self) -> None:
        """Twisted: pause."""
        self._output_ready = False

    def resumeProducing(self) -> None:
        """Twisted: resume."""
        self._output_ready = True
        self._resume_input()

    def stopProducing(self) -> None:
        """Twisted: standard output is closed. Publishing continues."""
        self.resumeProducing()

    def summary(self) -> str:
        """Return a summary of the published events."""
        numbers = f", numbers {self.lowest:,} to {self.highest:,}" if self.published else ""
        return f"{pluralize(self.published, 'event')}{numbers}"


def _describe_node(node: Address, problem: str | None) -> str:
    place = format_address(node)
    if problem is None:
        return f"{place} accepts events"
    return f"{place}: {problem}, retrying; {_ADVICE.get(problem, _DEFAULT_ADVICE)}"


async def publish_over_tcp(options: argparse.Namespace, nodes: Sequence[str], reactor: Any) -> int:
    """Run the command over TCP and return its exit status."""
    publisher = ParcelsPublisher(
        [parse_address(node) for node in nodes],
        options.cluster,
        name=options.name,
        secret=secret_from_options(options),
        timeout=options.timeout,
        endpoint_for=endpoint_factory_from(options.dial) if options.dial else tcp_endpoint,
        on_node_warning=lambda node, problem: lines.print_message(_describe_node(node, problem)),
        reactor=reactor,
    )
    numbers = StandardOutput() if options.numbers else None
    lines = EventPublisher(publisher.publish, numbers)
    return await _publish_lines(options, lines, numbers, publisher.close, reactor)


async def publish_over_http(options: argparse.Namespace, client: ParcelsClient, reactor: Any) -> int:
    """Run the command over HTTP and return its exit status."""
    expected = None if options.expect is None else count(options.expect)

    def publish(line: bytes) -> Deferred[int]:
        return client.publish(line, expect=None if expected is None else next(expected))

    numbers = StandardOutput() if options.numbers else None
    return await _publish_lines(options, EventPublisher(publish, numbers), numbers, client.close, reactor)


async def _publish_lines(
    options: argparse.Namespace,
    lines: EventPublisher,
    numbers: StandardOutput | None,
    close: Callable[[], Deferred[None]],
    reactor: Any,
) -> int:
    descriptor = open_input(options.file)
    if numbers is not None:
        numbers.open(reactor)
        numbers.register(lines)
    patience = None
    try:
        await lines.read(descriptor, reactor)
    except CancelledError:
        lines.end_with("interrupted")
        patience = 1.0
    await close()
    if numbers is not None:
        numbers.end()
        await numbers.wait_closed(reactor, patience)
    print(lines.summary(), file=sys.stderr)
    if lines.problem is None:
        return 0
    unknown = f", of which {lines.unknown:,} may still be ordered" if lines.unknown else ""
    missing = lines.lines_read - lines.published
    return print_error(f"{missing:,} of {pluralize(lines.lines_read, 'event')} not ordered{unknown}: {lines.problem}")
