from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, get_args

import pytest
from cbor2 import CBORTag, dumps, loads, undefined
from hypothesis import given
from hypothesis import strategies as st

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
from fyrehose_twisted.errors import LocalError, UnencodableMessage
from fyrehose_twisted.parcels.wire import cbor
from fyrehose_twisted.parcels.wire.cbor import BadParcel
from fyrehose_twisted.parcels.wire.messages import (
    MAX_DATA,
    MAX_EVENT,
    MAX_SEQUENCE,
    Dismissal,
    FetchEvents,
    FetchEventsReply,
    FetchState,
    FetchStateReply,
    Heartbeat,
    Hello,
    Message,
    Mode,
    Parcel,
    Proof,
    Publish,
    PublishAck,
    PublisherRun,
    PublishNack,
    RefusalReason,
    Refused,
    Welcome,
)
from fyrehose_twisted.parcels.wire.payload import RESPONSES, WIRE_NAMES, EntryWriter, PayloadWriter, read_payload

NONCE, PROOF = bytes(16), bytes(range(32))
EVENTS = LogEntry(3, EntryKind.DATA, (PublisherRun("Ivan", 1, 5, (b"one", b"")), PublisherRun("Vera", 2, 1, ())))
VIEW = LogEntry(
    3,
    EntryKind.MEMBERSHIP,
    Membership(((MemberId("Ivan", 7), ("127.0.0.1", 7_878)), (MemberId("Vera", 2**62), ("2001:db8::1", 65_535)))),
)
NOTHING = LogEntry(4, EntryKind.NO_OP, None)

EXAMPLES: list[tuple[Message, list[Any]]] = [
    (Hello("c", "Ivan", 1, 2, NONCE), ["c", "Ivan", 1, 2, NONCE]),
    (Welcome("Vera", 1, 2, NONCE, PROOF), ["Vera", 1, 2, NONCE, PROOF]),
    (Proof(b""), [b""]),
    (Refused(RefusalReason.NAME_TAKEN, "no"), [3, "no"]),
    (Heartbeat(Mode.SEQ_RECOVERY, 1, 2), [5, 1, 2]),
    (RequestVote(1, 2, 3, True), [1, 2, 3, True]),
    (RequestVoteReply(1, False, True), [1, False, True]),
    (
        AppendEntries(1, 2, 3, 4, (EVENTS, VIEW, NOTHING)),
        [
            1,
            2,
            3,
            4,
            [
                [3, 0, [["Ivan", 1, 5, [b"one", b""]], ["Vera", 2, 1, []]]],
                [
                    3,
                    1,
                    [
                        ["Ivan", 7, bytes([127, 0, 0, 1]), 7_878],
                        ["Vera", 2**62, bytes.fromhex("20010db8000000000000000000000001"), 65_535],
                    ],
                ],
                [4, 2, None],
            ],
        ],
    ),
    (AppendEntriesReply(1, True, 9), [1, True, 9]),
    (InstallSnapshot(1, 2, 3, 4, 5, b"state"), [1, 2, 3, 4, 5, b"state"]),
    (InstallSnapshotReply(1, 2, 3), [1, 2, 3]),
    (Publish(PublisherRun("p", 1, 2, (b"x",))), [["p", 1, 2, [b"x"]]]),
    (PublishAck("p", 1, 2, ((7, 2), (30, 1))), ["p", 1, 2, [[7, 2], [30, 1]]]),
    (PublishNack("p", 1, 2, RefusalReason.NO_QUORUM, "alone"), ["p", 1, 2, 7, "alone"]),
    (FetchEvents(1, 9), [1, 9]),
    (FetchEventsReply(1, (("p", 1, 2, b"x"),)), [1, [["p", 1, 2, b"x"]]]),
    (FetchState(7, 4), [7, 4]),
    (FetchStateReply(7, 4, 9, True, b"state"), [7, 4, 9, True, b"state"]),
    (StartElection(3), [3]),
    (ForcedRequestVote(4, 9, 3), [4, 9, 3]),
    (Dismissal(4), [4]),
]

