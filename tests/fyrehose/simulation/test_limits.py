"""Limits that ordinary workloads never reach, reduced until the workload reaches them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from types import ModuleType
from typing import ClassVar

import pytest

from fyrehose_twisted import repeats
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig, OutboxConfig, RepairConfig, Start
from fyrehose_twisted.fyrehose.node import drop_log
from fyrehose_twisted.fyrehose.node.backbone import push_backlog, request_routing, retransmit_buffer
from fyrehose_twisted.fyrehose.node.client import keepalive, reorder_buffer, repair, repair_responder
from fyrehose_twisted.fyrehose.node.client.publishing import session
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import ReorderBuffer
from fyrehose_twisted.fyrehose.node.client.repair_responder import RepairResponder
from fyrehose_twisted.fyrehose.simulation.invariants import memory
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import NumbersDurableFirst, Participants, StreamProgress
from fyrehose_twisted.fyrehose.simulation.invariants.memory import MemoryBounded, backbone_usage, client_usage
from fyrehose_twisted.fyrehose.simulation.scenarios import Limits
from fyrehose_twisted.fyrehose.simulation.workload import ClientProfile
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.observer import SimPacket

SMALL_LIMITS: dict[str, tuple[ModuleType, int]] = {
    "HELD_BYTES": (push_backlog, 25_000),
    "HELD_MESSAGES": (push_backlog, 3),
    "MAX_GAPS": (reorder_buffer, 8),
    "MAX_PLANNED": (repair, 32),
    "MAX_RANGES_WAITING": (memory, 8),
    "MAX_REMEMBERED_RANGES": (repair, 4),
    "MAX_SEARCHES": (request_routing, 8),
    "MAX_UNSETTLED": (session, 2),
    "MAX_SEARCHES_EACH": (request_routing, 5),
    "ONE_MESSAGE": (memory, 20_300),
    "QUEUE_BYTES": (repair_responder, 25_000),
    "QUEUE_LIMIT": (repair_responder, 8),
    "REQUESTERS": (repair_responder, 1),
    "SOURCES_REMEMBERED": (drop_log, 2),
    "UNANSWERED": (keepalive, 3),
    "WINDOW": (repeats, 32),
}

REACHED = 0.4
"""Share of a limit that counts as reached, since some limits allow one message more."""
REACHED_OF = {"gaps": 0.2, "ranges given up": 0.1, "repairs planned": 0.3}
"""Lower shares for limits with more slack."""


class MemoryCheckedOnArrival(MemoryBounded):
    """Memory invariant that is checked before every arrival."""

    def arrived(self, packet: SimPacket, host: Host) -> None:
        if host is self.participants.backbone.host:
            self._check(host, backbone_usage(self.participants.backbone.node))
        elif host in self.by_host:
            application = self.by_host[host].application
            self._check(host, client_usage(application.client, application.store))


class SmallLimits(Limits):
    """Small limits and lossy links."""

    large_share: ClassVar[float] = 0.3
    profiles = (
        ClientProfile("subscriber", ClientConfig(buffer_bytes=25_000), resumes=True),
        ClientProfile(
            "subscriber-small",
            ClientConfig(buffer_bytes=2_000, history_bytes=50_000, repair=RepairConfig(in_flight=8)),
            resumes=True,
        ),
        ClientProfile("subscriber-forgetful", ClientConfig(journal=False)),
        ClientProfile("publisher", ClientConfig(outbox=OutboxConfig(queue_messages=8)), publishes=True, kept=1),
        ClientProfile("publisher-large", ClientConfig(outbox=OutboxConfig(queue_bytes=30_000)), publishes=True),
        ClientProfile("late-oldest", ClientConfig(start=Start.OLDEST, buffer_bytes=10_000), start_delay=200.0),
    )
    bounded: MemoryBounded

    def backbone_config(self) -> BackboneConfig:
        return replace(super().backbone_config(), retransmit=8_000)

    def make_link(self, rng: Random) -> Link:
        return Link(loss=0.1, delay=0.005, jitter=0.02)

    def add_invariants(self, participants: Participants) -> None:
        # Reaching a limit costs delivery guarantees, so those invariants are left out.
        self.content = NumbersDurableFirst(participants)
        self.progress = StreamProgress(participants, self.content, share=0.0)
        self.bounded = MemoryCheckedOnArrival(participants)
        for invariant in (self.content, self.bounded, self.progress):
            self.add_invariant(invariant)


class BriefSmallLimits(SmallLimits):
    """Small limits in a sixth of the time."""

    duration: ClassVar[float] = 100.0
    messages: ClassVar[int] = 800
    large_share: ClassVar[float] = 0.2
    fault_counts: ClassVar[tuple[int, int]] = (20, 30)
    profiles = tuple(role._replace(start_delay=min(role.start_delay, 40.0)) for role in SmallLimits.profiles)


# The first seeds together reach each limit; the others are in reserve.
@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        (BriefSmallLimits, (3, 19, 29, 7)),
        pytest.param(SmallLimits, (9, 51, *range(20, 40)), marks=pytest.mark.extended),
    ],
)
def test_the_workload_reaches_every_limit_and_exceeds_none(
    kind: type[SmallLimits], seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, (module, value) in SMALL_LIMITS.items():
        for where in (module, memory):
            monkeypatch.setattr(where, name, value, raising=where is module)
    monkeypatch.setattr(retransmit_buffer, "MAX_RANGES_EACH", 8)
    monkeypatch.setattr(retransmit_buffer, "MAX_RANGES", SMALL_LIMITS["MAX_RANGES_WAITING"][1])
    monkeypatch.setattr(retransmit_buffer, "BYTE_RATE", 4_000.0)
    monkeypatch.setattr(retransmit_buffer, "BYTE_BURST", 1_000.0)
    monkeypatch.setattr(request_routing, "FAN_OUT_BURST", 0.5)
    monkeypatch.setattr(request_routing, "FAN_OUT_RATE", 0.5)
    monkeypatch.setattr(repeats.RepeatDetector.__init__, "__defaults__", (SMALL_LIMITS["WINDOW"][1],))
    monkeypatch.setitem(ReorderBuffer.__init__.__kwdefaults__, "max_gaps", SMALL_LIMITS["MAX_GAPS"][1])
    monkeypatch.setitem(RepairResponder.__init__.__kwdefaults__, "rate", 4_000.0)
    monkeypatch.setitem(RepairResponder.__init__.__kwdefaults__, "burst", 1_000.0)
    peaks: dict[str, float] = {}
    low: dict[str, float] = {}
    for seed in seeds:
        scenario = kind(seed)
        outcome = scenario.run()
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
        for what, peak in scenario.bounded.peaks.items():
            peaks[what] = max(peaks.get(what, 0.0), peak)
        low = {what: peak for what, peak in peaks.items() if peak < REACHED_OF.get(what, REACHED)}
        if not low:
            return
    pytest.fail(f"the workload does not get near {low}")
