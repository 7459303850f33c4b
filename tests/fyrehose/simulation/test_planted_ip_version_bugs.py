"""Planted bugs of clients with IPv4, IPv6 or both that the simulator must find."""

from __future__ import annotations

from typing import Any

import pytest
from suite.planted import Bug, Patch, check_seed, each, search

from fyrehose_twisted.fyrehose.node.backbone import client_table, repair_dispatch
from fyrehose_twisted.fyrehose.node.backbone.client_table import ClientTable, Repairers
from fyrehose_twisted.fyrehose.node.backbone.repair_fetching import RepairFetcher
from fyrehose_twisted.fyrehose.node.client.reception import Reception
from fyrehose_twisted.fyrehose.simulation.invariants.ip_versions import IpVersionsRespected
from fyrehose_twisted.fyrehose.simulation.invariants.repair import HeldMessagesFound, RequestsForwarded
from fyrehose_twisted.fyrehose.simulation.ip_version_scenarios import IpVersions
from fyrehose_twisted.fyrehose.wire.codec import encode_deliver
from fyrehose_twisted.fyrehose.wire.packets import Deliver, Forward

pytestmark = pytest.mark.interpreted


def asks_any_client_to_repair(patch: Patch) -> None:
    patch.setattr(client_table, "can_repair", lambda client, version: True)


def asks_clients_of_the_documents_like_others(patch: Patch) -> None:
    patch.setattr(client_table, "can_be_asked", lambda address, flags: True)


def fetches_nothing(patch: Patch) -> None:
    patch.setattr(RepairFetcher, "fetch", lambda self, *which, **options: None)


def passes_nothing_on(patch: Patch) -> None:
    def received(self: Any, client: Any, deliver: Deliver, now: float, *options: Any) -> list[Any] | None:
        asked = self._asked.get(client)
        return [] if asked is not None and asked.contains(deliver.sequence, now) else None

    patch.setattr(RepairFetcher, "received", received)


def marks_fetched_messages_for_all(patch: Patch) -> None:
    patch.setattr(
        repair_dispatch,
        "encode_deliver",
        lambda sequence, data, *, fetched: encode_deliver(sequence, data, fetched=True),
    )


def names_itself_by_the_other_ip_version(patch: Patch) -> None:
    def fetch(
        self: Any, client: Any, requester: Any, first: int, last: int, now: float, **options: Any
    ) -> Forward | None:
        forward = original(self, client, requester, first, last, now, **options)
        other = ("10.0.0.1" if ":" in client[0] else "fd00::1", 2323)
        return None if forward is None else Forward(other, first, last)

    original = RepairFetcher.fetch
    patch.setattr(RepairFetcher, "fetch", fetch)


def forgets_those_that_cannot_send_to_the_requester(patch: Patch) -> None:
    original = ClientTable.repairers

    def repairers(self: Any, requester: Any) -> tuple[Repairers, Repairers]:
        return original(self, requester)[0], Repairers([], [], [])

    patch.setattr(ClientTable, "repairers", repairers)


def ignores_fetched_messages(patch: Patch) -> None:
    original = Reception.message_received

    def received(self: Any, sequence: int, data: bytes, peer: Any, now: float, *, live: bool) -> None:
        if live or peer[1] != 2323:
            original(self, sequence, data, peer, now, live=live)

    patch.setattr(Reception, "message_received", received)


def passes_messages_on_under_another_number(patch: Patch) -> None:
    original = RepairFetcher.received

    def received(self: Any, client: Any, deliver: Deliver, now: float, *options: Any) -> list[Any] | None:
        found = original(self, client, deliver, now, *options)
        if found:
            object.__setattr__(deliver, "sequence", deliver.sequence + 1)
        return found

    patch.setattr(RepairFetcher, "received", received)


BUGS = [
    Bug(asks_any_client_to_repair, (IpVersionsRespected.name,), IpVersions, seed=0, message="which it cannot reach"),
    Bug(
        asks_clients_of_the_documents_like_others,
        (IpVersionsRespected.name,),
        IpVersions,
        seed=0,
        message="FORWARD6 was sent to documents-6",
    ),
    Bug(fetches_nothing, (RequestsForwarded.name,), IpVersions, seed=0, message="could not be forwarded"),
    Bug(passes_nothing_on, (HeldMessagesFound.name,), IpVersions, seed=0, message="holder stores it"),
    Bug(
        marks_fetched_messages_for_all,
        (IpVersionsRespected.name,),
        IpVersions,
        seed=0,
        message="FETCHED was sent to documents-6",
    ),
    Bug(
        names_itself_by_the_other_ip_version,
        (IpVersionsRespected.name,),
        IpVersions,
        seed=0,
        message="holder sent to 10.0.0.1, which it cannot reach",
    ),
    Bug(
        forgets_those_that_cannot_send_to_the_requester,
        (RequestsForwarded.name,),
        IpVersions,
        seed=0,
        message="could not be forwarded",
    ),
    Bug(ignores_fetched_messages, (HeldMessagesFound.name,), IpVersions, seed=0, message="holder stores it"),
    Bug(
        passes_messages_on_under_another_number,
        (HeldMessagesFound.name,),
        IpVersions,
        seed=0,
        message="holder stores it",
    ),
]


@each(BUGS)
def test_the_recorded_seed_shows_the_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    check_seed(bug, monkeypatch)


# This searches for gaps in the simulator, not in the product.
@pytest.mark.soak(seconds=300)
@each(BUGS)
def test_a_seed_search_finds_the_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    search(bug, monkeypatch)
