"""Codec of the messages between members: pinned bytes, round trips and hostile input."""

from __future__ import annotations

from itertools import accumulate
from typing import Any, get_args, get_type_hints

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    EntryKind,
    ForcedRequestVote,
    InstallSnapshot,
    InstallSnapshotReply,
    LogEntry,
    MemberId,
    Membership,
    RequestVote,
    RequestVoteReply,
    StartElection,
)
from fyrehose_twisted.errors import MalformedPacket, RemoteError, UnencodableMessage
from fyrehose_twisted.fyrehose.wire.member_codec import MAX_FRAME, MemberCodec, MemberMessageKind
from fyrehose_twisted.fyrehose.wire.member_fields import MAX_NAME, MAX_NUMBER
from fyrehose_twisted.fyrehose.wire.member_messages import (
    LeaseReply,
    LeaseRound,
    MemberData,
    MemberHello,
    MemberMessage,
    NumberBounds,
    Ping,
    Pong,
    Seam,
)
from fyrehose_twisted.interfaces import IStreamCodec, IStreamDecoder

A, B = MemberId("a", 1), MemberId("b", MAX_NUMBER)
DATA = MemberData(("192.0.2.1", 2_323), ("::1", 2_324), False)
_ID, _DATA = "82 6161 01", "83 82 693139322e302e322e31 190913 82 633a3a31 190914 f4"
MEMBERSHIP = Membership(((A, DATA),))

WRITTEN: list[tuple[MemberMessage, str]] = [
    (
        MemberHello("fyrehose://x", A, DATA, True, False, 256, 24),
        f"88 01 6c{b'fyrehose://x'.hex()} {_ID} {_DATA} f5 f4 190100 1818",
    ),
    (Ping(), "81 02"),
    (Pong(), "81 03"),
    (LeaseRound(7, 256, 0), "84 04 07 190100 00"),
    (LeaseReply(7, 256), "83 05 07 190100"),
    (RequestVote(1, 2, 3, True), "85 0a 01 02 03 f5"),
    (RequestVoteReply(MAX_NUMBER, True, False), "84 0b 1b7fffffffffffffff f5 f4"),
    (AppendEntries(1, 2, 3, 4, ()), "86 0c 01 02 03 04 80"),
    (
        AppendEntries(
            1,
            2,
            3,
            4,
            (
                LogEntry(1, EntryKind.NO_OP, None),
                LogEntry(5, EntryKind.DATA, NumberBounds(4_096, 24, 256, True, (Seam(7, 9),))),
                LogEntry(6, EntryKind.MEMBERSHIP, MEMBERSHIP),
            ),
        ),
        f"86 0c 01 02 03 04 83  83 01 02 f6  83 05 00 85 191000 1818 190100 f5 81 820709  83 06 01 81 82 {_ID} {_DATA}",
    ),
    (AppendEntriesReply(1, False, 2), "84 0d 01 f4 02"),
    (InstallSnapshot(1, 2, 3, 0, 2, b"ab"), "87 0e 01 02 03 00 02 426162"),
    (InstallSnapshotReply(1, 2, 3), "84 0f 01 02 03"),
    (StartElection(9), "82 10 09"),
    (ForcedRequestVote(1, 2, 3), "84 11 01 02 03"),
]

CODEC = MemberCodec()

NUMBERS = st.integers(0, 2**63 - 1)
MEMBERS = st.builds(MemberId, st.sampled_from(["a", "ü"]), NUMBERS)
ADDRESSES = st.tuples(st.sampled_from(["0.0.0.0", "192.0.2.7"]), st.integers(0, 65_535))
MEMBER_DATA = st.builds(MemberData, ADDRESSES, ADDRESSES, st.booleans())
SEAMS = st.lists(st.builds(Seam, NUMBERS, NUMBERS), max_size=2).map(tuple)
CONTENTS = {
    EntryKind.DATA: st.builds(NumberBounds, NUMBERS, NUMBERS, NUMBERS, st.booleans(), SEAMS),
    EntryKind.MEMBERSHIP: st.lists(st.tuples(MEMBERS, MEMBER_DATA), max_size=3).map(tuple).map(Membership),
    EntryKind.NO_OP: st.none(),
}
ENTRIES = st.one_of([st.builds(LogEntry, NUMBERS, st.just(kind), content) for kind, content in CONTENTS.items()])
FIELDS: dict[Any, st.SearchStrategy[Any]] = {
    int: NUMBERS,
    bool: st.booleans(),
    bytes: st.binary(max_size=20),
    str: st.sampled_from(["fyrehose://ticks", "x"]),
    MemberId: MEMBERS,
    MemberData: MEMBER_DATA,
    get_type_hints(AppendEntries)["entries"]: st.lists(ENTRIES, max_size=3).map(tuple),
}
MESSAGES = st.one_of(
    [
        st.builds(kind, **{name: FIELDS[hint] for name, hint in get_type_hints(kind).items()})
        for kind in get_args(MemberMessage)
    ]
)


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


