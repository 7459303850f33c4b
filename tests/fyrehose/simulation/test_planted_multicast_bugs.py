"""Planted bugs of multicast that the simulator must find."""

from __future__ import annotations

import pytest
from suite.planted import Bug, Patch, check_seed, each, search

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.multicast import gathering, listening
from fyrehose_twisted.fyrehose.node.multicast.audience import Audience
from fyrehose_twisted.fyrehose.node.multicast.gathering import Gathered, RepairGatherer
from fyrehose_twisted.fyrehose.node.multicast.listening import GroupListening
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import LiveClientsServed
from fyrehose_twisted.fyrehose.simulation.invariants.multicast import (
    GroupRepairsBounded,
    LeaderHeard,
    ListenersAgreed,
)
from fyrehose_twisted.fyrehose.simulation.multicast_scenarios import Multicast, MulticastStorm, MulticastTakeovers
from fyrehose_twisted.fyrehose.wire.packets import Flags

pytestmark = pytest.mark.interpreted


def believes_that_all_who_want_to_listen_hear(patch: Patch) -> None:
    original = Audience.update

    def update(self: Audience, address: Address, flags: int) -> int:
        return original(self, address, flags | Flags.HEARS if flags & Flags.MULTICAST else flags)

    patch.setattr(Audience, "update", update)


def serves_a_client_by_the_group_for_ever(patch: Patch) -> None:
    original = Audience.update

    def update(self: Audience, address: Address, flags: int) -> int:
        return original(self, address, flags | Flags.HEARS if self.hears(address) else flags)

    patch.setattr(Audience, "update", update)


def never_misses_the_group(patch: Patch) -> None:
    patch.setattr(listening, "SILENCE", 1e9)


def announces_its_group_to_nobody(patch: Patch) -> None:
    patch.setattr(GroupListening, "announced", lambda self, group, backbone, now: None)


def sends_no_beacons(patch: Patch) -> None:
    patch.setattr(Backbone, "_send_beacon", lambda self, now: self._client_table.audience.take_beacon(now) and None)


def sends_to_the_group_but_not_to_others(patch: Patch) -> None:
    original = Audience.destinations

    def destinations(self: Audience, others: tuple[Address, ...]) -> tuple[Address, ...]:
        return original(self, others)[:1] if self.listeners else others

    patch.setattr(Audience, "destinations", destinations)


def keeps_the_destinations_of_former_subscribers(patch: Patch) -> None:
    original = Audience.destinations

    def destinations(self: Audience, others: tuple[Address, ...]) -> tuple[Address, ...]:
        return self._destinations if self.listeners and self._destinations else original(self, others)

    patch.setattr(Audience, "destinations", destinations)


def takes_those_that_hear_for_no_subscribers(patch: Patch) -> None:
    def update(self: Audience, address: Address, flags: int) -> int:
        return flags | Flags.NOSUBSCRIBE if flags & Flags.HEARS else flags

    patch.setattr(Audience, "update", update)


def forgets_what_it_has_repaired_for_all(patch: Patch) -> None:
    def requested(self: RepairGatherer, first: int, last: int, listeners: int, now: float) -> Gathered:
        return Gathered([], [(first, last)], 0)

    patch.setattr(RepairGatherer, "requested", requested)


def takes_up_what_it_has_just_repaired(patch: Patch) -> None:
    patch.setattr(gathering, "ANSWER_TIME", 0.0)
    patch.setattr(gathering, "GROUP_PAUSE", 0.0)


def stays_with_the_group_of_the_former_leader(patch: Patch) -> None:
    original = GroupListening.announced

    def announced(self: GroupListening, group: Address, backbone: Address, now: float) -> None:
        if self.group is None:
            original(self, group, backbone, now)

    patch.setattr(GroupListening, "announced", announced)
    patch.setattr(GroupListening, "abandon", lambda self, now: None)


BUGS = [
    Bug(believes_that_all_who_want_to_listen_hear, (ListenersAgreed.name,), Multicast, seed=0),
    Bug(serves_a_client_by_the_group_for_ever, (ListenersAgreed.name,), Multicast, seed=0),
    Bug(never_misses_the_group, (ListenersAgreed.name,), Multicast, seed=0),
    Bug(announces_its_group_to_nobody, (ListenersAgreed.name,), Multicast, seed=0),
    Bug(sends_no_beacons, (ListenersAgreed.name,), Multicast, seed=0),
    Bug(sends_to_the_group_but_not_to_others, (LiveClientsServed.name,), Multicast, seed=0),
    Bug(keeps_the_destinations_of_former_subscribers, (LiveClientsServed.name,), MulticastStorm, seed=4),
    Bug(takes_those_that_hear_for_no_subscribers, (ListenersAgreed.name,), Multicast, seed=0),
    Bug(forgets_what_it_has_repaired_for_all, (GroupRepairsBounded.name,), Multicast, seed=0),
    Bug(stays_with_the_group_of_the_former_leader, (LeaderHeard.name,), MulticastTakeovers, seed=0),
    Bug(takes_up_what_it_has_just_repaired, (GroupRepairsBounded.name,), Multicast, seed=0),
]


@each(BUGS)
def test_the_recorded_seed_shows_the_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    check_seed(bug, monkeypatch)


# This searches for gaps in the simulator, not in the product.
@pytest.mark.soak(seconds=300)
@each(BUGS)
def test_a_seed_search_finds_the_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    search(bug, monkeypatch)
