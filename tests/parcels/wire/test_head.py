from __future__ import annotations

import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from cbor2 import CBORTag, dumps, loads
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.parcels.wire.cbor import MAX_NESTING, BadParcel, decode
from fyrehose_twisted.parcels.wire.head import (
    ParcelHead,
    empty_heads,
    read_head,
    read_neighbours,
    write_node,
    write_parcel,
)
from fyrehose_twisted.parcels.wire.messages import (
    MAX_DATA,
    MAX_HEAD,
    MAX_SEQUENCE,
    Extension,
    Mode,
    NodeInfo,
    Parcel,
    ParcelType,
)

LAST = NodeInfo(
    65_535,
    Mode.SEQ_RECOVERY,
    "n" * 64,
    ("ffff:eeee:dddd:cccc:bbbb:aaaa:9999:8888", 65_535),
    Extension(65_535, MAX_SEQUENCE, 2**32 - 1),
)
IVAN = NodeInfo(60_396, Mode.DSC, "Ivan", ("127.0.0.1", 7_878))
IDENTITY: dict[str, Any] = {"id": 60_396, "mode": "Dsc", "name": "Ivan", "host": {"V4": [[127, 0, 0, 1], 7_878]}}


def head(**changes: Any) -> dict[str, Any]:
    """Return the fields of a SeqReq, with changes."""
    return {"is_response": False, "parcel_type": "SeqReq", "id": 1, "size": 0, "body": "Empty"} | changes


def asked(**changes: Any) -> dict[str, Any]:
    """Return the fields of a DscReq, with changes to its node information."""
    return head(parcel_type="DscReq", body={"DscReq": {"identity": IDENTITY | changes}})


def wrong(content: Any) -> BadParcel:
    """Return the error of a malformed head."""
    with pytest.raises(BadParcel) as caught:
        read_head(content if isinstance(content, bytes) else dumps(content))
    return caught.value


def written(parcel: Parcel) -> Any:
    return loads(write_parcel(parcel)[0])


