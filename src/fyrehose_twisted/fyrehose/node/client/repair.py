"""Schedule of repair requests: timing, retries and loss detection."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from math import ceil, log2
from random import Random
from typing import NamedTuple

from fyrehose_twisted.fyrehose.config import RepairConfig
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.token_bucket import TokenBucket

MAX_RANGE = 1_024
"""Maximum range of one REQUEST."""

REQUEST_LIFETIME = 30.0
"""Minimum number of seconds for which answers to a REQUEST are accepted; the maximum is twice as long."""

THROTTLE_PAUSE = 0.005
"""Seconds to wait after a limit was reached."""

SUSPECT_RETRY_INTERVAL = 3.0
"""Seconds between REQUESTs for numbers that may not exist."""

MAX_REMEMBERED_RANGES = 65_536

MESSAGES_PER_REQUEST = 16
"""Messages of the backbone that allow another REQUEST beyond the configured rate. REQUESTs thus remain a small share of
the traffic that the backbone itself sends, but repair a loss of 5 % at any rate."""

MAX_SEARCH_ATTEMPTS = 64
"""Maximum number of REQUESTs for a number while the backbone still has clients to ask."""

MIN_RETRY, MIN_REORDER_DELAY = 0.01, 0.002
"""Minimum number of seconds before a second request, and before the first one, however short the round trip is."""

MAX_QUICK = 64
"""Maximum range whose answer is awaited for a round trip only. Answers to larger ones are paced."""

MAX_PLANNED = 131_072
"""Size of the schedule above which it is rebuilt with one entry per gap."""


class DueRepairs(NamedTuple):
    """Ranges to request, and ranges whose attempts are used up."""

    requests: list[tuple[int, int]]
    given_up: list[tuple[int, int]]


class RepairRoundTrip:
    """Round trip times from REQUESTs to their answers, and the waiting times that follow from them.

    :ivar retry: seconds after which a first answer counts as lost; at most ``first_retry`` of the configuration.
    :ivar reorder_delay: seconds to wait for a late datagram; at most ``reorder_delay`` of the configuration.
    """

    def __init__(self, config: RepairConfig) -> None:
        self.retry = config.first_retry
        self.reorder_delay = config.reorder_delay
        self._config = config
        self._sample: tuple[int, float] | None = None
        self._mean: float | None = None
        self._variation = 0.0
        self._patience = 1.0

    @property
    def awaited(self) -> int | None:
        """Number whose answer is measured, if any."""
        return None if self._sample is None else self._sample[0]

    def requested(self, first: int, last: int, attempt: int, now: float) -> None:
        """Record a REQUEST; of those that are answered, one at a time is measured."""
        if attempt and self._sample is not None and first <= self._sample[0] <= last:
            self._sample = None  # Its answer would be ambiguous.
        if not attempt and (self._sample is None or now >= self._sample[1] + self._config.first_retry):
            self._sample = last, now

    def arrived(self, sequence: int, now: float) -> None:
        """Record an answer."""
        if self._sample is None or self._sample[0] != sequence:
            return
        took = max(0.0, now - self._sample[1])
        self._sample = None
        if self._mean is None:
            self._mean, self._variation = took, took / 2
        else:
            self._variation += (abs(self._mean - took) - self._variation) / 4
            self._mean += (took - self._mean) / 8
        self._patience = max(1.0, self._patience * 0.98)
        self._adjust(self._mean)

    def requested_early(self) -> None:
        """Wait longer, because a number was requested that was only late."""
        self._patience = min(self._patience * 1.5, 64.0)
        if self._mean is not None:
            self._adjust(self._mean)

    def _adjust(self, mean: float) -> None:
        retry, delay = mean + 4 * self._variation, mean / 2
        self.retry = min(self._config.first_retry, self._patience * max(retry, MIN_RETRY))
        self.reorder_delay = min(self._config.reorder_delay, self._patience * max(delay, MIN_REORDER_DELAY))


class RepairScheduler:
    """Schedule of REQUESTs for gaps.

    :ivar spread: seconds by which the first REQUEST for a gap is delayed at most, at random.
    """

    def __init__(self, config: RepairConfig, rng: Random, now: float) -> None:
        self.config = config
        self.request_bucket = TokenBucket(config.rate, config.rate, now)
        self.spread = 0.0
        self._rng = rng
        self._schedule: list[tuple[float, int, int, int, int]] = []
        self._deferred: list[tuple[int, int, int]] = []
        self._deferred_until = now
        self._blocked_until = now
        self._in_flight = RangeSet()
        self._unanswered = RangeSet()
        self._refused = RangeSet()
        self._suspected = RangeSet()
        self._still_searched = RangeSet()
        self._arrivals = 0
        self._round_trip = RepairRoundTrip(config)
        self._requested = RangeSet()
        self._requested_before = RangeSet()
        self._requested_until = now + REQUEST_LIFETIME

    def __len__(self) -> int:
        """Return the number of entries in the schedule."""
        return len(self._schedule) + len(self._deferred)

    def messages_received(self, count: int) -> None:
        """Record new messages of the backbone, which allow more REQUESTs."""
        self.request_bucket.credit(count / MESSAGES_PER_REQUEST)

    def gap_found(self, first: int, last: int, now: float) -> None:
        """Schedule requests for ``first`` to ``last`` after the reorder delay."""
        due_at = now + self._round_trip.reorder_delay
        if self.spread:
            due_at += self.spread * self._rng.random()
        heapq.heappush(self._schedule, (due_at, first, last, 0, -1))

    def gaps_found(self, gaps: list[tuple[int, int]], now: float) -> None:
        """Schedule requests for all of ``gaps``, and clear the list.

        The delay depends on the round trip, so this precedes each measurement, independent of batch boundaries.
        """
        for first, last in gaps:
            self.gap_found(first, last, now)
        gaps.clear()

    def start_over(self, missing: RangeSet, now: float) -> None:
        """Start all attempts over: those so far may have gone to a backbone that was down, or no longer led."""
        self._schedule.clear()
        self._deferred.clear()
        self._rebuild_schedule(missing, now)

    def suspect_gap(self, first: int, last: int, now: float, *, until: float) -> None:
        """Schedule another request for numbers that may not exist, at ``until`` at the latest."""
        self._suspected.add(first, last)
        again_at = min(now + SUSPECT_RETRY_INTERVAL, until)
        heapq.heappush(self._schedule, (again_at, first, last, self._max_attempts - 1, -1))

    def search_progressed(self, first: int, last: int, left: int) -> None:
        """Record that ``left`` clients are still to be asked for ``first`` to ``last``, so these are not lost yet."""
        if left:
            self._still_searched.add(first, last)
        else:
            self._still_searched.discard(first, last)
        self._limit_still_searched()

    def mark_resolved(self, first: int, last: int) -> None:
        """Record that ``first`` to ``last`` are lost."""
        self._suspected.discard(first, last)

    def confirm_gap(self, first: int, last: int, now: float) -> list[tuple[int, int]]:
        """Record that ``first`` to ``last`` exist, after their attempts are used up. Return the ranges that are lost.

        The attempts for numbers that were in doubt start over, because no client may have had them at the time.
        """
        given_up = list(self._suspected.gaps(first, last))
        for start, end in list(self._suspected.intersection(first, last)):
            self._suspected.discard(start, end)
            self.gap_found(start, end, now)
        return given_up

    def arrived(self, sequence: int, now: float | None = None) -> bool:
        """Record that a missing number arrived. Return whether it was requested.

        :param now: time of its arrival; ``None`` if it did not come from the network.
        """
        return self.run_arrived(sequence, sequence, now) > 0

    def run_arrived(self, first: int, last: int, now: float | None) -> int:
        """Record that consecutive missing numbers arrived, as :meth:`arrived`. Return how many were requested."""
        in_flight, awaited = self._in_flight, self._round_trip.awaited
        if now is not None and awaited is not None and first <= awaited <= last and awaited in in_flight:
            self._round_trip.arrived(awaited, now)
        requested = in_flight.count
        in_flight.discard(first, last)
        requested -= in_flight.count
        self._arrivals += requested
        for ranges in (self._unanswered, self._refused, self._suspected, self._still_searched):
            if ranges:
                ranges.discard(first, last)
        if self._still_searched:
            self._limit_still_searched()
        return requested

    def arrived_twice(self, sequence: int) -> None:
        """Record that a number arrived again, so that it was requested too early if it was requested."""
        if sequence in self._requested:
            self._round_trip.requested_early()

    def arrival_refused(self, sequence: int) -> None:
        """Record that a number arrived while the buffer was full. Its attempts start over when they are used up."""
        self._refused.add(sequence)

    def next_deadline(self) -> float | None:
        """Return the time at which :meth:`take_due` is due, or ``None``."""
        scheduled = max(self._schedule[0][0], self._blocked_until) if self._schedule else None
        if not self._deferred:
            return scheduled
        return self._deferred_until if scheduled is None else min(scheduled, self._deferred_until)

    def take_due(self, missing: RangeSet, now: float, *, defer_from: int | None = None) -> DueRepairs:
        """Return the ranges to request now, and the ranges whose attempts are used up.

        :param missing: missing numbers; all others are discarded.
        :param defer_from: number from which on requests are deferred, because the buffer is full.
        """
        due = DueRepairs([], [])
        if len(self) > max(MAX_PLANNED, 2 * len(missing)):
            self._rebuild_schedule(missing, now)
        schedule = self._schedule
        if self._deferred and now >= self._deferred_until:
            for first, last, attempt in self._deferred:
                heapq.heappush(schedule, (now, first, last, attempt, -1))
            self._deferred.clear()
        blocked = now < self._blocked_until
        while schedule and schedule[0][0] <= now and not blocked:
            due_at, first, last, attempt, arrivals = heapq.heappop(schedule)
            while schedule and schedule[0][:2] == (due_at, last + 1) and schedule[0][3:] == (attempt, arrivals):
                last = heapq.heappop(schedule)[2]
            # If nothing has arrived since the request, no client is sending, and there is no traffic to limit.
            # Otherwise a large hole, such as after a power failure, would take minutes to count as lost.
            silent = arrivals == self._arrivals
            self._in_flight.discard(first, last)
            self._unanswered.discard(first, last)
            if defer_from is not None and last >= defer_from:
                held = max(first, defer_from)
                if next(missing.intersection(held, last), None) is not None:
                    self._deferred.append((held, last, attempt))
                last = held - 1
            for start, end in missing.intersection(first, last):
                if attempt >= self._max_attempts and not self._search_continues(start, end, attempt):
                    self._give_up(start, end, now, due)
                    continue
                position = self._request_range(start, end, attempt, now, due, silent)
                if position <= end:
                    heapq.heappush(schedule, (now, position, last, attempt, arrivals))
                    self._blocked_until, blocked = now + THROTTLE_PAUSE, True
                    break
        if now >= self._deferred_until:
            self._deferred_until = now + self.config.first_retry
        return due

    def record_request(self, first: int, last: int, now: float) -> None:
        """Record a request, so that :meth:`is_requested` accepts its answers."""
        self._forget_old_requests(now)
        self._requested.add(first, last)

    def is_requested(self, sequence: int, now: float) -> bool:
        """Return whether ``sequence`` was requested recently."""
        return self.is_run_requested(sequence, sequence, now)

    def is_run_requested(self, first: int, last: int, now: float) -> bool:
        """Return whether all of ``first`` to ``last`` were requested recently, in neighbouring ranges."""
        self._forget_old_requests(now)
        for requested in (self._requested, self._requested_before):
            within = requested.range_of(first)
            if within is not None and last <= within[1]:
                return True
        return False

    def _forget_old_requests(self, now: float) -> None:
        if now >= self._requested_until + REQUEST_LIFETIME:
            self._requested = RangeSet()
        if now >= self._requested_until or len(self._requested) >= MAX_REMEMBERED_RANGES:
            self._requested_before, self._requested = self._requested, RangeSet()
            self._requested_until = now + REQUEST_LIFETIME

    @property
    def _max_attempts(self) -> int:
        """Number of attempts before a number counts as lost; quick ones at the start do not shorten the time."""
        return self.config.attempts + ceil(log2(max(1.0, self.config.first_retry / self._round_trip.retry)))

    def backoff(self, attempt: int, count: int = 1) -> float:
        """Return the seconds to wait for ``count`` answers to attempt number ``attempt``, from 0, with jitter."""
        first = self._round_trip.retry if count <= MAX_QUICK else self.config.first_retry
        wait = min(first * 2.0**attempt, self.config.last_retry)
        return wait * (0.75 + 0.5 * self._rng.random())

    def _limit_still_searched(self) -> None:
        if len(self._still_searched) > MAX_REMEMBERED_RANGES:
            self._still_searched.clear()  # The backbone reports again upon the next REQUEST.

    def _rebuild_schedule(self, missing: RangeSet, now: float) -> None:
        """Replace the schedule by one attempt per gap.

        Numbers that arrived and were displaced repeatedly have many entries. A gap takes over the attempts of its first
        number.
        """
        planned = sorted([entry[1:4] for entry in self._schedule] + self._deferred)
        self._deferred.clear()
        self._in_flight, self._unanswered = RangeSet(), RangeSet()
        self._schedule = []
        for first, last in missing:
            position = bisect_right(planned, first, key=lambda entry: entry[0]) - 1
            attempt = planned[position][2] if position >= 0 and planned[position][1] >= first else 0
            self._schedule.append((now, first, last, attempt, -1))

    def _search_continues(self, start: int, end: int, attempt: int) -> bool:
        """Return whether clients are still to be asked for a part of ``start`` to ``end``."""
        return attempt < MAX_SEARCH_ATTEMPTS and any(self._still_searched.intersection(start, end))

    def _give_up(self, start: int, end: int, now: float, due: DueRepairs) -> None:
        self._still_searched.discard(start, end)
        due.given_up.extend(self._refused.gaps(start, end))
        for first, last in list(self._refused.intersection(start, end)):
            self._refused.discard(first, last)
            self.gap_found(first, last, now)

    def _request_range(self, start: int, end: int, attempt: int, now: float, due: DueRepairs, silent: bool) -> int:
        """Request as much of ``start`` to ``end`` as the limits allow. Return the first number not requested."""
        while start <= end:
            expected = self._in_flight.count - self._unanswered.count
            if (expected >= self.config.in_flight and not silent) or not self.request_bucket.take(1, now):
                return start
            stop = min(end, start + MAX_RANGE - 1)
            due.requests.append((start, stop))
            self.record_request(start, stop, now)
            self._in_flight.add(start, stop)
            if silent:
                self._unanswered.add(start, stop)
            again_at = now + self.backoff(attempt, stop - start + 1)
            heapq.heappush(self._schedule, (again_at, start, stop, attempt + 1, self._arrivals))
            self._round_trip.requested(start, stop, attempt, now)
            start = stop + 1
        return start
