from __future__ import annotations

import pytest
from sim.tcp.talkers import JoinLines, LengthCodec

from fyrehose_twisted.effects import Address, Close, Write
from fyrehose_twisted.sim.crash_mode import CrashMode

NOWHERE: Address = ("192.0.2.1", 1)


def numbered(count: int) -> list[str]:
    return [f"message {number}" for number in range(count)]


def test_a_host_that_is_killed_resets(codec: LengthCodec | None, joined: JoinLines) -> None:
    lines = joined(codec=codec)
    lines.write("a", "b", "on its way")
    lines.write("b", "a", "on its way too")
    lines.hosts["a"].stop(CrashMode.KILLED)
    lines.run_until(5)
    assert lines["b"].story[1:] == [(0.25, "got", "on its way"), (0.25, "disconnected", "reset")]
    assert lines.drops() == {"reset": 1}
    assert lines.words[2:] == [(0.25, "b", "reset")]
    assert lines.forgotten()


def test_the_kernel_of_one_that_was_killed_still_sends_what_a_node_that_hung_up_wrote(
    codec: LengthCodec | None, joined: JoinLines
) -> None:
    lines = joined(codec=codec)
    messages = [f"{number:0>246}" for number in range(600)]
    lines.write("a", "b", *messages)
    lines.hang_up("a", "b")
    lines.hosts["a"].stop(CrashMode.KILLED)
    lines.run_until(5)
    assert lines["b"].got == messages
    assert [reason for _, reason in lines["b"].ended] == ["closed"]
    assert lines.forgotten()


@pytest.mark.parametrize("crash", [CrashMode.POWER, CrashMode.DISK])
def test_one_that_lost_power_sends_nothing_not_even_what_was_left_when_it_hung_up(
    crash: CrashMode, joined: JoinLines
) -> None:
    lines = joined()
    lines.write("a", "b", *range(600))
    lines.hang_up("a", "b")
    lines.hosts["a"].stop(crash)
    lines.run_until(500)
    assert lines["b"].got == list(range(256))
    assert lines["b"].ended == []
    assert lines.drops() == {"down": 344}


def test_a_reset_that_is_cut_off_leaves_a_half_open_connection(codec: LengthCodec | None, joined: JoinLines) -> None:
    lines = joined(codec=codec)
    lines.cut_both_ways("a", "b", lasts=10.0)
    lines.hosts["a"].stop(CrashMode.KILLED)
    lines.network.call_in(5.0, lines.hosts["a"].start)
    lines.run_until(100)
    assert lines["b"].ended == []
    lines.write("b", "a", "anybody?")
    lines.run_until(200)
    assert lines["b"].ended == [(100.5, "reset")]
    assert lines["a"].story == []
    assert lines.drops() == {"reset": 1}
    assert lines.forgotten()


def test_after_a_power_cut_the_next_that_reaches_the_machine_is_reset(
    codec: LengthCodec | None, joined: JoinLines
) -> None:
    lines = joined(codec=codec)
    lines.hosts["a"].stop(CrashMode.POWER)
    lines.write("b", "a", "into the dark")
    lines.run_until(10)
    assert lines["b"].ended == []
    lines.hosts["a"].start()
    lines.run_until(100)
    # It goes at 0, and then again 0.2, 0.4 and so on after it turned out that it did not arrive.
    assert [reason for _, reason in lines["b"].ended] == ["reset"]
    assert 10.5 < lines["b"].ended[0][0] < 20.0
    assert lines["a"].story == []
    assert lines.forgotten()


@pytest.mark.parametrize("crash", [CrashMode.POWER, CrashMode.DISK])
def test_without_power_nothing_answers_and_the_sender_gives_up(
    crash: CrashMode, codec: LengthCodec | None, joined: JoinLines
) -> None:
    lines = joined(codec=codec)
    lines.hosts["a"].stop(crash)
    lines.run_until(100)
    assert lines["b"].ended == []  # It has written nothing, so it waits for nothing.
    lines.write("b", "a", "into the dark")
    lines.run_until(200)
    assert lines["b"].ended == [(160.0, "timed out")]
    assert lines.drops() == {"timed out": 1}
    assert lines.words[-1] == (160.0, "b", "timed out")
    assert lines.forgotten()


# Cut back, it arrives, and only the answer does not.
@pytest.mark.parametrize(("source", "to", "arrives"), [("a", "b", []), ("b", "a", ["anybody?", "again?"])])
def test_a_cut_that_is_too_long_ends_it_for_who_writes(
    source: str, to: str, arrives: list[str], joined: JoinLines
) -> None:
    lines = joined()
    lines.run_until(10)
    lines.cut(source, to, lasts=100.0)
    lines.write("a", "b", "anybody?")
    lines.run_until(20)
    lines.write("a", "b", "again?")
    lines.run_until(120)
    assert lines["a"].ended == [(70.0, "timed out")]
    assert lines["b"].got == arrives
    assert lines["b"].ended == []
    lines.write("b", "a", "me")
    lines.run_until(200)
    assert lines["b"].ended == [(120.5, "reset")]
    assert lines.forgotten()


