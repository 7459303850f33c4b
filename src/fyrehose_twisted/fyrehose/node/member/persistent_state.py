"""State that a member must not lose in a crash: its incarnation, term, vote and log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import cbor2

from fyrehose_twisted.consensus.log import RaftLog
from fyrehose_twisted.consensus.messages import LogEntry, MemberId, Membership, Snapshot
from fyrehose_twisted.fyrehose.node.backbone.sequencer import SequenceCheckpoint
from fyrehose_twisted.fyrehose.wire.member_messages import MemberData, NumberBounds, Seam

MAX_LOG_ENTRIES = 64
"""Number of log entries above which the committed ones become a snapshot."""


class MemberState(NamedTuple):
    """State of a member, which must be durable before the messages that depend on it are sent."""

    member: MemberId
    term: int
    voted_for: MemberId | None
    commit_index: int
    """Commit index. It may lag behind, except for membership changes."""
    snapshot: Snapshot
    """State up to the first of :attr:`entries`. Its index is 0 if nothing was compacted."""
    entries: tuple[LogEntry, ...]


class MemberCheckpoint(NamedTuple):
    """State that a member makes durable before its effects; ``None`` where nothing has changed."""

    sequence: SequenceCheckpoint | None
    member: MemberState | None


class GroupState(NamedTuple):
    """What the log of a group results in."""

    bounds: NumberBounds
    membership: Membership | None


EMPTY_GROUP = GroupState(NumberBounds(0, 0), None)


def encode_group(state: GroupState) -> bytes:
    """Return the data of a snapshot."""
    members = () if state.membership is None else state.membership.members
    return cbor2.dumps([*state.bounds, [[*member, *data] for member, data in members]])


def decode_group(data: bytes) -> GroupState:
    """Return the state in the data of a snapshot. :raises ValueError: if it is not one."""
    try:
        bound, kept, given, exact, seams, members = cbor2.loads(data)
        voters = tuple(
            (MemberId(str(name), int(incarnation)), MemberData(_address(client), _address(peer), bool(witness)))
            for name, incarnation, client, peer, witness in members
        )
        told = tuple(Seam(int(held_up_to), int(first)) for held_up_to, first in seams)
        return GroupState(
            NumberBounds(int(bound), int(kept), int(given), bool(exact), told), Membership(voters) if voters else None
        )
    except (cbor2.CBORDecodeError, TypeError, ValueError) as error:
        raise ValueError(f"a snapshot of {len(data)} bytes is damaged: {error}") from error


def _address(pair: Any) -> tuple[str, int]:
    host, port = pair
    return str(host), int(port)


def restore_log(state: MemberState | None, entry_size: Callable[[LogEntry], int] = lambda entry: 1) -> RaftLog:
    """Return the log of a member that starts with ``state``."""
    if state is None:
        return RaftLog(entry_size)
    log = RaftLog(entry_size, state.snapshot.index, state.snapshot.term)
    log.append(state.entries)
    return log
