"""What a node tells its application."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from typing import NamedTuple


class Role(Enum):
    """What a node is in its network (document 002); :data:`fyrehose_twisted.hydra.node.roles.TRANSITIONS` has what
    changes it."""

    OUTSIDER = "outsider"
    """In no network; it knocks."""
    COHORT = "cohort"
    """A node like others."""
    LEADER = "leader"
    """The one that may hold the connection to IRC."""
    VOTER = "voter"
    """In an election, pledged to another."""
    NOMINEE = "nominee"
    """In an election, for itself."""
    GONE = "gone"
    """It was told to stop."""


class Outcome(Enum):
    """What became of a line for IRC."""

    SAID = "said"
    """IRC has it: its server answered something that was sent behind the line."""
    UNCERTAIN = "uncertain"
    """It may or may not have been; it will not be tried again."""
    REFUSED = "refused"
    """It was not, or not all of it, and it will not be tried again."""


class OpenIrc(NamedTuple):
    """Connect to IRC. Then call ``irc_opened``, or ``irc_closed`` once the transport is closed."""

    term: int


class CloseIrc(NamedTuple):
    """Close the connection to IRC, or give up opening it, at once; then call ``irc_closed``."""

    reason: str
    graceful: bool = True
    """Whether a goodbye may be written; a server that is silent does not read it."""


class ToIrc(NamedTuple):
    """Hand a line, without CR LF, to IRC, now, if it is before :attr:`deadline` by the clock that the node lives on.
    Then call ``irc_handed`` and say whether it was."""

    line: bytes
    deadline: float
    line_id: str | None = None
    """What tells the line apart from others; ``None`` for a line without."""
    number: int = 0
    """Counts what this node hands to IRC."""


class AskIrc(NamedTuple):
    """Send a PING to the IRC server. Once it is answered, and what came before the answer was told, call
    ``irc_answered`` with the number: all lines up to that one, IRC has seen."""

    number: int


class LinesReceived(NamedTuple):
    """Lines came from IRC, the next ones of the term."""

    term: int
    first: int
    """Number of the first."""
    lines: Sequence[bytes]
    """Each as the leader read it; those that nodes said begin with a tag, see
    :mod:`fyrehose_twisted.hydra.wire.lines`."""


class LinesMissed(NamedTuple):
    """Lines ``first`` to ``last`` of the term came from IRC, and not here."""

    term: int
    first: int
    last: int


class LineOutcome(NamedTuple):
    """What became of a line that the application wanted said."""

    token: Hashable
    outcome: Outcome
    reason: str
    """Short stable name of the reason, empty for :attr:`Outcome.SAID`."""


class RoleChanged(NamedTuple):
    """The node is something else now."""

    role: Role
    why: str


class LeaderChanged(NamedTuple):
    """Another node leads, or none that is known."""

    term: int
    leader: int | None
    tag: str
    """The leader's name, if it is known."""


class IdChanged(NamedTuple):
    """The node has a new id; ``None`` for none."""

    id: int | None


class NodeRegistered(NamedTuple):
    """A node belongs to the network."""

    id: int


class NodeDropped(NamedTuple):
    """A node does not belong to it any more."""

    id: int
    reason: str


class LeftNetwork(NamedTuple):
    """It has said goodbye; links may be closed once that is written."""


class OperatorWarning(NamedTuple):
    """Something that whoever runs the node should know."""

    text: str


Event = (
    OpenIrc
    | CloseIrc
    | ToIrc
    | AskIrc
    | LinesReceived
    | LinesMissed
    | LineOutcome
    | RoleChanged
    | LeaderChanged
    | IdChanged
    | NodeRegistered
    | NodeDropped
    | LeftNetwork
    | OperatorWarning
)
