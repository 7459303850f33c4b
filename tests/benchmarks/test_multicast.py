"""Parts of the benchmark of multicast. Its folder is no package, and is imported for these tests only."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from suite.benchmark_modules import BENCHMARKS, ROOT, importable_benchmarks

with importable_benchmarks(ROOT / "docs"):
    from benchmark_contents import TABLES
    from multicast import bursts, cost, repair, rivals, segment, tables

FOUND = repair.Found(
    10, {"requests": 40.0, "retransmitted": 12.0, "repaired_for_all": 9.0, "gathered": 25.0}, 2_000, 0, [0.2, 0.03, 0.1]
)


@pytest.fixture
def namespaces() -> None:
    if why := segment.refusal():
        pytest.skip(why)


def columns_of(name: str) -> set[str]:
    return {*TABLES[name].ours, *TABLES[name].others}


class Group:
    """Members of the group in a segment, and a sender to it."""

    def __init__(self, made: segment.Segment) -> None:
        self.members = [
            host.call(partial(_member, segment.address(number))) for number, host in enumerate(made.subscribers, 2)
        ]
        self.sender = made.sender.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.sender.bind((segment.SENDER, 0))

    def send(self, datagrams: int, size: int) -> list[list[int]]:
        """Send to the group; return the indexes of the datagrams that each member receives before a short one."""
        for index in range(datagrams):
            self.sender.sendto(bytes([index]) + bytes(size - 1), (segment.GROUP, segment.GROUP_PORT))
        self.sender.sendto(b"end", (segment.GROUP, segment.GROUP_PORT))
        found = []
        for member in self.members:
            member.settimeout(30)
            indexes = []
            while (data := member.recv(2_048)) != b"end":
                indexes.append(data[0])
            found.append(indexes)
        return found

    def close(self) -> None:
        """Close all sockets."""
        segment.close_all([*self.members, self.sender])


def _member(here: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((segment.GROUP, segment.GROUP_PORT))
    segment.join_group(sock, here)
    return sock


@pytest.mark.usefixtures("namespaces")
def test_shared_loss_is_that_of_all_subscribers_and_spares_short_datagrams() -> None:
    with segment.Segment(3) as made:
        group = Group(made)
        try:
            assert group.send(20, 100) == [list(range(20))] * 3
            made.lose(segment.Loss(0.5, True, 100))
            first, *others = group.send(200, 100)
            assert others == [first, first]
            assert 0 < len(first) < 200
            assert made.lost() == 200 - len(first)
            assert group.send(20, 50) == [list(range(20))] * 3
            made.lose(None)
            assert made.lost() == 0
            assert group.send(20, 100) == [list(range(20))] * 3
        finally:
            group.close()


@pytest.mark.usefixtures("namespaces")
def test_own_losses_of_subscribers_differ() -> None:
    with segment.Segment(3) as made:
        group = Group(made)
        try:
            made.lose(segment.Loss(0.5, False, 100))
            first, second, third = group.send(200, 100)
            assert first != second != third
            assert made.lost() == 3 * 200 - len(first) - len(second) - len(third)
        finally:
            group.close()


@pytest.mark.usefixtures("namespaces")
def test_namespaces_end_with_the_segment() -> None:
    made = segment.Segment(2)
    descriptors = [made.sender.fd, *(host.fd for host in made.subscribers)]
    made.close()
    assert [fd for fd in descriptors if Path(f"/proc/self/fd/{fd}").exists() and is_namespace(fd)] == []
    with pytest.raises(OSError, match="setns"):
        made.sender.call(lambda: None)


def is_namespace(fd: int) -> bool:
    return str(Path(f"/proc/self/fd/{fd}").readlink()).startswith("net:")


@pytest.mark.parametrize("count", [0, 254])
def test_segment_has_as_many_subscribers_as_addresses(count: int) -> None:
    with pytest.raises(ValueError, match="1 to 253 subscribers"):
        segment.Segment(count)


def test_libraries_that_are_not_installed_are_left_out_with_advice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, **options: "/usr/bin/gcc" if name == "gcc" else None)
    monkeypatch.setattr(rivals, "find_library", lambda name: None)
    assert rivals.Programs(tmp_path).missing == {
        "OpenPGM": "not installed: apt install pkg-config libpgm-dev",
        "NORM": "not installed: apt install libnorm1",
    }


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing: apt install gcc")
def test_sender_and_receiver_compile_without_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rivals.Programs, "_use_pgm", lambda programs: None)
    monkeypatch.setattr(rivals.Programs, "_use_norm", lambda programs: None)
    programs = rivals.Programs(tmp_path)
    for name in ("sender", "receiver"):
        assert subprocess.run([programs.compiled(name), "norm"], check=False).returncode == 2


def test_systems_alternate_from_round_to_round() -> None:
    jobs = list(cost.jobs(2, [100, 1_000], cost.SYSTEMS))
    assert len(jobs) == 2 * 2 * len(cost.SYSTEMS)
    assert [jobs[0], jobs[2 * len(cost.SYSTEMS)]] == [(100, cost.SYSTEMS[0]), (100, cost.SYSTEMS[-1])]


def test_costs_are_told_as_medians_by_subscribers_and_size() -> None:
    found = {(1, 1_000, system): [3.0, 1.0, 2.0] for system in (*cost.SYSTEMS, cost.TOGETHER)}
    rows = tables.case_rows({**found, (16, 100, cost.SYSTEMS[0]): [5.0]})
    assert rows["16 subscribers, 100 bytes"] == {"multicast": 5.0}
    assert set(rows["1 subscriber, 1,000 bytes"].values()) == {2.0}
    assert set(rows["1 subscriber, 1,000 bytes"]) == columns_of("multicast-cost")
    assert columns_of("multicast-rates") == columns_of("multicast-cost") - {cost.TOGETHER}


def test_rests_are_told_in_milliseconds() -> None:
    rows = tables.rest_rows({(200, system): [0.003, 0.001, 0.002] for system in cost.WITH_TIMERS})
    assert rows == {"200 subscribers": dict.fromkeys(cost.WITH_TIMERS, 2.0)}
    assert set(cost.WITH_TIMERS) == columns_of("multicast-rest")


def test_repairs_are_told_for_a_dropped_packet() -> None:
    rows = tables.repair_rows({case: [FOUND] for case in repair.CASES})
    assert {column for cells in rows.values() for column in cells} == columns_of("multicast-repair")
    values = {name: cells[repair.GROUP_SHARED] for name, cells in rows.items()}
    assert (values["repairs to one subscriber"], values["repairs to the group"]) == (3.0, 9.0)
    assert (values["REQUESTs for a dropped packet"], values["DELIVERs for a dropped packet"]) == (4.0, 1.2)
    assert values["all have a repaired message after, ms"] == pytest.approx(100.0)
    assert values["all have all of them after, ms"] == pytest.approx(200.0)


def test_round_without_losses_has_no_figures_for_a_dropped_packet() -> None:
    calm = repair.Found(0, dict.fromkeys(repair.COUNTED, 0.0), 0, 0, [])
    rows = tables.repair_rows({repair.GROUP_OWN: [calm]})
    assert rows["REQUESTs for a dropped packet"] == {repair.GROUP_OWN: None}
    assert rows["all have all of them after, ms"] == {repair.GROUP_OWN: None}
    assert tables.repair_rows({repair.GROUP_OWN: [calm, FOUND]})["DELIVERs for a dropped packet"] == {
        repair.GROUP_OWN: 1.2
    }


def test_bursts_are_told_with_their_calls() -> None:
    found = {(100, kind): [bursts.Found(9.0, 1.0, 0), bursts.Found(7.0, 0.5, 0)] for kind in bursts.KINDS}
    rows = tables.burst_rows(found)
    assert rows["100 bytes: CPU time, µs"] == dict.fromkeys(bursts.KINDS, 8.0)
    assert rows["100 bytes: calls"] == dict.fromkeys(bursts.KINDS, 0.75)
    assert set(rows["100 bytes: calls"]) == columns_of("multicast-bursts")


@pytest.mark.soak(seconds=60)
@pytest.mark.usefixtures("namespaces")
def test_benchmark_measures_processes(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "bench_multicast.py"), "--rounds=1", "--sizes=100", "--subscribers=1,3"]
    command += ["--seconds=0.4", "--repair-subscribers=5", "--repair-messages=100", "--repair-rate=50", "--loss=5"]
    command += ["--burst-subscribers=3", f"--json={tmp_path / 'multicast.json'}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    measured = json.loads((tmp_path / "multicast.json").read_text("utf-8"))
    names = ["multicast-cost", "multicast-rates", "multicast-rest", "multicast-repair", "multicast-bursts"]
    assert list(measured["tables"]) == names
    assert measured["failures"] == []
    costs = measured["tables"]["multicast-cost"]["3 subscribers, 100 bytes"]
    assert set(costs) >= {"multicast", "unicast", "bare multicast", "bare unicast", "bare multicast, one core"}
    repairs = measured["tables"]["multicast-repair"]
    assert repairs["deliveries that never came"] == dict.fromkeys(repair.CASES, 0)
    assert repairs["packets dropped"]["multicast, own losses"] > 0
    calls = measured["tables"]["multicast-bursts"]["100 bytes: calls"]
    assert calls["offload to the kernel"] < 0.5 < calls["without"]