ON_THE_WIRE = {
    type(message): name
    for (message, _), name in zip(
        EXAMPLES,
        [
            "Hello",
            "Welcome",
            "Proof",
            "Refused",
            "Beat",
            "VoteAsked",
            "VoteGiven",
            "Append",
            "Appended",
            "StatePart",
            "StateTaken",
            "Publish",
            "Published",
            "NotPublished",
            "Fetch",
            "Fetched",
            "FetchState",
            "FetchedState",
            "TakeOver",
            "VoteOrdered",
            "Dismissed",
        ],
        strict=True,
    )
}
CONTENT = {ON_THE_WIRE[type(message)]: content for message, content in EXAMPLES}
MESSAGES = {type(message): message for message, _ in EXAMPLES}


def write(message: Message) -> bytes:
    return PayloadWriter().write(message)


def why(name: str, data: bytes) -> str:
    """Return the error of malformed application data."""
    with pytest.raises(BadParcel) as caught:
        read_payload(name, data)
    assert caught.value.reason == "bad-payload"
    return str(caught.value)


def changed(content: Any, place: Sequence[int], value: Any) -> Any:
    """Return a copy of ``content`` with another value in one place."""
    if not place:
        return value
    copy = list(content)
    copy[place[0]] = changed(copy[place[0]], place[1:], value)
    return copy


class TestLayout:
    def test_every_extension_message_has_an_example_with_all_fields(self) -> None:
        known = set(get_args(Message)) - {Parcel}
        assert set(WIRE_NAMES) == set(MESSAGES) == known
        assert WIRE_NAMES == ON_THE_WIRE
        for kind in known:
            assert len(CONTENT[WIRE_NAMES[kind]]) == len(kind._fields)

    def test_response_types_are_complete(self) -> None:
        assert {WIRE_NAMES[kind] for kind in RESPONSES} == {
            "Welcome",
            "Refused",
            "VoteGiven",
            "Appended",
            "StateTaken",
            "Published",
            "NotPublished",
            "Fetched",
            "FetchedState",
        }

    @pytest.mark.parametrize(("message", "content"), EXAMPLES, ids=lambda value: type(value).__name__)
    def test_payload_is_an_array_of_the_fields_in_order(self, message: Message, content: list[Any]) -> None:
        data = write(message)
        assert loads(data) == content
        assert data == dumps(content)
        assert read_payload(ON_THE_WIRE[type(message)], data) == message

    def test_mode_numbers_match_the_reference(self) -> None:
        assert [loads(write(Heartbeat(mode, 0, 0)))[0] for mode in Mode] == [0, 1, 2, 3, 4, 5]
        assert Mode.SEQ_RECOVERY is list(Mode)[5]

    @given(st.integers(0, 2**64 - 1))
    def test_integer_has_its_shortest_encoding(self, value: int) -> None:
        assert cbor.encode_integer(value) == dumps(value)

    @pytest.mark.parametrize("edge", [0, 23, 24, 255, 256, 1_023, 1_024, 65_535, 65_536, 2**32 - 1, 2**32, 2**64 - 1])
    def test_integer_at_each_size_boundary_has_its_shortest_encoding(self, edge: int) -> None:
        assert cbor.encode_integer(edge) == dumps(edge)

    @pytest.mark.parametrize("size", [0, 23, 24, 255, 256, 1_023, 1_024, 65_535, 65_536])
    def test_lengths_have_their_shortest_encoding(self, size: int) -> None:
        assert cbor.encode_bytes(bytes(size)) == b"".join(cbor.encode_byte_strings([bytes(size)])) == dumps(bytes(size))
        assert cbor.encode_text("x" * size) == dumps("x" * size)
        assert cbor.encode_array_header(size) + b"\0" * size == dumps([0] * size)
        assert cbor.encode_map_header(0) == dumps({})


