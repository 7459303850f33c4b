from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim.tcp.talkers import JoinLines, LengthCodec, MakeLines

from fyrehose_twisted.effects import Address, Peer, Write
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.observer import SimPacket
from fyrehose_twisted.sim.tcp.route import SplitMix64
from fyrehose_twisted.sim.tcp.segments import split_for_reading, split_into_segments

NOWHERE: Address = ("192.0.2.1", 1)


def numbered(count: int) -> list[str]:
    return [f"message {number}" for number in range(count)]


def test_both_have_a_codec_or_none_has(lines_of: MakeLines, length_codec: type[LengthCodec]) -> None:
    lines = lines_of("a", "b")
    lines.network.streams.codecs[lines.hosts["b"].address] = length_codec()
    with pytest.raises(ConfigurationError, match="of a and b, give both a codec or none"):
        lines.link("a", "b")


def test_codecs_of_single_hosts_count_first(lines_of: MakeLines, length_codec: type[LengthCodec]) -> None:
    ours, theirs = length_codec(), length_codec()
    lines = lines_of("a", "b", codec=ours)
    lines.network.streams.codecs[lines.hosts["b"].address] = theirs
    lines.link("a", "b")
    lines.write("a", "b", "hello")
    lines.run_until(1)
    assert (b"".join(ours.fed), b"".join(theirs.fed)) == (b"", b"\0\0\0\5hello")


def test_bytes_are_cut_anywhere_and_single_at_times(joined: JoinLines, length_codec: type[LengthCodec]) -> None:
    codec = length_codec()
    lines = joined(codec=codec, link=Link(delay=0.1, jitter=0.1), split=0.1)
    text = "".join(Random(1).choices("0123456789", k=100_000))
    for number in range(200):
        lines.write("a", "b", f"short {number}", "")
        lines.network.run(0.01)
    lines.write("a", "b", text, "end")
    lines.run_until(30)
    assert [message for message in lines["b"].got if message][-2:] == [text, "end"]
    sizes = [len(piece) for piece in codec.fed]
    assert sizes.count(1) > 20
    assert len(set(sizes)) > 20
    starts_in_a_length = [piece for piece in codec.fed if piece.startswith((b"\0\0", b"\0\x07"))]
    assert 10 < len(starts_in_a_length) < len(sizes) - 10
    assert any(piece.startswith(b"hort") for piece in codec.fed)


def test_without_split_nothing_is_cut_where_it_is_read(joined: JoinLines, length_codec: type[LengthCodec]) -> None:
    codec = length_codec()
    lines = joined(codec=codec)
    for number in range(50):
        lines.write("a", "b", f"{number:0>1000}")
        lines.network.run(1.0)
    # What was cut on the way arrives together here, and so is read in one piece.
    assert codec.fed == [b"\0\0\x03\xe8%04d" % 0 + b"%0996d" % number for number in range(50)]


def test_a_node_that_stops_reading_half_way_gets_the_rest_when_it_goes_on(
    codec: LengthCodec | None, joined: JoinLines
) -> None:
    lines = joined(codec=codec)

    def pause(what: str, detail: Any, peer: Peer | None) -> None:
        if detail == "message 3":
            lines.pause("b", 2.0)

    lines["b"].react = pause
    lines.write("a", "b", *numbered(10))
    lines.run_until(1)
    assert lines["b"].got == numbered(4)
    lines.run_until(3)
    assert lines["b"].got == numbered(10)
    assert lines.network.counters["arrived"] == 10


def test_a_node_that_crashes_half_way_loses_the_rest(codec: LengthCodec | None, joined: JoinLines) -> None:
    lines = joined(codec=codec)
    node = lines["b"]
    node.react = lambda what, detail, peer: detail == "message 3" and lines.hosts["b"].stop()
    lines.write("a", "b", *numbered(10))
    lines.run_until(5)
    assert node.got == numbered(4)
    assert lines.network.counters["arrived"] == 4
    assert sum(lines.drops().values()) == 6


