"""When to ask for what is missing, how often, and when to give up."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from random import Random
from typing import NamedTuple

from fyrehose_twisted.fyrehose.config import RepairConfig
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.token_bucket import TokenBucket

MAX_RANGE = 1_024
"""Numbers that one REQUEST asks for at most."""

MEMORY_OF_REQUESTS = 30.0
"""Seconds for which, at least, an answer is taken for one; twice as long at most."""

PAUSE = 0.005
"""Seconds to wait when a limit is reached."""

DOUBT_INTERVAL = 3.0
"""Seconds between REQUESTs for numbers of which it is not certain that they exist."""

MAX_REMEMBERED_RANGES = 65_536

LONGEST_SEARCH = 64
"""REQUESTs for a number at most, while the backbone still has clients to ask."""

MAX_PLANNED = 131_072
"""Entries of the schedule from which on it is planned anew, with one for each gap."""


class Due(NamedTuple):
    """What :meth:`Repairs.due` decided."""

    requests: list[tuple[int, int]]
    given_up: list[tuple[int, int]]


class Repairs:
    """The schedule of REQUESTs for gaps."""

    def __init__(self, config: RepairConfig, rng: Random, now: float) -> None:
        self.config = config
        self.bucket = TokenBucket(config.rate, config.rate, now)
        self._rng = rng
        self._schedule: list[tuple[float, int, int, int, int]] = []
        self._held: list[tuple[int, int, int]] = []
        self._held_until = now
        self._blocked_until = now
        self._in_flight = RangeSet()
        self._unanswered = RangeSet()
        self._refused = RangeSet()
        self._doubted = RangeSet()
        self._searched = RangeSet()
        self._arrivals = 0
        self._asked = RangeSet()
        self._asked_before = RangeSet()
        self._asked_until = now + MEMORY_OF_REQUESTS

    def __len__(self) -> int:
        """Return how many entries the schedule has."""
        return len(self._schedule) + len(self._held)

    def gap_found(self, first: int, last: int, now: float) -> None:
        """Plan to ask for ``first`` to ``last`` unless they come by themselves."""
        heapq.heappush(self._schedule, (now + self.config.reorder_delay, first, last, 0, -1))

    def doubted(self, first: int, last: int, now: float, *, until: float) -> None:
        """It is not certain that ``first`` to ``last`` exist: ask once more after a while, or when doubts end."""
        self._doubted.add(first, last)
        again_at = min(now + DOUBT_INTERVAL, until)
        heapq.heappush(self._schedule, (again_at, first, last, self.config.attempts - 1, -1))

    def searched(self, first: int, last: int, left: int) -> None:
        """``left`` clients have yet to be asked for ``first`` to ``last``: while there are any, do not give up."""
        if left:
            self._searched.add(first, last)
        else:
            self._searched.discard(first, last)
        self._limit_searched()

    def settled(self, first: int, last: int) -> None:
        """``first`` to ``last`` are given up, in doubt or not."""
        self._doubted.discard(first, last)

    def certain(self, first: int, last: int, now: float) -> list[tuple[int, int]]:
        """``first`` to ``last``, whose attempts are used up, exist: return what can be given up.

        What was in doubt cannot yet, for nobody had it when it was asked for: its attempts start over.
        """
        given_up = list(self._doubted.gaps(first, last))
        for start, end in list(self._doubted.intersection(first, last)):
            self._doubted.discard(start, end)
            self.gap_found(start, end, now)
        return given_up

    def arrived(self, sequence: int) -> bool:
        """A number that was missing is here; say whether it was asked for."""
        asked = sequence in self._in_flight
        if asked:
            self._arrivals += 1
            self._in_flight.discard(sequence)
            self._unanswered.discard(sequence)
        for doubtful in (self._refused, self._doubted, self._searched):
            if doubtful:
                doubtful.discard(sequence)
        self._limit_searched()
        return asked

    def refused(self, sequence: int) -> None:
        """A number came and found no room: it can be had, so its attempts start over when they are used up."""
        self._refused.add(sequence)

    def next_deadline(self) -> float | None:
        """Return when :meth:`due` has work."""
        scheduled = max(self._schedule[0][0], self._blocked_until) if self._schedule else None
        if not self._held:
            return scheduled
        return self._held_until if scheduled is None else min(scheduled, self._held_until)

    def due(self, missing: RangeSet, now: float, *, hold_from: int | None = None) -> Due:
        """Return what to ask for now, and what has been asked for often enough.

        :param missing: what is still missing; everything else is forgotten.
        :param hold_from: there is no room for this number and those above it now, so ask for them later.
        """
        due = Due([], [])
        if len(self) > max(MAX_PLANNED, 2 * len(missing)):
            self._plan_anew(missing, now)
        schedule = self._schedule
        if self._held and now >= self._held_until:
            for first, last, attempt in self._held:
                heapq.heappush(schedule, (now, first, last, attempt, -1))
            self._held.clear()
        blocked = now < self._blocked_until
        while schedule and schedule[0][0] <= now and not blocked:
            due_at, first, last, attempt, arrivals = heapq.heappop(schedule)
            while schedule and schedule[0][:2] == (due_at, last + 1) and schedule[0][3:] == (attempt, arrivals):
                last = heapq.heappop(schedule)[2]
            # If nothing at all has come since it was asked for, nobody is sending, and there is no traffic to limit:
            # otherwise a large hole, such as a power failure leaves, would take minutes to give up.
            silent = arrivals == self._arrivals
            self._in_flight.discard(first, last)
            self._unanswered.discard(first, last)
            if hold_from is not None and last >= hold_from:
                held = max(first, hold_from)
                if next(missing.intersection(held, last), None) is not None:
                    self._held.append((held, last, attempt))
                last = held - 1
            for start, end in missing.intersection(first, last):
                if attempt >= self.config.attempts and not self._goes_on(start, end, attempt):
                    self._give_up(start, end, now, due)
                    continue
                position = self._ask(start, end, attempt, now, due, silent)
                if position <= end:
                    heapq.heappush(schedule, (now, position, last, attempt, arrivals))
                    self._blocked_until, blocked = now + PAUSE, True
                    break
        if now >= self._held_until:
            self._held_until = now + self.config.first_retry
        return due

    def note_asked(self, first: int, last: int, now: float) -> None:
        """Remember that ``first`` to ``last`` were asked for, so that :meth:`was_asked` lets answers in."""
        self._forget_old_requests(now)
        self._asked.add(first, last)

    def was_asked(self, sequence: int, now: float) -> bool:
        """Say whether ``sequence`` was asked for lately."""
        self._forget_old_requests(now)
        return sequence in self._asked or sequence in self._asked_before

    def _forget_old_requests(self, now: float) -> None:
        if now >= self._asked_until + MEMORY_OF_REQUESTS:
            self._asked = RangeSet()
        if now >= self._asked_until or len(self._asked) >= MAX_REMEMBERED_RANGES:
            self._asked_before, self._asked = self._asked, RangeSet()
            self._asked_until = now + MEMORY_OF_REQUESTS

    def backoff(self, attempt: int) -> float:
        """Return the seconds to wait for an answer to attempt number ``attempt``, from 0, with jitter."""
        wait = min(self.config.first_retry * 2.0**attempt, self.config.last_retry)
        return wait * (0.75 + 0.5 * self._rng.random())

    def _limit_searched(self) -> None:
        if len(self._searched) > MAX_REMEMBERED_RANGES:
            self._searched.clear()  # What is asked for again is told again.

    def _plan_anew(self, missing: RangeSet, now: float) -> None:
        """Plan one attempt for each gap: numbers that came and were pushed out by others, again and again and each on
        its own, have an entry for every time. A gap has had as many attempts as its first number."""
        planned = sorted([entry[1:4] for entry in self._schedule] + self._held)
        self._held.clear()
        self._in_flight, self._unanswered = RangeSet(), RangeSet()
        self._schedule = []
        for first, last in missing:
            position = bisect_right(planned, first, key=lambda entry: entry[0]) - 1
            attempt = planned[position][2] if position >= 0 and planned[position][1] >= first else 0
            self._schedule.append((now, first, last, attempt, -1))

    def _goes_on(self, start: int, end: int, attempt: int) -> bool:
        """Say whether clients have yet to be asked for a part of ``start`` to ``end``."""
        return attempt < LONGEST_SEARCH and any(self._searched.intersection(start, end))

    def _give_up(self, start: int, end: int, now: float, due: Due) -> None:
        self._searched.discard(start, end)
        due.given_up.extend(self._refused.gaps(start, end))
        for first, last in list(self._refused.intersection(start, end)):
            self._refused.discard(first, last)
            self.gap_found(first, last, now)

    def _ask(self, start: int, end: int, attempt: int, now: float, due: Due, silent: bool) -> int:
        """Ask for as much of ``start`` to ``end`` as the limits allow; return the first number not asked for."""
        while start <= end:
            expected = self._in_flight.count - self._unanswered.count
            if (expected >= self.config.in_flight and not silent) or not self.bucket.take(1, now):
                return start
            stop = min(end, start + MAX_RANGE - 1)
            due.requests.append((start, stop))
            self.note_asked(start, stop, now)
            self._in_flight.add(start, stop)
            if silent:
                self._unanswered.add(start, stop)
            heapq.heappush(self._schedule, (now + self.backoff(attempt), start, stop, attempt + 1, self._arrivals))
            start = stop + 1
        return start