class TestReading:
    @pytest.mark.parametrize("name", CONTENT)
    def test_payload_with_a_wrong_number_of_fields_is_refused(self, name: str) -> None:
        content = CONTENT[name]
        for wrong in (content[:-1], [*content, 0], [], {}, None, 1, "x", b"", {"term": 1}):
            assert f"not an array of {len(content)}" in why(name, dumps(wrong))

    @pytest.mark.parametrize("name", CONTENT)
    @pytest.mark.parametrize("value", [{}, {"a": 1}, 1.5, float("nan"), -1, 2**63, undefined], ids=repr)
    def test_payload_field_of_an_invalid_type_is_refused(self, name: str, value: Any) -> None:
        for place in range(len(CONTENT[name])):
            field = kind_of(name)._fields[place]
            assert f"{name}.{field}: " in why(name, dumps(changed(CONTENT[name], [place], value)))

    def test_condition_of_a_run_is_its_fifth_field(self) -> None:
        message = Publish(PublisherRun("p", 1, 1, (b"x",), 0))
        data = dumps([["p", 1, 1, [b"x"], 0]])
        assert PayloadWriter().write(message) == data
        assert read_payload("Publish", data) == message

    @pytest.mark.parametrize(
        ("name", "place", "values"),
        [
            ("Beat", [0], [6, True, None, "Wrk", b"Wrk"]),
            ("Beat", [1], [True, False, None, "1", b"1", [1]]),
            ("Appended", [1], [0, 1, None, "true"]),
            ("Hello", [0], [None, b"c", "x" * 65, "\u20ac" * 22, ["c"], 1]),
            ("Hello", [1], ["x" * 65]),
            ("Hello", [4], [b"", bytes(15), bytes(17), "x" * 16, None]),
            ("Welcome", [4], [bytes(31), bytes(33), bytes(1), "", None]),
            ("Proof", [0], [bytes(31), bytes(33), None]),
            ("Refused", [0], [0, 16, True, "no"]),
            ("Refused", [1], ["x" * 201, b"no", None]),
            ("NotPublished", [3], [0, 16]),
            ("NotPublished", [4], ["x" * 201]),
            ("StatePart", [5], ["x", None, 1, [1]]),
            ("Publish", [0], [[], ["p", 1, 2], ["p", 1, 1, [b"x"], -1], ["p", 1, 1, [b"x"], 0, 0], None]),
            ("Publish", [0, 0], ["x" * 161, b"p", 1]),
            ("Publish", [0, 1], [True, -1, 2**63]),
            ("Publish", [0, 2], [True, -1, 2**63, MAX_SEQUENCE + 1]),
            ("Publish", [0, 3], [None, b"x", "x", {}]),
            ("Publish", [0, 3, 0], [None, "x", 1, [b"x"], bytes(MAX_EVENT + 1)]),
            ("Published", [3], [None, [7, 2], [[7]], [[7, 2, 1]], [[True, 1]], [[-1, 1]], [[1, 2**63]]]),
            ("Published", [3, 0], [[1, MAX_SEQUENCE + 1], [1], [], None]),
            ("Fetched", [1], [None, [[]], [["p", 1, 2]], [["p", 1, 2, "x"]], [["p", True, 2, b"x"]]]),
            ("Fetched", [1, 0, 3], [bytes(MAX_EVENT + 1)]),
            ("FetchState", [1], [None, True, -1, 2**63]),
            ("FetchedState", [3], [None, 1]),
            ("FetchedState", [4], [None, "x", 1]),
            ("Append", [4], [None, 0, {}, [[]], [[3, 0]], [None]]),
            ("Append", [4, 0, 0], [True, -1, 2**63, None]),
            ("Append", [4, 0, 1], [3, True, None, 1, 2]),
            ("Append", [4, 0, 2], [None, {}, b"", [1]]),
            ("Append", [4, 1, 1], [0, 2]),
            ("Append", [4, 1, 2, 0], [None, [], ["Ivan", 7, bytes(4)], ["Ivan", 7, bytes(4), 1, 1]]),
            ("Append", [4, 1, 2, 0, 0], ["x" * 65, b"Ivan", None]),
            ("Append", [4, 1, 2, 0, 1], [True, -1, 2**63]),
            ("Append", [4, 1, 2, 0, 2], [b"", bytes(5), "127.0.0.1", None, bytes(15), bytes(17)]),
            ("Append", [4, 1, 2, 0, 3], [-1, 65_536, True, None]),
            ("Append", [4, 1, 2], [[["n", 1, bytes(4), 1]] * 257]),
            ("Append", [4, 2, 2], [[], 0, False]),
        ],
        ids=lambda value: str(value)[:30],
    )
    def test_payload_field_with_an_invalid_value_is_refused(
        self, name: str, place: list[int], values: list[Any]
    ) -> None:
        for value in values:
            assert f"{name}.{kind_of(name)._fields[place[0]]}: " in why(
                name, dumps(changed(CONTENT[name], place, value))
            )

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("Append", [1, MAX_SEQUENCE, 3, 4, [[4, 2, None]]]),
            ("Published", ["p", 1, 2, [[MAX_SEQUENCE, 2]]]),
            ("Fetched", [MAX_SEQUENCE, [["p", 1, 2, b"x"]] * 2]),
            ("Publish", [["p", 1, MAX_SEQUENCE, [b"x", b"y"]]]),
        ],
    )
    def test_payload_with_consecutive_numbers_beyond_the_range_is_refused(self, name: str, content: list[Any]) -> None:
        assert f"beyond {MAX_SEQUENCE}" in why(name, dumps(content))

    def test_payload_with_the_highest_sequence_number_is_accepted(self) -> None:
        fetched = FetchEventsReply(MAX_SEQUENCE, (("p", 1, 2, b"x"),))
        assert read_payload("Fetched", write(fetched)) == fetched

    def test_decoded_payload_is_hashable(self) -> None:
        append = read_payload("Append", write(MESSAGES[AppendEntries]))
        hash(append)
        hash(read_payload("Fetched", write(MESSAGES[FetchEventsReply])))
        hash(read_payload("Published", write(MESSAGES[PublishAck])))


