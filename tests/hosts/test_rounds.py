"""Rounds of each protocol on several hosts."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest
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
