"""Events of a node for its application."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from typing import NamedTuple


class Role(Enum):
    """Role of a node in its network (document 002).

    :data:`fyrehose_twisted.hydra.node.roles.TRANSITIONS` lists the role changes.
    """

    OUTSIDER = "outsider"
    """Member of no network; knocks at peers."""
    COHORT = "cohort"
    """Member of a network, not its leader."""
    LEADER = "leader"
    """Only node that may connect to IRC."""
    VOTER = "voter"
    """In an election, pledged to another node."""
    NOMINEE = "nominee"
    """In an election, nominated itself."""
    GONE = "gone"
    """Stopped by the application."""


class Outcome(Enum):
    """Outcome of a line for IRC."""

    SAID = "said"
    """The IRC server has it: it answered a PING that was sent after the line."""
    UNCERTAIN = "uncertain"
    """Unknown: the server may have it. The line is not resent."""
    REFUSED = "refused"
    """The line, or a part of it, was not said. It is not resent."""


class OpenIrc(NamedTuple):
    """Request to connect to IRC.

    The application then calls ``irc_opened``, or ``irc_closed`` once the transport is closed.
    """

    term: int


class CloseIrc(NamedTuple):
    """Request to close the IRC connection, or to abort the connection attempt, at once.

    The application then calls ``irc_closed``.
    """

    reason: str
    graceful: bool = True
    """Whether to send QUIT first; ``False`` if the server is unresponsive."""


class ToIrc(NamedTuple):
    """Request to write a line, without CR LF, to IRC at once, unless :attr:`deadline` has passed.

    The deadline is on the node's clock. The application then calls ``irc_handed`` with the result.
    """

    line: bytes
    deadline: float
    line_id: str | None = None
    """Unique id of the line, ``None`` if it has none."""
    number: int = 0
    """Sequence number of this node's lines to IRC."""


class AskIrc(NamedTuple):
    """Request to send a PING to the IRC server.

    After the reply, and after delivering everything received before it, the application calls ``irc_answered`` with
    the number. This acknowledges all lines up to that number.
    """

    number: int


class LinesReceived(NamedTuple):
    """Next lines of the term from IRC."""

    term: int
    first: int
    """Number of the first line."""
    lines: Sequence[bytes]
    """Lines as the leader read them. Lines said by nodes begin with a tag, see
    :mod:`fyrehose_twisted.hydra.wire.lines`."""


class LinesMissed(NamedTuple):
    """Gap: lines ``first`` to ``last`` of the term did not reach this node."""

    term: int
    first: int
    last: int


class StateWanted(NamedTuple):
    """Request of a node for a snapshot of the application's state; only the leader gets it."""

    id: int
    """Id of the requesting node."""


class LineOutcome(NamedTuple):
    """Outcome of a line that the application submitted."""

    token: Hashable
    outcome: Outcome
    reason: str
    """Short stable reason, empty for :attr:`Outcome.SAID`."""


class RoleChanged(NamedTuple):
    """Role change of this node."""

    role: Role
    why: str


class LeaderChanged(NamedTuple):
    """Change of the leader."""

    term: int
    leader: int | None
    tag: str
    """Tag of the leader, empty if unknown."""


class IdChanged(NamedTuple):
    """New id of this node; ``None`` if it has none."""

    id: int | None


class NodeRegistered(NamedTuple):
    """A node joined the network."""

    id: int


class NodeDropped(NamedTuple):
    """A node was removed from the network."""

    id: int
    reason: str


class LeftNetwork(NamedTuple):
    """This node has left the network; its links may be closed once their output is flushed."""


class OperatorWarning(NamedTuple):
    """Warning for the operator."""

    text: str


Event = (
    OpenIrc
    | CloseIrc
    | ToIrc
    | AskIrc
    | LinesReceived
    | LinesMissed
    | StateWanted
    | LineOutcome
    | RoleChanged
    | LeaderChanged
    | IdChanged
    | NodeRegistered
    | NodeDropped
    | LeftNetwork
    | OperatorWarning
)