class TestReading:
    @pytest.mark.parametrize(
        ("content", "reason", "what"),
        [
            (head(id=True), "bad-value", "id is True"),
            (head(id="1"), "bad-value", "id is '1'"),
            (head(size=65_536), "bad-value", "size is 65536"),
            (head(is_response=None), "bad-value", "is_response is None"),
            (head(is_response="x" * 100), "bad-value", "is_response is 'xxx"),
            (head(parcel_type=5), "bad-value", "parcel_type is 5"),
            (head(parcel_type=-1), "bad-value", "parcel_type is -1"),
            (head(parcel_type=True), "bad-value", "parcel_type is True"),
            (head(parcel_type={"SeqReq": 1}), "bad-value", "parcel_type is a map, which must be empty"),
            (head(parcel_type=["SeqReq", 1]), "bad-value", "parcel_type is an array of 2, which must be empty"),
            (head(parcel_type=[]), "bad-value", "parcel_type is an empty array"),
            (head(parcel_type={}), "bad-value", "parcel_type is a map without exactly one entry"),
            (head(parcel_type=CBORTag(0, {"SeqReq": None})), "bad-value", "parcel_type is a map"),
            (head(parcel_type=b"\xff"), "bad-value", r"parcel_type is b'\xff'"),
            (head(body=4), "bad-value", "body is 4, none of Empty, DscReq"),
            (head(body="DscRes"), "bad-value", "body is DscRes without"),
            (head(body={"SeqRes": {}}), "missing-field", "SeqRes has no seq_number"),
            (head(body={"SeqRes": []}), "missing-field", "SeqRes has no seq_number"),
            (head(body={"SeqRes": [1, 2]}), "bad-value", "SeqRes is an array of 2"),
            (head(body={"SeqRes": 1}), "bad-value", "SeqRes is 1, not a map"),
            (head(body={"SeqRes": {"seq_number": -1}}), "bad-value", "seq_number is -1"),
            (head(body={"SeqRes": {"seq_number": 2**63}}), "bad-value", f"seq_number is {2**63}"),
            (head(body={"DscRes": {"neighbours": {}}}), "bad-value", "neighbours is a map"),
            (head(body={"DscRes": {"neighbours": [IDENTITY, 1]}}), "bad-value", "neighbours[1] is 1"),
            (asked(id=-1), "bad-value", "id of identity is -1"),
            (asked(mode=6), "bad-value", "mode of identity is 6"),
            (asked(name=1), "bad-value", "name of identity is 1"),
            (asked(name=b"\xff"), "bad-value", "name of identity is"),
            (asked(host="V4"), "bad-value", "host of identity is V4 without"),
            (asked(host={"V4": [[127, 0, 0, 256], 1]}), "bad-value", "the address in host of identity is 256"),
            (asked(host={"V4": [[127, 0, 0, True], 1]}), "bad-value", "the address in host of identity is True"),
            (asked(host={"V4": [[127, 0, 0, 1], 65_536]}), "bad-value", "the port in host of identity is 65536"),
            (asked(host={"V6": [[127, 0, 0, 1], 1]}), "bad-value", "not an array of 16"),
            (asked(ours=None), "bad-value", "'ours' of identity is None"),
            (asked(ours={}), "bad-value", "'ours' of identity is a map"),
            (asked(ours=[1, 2]), "bad-value", "'ours' of identity is an array of 2"),
            (asked(ours=[1, 2, 3, 4]), "bad-value", "'ours' of identity is an array of 4"),
            (asked(ours=[65_536, 2, 3]), "bad-value", "version in 'ours' of identity is 65536"),
            (asked(ours=[1, 2**63, 3]), "bad-value", "incarnation in 'ours' of identity"),
            (asked(ours=[1, 2, 2**32]), "bad-value", "cluster in 'ours' of identity"),
            (asked(ours=[1, 2, 3.0]), "bad-value", "cluster in 'ours' of identity is 3.0"),
            ({None: 1} | head(), "bad-value", "has an unknown key: None"),
            ({-1: 1} | head(), "bad-value", "has an unknown key: -1"),
            ({0: True} | head(), "duplicate-field", "has is_response twice"),
            ([True, "SeqReq", 1, 0], "missing-field", "has no body"),
            ({}, "missing-field", "has no is_response"),
            (head(x=float("nan"))["x"], "bad-value", "is nan, not a map"),
            (b"", "bad-cbor", "is truncated"),
            (b"\xff", "bad-cbor", "is not the start of an item"),
            (b"\x81\x7f\x41a\xff", "bad-cbor", "0x41"),
            (b"\x81\x7f\x7f\x61a\xff\xff", "bad-cbor", "0x7f"),
            (b"\x81\x5f\x41a", "bad-cbor", "is truncated"),
            (b"\xbf\x61a\xff", "bad-cbor", "0xff"),
            (b"\xdf", "bad-cbor", "0xdf"),
            (b"\x1f", "bad-cbor", "0x1f"),
            (b"\xf8\x20", "bad-cbor", "0xf8"),
            (b"\xe0", "bad-cbor", "0xe0"),
            (b"\xc6" * 200 + b"\x00", "too-deep", "127 levels"),
        ],
        ids=lambda value: str(value)[-50:],
    )
    def test_malformed_head_is_refused_with_its_reason(self, content: Any, reason: str, what: str) -> None:
        error = wrong(content)
        assert error.reason == reason
        assert what in str(error)

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (head(parcel_type=["SeqReq"]), ParcelHead(False, ParcelType.SEQ_REQ, 1, 0, None)),
            (head(parcel_type=b"SeqReq"), ParcelHead(False, ParcelType.SEQ_REQ, 1, 0, None)),
            (head(parcel_type={"SeqReq": None}), ParcelHead(False, ParcelType.SEQ_REQ, 1, 0, None)),
            (head(parcel_type={2: None}), ParcelHead(False, ParcelType.SEQ_REQ, 1, 0, None)),
            (head(body=["Empty"]), ParcelHead(False, ParcelType.SEQ_REQ, 1, 0, None)),
            (head(body=["SeqRes", 5]), ParcelHead(False, ParcelType.SEQ_REQ, 1, 0, 5)),
            (head(body={"SeqRes": [5]}), ParcelHead(False, ParcelType.SEQ_REQ, 1, 0, 5)),
            (head(body={3: {0: 5}}), ParcelHead(False, ParcelType.SEQ_REQ, 1, 0, 5)),
            (head(body={"SeqRes": CBORTag(7, {"seq_number": 5})}), ParcelHead(False, ParcelType.SEQ_REQ, 1, 0, 5)),
            (CBORTag(1, CBORTag(2, head())), ParcelHead(False, ParcelType.SEQ_REQ, 1, 0, None)),
            (head() | {5: 1, "ours": 2, "": 3, b"\xff": 4}, ParcelHead(False, ParcelType.SEQ_REQ, 1, 0, None)),
            (asked(name=b"Ivan"), ParcelHead(False, ParcelType.DSC_REQ, 1, 0, IVAN)),
            (asked(host=["V4", [[127, 0, 0, 1], 7_878]]), ParcelHead(False, ParcelType.DSC_REQ, 1, 0, IVAN)),
            (head(body=["DscReq", [60_396, 1, "Ivan", {0: [[127, 0, 0, 1], 7_878]}]]), None),
            (
                asked(ours=[1, 2, 3]),
                ParcelHead(False, ParcelType.DSC_REQ, 1, 0, IVAN._replace(ours=Extension(1, 2, 3))),
            ),
            (asked(ours=CBORTag(9, [1, 2, 3]))["body"], None),
        ],
        ids=lambda value: str(value)[-50:],
    )
    def test_head_variants_of_the_reference_library_are_accepted(
        self, content: Any, expected: ParcelHead | None
    ) -> None:
        if expected is None and "DscReq" in content:
            content, expected = head(body=content), ParcelHead(False, ParcelType.SEQ_REQ, 1, 0, None)
            expected = expected._replace(body=IVAN._replace(ours=Extension(1, 2, 3)))
        assert read_head(dumps(content)) == (expected or ParcelHead(False, ParcelType.SEQ_REQ, 1, 0, IVAN))

    def test_nesting_limit_of_a_head_is_that_of_the_reference(self) -> None:
        start = b"\xa6" + dumps(head())[1:] + b"\x61x"
        assert read_head(start + b"\x81" * (MAX_NESTING - 2) + b"\x80").id == 1
        assert wrong(start + b"\x81" * (MAX_NESTING - 1) + b"\x80").reason == "too-deep"

    def test_extension_type_is_read_as_its_name(self) -> None:
        assert read_head(dumps(head(parcel_type="Hello"))).type == "Hello"

    def test_unknown_numbered_node_field_is_ignored(self) -> None:
        node: dict[Any, Any] = IDENTITY | {4: [1, 2, 3]}
        assert read_head(dumps(head(body={"DscReq": {"identity": node}}))).body == IVAN

    def test_duplicate_head_field_is_refused(self) -> None:
        assert wrong(b"\xa6" + dumps(head())[1:] + b"\x62id\x01").reason == "duplicate-field"

    @given(st.binary(max_size=255))
    def test_arbitrary_bytes_are_a_head_or_a_malformed_parcel(self, data: bytes) -> None:
        with suppress(BadParcel):
            read_head(data)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=9) | st.binary(max_size=9),
            lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=12,
        ),
        st.sampled_from(["is_response", "parcel_type", "id", "size", "body"]),
    )
    def test_head_with_arbitrary_cbor_is_read_or_refused(self, value: Any, place: str) -> None:
        with suppress(BadParcel):
            read_head(dumps(head(**{place: value})))

    @pytest.mark.parametrize(
        "data",
        [
            bytes([major << 5 | 27]) + length.to_bytes(8, "big") + bytes(100)
            for major in (2, 3, 4, 5)
            for length in (2**32, 2**63 - 1, 2**64 - 1)
        ]
        + [b"\x81" * 255, b"\x80" * 255, b"\x98\xf0" + b"\x80" * 240, b"\x9f" * 126 + b"\xff" * 126],
        ids=lambda data: data[:9].hex(),
    )
    def test_excessive_cbor_length_allocates_no_memory(self, data: bytes) -> None:
        tracemalloc.start()
        try:
            assert wrong(data)
            assert tracemalloc.get_traced_memory()[1] < 2**18
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("value", [1.5, float("inf"), -0.0, 2**64 - 1, -(2**64), None, True, b"", "", [[], {}]])
    def test_unknown_head_field_may_hold_any_value(self, value: Any) -> None:
        assert read_head(dumps(head(x=value))) == ParcelHead(False, ParcelType.SEQ_REQ, 1, 0, None)

    @pytest.mark.parametrize(
        "data", [b"\xf9\x3e\x00", b"\xfa\x3f\xc0\x00\x00", b"\xfb\x3f\xf8\x00\x00\x00\x00\x00\x00"]
    )
    def test_cbor_floats_of_three_sizes_are_decoded(self, data: bytes) -> None:
        assert decode(data) == 1.5