def kind_of(name: str) -> type[Any]:
    return next(kind for kind in MESSAGES if ON_THE_WIRE[kind] == name)


def item(major: int, length: int) -> bytes:
    return bytes([major << 5 | 27]) + length.to_bytes(8, "big")


KNOWN_TAGS = [
    *range(6),
    21,
    22,
    23,
    24,
    25,
    28,
    29,
    30,
    32,
    33,
    34,
    35,
    36,
    37,
    38,
    39,
    52,
    54,
    100,
    103,
    256,
    257,
    258,
]
KNOWN_TAGS += [259, 260, 261, 1004, 43_000, 55_799, 2**32, 2**64 - 1]

HOSTILE = {
    "nothing": b"",
    "a break": b"\xff",
    "indefinite array": b"\x9f\x01\x02\xff",
    "indefinite bytes": b"\x83\x5f\x41a\xff\x02\x03",
    "indefinite text": b"\x83\x7f\x61a\xff\x02\x03",
    "indefinite map": b"\x83\xbf\xff\x02\x03",
    "deep arrays": b"\x81" * 60_000,
    "deep maps": b"\xa1\x00" * 30_000,
    "deep tags": b"\xc6" * 60_000 + b"\x00",
    "deep and whole": b"\x83\x01\x02" + b"\x81" * 6 + b"\x80",
    "long array": item(4, 2**63 - 1),
    "longer array": item(4, 2**64 - 1),
    "array of 16 million": b"\x9a\x00\xff\xff\xff" + bytes(1_000),
    "long bytes": item(2, 2**63 - 1),
    "bytes of a gigabyte": b"\x5a\x40\x00\x00\x00" + bytes(1_000),
    "long text": item(3, 2**63 - 1),
    "long map": item(5, 2**63 - 1),
    "longer map": item(5, 2**64 - 1),
    "bignum": b"\x83\x01\x02\xc2\x59\xff\x00" + b"\xff" * 65_280,
    "negative bignum": b"\x83\x01\x02\xc3\x59\xff\x00" + b"\xff" * 65_280,
    "bigfloat": b"\x83\x01\x02\xc5\x82\x1b\x00\xff\xff\xff\xff\xff\xff\xff\x01",
    "decimal": b"\x83\x01\x02\xc4\x82\x1b\x00\xff\xff\xff\xff\xff\xff\xff\x01",
    "rational": dumps([1, 2, CBORTag(30, [1, 0])]),
    "regular expression": dumps([1, 2, CBORTag(35, "(a+)+" * 1_000)]),
    "message": dumps([1, 2, CBORTag(36, "x: " * 1_000)]),
    "cycle": dumps([1, 2, CBORTag(28, [CBORTag(29, 0)])]),
    "doubling": dumps([1, 2, CBORTag(256, [CBORTag(25, 0)])]),
    "huge map": b"\xb9\x40\x00" + b"".join(bytes([0x19, n >> 8, n & 255, 0]) for n in range(16_000)),
    "many keys": dumps({f"{n:05}": 0 for n in range(8_000)}),
    "key that is an array": dumps([1, 2, {(1, 2): 3}]),
    "key twice": b"\x83\x01\x02\xa2\x61a\x01\x61a\x02",
    "text that is not UTF-8": b"\x83\x01\x02\x62\xff\xfe",
    "half a surrogate pair": b"\x83\x01\x02\x63\xed\xa0\x80",
    "something behind": b"\x83\x01\x02\x03\x00",
    "cut": b"\x83\x01\x02",
    "reserved": b"\x83\x01\x02\x1c",
    "simple value": b"\x83\x01\x02\xf8\x40",
    "reserved simple value": b"\x83\x01\x02\xf8\x14",
    "infinity": b"\x83\x01\x02\xf9\x7c\x00",
}


