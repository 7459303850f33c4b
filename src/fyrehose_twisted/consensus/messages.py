"""Log entries, memberships and messages of Raft.

The content of an entry and the data attached to a member belong to the user. Consensus only stores and forwards them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple


class MemberId(NamedTuple):
    """A voter: the name of a node and one incarnation of it. A node that starts without memory is a new member."""

    name: str
    incarnation: int
    """Unsigned, 63 bits; drawn at random when a node starts without memory."""

    def __str__(self) -> str:
        return f"{self.name}#{self.incarnation:016x}"


class Membership(NamedTuple):
    """The voters, each with data that the user attaches, such as an address."""

    members: tuple[tuple[MemberId, Any], ...]

    @property
    def quorum(self) -> int:
        """Number of members that have to agree."""
        return len(self.members) // 2 + 1


class EntryKind(IntEnum):
    """Kinds of log entries. The values are stable, so that users can encode them."""

    DATA = 0
    """Content of the user."""
    MEMBERSHIP = 1
    NO_OP = 2
    """The first entry of a new leader's term."""


class LogEntry(NamedTuple):
    """One entry of the replicated log."""

    term: int
    kind: EntryKind
    content: Any
    """Content of the user, a :class:`Membership`, or ``None``, as :attr:`kind` says."""


class Snapshot(NamedTuple):
    """State that the log up to an entry resulted in."""

    index: int  # type: ignore[assignment]  # Shadows tuple.index, which is not used.
    term: int
    data: bytes


class RequestVote(NamedTuple):
    """Request for a vote."""

    term: int
    last_index: int
    last_term: int
    trial: bool
    """Pre-vote: asks only whether the vote would be granted."""


class ForcedRequestVote(NamedTuple):
    """Request for a vote even though the voter has a leader: that leader sent :class:`StartElection`."""

    term: int
    """Term of that leader, plus one."""
    last_index: int
    last_term: int


class StartElection(NamedTuple):
    """Order of the leader to start an election, by which it transfers the leadership to the receiver."""

    term: int


class RequestVoteReply(NamedTuple):
    """Reply to :class:`RequestVote` and :class:`ForcedRequestVote`."""

    term: int
    granted: bool
    trial: bool


class AppendEntries(NamedTuple):
    """Entries for a follower's log, and the leader's commit index. Without entries, a heartbeat."""

    term: int
    previous: int
    """Index of the entry before the first. Indexes start at 1."""
    previous_term: int
    commit: int
    entries: Sequence[LogEntry]


class AppendEntriesReply(NamedTuple):
    """Reply to an :class:`AppendEntries` and to all before it."""

    term: int
    taken: bool
    index: int  # type: ignore[assignment]  # Shadows tuple.index, which is not used.
    """Index up to which the logs match. If the entries were rejected, the index to retry after."""


class InstallSnapshot(NamedTuple):
    """One chunk of a snapshot, for a follower that needs entries the leader has already compacted."""

    term: int
    index: int  # type: ignore[assignment]  # Shadows tuple.index, which is not used.
    """Index of the last entry that the snapshot covers."""
    index_term: int
    """Term of that entry."""
    offset: int
    total: int
    data: bytes


class InstallSnapshotReply(NamedTuple):
    """Reply to :class:`InstallSnapshot`."""

    term: int
    index: int  # type: ignore[assignment]  # Shadows tuple.index, which is not used.
    offset: int
    """Bytes of the snapshot received so far."""


RaftMessage = (
    RequestVote
    | RequestVoteReply
    | AppendEntries
    | AppendEntriesReply
    | InstallSnapshot
    | InstallSnapshotReply
    | ForcedRequestVote
    | StartElection
)
"""All messages. The last two occur only in groups that use :meth:`RaftMember.transfer
<fyrehose_twisted.consensus.member.RaftMember.transfer>`."""
