from __future__ import annotations

from functools import partial

import pytest
from sim.tcp.stream_nodes import LengthCodec, MakeConnectedPair, MakeStreamNetwork

from fyrehose_twisted.effects import Address
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.tcp.segments import StreamLimits

NOWHERE: Address = ("192.0.2.1", 1)


def numbered(count: int) -> list[str]:
    return [f"message {number}" for number in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_a_stream_keeps_order_over_any_link(
    seed: int, codec: LengthCodec | None, connected_pair: MakeConnectedPair
) -> None:
    link = Link(delay=0.01, jitter=0.1, tail=0.02, reordering=0.3, loss=0.2, corruption=0.05)
    network = connected_pair(seed=seed, link=link, codec=codec)
    for number in range(0, 300, 3):
        network.network.call_in(number / 50, partial(network.write, "a", "b", *numbered(number + 3)[number:]))
        network.network.call_in(number / 50, partial(network.write, "b", "a", f"back {number}"))
    network.run_until(120)
    assert network["b"].got == numbered(300)
    assert network["a"].got == [f"back {number}" for number in range(0, 300, 3)]
    counts = network.network.counters
    assert counts["sent"] == counts["arrived"] == 400
    assert network.drops() == {}
    assert network["a"].ended == network["b"].ended == []


def test_a_lost_segment_is_retransmitted_with_backoff_and_delays_the_rest(
    codec: LengthCodec | None, connected_pair: MakeConnectedPair
) -> None:
    network = connected_pair(codec=codec)
    network.run_until(10)
    network.cut("a", "b", lasts=3.5)
    network.write("a", "b", "first")
    network.run_until(14)
    network.write("a", "b", "second")
    network.run_until(30)
    # Transmissions are at 10, 10.2, 10.6, 11.4, 13 and 16.2.
    assert [detail for _, _, detail in network["b"].told("got")] == ["first", "second"]
    assert [now for now, _, _ in network["b"].told("got")] == pytest.approx([16.45, 16.45])


def test_the_retransmission_backoff_restarts_after_success(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    network.cut("a", "b", lasts=3.5)
    network.write("a", "b", "first")
    network.run_until(10)
    network.cut("a", "b", lasts=0.1)
    network.write("a", "b", "second")
    network.run_until(20)
    assert network["b"].told("got")[1][0] == pytest.approx(10.45)


def test_a_segment_waits_for_an_earlier_lost_one(codec: LengthCodec | None, connected_pair: MakeConnectedPair) -> None:
    network = connected_pair(codec=codec)
    network.write("a", "b", "first")
    network.cut("a", "b", lasts=0.1)
    network.run_until(0.05)
    network.write("a", "b", "second")
    network.run_until(0.15)
    network.write("a", "b", "third")
    network.run_until(5)
    assert [now for now, _, _ in network["b"].told("got")] == pytest.approx([0.25, 0.5, 0.5])
    assert network["b"].got == ["first", "second", "third"]


def test_the_retransmission_interval_is_at_most_10_s(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    network.cut("a", "b", lasts=40.0)
    network.write("a", "b", "patience")
    network.run_until(100)
    assert 40.0 < network["b"].told("got")[0][0] <= 50.25


@pytest.mark.parametrize("link", [Link(delay=0.25, loss=0.25), Link(delay=0.25, corruption=0.25)])
def test_the_segment_loss_rate_includes_loss_and_corruption(link: Link, connected_pair: MakeConnectedPair) -> None:
    network = connected_pair(link=link)
    for number in range(1000):
        network.run_until(10.0 * number)
        network.write("a", "b", number)
    network.run_until(11_000)
    late = sum(now % 10 > 0.3 for now, _, _ in network["b"].told("got"))
    assert 200 < late < 300


def test_a_stream_is_delayed_by_the_bandwidth(codec: LengthCodec | None, connected_pair: MakeConnectedPair) -> None:
    network = connected_pair(codec=codec, link=Link(delay=0.25, bandwidth=1_000.0))
    network.write("a", "b", *["x" * 246] * 4)  # With a codec, four bytes of length are added.
    size = 4 * (250 if codec else 256) / 1_000.0
    network.run_until(size + 0.24)
    assert len(network["b"].got) <= 3
    network.run_until(size + 0.25001)
    assert len(network["b"].got) == 4
    network.write("a", "b", "y")
    network.run_until(5)
    assert network["b"].told("got")[-1][0] == pytest.approx(size + 0.50001 + (0.005 if codec else 0.256))


def test_object_messages_have_their_declared_size(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b", link=Link(delay=0.25, bandwidth=1_000.0))
    network.network.streams.limits = StreamLimits(object_size=500)
    network.link("a", "b")
    network.write("a", "b", 1, 2)
    network.run_until(5)
    assert [now for now, _, _ in network["b"].told("got")] == [0.75, 1.25]


def test_an_object_message_arrives_as_the_same_object(connected_pair: MakeConnectedPair) -> None:
    network, message = connected_pair(), object()
    network.write("a", "b", message)
    network.run_until(1)
    assert network["b"].got[0] is message


def test_stream_arrivals_of_one_batch_interval_are_read_together(
    connected_pair: MakeConnectedPair, length_codec: type[LengthCodec]
) -> None:
    codec = length_codec()
    network = connected_pair(codec=codec, link=Link(delay=0.25, jitter=0.2), moment=0.5)
    network.write("a", "b", *numbered(50))
    network.run_until(5)
    assert {now for now, _, _ in network["b"].told("got")} == {0.5}
    network = connected_pair(link=Link(delay=0.25), moment=0.2)
    network.write("a", "b", 1)
    network.run_until(5)
    assert network["b"].told("got")[0][0] == pytest.approx(0.4)


def test_an_empty_write_sends_nothing(codec: LengthCodec | None, connected_pair: MakeConnectedPair) -> None:
    network = connected_pair(codec=codec)
    network.write("a", "b")
    network.run_until(1)
    assert network.network.counters["sent"] == 0


def test_an_unknown_effect_of_a_stream_node_is_an_error(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    with pytest.raises(TypeError, match="a has an unsupported effect str"):
        network.want("a", "please")