class TestHostileData:
    @pytest.mark.parametrize("name", HOSTILE)
    def test_hostile_payload_is_refused_with_little_memory(self, name: str) -> None:
        data = HOSTILE[name]
        assert len(data) <= MAX_DATA
        for kind in ("StateTaken", "Fetch", "Append"):
            tracemalloc.start()
            try:
                assert why(kind, data)
                assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
            finally:
                tracemalloc.stop()

    @pytest.mark.parametrize("tag", KNOWN_TAGS)
    def test_payload_with_a_cbor_tag_is_refused_at_the_tag(self, tag: int) -> None:
        """The tag is followed by invalid CBOR, which would change the error if it were decoded."""
        text = why("StateTaken", b"\x83\x01\x02" + bytes([0xDB]) + tag.to_bytes(8, "big") + b"\x1c")
        assert f"tag {tag};" in text

    @given(st.sampled_from(sorted(CONTENT)), st.binary(max_size=80))
    def test_arbitrary_payload_bytes_raise_only_bad_parcel(self, name: str, data: bytes) -> None:
        with suppress(BadParcel):
            read_payload(name, data)

    @given(
        st.sampled_from(sorted(CONTENT)),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=8),
            lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=24,
        ),
    )
    def test_arbitrary_payload_cbor_raises_only_bad_parcel(self, name: str, content: Any) -> None:
        with suppress(BadParcel):
            read_payload(name, dumps(content))

    def test_payload_may_contain_thousands_of_entries(self) -> None:
        entries = [[0, 2, None]] * 13_000
        message = read_payload("Append", dumps([1, 2, 3, 4, entries]))
        assert message == AppendEntries(1, 2, 3, 4, (LogEntry(0, EntryKind.NO_OP, None),) * 13_000)


