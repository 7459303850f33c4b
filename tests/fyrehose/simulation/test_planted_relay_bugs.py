"""Planted bugs of relays that the simulator must find, at least one per invariant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from suite.planted import Bug, Patch, check_seed, each, search

from fyrehose_twisted.fyrehose.node.client.takeover.connection import Connection
from fyrehose_twisted.fyrehose.node.relay.downstream import RelayDownstream
from fyrehose_twisted.fyrehose.node.relay.history import RelayHistory
from fyrehose_twisted.fyrehose.node.relay.passed_requests import PassedRequests
from fyrehose_twisted.fyrehose.node.relay.push_returns import PushReturns
from fyrehose_twisted.fyrehose.node.relay.relay_delivery import RelayDelivery
from fyrehose_twisted.fyrehose.node.relay.upstream import RelayUpstream
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import StreamProgress
from fyrehose_twisted.fyrehose.simulation.invariants.relays import (
    NothingLostInTree,
    OneParentDelivers,
    RelayMemoryBounded,
    SameNumbersEverywhere,
    SilentParentReplaced,
)
from fyrehose_twisted.fyrehose.simulation.relay_scenarios import Relays
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.crash_mode import CrashMode

pytestmark = pytest.mark.interpreted


class BriefRelays(Relays):
    """Relays, briefly."""

    duration = 100.0
    messages = 200
    fault_counts = (8, 15)
    pause_count = 1
    profiles = tuple(role for role in Relays.profiles if not role.start_delay)


class Silent(BriefRelays):
    """Nothing but relays that die, for long."""

    messages = 100

    def fault_mix(self) -> Sequence[Any]:
        relays = [relay.host.name for relay in self.relays]
        return ((1.0, fault_generators.crashes(relays, kinds=(CrashMode.KILLED,), max_duration=40.0)),)


# Messages


def renumbers_messages(patch: Patch) -> None:
    original = RelayDownstream.messages_arrived

    def arrived(self: Any, first: int, messages: Sequence[bytes], now: float, *, live: bool) -> None:
        original(self, max(first, self.sequencer.last + 1), messages, now, live=live)

    patch.setattr(RelayDownstream, "messages_arrived", arrived)


def holds_messages_behind_a_gap_without_limit(patch: Patch) -> None:
    def add_ahead(self: Any, sequence: int, datagram: bytes) -> None:
        self._ahead[sequence] = datagram
        self._ahead_size += len(datagram)

    patch.setattr(RelayHistory, "_add_ahead", add_ahead)


# Repairs


def passes_no_request(patch: Patch) -> None:
    patch.setattr(RelayUpstream, "request", lambda self, first, last, now: None)


def requests_each_number_once(patch: Patch) -> None:
    original = PassedRequests.add

    def add(self: Any, requester: Any, first: int, last: int, now: float) -> Any:
        self._asked_until = now + 1_000.0
        return original(self, requester, first, last, now)

    patch.setattr(PassedRequests, "add", add)


def keeps_answers_to_itself(patch: Patch) -> None:
    patch.setattr(PassedRequests, "take", lambda self, sequence: [])


def takes_what_it_held_for_missing(patch: Patch) -> None:
    def missing(self: Any, first: int, last: int) -> list[tuple[int, int]]:
        return [(first, last)]

    patch.setattr(RelayUpstream, "missing", missing)


def forgets_numbers_reported_by_the_parent(patch: Patch) -> None:
    patch.setattr(RelayDownstream, "number_known", lambda self, last: None)


# Parents


def stays_with_a_silent_parent(patch: Patch) -> None:
    original = Connection._follows

    def follows(self: Any, peer: Any, now: float) -> bool:
        return peer == self.group.leader and original(self, peer, now)

    patch.setattr(Connection, "_follows", follows)


def acknowledges_without_a_parent(patch: Patch) -> None:
    patch.setattr(RelayUpstream, "has_parent", lambda self, now: True)


def listens_to_all_parents(patch: Patch) -> None:
    patch.setattr(Connection, "_has_chosen", property(lambda self: False))


# Publishing


def passes_no_push(patch: Patch) -> None:
    patch.setattr(RelayDelivery, "_pass_on", lambda self, pushes, count, peer, now, again: None)


def returns_no_confirmation(patch: Patch) -> None:
    patch.setattr(PushReturns, "take", lambda self, data: None)


BUGS = [
    Bug(renumbers_messages, (SameNumbersEverywhere.name,), BriefRelays, seed=0),
    Bug(holds_messages_behind_a_gap_without_limit, (RelayMemoryBounded.name,), BriefRelays, seed=0),
    Bug(passes_no_request, (NothingLostInTree.name,), BriefRelays, seed=0),
    Bug(requests_each_number_once, (NothingLostInTree.name,), BriefRelays, seed=0),
    Bug(keeps_answers_to_itself, (NothingLostInTree.name,), BriefRelays, seed=0),
    Bug(takes_what_it_held_for_missing, (NothingLostInTree.name,), BriefRelays, seed=0),
    Bug(forgets_numbers_reported_by_the_parent, (StreamProgress.name, NothingLostInTree.name), BriefRelays, seed=0),
    Bug(stays_with_a_silent_parent, (SilentParentReplaced.name,), Silent, seed=1),
    Bug(acknowledges_without_a_parent, (SilentParentReplaced.name,), Silent, seed=0),
    Bug(listens_to_all_parents, (OneParentDelivers.name,), BriefRelays, seed=0),
    Bug(passes_no_push, (StreamProgress.name,), BriefRelays, seed=0),
    Bug(returns_no_confirmation, (StreamProgress.name,), BriefRelays, seed=1),
]


@each(BUGS)
def test_the_recorded_seed_shows_the_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    check_seed(bug, monkeypatch)


# This searches for gaps in the simulator, not in the product.
@pytest.mark.soak(seconds=300)
@each(BUGS)
def test_a_seed_search_finds_the_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    search(bug, monkeypatch)
