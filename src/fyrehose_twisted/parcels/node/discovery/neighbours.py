"""Table of known nodes (document 004, "Discovery phase")."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.parcels.node.discovery.table_shares import TableEntry, TableQuota
from fyrehose_twisted.parcels.wire.messages import (
    CONDITIONS_VERSION,
    NEIGHBOUR_TIMEOUT,
    Heartbeat,
    Mode,
    NodeInfo,
    RefusalReason,
    node_id,
)


@dataclass(slots=True)
class Neighbour:
    """A known node."""

    info: NodeInfo
    heard_at: float
    mode: Mode
    suspected: bool = False
    sequence: int = -1
    """Sequence number of its last delivered event, as reported; -1 before the first report."""
    term: int = 0
    """Term that it reported; 0 before the first report."""
    trusted: bool = False
    """Whether it proved the secret, or the operator configured its address."""

    @property
    def member(self) -> MemberId | None:
        """Its member id; ``None`` for a node that supports only document 004."""
        return None if self.info.ours is None else MemberId(self.info.name, self.info.ours.incarnation)

    def is_alive(self, now: float) -> bool:
        """Return whether it was heard recently and is not suspected."""
        return not self.suspected and now - self.heard_at <= NEIGHBOUR_TIMEOUT


class Neighbours:
    """Table of known nodes, by name.

    :param me: information of this node.
    :param limit: maximum number of entries.
    :param secret: whether the cluster has a secret.
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

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def get(self, name: str) -> Neighbour | None:
        """Return the node of that name, if known."""
        return self._known.get(name)

    def node_infos(self) -> tuple[NodeInfo, ...]:
        """Return the information of all nodes, sorted by name."""
        return tuple(one.info._replace(mode=one.mode) for _, one in sorted(self._known.items()))

    def conflict(self, info: NodeInfo, now: float) -> tuple[RefusalReason, str] | None:
        """Return why a node cannot be added, if its name or id (16 bits of the name's hash, document 004) is taken."""
        me, ours = self.me, info.ours
        # The reference implementation also accepts ids that do not match the name. Those are not compared.
        by_id = info.id == node_id(info.name)
        # With a secret, a node of this implementation will prove it, and then replaces one that cannot.
        proves = ours is not None and self._secret
        rivals = [one.info for one in self._known.values() if one.is_alive(now) and (one.trusted or not proves)]
        for other in (me, *rivals):
            if other.name != info.name:
                if by_id and other.id == info.id:
                    text = f"{info.name!r} and {other.name!r}, which is already known, have the same id, {info.id}"
                    return RefusalReason.ID_TAKEN, f"{text}: give one another name"
                continue
            if ours is not None and ours == other.ours:
                continue
            # The same address: the node has restarted.
            if other is not me and other.host == info.host and ours is not None:
                continue
            if other is not me and other.ours is None and ours is None:
                continue  # As the reference implementation does, let the new one replace the old one.
            where = format_address(other.host)
            return (
                RefusalReason.NAME_TAKEN,
                f"{info.name!r} is already running at {where}; give one another name",
            )
        return None

    def find_displaced(self, info: NodeInfo) -> Neighbour | None:
        """Return the unauthenticated neighbour that has the same id as the authenticated ``info``, if any."""
        names = info.name, self.me.name
        strangers = (one for one in self._known.values() if not one.trusted and one.info.name not in names)
        return next((one for one in strangers if one.info.id == info.id), None)

    def add(self, info: NodeInfo, now: float, *, trusted: bool = False) -> Neighbour | None:
        """Add or update a node; return ``None`` if the quota is exhausted.

        :param trusted: whether it proved the secret, or the operator configured its address.
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

    def lowest_version(self, members: Iterable[MemberId]) -> int | None:
        """Return the lowest version of the extension that known members announce; ``None`` if none is known."""
        known = [self._known[member.name] for member in members if member.name in self._known]
        return min((one.info.ours.version for one in known if one.info.ours is not None), default=None)

    def knows_conditions(self, member: MemberId) -> bool:
        """Return whether a member announces :data:`CONDITIONS_VERSION` or a later one."""
        version = self.lowest_version((member,))
        return version is not None and version >= CONDITIONS_VERSION

    def reported(self, member: MemberId) -> tuple[int, int] | None:
        """Return the term and the sequence number that a member reported last, if it did."""
        known = self._known.get(member.name)
        return None if known is None or known.member != member or known.sequence < 0 else (known.term, known.sequence)

    def remove(self, name: str) -> Neighbour | None:
        """Remove and return a node, if known."""
        return self._known.pop(name, None)

    def timed_out(self, now: float) -> list[Neighbour]:
        """Return the nodes that are not alive any more."""
        return [one for one in self._known.values() if not one.is_alive(now)]

    def heard(self, member: MemberId, now: float) -> bool:
        """Record activity of a member; return whether it is a neighbour."""
        known = self._known.get(member.name)
        if known is None or known.member != member:
            return False
        known.heard_at = now
        known.suspected = False
        return True

    def is_alive(self, member: MemberId, now: float) -> bool:
        """Return whether a member is a live neighbour."""
        known = self._known.get(member.name)
        return known is not None and known.member == member and known.is_alive(now)

    def heartbeat_received(self, beat: Heartbeat, member: MemberId) -> None:
        """Record the mode and sequence number that a member reported."""
        known = self._known.get(member.name)
        if known is not None and known.member == member:
            known.mode, known.term, known.sequence = beat.mode, beat.term, beat.sequence
