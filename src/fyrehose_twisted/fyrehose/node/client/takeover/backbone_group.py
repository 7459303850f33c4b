"""Addresses of a group of backbones, and the member that leads."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.wire.packets import Leader

MAX_BACKBONES = 8
"""Maximum number of backbones of one stream, configured and reported."""


class ReportOutcome(Enum):
    """Outcome of a LEADER."""

    OUTDATED = "its term is over"
    UNCHANGED = "nothing new"
    CHANGED = "another leader, or another term"


class BackboneGroup:
    """Backbones of one stream: a single one, or members that take over from one another.

    :param backbones: address of the only backbone, or of one or more members.
    :ivar addresses: known members, the configured ones first.
    :ivar leader: member that assigns the numbers; the first configured one until a backbone has answered.
    :ivar term: term of the leader; 0 until a member has reported one, and for a single backbone.
    :raises ConfigurationError: if there are none or too many.
    """

    def __init__(self, backbones: Address | Sequence[Address]) -> None:
        self.addresses = tuple(dict.fromkeys(_as_addresses(backbones)))
        if not 1 <= len(self.addresses) <= MAX_BACKBONES:
            raise ConfigurationError(f"{len(self.addresses)} backbones; give 1 to {MAX_BACKBONES}")
        self.leader = self.addresses[0]
        self.term = 0
        self._configured_count = len(self.addresses)
        self._confirmed_term = 0

    def __contains__(self, address: object) -> bool:
        return address in self.addresses

    def leader_reported(self, report: Leader, peer: Address) -> ReportOutcome:
        """Handle the LEADER of the member ``peer``, whose token was checked."""
        if report.term < self.term:
            return ReportOutcome.OUTDATED
        for address in report.members:
            if len(self.addresses) < MAX_BACKBONES:
                self._learn(address)
        leader = peer if report.asks_head else report.leader
        if self._is_contradicted(report.term, leader) or not self._learn(leader):
            return ReportOutcome.UNCHANGED
        if leader == peer:
            self._confirmed_term = report.term
        if (leader, report.term) == (self.leader, self.term):
            return ReportOutcome.UNCHANGED
        self.leader, self.term = leader, report.term
        return ReportOutcome.CHANGED

    def forget_term(self) -> None:
        """Follow any member again. The group may have been bootstrapped anew, with lower terms."""
        self.term = self._confirmed_term = 0

    def _is_contradicted(self, term: int, leader: Address) -> bool:
        """Return whether the leader of this term is known from itself, under an address that works from here."""
        return term == self.term == self._confirmed_term and leader != self.leader

    def _learn(self, address: Address) -> bool:
        """Add a reported member. Return whether it is known now."""
        if address in self.addresses:
            return True
        if address[0] == "0.0.0.0" or not address[1]:
            return False
        addresses = self.addresses
        if len(addresses) == MAX_BACKBONES:
            replaced = next((one for one in addresses[self._configured_count :] if one != self.leader), None)
            if replaced is None:
                return False
            addresses = tuple(one for one in addresses if one != replaced)
        self.addresses = (*addresses, address)
        return True


def _as_addresses(backbones: Address | Sequence[Address]) -> Sequence[Address]:
    match backbones:
        case (str(host), int(port)):
            return ((host, port),)
        case _:
            return backbones
