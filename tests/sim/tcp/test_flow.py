from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
from sim.tcp.talkers import JoinLines, LengthCodec, MakeLines

from fyrehose_twisted.effects import Address, Write
from fyrehose_twisted.sim.tcp.segments import StreamLimits

NOWHERE: Address = ("192.0.2.1", 1)


def numbered(count: int) -> list[str]:
    return [f"message {number}" for number in range(count)]


def buffered(lines: Any) -> int:
    """Return the number of bytes queued on all connections of host a."""
    ends = lines.network.streams.connection_ends(lines.hosts["a"]).values()
    return sum(end.send_buffer.waiting_bytes for end in ends if end.send_buffer is not None)


def test_a_pause_of_8_s_loses_nothing(codec: LengthCodec | None, joined: JoinLines) -> None:
    lines = joined(codec=codec)
    lines.pause("b", 8.0)
    for number in range(70):
        lines.run_until(number / 10)
        lines.write("a", "b", f"message {number}")
    lines.run_until(7.9)
    assert lines["b"].got == []
    lines.run_until(8.3)
    assert lines["b"].got == numbered(70)
    assert {now for now, _, _ in lines["b"].told("got")} == {8.0}


@pytest.mark.parametrize("lasts", [8.0, 200.0])
def test_who_writes_to_one_that_stands_still_is_blocked_and_then_unblocked(
    lasts: float, codec: LengthCodec | None, joined: JoinLines
) -> None:
    lines = joined(codec=codec)
    lines.pause("b", lasts)
    size = 246 if codec else 0
    messages = [f"{number:0>{size}}" for number in range(600)]
    lines.write("a", "b", *messages[:500])
    lines.run_until(1)
    # The window has room for 256 of 256 bytes (a little more as bytes), and as many may wait in peace.
    assert lines["a"].told("blocked", "unblocked") == []
    lines.write("a", "b", *messages[500:])
    lines.run_until(lasts)
    assert lines["a"].told("blocked", "unblocked") == [(1.0, "blocked", None)]
    waiting = lines.network.counters["stream_buffered"]
    assert buffered(lines) == waiting
    assert (600 - 256) * 250 - 66_000 * bool(codec) < waiting <= (600 - 256) * 256
    lines.run_until(lasts + 10)
    assert lines["b"].got == messages
    # One window is read at once and makes room for the next; only when that was read as well, little is left.
    assert lines["a"].told("unblocked") == [(lasts + 0.75, "unblocked", None)]
    assert buffered(lines) == 0
    assert lines["a"].ended == []
    assert [what for _, name, what in lines.words if name == "a"] == ["connected", "blocked", "unblocked"]


def test_what_is_lost_after_a_long_wait_for_room_goes_again_after_0_2_s(joined: JoinLines) -> None:
    lines = joined()
    lines.pause("b", 30.0)
    lines.write("a", "b", *range(300))
    lines.run_until(31)
    lines.cut("a", "b", lasts=0.1)
    lines.write("a", "b", "lost")
    lines.run_until(40)
    now, _, message = lines["b"].told("got")[-1]
    assert message == "lost"
    assert now == pytest.approx(31.45)


def test_a_slow_reader_reads_as_fast_as_it_reads(codec: LengthCodec | None, joined: JoinLines) -> None:
    lines = joined(codec=codec)
    lines.network.streams.throttle_reads(lines.hosts["b"], 1_000.0)
    messages = [f"{number:0>246}" for number in range(600)]
    lines.write("a", "b", *messages)
    for _ in range(15):
        before = len(lines["b"].got)
        lines.network.run(10.0)
        assert 31 <= len(lines["b"].got) - before <= 47 or len(lines["b"].got) == 600
    lines.run_until(200)
    assert lines["b"].got == messages
    assert [what for _, what, _ in lines["a"].story[1:]] == ["blocked", "unblocked"]
    assert lines["a"].ended == []


def test_a_slow_host_reads_its_connections_in_turn(lines_of: MakeLines) -> None:
    lines = lines_of("a", "b", "c")
    lines.network.streams.throttle_reads(lines.hosts["c"], 256.0)
    lines.link("a", "c")
    lines.link("b", "c")
    lines.write("a", "c", *["a"] * 10)
    lines.write("b", "c", *["b"] * 10)
    lines.run_until(10)
    assert lines["c"].told("got") == [(0.25 + row, "got", "ab"[row % 2]) for row in range(10)]