BODIES: list[list[Any]] = [cbor2.loads(bytes.fromhex(text)) for _, text in WRITTEN]
"""Arrays of all kinds of messages."""


def test_interfaces() -> None:
    verifyObject(IStreamCodec, CODEC)
    verifyObject(IStreamDecoder, CODEC.decoder())


@pytest.mark.parametrize(("message", "text"), WRITTEN)
def test_bytes_of_each_message(message: MemberMessage, text: str) -> None:
    written = frame(bytes.fromhex(text))
    assert CODEC.encode(message) == written
    assert CODEC.decoder().feed(written) == [message]


def test_all_messages_and_kinds_are_pinned() -> None:
    assert {type(message) for message, _ in WRITTEN} == set(get_args(MemberMessage))
    assert {body[0] for body in BODIES} == {int(kind) for kind in MemberMessageKind}


@given(st.lists(MESSAGES, max_size=5), st.lists(st.integers(0, 40), min_size=1))
def test_messages_survive_a_stream_that_is_cut_anywhere(messages: list[MemberMessage], sizes: list[int]) -> None:
    stream = b"".join(map(CODEC.encode, messages))
    ends = [*(end for end in accumulate(sizes) if end < len(stream)), len(stream)]
    decoder = CODEC.decoder()
    pieces = (stream[start:end] for start, end in zip([0, *ends], ends, strict=False))
    assert [message for piece in pieces for message in decoder.feed(piece)] == messages


@pytest.mark.parametrize("body", BODIES)
def test_wrong_type_of_any_field_is_refused(body: list[Any]) -> None:
    wrong: tuple[Any, ...] = (None, -1, 1.0, 2**63, "x" * 300, b"x", [], [[]], {}, cbor2.CBORTag(2, b"\x01"))
    for position in range(1, len(body)):
        accepted = [value for value in wrong if _accepted([*body[:position], value, *body[position + 1 :]])]
        allowed = {bytes: [b"x"], list: [[]] if position == 5 and body[0] == 12 else []}.get(type(body[position]), [])
        assert accepted == allowed


def _accepted(body: list[Any]) -> bool:
    try:
        return len(CODEC.decoder().feed(frame(cbor2.dumps(body)))) == 1
    except MalformedPacket:
        return False


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00", "no-array"),
        (b"\x80", "no-array"),
        (b"\x81\xf5", "no-array"),
        (b"\x81\x18\xff", "unknown-kind"),
        (b"\x81\x01", "fields"),
        (b"\x82\x02\x00", "fields"),
        (b"\x81\x18\x02", "not-plain"),
        (b"\x81\x02\x00", "not-plain"),
        (b"\x9f\x02\xff", "no-cbor"),
        (b"\xd9\xd9\xf7\x81\x02", "no-cbor"),
        (b"\x81" * 5_000, "no-cbor"),
        (b"\x81\xc2\x5a\xff\xff\xff\xff", "no-cbor"),
        (b"\xff", "no-cbor"),
        (b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", "no-cbor"),
    ],
)
def test_malformed_message_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedPacket) as caught:
        CODEC.decoder().feed(frame(data))
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("field", "entry"),
    [
        ("kind", [1, 3, None]),
        ("kind", [1, 2.0, None]),
        ("content of a NO_OP", [1, 2, 0]),
        ("bounds", [1, 0, [1, 2, 3, True]]),
        ("kept", [1, 0, [1, -2, 3, True, []]]),
        ("seam", [1, 0, [1, 2, 3, True, [[1]]]]),
        ("address of a client", [1, 1, [[["a", 1], [["fe80::1", 1], ["::1", 1], False]]]]),
        ("address that has another form", [1, 1, [[["a", 1], [["127.0.0.1", 1], ["::0", 1], False]]]]),
        ("host name", [1, 1, [[["a", 1], [["127.0.0.1", 1], ["localhost", 1], False]]]]),
        ("port", [1, 1, [[["a", 1], [["127.0.0.1", 65_536], ["::1", 1], False]]]]),
        ("empty name", [1, 1, [[["", 1], [["127.0.0.1", 1], ["::1", 1], False]]]]),
        ("name with a line break", [1, 1, [[["a\n", 1], [["127.0.0.1", 1], ["::1", 1], False]]]]),
        ("too many members", [1, 1, [[["a", i], [["127.0.0.1", 1], ["::1", 1], False]] for i in range(8)]]),
    ],
)
def test_malformed_entry_is_refused(field: str, entry: list[Any]) -> None:
    with pytest.raises(MalformedPacket, match=r"APPEND_ENTRIES\.entries"):
        CODEC.decoder().feed(frame(cbor2.dumps([12, 1, 2, 3, 4, [entry]])))


