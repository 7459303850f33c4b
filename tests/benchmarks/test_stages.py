"""Parts of the benchmark of the stages of a message. Its folder is no package, and is imported for these tests only."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
from suite.benchmark_modules import BENCHMARKS, importable_benchmarks

with importable_benchmarks():
    from stages import chains, counters, counts, nodes, replay, stamps

MESSAGES, WARM_UP = 40, 10


def stamped(**moments: list[int]) -> Any:
    made = stamps.Stamps()
    for name, each in moments.items():
        setattr(made, name, array("q", each))
    return made


@pytest.fixture(scope="module")
def stream() -> dict[str, Any]:
    return nodes.record_stream(MESSAGES, 128)


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    return nodes.record_cluster(MESSAGES, 128, 3)


def test_recorded_clients_receive_every_message(stream: dict[str, Any]) -> None:
    # The publisher counts the acknowledgement and its own message.
    assert {name: each.events for name, each in stream.items()} == {
        "publisher": 2 * MESSAGES,
        "backbone": 0,
        "subscriber": MESSAGES,
    }


def test_recorded_members_store_every_event(cluster: dict[str, Any]) -> None:
    assert {name: each.events for name, each in cluster.items()} == {
        "leader, 3 nodes": MESSAGES,
        "follower, 3 nodes": MESSAGES,
    }


def test_replay_times_every_message_after_the_warm_up(stream: dict[str, Any], cluster: dict[str, Any]) -> None:
    for recording in (stream | cluster).values():
        times = replay.replay(recording, WARM_UP)
        assert len(times.nanoseconds) == MESSAGES - WARM_UP


def test_summary_has_the_median_with_cold_caches(stream: dict[str, Any]) -> None:
    recording = stream["subscriber"]
    cold = replay.replay_cold(recording, MESSAGES)
    assert len(cold.nanoseconds) == MESSAGES
    warm = replay.Times([1_000] * 99 + [5_000], 0.001)
    summary = replay.summarise([warm, replay.Times(warm.nanoseconds, 0.002)], cold._replace(nanoseconds=[7_000, 8_000]))
    assert (summary.median, summary.cpu, summary.cold) == (1.0, pytest.approx(10.0), 7.5)


@pytest.mark.parametrize("name", ["subscriber", "leader, 3 nodes"])
def test_replay_with_a_missing_input_is_noticed(name: str, stream: dict[str, Any], cluster: dict[str, Any]) -> None:
    recording = (stream | cluster)[name]
    inputs = [one for one in recording.inputs if one.message < MESSAGES - 1]
    with pytest.raises(RuntimeError, match="events"):
        replay.replay(recording._replace(inputs=inputs), WARM_UP)


def test_message_is_followed_through_publisher_server_and_subscriber() -> None:
    publisher = stamped(begins=[100, 1_100], sends=[90, 110, 1_130])
    server = stamped(wakes=[50, 125, 1_150], sends=[60, 145, 150, 1_190])
    subscriber = stamped(wakes=[152, 1_250], ends=[180, 1_300])
    found = chains.follow_messages(publisher, server, subscriber, 0)
    assert found.times == [(10, 15, 20, 7, 28), (30, 20, 40, 60, 50)]
    assert found.lost == 0
    assert len(found.names) == 5
    assert chains.follow_messages(publisher, server, subscriber, 1).times == found.times[1:]
    unseen = chains.follow_messages(publisher, None, subscriber, 0)
    assert unseen.times == [(10, 42, 28), (30, 120, 50)]


def test_message_whose_wake_up_is_not_its_own_is_not_followed() -> None:
    publisher = stamped(begins=[100], sends=[110])
    server = stamped(wakes=[125], sends=[145])
    for wakes in ([], [190], [150, 170]):  # None, after the callback, and one of something else before it.
        found = chains.follow_messages(publisher, server, stamped(wakes=wakes, ends=[180]), 0)
        assert (found.times, found.lost) == ([], 1)
    # The server was awake when the message arrived, and next woke up for something else.
    late = stamped(wakes=[500], sends=[520])
    assert chains.follow_messages(publisher, late, stamped(wakes=[150], ends=[180]), 0).lost == 1


def test_event_is_followed_through_the_follower_that_answers_first() -> None:
    client = stamped(begins=[0], sends=[10], wakes=[210], ends=[250])
    leader = stamped(wakes=[30, 130], sends=[60, 180])
    slow = stamped(wakes=[70], sends=[125])
    fast = stamped(wakes=[80], sends=[110])
    found = chains.follow_events(client, leader, [slow, fast], 0)
    assert found.times == [(10, 20, 30, 20, 30, 20, 50, 30, 40)]
    assert len(found.names) == 9


def test_shares_of_the_stages_add_up_to_the_whole() -> None:
    names, usual, slow = ("a", "b"), (1_000, 3_000), (9_000, 3_000)
    rounds = [chains.Chains(names, [usual] * 50, 0), chains.Chains(names, [slow] * 30, 0)]
    assert chains.rows(rounds) == [("a", 1.0, 9.0, 0.25), ("b", 3.0, 3.0, 0.75), ("all", 4.0, 12.0, 1.0)]
    assert chains.rows([chains.Chains(("a",), [], 7)]) == []


def test_stamps_are_taken_at_wake_ups_with_events_and_before_sends(tmp_path: Path) -> None:
    class Loop:
        poller: Any = None

    class Poller:
        events: tuple[int, ...] = ()

        def poll(self, timeout: float) -> tuple[int, ...]:
            return self.events

        register = modify = unregister = close = fileno = poll

    loop, poller, taken = Loop(), Poller(), stamps.Stamps()
    loop.poller = poller
    stamps.stamp_loop(loop, "poller", taken)
    assert (loop.poller.poll(0), len(taken.wakes)) == ((), 0)
    poller.events = (1,)
    assert (loop.poller.poll(0), len(taken.wakes)) == ((1,), 1)
    one, other = socket.socketpair()
    with one, other:
        send = stamps.stamped(lambda data: one.send(data) + len(taken.sends), taken)
        assert send(b"four") == 4 + 1
        assert other.recv(9) == b"four"
    taken.save(tmp_path / "out")
    loaded = stamps.Stamps.load(tmp_path / "out")
    assert (loaded.wakes, loaded.sends) == (taken.wakes, taken.sends)


def test_perf_counts_are_read_and_missing_ones_are_none() -> None:
    counted = "123456,,instructions:u,1000,100.00,,\n789,,cache-misses,1000,100.00,,\n"
    assert counters.parse(counted) == (123_456.0, 789.0)
    assert counters.parse("<not supported>,,instructions,0,100.00,,\n5,,cache-misses,1,100.00,,\n") == (None, 5.0)


def test_wake_ups_and_messages_are_read_from_a_trace() -> None:
    trace = """\
  9.000000001: syscalls:sys_exit_epoll_pwait: 0x0
  9.000000002: syscalls:sys_exit_epoll_pwait: 0xfffffffffffffffc
  9.000000003: syscalls:sys_exit_epoll_pwait: 0x1
 10.000000004:     syscalls:sys_enter_write: fd: 0x00000005, buf: 0x7faee3ffecdb, count: 0x00000001
 10.000000005:     syscalls:sys_enter_write: fd: 0x00000007, buf: 0x7faee3ffecdb, count: 0x000000a0
 10.000000006:    syscalls:sys_enter_writev: fd: 0x00000007, vec: 0x7faee3ffecdb, vlen: 0x00000001
