"""Codec of parcel heads, which document 004 calls ``ProtoParcel`` ("Protocol format").

Heads are written byte for byte as the reference implementation writes them, and read as liberally as it reads them.
Sequence numbers above 255 and extension types are accepted in addition.
"""

from __future__ import annotations

from functools import lru_cache
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Any, NamedTuple

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.parcels.wire.cbor import (
    FALSE,
    TRUE,
    BadParcel,
    decode,
    decode_plain,
    encode_array_header,
    encode_integer,
    encode_map_header,
    encode_text,
    truncate_repr,
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
from fyrehose_twisted.parcels.wire.serde_values import (
    MISSING,
    ArrayRest,
    read_array,
    read_string,
    read_struct,
    read_unit_variant,
    read_unsigned,
    read_variant,
    require_no_content,
)

Body = NodeInfo | tuple[NodeInfo, ...] | int | None

OURS = "ours"
"""Key of the extension in a node's information."""

_U16 = 2**16 - 1
_U32 = 2**32 - 1
_HEAD = ("is_response", "parcel_type", "id", "size", "body")
_NODE = ("id", "mode", "name", "host")
_BODIES = ("Empty", "DscReq", "DscRes", "SeqRes")
_TYPES = {kind.value: kind for kind in ParcelType}
_MODES = {mode.value: mode for mode in Mode}
_HOSTS = {"V4": (AF_INET, 4), "V6": (AF_INET6, 16)}
_TYPE_NAMES, _MODE_NAMES, _HOST_NAMES = tuple(_TYPES), tuple(_MODES), tuple(_HOSTS)

_BEFORE_SIZE, _AFTER_SIZE = encode_text("size"), encode_text("body") + encode_text("Empty")


class ParcelHead(NamedTuple):
    """A decoded head."""

    is_response: bool
    type: ParcelType | str
    """A :class:`ParcelType`, or the name of an extension type."""
    id: int
    size: int
    """Size of the application data that follows, in bytes."""
    body: Body


def read_head(data: bytes) -> ParcelHead:
    """Decode a head.

    :raises BadParcel: if it is malformed.
    """
    # Frequent heads differ only in their size field.
    if data.endswith(_AFTER_SIZE):
        cut = data.rfind(_BEFORE_SIZE)
        known = _read_start(data[:cut]) if cut > 0 else None
        if known is not None:
            match list(data[cut + 5 : -11]):
                case [size] if size < 24:
                    return ParcelHead(*known, size, None)
                case [0x18, size]:
                    return ParcelHead(*known, size, None)
                case [0x19, high, low]:
                    return ParcelHead(*known, high << 8 | low, None)
    return _parse_head(data)


@lru_cache(1_024)
def _read_start(start: bytes) -> tuple[bool, ParcelType | str, int] | None:
    """Decode the start of a head up to its size; return ``None`` unless it equals :func:`head_start`.

    Only then the bytes that follow are certainly the size.
    """
    try:
        head = _parse_head(b"".join((start, _BEFORE_SIZE, b"\0", _AFTER_SIZE)))
    except BadParcel:
        return None
    name = head.type.value if isinstance(head.type, ParcelType) else head.type
    return head[:3] if head_start(head.is_response, name, head.id) == start else None


@lru_cache(1_024)
def _parse_head(data: bytes) -> ParcelHead:
    is_response, kind, sender, size, body = read_struct(decode(data), _HEAD, "the head of a parcel")[:5]
    if not isinstance(is_response, bool):
        raise BadParcel("bad-value", f"is_response is {truncate_repr(is_response)}; it must be a boolean")
    return ParcelHead(
        is_response,
        _parcel_type(kind),
        read_unsigned(sender, "id", _U16),
        read_unsigned(size, "size", _U16),
        _read_body(body),
    )


def _parcel_type(value: Any) -> ParcelType | str:
    name = read_unit_variant(value, _TYPE_NAMES, "parcel_type", strict=False)
    return _TYPES.get(name, name)


def _read_body(value: Any) -> Body:
    name, content = read_variant(value, _BODIES, "body")
    if name == "Empty":
        require_no_content(value, content, "body")
        return None
    if content is MISSING:
        raise BadParcel("bad-value", f"body is {name} without its content")
    if name == "DscReq":
        return _read_node(read_struct(content, ("identity",), "DscReq")[0], "identity")
    if name == "DscRes":
        return _read_nodes(read_struct(content, ("neighbours",), "DscRes")[0])
    # The reference implementation reads one byte. This is the only value that it rejects and this reader accepts.
    return read_unsigned(read_struct(content, ("seq_number",), "SeqRes")[0], "seq_number", MAX_SEQUENCE)


def read_neighbours(data: bytes) -> tuple[NodeInfo, ...]:
    """Decode the neighbours in the application data of a DscRes.

    :raises BadParcel: if it is malformed.
    """
    return _read_nodes(decode_plain(data, 5))


def _read_nodes(value: Any) -> tuple[NodeInfo, ...]:
    nodes = read_array(value, "neighbours is {}, not an array")
    return tuple([_read_node(node, f"neighbours[{place}]") for place, node in enumerate(nodes)])


def _read_node(value: Any, label: str) -> NodeInfo:
    sender, mode, name, host, ours = read_struct(value, _NODE, label, OURS)
    return NodeInfo(
        read_unsigned(sender, f"id of {label}", _U16),
        _MODES[read_unit_variant(mode, _MODE_NAMES, f"mode of {label}")],
        read_string(name, f"name of {label}"),
        _read_host(host, f"host of {label}"),
        None if ours is MISSING else _read_extension(ours, f"{OURS!r} of {label}"),
    )


def _read_extension(value: Any, label: str) -> Extension:
    version, incarnation, cluster = read_array(value, f"{label} is {{}}, not an array of 3", 3)
    return Extension(
        read_unsigned(version, f"version in {label}", _U16),
        read_unsigned(incarnation, f"incarnation in {label}", MAX_SEQUENCE),
        read_unsigned(cluster, f"cluster in {label}", _U32),
    )


def _read_host(value: Any, label: str) -> Address:
    name, content = read_variant(value, _HOST_NAMES, label)
    family, length = _HOSTS[name]
    if isinstance(content, ArrayRest):
        content = read_array(content, f"{label} is {{}}, not an array of the variant and one thing more", 1)[0]
    elif content is MISSING:
        raise BadParcel("bad-value", f"{label} is {name} without an address")
    octets, port = read_array(content, f"{label} has {{}}, not an array of address and port", 2)
    octets = read_array(octets, f"the address in {label} is {{}}, not an array of {length}", length)
    packed = bytes([read_unsigned(octet, f"the address in {label}", 255) for octet in octets])
    return inet_ntop(family, packed), read_unsigned(port, f"the port in {label}", _U16)


# Writing


@lru_cache(1_024)
def head_start(is_response: bool, name: str, sender: int) -> bytes:
    """Return the start of a head, up to its size field."""
    if not 0 <= sender <= _U16:
        raise UnencodableMessage(f"id {sender} of a node is outside 0..{_U16}")
    flag = TRUE if is_response else FALSE
    return b"".join(
        (
            encode_map_header(5),
            encode_text("is_response"),
            flag,
            encode_text("parcel_type"),
            encode_text(name),
            encode_text("id"),
            encode_integer(sender),
        )
    )


def empty_heads(is_response: bool, name: str, sender: int) -> tuple[bytes, bytes]:
    """Return the parts before and after the size field of a head with an empty body."""
    return head_start(is_response, name, sender) + _BEFORE_SIZE, _AFTER_SIZE


def write_parcel(parcel: Parcel) -> tuple[bytes, bytes]:
    """Encode a parcel of document 004; return its head and its application data.

    Neighbours of a DscRes that do not fit into the head go into the application data. Further ones are omitted.

    :raises UnencodableMessage: if the parcel does not fit, or a field is out of range.
    """
    start = head_start(parcel.is_response, parcel.type.value, parcel.id) + _BEFORE_SIZE
    data = parcel.data
    if isinstance(parcel.body, tuple) and not isinstance(parcel.body, NodeInfo):
        nodes = [write_node(node) for node in parcel.body]
        if parcel.type is ParcelType.DSC_RES:
            if data:
                raise UnencodableMessage("a DscRes has application data besides its neighbours")
            return _write_neighbours(start, nodes)
        body = _dsc_res_body(nodes)
    else:
        body = _write_body(parcel.body)
    if len(data) > MAX_DATA:
        raise UnencodableMessage(f"application data of {len(data):,} bytes is over the limit of {MAX_DATA:,}")
    head = b"".join((start, encode_integer(len(data)), encode_text("body"), body))
    if len(head) > MAX_HEAD:
        raise UnencodableMessage(f"the head of a {parcel.type.value} has {len(head)} bytes; {MAX_HEAD} is the limit")
    return head, data


def _write_neighbours(start: bytes, nodes: list[bytes]) -> tuple[bytes, bytes]:
    head = b"".join((start, encode_integer(0), encode_text("body"), _dsc_res_body(nodes)))
    if len(head) <= MAX_HEAD:
        return head, b""
    # The size field may need two more bytes. The count of neighbours in a head always fits into one byte.
    room = MAX_HEAD - len(start) - 3 - len(encode_text("body")) - len(_dsc_res_body([]))
    here = _count_fitting(nodes, room)
    # The count of neighbours in the application data takes at most three bytes.
    rest = nodes[here:][: _count_fitting(nodes[here:], MAX_DATA - 3)]
    data = encode_array_header(len(rest)) + b"".join(rest)
    return b"".join((start, encode_integer(len(data)), encode_text("body"), _dsc_res_body(nodes[:here]))), data


def _count_fitting(items: list[bytes], room: int) -> int:
    for place, item in enumerate(items):
        room -= len(item)
        if room < 0:
            return place
    return len(items)


def _dsc_res_body(nodes: list[bytes]) -> bytes:
    return b"".join(
        (
            encode_map_header(1),
            encode_text("DscRes"),
            encode_map_header(1),
            encode_text("neighbours"),
            encode_array_header(len(nodes)),
            *nodes,
        )
    )


def _write_body(body: NodeInfo | int | None) -> bytes:
    if body is None:
        return encode_text("Empty")
    if isinstance(body, NodeInfo):
        return b"".join(
            (
                encode_map_header(1),
                encode_text("DscReq"),
                encode_map_header(1),
                encode_text("identity"),
                write_node(body),
            )
        )
    sequence = encode_integer(_check_range(body, MAX_SEQUENCE, "seq_number"))
    return b"".join(
        (encode_map_header(1), encode_text("SeqRes"), encode_map_header(1), encode_text("seq_number"), sequence)
    )


@lru_cache(256)
def write_node(node: NodeInfo) -> bytes:
    """Encode a node's information.

    :raises UnencodableMessage: if a field is out of range.
    """
    try:
        name = encode_text(node.name)
    except UnicodeEncodeError:
        raise UnencodableMessage(f"the name {node.name!r} of a node is not text") from None
    host, port = node.host
    packed = pack_host(host)
    parts = [
        encode_map_header(4 if node.ours is None else 5),
        encode_text("id"),
        encode_integer(_check_range(node.id, _U16, "id of a node")),
        encode_text("mode")
        + encode_text(node.mode.value)
        + encode_text("name")
        + name
        + encode_text("host")
        + encode_map_header(1),
        encode_text("V4" if len(packed) == 4 else "V6") + encode_array_header(2) + encode_array_header(len(packed)),
        *[encode_integer(octet) for octet in packed],
        encode_integer(_check_range(port, _U16, "port")),
    ]
    if node.ours is not None:
        version, incarnation, cluster = node.ours
        parts += [
            encode_text(OURS),
            encode_array_header(3),
            encode_integer(_check_range(version, _U16, "version")),
            encode_integer(_check_range(incarnation, MAX_SEQUENCE, "incarnation")),
            encode_integer(_check_range(cluster, _U32, "cluster")),
        ]
    return b"".join(parts)


def _check_range(value: int, highest: int, label: str) -> int:
    if not 0 <= value <= highest:
        raise UnencodableMessage(f"{label} {value} is outside 0..{highest}")
    return value


def pack_host(host: str) -> bytes:
    """Return the 4 or 16 bytes of an IP address.

    :raises UnencodableMessage: if ``host`` is not an IP address or has a zone.
    """
    try:
        return inet_pton(AF_INET6 if ":" in host else AF_INET, host)
    except (OSError, ValueError):
        raise UnencodableMessage(f"{host!r} is not an IP address") from None


def unpack_host(packed: bytes) -> str:
    """Return the text of an IP address of 4 or 16 bytes.

    :raises ValueError: if it has another length.
    """
    return inet_ntop(AF_INET if len(packed) == 4 else AF_INET6, packed)