@pytest.mark.parametrize("size", [0, MAX_FRAME + 1, 2**32 - 1])
def test_frame_of_a_wrong_size_is_refused_before_its_content_arrives(size: int) -> None:
    with pytest.raises(MalformedPacket, match="the limit is 1 to 262,144"):
        CODEC.decoder().feed(size.to_bytes(4, "big"))


def test_messages_before_a_malformed_one_are_returned() -> None:
    decoder = CODEC.decoder()
    assert decoder.feed(CODEC.encode(Ping()) + frame(b"\xff") + CODEC.encode(Pong())) == [Ping()]
    for _ in range(2):
        with pytest.raises(RemoteError):
            decoder.feed(b"")


def test_longest_frame_passes_and_a_longer_message_cannot_be_encoded() -> None:
    spare = len(CODEC.encode(InstallSnapshot(1, 2, 3, 4, 5, bytes(100_000)))) - 4 - 100_000
    longest = InstallSnapshot(1, 2, 3, 4, 5, bytes(MAX_FRAME - spare))
    written = CODEC.encode(longest)
    assert len(written) == 4 + MAX_FRAME
    assert CODEC.decoder().feed(written) == [longest]
    with pytest.raises(UnencodableMessage, match=r"InstallSnapshot of 262,145 bytes is over the 262,144"):
        CODEC.encode(longest._replace(data=bytes(MAX_FRAME - spare + 1)))


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (StartElection(-1), r"StartElection\.term: -1 is not an integer"),
        (LeaseReply(1, 2**63), r"LeaseReply\.number: 9223372036854775808 is not"),
        (RequestVote(1, 2, 3, 1), r"RequestVote\.trial: 1 is not a boolean"),  # type: ignore[arg-type]
        (InstallSnapshot(1, 2, 3, 4, 5, "x"), r"InstallSnapshot\.data"),  # type: ignore[arg-type]
        (MemberHello("", A, DATA, True, True, 0, 1), r"MemberHello\.stream"),
        (MemberHello("x", MemberId("n" * (MAX_NAME + 1), 1), DATA, True, True, 0, 1), r"MemberHello\.member"),
        (
            MemberHello("x", A, DATA._replace(client_address=("fe80::1", 1)), True, True, 0, 1),
            r"MemberHello\.data.*other hosts",
        ),
        (AppendEntries(1, 2, 3, 4, (LogEntry(1, EntryKind.NO_OP, 5),)), r"AppendEntries\.entries"),
        (AppendEntries(1, 2, 3, 4, (LogEntry(1, EntryKind.DATA, None),)), r"AppendEntries\.entries"),
        pytest.param(b"", "bytes is not a message", marks=pytest.mark.interpreted(reason="TypeError comes before")),
    ],
)
def test_message_that_others_would_refuse_cannot_be_encoded(message: MemberMessage, problem: str) -> None:
    with pytest.raises(UnencodableMessage, match=problem):
        CODEC.encode(message)


def test_name_with_surrogates_cannot_be_encoded() -> None:
    with pytest.raises(UnencodableMessage, match=r"MemberHello\.member"):
        CODEC.encode(MemberHello("x", MemberId("\udcff", 1), DATA, True, True, 0, 1))
    with pytest.raises(UnencodableMessage, match=r"MemberHello\.member"):
        CODEC.encode(MemberHello("x", B._replace(name=5), DATA, True, True, 0, 1))  # type: ignore[arg-type]
