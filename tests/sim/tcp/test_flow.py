from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
from sim.tcp.stream_nodes import LengthCodec, MakeConnectedPair, MakeStreamNetwork, StreamNetwork

from fyrehose_twisted.effects import Address, Write
from fyrehose_twisted.sim.tcp.segments import StreamLimits

NOWHERE: Address = ("192.0.2.1", 1)


def numbered(count: int) -> list[str]:
    return [f"message {number}" for number in range(count)]


def buffered_bytes(network: StreamNetwork) -> int:
    """Return the number of bytes queued on all connections of host a."""
    ends = network.network.streams.connection_ends(network.hosts["a"]).values()
    return sum(end.send_buffer.waiting_bytes for end in ends if end.send_buffer is not None)


def test_a_receiver_paused_for_8_s_loses_nothing(codec: LengthCodec | None, connected_pair: MakeConnectedPair) -> None:
    network = connected_pair(codec=codec)
    network.pause("b", 8.0)
    for number in range(70):
        network.run_until(number / 10)
        network.write("a", "b", f"message {number}")
    network.run_until(7.9)
    assert network["b"].got == []
    network.run_until(8.3)
    assert network["b"].got == numbered(70)
    assert {now for now, _, _ in network["b"].told("got")} == {8.0}


@pytest.mark.parametrize("lasts", [8.0, 200.0])
def test_a_sender_to_a_paused_receiver_is_blocked_and_unblocked(
    lasts: float, codec: LengthCodec | None, connected_pair: MakeConnectedPair
) -> None:
    network = connected_pair(codec=codec)
    network.pause("b", lasts)
    size = 246 if codec else 0
    messages = [f"{number:0>{size}}" for number in range(600)]
    network.write("a", "b", *messages[:500])
    network.run_until(1)
    # The window holds 256 messages of 256 bytes (a little more as bytes), and as many may wait unreported.
    assert network["a"].told("blocked", "unblocked") == []
    network.write("a", "b", *messages[500:])
    network.run_until(lasts)
    assert network["a"].told("blocked", "unblocked") == [(1.0, "blocked", None)]
    waiting = network.network.counters["stream_buffered"]
    assert buffered_bytes(network) == waiting
    assert (600 - 256) * 250 - 66_000 * bool(codec) < waiting <= (600 - 256) * 256
    network.run_until(lasts + 10)
    assert network["b"].got == messages
    # One window is read at once; after the next one is read too, little is left.
    assert network["a"].told("unblocked") == [(lasts + 0.75, "unblocked", None)]
    assert buffered_bytes(network) == 0
    assert network["a"].ended == []
    assert [what for _, name, what in network.words if name == "a"] == ["connected", "blocked", "unblocked"]


def test_a_segment_lost_after_a_long_zero_window_is_retransmitted_after_0_2_s(
    connected_pair: MakeConnectedPair,
) -> None:
    network = connected_pair()
    network.pause("b", 30.0)
    network.write("a", "b", *range(300))
    network.run_until(31)
    network.cut("a", "b", lasts=0.1)
    network.write("a", "b", "lost")
    network.run_until(40)
    now, _, message = network["b"].told("got")[-1]
    assert message == "lost"
    assert now == pytest.approx(31.45)


def test_a_slow_reader_reads_at_its_configured_rate(
    codec: LengthCodec | None, connected_pair: MakeConnectedPair
) -> None:
    network = connected_pair(codec=codec)
    network.network.streams.throttle_reads(network.hosts["b"], 1_000.0)
    messages = [f"{number:0>246}" for number in range(600)]
    network.write("a", "b", *messages)
    for _ in range(15):
        before = len(network["b"].got)
        network.network.run(10.0)
        assert 31 <= len(network["b"].got) - before <= 47 or len(network["b"].got) == 600
    network.run_until(200)
    assert network["b"].got == messages
    assert [what for _, what, _ in network["a"].story[1:]] == ["blocked", "unblocked"]
    assert network["a"].ended == []


def test_a_slow_host_reads_its_connections_in_turn(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b", "c")
    network.network.streams.throttle_reads(network.hosts["c"], 256.0)
    network.link("a", "c")
    network.link("b", "c")
    network.write("a", "c", *["a"] * 10)
    network.write("b", "c", *["b"] * 10)
    network.run_until(10)
    assert network["c"].told("got") == [(0.25 + row, "got", "ab"[row % 2]) for row in range(10)]


def test_a_single_connection_can_be_slowed_and_restored(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b", "c")
    slow = network.network.streams.throttle_reads(network.hosts["c"], 256.0, network.hosts["a"].address)
    network.link("a", "c")
    network.link("b", "c")
    network.write("a", "c", *["a"] * 10)
    network.write("b", "c", *["b"] * 10)
    network.run_until(1.5)
    assert sorted(network["c"].got) == ["a"] * 2 + ["b"] * 10
    network.network.streams.remove_throttle(slow)
    assert sorted(network["c"].got) == ["a"] * 10 + ["b"] * 10


def test_the_later_of_two_slow_reader_rates_applies(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    slower = network.network.streams.throttle_reads(network.hosts["b"], 64.0)
    network.write("a", "b", *range(100))
    network.run_until(4)
    network.network.streams.throttle_reads(network.hosts["b"], 256.0)
    before = len(network["b"].got)
    network.run_until(34)
    assert 28 <= len(network["b"].got) - before <= 32
    network.network.streams.remove_throttle(slower)
    network.run_until(1_000)
    assert network["b"].got == list(range(100))


def test_a_paused_slow_reader_continues_on_resume(codec: LengthCodec | None, connected_pair: MakeConnectedPair) -> None:
    network = connected_pair(codec=codec)
    network.network.streams.throttle_reads(network.hosts["b"], 2_000.0)
    network.write("a", "b", *[f"{number:0>246}" for number in range(100)])
    network.run_until(2)
    network.pause("b", 10.0)
    got = len(network["b"].got)
    network.run_until(11)
    assert 0 < got == len(network["b"].got) < 100
    network.run_until(40)
    assert len(network["b"].got) == 100


def test_without_acks_only_one_window_is_delivered(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    network.cut("b", "a", lasts=30.0)
    network.write("a", "b", *range(600))
    network.run_until(29)
    assert network["b"].got == list(range(256))
    assert len(network["a"].told("blocked")) == 1
    network.run_until(60)
    assert network["b"].got == list(range(600))
    assert network["a"].ended == []
    network.write("a", "b", *range(300))
    network.run_until(62)
    assert len(network["b"].got) == 900


def test_a_message_longer_than_the_window_is_sent_alone(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b")
    network.network.streams.limits = StreamLimits(object_size=1_000, window=100)
    network.link("a", "b")
    network.write("a", "b", 1, 2, 3)
    network.run_until(5)
    assert network["b"].told("got") == [(0.25, "got", 1), (0.75, "got", 2), (1.25, "got", 3)]


def test_blocked_is_reported_after_the_remaining_effects_of_the_node(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b", "c")
    network.link("a", "b")
    network.link("a", "c")
    to_b, to_c = network.peer("a", "b"), network.peer("a", "c")
    sent: list[Any] = []
    network["a"].react = lambda what, detail, peer: sent.append(network.network.counters["sent"])
    network.want("a", Write(range(600), to_b), Write(range(5), to_c))
    network.run_until(1)
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
def test_invalid_stream_limits_are_refused(limits: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=f"^{says}; "):
        StreamLimits(**limits)


def test_minimum_stream_limits_are_accepted() -> None:
    StreamLimits(window=1, high=0, low=1, object_size=1, segment=1, timeout=1e-6, dial_timeout=inf)
