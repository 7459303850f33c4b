"""History of a relay: the latest messages, from which it answers REQUESTs and FORWARDs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zope.interface import classImplements

from fyrehose_twisted.effects import Burst
from fyrehose_twisted.fyrehose.node.backbone.retransmit_buffer import RetransmitBuffer
from fyrehose_twisted.fyrehose.wire.codec import DATA_HEADER, encode_deliver
from fyrehose_twisted.interfaces import IMessageStore
from fyrehose_twisted.ranges import RangeSet

MESSAGE_OVERHEAD = 160
"""Bytes of memory for each message behind a gap, in addition to its DELIVER."""


class RelayHistory:
    """Latest messages of a stream, in one piece in a retransmit buffer, and behind gaps one by one.

    It is the message store of the relay as a client, so that the messages are in memory once.

    :param buffer: takes the messages without a gap, and limits what is stored.
    """

    def __init__(self, buffer: RetransmitBuffer) -> None:
        self._buffer = buffer
        self.has_begun = False
        """Whether the first number is known."""
        self._ahead: dict[int, bytes] = {}
        self._ahead_size = 0
        self._absent = RangeSet()
        """Numbers in the buffer without a message."""
        self._unconfirmed = RangeSet()
        """Numbers whose messages other clients have sent, and not the parent."""

    @property
    def ahead_size(self) -> int:
        """Bytes in use behind gaps."""
        return self._ahead_size

    def begin(self, first: int) -> None:
        """Forget all messages, and begin with number ``first``."""
        self.has_begun = True
        self._buffer.begin(first)
        self._ahead.clear()
        self._ahead_size = 0
        self._absent.clear()
        self._unconfirmed.clear()

    def add(self, first: int, burst: Burst, *, confirmed: bool = True) -> None:
        """Add DELIVERs with consecutive numbers from ``first`` on, in any order of the numbers.

        :param confirmed: whether the parent sent them.
        """
        buffer = self._buffer
        if not confirmed:
            self._unconfirmed.add(first, first + len(burst.data) // burst.size - 1)
        if first == buffer.end and not self._ahead:
            buffer.append(first, bytes(burst.data), burst.size)
        else:
            for sequence, datagram in enumerate(burst.iter_datagrams(), first):
                if sequence == buffer.end:
                    buffer.append(sequence, bytes(datagram), len(datagram))
                elif sequence > buffer.end and sequence not in self._ahead:
                    self._add_ahead(sequence, bytes(datagram))
            self._close_gap()
        if self._absent:
            self._absent.discard(0, buffer.first - 1)
        if self._unconfirmed:
            self._unconfirmed.discard(0, buffer.first - 1)

    def has_passed(self, sequence: int) -> bool:
        """Return whether a message and all before it are stored, or were."""
        return sequence < self._buffer.end and sequence not in self._absent

    def skip(self, first: int, last: int) -> None:
        """Leave ``first`` to ``last``, which follow on what is stored, without a message."""
        buffer = self._buffer
        first = max(first, buffer.end)
        if first > last:
            return
        self._absent.add(first, last)
        for sequence in [sequence for sequence in self._ahead if sequence <= last]:
            self._take_ahead(sequence)
        buffer.skip(last)
        self._close_gap()

    def held(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges from ``first`` to ``last`` that are in the buffer."""
        first, last = max(first, self._buffer.first), min(last, self._buffer.end - 1)
        return self._absent.gaps(first, last) if first <= last else iter(())

    def confirmed(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges from ``first`` to ``last`` that the parent sent, if they are stored."""
        return self._unconfirmed.gaps(first, last)

    def unconfirmed(self, first: int, last: int, limit: int) -> list[int]:
        """Return the lowest numbers from ``first`` to ``last`` whose messages came from other clients."""
        numbers: list[int] = []
        for start, end in self._unconfirmed.intersection(first, last):
            numbers += range(start, min(end, start + limit - len(numbers) - 1) + 1)
            if len(numbers) >= limit:
                break
        return numbers

    def is_unconfirmed(self, sequence: int) -> bool:
        """Return whether a message came from another client."""
        return sequence in self._unconfirmed

    def is_plain(self, first: int, last: int) -> bool:
        """Return whether the parent has sent each of ``first`` to ``last`` that is in the buffer."""
        apart = (self._unconfirmed, self._absent)
        return all(next(numbers.intersection(first, last), None) is None for numbers in apart)

    def read_ahead(self, first: int, last: int) -> list[tuple[int, bytes]]:
        """Return the numbers from ``first`` to ``last`` that are stored behind gaps, with their DATA."""
        if not self._ahead or last < self._buffer.end:
            return []
        held = [sequence for sequence in sorted(self._ahead) if first <= sequence <= last]
        return [(sequence, self._ahead[sequence][DATA_HEADER.size :]) for sequence in held]

    # As a message store

    def put(self, first: int, messages: Sequence[bytes], received_at: int = 0) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.put`. Only corrections: :meth:`add` takes the rest."""
        if first >= self._buffer.end and not self._ahead:
            return
        for sequence, data in enumerate(messages, first):
            held = self.get(sequence)
            if held is None:
                continue
            self._unconfirmed.discard(sequence)
            if held == data:
                continue
            if sequence in self._ahead:
                self._take_ahead(sequence)
                self._add_ahead(sequence, encode_deliver(sequence, data))
            else:
                self._buffer.replace(sequence, encode_deliver(sequence, data))

    def get(self, sequence: int) -> bytes | None:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.get`."""
        datagram: bytes | None = self._ahead.get(sequence)
        if datagram is None and self._buffer.first <= sequence < self._buffer.end and sequence not in self._absent:
            (sent,), _, _ = self._buffer.read(sequence, sequence, 0)
            datagram = bytes(sent.data if isinstance(sent, Burst) else sent)
        return None if datagram is None else datagram[DATA_HEADER.size :]

    def received_at(self, sequence: int) -> int | None:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.received_at`; a relay delivers to no application."""
        return None

    def lowest(self, first: int, last: int, limit: int) -> list[int]:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.lowest`."""
        numbers: list[int] = []
        for start, end in self.held(first, last):
            numbers += range(start, min(end, start + limit - len(numbers) - 1) + 1)
            if len(numbers) >= limit:
                return numbers
        numbers += sorted(sequence for sequence in self._ahead if first <= sequence <= last)
        return numbers[:limit]

    def _add_ahead(self, sequence: int, datagram: bytes) -> None:
        self._ahead[sequence] = datagram
        self._ahead_size += len(datagram) + MESSAGE_OVERHEAD
        while self._ahead_size > self._buffer.limit:
            self._take_ahead(max(self._ahead))

    def _take_ahead(self, sequence: int) -> bytes:
        datagram = self._ahead.pop(sequence)
        self._ahead_size -= len(datagram) + MESSAGE_OVERHEAD
        return datagram

    def _close_gap(self) -> None:
        buffer = self._buffer
        while buffer.end in self._ahead:
            datagram = self._take_ahead(buffer.end)
            buffer.append(buffer.end, datagram, len(datagram))


classImplements(RelayHistory, IMessageStore)
