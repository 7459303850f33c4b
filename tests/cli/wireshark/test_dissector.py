"""The dissectors find what the project's codecs find, in messages of all types, in vectors, and in garbage."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from suite.captures import Conversation, link, pcap, tcp, udp
from suite.tshark import PLUGIN, Fields, Tshark
from suite.wire_messages import FREENET, FYREHOSE, HYDRA, PARCELS

from fyrehose_twisted.consensus.messages import EntryKind, LogEntry
from fyrehose_twisted.errors import MalformedPacket, RemoteError
from fyrehose_twisted.freenet.wire import messages as freenet
from fyrehose_twisted.freenet.wire.codec import FreenetCodec, MessageCode
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.envelope import wrap
from fyrehose_twisted.fyrehose.wire.extension import ExtensionKind
from fyrehose_twisted.fyrehose.wire.message_key import add_key
from fyrehose_twisted.fyrehose.wire.packets import (
    Asked,
    Beacon,
    Deliver,
    Depth,
    Dialect,
    Flags,
    Forward,
    Group,
    Head,
    Holds,
    Keepalive,
    KeepaliveAck,
    Leader,
    Packet,
    PacketType,
    Push,
    Request,
    Status,
)
from fyrehose_twisted.fyrehose.wire.term_start import TermStart, encode_term_start
from fyrehose_twisted.hydra.wire import messages as hydra
from fyrehose_twisted.hydra.wire.codec import HydraCodec
from fyrehose_twisted.hydra.wire.lines import command_of, untag
from fyrehose_twisted.parcels.wire import messages as parcels
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.payload import RESPONSES, WIRE_NAMES

CLIENT, BACKBONE = ("192.0.2.1", 4000), ("192.0.2.2", 2323)
HYDRA_NODE, FREENET_NODE, PARCELS_NODE = ("192.0.2.2", 6174), ("192.0.2.2", 6180), ("192.0.2.2", 7878)
VECTORS = Path(__file__).resolve().parents[2] / "vectors"
OF_EACH = 12
"""Examples of each type of message."""
LAYOUT = {
    "fyrehose": {"type", "length", "crc", "extension", "gap", "repair", "answers", "answered", "rtt"},
    "hydra": {"irc_command", "ping_frame", "rtt"},
    "hydra_udp": set[str](),
    "freenet": {"length", "gap", "repair"},
    "parcels": {"head_length", "size", "entry.index", "event.sequence"},
}
"""Fields that are not fields of messages."""

HEADERS_IN_DATA = ("publisher", "counter", "key", "sealed")

Expected = dict[str, list[Any]]


@pytest.fixture
def tshark(program: Callable[[str, str], Path], tmp_path: Path) -> Tshark:
    return Tshark(program("tshark", "tshark"), tmp_path)


def draw(strategies: Iterable[st.SearchStrategy[Any]]) -> list[Any]:
    """Return reproducible examples of each strategy."""
    found: list[Any] = []
    for strategy in strategies:

        @settings(
            max_examples=OF_EACH,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy)
        def collect(value: Any) -> None:
            found.append(value)

        collect()
    return found


def check(proto: str, found: Fields, expected: Expected, message: object) -> None:
    """Check that the fields of a protocol are the expected ones, and no more."""
    shown = {
        name.removeprefix(f"{proto}."): values
        for name, values in found.items()
        if name.startswith(f"{proto}.") and name.removeprefix(f"{proto}.") not in LAYOUT[proto]
    }
    expected = {name: values for name, values in expected.items() if values}
    assert set(shown) == set(expected), message
    for name, values in expected.items():
        texts = shown[name]
        assert len(texts) == len(values), (name, message)
        for text, value in zip(texts, values, strict=True):
            assert _parsed(text, value) == value, (name, message)


def _parsed(text: str, like: Any) -> Any:
    if isinstance(like, bool):
        return text in ("1", "True")
    if isinstance(like, int):
        return int(text, 0)
    if isinstance(like, float):
        return like if abs(float(text) - like) <= 1e-14 else text
    return bytes.fromhex(text.replace(":", "")) if isinstance(like, bytes) else text


def filled(data: bytes) -> list[bytes]:
    """Return the values of a field of bytes, which is not shown if it is empty."""
    return [data] if data else []


# fyrehose


def address_fields(address: tuple[str, int], name: str = "addr", port: str = "port") -> Expected:
    host, number = address
    return {f"{name}6" if ":" in host else name: [host], port: [number]}


def merged(*parts: Expected) -> Expected:
    found: Expected = {}
    for part in parts:
        for name, values in part.items():
            found[name] = found.get(name, []) + values
    return found


def expect_fyrehose(packet: Any) -> Expected:
    match packet:
        case Deliver(sequence, data, fetched, mac):
            kind = "FETCHED" if fetched else "DELIVER"
            named = {"kind": [kind], "seq": [sequence], "fetched": [fetched], "with_mac": [bool(mac)]}
            return {**named, "mac": filled(mac), "data": filled(data)}
        case Push(data, dialect, confirm, again, hops):
            fields: Expected = {"kind": ["PUSH"], "version": [int(dialect)], "confirm": [confirm], "again": [again]}
            return {**fields, "data": filled(data), "hops": [hops] if dialect is Dialect.V2 else []}
        case Request(address, first, last):
            return {"kind": ["REQUEST"], "first": [first], "last": [last], **address_fields(address)}
        case Forward(address, first, last, mac):
            fields = {"kind": ["FORWARD"], "first": [first], "last": [last], "with_mac": [mac]}
            return fields | address_fields(address)
        case Keepalive(address, flags, token, dialect):
            fields = {"kind": ["KEEPALIVE"], "version": [int(dialect)], **address_fields(address)}
            if dialect is Dialect.V1:
                return fields
            fields |= {f"flags.{str(flag.name).lower()}": [bool(flags & flag)] for flag in Flags}
            return fields | {"flags": [int(flags)], "token": [token]}
        case KeepaliveAck(token, stream_id, mac):
            fields = {"kind": ["KEEPALIVE-ACK"], "version": [2 if token else 1], "token": filled(token)}
            return fields | {"stream_id": filled(stream_id), "mac": filled(mac), "with_mac": [True] if mac else []}
        case Beacon(listeners):
            return {"kind": ["BEACON"], "listeners": [listeners]}
    fields = {"kind": [type(packet).__name__.upper()], "token": [packet.token]}
    match packet:
        case Holds(_, oldest, (since, durable), reached):
            return fields | {"oldest": [oldest], "since": [since], "durable": [durable], "reached": [reached]}
        case Status(_, oldest, last, holdings):
            ranges = {"since": [each.since for each in holdings], "durable": [each.durable for each in holdings]}
            return fields | {"oldest": [oldest], "last": [last]} | ranges
        case Asked(_, first, last, left):
            return fields | {"first": [first], "last": [last], "left": [left]}
        case Leader(_, term, leader, asks_head, members):
            fields |= {"term": [term], "asks_head": [asks_head], **address_fields(leader, "leader", "leader.port")}
            return merged(fields, *(address_fields(member, "member", "member.port") for member in members))
        case Head(_, term, highest):
            return fields | {"term": [term], "highest": [highest]}
        case Depth(_, depth):
            return fields | {"depth": [depth]}
        case Group(_, address):
            return fields | address_fields(address)
    raise AssertionError(packet)


def datagrams(payloads: Iterable[bytes]) -> bytes:
    # From another port each, so that no number is missing after another.
    return pcap(link(udp((BACKBONE[0], 2323), (CLIENT[0], 10_000 + n), data)) for n, data in enumerate(payloads))


def test_every_packet_of_fyrehose_has_the_fields_that_the_codec_finds(tshark: Tshark, tmp_path: Path) -> None:
    packets = draw(FYREHOSE)
    assert {type(packet) for packet in packets} == set(get_args(Packet))
    path = tmp_path / "file.pcap"
    path.write_bytes(datagrams(map(encode, packets)))
    found = tshark.packets(path)
    assert len(found) == len(packets)
    for fields, packet in zip(found, packets, strict=True):
        check("fyrehose", fields, expect_fyrehose(packet), packet)


def test_headers_within_data_are_shown(tshark: Tshark, tmp_path: Path) -> None:
    packets = [
        Deliver(1, wrap(b"12345678", 2**64 - 1, add_key(b"x", b"key"))),
        Deliver(1, wrap(b"12345678", 7, b"\xf7FS\1" + bytes(60))),
        Deliver(9, encode_term_start(TermStart(2**64 - 1, 5, 9))),
        Deliver(8, encode_term_start(TermStart(3, 5, 9))),
    ]
    path = tmp_path / "file.pcap"
    path.write_bytes(datagrams(map(encode, packets)))
    extra: list[Expected] = [
        {"publisher": [b"12345678"], "counter": [2**64 - 1], "key": [b"key"]},
        {"publisher": [b"12345678"], "counter": [7], "sealed": [True]},
        {"term": [2**64 - 1], "held_up_to": [5]},
        {},
    ]
    for fields, packet, more in zip(tshark.packets(path), packets, extra, strict=True):
        check("fyrehose", fields, expect_fyrehose(packet) | more, packet)


def test_tables_of_the_dissector_have_all_types(tshark: Tshark) -> None:
    text = PLUGIN.read_text(encoding="utf-8")
    for kind in (*ExtensionKind, *MessageCode, *EntryKind):
        assert kind.name.lower().replace("_", "-") in text.lower().replace("_", "-"), kind
    for kind in PacketType:
        assert f"[0x{kind:02X}]" in text, kind
    for name in WIRE_NAMES.values():
        assert f"  {name} = {{" in text, name
    for reason in parcels.RefusalReason:
        assert f'"{reason.name}"' in text
    for flag in Flags:
        assert f'"{flag.name}", 0x{flag:X}}}' in text


# Streams


def conversation(node: Any, messages: Sequence[bytes], path: Path) -> Path:
    talk = Conversation()
    for message in messages:
        talk.segment(CLIENT, node, message)
    return talk.write(path)


def expect_hydra(message: Any) -> Expected:
    kind = type(message).__name__.upper()
    if isinstance(message, hydra.Recv | hydra.Send):
        token, line = untag(message.line)
        named = {"idx": [message.idx]} if isinstance(message, hydra.Recv) else {"id": [message.id]}
        return {"command": [kind], **named, "token": [token] if token else [], "line": [line.decode()]}
    return {"command": [kind]} | {name: [value] for name, value in message._asdict().items()}


def test_every_line_of_hydra_has_the_fields_that_the_codec_finds(tshark: Tshark, tmp_path: Path) -> None:
    messages = draw(HYDRA)
    path = conversation(HYDRA_NODE, [HydraCodec().encode(message) for message in messages], tmp_path / "file.pcap")
    found = tshark.packets(path)
    assert len(found) == len(messages)
    for fields, message in zip(found, messages, strict=True):
        check("hydra", fields, expect_hydra(message), message)
        if isinstance(message, hydra.Recv | hydra.Send):
            assert fields["hydra.irc_command"] == [command_of(untag(message.line)[1]).decode()]


def expect_freenet(message: Any) -> Expected:
    code = next(code for code in MessageCode if code.name.replace("_", "") == type(message).__name__.upper())
    fields: Expected = {"kind": [int(code)]}
    for name, value in message._asdict().items():
        fields[name] = [] if value is None or value == b"" else [value]
    return fields


def test_every_message_of_freenet_has_the_fields_that_the_codec_finds(tshark: Tshark, tmp_path: Path) -> None:
    messages = draw(FREENET)
    path = conversation(FREENET_NODE, [FreenetCodec().encode(message) for message in messages], tmp_path / "file.pcap")
    found = tshark.packets(path)
    assert len(found) == len(messages)
    for fields, message in zip(found, messages, strict=True):
        check("freenet", fields, expect_freenet(message), message)


def expect_node(node: parcels.NodeInfo) -> Expected:
    fields: Expected = {"id": [node.id], "mode": [node.mode.value], "name": [node.name]}
    fields |= {"host": [_expanded(node.host[0])], "port": [node.host[1]]}
    if node.ours is not None:
        fields |= {
            "version": [node.ours.version],
            "incarnation": [node.ours.incarnation],
            "cluster": [node.ours.cluster],
        }
    return {f"node.{name}": values for name, values in fields.items()}


def _expanded(host: str) -> str:
    """Return an address without abbreviated zeros, as the dissector writes it."""
    address = ip_address(host)
    if address.version == 4:
        return host
    return ":".join(f"{group:x}" for group in struct.unpack(">8H", address.packed))


def expect_run(run: parcels.PublisherRun) -> Expected:
    return {
        "run.publisher": [run.publisher],
        "run.epoch": [run.epoch],
        "run.first": [run.first],
        "run.expect": [] if run.expect is None else [run.expect],
        "event.size": [len(event) for event in run.events],
        "event": [event for event in run.events if event],
    }


def expect_entry(entry: LogEntry) -> Expected:
    fields: Expected = {"entry.term": [entry.term], "entry.kind": [int(entry.kind)]}
    if entry.kind is EntryKind.DATA:
        return merged(fields, *map(expect_run, entry.content))
    if entry.kind is EntryKind.MEMBERSHIP:
        for member, (host, port) in entry.content.members:
            place = {"member.host6" if ":" in host else "member.host": [host], "member.port": [port]}
            named = {"member.name": [member.name], "member.incarnation": [member.incarnation]}
            fields = merged(fields, named, place)
    return fields


def expect_parcel(message: Any) -> Expected:
    if isinstance(message, parcels.Parcel):
        body = "Empty"
        parts: list[Expected] = []
        if message.identity is not None:
            body, parts = "DscReq", [expect_node(message.identity)]
        elif message.neighbours is not None:
            body, parts = "DscRes", [expect_node(node) for node in message.neighbours]
        elif message.body is not None:
            body, parts = "SeqRes", [{"seq_number": [message.body]}]
        fields = {"type": [message.type.value], "response": [message.is_response], "id": [message.id], "body": [body]}
        return merged(fields, *parts, {"application_data": filled(message.data)})
    fields = {
        "type": [WIRE_NAMES[type(message)]],
        "response": [type(message) in RESPONSES],
        "id": [7],
        "body": ["Empty"],
    }
    parts = []
    for name, value in message._asdict().items():
        match name:
            case "run":
                parts.append(expect_run(value))
            case "entries":
                parts += map(expect_entry, value)
            case "sequences":
                parts += [{"span.first": [first], "span.count": [count]} for first, count in value]
            case "events":
                names = ("event.publisher", "event.epoch", "event.number")
                for *head, data in value:
                    described = {each: [part] for each, part in zip(names, head, strict=True)}
                    parts.append(described | {"event.size": [len(data)], "event": filled(data)})
            case "mode":
                parts.append({"mode": [list(parcels.Mode).index(value)]})
            case "why":
                parts.append({"why": [int(value)]})
            case _:
                parts.append({name: [] if value == b"" else [value]})
    return merged(fields, *parts)


def test_every_parcel_has_the_fields_that_the_codec_finds(tshark: Tshark, tmp_path: Path) -> None:
    messages = draw(PARCELS)
    path = conversation(PARCELS_NODE, [ParcelCodec(7).encode(message) for message in messages], tmp_path / "file.pcap")
    found = tshark.packets(path)
    assert len(found) == len(messages)
    for fields, message in zip(found, messages, strict=True):
        check("parcels", fields, expect_parcel(message), message)


# Vectors


def vectors(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def test_vectors_of_fyrehose_are_accepted_and_refused_alike(tshark: Tshark, tmp_path: Path) -> None:
    payloads = []
    for vector in (*vectors("fyrehose"), *vectors("fyrehose-ipv6"), *vectors("fyrehose-mac")):
        if "hex" in vector:
            fill = vector.get("fill", {"byte": "00", "count": 0})
            payloads.append(bytes.fromhex(vector["hex"]) + bytes.fromhex(fill["byte"]) * fill["count"])
    # Wireshark shows an empty datagram to no dissector.
    payloads = [payload for payload in payloads if 0 < len(payload) <= 65_507]
    path = tmp_path / "file.pcap"
    path.write_bytes(datagrams(payloads))
    for fields, payload in zip(tshark.packets(path), payloads, strict=True):
        try:
            packet = decode(payload)
        except MalformedPacket:
            assert "fyrehose.kind" not in fields or "fyrehose.burst" in fields, payload.hex()
            continue
        if len(payload) < 4_000:
            found = {name: values for name, values in fields.items() if name.split(".")[1] not in HEADERS_IN_DATA}
            check("fyrehose", found, expect_fyrehose(packet), packet)


def test_vectors_of_parcels_are_accepted_and_refused_alike(tshark: Tshark, tmp_path: Path) -> None:
    talk, payloads = Conversation(), []
    for number, vector in enumerate(vectors("parcels")):
        if "hex" in vector and vector["kind"] in ("golden", "decode"):
            payloads.append(bytes.fromhex(vector["hex"]))
            talk.segment((CLIENT[0], 10_000 + number), PARCELS_NODE, payloads[-1])
    found = iter(tshark.packets(talk.write(tmp_path / "file.pcap")))
    differing = []
    for payload in payloads:
        decoder = ParcelCodec().decoder()
        try:
            messages = decoder.feed(payload)
            decoder.feed(b"")
        except RemoteError:
            messages = []
        if not messages and decoder.waiting:
            continue  # It is not complete, so there is nothing to show.
        fields = next(found)
        if messages:
            check("parcels", fields, merged(*map(expect_parcel, messages)), messages)
        elif "parcels.type" in fields:
            differing.append(payload.hex())
    assert not differing


def test_vectors_of_hydra_are_accepted_and_refused_alike(tshark: Tshark, tmp_path: Path) -> None:
    lines = []
    for vector in vectors("hydra"):
        for each in (vector, *vector.get("steps", ())):
            if isinstance(each.get("line"), str):
                lines += each["line"].encode("utf-8", "surrogateescape").split(b"\r\n")[:-1]
    lines = [line for line in lines if len(line) < 1_000]
    assert len(lines) > 50
    path = conversation(HYDRA_NODE, [line + b"\r\n" for line in lines], tmp_path / "file.pcap")
    for fields, line in zip(tshark.packets(path), lines, strict=True):
        (message,) = HydraCodec().decoder().feed(line + b"\r\n")
        if isinstance(message, hydra.Malformed):
            assert "hydra.command" not in fields
        else:
            check("hydra", fields, expect_hydra(message), line)


# Reassembly, garbage and gaps


def test_messages_are_joined_over_segments_and_separated_within(tshark: Tshark, tmp_path: Path) -> None:
    talk = Conversation()
    run = parcels.PublisherRun("p", 1, 1, tuple(bytes([n]) * 3_000 for n in range(1, 5)))
    parcel, packet, line = ParcelCodec(7).encode, FreenetCodec().encode, HydraCodec().encode
    cases = [
        (PARCELS_NODE, parcel(parcels.Publish(run)) + parcel(parcels.FetchEvents(1, 2))),
        (FREENET_NODE, b"".join(packet(freenet.SubscribeData(bytes(20), number, b"x" * 900)) for number in (1, 2))),
        (HYDRA_NODE, b"".join(line(hydra.Recv(number, b"PRIVMSG #c :x")) for number in (1, 2))),
    ]
    for number, (node, data) in enumerate(cases):
        step = 11 if len(data) < 2_000 else 700
        talk.segment((CLIENT[0], 5_000 + number), node, data)
        for at in range(0, len(data), step):
            talk.segment((CLIENT[0], 6_000 + number), node, data[at : at + step])
    found = tshark.packets(talk.write(tmp_path / "file.pcap"))
    expected = {"parcels.type": ["Publish", "Fetch"], "freenet.packet": ["1", "2"], "hydra.idx": ["1", "2"]}
    for name, values in expected.items():
        assert [value for fields in found for value in fields.get(name, [])] == values * 2
    assert not any(".malformed" in name for fields in found for name in fields)


@pytest.mark.extended
def test_garbage_and_truncation_raise_no_error_in_lua(tshark: Tshark, tmp_path: Path) -> None:
    source = random.Random(1)
    encoded: list[tuple[Any, bytes]] = [(BACKBONE, encode(each)) for each in draw(FYREHOSE)[:: OF_EACH // 2]]
    encoded += [(HYDRA_NODE, HydraCodec().encode(each)) for each in draw(HYDRA)[:: OF_EACH // 2]]
    encoded += [(FREENET_NODE, FreenetCodec().encode(each)) for each in draw(FREENET)[:: OF_EACH // 2]]
    encoded += [(PARCELS_NODE, ParcelCodec(7).encode(each)) for each in draw(PARCELS)[:: OF_EACH // 2]]
    frames, port = [], 1_024
    for node, data in encoded:
        variants = [data[:size] for size in range(0, len(data), 1 + len(data) // 12)]
        for _ in range(12):
            damaged = bytearray(data)
            damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
            variants.append(bytes(damaged))
        variants.append(source.randbytes(source.randrange(1, 200)))
        for variant in variants:
            port = 1_024 + (port + 1) % 60_000
            if node is BACKBONE or (node is HYDRA_NODE and source.random() < 0.5):
                frames.append(link(udp((CLIENT[0], port), node, variant)))
            else:
                frames.append(link(tcp((CLIENT[0], port), node, 1, variant)))
    for kind in range(1, 10):
        for size in (1, 9, 25, 33, 34, 40, 50, 120):
            frames.append(link(udp(CLIENT, HYDRA_NODE, bytes([kind]) + source.randbytes(size))))
    path = tmp_path / "file.pcap"
    path.write_bytes(pcap(frames))
    shown = tshark.run(path, "-V")
    assert "Lua Error" not in shown
    assert "malformed" in shown
    # As a capture cuts frames.
    cut = b"".join(struct.pack("<LLLL", 0, 0, min(len(frame), 60), len(frame)) + frame[:60] for frame in frames)
    path.write_bytes(pcap([]) + cut)
    assert "Lua Error" not in tshark.run(path, "-V")


def damaged(encoded: Iterable[bytes]) -> list[bytes]:
    """Return variants of messages with one or two bytes changed, removed or added."""
    source, found = random.Random(2), []
    for data in encoded:
        for _ in range(3):
            variant = bytearray(data)
            for _ in range(source.randrange(1, 3)):
                place = source.randrange(len(variant) + 1)
                end = place + source.randrange(2)
                variant[place:end] = source.randbytes(source.randrange(2))
            if variant and len(variant) <= 1_400:
                found.append(bytes(variant))
    return found


@pytest.mark.extended
def test_damaged_packets_of_fyrehose_are_accepted_and_refused_alike(tshark: Tshark, tmp_path: Path) -> None:
    payloads = damaged(map(encode, draw(FYREHOSE)))
    path = tmp_path / "file.pcap"
    path.write_bytes(datagrams(payloads))
    refused = 0
    for fields, payload in zip(tshark.packets(path), payloads, strict=True):
        try:
            packet = decode(payload)
        except MalformedPacket:
            refused += 1
            assert "fyrehose.malformed" in fields or "fyrehose.burst" in fields, payload.hex()
            continue
        found = {name: values for name, values in fields.items() if name.split(".")[1] not in HEADERS_IN_DATA}
        check("fyrehose", found, expect_fyrehose(packet), packet)
    assert 0 < refused < len(payloads)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("node", "codec", "strategies", "expect", "name"),
    [
        (HYDRA_NODE, HydraCodec(), HYDRA, expect_hydra, "hydra.command"),
        (FREENET_NODE, FreenetCodec(), FREENET, expect_freenet, "freenet.kind"),
        (PARCELS_NODE, ParcelCodec(7), PARCELS, expect_parcel, "parcels.type"),
    ],
    ids=["hydra", "freenet", "parcels"],
)
def test_damaged_messages_are_accepted_and_refused_alike(
    node: Any, codec: Any, strategies: Any, expect: Any, name: str, tshark: Tshark, tmp_path: Path
) -> None:
    payloads = [data for data in damaged(map(codec.encode, draw(strategies))) if data.isascii() or name[0] != "h"]
    # A connection for each, as what follows damage is not read.
    sources = [(f"10.0.{number // 250}.{number % 250 + 1}", 40_000) for number in range(len(payloads))]
    frames = [link(tcp(source, node, 1, data)) for source, data in zip(sources, payloads, strict=True)]
    path = tmp_path / "file.pcap"
    path.write_bytes(pcap(frames))
    found = {fields["ip.src"][0]: fields for fields in tshark.packets(path)}
    complete = 0
    for (host, _), payload in zip(sources, payloads, strict=True):
        decoder, messages = codec.decoder(), []
        with suppress(RemoteError):
            messages = decoder.feed(payload)
            decoder.feed(b"")
        messages = [message for message in messages if not isinstance(message, hydra.Malformed)]
        fields = found.get(host, {})
        assert len(fields.get(name, [])) == len(messages), payload.hex()
        if len(messages) == 1:
            complete += 1
            expected = expect(messages[0])
            shown = {key: values for key, values in fields.items() if not key.endswith(".malformed")}
            # Messages do not tell their sender, which the head may name.
            check(name.split(".")[0], shown, expected | _sender(shown, expected), messages[0])
    assert 0 < complete < len(payloads)


def _sender(shown: Fields, expected: Expected) -> Expected:
    return {"id": [int(shown["parcels.id"][0])]} if "parcels.id" in shown and "id" in expected else {}


def test_gaps_repairs_and_answers_are_marked(tshark: Tshark, tmp_path: Path) -> None:
    frames = [link(udp(BACKBONE, CLIENT, encode(Deliver(number, b"")))) for number in (1, 2, 5, 3, 4, 9)]
    frames += [
        link(udp(CLIENT, BACKBONE, encode(Keepalive(token=bytes(range(16)))))),
        link(udp(BACKBONE, CLIENT, encode(KeepaliveAck(bytes(range(16)))))),
    ]
    path = tmp_path / "file.pcap"
    path.write_bytes(pcap(frames))
    columns = ("frame.number", "_ws.expert.message", "fyrehose.answers", "fyrehose.answered", "fyrehose.rtt")
    options = [option for column in columns for option in ("-e", column)]
    assert tshark.run(path, "-2", "-T", "fields", *options).splitlines() == [
        "1\t\t\t\t",
        "2\t\t\t\t",
        "3\t2 missing: 3 to 4\t\t\t",
        "4\trepairs 3\t\t\t",
        "5\t2 repaired: 3 to 4\t\t\t",
        "6\t3 missing: 6 to 8\t\t\t",
        "7\t\t\t8\t",
        "8\t\t7\t\t0.001000000",
    ]
    assert tshark.run(path, "-Y", "fyrehose.gap", "-T", "fields", "-e", "frame.number").split() == ["3", "6"]
    assert tshark.run(path, "-Y", "fyrehose.repair", "-T", "fields", "-e", "fyrehose.seq").split() == ["3", "4"]


def test_ports_are_preferences_and_repairs_between_clients_are_recognised(tshark: Tshark, tmp_path: Path) -> None:
    other, client = ("192.0.2.3", 50_000), ("192.0.2.1", 40_000)
    hello = FreenetCodec().encode(freenet.Hello(1, 2, 0.5, bytes(16)))
    talk = Conversation()
    talk.datagram(other, client, encode(Deliver(3, b"x")))
    talk.datagram(other, client, encode(Push(b"x")))
    talk.segment(client, (other[0], 9_001), hello + FreenetCodec().encode(freenet.Ping()))
    talk.segment(client, (other[0], 9_001), FreenetCodec().encode(freenet.Pong()))
    talk.segment(client, (other[0], 9_002), ParcelCodec(7).encode(parcels.Proof(b"")))
    talk.segment(client, (other[0], 9_003), b"AUTH " + b"0" * 32 + b"\r\n")
    path = talk.write(tmp_path / "file.pcap")
    found = tshark.packets(path)
    assert [next(name for name in fields if name != "ip.src").split(".")[0] for fields in found] == [
        "fyrehose",
        "freenet",
        "freenet",
        "parcels",
        "hydra",
    ]
    assert len(tshark.packets(path, "-o", "fyrehose.udp_ports:2323,50000")) == 6