def test_a_message_that_the_decoder_keeps_to_itself_has_arrived_too(
    joined: JoinLines, length_codec: type[LengthCodec]
) -> None:
    codec = length_codec()
    decoder = codec.decoder()

    class Echo:
        def feed(self, data: bytes) -> list[str]:
            return [message for message in decoder.feed(data) for _ in range(2) if message != "nothing"]

    codec.decoder = Echo
    lines = joined(codec=codec)
    lines.write("a", "b", "one", "nothing", "two")
    lines.run_until(5)
    assert lines["b"].got == ["one", "one", "two", "two"]
    assert lines.network.counters["arrived"] == 3


def test_garbage_resets_and_both_are_told(joined: JoinLines, length_codec: type[LengthCodec]) -> None:
    lines = joined(codec=length_codec())
    lines.write("a", "b", "good")
    lines.write("b", "a", "answer")
    lines.run_until(1)
    lines.write("a", "b", "!")
    lines.write("b", "a", "too late")
    lines.run_until(70)
    assert (lines["b"].got, lines["b"].ended) == (["good"], [(1.25, "malformed: 255 is no length")])
    assert (lines["a"].got, lines["a"].ended) == (["answer", "too late"], [(1.5, "reset")])
    assert lines.drops() == {"reset": 1}
    assert lines.words[-2:] == [(1.25, "b", "reset"), (1.5, "a", "reset")]
    assert lines.forgotten()


@pytest.mark.parametrize("split_seed", range(8))
def test_where_bytes_are_cut_changes_nothing_else(
    split_seed: int, lines_of: MakeLines, length_codec: type[LengthCodec]
) -> None:
    def run(split_seed: int) -> tuple[list[Any], Any]:
        codec = length_codec()
        link = Link(jitter=0.05, loss=0.1)
        lines = lines_of("a", "b", codec=codec, split=0.1, split_seed=split_seed, moment=0.02, link=link)
        node = lines["b"]
        node.react = lambda what, detail, peer: (
            node.wants.append(Write([f"re: {detail}"], peer)) if peer and what == "got" and "7" in detail else None
        )
        lines.dial("a", "b")
        lines.run_until(1)
        for number in range(0, 80, 4):
            lines.write("a", "b", *numbered(number + 4)[number:])
            lines.network.run(0.02)
        lines.run_until(20)
        lines.write("a", "b", "lost", "!", "never")
        lines.run_until(40)
        return [lines["a"].story, lines["b"].story, lines.words, lines.network.counters], codec

    (outcome, codec), (other, other_codec) = run(split_seed), run(split_seed + 1)
    assert outcome == other
    assert codec.fed != other_codec.fed


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=20), st.integers(1, 100), st.integers())
def test_cut_to_travel_loses_nothing(messages: list[bytes], longest: int, seed: int) -> None:
    host: Any = None
    packets = [SimPacket(number, host, NOWHERE, data, 0.0) for number, data in enumerate(messages)]
    segments = split_into_segments(packets, longest, SplitMix64(str(seed)))
    pieces = [segment.data for segment in segments if isinstance(segment.data, bytes)]
    assert b"".join(pieces) == b"".join(messages)
    assert [segment.size for segment in segments] == [len(piece) for piece in pieces]
    assert max(len(piece) for piece in pieces) <= longest
    assert [packet for segment in segments for packet in segment.completed_packets] == packets
    done = 0
    for row, segment in enumerate(segments):
        done += len(segment.completed_packets)
        passed = sum(map(len, pieces[: row + 1]))
        # A packet is in the segment that has its last byte.
        assert sum(map(len, messages[:done])) <= passed
        assert done == len(messages) or sum(map(len, messages[: done + 1])) > passed


def test_what_travels_is_cut_anywhere() -> None:
    host: Any = None
    packet = SimPacket(1, host, NOWHERE, bytes(10), 0.0)
    sizes = [
        [segment.size for segment in split_into_segments([packet], 10, SplitMix64(str(seed)))] for seed in range(1_000)
    ]
    assert 700 < sizes.count([10]) < 800
    assert {first for first, *_ in sizes} == set(range(1, 11))


@given(st.binary(max_size=300), st.integers())
def test_cut_to_read_loses_nothing(data: bytes, seed: int) -> None:
    pieces = list(split_for_reading(data, Random(seed)))
    assert b"".join(pieces) == data
    assert all(pieces)
