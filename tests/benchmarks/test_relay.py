"""Parts of the benchmark of relays. Its folder is no package, and is imported for these tests only."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from suite.benchmark_modules import BENCHMARKS, ROOT, importable_benchmarks

from fyrehose_twisted.fyrehose import Message
from fyrehose_twisted.fyrehose.events import MessagesDelivered, MessagesLost

with importable_benchmarks(ROOT / "docs"):
    from benchmark_contents import TABLES
    from relay import cost, crowds, levels, simulated, spread, subscribers, tables

PAYLOADS = [b"first", b"second", b"third"]


def columns_of(name: str) -> set[str]:
    return {*TABLES[name].ours, *TABLES[name].others}


def delivered(*messages: tuple[int, bytes]) -> Any:
    return MessagesDelivered([Message(number, 0, data, data) for number, data in messages])  # type: ignore[arg-type]


def test_every_subscriber_of_a_simulated_tree_with_lossy_links_receives_every_message() -> None:
    tree = simulated.Tree(simulated.Shape((2, 3, 5), 20, 100, 0.05))
    tree.run()
    counted = tree.counted()
    assert (counted["relays"], counted["subscribers"], counted["deliveries"]) == (8, 30, 600)
    assert counted["lost"] > 0
    assert counted["repaired"] > 0


def test_simulated_tree_without_loss_repairs_nothing() -> None:
    tree = simulated.Tree(simulated.Shape((2, 2, 2), 5, 100, 0.0))
    tree.run()
    counted = tree.counted()
    assert [counted[name] for name in ("lost", "repaired", "repaired, relays", "deliveries")] == [0, 0, 0, 40]


def test_subscriber_that_does_not_receive_everything_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "PATIENCE", 1.0)
    tree = simulated.Tree(simulated.Shape((2, 2), 3, 100, 0.0))
    tree.network.call_in(simulated.LEVEL_DELAY + simulated.CONNECT_TIME, tree.hosts[0].stop)
    with pytest.raises(RuntimeError, match="1 subscribers have not received everything"):
        tree.run()


@pytest.mark.parametrize(
    "event",
    [
        delivered((2, b"second")),
        delivered((1, b"another")),
        delivered((1, b"first"), (1, b"first")),
        delivered((1, b"first"), (3, b"third")),
        MessagesLost(1, 1),
    ],
    ids=["late start", "other content", "twice", "gap", "lost"],
)
def test_message_out_of_order_or_with_other_content_is_noticed(event: object) -> None:
    with pytest.raises(RuntimeError, match="subscriber"):
        simulated.Subscriber(PAYLOADS).on_event(event)


def test_shape_of_a_tree_tells_its_relays_and_subscribers() -> None:
    shape = simulated.Shape((10, 10, 10, 100), 20, 100, 0.01)
    assert (shape.levels, shape.subscribers) == ([10, 100, 1_000], 100_000)
    assert simulated.Shape((7,), 20, 100, 0.01).subscribers == 7


def test_addresses_of_a_large_tree_differ() -> None:
    places = [(1, 9), (2, 99), (3, 999), *((4, number) for number in range(100_000)), (0, 1)]
    addresses = {simulated.address_of(*place)[0] for place in places}
    assert len(addresses) == len(places)
    assert all(int(part) < 256 for address in addresses for part in address.split("."))


def test_systems_alternate_from_round_to_round() -> None:
    jobs = list(cost.jobs(2))
    per_round = len(jobs) // 2
    assert per_round == len(cost.KINDS) * len(cost.FAN_OUTS) * len(cost.SYSTEMS)
    assert [jobs[0][2], jobs[per_round][2]] == [cost.BACKBONE, cost.RELAY]


def test_line_through_costs_has_the_cost_without_deliveries() -> None:
    begin, slope = cost.line([(count, 80.0 + 6.0 * count) for count in (1, 16, 100)])
    assert (begin, slope) == (pytest.approx(80.0), pytest.approx(6.0))


def test_receipts_of_processes_are_those_of_one() -> None:
    parts = [subscribers.Receipts(), subscribers.Receipts(repaired=1)]
    for number, (index, now) in enumerate([(0, 10), (0, 12), (1, 20), (0, 14)]):
        parts[number % 2].add(subscribers.INDEX.pack(index) + b"more", now)
    whole = subscribers.Receipts(faults=2)
    for part in parts:
        whole.merge(part)
    assert whole == subscribers.Receipts({0: 3, 1: 1}, {0: 10, 1: 20}, {0: 14, 1: 20}, 2, 1)


@pytest.mark.parametrize(
    ("missing", "repaired", "behind", "loses_nothing"),
    [(0, 0, 0.5, True), (1, 0, 0.5, False), (0, 1, 0.5, False), (0, 0, crowds.MOST_BEHIND + 1, False)],
    ids=["in time", "missing", "repaired", "late"],
)
def test_rate_counts_if_all_messages_arrive_in_time_and_without_repair(
    missing: int, repaired: int, behind: float, loses_nothing: bool
) -> None:
    step = crowds.Step(10.0, 40, missing, repaired, behind, 0.1, (1.0, 2.0, 3.0))
    assert step.loses_nothing is loses_nothing


def test_costs_are_told_by_delivery_and_by_message() -> None:
    costs = {
        (kind, count, system): [factor * (50.0 / count + 2.0)]
        for kind in cost.KINDS
        for count in cost.FAN_OUTS
        for system, factor in ((cost.RELAY, 2.0), (cost.BACKBONE, 1.0))
    }
    rows = tables.cost_rows(costs)
    assert rows["single, 1 subscriber"] == {"relay": 104.0, "backbone": 52.0}
    assert rows["bursts, a message besides deliveries"]["backbone"] == pytest.approx(50.0)
    plotted = [row for row in rows if row.startswith(TABLES["relay-cost"].rows)]
    assert len(plotted) == 4
    assert {column for cells in rows.values() for column in cells} == columns_of("relay-cost")


def test_levels_are_told_with_what_each_adds() -> None:
    found = {depth: [levels.Latency((depth + 1) * 1e-4, 1e-3)] for depth in levels.DEPTHS}
    rows = tables.level_rows(found)
    assert list(rows) == ["backbone", "1 relay", "2 relays", "3 relays", "each level"]
    assert rows["each level"]["added to the median"] == pytest.approx(100.0)
    assert {column for cells in rows.values() for column in cells} == columns_of("relay-levels")


def test_trees_are_told_beside_one_backbone() -> None:
    step = crowds.Step(5.0, 50, 0, 0, 0.2, 0.03, (0.5, 1.0, 4.5))
    found = {layout: [crowds.Found((0.01, 0.02, 0.3), step, step, 2**26)] for layout in crowds.LAYOUTS}
    rows = tables.tree_rows(found, {layout: [spread.Spread(0.004, 0.005)] for layout in crowds.LAYOUTS})
    assert rows["backbone at 5 messages/s, CPU of a second, ms"] == {"tree": 50.0, "one backbone": 50.0}
    assert rows["relays at rest, CPU of a second, ms"] == {"tree": 20.0}
    assert rows["first to last datagram, ms"]["tree"] == 4.0
    assert rows["share of the subscribers in all CPU time"]["tree"] == 0.75
    assert set(TABLES["relay-tree"].hidden) <= set(rows)
    assert {column for cells in rows.values() for column in cells} == columns_of("relay-tree")


@pytest.mark.soak(seconds=40)
def test_benchmark_measures_processes(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "bench_relay.py"), "--rounds=1", "--seconds=0.3", "--messages=20"]
    command += ["--relays=2", "--subscribers=8", "--tree-seconds=0.5", "--spread-messages=2", "--fan-out=2x2x3"]
    command += [f"--only={part}" for part in ("cost", "levels", "tree", "simulated")]
    ran = subprocess.run(
        [*command, f"--json={tmp_path / 'relay.json'}"], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    measured = json.loads((tmp_path / "relay.json").read_text("utf-8"))
    assert list(measured["tables"]) == ["relay-cost", "relay-levels", "relay-tree"]
    simulation = json.loads((tmp_path / "relay_simulated.json").read_text("utf-8"))
    rows = simulation["tables"]["relay-simulated"]
    assert rows["deliveries to subscribers"] == {"tree": 12 * 20}
    assert [step for rounds in measured["trees"].values() for _, step, _, _ in rounds if step[2]] == []
