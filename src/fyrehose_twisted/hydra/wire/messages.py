"""What nodes say to one another (document 002): thirteen messages, each a line.

Ids are unsigned 32-bit numbers, and 0 is nobody's. Lines of IRC are bytes, without the CR LF at their end. Other texts
are ``str``; bytes of theirs that are no UTF-8 are kept as surrogates.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

MAX_ID = 2**32 - 1
"""The highest id."""
MAX_TERM = 2**63 - 1
"""The highest term, and the highest number of a line."""
MAX_VAL = 32
"""Bytes of the token that tells pings apart."""
MAX_TAG = 64
"""Bytes of a node's friendly name."""
MAX_REASON = 200
"""Bytes of the reason for a DROP."""
MAX_IRC = 510
"""Bytes of a line of IRC, without CR LF and without tags."""
MAX_LINE = 1_100
"""Bytes of a line between nodes, without CR LF: room for one of IRC and what goes with it."""
LEGACY_MAX_LINE = 510
"""The same where the other end is the reference, which tears longer ones apart."""
LEGACY_TAG = "Hebi"
"""The tag of the reference; whoever knocks with it is spoken to as it needs."""
GUARDIAN_TAG = "~guardian"
"""The tag of a process that watches over a node: its link only ever brings the DROP of that node."""

NO_QUORUM_PREFIX = "~"
"""How the val of a PING begins whose network cannot have a quorum yet: an answer to it promises the leader nothing."""

NOT_INDUCTED = "not inducted"
"""How the reason of a DROP begins that only takes back a KNOCK: whoever is a node stays one."""

E_SEND = frozenset((b"JOIN", b"PART", b"PRIVMSG", b"NOTICE", b"MODE", b"TOPIC", b"KICK"))
"""Commands of IRC that a SEND may carry."""
E_RECV = E_SEND | {b"QUIT"}
"""Commands of IRC that are relayed as RECV."""


class Command(Enum):
    """The first word of each message's line."""

    PING = b"PING"
    PONG = b"PONG"
    RECV = b"RECV"
    SEND = b"SEND"
    DROP = b"DROP"
    NOMINATE = b"NOMINATE"
    PLEDGE = b"PLEDGE"
    CALL = b"CALL"
    ELECT = b"ELECT"
    KNOCK = b"KNOCK"
    MEET = b"MEET"
    WELCOME = b"WELCOME"
    HELLO = b"HELLO"


class Ping(NamedTuple):
    """The leader is alive ("in-term")."""

    term: int
    val: str
    """A token that its sender never uses again."""
    id: int
    """The leader."""


class Pong(NamedTuple):
    """A node is alive."""

    val: str
    """That of the PING."""
    id: int
    """Who answers."""
    count: int  # type: ignore[assignment]  # The document's word hides a method that nobody needs here.
    """Relays on the way."""
    tag: str = ""


class Recv(NamedTuple):
    """A line that came from IRC."""

    idx: int
    """Counts the lines of a term, from 0."""
    line: bytes


class Send(NamedTuple):
    """A line for IRC."""

    id: int
    """Who wants it said."""
    line: bytes


class Drop(NamedTuple):
    """A node is removed."""

    id: int
    reason: str = ""


class Nominate(NamedTuple):
    """A node wants to lead."""

    term: int
    id: int


class Pledge(NamedTuple):
    """A node will vote for another."""

    term: int
    nom: int
    id: int
    """Who pledges."""


class Call(NamedTuple):
    """A nominee with a quorum of pledges wants the votes."""

    term: int


class Elect(NamedTuple):
    """A vote."""

    term: int
    nom: int
    id: int
    """Who votes."""


class Knock(NamedTuple):
    """Somebody wants to be a node, or a node opened one more link."""

    ind: int
    tag: str = ""


class Meet(NamedTuple):
    """A node agrees that somebody becomes one."""

    ind: int
    id: int
    """Who agrees."""


class Welcome(NamedTuple):
    """Somebody is a node now."""

    ind: int


class Hello(NamedTuple):
    """A node names itself to a new one."""

    ind: int
    id: int
    """Who names itself."""


class Keepalive(NamedTuple):
    """An empty line: the link is alive."""


class Malformed(NamedTuple):
    """A line that is none of these. It is counted; the link goes on."""

    reason: str
    """Short stable name, the label of a counter."""
    line: bytes
    """The beginning of it, for people."""


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