def test_one_connection_can_be_slow_alone_until_it_is_hastened(lines_of: MakeLines) -> None:
    lines = lines_of("a", "b", "c")
    slow = lines.network.streams.throttle_reads(lines.hosts["c"], 256.0, lines.hosts["a"].address)
    lines.link("a", "c")
    lines.link("b", "c")
    lines.write("a", "c", *["a"] * 10)
    lines.write("b", "c", *["b"] * 10)
    lines.run_until(1.5)
    assert sorted(lines["c"].got) == ["a"] * 2 + ["b"] * 10
    lines.network.streams.remove_throttle(slow)
    assert sorted(lines["c"].got) == ["a"] * 10 + ["b"] * 10


def test_of_two_that_slow_the_later_counts(joined: JoinLines) -> None:
    lines = joined()
    slower = lines.network.streams.throttle_reads(lines.hosts["b"], 64.0)
    lines.write("a", "b", *range(100))
    lines.run_until(4)
    lines.network.streams.throttle_reads(lines.hosts["b"], 256.0)
    before = len(lines["b"].got)
    lines.run_until(34)
    assert 28 <= len(lines["b"].got) - before <= 32
    lines.network.streams.remove_throttle(slower)
    lines.run_until(1_000)
    assert lines["b"].got == list(range(100))


def test_a_slow_reader_that_stands_still_reads_on_later(codec: LengthCodec | None, joined: JoinLines) -> None:
    lines = joined(codec=codec)
    lines.network.streams.throttle_reads(lines.hosts["b"], 2_000.0)
    lines.write("a", "b", *[f"{number:0>246}" for number in range(100)])
    lines.run_until(2)
    lines.pause("b", 10.0)
    got = len(lines["b"].got)
    lines.run_until(11)
    assert 0 < got == len(lines["b"].got) < 100
    lines.run_until(40)
    assert len(lines["b"].got) == 100


def test_without_answers_no_more_than_the_window_gets_through(joined: JoinLines) -> None:
    lines = joined()
    lines.cut("b", "a", lasts=30.0)
    lines.write("a", "b", *range(600))
    lines.run_until(29)
    assert lines["b"].got == list(range(256))
    assert len(lines["a"].told("blocked")) == 1
    lines.run_until(60)
    assert lines["b"].got == list(range(600))
    assert lines["a"].ended == []
    lines.write("a", "b", *range(300))
    lines.run_until(62)
    assert len(lines["b"].got) == 900


def test_a_message_longer_than_the_window_passes_alone(lines_of: MakeLines) -> None:
    lines = lines_of("a", "b")
    lines.network.streams.limits = StreamLimits(object_size=1_000, window=100)
    lines.link("a", "b")
    lines.write("a", "b", 1, 2, 3)
    lines.run_until(5)
    assert lines["b"].told("got") == [(0.25, "got", 1), (0.75, "got", 2), (1.25, "got", 3)]


def test_blocked_is_not_told_before_the_rest_of_what_the_node_wants_is_done(lines_of: MakeLines) -> None:
    lines = lines_of("a", "b", "c")
    lines.link("a", "b")
    lines.link("a", "c")
    to_b, to_c = lines.peer("a", "b"), lines.peer("a", "c")
    sent: list[Any] = []
    lines["a"].react = lambda what, detail, peer: sent.append(lines.network.counters["sent"])
    lines.want("a", Write(range(600), to_b), Write(range(5), to_c))
    lines.run_until(1)
    assert sent[0] == 605


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"window": -5}, "window=-5"),
        ({"window": 0}, "window=0"),
        ({"segment": 0}, "segment=0"),
        ({"object_size": -1}, "object_size=-1"),
        ({"high": -1}, "high=-1"),
        ({"low": 0}, "low=0"),
        ({"high": 10, "low": 12}, "low=12"),
        ({"timeout": 0.0}, "timeout=0.0"),
        ({"dial_timeout": nan}, "dial_timeout=nan"),
    ],
)
def test_limits_have_to_make_sense(limits: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=f"^{says}; "):
        StreamLimits(**limits)


def test_the_narrowest_limits_are_possible() -> None:
    StreamLimits(window=1, high=0, low=1, object_size=1, segment=1, timeout=1e-6, dial_timeout=inf)
