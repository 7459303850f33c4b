from __future__ import annotations

import pytest
from sim.tcp.stream_nodes import LengthCodec, MakeConnectedPair

from fyrehose_twisted.effects import Address, Close, Write
from fyrehose_twisted.sim.crash_mode import CrashMode

NOWHERE: Address = ("192.0.2.1", 1)


def numbered(count: int) -> list[str]:
    return [f"message {number}" for number in range(count)]


def test_a_killed_host_resets_its_connections(codec: LengthCodec | None, connected_pair: MakeConnectedPair) -> None:
    network = connected_pair(codec=codec)
    network.write("a", "b", "on its way")
    network.write("b", "a", "on its way too")
    network.hosts["a"].stop(CrashMode.KILLED)
    network.run_until(5)
    assert network["b"].story[1:] == [(0.25, "got", "on its way"), (0.25, "disconnected", "reset")]
    assert network.drops() == {"reset": 1}
    assert network.words[2:] == [(0.25, "b", "reset")]
    assert network.forgotten()


def test_data_of_a_closed_connection_is_sent_after_the_process_was_killed(
    codec: LengthCodec | None, connected_pair: MakeConnectedPair
) -> None:
    network = connected_pair(codec=codec)
    messages = [f"{number:0>246}" for number in range(600)]
    network.write("a", "b", *messages)
    network.close("a", "b")
    network.hosts["a"].stop(CrashMode.KILLED)
    network.run_until(5)
    assert network["b"].got == messages
    assert [reason for _, reason in network["b"].ended] == ["closed"]
    assert network.forgotten()


@pytest.mark.parametrize("crash", [CrashMode.POWER, CrashMode.DISK])
def test_a_host_without_power_sends_no_remaining_data_of_closed_connections(
    crash: CrashMode, connected_pair: MakeConnectedPair
) -> None:
    network = connected_pair()
    network.write("a", "b", *range(600))
    network.close("a", "b")
    network.hosts["a"].stop(crash)
    network.run_until(500)
    assert network["b"].got == list(range(256))
    assert network["b"].ended == []
    assert network.drops() == {"down": 344}


def test_a_lost_reset_leaves_a_half_open_connection(
    codec: LengthCodec | None, connected_pair: MakeConnectedPair
) -> None:
    network = connected_pair(codec=codec)
    network.cut_both_ways("a", "b", lasts=10.0)
    network.hosts["a"].stop(CrashMode.KILLED)
    network.network.call_in(5.0, network.hosts["a"].start)
    network.run_until(100)
    assert network["b"].ended == []
    network.write("b", "a", "anybody?")
    network.run_until(200)
    assert network["b"].ended == [(100.5, "reset")]
    assert network["a"].story == []
    assert network.drops() == {"reset": 1}
    assert network.forgotten()


def test_after_a_power_failure_the_next_segment_to_the_host_is_reset(
    codec: LengthCodec | None, connected_pair: MakeConnectedPair
) -> None:
    network = connected_pair(codec=codec)
    network.hosts["a"].stop(CrashMode.POWER)
    network.write("b", "a", "into the dark")
    network.run_until(10)
    assert network["b"].ended == []
    network.hosts["a"].start()
    network.run_until(100)
    # It is sent at 0 and retransmitted 0.2, 0.4 and so on after each loss is noticed.
    assert [reason for _, reason in network["b"].ended] == ["reset"]
    assert 10.5 < network["b"].ended[0][0] < 20.0
    assert network["a"].story == []
    assert network.forgotten()


@pytest.mark.parametrize("crash", [CrashMode.POWER, CrashMode.DISK])
def test_a_sender_to_a_host_without_power_times_out(
    crash: CrashMode, codec: LengthCodec | None, connected_pair: MakeConnectedPair
) -> None:
    network = connected_pair(codec=codec)
    network.hosts["a"].stop(crash)
    network.run_until(100)
    assert network["b"].ended == []  # It has written nothing, so it expects no ack.
    network.write("b", "a", "into the dark")
    network.run_until(200)
    assert network["b"].ended == [(160.0, "timed out")]
    assert network.drops() == {"timed out": 1}
    assert network.words[-1] == (160.0, "b", "timed out")
    assert network.forgotten()


