"""Backbones on several hosts that take over from one another, and the checker of their histories."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts.checkers.backbones import check
from hosts.history import Entry
from hosts.rounds import backbones
from hosts.rounds.backbones import OF_LEADER, BackbonesRound
from hosts.run import describe, describe_pauses, run_round
from suite.spaces import PROGRAMS, refusal


def read(reader: str, *numbers: int) -> list[Entry]:
    return [{"at": 3, "client": reader, "what": "read", "sequence": number, "line": f"m{number}"} for number in numbers]


def term(reader: str, number: int, held_up_to: int, first: int) -> Entry:
    return {"at": 2, "client": reader, "what": "term", "term": number, "held_up_to": held_up_to, "first": first}


HISTORY: list[Entry] = [
    *({"at": 1, "client": "p", "what": "asked", "line": f"m{number}"} for number in range(1, 12)),
    *({"at": 2, "client": "p", "what": "told", "line": f"m{number}", "sequence": number} for number in (2, 3, 11)),
    *(entry for name in ("r1", "r2") for entry in (term(name, 1, 0, 1), term(name, 2, 3, 10))),
    *read("r1", 2, 3, 11),
    *read("r2", 2, 3, 11),
]


def test_valid_history_of_a_takeover_passes() -> None:
    assert check(HISTORY) == []


@pytest.mark.parametrize(
    ("more", "violation"),
    [
        ([{"at": 2, "client": "p", "what": "failed", "line": "m4", "why": "late"}], "failed: m4 of p: late"),
        ([term("r3", 2, 4, 10)], "two starts: term 2 has (4, 10) at r3, and (3, 10)"),
        ([term("r1", 3, 9, 10)], "terms overlap: they start at [1, 10, 10]"),
        (read("j", 2, 3, 4, 11), "never given: j has 4, which term 2 leaves out"),
        ([{**read("j", 3)[0], "line": "m5"}], "two messages: 3 is m5 at j, and m3"),
    ],
)
def test_violation_in_a_history_of_a_takeover_is_found(more: list[Entry], violation: str) -> None:
    assert violation in check(HISTORY + more)


def test_plan_has_all_faults_of_the_leader_equally_often() -> None:
    kinds = [fault.kind for fault in backbones.draw(random.Random(1), 2 * len(OF_LEADER))]
    assert sorted(kinds[: len(OF_LEADER)]) == sorted(kinds[len(OF_LEADER) :]) == sorted(OF_LEADER)


@pytest.mark.parametrize(
    ("rounds", "takeovers"),
    [
        pytest.param(1, 5, marks=pytest.mark.extended, id="some"),
        pytest.param(5, len(OF_LEADER), marks=pytest.mark.soak(seconds=300), id="all"),
    ],
)
def test_backbones_on_several_hosts_take_over_without_loss(
    rounds: int, takeovers: int, program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, package in (*PROGRAMS.items(), ("nft", "nftables")):
        program(name, package)
    if why := refusal():
        pytest.skip(why)
    monkeypatch.setattr(BackbonesRound, "takeovers", takeovers)
    results = []
    for seed in random.sample(range(1_000_000), rounds):
        results.append(run_round("backbones", seed))
        print(describe(results[-1]))
        assert not results[-1].violations, describe(results[-1])
    assert sum(sum(result.faults.values()) for result in results) == rounds * takeovers
    print(describe_pauses(results))
