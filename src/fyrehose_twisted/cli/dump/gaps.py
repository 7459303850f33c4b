"""Gaps in numbered streams, and their repair, as a capture shows them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from fyrehose_twisted.cli.dump.description import format_range
from fyrehose_twisted.effects import Address
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.wording import pluralize

MAX_STREAMS = 4_096
"""Streams that are followed. A new one beyond evicts the one that was silent for longest."""
MAX_GAPS = 256
"""Gaps that are kept for one stream. Of more, the lowest are forgotten."""


class StreamKey(NamedTuple):
    """A stream, as one receiver gets it."""

    name: str
    receiver: Address


class NumberedStream:
    """Numbers that one receiver of a stream was sent.

    :ivar missing: numbers between the lowest and the highest that were not sent.
    """

    def __init__(self) -> None:
        self.missing = RangeSet()
        self._gaps = RangeSet()
        """Gaps as they were noted, until they are repaired whole."""
        self._highest: int | None = None

    def add(self, number: int) -> Iterator[str]:
        """Yield notes on the gap that a number leaves, or on one that it closes."""
        highest = self._highest
        if highest is None or number == highest + 1:
            self._highest = number
        elif number > highest:
            yield self._miss(highest + 1, number - 1)
            self._highest = number
        elif number in self.missing:
            self.missing.discard(number)
            gap = self._gaps.range_of(number)
            if gap is not None and next(self.missing.intersection(*gap), None) is None:
                self._gaps.discard(*gap)
                yield f"{gap[1] - gap[0] + 1:,} repaired: {format_range(*gap)}"

    def skip(self, first: int, last: int) -> Iterator[str]:
        """Take numbers that were never given as not missing. Yield notes on gaps before them."""
        if self._highest is not None and last > self._highest:
            if first > self._highest + 1:
                yield self._miss(self._highest + 1, first - 1)
            self._highest = last

    def _miss(self, first: int, last: int) -> str:
        self.missing.add(first, last)
        self._gaps.add(first, last)
        while len(self.missing) > MAX_GAPS:
            oldest = next(iter(self.missing))
            self.missing.discard(*oldest)
            self._gaps.discard(*oldest)
        return f"{last - first + 1:,} missing: {format_range(first, last)}"


class GapTracker:
    """Streams by key."""

    def __init__(self) -> None:
        self._streams: OrderedDict[StreamKey, NumberedStream] = OrderedDict()

    def stream(self, key: StreamKey) -> NumberedStream:
        """Return the stream of a key."""
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= MAX_STREAMS:
                self._streams.popitem(last=False)
            stream = self._streams[key] = NumberedStream()
        else:
            self._streams.move_to_end(key)
        return stream

    def forget(self, key: StreamKey) -> None:
        """Forget a stream."""
        self._streams.pop(key, None)

    def summary(self) -> Iterator[tuple[StreamKey, str]]:
        """Yield the key of each stream with numbers that are still missing, and a note on them."""
        for key, stream in self._streams.items():
            if stream.missing:
                ranges = [format_range(*gap) for gap in stream.missing]
                more = f" and {pluralize(len(ranges) - 8, 'other gap')}" if len(ranges) > 8 else ""
                yield key, f"{stream.missing.count:,} still missing: {', '.join(ranges[:8])}{more}"