# Partitioned on the way back, the data arrives and only the ack is lost.
@pytest.mark.parametrize(("source", "to", "arrives"), [("a", "b", []), ("b", "a", ["anybody?", "again?"])])
def test_a_partition_longer_than_the_timeout_ends_the_connection_for_the_writer(
    source: str, to: str, arrives: list[str], connected_pair: MakeConnectedPair
) -> None:
    network = connected_pair()
    network.run_until(10)
    network.cut(source, to, lasts=100.0)
    network.write("a", "b", "anybody?")
    network.run_until(20)
    network.write("a", "b", "again?")
    network.run_until(120)
    assert network["a"].ended == [(70.0, "timed out")]
    assert network["b"].got == arrives
    assert network["b"].ended == []
    network.write("b", "a", "me")
    network.run_until(200)
    assert network["b"].ended == [(120.5, "reset")]
    assert network.forgotten()


def test_a_partition_shorter_than_the_timeout_is_not_noticed(
    codec: LengthCodec | None, connected_pair: MakeConnectedPair
) -> None:
    network = connected_pair(codec=codec)
    network.cut_both_ways("a", "b", lasts=45.0)
    for number in range(59):
        network.write("a", "b", f"message {number}")
        network.write("b", "a", f"message {number}")
        network.network.run(1.0)
    network.run_until(70)
    assert network["a"].got == network["b"].got == numbered(59)
    assert network["a"].ended == network["b"].ended == []


def test_an_idle_connection_does_not_notice_a_partition(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    network.cut_both_ways("a", "b", lasts=1_000.0)
    network.run_until(1_001)
    network.write("a", "b", "still there?")
    network.run_until(1_002)
    assert network["b"].got == ["still there?"]


def test_the_sender_timeout_restarts_with_each_ack(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    for number in range(5):
        network.run_until(100.0 * number)
        network.write("a", "b", number)
        network.run_until(100.0 * number + 1)
        network.cut("a", "b", lasts=40.0)
        network.write("a", "b", number)
    network.run_until(600)
    assert network["b"].got == [number for number in range(5) for _ in range(2)]
    assert network["a"].ended == []


def test_a_blocked_sender_to_a_host_without_power_times_out(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    network.hosts["b"].pause()
    network.write("a", "b", *range(530))
    network.run_until(100)
    network.hosts["b"].stop(CrashMode.POWER)
    network.run_until(300)
    assert [(what, detail) for _, what, detail in network["a"].story[1:]] == [
        ("blocked", None),
        ("disconnected", "timed out"),
    ]
    assert 150 < network["a"].ended[0][0] <= 160
    assert network.drops() == {"down": 256, "timed out": 274}


def test_a_write_after_a_lost_reset_is_reset(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    network.cut("a", "b", lasts=2.0)
    network.hosts["a"].stop(CrashMode.KILLED)
    network.run_until(1)
    network.write("b", "a", "anybody?")
    network.run_until(10)
    # Sent at 1, 1.45 and 2.1; each loss is noticed at the time of the missed arrival.
    assert [reason for _, reason in network["b"].ended] == ["reset"]
    assert 2.25 < network["b"].ended[0][0] < 4


def test_a_paused_node_is_told_of_a_disconnect_on_resume(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    network.pause("b", 10.0)
    network.write("a", "b", "never read")
    network.run_until(1)
    network.hosts["a"].stop(CrashMode.KILLED)
    network.run_until(2)
    network.hosts["a"].start()
    network.run_until(20)
    assert network["b"].story[1:] == [(10.0, "disconnected", "reset")]
    assert network.drops() == {"reset": 1}
    assert network.forgotten()


def test_a_paused_node_is_told_once_of_repeated_resets(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    network.write("b", "a", "on its way")
    network.run_until(0.1)
    network.pause("b", 10.0)
    network.hosts["a"].stop(CrashMode.KILLED)  # One reset for the kill, and one in answer to the later segment.
    network.run_until(20)
    assert network["b"].story[1:] == [(10.1, "disconnected", "reset")]
    assert network.forgotten()


def test_a_restarted_node_has_no_old_connections(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    old = network.peer("a", "b")
    network.hosts["a"].stop(CrashMode.KILLED)
    network.hosts["a"].start()
    network.want("a", Write(["from the grave"], old), Close(old))
    network.dial("a", "b")
    network.run_until(5)
    assert network["b"].got == []
    assert [what for _, what, _ in network["b"].story] == ["connected", "disconnected", "connected"]
    assert len({entry.number for entry in (*network["a"].peers, *network["b"].peers, old)}) == 3


def test_a_crash_on_persist_precedes_stream_writes(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    network.hosts["a"].crash_after_persist(CrashMode.POWER, 1.0)
    node, peer = network["a"], network.peer("a", "b")
    node.persist = "mark"
    network.want("a", Write(["never"], peer))
    network.run_until(5)
    assert network.network.counters["sent"] == 0