class TestWriting:
    @pytest.mark.parametrize(
        "message",
        [
            Heartbeat(Mode.WRK, -1, 0),
            Heartbeat(Mode.WRK, 0, MAX_SEQUENCE + 1),
            Hello("x" * 65, "n", 1, 1, NONCE),
            Hello("c", "\u20ac" * 22, 1, 1, NONCE),
            Hello("c", "\ud800", 1, 1, NONCE),
            Hello("c", "n", 1, 1, bytes(15)),
            Welcome("n", 1, 1, NONCE, bytes(31)),
            Proof(bytes(33)),
            Publish(PublisherRun("x" * 161, 1, 1, (b"x",))),
            Publish(PublisherRun("p", 1, 1, (b"x", bytes(MAX_EVENT + 1)))),
            Publish(PublisherRun("p", 1, MAX_SEQUENCE, (b"x", b"y"))),
            Publish(PublisherRun("p", 1, 1, (bytes(40_000), bytes(40_000)))),
            PublishAck("p", 1, 1, ((MAX_SEQUENCE, 2),)),
            FetchEventsReply(1, (("p", 1, 1, bytes(MAX_EVENT + 1)),)),
            FetchEventsReply(MAX_SEQUENCE, (("p", 1, 1, b""),) * 2),
            InstallSnapshot(1, 2, 3, 4, 5, bytes(MAX_DATA)),
            AppendEntries(1, MAX_SEQUENCE, 1, 1, (NOTHING,)),
            AppendEntries(1, 1, 1, 1, (EVENTS._replace(term=-1),)),
            AppendEntries(1, 1, 1, 1, (EVENTS._replace(kind=EntryKind.NO_OP),)),
            AppendEntries(1, 1, 1, 1, (VIEW._replace(kind=EntryKind.DATA),)),
            AppendEntries(1, 1, 1, 1, (NOTHING._replace(kind=EntryKind.MEMBERSHIP),)),
            AppendEntries(1, 1, 1, 1, (VIEW._replace(content=Membership(((MemberId("n", 1), ("localhost", 1)),))),)),
            AppendEntries(1, 1, 1, 1, (VIEW._replace(content=Membership(((MemberId("n", 1), ("::1%lo", 1)),))),)),
            AppendEntries(
                1, 1, 1, 1, (VIEW._replace(content=Membership(((MemberId("n", 1), ("127.0.0.1", 65_536)),))),)
            ),
            AppendEntries(
                1, 1, 1, 1, (VIEW._replace(content=Membership(((MemberId("n", 1), ("127.0.0.1", 1)),) * 257)),)
            ),
        ],
        ids=lambda message: repr(message)[:60],
    )
    def test_message_that_peers_would_refuse_is_not_encoded(self, message: Message) -> None:
        with pytest.raises(UnencodableMessage) as caught:
            write(message)
        assert str(caught.value)
        assert isinstance(caught.value, LocalError)

    @pytest.mark.parametrize("text", ["x" * 500, "\u20ac" * 500, "half a pair \ud800"])
    def test_refusal_text_is_truncated_and_repaired(self, text: str) -> None:
        refused = read_payload("Refused", write(Refused(RefusalReason.NO_QUORUM, text)))
        assert refused == Refused(RefusalReason.NO_QUORUM, text[:200].replace("\ud800", "?"))

    @pytest.mark.parametrize(
        ("sent", "read"),
        [("127.0.0.1", "127.0.0.1"), ("2001:DB8:0:0::1", "2001:db8::1"), ("::ffff:10.0.0.1", "::ffff:10.0.0.1")],
    )
    def test_member_address_in_a_payload_is_normalized(self, sent: str, read: str) -> None:
        entry = VIEW._replace(content=Membership(((MemberId("n", 1), (sent, 1)),)))
        append = read_payload("Append", write(AppendEntries(1, 1, 1, 1, (entry,))))
        assert isinstance(append, AppendEntries)
        assert append.entries[0].content == Membership(((MemberId("n", 1), (read, 1)),))


