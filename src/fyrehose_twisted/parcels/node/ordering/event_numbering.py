"""Replicated numbering state: sequence numbers of events, and sessions of publishers.

Every node applies the same entries in the same order and so reaches the same state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cbor2 import CBORDecodeError, dumps, loads

from fyrehose_twisted._native import mypyc_attr
from fyrehose_twisted.consensus.messages import LogEntry, MemberId, Membership
from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.parcels.node.log_entries import entry_runs
from fyrehose_twisted.parcels.node.ordering.history import SequencedRun
from fyrehose_twisted.parcels.node.ordering.publisher_sessions import ConditionFailed, PublisherSessions, RunPlacement
from fyrehose_twisted.parcels.wire.messages import PublisherRun, RefusalReason


@mypyc_attr(native_class=False)
class InvalidSnapshot(RemoteError):
    """A received snapshot is malformed."""


class RunResult(NamedTuple):
    """Result of applying one run of an entry."""

    run: PublisherRun
    placement: RunPlacement | ConditionFailed | RefusalReason


class EventNumbering:
    """Numbering state of one node. Nodes that applied the same entries have equal states.

    :ivar sequence: sequence number of the last event.
    :ivar cluster_id: id of the cluster; 0 before it is known.
    """

    def __init__(self) -> None:
        self.sequence = 0
        self.cluster_id = 0
        self.sessions = PublisherSessions()
        self.repeats = 0

    def apply(self, entry: LogEntry) -> tuple[list[RunResult], list[SequencedRun]]:
        """Apply the next entry; return the results of its runs, and its new events."""
        results: list[RunResult] = []
        sequenced: list[SequencedRun] = []
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
                    sequenced.append(SequencedRun(sequence + 1, run.publisher, run.epoch, run.first + skip, data))
                    sequence += new
        self.sequence = sequence
        return results, sequenced

    def dump(self, membership: Membership) -> bytes:
        """Serialize the state and the membership."""
        members = [[member.name, member.incarnation, *address] for member, address in membership.members]
        return dumps([self.sequence, self.cluster_id, members, self.sessions.dump()])

    def load(self, data: bytes) -> Membership:
        """Restore the state from :meth:`dump`; return the membership.

        :raises InvalidSnapshot: if ``data`` is malformed.
        """
        try:
            sequence, cluster_id, members, sessions = loads(data, max_depth=8)
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
            self.sequence, self.cluster_id = _unsigned(sequence), _unsigned(cluster_id)
        except (CBORDecodeError, TypeError, ValueError, IndexError) as error:
            raise InvalidSnapshot(f"{len(data):,} bytes are not a snapshot of the state: {error}") from error
        self.sessions = remembered
        return view


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r} is not text")
    return value


def _digest(value: Any = b"") -> bytes:
    # Snapshots of earlier versions have no digest.
    if type(value) is not bytes or len(value) not in (0, 16):
        raise TypeError(f"{value!r} is not a digest")
    return value


def _unsigned(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is not a whole number from 0 on")
    return value
