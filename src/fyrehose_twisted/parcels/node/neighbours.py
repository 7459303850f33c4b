"""Whom a node knows (document 004, "Discovery phase"), and where it dials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf

from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.parcels.node.table_shares import TableEntry, TableQuota
from fyrehose_twisted.parcels.wire.messages import NEIGHBOUR_TIMEOUT, Hello, Mode, NodeInfo, RefusalReason, node_id

DIAL_BACKOFF = (0.25, 2.0)
"""Seconds until a node dials again, the first time and at most."""
HEARSAY_ATTEMPTS = 5
"""How often a node dials an address that it only heard of, before it has answered."""


class DialState(Enum):
    """How far a connection is that this node dials."""

    IDLE = "idle"
    DIALLING = "dialling"
    DISCOVERING = "asked"
    """A DscReq or SeqReq is on its way."""
    HELLO_SENT = "greeted"
    """A Hello is."""
    READY = "ready"
    """Requests of our own parcels can be sent."""


class DialResult(Enum):
    """What became of the last attempt to reach an address."""

    UNKNOWN = "nothing"
    CONNECTION_REFUSED = "refused"
    """Nobody listens there."""
    DOCUMENT_ONLY = "document"
    """Somebody does who speaks only the document."""
    NO_CLUSTER = "alone"
    """A node of ours, which is in no cluster yet."""
    IN_CLUSTER = "cluster"
    """A node of ours which is in a cluster."""
    SELF = "itself"
    """This very node."""
    REJECTED = "no"
    """Somebody who will not have to do with this node."""


class DialTarget:
    """An address that a node dials.

    :ivar configured: whether the operator named it.
    :ivar trusted: whether the node there, or one that named it, has proven that it knows the secret.
    :ivar name: of who answered there last.
    """

    __slots__ = (
        "address",
        "attempts",
        "backoff",
        "configured",
        "hello",
        "member",
        "name",
        "next_at",
        "peer",
        "queries_sequence",
        "reported_nodes",
        "result",
        "state",
        "trusted",
    )

    def __init__(self, address: Address, now: float, *, configured: bool, trusted: bool = False) -> None:
        self.address = address
        self.configured = configured
        self.trusted = trusted
        self.state = DialState.IDLE
        self.result = DialResult.UNKNOWN
        self.peer: Peer | None = None
        self.hello: Hello | None = None
        self.member: MemberId | None = None
        self.name = ""
        self.next_at = now
        self.backoff = DIAL_BACKOFF[0]
        self.attempts = 0
        self.queries_sequence = False
        self.reported_nodes: Sequence[NodeInfo] = ()

    def connection_closed(self, now: float, *, immediately: bool) -> None:
        """There is no connection; dial again, at once or after a while."""
        self.state, self.peer, self.hello, self.member = DialState.IDLE, None, None, None
        self.next_at = now if immediately else now + self.backoff
        if not immediately:
            self.backoff = min(2 * self.backoff, DIAL_BACKOFF[1])


class InboundPeer:
    """Somebody who dialled this node.

    :ivar info: what it said of itself, if it asked for neighbours.
    :ivar member: who that is; ``None`` for one who only publishes.
    :ivar expected_proof: the proof that it has to give; ``None`` before it said hello.
    :ivar authenticated: whether it gave that.
    """

    __slots__ = ("authenticated", "cluster_id", "expected_proof", "heard_at", "info", "member", "peer")

    def __init__(self, peer: Peer, now: float) -> None:
        self.peer = peer
        self.heard_at = now
        self.info: NodeInfo | None = None
        self.member: MemberId | None = None
        self.expected_proof: bytes | None = None
        self.authenticated = False
        self.cluster_id = 0


@dataclass(slots=True)
class Neighbour:
    """Somebody whom a node knows."""

    info: NodeInfo
    heard_at: float
    mode: Mode
    suspected: bool = False
    sequence: int = -1
    """Number of the last event that it handed on, as it said itself; -1 before it did."""
    trusted: bool = False
    """Whether it has proven that it knows the secret, or the operator named its address."""

    @property
    def member(self) -> MemberId | None:
        """Which life of it; ``None`` for one who speaks only the document."""
        return None if self.info.ours is None else MemberId(self.info.name, self.info.ours.incarnation)

    def is_alive(self, now: float) -> bool:
        """Whether it counts."""
        return not self.suspected and now - self.heard_at <= NEIGHBOUR_TIMEOUT


class Neighbours:
    """All whom a node knows, by name.

    :param me: this node's own information.
    :param limit: how many there may be.
    :param secret: whether the cluster has one, which nodes of ours prove to know.
    """

    def __init__(self, me: NodeInfo, limit: int, *, secret: bool = False) -> None:
        self.me = me
        self._secret = secret
        self._quota = TableQuota(limit, secret=secret)
        self._known: dict[str, Neighbour] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Neighbour]:
        return iter(self._known.values())

    def get(self, name: str) -> Neighbour | None:
        """Return whom a node knows by that name."""
        return self._known.get(name)

    def node_infos(self) -> tuple[NodeInfo, ...]:
        """Return what is known of all of them, by name."""
        return tuple(one.info._replace(mode=one.mode) for _, one in sorted(self._known.items()))

    def conflict(self, info: NodeInfo, now: float) -> tuple[RefusalReason, str] | None:
        """Say why somebody cannot be a neighbour, if so (document 004 has ids of 16 bits, made from names)."""
        me, ours = self.me, info.ours
        # The reference takes an id too that is not made from the name; then it tells nothing.
        by_id = info.id == node_id(info.name)
        # With a secret, a node of ours has to prove itself yet: then it takes the place of one that cannot.
        proves = ours is not None and self._secret
        rivals = [one.info for one in self._known.values() if one.is_alive(now) and (one.trusted or not proves)]
        for other in (me, *rivals):
            if other.name != info.name:
                if by_id and other.id == info.id:
                    text = f"{info.name!r} and {other.name!r}, which is here already, have the same id, {info.id}"
                    return RefusalReason.ID_TAKEN, f"{text}: give one of them another name"
                continue
            if ours is not None and ours == other.ours:
                continue
            # One who was started anew listens where it did before.
            if other is not me and other.host == info.host and ours is not None:
                continue
            if other is not me and other.ours is None and ours is None:
                continue  # The reference takes the last one.
            where = format_address(other.host)
            return RefusalReason.NAME_TAKEN, f"{info.name!r} is alive at {where} already: give one of them another name"
        return None

    def find_displaced(self, info: NodeInfo) -> Neighbour | None:
        """Return the neighbour that has proven nothing and has the id of ``info``, which was proven."""
        names = info.name, self.me.name
        strangers = (one for one in self._known.values() if not one.trusted and one.info.name not in names)
        return next((one for one in strangers if one.info.id == info.id), None)

    def add(self, info: NodeInfo, now: float, *, trusted: bool = False) -> Neighbour | None:
        """Know somebody, or something new of somebody; ``None`` if there is no room.

        :param trusted: whether it has proven that it knows the secret, or the operator named its address.
        """
        known = self._known.get(info.name)
        if known is None:
            taken = [TableEntry(one.info.host[0], one.trusted) for one in self._known.values()]
            if not self._quota.has_room(taken, TableEntry(info.host[0], trusted)):
                return None
            known = self._known[info.name] = Neighbour(info, now, info.mode)
        else:
            if known.info.ours != info.ours:
                known.sequence = -1
            known.info, known.heard_at, known.mode = info, now, info.mode
            known.suspected = False
        known.trusted = known.trusted or trusted
        return known

    def remove(self, name: str) -> Neighbour | None:
        """Know somebody no longer."""
        return self._known.pop(name, None)

    def timed_out(self, now: float) -> list[Neighbour]:
        """Return those who do not count any more."""
        return [one for one in self._known.values() if not one.is_alive(now)]

    def seconds_silent(self, name: str, now: float) -> float:
        """Return for how many seconds nothing was heard of somebody."""
        known = self._known.get(name)
        return inf if known is None else now - known.heard_at


def format_address(address: Address) -> str:
    """Return an address as people write it."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
