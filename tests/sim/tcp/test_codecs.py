from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim.tcp.stream_nodes import LengthCodec, MakeConnectedPair, MakeStreamNetwork

from fyrehose_twisted.effects import Address, Peer, Write
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.observer import SimPacket
from fyrehose_twisted.sim.tcp.route import SplitMix64
from fyrehose_twisted.sim.tcp.segments import split_for_reading, split_into_segments

NOWHERE: Address = ("192.0.2.1", 1)


def numbered(count: int) -> list[str]:
    return [f"message {number}" for number in range(count)]


def test_a_connection_needs_a_codec_on_both_sides_or_on_none(
    stream_network: MakeStreamNetwork, length_codec: type[LengthCodec]
) -> None:
    network = stream_network("a", "b")
    network.network.streams.codecs[network.hosts["b"].address] = length_codec()
    with pytest.raises(ConfigurationError, match="of a and b, give both a codec or none"):
        network.link("a", "b")


def test_the_codec_of_a_host_overrides_that_of_the_network(
    stream_network: MakeStreamNetwork, length_codec: type[LengthCodec]
) -> None:
    ours, theirs = length_codec(), length_codec()
    network = stream_network("a", "b", codec=ours)
    network.network.streams.codecs[network.hosts["b"].address] = theirs
    network.link("a", "b")
    network.write("a", "b", "hello")
    network.run_until(1)
    assert (b"".join(ours.fed), b"".join(theirs.fed)) == (b"", b"\0\0\0\5hello")


def test_stream_bytes_are_split_anywhere_down_to_single_bytes(
    connected_pair: MakeConnectedPair, length_codec: type[LengthCodec]
) -> None:
    codec = length_codec()
    network = connected_pair(codec=codec, link=Link(delay=0.1, jitter=0.1), split=0.1)
    text = "".join(Random(1).choices("0123456789", k=100_000))
    for number in range(200):
        network.write("a", "b", f"short {number}", "")
        network.network.run(0.01)
    network.write("a", "b", text, "end")
    network.run_until(30)
    assert [message for message in network["b"].got if message][-2:] == [text, "end"]
    sizes = [len(piece) for piece in codec.fed]
    assert sizes.count(1) > 20
    assert len(set(sizes)) > 20
    starts_in_a_length = [piece for piece in codec.fed if piece.startswith((b"\0\0", b"\0\x07"))]
    assert 10 < len(starts_in_a_length) < len(sizes) - 10
    assert any(piece.startswith(b"hort") for piece in codec.fed)


def test_without_a_split_seed_reads_are_not_split(
    connected_pair: MakeConnectedPair, length_codec: type[LengthCodec]
) -> None:
    codec = length_codec()
    network = connected_pair(codec=codec)
    for number in range(50):
        network.write("a", "b", f"{number:0>1000}")
        network.network.run(1.0)
    # The segments arrive together here, so they are read in one piece.
    assert codec.fed == [b"\0\0\x03\xe8%04d" % 0 + b"%0996d" % number for number in range(50)]


def test_a_node_paused_within_a_read_gets_the_rest_on_resume(
    codec: LengthCodec | None, connected_pair: MakeConnectedPair
) -> None:
    network = connected_pair(codec=codec)

    def pause(what: str, detail: Any, peer: Peer | None) -> None:
        if detail == "message 3":
            network.pause("b", 2.0)

    network["b"].react = pause
    network.write("a", "b", *numbered(10))
    network.run_until(1)
    assert network["b"].got == numbered(4)
    network.run_until(3)
    assert network["b"].got == numbered(10)
    assert network.network.counters["arrived"] == 10


def test_a_node_that_crashes_within_a_read_loses_the_rest(
    codec: LengthCodec | None, connected_pair: MakeConnectedPair
) -> None:
    network = connected_pair(codec=codec)
    node = network["b"]
    node.react = lambda what, detail, peer: detail == "message 3" and network.hosts["b"].stop()
    network.write("a", "b", *numbered(10))
    network.run_until(5)
    assert node.got == numbered(4)
    assert network.network.counters["arrived"] == 4
    assert sum(network.drops().values()) == 6