class TestShortCut:
    """Heads with an empty body are cached, and must read as if they were not."""

    @pytest.mark.parametrize("name", ["SeqReq", "ProtoError", "Append", "size", "sizebodyEmpty"])
    @pytest.mark.parametrize("size", [0, 1, 23, 24, 255, 256, 65_535])
    def test_cached_head_reads_every_encoding_of_the_size(self, name: str, size: int) -> None:
        start, end = empty_heads(True, name, 7_898)
        for number in {dumps(size), b"\x19" + size.to_bytes(2, "big"), b"\x1a" + size.to_bytes(4, "big")}:
            found = read_head(start + number + end)
            assert (found.is_response, found.id, found.size, found.body) == (True, 7_898, size, None)
            assert getattr(found.type, "value", found.type) == name

    @pytest.mark.parametrize(
        "number",
        [b"", b"\x18", b"\x19\x01", b"\x20", b"\x61a", b"\xf4", b"\x41a", b"\x1a\x00\x01\x00\x00", b"\x00\x00"],
    )
    def test_cached_head_refuses_an_invalid_size(self, number: bytes) -> None:
        start, end = empty_heads(True, "Append", 1)
        assert read_head(start + b"\x05" + end).size == 5
        assert wrong(start + number + end)

    def test_size_pattern_inside_a_text_is_not_read_as_the_size(self) -> None:
        """The last ``size`` before the body is part of the value of an unknown key."""
        fields = dumps(head(size=3))[1:-11]
        inside = b"\xa6" + fields + b"\x61x\x66\x64size\x09" + b"\x64body\x65Empty"
        for _ in range(2):
            assert read_head(inside).size == 3

    @given(st.binary(max_size=12), st.binary(max_size=6))
    def test_cached_and_uncached_heads_read_identically(self, before: bytes, number: bytes) -> None:
        start, end = empty_heads(False, "Append", 300)
        for data in (start + number + end, start[:-5] + before + b"\x64size" + number + end):
            slow: ParcelHead | str
            fast: ParcelHead | str
            try:
                # A key that the reference ignores makes the head bypass the cache.
                slow = read_head(b"\xa6" + data[1:] + b"\x61x\x00")
            except BadParcel as error:
                slow = error.reason
            try:
                fast = read_head(data)
            except BadParcel as error:
                fast = error.reason
            assert isinstance(fast, str) is isinstance(slow, str)
            assert isinstance(fast, str) or fast == slow