"""
    found = counters.parse_trace(trace)
    assert list(found.wakes) == [9_000_000_003]
    assert list(found.sends) == [10_000_000_005, 10_000_000_006]


def test_counts_are_read_from_a_profile_without_its_last_zeros() -> None:
    profile = b"version: 1\nevents: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\nfn=(1)\n1 2\ntotals: 5000 9 9 10 20 30 40\n"
    assert counts.parse(profile, 10) == (500.0, 6.0, 4.0)
    with pytest.raises(ValueError, match="no profile"):
        counts.parse(b"events: Ir\n", 10)


@pytest.mark.extended
def test_benchmark_measures_nodes_and_processes(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "bench_stages.py"), "--rounds=1", "--seconds=0.2", "--members=2"]
    command += ["--messages=20", "--warm-up=5", "--system=fyrehose", "--system=parcels", f"--directory={tmp_path}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    results = json.loads((tmp_path / "stages.json").read_text())
    assert list(results["nodes"]) == ["publisher", "backbone", "subscriber", "leader, 2 nodes", "follower, 2 nodes"]
    processes = {name: list(case["processes"]) for name, case in results["cases"].items()}
    assert processes["fyrehose, one client"] == ["publisher", "server"]
    assert processes["fyrehose, publisher and subscriber"] == ["subscriber", "publisher", "server"]
    assert sorted(processes["parcels, 2 nodes"]) in (
        ["client", "follower n0", "leader"],
        ["client", "follower n1", "leader"],
    )
    for case in results["cases"].values():
        assert case["not_followed"] < 1
        assert case["stages"][-1]["stage"] == "all"
