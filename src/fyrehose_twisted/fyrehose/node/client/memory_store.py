"""Message store in memory, from which a client answers FORWARDs."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from zope.interface import classImplements

from fyrehose_twisted.fyrehose.config import DEFAULT_MEMORY_LIMIT
from fyrehose_twisted.interfaces import IMessageStore

MESSAGE_OVERHEAD = 160
"""Bytes of memory per message in addition to its data."""

MAX_GROUP_MESSAGES = 1_024
"""Maximum number of consecutive messages in one group."""


class _Group:
    """Messages with consecutive numbers that were added one after the other."""

    __slots__ = ("data", "first", "times")

    def __init__(self, first: int, data: list[bytes], times: list[int]) -> None:
        self.first = first
        self.data = data
        self.times = times

    @property
    def end(self) -> int:
        """Number after the last one."""
        return self.first + len(self.data)


class MemoryStore:
    """Store of the latest messages, up to ``limit`` bytes of memory including Python's overhead."""

    def __init__(self, limit: int = DEFAULT_MEMORY_LIMIT) -> None:
        self.limit = limit
        self.size = 0
        self._groups: list[_Group] = []
        self._firsts: list[int] = []
        self._insertion_order: deque[_Group] = deque()

    def put(self, first: int, messages: Sequence[bytes], received_at: int = 0) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.put`."""
        groups = self._groups
        if groups and groups[-1].first < first:
            position = len(groups)
        else:
            position = bisect_right(self._firsts, first + len(messages) - 1)
        if not position or groups[position - 1].end <= first:
            self._add(position, first, messages, received_at)
        else:
            for sequence, data in enumerate(messages, first):
                self._replace(sequence, data, received_at)
        while self.size > self.limit:
            self._evict(self._insertion_order[0])

    def get(self, sequence: int) -> bytes | None:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.get`."""
        group = self._find_group(sequence)
        return None if group is None else group.data[sequence - group.first]

    def received_at(self, sequence: int) -> int | None:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.received_at`."""
        group = self._find_group(sequence)
        return None if group is None else group.times[sequence - group.first]

    def lowest(self, first: int, last: int, limit: int) -> list[int]:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.lowest`."""
        held: list[int] = []
        for position in range(max(0, bisect_right(self._firsts, first) - 1), len(self._groups)):
            group = self._groups[position]
            if group.first > last or len(held) >= limit:
                break
            held += range(max(first, group.first), min(last + 1, group.end))
        return held[:limit]

    def __len__(self) -> int:
        return sum(len(group.data) for group in self._groups)

    def _find_group(self, sequence: int) -> _Group | None:
        position = bisect_right(self._firsts, sequence)
        if not position or self._groups[position - 1].end <= sequence:
            return None
        return self._groups[position - 1]

    def _add(self, position: int, first: int, messages: Sequence[bytes], received_at: int) -> None:
        count = len(messages)
        latest = self._insertion_order[-1] if self._insertion_order else None
        if latest is not None and latest.end == first and len(latest.data) + count <= MAX_GROUP_MESSAGES:
            latest.data += messages
            latest.times += [received_at] * count
        else:
            group = _Group(first, list(messages), [received_at] * count)
            self._groups.insert(position, group)
            self._firsts.insert(position, first)
            self._insertion_order.append(group)
        self.size += sum(map(len, messages)) + count * MESSAGE_OVERHEAD

    def _replace(self, sequence: int, data: bytes, received_at: int) -> None:
        group = self._find_group(sequence)
        if group is None:
            self._add(bisect_right(self._firsts, sequence), sequence, (data,), received_at)
            return
        row = sequence - group.first
        self.size += len(data) - len(group.data[row])
        group.data[row], group.times[row] = data, received_at

    def _evict(self, oldest: _Group) -> None:
        """Drop the oldest messages until the store is within its limit, or the group is empty."""
        excess, count = self.size - self.limit, 0
        for data in oldest.data:
            excess -= len(data) + MESSAGE_OVERHEAD
            count += 1
            if excess <= 0:
                break
        self.size = self.limit + excess
        position = bisect_right(self._firsts, oldest.first) - 1
        if count == len(oldest.data):
            self._insertion_order.popleft()
            del self._groups[position], self._firsts[position]
        else:
            del oldest.data[:count], oldest.times[:count]
            oldest.first += count
            self._firsts[position] = oldest.first


classImplements(MemoryStore, IMessageStore)