class TestNeighbours:
    def neighbours(self, count: int) -> tuple[NodeInfo, ...]:
        return tuple(
            NodeInfo(place, Mode.WRK, f"node-{place}", ("127.0.0.1", place), Extension(1, place, 7))
            for place in range(count)
        )

    @pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 24, 64, 300])
    def test_neighbours_that_do_not_fit_the_head_are_in_the_data(self, count: int) -> None:
        nodes = self.neighbours(count)
        first, data = write_parcel(Parcel(True, ParcelType.DSC_RES, 1, nodes))
        found = read_head(first)
        assert len(first) <= MAX_HEAD
        assert found.size == len(data)
        assert isinstance(found.body, tuple)
        assert found.body + (read_neighbours(data) if data else ()) == nodes
        assert bool(data) is (count > 3)

    def test_head_contains_as_many_neighbours_as_fit(self) -> None:
        first, _ = write_parcel(Parcel(True, ParcelType.DSC_RES, 1, self.neighbours(300)))
        assert len(first) + len(write_node(self.neighbours(4)[3])) > MAX_HEAD - 3

    @pytest.mark.parametrize("length", range(60))
    def test_neighbours_fill_the_head_up_to_its_limit(self, length: int) -> None:
        nodes = (IVAN._replace(name="x" * length), *[IVAN] * 20)
        first, data = write_parcel(Parcel(True, ParcelType.DSC_RES, 1, nodes))
        assert MAX_HEAD - len(write_node(IVAN)) < len(first) <= MAX_HEAD
        body = read_head(first).body
        assert isinstance(body, tuple)
        assert body + read_neighbours(data) == nodes

    @pytest.mark.parametrize("length", range(40))
    def test_neighbours_fill_the_data_up_to_its_limit(self, length: int) -> None:
        nodes = (*[IVAN] * 20, IVAN._replace(name="x" * length), *[IVAN] * 2_000)
        data = write_parcel(Parcel(True, ParcelType.DSC_RES, 1, nodes))[1]
        assert MAX_DATA - len(write_node(IVAN)) < len(data) <= MAX_DATA

    def test_neighbours_have_the_same_form_in_the_head_and_in_the_data(self) -> None:
        nodes = self.neighbours(9)
        first, data = write_parcel(Parcel(True, ParcelType.DSC_RES, 1, nodes))
        assert loads(first)["body"]["DscRes"]["neighbours"] + loads(data) == [loads(write_node(node)) for node in nodes]

    def test_neighbours_that_fit_no_parcel_are_omitted(self) -> None:
        nodes = self.neighbours(2_000)
        first, data = write_parcel(Parcel(True, ParcelType.DSC_RES, 1, nodes))
        assert MAX_DATA - 100 < len(data) <= MAX_DATA
        body = read_head(first).body
        assert isinstance(body, tuple)
        found = body + read_neighbours(data)
        assert found == nodes[: len(found)]
        assert 1_000 < len(found) < 2_000

    def test_neighbour_that_fits_no_head_is_in_the_data(self) -> None:
        nodes = (IVAN._replace(name="x" * 250), IVAN)
        first, data = write_parcel(Parcel(True, ParcelType.DSC_RES, 1, nodes))
        assert read_head(first).body == ()
        assert read_neighbours(data) == nodes

    @pytest.mark.parametrize(
        "data",
        [
            dumps({}),
            dumps(1),
            dumps([1]),
            dumps([{}]),
            dumps([IDENTITY | {"host": {"V4": [[1, 2, 3], 1]}}]),
            dumps([IDENTITY]) + b"\0",
            dumps([IDENTITY])[:-1],
            dumps([CBORTag(5, IDENTITY)]),
            dumps([IDENTITY | {"host": {"V4": [[1, 2, 3, [[]]], 1]}}]),
            b"\x9f\xff",
        ],
        ids=lambda data: data[:12].hex(),
    )
    def test_invalid_neighbour_data_is_refused(self, data: bytes) -> None:
        with pytest.raises(BadParcel):
            read_neighbours(data)

    @given(st.binary(max_size=80))
    def test_arbitrary_neighbour_data_is_read_or_refused(self, data: bytes) -> None:
        with suppress(BadParcel):
            read_neighbours(data)


