from __future__ import annotations

from functools import partial

import pytest
from sim.tcp.talkers import JoinLines, LengthCodec, MakeLines

from fyrehose_twisted.effects import Address
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.tcp.segments import StreamLimits

NOWHERE: Address = ("192.0.2.1", 1)


def numbered(count: int) -> list[str]:
    return [f"message {number}" for number in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_it_keeps_order_whatever_the_link_does(seed: int, codec: LengthCodec | None, joined: JoinLines) -> None:
    link = Link(delay=0.01, jitter=0.1, tail=0.02, reordering=0.3, loss=0.2, corruption=0.05)
    lines = joined(seed=seed, link=link, codec=codec)
    for number in range(0, 300, 3):
        lines.network.call_in(number / 50, partial(lines.write, "a", "b", *numbered(number + 3)[number:]))
        lines.network.call_in(number / 50, partial(lines.write, "b", "a", f"back {number}"))
    lines.run_until(120)
    assert lines["b"].got == numbered(300)
    assert lines["a"].got == [f"back {number}" for number in range(0, 300, 3)]
    counts = lines.network.counters
    assert counts["sent"] == counts["arrived"] == 400
    assert lines.drops() == {}
    assert lines["a"].ended == lines["b"].ended == []


def test_what_was_lost_goes_again_after_0_2_s_then_twice_as_long_and_holds_up_the_rest(
    codec: LengthCodec | None, joined: JoinLines
) -> None:
    lines = joined(codec=codec)
    lines.run_until(10)
    lines.cut("a", "b", lasts=3.5)
    lines.write("a", "b", "first")
    lines.run_until(14)
    lines.write("a", "b", "second")
    lines.run_until(30)
    # It goes at 10, 10.2, 10.6, 11.4, 13 and 16.2.
    assert [detail for _, _, detail in lines["b"].told("got")] == ["first", "second"]
    assert [now for now, _, _ in lines["b"].told("got")] == pytest.approx([16.45, 16.45])


def test_a_loss_after_a_long_time_in_vain_goes_again_after_0_2_s_at_first(joined: JoinLines) -> None:
    lines = joined()
    lines.cut("a", "b", lasts=3.5)
    lines.write("a", "b", "first")
    lines.run_until(10)
    lines.cut("a", "b", lasts=0.1)
    lines.write("a", "b", "second")
    lines.run_until(20)
    assert lines["b"].told("got")[1][0] == pytest.approx(10.45)


def test_one_that_is_not_lost_waits_for_one_that_is(codec: LengthCodec | None, joined: JoinLines) -> None:
    lines = joined(codec=codec)
    lines.write("a", "b", "first")
    lines.cut("a", "b", lasts=0.1)
    lines.run_until(0.05)
    lines.write("a", "b", "second")
    lines.run_until(0.15)
    lines.write("a", "b", "third")
    lines.run_until(5)
    assert [now for now, _, _ in lines["b"].told("got")] == pytest.approx([0.25, 0.5, 0.5])
    assert lines["b"].got == ["first", "second", "third"]


def test_it_goes_again_every_10_s_at_least(joined: JoinLines) -> None:
    lines = joined()
    lines.cut("a", "b", lasts=40.0)
    lines.write("a", "b", "patience")
    lines.run_until(100)
    assert 40.0 < lines["b"].told("got")[0][0] <= 50.25


@pytest.mark.parametrize("link", [Link(delay=0.25, loss=0.25), Link(delay=0.25, corruption=0.25)])
def test_a_link_loses_about_as_many_as_it_loses_or_garbles(link: Link, joined: JoinLines) -> None:
    lines = joined(link=link)
    for number in range(1000):
        lines.run_until(10.0 * number)
        lines.write("a", "b", number)
    lines.run_until(11_000)
    late = sum(now % 10 > 0.3 for now, _, _ in lines["b"].told("got"))
    assert 200 < late < 300


def test_bandwidth_takes_time(codec: LengthCodec | None, joined: JoinLines) -> None:
    lines = joined(codec=codec, link=Link(delay=0.25, bandwidth=1_000.0))
    lines.write("a", "b", *["x" * 246] * 4)  # as bytes, four more are the length
    size = 4 * (250 if codec else 256) / 1_000.0
    lines.run_until(size + 0.24)
    assert len(lines["b"].got) <= 3
    lines.run_until(size + 0.25001)
    assert len(lines["b"].got) == 4
    lines.write("a", "b", "y")
    lines.run_until(5)
    assert lines["b"].told("got")[-1][0] == pytest.approx(size + 0.50001 + (0.005 if codec else 0.256))


def test_messages_are_as_long_as_they_are_told_to_be_where_they_are_objects(lines_of: MakeLines) -> None:
    lines = lines_of("a", "b", link=Link(delay=0.25, bandwidth=1_000.0))
    lines.network.streams.limits = StreamLimits(object_size=500)
    lines.link("a", "b")
    lines.write("a", "b", 1, 2)
    lines.run_until(5)
    assert [now for now, _, _ in lines["b"].told("got")] == [0.75, 1.25]


def test_a_message_that_travels_as_an_object_is_the_one_that_was_written(joined: JoinLines) -> None:
    lines, message = joined(), object()
    lines.write("a", "b", message)
    lines.run_until(1)
    assert lines["b"].got[0] is message


def test_what_arrives_in_one_moment_is_read_together(joined: JoinLines, length_codec: type[LengthCodec]) -> None:
    codec = length_codec()
    lines = joined(codec=codec, link=Link(delay=0.25, jitter=0.2), moment=0.5)
    lines.write("a", "b", *numbered(50))
    lines.run_until(5)
    assert {now for now, _, _ in lines["b"].told("got")} == {0.5}
    lines = joined(link=Link(delay=0.25), moment=0.2)
    lines.write("a", "b", 1)
    lines.run_until(5)
    assert lines["b"].told("got")[0][0] == pytest.approx(0.4)


def test_writing_nothing_sends_nothing(codec: LengthCodec | None, joined: JoinLines) -> None:
    lines = joined(codec=codec)
    lines.write("a", "b")
    lines.run_until(1)
    assert lines.network.counters["sent"] == 0


def test_an_effect_that_nobody_knows_is_an_error(joined: JoinLines) -> None:
    lines = joined()
    with pytest.raises(TypeError, match="a has an unsupported effect str"):
        lines.want("a", "please")
