"""What the entries of the log come to: which numbers events have, and what is remembered of publishers.

Every node takes the same entries in the same order, and so comes to the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cbor2 import CBORDecodeError, dumps, loads

from fyrehose_twisted.consensus.messages import LogEntry, MemberId, Membership
from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.parcels.node.log_entries import entry_runs
from fyrehose_twisted.parcels.node.ordering.history import SequencedRun
from fyrehose_twisted.parcels.node.ordering.publisher_sessions import PublisherSessions, RunPlacement
from fyrehose_twisted.parcels.wire.messages import PublisherRun, RefusalReason


class InvalidSnapshot(RemoteError):
    """What came as the state of the order is none."""


class RunResult(NamedTuple):
    """What became of one run of an entry."""

    run: PublisherRun
    placement: RunPlacement | RefusalReason


class EventNumbering:
    """What a node knows of the order.

    :ivar sequence: number of the last event.
    :ivar cluster_id: which cluster this is; 0 before that is known.
    """

    def __init__(self) -> None:
        self.sequence = 0
        self.cluster_id = 0
        self.sessions = PublisherSessions()
        self.repeats = 0

    def apply(self, entry: LogEntry) -> tuple[list[RunResult], list[SequencedRun]]:
        """Take the next entry; return what became of its runs, and its new events."""
        results: list[RunResult] = []
        stretches: list[SequencedRun] = []
        place = self.sessions.place
        sequence = self.sequence
        for run in entry_runs(entry):
            placed = place(run, sequence + 1)
            results.append(RunResult(run, placed))
            if isinstance(placed, RunPlacement):
                new, events = placed.new_count, run.events
                self.repeats += len(events) - new
                if new:
                    skip = len(events) - new
                    data = events[skip:] if skip else events
                    stretches.append(SequencedRun(sequence + 1, run.publisher, run.epoch, run.first + skip, data))
                    sequence += new
        self.sequence = sequence
        return results, stretches

    def dump(self, membership: Membership) -> bytes:
        """Return all of it, and who votes, as bytes."""
        members = [[member.name, member.incarnation, *address] for member, address in membership.members]
        return dumps([self.sequence, self.cluster_id, members, self.sessions.dump()])

    def load(self, data: bytes) -> Membership:
        """Replace all of it by what :meth:`dump` gave, and return who votes.

        :raises BadState: if that is something else.
        """
        try:
            sequence, founding, members, sessions = loads(data, max_depth=8)
            view = Membership(
                tuple(
                    (MemberId(_text(name), _unsigned(incarnation)), (_text(host), _unsigned(port)))
                    for name, incarnation, host, port in members
                )
            )
            remembered = PublisherSessions.load(
                [
                    (
                        _text(publisher),
                        _unsigned(epoch),
                        _unsigned(last),
                        [tuple(map(_unsigned, row)) for row in rows],
                        _digest(*digest),
                    )
                    for publisher, epoch, last, rows, *digest in sessions
                ]
            )
            self.sequence, self.cluster_id = _unsigned(sequence), _unsigned(founding)
        except (CBORDecodeError, TypeError, ValueError, IndexError) as error:
            raise InvalidSnapshot(f"{len(data):,} bytes are no state of the order: {error}") from error
        self.sessions = remembered
        return view


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r} is not text")
    return value


def _digest(value: Any = b"") -> bytes:
    # A state of an earlier version has none.
    if type(value) is not bytes or len(value) not in (0, 16):
        raise TypeError(f"{value!r} is no digest")
    return value


def _unsigned(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is not a whole number from 0 on")
    return value