@pytest.mark.interpreted
class TestEntryWriter:
    def test_log_entry_is_encoded_once_for_all_followers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        counted = count_writes(monkeypatch)
        writer = PayloadWriter()
        sent = [writer.write(AppendEntries(1, previous, 1, 1, (EVENTS, VIEW))) for previous in range(4)]
        assert counted == [EVENTS, VIEW]
        assert [read_payload("Append", data) for data in sent] == [
            AppendEntries(1, previous, 1, 1, (EVENTS, VIEW)) for previous in range(4)
        ]

    def test_equal_log_entries_are_encoded_separately(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # Entries are cached by identity, so that none is compared or hashed.
        counted = count_writes(monkeypatch)
        writer = EntryWriter()
        assert writer.write((EVENTS,)) == writer.write((EVENTS._replace(term=3),))
        assert len(counted) == 2

    def test_released_log_entry_does_not_lend_its_encoding_to_another(self) -> None:
        writer = EntryWriter()
        for term in range(1_000):
            assert loads(writer.write((LogEntry(term, EntryKind.NO_OP, None),))) == [[term, 2, None]]

    def test_number_of_cached_entry_encodings_is_limited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        entries = [LogEntry(term, EntryKind.NO_OP, None) for term in range(EntryWriter.MAX_ENTRIES + 1)]
        writer = EntryWriter()
        writer.write(entries)
        counted = count_writes(monkeypatch)
        writer.write(entries[1:])
        assert counted == []
        writer.write(entries[:1])
        assert counted == entries[:1]

    def test_bytes_of_cached_entry_encodings_are_limited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        count = EntryWriter.MAX_BYTES // MAX_EVENT + 2
        entries = [
            LogEntry(term, EntryKind.DATA, (PublisherRun("p", 1, 1, (bytes(MAX_EVENT),)),)) for term in range(count)
        ]
        writer = EntryWriter()
        writer.write(entries)
        counted = count_writes(monkeypatch)
        writer.write(entries[-2:])
        assert counted == []
        writer.write(entries[:1])
        assert counted == entries[:1]

    def test_payload_writers_do_not_share_their_cache(self, monkeypatch: pytest.MonkeyPatch) -> None:
        counted = count_writes(monkeypatch)
        for _ in range(2):
            PayloadWriter().write(AppendEntries(1, 1, 1, 1, (EVENTS,)))
        assert len(counted) == 2


def count_writes(monkeypatch: pytest.MonkeyPatch) -> list[LogEntry]:
    """Return a list of entries that were encoded, not taken from the cache."""
    from fyrehose_twisted.parcels.wire import payload as payloads

    counted: list[LogEntry] = []
    original: Callable[[LogEntry], bytes] = payloads._write_entry

    def counting(entry: LogEntry) -> bytes:
        counted.append(entry)
        return original(entry)

    monkeypatch.setattr(payloads, "_write_entry", counting)
    return counted


@given(
    st.lists(
        st.binary(max_size=6)
        | st.recursive(st.integers(0, 2**64 - 1) | st.binary() | st.text() | st.none(), st.lists, max_leaves=9).map(
            dumps
        )
    )
)
def test_decoding_does_not_depend_on_what_was_decoded_before(items: list[bytes]) -> None:
    def outcome(data: bytes) -> str:
        try:
            return repr(cbor.decode_plain(data, 3))
        except BadParcel as error:
            return str(error)

    reused = list(map(outcome, items))
    for item, expected in zip(items, reused, strict=True):
        cbor._idle_decoders.clear()
        assert outcome(item) == expected
