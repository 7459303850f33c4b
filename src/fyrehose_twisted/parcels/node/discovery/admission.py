"""Admission of nodes to the neighbours, and their removal."""

from __future__ import annotations

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.parcels.config import check_text
from fyrehose_twisted.parcels.events import NeighbourAdded, NeighbourRemoved
from fyrehose_twisted.parcels.node.discovery.links import LinkTable
from fyrehose_twisted.parcels.node.discovery.listener import MemberListener
from fyrehose_twisted.parcels.node.discovery.neighbours import Neighbour, Neighbours
from fyrehose_twisted.parcels.node.output import NodeOutput
from fyrehose_twisted.parcels.node.peer_faults import PeerFaults
from fyrehose_twisted.parcels.wire.messages import MAX_NAME, NodeInfo


class NeighbourAdmission:
    """Changes of one node's neighbours, with their consequences for connections."""

    def __init__(
        self,
        neighbours: Neighbours,
        links: LinkTable,
        output: NodeOutput,
        listener: MemberListener,
        faults: PeerFaults,
    ) -> None:
        self._neighbours = neighbours
        self._links = links
        self._output = output
        self._listener = listener
        self._faults = faults

    def name_problem(self, info: NodeInfo) -> str | None:
        """Return why a name is invalid, and count it; ``None`` for a valid name."""
        try:
            check_text("name", info.name, MAX_NAME)
        except ConfigurationError as error:
            self._faults.count("bad-name")
            return str(error)
        return None

    def introduce(self, info: NodeInfo, source: str, now: float, *, known: bool, trusted: bool) -> None:
        """Register and dial a node that described itself on a connection from ``source``.

        :param known: whether to add it to the neighbours.
        :param trusted: whether it proved the secret.
        """
        elsewhere = info.host[0] != source and not (_is_loopback(info.host[0]) and _is_loopback(source))
        if elsewhere and not trusted and info.host not in self._links.targets:
            # Dialling a claimed foreign address would let a peer direct traffic at a third party.
            self._faults.count("foreign-address")
            self._faults.warn(
                info.host, f"{info.name!r} advertises {format_address(info.host)}, but connects from {source}"
            )
            return
        if known:
            self.register(info, now, trusted=trusted)
        self._links.add_addresses([info.host], now, dial_now=True, trusted=trusted)

    def register(self, info: NodeInfo, now: float, *, trusted: bool) -> None:
        """Add or update a neighbour.

        :param trusted: whether it proved the secret, or the operator configured its address.
        """
        displaced = self._neighbours.find_displaced(info) if trusted else None
        if displaced is not None:
            self.remove(displaced, f"has the id of {info.name!r}, which knows the secret", now)
        before = self._neighbours.get(info.name)
        former = None if before is None else before.member
        kept = self._neighbours.add(info, now, trusted=trusted)
        if kept is None:
            self._faults.count("too-many-neighbours")
            return
        if former is not None and former != kept.member:
            target = self._links.ready_targets.get(former)
            if target is not None:
                self._links.close_target(target, now, immediately=True)
            self._listener.member_suspected(former, now)
        if before is None:
            self._output.events.append(NeighbourAdded(kept.info.name, kept.info.host))

    def remove(self, known: Neighbour, reason: str, now: float) -> None:
        """Remove a neighbour that is presumed dead."""
        known.suspected = True
        self._neighbours.remove(known.info.name)
        self._output.events.append(NeighbourRemoved(known.info.name, known.info.host, reason))
        member = known.member
        if member is not None:
            target = self._links.ready_targets.get(member)
            if target is not None:
                self._links.close_target(target, now, immediately=False)
            self._listener.member_suspected(member, now)

    def remove_timed_out(self, now: float) -> None:
        """Remove the neighbours that are not alive any more."""
        for known in self._neighbours.timed_out(now):
            self.remove(known, f"was silent for {now - known.heard_at:.1f} s", now)


def _is_loopback(host: str) -> bool:
    return host == "::1" or host.startswith("127.")
