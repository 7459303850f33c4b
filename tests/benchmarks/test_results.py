"""Results of the benchmarks are written as the tables that the documentation has."""

from __future__ import annotations

import json
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from suite.benchmark_modules import BENCHMARKS, ROOT, importable_benchmarks

with importable_benchmarks(ROOT / "docs"):
    import results
    from benchmark_contents import TABLES

    modules = {name: import_module(f"{name}.tables") for name in ("race", "parcels", "hydra", "freenet")}
    Failover = import_module("hydra.failovers").Failover
    Parcels = import_module("parcels.figures").Results
    Race = import_module("bench_race").Results
    wanted = import_module("parcels.wanted")
    trees = import_module("freenet.trees")


def columns_of(name: str) -> set[str]:
    return {*TABLES[name].ours, *TABLES[name].others}


def test_every_table_of_the_documentation_has_a_benchmark_that_writes_it() -> None:
    sources = "".join(path.read_text("utf-8") for path in BENCHMARKS.rglob("*.py"))
    assert [name for name in TABLES if f'"{name}"' not in sources] == []


def test_written_results_have_rounded_figures_and_leave_out_unknown_ones(tmp_path: Path) -> None:
    path = tmp_path / "made" / "race.json"
    tables = {"loss": {"none": {"fyrehose": 63_512.345678, "NATS": None, "note": "a text"}}}
    results.write(path, tables, "one round", {"cores": "2"}, rounds=[1])
    assert json.loads(path.read_text("utf-8")) == {
        "machine": {"cores": "2"},
        "how": "one round",
        "tables": {"loss": {"none": {"fyrehose": 63_512.0, "note": "a text"}}},
        "rounds": [1],
    }


def test_interpreted_results_are_not_in_the_directory_of_compiled_ones() -> None:
    assert Path("build/bench/compiled" if results.COMPILED else "build/bench") == results.DIRECTORY


def race() -> Any:
    found = Race()
    found.rounds = {
        "broker": {"4 x 1024": {"fyrehose": [{"deliveries_per_cpu_second": 2e6, "messages_per_second": 1e5}]}},
        "latency": {"": {"NATS": [{"p50": 2e-4, "p99": 6e-4}, {"p50": 4e-4, "p99": 6e-4}]}},
        "subscriber": {"": {"NATS": [{"messages_per_second": 5e4, "messages_per_cpu_second": 6e4}]}},
        "crowd": {"1,000": {"fyrehose": [{"microseconds_per_delivery": 6.7, "broker_load": 0.5}]}},
    }
    return found


def test_race_is_told_as_medians_in_the_units_of_the_page() -> None:
    tables = modules["race"].tables(race())
    assert tables == {
        "broker": {"4 x 1,024": {"fyrehose": 2_000.0}},
        "broker-rates": {"4 x 1,024": {"fyrehose": 100.0}},
        "subscriber": {"a second": {"nats-py": 50.0}, "a CPU-second": {"nats-py": 60.0}},
        "round-trips": {"median, µs": {"NATS": pytest.approx(300.0)}, "99 %, µs": {"NATS": pytest.approx(600.0)}},
        "crowd": {"1,000 subscribers": {"fyrehose": 6.7}},
        "crowd-load": {"1,000 subscribers": {"fyrehose": 0.5}},
    }
    assert all(set(row) <= columns_of(name) for name, rows in tables.items() for row in rows.values())


def test_part_of_the_race_that_was_not_run_has_no_table() -> None:
    found = race()
    del found.rounds["crowd"], found.rounds["broker"]
    assert set(modules["race"].tables(found)) == {"subscriber", "round-trips"}


def test_cluster_is_told_beside_the_better_kind_of_connection_of_etcd() -> None:
    found = Parcels()
    for load, rate in ((wanted.ONE_CONNECTION, 15_000.0), (wanted.ETCD_SHARED, 8_000.0), (wanted.ETCD_OWN, 9_000.0)):
        found.add(0, 3, load, {"rate": rate, "p50": 1 / rate})
    tables = modules["parcels"].tables(found)
    assert tables["parcels"] == {
        "64 clients, one connection, 3 nodes": {
            "parcels": 15_000.0,
            "parcels --sync": None,
            "etcd, no fsync": 9_000.0,
            "etcd, fsync": None,
        }
    }
    row = tables["parcels-latency"]["64 clients, one connection, 3 nodes"]
    assert row["etcd, no fsync"] == pytest.approx(1 / 9)
    assert "parcels-http" not in tables


def test_failovers_of_bots_are_told_by_kind_beside_the_medians_of_others() -> None:
    def failover(seconds: float, scale: float) -> Any:
        lines = Counter({"talked": 3, "said twice": 1})
        fields = {"kind": "kill -9", "scale": scale, "seconds": seconds, "lines": lines}
        return Failover(**{name: fields.get(name) for name in Failover._fields})

    tables = modules["hydra"].tables([failover(0.2, 1.0), failover(0.4, 1.0), failover(0.1, 0.1)], {"etcd": [1.5]}, {})
    assert tables["hydra"] == {
        "kill -9": {"median": pytest.approx(0.3), "95 %": 0.4, "longest": 0.4, "etcd": 1.5},
        "kill -9, a tenth of the timers": {"median": 0.1, "95 %": 0.1, "longest": 0.1, "etcd": 1.5},
    }
    assert tables["hydra-lines"]["sent by clients on IRC"] == {"lines": 9}
    assert tables["hydra-lines"]["seen twice"] == {"lines": 3}


def test_networks_are_named_as_on_the_page() -> None:
    names = [modules["freenet"].network(row) for row in trees.TREES]
    page = (ROOT / "docs" / "benchmarks.json").read_text("utf-8")
    assert [name for name in names if json.dumps(f"{name}: published", ensure_ascii=False) not in page] == []
    assert len(set(names)) == len(trees.TREES)
