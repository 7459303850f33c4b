"""``fyrehose parcels publish``: publish an event a line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import NotOrdered
from fyrehose_twisted.net.addresses import endpoints_from, parse_place, show_place, tcp_endpoint
from fyrehose_twisted.parcels.client.node_warnings import NO_ANSWER
from fyrehose_twisted.parcels.client.tcp_publisher import ParcelsPublisher
from fyrehose_twisted.parcels.wire.messages import MAX_EVENT
from fyrehose_twisted.process.terminal import LinePublisher, StandardOutput, complain, open_input, secret_of
from fyrehose_twisted.wording import counted

MOST_EVENTS, MOST_BYTES = 10_000, 2 * 2**20
"""What may be under way at once; far less than the publisher would take, whose count has a head for each event."""

_ADVICE = {
    "refused": "start the node, or name another with --node",
    NO_ANSWER: "see why the node hangs, or name another with --node",
}
_OTHERWISE = "see the log of the node, or name another with --node"


class EventPublisher(LinePublisher):
    """Publishes lines to a cluster. After the first that is not ordered, no more are read.

    :param numbers: where to print the numbers; ``None`` for nowhere.
    :ivar lowest: of the numbers.
    :ivar highest: of the numbers.
    :ivar unknown: lines that failed, and may be ordered all the same.
    """

    def __init__(self, publisher: ParcelsPublisher, numbers: StandardOutput | None) -> None:
        super().__init__(MAX_EVENT, "events")
        self.lowest = self.highest = 0
        self.unknown = 0
        self._publisher = publisher
        self._numbers = numbers
        self._events = 0
        self._bytes = 0
        self._printing = True
        self._room: Deferred[None] | None = None

    async def when_room(self) -> None:
        while not self._has_room:
            self._room = Deferred()
            await self._room

    @property
    def _has_room(self) -> bool:
        return self._stopped or (self._printing and self._events < MOST_EVENTS and self._bytes < MOST_BYTES)

    def publish(self, line: bytes) -> Deferred[int]:
        self._events += 1
        self._bytes += len(line)
        return self._publisher.publish(line).addBoth(self._over, len(line))

    def _over(self, result: Any, size: int) -> Any:
        self._events -= 1
        self._bytes -= size
        self._let_in()
        return result

    def _let_in(self) -> None:
        if self._room is not None and self._has_room:
            room, self._room = self._room, None
            room.callback(None)

    def came_back(self, line: int, sequence: int) -> None:
        self.lowest = sequence if self.published == 1 else min(self.lowest, sequence)
        self.highest = max(self.highest, sequence)
        if self._numbers is not None and not self._numbers.closed.called:
            self._numbers.write(b"%d\n" % sequence)

    def failed(self, line: int, error: BaseException | None) -> None:
        unknown = isinstance(error, NotOrdered) and error.unknown
        self.unknown += unknown
        why = f"{error.why}: " if isinstance(error, NotOrdered) else ""
        what = "it may be ordered all the same" if unknown else "it will not be ordered"
        self.end_with(f"line {line:,}: {why}{error}; {what}")

    def end_with(self, problem: object) -> None:
        """Read no more, because of ``problem``; what is under way goes on."""
        self.end(problem)
        self._let_in()

    # A producer, as far as the numbers are concerned: who does not take them gets no more.

    def pauseProducing(self) -> None:
        """Twisted: enough for now."""
        self._printing = False

    def resumeProducing(self) -> None:
        """Twisted: go on."""
        self._printing = True
        self._let_in()

    def stopProducing(self) -> None:
        """Twisted: nobody takes numbers any more, which is no reason to publish no more."""
        self.resumeProducing()

    def summary(self) -> str:
        """Return what was done."""
        numbers = f", numbers {self.lowest:,} to {self.highest:,}" if self.published else ""
        return f"{counted(self.published, 'event')}{numbers}"


def _describe(node: Address, trouble: str | None) -> str:
    place = show_place(node)
    if trouble is None:
        return f"{place} takes events"
    return f"{place}: {trouble}, trying again; {_ADVICE.get(trouble, _OTHERWISE)}"


async def publish(options: argparse.Namespace, nodes: Sequence[str], reactor: Any) -> int:
    """Run the command and return its exit status."""
    publisher = ParcelsPublisher(
        [parse_place(node) for node in nodes],
        options.cluster,
        name=options.name,
        secret=secret_of(options),
        timeout=options.timeout,
        endpoint_for=endpoints_from(options.dial) if options.dial else tcp_endpoint,
        on_trouble=lambda node, trouble: lines.say(_describe(node, trouble)),
        reactor=reactor,
    )
    descriptor = open_input(options.file)
    numbers = StandardOutput() if options.numbers else None
    lines = EventPublisher(publisher, numbers)
    if numbers is not None:
        numbers.open(reactor)
        numbers.register(lines)
    patience = None
    try:
        await lines.read(descriptor, reactor)
    except CancelledError:
        lines.end_with("interrupted")
        patience = 1.0
    await publisher.close()
    if numbers is not None:
        numbers.end()
        await numbers.emptied(reactor, patience)
    print(lines.summary(), file=sys.stderr)
    if lines.problem is None:
        return 0
    unknown = f", of which {lines.unknown:,} may be ordered all the same" if lines.unknown else ""
    missing = lines.seen - lines.published
    return complain(f"{missing:,} of {counted(lines.seen, 'event')} not ordered{unknown}: {lines.problem}")
