"""Snapshots of application state as lines of a term."""

from __future__ import annotations

import re
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.hydra.wire.codec import HydraCodec
from fyrehose_twisted.hydra.wire.lines import command_of, fits_recv, is_sendable
from fyrehose_twisted.hydra.wire.messages import E_RECV, RELAYED, Recv
from fyrehose_twisted.hydra.wire.state_lines import (
    MAX_STATE,
    STATE_COMMAND,
    WANT,
    Snapshot,
    SnapshotAssembler,
    StatePart,
    decode_part,
    encode_snapshot,
)

names = st.from_regex(re.compile(r"[\w.-]{1,64}", re.ASCII), fullmatch=True)
snapshots = st.builds(Snapshot, names, st.binary(max_size=4_000))


def assemble(lines: list[bytes]) -> list[Snapshot]:
    assembler = SnapshotAssembler()
    parts = [part for part in map(decode_part, lines) if part is not None]
    return [found for found in map(assembler.feed, parts) if found is not None]


@given(st.lists(snapshots, max_size=4))
def test_snapshots_survive_the_wire(wanted: list[Snapshot]) -> None:
    lines = [line for one in wanted for line in encode_snapshot(one)]
    assert assemble(lines) == wanted
    for number, line in enumerate(lines):
        assert fits_recv(line)
        data = HydraCodec().encode(Recv(number, line))
        assert HydraCodec().decoder().feed(data) == [Recv(number, line)]


@given(snapshots, st.data())
def test_snapshot_without_one_of_its_lines_is_given_up(wanted: Snapshot, data: st.DataObject) -> None:
    lines = encode_snapshot(wanted)
    del lines[data.draw(st.integers(0, len(lines) - 1))]
    assert assemble(lines) == []


def test_largest_state_that_does_not_compress_is_handed_over() -> None:
    seed, blocks = b"x", []
    for _ in range(MAX_STATE // 4_096):
        block = b""
        while len(block) < 4_096:
            seed = zlib.crc32(seed).to_bytes(4, "big") + seed[-16:]
            block += seed[:4]
        blocks.append(block)
    wanted = Snapshot("big", b"".join(blocks))
    assert len(wanted.state) == MAX_STATE
    assert assemble(encode_snapshot(wanted)) == [wanted]
    with pytest.raises(UnencodableMessage, match=r"the state of big has 1,048,577 bytes; the limit is 1,048,576"):
        encode_snapshot(Snapshot("big", wanted.state + b"x"))


@pytest.mark.parametrize("name", ["", "two words", "x" * 65, "é"])
def test_unfit_names_are_refused(name: str) -> None:
    with pytest.raises(UnencodableMessage, match="is not a name for state"):
        encode_snapshot(Snapshot(name, b""))


@given(st.binary(max_size=300) | st.binary(max_size=300).map(lambda data: b":hydra HYDRA STATE x 0 1 00000000 " + data))
def test_arbitrary_lines_are_no_snapshot(line: bytes) -> None:
    part = decode_part(line)
    assert part is None or SnapshotAssembler().feed(part) in (None, Snapshot("x", b""))


def test_damaged_snapshots_are_not_used() -> None:
    (line,) = encode_snapshot(Snapshot("x", b"state"))
    part = decode_part(line)
    assert part is not None
    bomb = zlib.compress(bytes(MAX_STATE + 1))
    for damaged in (
        part._replace(checksum="00000000"),
        part._replace(data=part.data[:-1]),
        part._replace(data=part.data + b"x"),
        part._replace(data=b""),
        StatePart("x", 0, 1, f"{zlib.crc32(bytes(MAX_STATE + 1)):08x}", bomb),
    ):
        assert SnapshotAssembler().feed(damaged) is None
    assert SnapshotAssembler().feed(part) == Snapshot("x", b"state")


def test_parts_of_two_snapshots_are_not_mixed() -> None:
    first, second = (encode_snapshot(Snapshot("x", zlib.compress(bytes([n])) * 400)) for n in (1, 2))
    big = [
        encode_snapshot(Snapshot("x", b"".join(n.to_bytes(4, "big") for n in range(s, s + 900)))) for s in (0, 5_000)
    ]
    assert len(big[0]) == len(big[1]) > 1
    assert assemble([big[0][0], *big[1][1:]]) == []
    assert assemble([big[0][0], *first, *second]) == assemble([*first, *second]) != []


def test_irc_never_carries_the_command_of_snapshots() -> None:
    assert STATE_COMMAND not in RELAYED
    assert not is_sendable(WANT)
    assert command_of(encode_snapshot(Snapshot("x", b""))[0]) == STATE_COMMAND == command_of(WANT)
    assert STATE_COMMAND not in E_RECV  # Legacy peers do not get it either.
