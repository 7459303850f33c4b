"""Checker of hydra histories, on handwritten histories."""

from __future__ import annotations

import pytest
from hosts.checkers.hydra import HEALED, RECOVERED, TIMERS, check
from hosts.history import Entry


def entry(at: float, client: str, what: str, **more: object) -> Entry:
    return {"at": at, "client": client, "what": what, **more}


def asked(at: float, line: str) -> Entry:
    return entry(at, "a", "asked", line=line)


def told(at: float, line: str, outcome: str = "said") -> Entry:
    return entry(at, "a", "told", line=line, outcome=outcome)


def seen(at: float, line: str, prefix: str = "bot!b@10.9.0.3/1") -> Entry:
    return entry(at, "witness", "seen", line=line, prefix=prefix)


def status(at: float, client: str, leader: int | None = 1, term: int = 4, nodes: str = "abc") -> Entry:
    return entry(at, client, "status", leader=leader, term=term, nodes=list(nodes))


CALM = entry(50, "harness", "healed", kind="partition")
KILLED = entry(50, "harness", "healed", kind="kill")
OTHER = "bot!b@10.9.0.4/1"
ONE = [status(at, client) for at, client in ((52, "a"), (53, "b"), (54, "c"))]


@pytest.mark.parametrize(
    "history",
    [
        [],
        [asked(1, "x"), seen(2, "x"), told(3, "x")],
        [asked(1, "x"), told(3, "x", "uncertain"), asked(1, "y"), seen(2, "y"), told(3, "y", "uncertain")],
        [asked(1, "x"), told(2, "x", "refused")],
        [asked(1, "x"), seen(2, "x"), asked(3, "y"), seen(4, "y", OTHER)],
        [asked(1, "x"), seen(2, "x"), asked(3, "late"), asked(3, "y"), seen(4, "y", OTHER), seen(5, "late")],
        [CALM, *ONE],
        [KILLED, *ONE[:2], status(50 + RECOVERED - 1, "c")],
        [status(1, "a", None), CALM, status(51, "b", None), *ONE],
    ],
)
def test_valid_hydra_history_passes(history: list[Entry]) -> None:
    assert check(history) == []


@pytest.mark.parametrize(
    ("history", "violation"),
    [
        ([asked(1, "x"), told(2, "x")], "said and not seen: x"),
        ([asked(1, "x"), seen(2, "x"), seen(3, "x")], "seen 2 times: x"),
        ([asked(1, "x"), told(2, "x", "refused"), seen(3, "x")], "refused and seen: x"),
        ([seen(3, "x")], "seen and never asked for: x"),
        (
            [asked(1, "x"), seen(2, "x"), asked(3, "y"), seen(4, "y", OTHER), asked(5, "z"), seen(6, "z")],
            "two voices: bot!b@10.9.0.3/1 said z",
        ),
        ([KILLED, *ONE[:2], status(50 + RECOVERED + 1, "c")], "not one network"),
        ([CALM, *ONE[:2], status(54, "c", 2)], "not one network"),
        ([CALM, *ONE[:2], status(54, "c", 1, 5)], "not one network"),
        ([CALM, *(status(54, client, None) for client in "abc")], "not one network"),
        ([CALM, *(status(54, client, nodes="ab") for client in "abc")], "not one network"),
    ],
)
def test_violation_in_a_hydra_history_is_found(history: list[Entry], violation: str) -> None:
    (found,) = check(history)
    assert found.startswith(violation)


def test_a_partition_of_nodes_has_a_shorter_bound() -> None:
    history = [CALM, *ONE[:2], status(50 + HEALED + 1, "c")]
    assert check(history) == []
    (found,) = check(history, HEALED)
    assert found.startswith("not one network 25 s")


def test_the_bound_leaves_time_to_elect_a_leader_and_to_drop_and_induct_a_node() -> None:
    nominated = TIMERS.max_ping + TIMERS.max_vote[1]
    dropped = TIMERS.ping_interval + TIMERS.max_ping
    assert nominated + dropped + TIMERS.max_meet < RECOVERED
