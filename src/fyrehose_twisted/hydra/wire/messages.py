"""The thirteen messages between nodes (document 002), each one line on the wire.

Ids are unsigned 32-bit numbers; no node has id 0. IRC lines are bytes without CR LF. Other text is ``str``; bytes that
are not UTF-8 are kept as surrogates.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_ID = 2**32 - 1
"""Highest node id."""
MAX_TERM = 2**63 - 1
"""Highest term, and highest line number."""
MAX_VAL = 32
"""Largest token of a PING in bytes."""
MAX_TAG = 64
"""Largest tag of a node in bytes."""
MAX_REASON = 200
"""Largest reason of a DROP in bytes."""
MAX_IRC = 510
"""Largest IRC line in bytes, without CR LF and tags."""
MAX_LINE = 1_100
"""Largest line between nodes in bytes, without CR LF: an IRC line with its tag and framing."""
LEGACY_MAX_LINE = 510
"""Largest line in bytes for the reference implementation, which splits longer ones."""
LEGACY_TAG = "Hebi"
"""Tag of the reference implementation. A peer that knocks with it is a legacy peer."""
GUARDIAN_TAG = "~guardian"
"""Tag of a guardian process. Its link carries nothing but the DROP of its node."""

NO_QUORUM_PREFIX = "~"
"""Prefix of the val of a PING whose network has no quorum yet. A PONG to it makes no promise to the leader."""

NOT_INDUCTED = "not inducted"
"""Prefix of the reason of a DROP that only withdraws a KNOCK. A registered node stays registered."""

E_SEND = frozenset((b"JOIN", b"PART", b"PRIVMSG", b"NOTICE", b"MODE", b"TOPIC", b"KICK"))
"""IRC commands that a SEND may carry."""
E_RECV = E_SEND | {b"QUIT"}
"""IRC commands that are relayed as RECV."""
SENDABLE = E_SEND | {b"INVITE", b"NICK"}
"""IRC commands that our nodes send: those of the document, and more. Legacy peers get only those of the document."""
RELAYED = E_RECV | SENDABLE | {b"005", b"353"}
"""IRC commands that our nodes relay: also what a server supports (005), and who is in a channel (353)."""


class Ping(NamedTuple):
    """Heartbeat of the leader ("in-term")."""

    term: int
    val: str
    """Token, unique per PING."""
    id: int
    """Id of the leader."""


class Pong(NamedTuple):
    """Reply of a node to a PING."""

    val: str
    """Token of the PING."""
    id: int
    """Id of the replying node."""
    count: int  # type: ignore[assignment]  # The document's name hides a method that is not needed here.
    """Number of relays so far."""
    tag: str = ""


class Recv(NamedTuple):
    """A line from IRC."""

    idx: int
    """Sequence number of the line within its term, from 0."""
    line: bytes


class Send(NamedTuple):
    """A line for IRC."""

    id: int
    """Id of the submitting node."""
    line: bytes


class Drop(NamedTuple):
    """Removal of a node."""

    id: int
    reason: str = ""


class Nominate(NamedTuple):
    """Candidacy of a node."""

    term: int
    id: int


class Pledge(NamedTuple):
    """Promise of a vote."""

    term: int
    nom: int
    id: int
    """Id of the pledging node."""


class Call(NamedTuple):
    """Call for votes by a nominee with a quorum of pledges."""

    term: int


class Elect(NamedTuple):
    """A vote."""

    term: int
    nom: int
    id: int
    """Id of the voting node."""


class Knock(NamedTuple):
    """Request to join the network, or to bind another link of a node."""

    ind: int
    tag: str = ""


class Meet(NamedTuple):
    """Consent of a node to an induction."""

    ind: int
    id: int
    """Id of the consenting node."""


class Welcome(NamedTuple):
    """End of an induction: the inductee is a node."""

    ind: int


class Hello(NamedTuple):
    """Introduction of a node to a new node."""

    ind: int
    id: int
    """Id of the introduced node."""


class Keepalive(NamedTuple):
    """Empty line that keeps a link alive."""


class Malformed(NamedTuple):
    """An invalid line. It is counted; the link stays open."""

    reason: str
    """Short stable reason, used as a counter label."""
    line: bytes
    """Beginning of the line, for diagnostics."""


Message = (
    Ping
    | Pong
    | Recv
    | Send
    | Drop
    | Nominate
    | Pledge
    | Call
    | Elect
    | Knock
    | Meet
    | Welcome
    | Hello
    | Keepalive
    | Malformed
)
