"""Planted bugs of MACs that the simulator must find."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from suite.planted import Bug, Patch, check_seed, each, search

from fyrehose_twisted.fyrehose.config import MacPolicy
from fyrehose_twisted.fyrehose.node.backbone.delivery import Delivery
from fyrehose_twisted.fyrehose.node.client.repair_responder import RepairResponder
from fyrehose_twisted.fyrehose.node.mac.agreement import MacAgreement, MacState
from fyrehose_twisted.fyrehose.node.mac.offering import MacOffer
from fyrehose_twisted.fyrehose.simulation.invariants.access import StartsAtOldestConfirmed
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import (
    InOrder,
    OneMessagePerNumber,
    StreamProgress,
)
from fyrehose_twisted.fyrehose.simulation.invariants.repair import LossOnlyAfterRetries
from fyrehose_twisted.fyrehose.simulation.mac_scenario import Forged, NothingForgedDelivered
from fyrehose_twisted.fyrehose.wire import mac as mac_module
from fyrehose_twisted.fyrehose.wire.mac import MacKey
from fyrehose_twisted.fyrehose.wire.packets import MAC_SIZE, Deliver, KeepaliveAck

pytestmark = pytest.mark.interpreted


class BriefForged(Forged):
    """A short run with a host that forges addresses."""

    duration = 90.0
    messages = 200
    fault_counts = (4, 8)
    profiles = tuple(profile for profile in Forged.profiles if not profile.start_delay)


class WithoutMacs(BriefForged):
    """The same with clients that want no MACs."""

    profiles = tuple(
        profile._replace(config=replace(profile.config, mac=MacPolicy.OFF)) for profile in BriefForged.profiles
    )


def accepts_messages_without_macs(patch: Patch) -> None:
    patch.setattr(MacAgreement, "accepts_plain", True)


def accepts_messages_without_macs_one_by_one(patch: Patch) -> None:
    original = MacAgreement._refusal_reason
    patch.setattr(
        MacAgreement,
        "_refusal_reason",
        lambda self, deliver, peer: original(self, deliver, peer) if deliver.mac else None,
    )


def believes_every_mac(patch: Patch) -> None:
    patch.setattr(MacKey, "is_valid", lambda self, deliver: True)


def believes_every_mac_in_a_run(patch: Patch) -> None:
    def split_run(self: Any, buffer: bytearray, run: Any) -> Any:
        return mac_module.split_delivers(buffer, run, kind=0x81, trailer=MAC_SIZE)

    patch.setattr(MacKey, "split_run", split_run)


def compares_the_first_mac_of_a_run(patch: Patch) -> None:
    original = MacKey.split_run

    def split_run(self: Any, buffer: bytearray, run: Any) -> Any:
        first = run._replace(stop=run.start + run.size, rows=1)
        if original(self, buffer, first) is None:
            return None
        return mac_module.split_delivers(buffer, run, kind=0x81, trailer=MAC_SIZE)

    patch.setattr(MacKey, "split_run", split_run)


def binds_no_stream(patch: Patch) -> None:
    original = MacKey.__init__

    def init(self: Any, secret: bytes, stream_id: bytes) -> None:
        original(self, secret, b"")
        self.stream_id = stream_id

    patch.setattr(MacKey, "__init__", init)


class _PartialHash:
    """Hash of a part of what it is updated with."""

    def __init__(self, made: Any, part: slice) -> None:
        self._made, self._part = made, part

    def copy(self) -> _PartialHash:
        return _PartialHash(self._made.copy(), self._part)

    def update(self, body: Any) -> None:
        self._made.update(bytes(body)[self._part])

    def digest(self) -> bytes:
        return bytes(self._made.digest())


def covers_part(patch: Patch, part: slice) -> None:
    original = MacKey.__init__

    def init(self: Any, secret: bytes, stream_id: bytes) -> None:
        original(self, secret, stream_id)
        self._deliver_hash = _PartialHash(self._deliver_hash, part)

    patch.setattr(MacKey, "__init__", init)


def covers_no_number(patch: Patch) -> None:
    covers_part(patch, slice(8, None))


def covers_no_data(patch: Patch) -> None:
    covers_part(patch, slice(8))


def is_downgraded_by_an_ack(patch: Patch) -> None:
    original = MacAgreement._ack_received

    def ack_received(self: Any, ack: KeepaliveAck, peer: Any) -> Any:
        if not ack.mac:
            self.state = MacState.PLAIN
            return None
        return original(self, ack, peer)

    patch.setattr(MacAgreement, "_ack_received", ack_received)


def checks_repairs_only(patch: Patch) -> None:
    original = MacAgreement._refusal_reason

    def refusal_reason(self: Any, deliver: Deliver, peer: Any) -> Any:
        return None if peer == self._leader() else original(self, deliver, peer)

    patch.setattr(MacAgreement, "_refusal_reason", refusal_reason)


def checks_no_repairs(patch: Patch) -> None:
    original = MacAgreement._refusal_reason

    def refusal_reason(self: Any, deliver: Deliver, peer: Any) -> Any:
        return None if peer != self._leader() or deliver.fetched else original(self, deliver, peer)

    patch.setattr(MacAgreement, "_refusal_reason", refusal_reason)


def repairs_without_macs(patch: Patch) -> None:
    original = RepairResponder.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options | {"add_macs": list})

    patch.setattr(RepairResponder, "__init__", init)


def retransmits_without_macs(patch: Patch) -> None:
    patch.setattr(Delivery, "_with_macs", lambda self, datagrams, peer: datagrams)


def delivers_without_macs(patch: Patch) -> None:
    original = MacOffer.add_macs

    def add_macs(self: Any, datagrams: Iterable[Any]) -> list[Any]:
        return list(datagrams) if isinstance(datagrams, tuple) else original(self, datagrams)

    patch.setattr(MacOffer, "add_macs", add_macs)


FORGED = NothingForgedDelivered.name
"""Most forgeries are delivered under a number of their own, some instead of a message."""

FOUND = (FORGED, InOrder.name, OneMessagePerNumber.name, StreamProgress.name)

STALLED = (StartsAtOldestConfirmed.name, StreamProgress.name, LossOnlyAfterRetries.name)

BUGS = [
    Bug(accepts_messages_without_macs, (FORGED,), BriefForged, seed=0),
    Bug(accepts_messages_without_macs_one_by_one, (FORGED,), BriefForged, seed=0),
    Bug(believes_every_mac, (FORGED,), BriefForged, seed=0),
    Bug(believes_every_mac_in_a_run, (FORGED,), BriefForged, seed=0),
    Bug(compares_the_first_mac_of_a_run, FOUND, BriefForged, seed=1),
    Bug(binds_no_stream, (FORGED,), BriefForged, seed=0),
    Bug(covers_no_number, FOUND, BriefForged, seed=0),
    Bug(covers_no_data, (FORGED,), BriefForged, seed=0),
    Bug(is_downgraded_by_an_ack, (FORGED,), BriefForged, seed=0),
    Bug(checks_repairs_only, (FORGED,), BriefForged, seed=0),
    Bug(checks_no_repairs, (FORGED,), BriefForged, seed=0),
    Bug(repairs_without_macs, (LossOnlyAfterRetries.name, StreamProgress.name), BriefForged, seed=3),
    Bug(retransmits_without_macs, STALLED, BriefForged, seed=1),
    Bug(delivers_without_macs, STALLED, BriefForged, seed=0),
]


def test_a_host_that_forges_addresses_injects_nothing() -> None:
    outcome = BriefForged(1).run()
    assert outcome.violation is None
    assert outcome.counters["delivered"] > 300
    assert outcome.counters["refused"] > 1_000


@pytest.mark.parametrize("seed", range(3))
def test_without_macs_it_injects_messages(seed: int) -> None:
    found = WithoutMacs(seed).run().violation
    assert found is not None
    assert found.invariant == FORGED


@each(BUGS)
def test_the_recorded_seed_shows_the_planted_mac_bug(bug: Bug, monkeypatch: Patch) -> None:
    check_seed(bug, monkeypatch)


# This searches for gaps in the simulator, not in the product.
@pytest.mark.soak(seconds=300)
@each(BUGS)
def test_a_seed_search_finds_the_planted_mac_bug(bug: Bug, monkeypatch: Patch) -> None:
    search(bug, monkeypatch)
