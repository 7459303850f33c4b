"""Planted bugs of the keys of messages that the simulator must find."""

from __future__ import annotations

from typing import Any

import pytest
from suite.planted import Bug, Patch, check_seed, each, search

from fyrehose_twisted.fyrehose.node.client import deduplication
from fyrehose_twisted.fyrehose.node.client.publishing import send_queue
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import AcknowledgedArePublished
from fyrehose_twisted.fyrehose.simulation.invariants.keys import KeysDelivered
from fyrehose_twisted.fyrehose.simulation.scenarios import Storm
from fyrehose_twisted.fyrehose.simulation.workload import ALL_PROFILES

pytestmark = pytest.mark.interpreted


class BriefKeys(Storm):
    """A short storm of messages with keys."""

    keyed = True
    duration = 60.0
    messages = 300
    fault_counts = (3, 6)
    profiles = tuple(role for role in ALL_PROFILES if not role.start_delay)


def publishes_what_looks_like_a_key_as_it_is(patch: Patch) -> None:
    patch.setattr(send_queue, "escape_payloads", lambda payloads: payloads)


def looks_at_the_first_message_of_a_run_only(patch: Patch) -> None:
    original = deduplication.keyed_envelope_runs

    def runs(messages: Any) -> Any:
        return original(messages)[0], original(messages[:1])[1]

    patch.setattr(deduplication, "keyed_envelope_runs", runs)


def shifts_keys_after_a_repeat(patch: Patch) -> None:
    """The keys are those of the run as it was received, with the repeats."""
    original = deduplication._split_keys
    latest: list[Any] = []

    def split(columns: Any) -> Any:
        found = original(columns)
        if found.keys is not None and latest and len(columns.payloads) > 1:
            return found._replace(keys=[*found.keys[1:], latest[-1]])
        latest.append(found.keys[-1])
        return found

    patch.setattr(deduplication, "_split_keys", split)


def strips_no_header_of_length_0(patch: Patch) -> None:
    original = deduplication.split_key

    def split(data: bytes, offset: int = 0) -> tuple[bytes | None, bytes]:
        key, found = original(data, offset)
        return (key, found) if key is not None else (None, data[offset:])

    patch.setattr(deduplication, "split_key", split)


BUGS = [
    Bug(publishes_what_looks_like_a_key_as_it_is, (AcknowledgedArePublished.name,), BriefKeys, seed=0),
    Bug(looks_at_the_first_message_of_a_run_only, (KeysDelivered.name,), BriefKeys, seed=0),
    Bug(shifts_keys_after_a_repeat, (KeysDelivered.name,), BriefKeys, seed=0),
    Bug(strips_no_header_of_length_0, (KeysDelivered.name,), BriefKeys, seed=0),
]


@pytest.mark.parametrize("seed", range(4))
def test_messages_keep_their_keys_through_a_storm(seed: int) -> None:
    outcome = BriefKeys(seed).run()
    assert outcome.violation is None
    assert outcome.counters["delivered"] > 100


@each(BUGS)
def test_the_recorded_seed_shows_the_planted_key_bug(bug: Bug, monkeypatch: Patch) -> None:
    check_seed(bug, monkeypatch)


# This searches for gaps in the simulator, not in the product.
@pytest.mark.soak(seconds=300)
@each(BUGS)
def test_a_seed_search_finds_the_planted_key_bug(bug: Bug, monkeypatch: Patch) -> None:
    search(bug, monkeypatch)