def test_a_cut_that_is_not_too_long_is_not_noticed(codec: LengthCodec | None, joined: JoinLines) -> None:
    lines = joined(codec=codec)
    lines.cut_both_ways("a", "b", lasts=45.0)
    for number in range(59):
        lines.write("a", "b", f"message {number}")
        lines.write("b", "a", f"message {number}")
        lines.network.run(1.0)
    lines.run_until(70)
    assert lines["a"].got == lines["b"].got == numbered(59)
    assert lines["a"].ended == lines["b"].ended == []


def test_one_that_says_nothing_notices_nothing(joined: JoinLines) -> None:
    lines = joined()
    lines.cut_both_ways("a", "b", lasts=1_000.0)
    lines.run_until(1_001)
    lines.write("a", "b", "still there?")
    lines.run_until(1_002)
    assert lines["b"].got == ["still there?"]


def test_the_patience_of_the_sender_begins_anew_with_each_answer(joined: JoinLines) -> None:
    lines = joined()
    for number in range(5):
        lines.run_until(100.0 * number)
        lines.write("a", "b", number)
        lines.run_until(100.0 * number + 1)
        lines.cut("a", "b", lasts=40.0)
        lines.write("a", "b", number)
    lines.run_until(600)
    assert lines["b"].got == [number for number in range(5) for _ in range(2)]
    assert lines["a"].ended == []


def test_who_is_blocked_by_one_that_loses_power_gives_up_too(joined: JoinLines) -> None:
    lines = joined()
    lines.hosts["b"].pause()
    lines.write("a", "b", *range(530))
    lines.run_until(100)
    lines.hosts["b"].stop(CrashMode.POWER)
    lines.run_until(300)
    assert [(what, detail) for _, what, detail in lines["a"].story[1:]] == [
        ("blocked", None),
        ("disconnected", "timed out"),
    ]
    assert 150 < lines["a"].ended[0][0] <= 160
    assert lines.drops() == {"down": 256, "timed out": 274}


def test_a_lost_reset_is_answered_when_more_is_written(joined: JoinLines) -> None:
    lines = joined()
    lines.cut("a", "b", lasts=2.0)
    lines.hosts["a"].stop(CrashMode.KILLED)
    lines.run_until(1)
    lines.write("b", "a", "anybody?")
    lines.run_until(10)
    # It goes at 1, 1.45, 2.1: each time it is noticed when it would have arrived.
    assert [reason for _, reason in lines["b"].ended] == ["reset"]
    assert 2.25 < lines["b"].ended[0][0] < 4


def test_the_end_is_told_to_one_that_stands_still_when_it_goes_on(joined: JoinLines) -> None:
    lines = joined()
    lines.pause("b", 10.0)
    lines.write("a", "b", "never read")
    lines.run_until(1)
    lines.hosts["a"].stop(CrashMode.KILLED)
    lines.run_until(2)
    lines.hosts["a"].start()
    lines.run_until(20)
    assert lines["b"].story[1:] == [(10.0, "disconnected", "reset")]
    assert lines.drops() == {"reset": 1}
    assert lines.forgotten()


def test_one_that_stands_still_is_told_once_however_often_it_was_reset(joined: JoinLines) -> None:
    lines = joined()
    lines.write("b", "a", "on its way")
    lines.run_until(0.1)
    lines.pause("b", 10.0)
    lines.hosts["a"].stop(CrashMode.KILLED)  # One reset is for that, and one answers what arrives there after it.
    lines.run_until(20)
    assert lines["b"].story[1:] == [(10.1, "disconnected", "reset")]
    assert lines.forgotten()


def test_a_new_node_has_no_old_connections(joined: JoinLines) -> None:
    lines = joined()
    old = lines.peer("a", "b")
    lines.hosts["a"].stop(CrashMode.KILLED)
    lines.hosts["a"].start()
    lines.want("a", Write(["from the grave"], old), Close(old))
    lines.dial("a", "b")
    lines.run_until(5)
    assert lines["b"].got == []
    assert [what for _, what, _ in lines["b"].story] == ["connected", "disconnected", "connected"]
    assert len({entry.number for entry in (*lines["a"].peers, *lines["b"].peers, old)}) == 3


def test_once_something_is_durable_a_crash_comes_before_what_is_written(joined: JoinLines) -> None:
    lines = joined()
    lines.hosts["a"].crash_after_persist(CrashMode.POWER, 1.0)
    node, peer = lines["a"], lines.peer("a", "b")
    node.persist = "mark"
    lines.want("a", Write(["never"], peer))
    lines.run_until(5)
    assert lines.network.counters["sent"] == 0
