"""Rounds of each protocol on several hosts."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

import pytest
from hosts.bridge import Process
from hosts.faults import Fault
from hosts.history import Entry, of_kind
from hosts.rounds import base
from hosts.rounds.base import Round
from hosts.run import ROUNDS, describe, run_round
from suite.spaces import PROGRAMS, refusal

MOST = 30
"""Maximum number of rounds per protocol in a soak."""


@pytest.mark.parametrize(
    "protocol",
    [pytest.param(name, marks=pytest.mark.soak(seconds=30 if name == "hydra-partitions" else 0)) for name in ROUNDS],
)
def test_protocol_guarantees_hold_on_several_hosts_under_faults(
    protocol: str, program: Callable[[str, str], Path]
) -> None:
    for name, package in (*PROGRAMS.items(), ("nft", "nftables"), ("ngircd", "ngircd")):
        program(name, package)
    if why := refusal():
        pytest.skip(why)
    until = monotonic() + float(os.environ.get("SOAK_SECONDS", "60"))
    for number, seed in enumerate(random.sample(range(1_000_000), MOST)):
        if number and monotonic() > until:
            break
        result = run_round(protocol, seed)
        print(describe(result))
        assert not result.violations, describe(result)


@pytest.mark.parametrize("protocol", ROUNDS)
def test_fault_plan_contains_only_faults_that_the_round_injects(protocol: str, tmp_path: Path) -> None:
    if why := refusal():
        pytest.skip(why)
    one = ROUNDS[protocol](0, tmp_path)
    try:
        for seed in range(200):
            one.random.seed(seed)
            kinds = {fault.kind for fault in one.plan()}
            assert kinds <= one.injects, f"seed {seed}"
    finally:
        one.bridge.close()
        one.history.close()


class SlowToStop(Round):
    """Round of one service that ends some time after it found no room on its disk."""

    protocol = "slow-to-stop"

    @staticmethod
    def check(history: Sequence[Entry]) -> list[str]:
        return []

    def plan(self) -> list[Fault]:
        return [Fault("full-disk", 0.0, 0.1, "one")]

    def begin(self) -> None:
        self.started: list[Process] = []
        self.bridge.add("one").add_disk()
        self.restart("one")

    def restart(self, host: str) -> None:
        arguments = ("-c", "sleep 1; exit 1") if not self.started else ("-c", "exec sleep 60")
        self.started.append(self.bridge.hosts[host].start("sh", *arguments, ours=False))

    def service(self, host: str) -> Process:
        return self.started[-1]

    def settle(self) -> None:
        self.until(lambda: len(self.started) == 2, 10, "the service is started again")


def test_service_that_stops_long_after_its_disk_was_full_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := refusal():
        pytest.skip(why)
    monkeypatch.setattr(base, "STOPPED", 0.1)
    one = SlowToStop(0, tmp_path)
    result = one.run()
    assert result.violations == []
    (stopped,) = of_kind(one.history.entries, "stopped")
    assert (stopped["host"], stopped["status"]) == ("one", 1)