def test_a_message_buffered_by_the_decoder_counts_as_arrived(
    connected_pair: MakeConnectedPair, length_codec: type[LengthCodec]
) -> None:
    codec = length_codec()
    decoder = codec.decoder()

    class Echo:
        def feed(self, data: bytes) -> list[str]:
            return [message for message in decoder.feed(data) for _ in range(2) if message != "nothing"]

    codec.decoder = Echo
    network = connected_pair(codec=codec)
    network.write("a", "b", "one", "nothing", "two")
    network.run_until(5)
    assert network["b"].got == ["one", "one", "two", "two"]
    assert network.network.counters["arrived"] == 3


def test_malformed_bytes_reset_the_connection_on_both_sides(
    connected_pair: MakeConnectedPair, length_codec: type[LengthCodec]
) -> None:
    network = connected_pair(codec=length_codec())
    network.write("a", "b", "good")
    network.write("b", "a", "answer")
    network.run_until(1)
    network.write("a", "b", "!")
    network.write("b", "a", "too late")
    network.run_until(70)
    assert (network["b"].got, network["b"].ended) == (["good"], [(1.25, "malformed: 255 is no length")])
    assert (network["a"].got, network["a"].ended) == (["answer", "too late"], [(1.5, "reset")])
    assert network.drops() == {"reset": 1}
    assert network.words[-2:] == [(1.25, "b", "reset"), (1.5, "a", "reset")]
    assert network.forgotten()


@pytest.mark.parametrize("split_seed", range(8))
def test_the_split_of_stream_bytes_changes_no_outcome(
    split_seed: int, stream_network: MakeStreamNetwork, length_codec: type[LengthCodec]
) -> None:
    def run(split_seed: int) -> tuple[list[Any], Any]:
        codec = length_codec()
        link = Link(jitter=0.05, loss=0.1)
        network = stream_network("a", "b", codec=codec, split=0.1, split_seed=split_seed, moment=0.02, link=link)
        node = network["b"]
        node.react = lambda what, detail, peer: (
            node.wants.append(Write([f"re: {detail}"], peer)) if peer and what == "got" and "7" in detail else None
        )
        network.dial("a", "b")
        network.run_until(1)
        for number in range(0, 80, 4):
            network.write("a", "b", *numbered(number + 4)[number:])
            network.network.run(0.02)
        network.run_until(20)
        network.write("a", "b", "lost", "!", "never")
        network.run_until(40)
        return [network["a"].story, network["b"].story, network.words, network.network.counters], codec

    (outcome, codec), (other, other_codec) = run(split_seed), run(split_seed + 1)
    assert outcome == other
    assert codec.fed != other_codec.fed


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=20), st.integers(1, 100), st.integers())
def test_segmentation_preserves_all_bytes_and_packets(messages: list[bytes], longest: int, seed: int) -> None:
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
        # A packet belongs to the segment with its last byte.
        assert sum(map(len, messages[:done])) <= passed
        assert done == len(messages) or sum(map(len, messages[: done + 1])) > passed


def test_segments_have_every_size() -> None:
    host: Any = None
    packet = SimPacket(1, host, NOWHERE, bytes(10), 0.0)
    sizes = [
        [segment.size for segment in split_into_segments([packet], 10, SplitMix64(str(seed)))] for seed in range(1_000)
    ]
    assert 700 < sizes.count([10]) < 800
    assert {first for first, *_ in sizes} == set(range(1, 11))


@given(st.binary(max_size=300), st.integers())
def test_splitting_reads_preserves_all_bytes(data: bytes, seed: int) -> None:
    pieces = list(split_for_reading(data, Random(seed)))
    assert b"".join(pieces) == data
    assert all(pieces)
