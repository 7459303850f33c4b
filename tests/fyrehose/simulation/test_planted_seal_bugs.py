"""Planted bugs of sealed payloads that the simulator must find."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from suite.planted import Bug, Patch, check_seed, each, search

from fyrehose_twisted.fyrehose.node.client.deduplication import Deduplicator
from fyrehose_twisted.fyrehose.node.client.publishing.send_queue import SendQueue
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import InOrder, StreamProgress
from fyrehose_twisted.fyrehose.simulation.invariants.sealing import SealedContent, SealedDelivery
from fyrehose_twisted.fyrehose.simulation.sealed_scenario import Sealed
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, Envelope
from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.opener import PayloadOpener
from fyrehose_twisted.sealing.outcome import Refusal
from fyrehose_twisted.sealing.sealer import PayloadSealer

pytestmark = pytest.mark.interpreted


class BriefSealed(Sealed):
    """A short run with a host on the path."""

    duration = 90.0
    messages = 200
    fault_counts = (4, 8)
    profiles = tuple(profile for profile in Sealed.profiles if not profile.start_delay)


def looks_for_repeats_before_it_opens(patch: Patch) -> None:
    original = Deduplicator._opened

    def opened(self: Any, opener: Any, part: Any, first: Envelope | None) -> Any:
        if first is None:
            return original(self, opener, part, first)
        found = []
        for columns in self._without_repeats(part, first):
            found += original(self, opener, columns, None if not columns.envelope_size else first)
        return found

    def repeated(self: Any, numbers: Any, rows: Any, first: Any) -> set[int]:
        return set()

    patch.setattr(Deduplicator, "_opened", opened)
    patch.setattr(Deduplicator, "_repeated", repeated)


def admits_replays(patch: Patch) -> None:
    patch.setattr(PayloadOpener, "admit", lambda self, opened, sequence: True)


def delivers_plain_payloads(patch: Patch) -> None:
    original = PayloadOpener.__init__
    patch.setattr(PayloadOpener, "__init__", lambda self, ring, **options: original(self, ring, allow_plain=True))


def binds_no_stream(patch: Patch) -> None:
    original = KeyRing.__init__

    def init(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        self.context = b""

    patch.setattr(KeyRing, "__init__", init)


def restarts_with_the_same_nonces(patch: Patch) -> None:
    original = PayloadSealer.__init__
    patch.setattr(PayloadSealer, "__init__", lambda self, ring, rng: original(self, ring, Random(1)))


def seals_retransmissions_anew(patch: Patch) -> None:
    """The counter is that of the ticket, and a lost message is sealed again with the time of the retransmission."""
    original = SendQueue.take_due

    def take_due(self: Any, now: float) -> Any:
        ready = original(self, now)
        for row in range(self.leading_retransmissions):
            data = ready[row]
            offset = ENVELOPE_SIZE + 32
            ready[row] = data[:offset] + int(now * 1e6).to_bytes(8, "big") + data[offset + 8 :]
        return ready

    patch.setattr(SendQueue, "take_due", take_due)


def publishes_in_the_clear(patch: Patch) -> None:
    original = SendQueue._plain
    patch.setattr(SendQueue, "_sealed", lambda self, payloads, tickets, now: original(self, payloads, tickets))


def ignores_tags(patch: Patch) -> None:
    original = PayloadOpener.open

    def opened(self: Any, payload: bytes, envelope_size: int) -> Any:
        found = original(self, payload, envelope_size)
        if found is not Refusal.FORGED:
            return found
        from fyrehose_twisted.sealing.outcome import OpenedPayload

        return OpenedPayload(b"whatever it says")

    patch.setattr(PayloadOpener, "open", opened)


BUGS = [
    Bug(looks_for_repeats_before_it_opens, (InOrder.name, StreamProgress.name), BriefSealed, seed=0),
    Bug(admits_replays, (SealedDelivery.name,), BriefSealed, seed=0, message="delivered again"),
    Bug(delivers_plain_payloads, (SealedDelivery.name,), BriefSealed, seed=0, message="which no publisher sent"),
    Bug(binds_no_stream, (SealedDelivery.name,), BriefSealed, seed=0, message="which no publisher sent"),
    Bug(restarts_with_the_same_nonces, (SealedContent.name,), BriefSealed, seed=0, message="was used for two"),
    Bug(seals_retransmissions_anew, (SealedContent.name,), BriefSealed, seed=0, message="was used for two"),
    Bug(publishes_in_the_clear, (SealedContent.name,), BriefSealed, seed=0, message="in the clear"),
    Bug(ignores_tags, (SealedDelivery.name,), BriefSealed, seed=0, message="which no publisher sent"),
]


def test_a_host_on_the_path_forges_much_and_achieves_nothing() -> None:
    outcome = BriefSealed(1).run()
    assert outcome.violation is None
    assert outcome.counters["opened"] == outcome.counters["delivered"] > 300
    assert outcome.counters["refused"] > 100


@each(BUGS)
def test_the_recorded_seed_shows_the_planted_seal_bug(bug: Bug, monkeypatch: Patch) -> None:
    check_seed(bug, monkeypatch)


# This searches for gaps in the simulator, not in the product.
@pytest.mark.soak(seconds=300)
@each(BUGS)
def test_a_seed_search_finds_the_planted_seal_bug(bug: Bug, monkeypatch: Patch) -> None:
    search(bug, monkeypatch)