class TestWriting:
    def test_longest_node_info_with_an_extension_fits_the_head(self) -> None:
        first, data = write_parcel(Parcel(False, ParcelType.DSC_REQ, 65_535, LAST))
        assert len(first) <= MAX_HEAD
        assert data == b""
        assert read_head(first).body == LAST

    def test_extension_is_written_under_a_key_that_the_reference_ignores(self) -> None:
        content = written(Parcel(False, ParcelType.DSC_REQ, 1, IVAN._replace(ours=Extension(1, 2, 3))))
        assert list(content["body"]["DscReq"]["identity"].items()) == [*IDENTITY.items(), ("ours", [1, 2, 3])]

    def test_node_info_without_an_extension_is_written_like_the_reference(self) -> None:
        assert list(written(Parcel(False, ParcelType.DSC_REQ, 1, IVAN))["body"]["DscReq"]["identity"]) == list(IDENTITY)

    @pytest.mark.parametrize(
        ("sent", "read"),
        [
            ("2001:DB8:0:0::1", "2001:db8::1"),
            ("0:0:0:0:0:0:0:1", "::1"),
            ("::ffff:10.0.0.1", "::ffff:10.0.0.1"),
            ("127.0.0.1", "127.0.0.1"),
        ],
    )
    def test_node_address_in_a_head_is_normalized(self, sent: str, read: str) -> None:
        first, _ = write_parcel(Parcel(False, ParcelType.DSC_REQ, 1, IVAN._replace(host=(sent, 1))))
        assert read_head(first).body == IVAN._replace(host=(read, 1))

    @pytest.mark.parametrize(
        "parcel",
        [
            Parcel(False, ParcelType.SEQ_REQ, 65_536),
            Parcel(False, ParcelType.SEQ_REQ, -1),
            Parcel(False, ParcelType.SEQ_REQ, 1, None, bytes(MAX_DATA + 1)),
            Parcel(True, ParcelType.SEQ_RES, 1, -1),
            Parcel(True, ParcelType.SEQ_RES, 1, MAX_SEQUENCE + 1),
            Parcel(True, ParcelType.DSC_RES, 1, (IVAN,), b"x"),
            Parcel(True, ParcelType.SEQ_RES, 1, (IVAN,) * 5),
            Parcel(False, ParcelType.DSC_REQ, 1, IVAN._replace(name="x" * 200)),
            Parcel(False, ParcelType.DSC_REQ, 1, IVAN._replace(name="\ud800")),
            Parcel(False, ParcelType.DSC_REQ, 1, IVAN._replace(id=65_536)),
            Parcel(False, ParcelType.DSC_REQ, 1, IVAN._replace(host=("localhost", 1))),
            Parcel(False, ParcelType.DSC_REQ, 1, IVAN._replace(host=("127.1", 1))),
            Parcel(False, ParcelType.DSC_REQ, 1, IVAN._replace(host=("fe80::1%1", 1))),
            Parcel(False, ParcelType.DSC_REQ, 1, IVAN._replace(host=("", 1))),
            Parcel(False, ParcelType.DSC_REQ, 1, IVAN._replace(host=("127.0.0.1", 65_536))),
            Parcel(False, ParcelType.DSC_REQ, 1, IVAN._replace(ours=Extension(65_536, 1, 1))),
            Parcel(False, ParcelType.DSC_REQ, 1, IVAN._replace(ours=Extension(1, 2**63, 1))),
            Parcel(False, ParcelType.DSC_REQ, 1, IVAN._replace(ours=Extension(1, 1, 2**32))),
        ],
        ids=lambda parcel: repr(parcel)[-60:],
    )
    def test_parcel_with_a_value_out_of_range_is_not_encoded(self, parcel: Parcel) -> None:
        with pytest.raises(UnencodableMessage):
            write_parcel(parcel)
