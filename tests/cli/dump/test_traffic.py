from __future__ import annotations

import json
from collections.abc import Iterable
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite.captures import FIN, Conversation, fragments, link, pcap, tcp, udp
from suite.wire_messages import FREENET, FYREHOSE, HYDRA, PARCELS

from fyrehose_twisted.cli.dump.capture_file import read_capture
from fyrehose_twisted.cli.dump.output import format_json, format_line
from fyrehose_twisted.cli.dump.ports import Protocol, port_map
from fyrehose_twisted.cli.dump.traffic import Line, TrafficReader
from fyrehose_twisted.freenet.wire import messages as freenet
from fyrehose_twisted.freenet.wire.codec import FreenetCodec
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.envelope import wrap
from fyrehose_twisted.fyrehose.wire.member_codec import MemberCodec
from fyrehose_twisted.fyrehose.wire.member_messages import LeaseRound
from fyrehose_twisted.fyrehose.wire.message_key import add_key
from fyrehose_twisted.fyrehose.wire.packets import (
    Asked,
    Deliver,
    Dialect,
    Flags,
    Forward,
    Head,
    Holding,
    Holds,
    Keepalive,
    KeepaliveAck,
    Leader,
    Push,
    Request,
    Status,
)
from fyrehose_twisted.fyrehose.wire.term_start import TermStart, encode_term_start
from fyrehose_twisted.hydra.transports.udp.datagrams import COOKIE, INIT, OPEN, SessionKeys, sign
from fyrehose_twisted.hydra.transports.udp.session import UdpSession
from fyrehose_twisted.hydra.wire import messages as hydra
from fyrehose_twisted.hydra.wire.codec import HydraCodec
from fyrehose_twisted.parcels.wire import messages as parcels
from fyrehose_twisted.parcels.wire.codec import ParcelCodec

CLIENT, BACKBONE, OTHER = ("192.0.2.1", 4000), ("192.0.2.2", 2323), ("192.0.2.3", 5000)
HYDRA_NODE, FREENET_NODE, PARCELS_NODE = ("192.0.2.2", 6174), ("192.0.2.2", 6180), ("192.0.2.2", 7878)
SECRET = bytes(range(100, 116))


def read(frames: Iterable[bytes], **options: Any) -> list[Line]:
    reader = TrafficReader(port_map(options.pop("ports", {})), **options)
    found = [line for frame in read_capture(BytesIO(pcap(frames))) for line in reader.read(frame)]
    found += reader.finish()
    for line in found:
        json.loads(format_json(line))
    return found


def said(frames: Iterable[bytes], **options: Any) -> list[str]:
    """Return the lines after the names of the protocols."""
    lines = [(line, format_line(line)) for line in read(frames, **options)]
    return [text if line.note else text.partition(f" {line.protocol} ")[2] for line, text in lines]


def datagrams(*packets: Any) -> list[bytes]:
    return [link(udp(BACKBONE, CLIENT, encode(packet))) for packet in packets]


@pytest.mark.parametrize(
    ("packet", "text"),
    [
        (Deliver(7, b"abc"), "DELIVER 7, 3 bytes"),
        (Deliver(7, b"", mac=SECRET), "DELIVER 7, 0 bytes, with MAC"),
        (Deliver(7, wrap(b"\1" * 8, 9, b"x")), "DELIVER 7, 21 bytes, publisher 0101010101010101 message 9"),
        (
            Deliver(7, wrap(b"\1" * 8, 9, add_key(b"x", b"k"))),
            "DELIVER 7, 27 bytes, publisher 0101010101010101 message 9, key 'k'",
        ),
        (Deliver(9, encode_term_start(TermStart(3, 5, 9))), "DELIVER 9, start of term 3, 6 to 8 were never given"),
        (Deliver(7, b"\xf7FS\1" + bytes(60)), "DELIVER 7, 64 bytes, sealed"),
        (Deliver(7, b"a", fetched=True), "FETCHED 7, 1 byte"),
        (Push(b"abc"), "PUSH 3 bytes"),
        (Push(b"a", Dialect.V2, True, True, 2), "PUSH 1 byte, confirm, again, after 2 relays"),
        (Push(b"a", Dialect.V1), "PUSH 1 byte, version 1"),
        (Request(("0.0.0.0", 0), 40, 80), "REQUEST 40 to 80 (41 messages) for the sender"),
        (Forward(OTHER, 4, 4, mac=True), "FORWARD 4 (1 message) for 192.0.2.3:5000, with MACs"),
        (Forward(OTHER, 4, 2**48 - 1), "FORWARD 4 and later for 192.0.2.3:5000"),
        (Keepalive(flags=Flags.DURABLE | Flags.MAC, token=SECRET), "KEEPALIVE flags DURABLE MAC, with a token"),
        (Keepalive(OTHER, flags=2**40), "KEEPALIVE receives at 192.0.2.3:5000, flags 0x10000000000"),
        (Keepalive(token=b"", dialect=Dialect.V1), "KEEPALIVE version 1"),
        (KeepaliveAck(SECRET), "KEEPALIVE-ACK"),
        (Holds(SECRET, 1, Holding(3, 9), 12), "HOLDS 3 to 9 durable, oldest 1, has all up to 12"),
        (
            Status(SECRET, 0, 9, (Holding(1, 8), Holding(5, 4))),
            "STATUS last 9, oldest 0, 2 journals: 1 to 8; nothing since 5",
        ),
        (Asked(SECRET, 3, 4, 1), "ASKED 3 to 4, 1 client left to ask"),
        (
            Leader(SECRET, 3, OTHER, True, (OTHER, ("2001:db8::1", 7))),
            "LEADER term 3, leader 192.0.2.3:5000, asks for a HEAD, members 192.0.2.3:5000 [2001:db8::1]:7",
        ),
        (Leader(SECRET, 3), "LEADER term 3, no leader known"),
        (Head(SECRET, 3, 8), "HEAD term 3, highest number 8"),
    ],
)
def test_packets_of_fyrehose_are_put_into_words(packet: Any, text: str) -> None:
    assert said(datagrams(packet)) == [text]


def test_a_line_has_time_addresses_and_protocol() -> None:
    (line,) = read(datagrams(Push(b"a")))
    assert format_line(line) == "22:13:20.000000 192.0.2.2:2323 > 192.0.2.1:4000 fyrehose PUSH 1 byte"
    assert json.loads(format_json(line)) == {
        "time": "2023-11-14T22:13:20.000000Z",
        "source": "192.0.2.2:2323",
        "destination": "192.0.2.1:4000",
        "protocol": "fyrehose",
        "kind": "PUSH",
        "text": "1 byte",
        "fields": {"data_size": 1, "dialect": "V2", "confirm": False, "again": False, "hops": 0},
    }


def test_data_is_printed_on_request_with_control_characters_escaped() -> None:
    assert said(datagrams(Deliver(1, b"a\x1b[2J\n")), with_data=True) == [r"DELIVER 1, 6 bytes, 'a\x1b[2J\n'"]


def test_garbage_is_one_line_that_says_why() -> None:
    frames = [link(udp(CLIENT, BACKBONE, data)) for data in (b"", b"\x03x", b"\x01abc")]
    assert said(frames) == [
        "not understood: datagram of 0 bytes has no type",
        "not understood: type byte 0x03 is not one of the protocol's",
        "not understood: DELIVER of 4 bytes; header and MAC alone have 9",
    ]
    assert format_line(read([b"\0" * 12 + b"\x08\0\x45"])[0]).endswith(
        "not understood: a frame of 15 bytes ends within its headers"
    )
    assert said([link(udp(CLIENT, BACKBONE, bytes(90)))[:-40]]) == [
        "not understood: the capture cut 40 bytes off the datagram"
    ]


@pytest.mark.parametrize(
    "make", [lambda n: Deliver(n, b"x" * 20), lambda n: Deliver(n, b"y", mac=SECRET), lambda n: Push(b"z" * n)]
)
def test_a_burst_that_the_kernel_has_not_yet_separated_is_separated(make: Any) -> None:
    packets = [make(9), make(9), make(9)]
    burst = b"".join(map(encode, packets))
    assert said([link(udp(BACKBONE, CLIENT, burst))]) == said(datagrams(*packets))
    assert len(said([link(udp(BACKBONE, CLIENT, burst[:-1] + b"\0\0\0"))])) == 1


def test_fragments_of_a_large_message_are_one_line() -> None:
    parts = fragments(udp(BACKBONE, CLIENT, encode(Deliver(1, bytes(4_000)))), 1_480)
    assert said(map(link, parts)) == ["DELIVER 1, 4,000 bytes"]


def test_repairs_between_clients_are_recognised_by_their_addresses() -> None:
    learnt = link(udp(CLIENT, BACKBONE, encode(Keepalive())))
    repair = link(udp(OTHER, CLIENT, encode(Deliver(3, b"x"))))
    assert said([repair, learnt, repair]) == ["KEEPALIVE flags none", "DELIVER 3, 1 byte"]


def test_gaps_and_repairs_are_noted_for_each_receiver() -> None:
    to = "(fyrehose, to 192.0.2.1:4000)"
    frames = datagrams(*(Deliver(n, b"") for n in (39, 81, *range(40, 80), 83)))
    notes = [line for line in said(frames, gaps=True) if line.startswith("#")]
    assert notes == [f"# 41 missing: 40 to 80 {to}", f"# 1 missing: 82 {to}", f"# 2 still missing: 80, 82 {to}"]
    frames = datagrams(
        Deliver(3, b""), Deliver(9, encode_term_start(TermStart(3, 5, 9))), Deliver(4, b""), Deliver(5, b"")
    )
    notes = [line for line in said(frames, gaps=True) if line.startswith("#")]
    assert notes == [f"# 2 missing: 4 to 5 {to}", f"# 2 repaired: 4 to 5 {to}"]
    assert (
        json.loads(format_json(read(datagrams(Deliver(1, b""), Deliver(3, b"")), gaps=True)[2]))["note"]
        == "1 missing: 2"
    )


@pytest.mark.parametrize(
    "packet", [Keepalive(flags=Flags.NOSUBSCRIBE), Keepalive(flags=Flags.HEARS), Push(b"", confirm=True)]
)
def test_gaps_of_clients_that_do_not_receive_the_whole_stream_are_not_noted(packet: Any) -> None:
    frames = [link(udp(CLIENT, BACKBONE, encode(packet))), *datagrams(Deliver(1, b""), Deliver(9, b""))]
    assert not any(line.note for line in read(frames, gaps=True))
    frames[1:1] = [link(udp(CLIENT, BACKBONE, encode(Keepalive())))]
    if isinstance(packet, Keepalive):
        assert any(line.note for line in read(frames, gaps=True))


def stream(source: Any, destination: Any, *chunks: bytes) -> list[bytes]:
    talk = Conversation()
    for chunk in chunks:
        talk.segment(source, destination, chunk)
    return talk.frames


def test_lines_of_hydra_are_put_into_words() -> None:
    messages = [
        hydra.Ping(3, "v", 7),
        hydra.Pong("v", 8, 1, "tag"),
        hydra.Recv(5, b":n!u@h PRIVMSG #c :hello"),
        hydra.Send(8, b"@+hydra/n=t1 NOTICE #c :there"),
        hydra.Pledge(3, 7, 8),
        hydra.Drop(8, "no room"),
        hydra.Keepalive(),
    ]
    data = b"AUTH " + b"0" * 32 + b"\r\n" + b"".join(map(HydraCodec().encode, messages)) + b"NONSENSE 1\r\n"
    expected = [
        "AUTH of the authentication",
        "PING term 3, leader 7, val v",
        "PONG node 8, val v, relayed 1 times, tag tag",
        "RECV 5: :n!u@h PRIVMSG #c :hello",
        "SEND of node 8: NOTICE #c :there",
        "PLEDGE term 3, for 7, of node 8",
        "DROP node 8: no room",
        "KEEPALIVE empty line",
        "not understood: unknown-command: 'NONSENSE 1'",
    ]
    assert said(stream(CLIENT, HYDRA_NODE, data)) == expected
    assert said(stream(CLIENT, HYDRA_NODE, *(data[at : at + 1] for at in range(len(data))))) == expected


def test_messages_of_freenet_and_their_gaps_are_put_into_words() -> None:
    key = bytes(range(20))
    messages = [freenet.Ping(), freenet.SubscribeRequest(9, key, 5, -1, 0.25)]
    messages += [freenet.SubscribeData(key, number, b"abc") for number in (1, 4)]
    frames = stream(CLIENT, FREENET_NODE, b"".join(map(FreenetCodec().encode, messages)))
    to = f"(freenet {key.hex()}, to 192.0.2.2:6180)"
    assert said(frames, gaps=True) == [
        "PING",
        f"SUBSCRIBE_REQUEST uid 9, key {key.hex()}, htl 5, last seen -1, best 0.25",
        f"SUBSCRIBE_DATA key {key.hex()}, packet 1, data size 3",
        f"SUBSCRIBE_DATA key {key.hex()}, packet 4, data size 3",
        f"# 2 missing: 2 to 3 {to}",
        f"# 2 still missing: 2 to 3 {to}",
    ]


def test_parcels_are_put_into_words() -> None:
    info = parcels.NodeInfo(3, parcels.Mode.WRK, "a", ("192.0.2.1", 7878), parcels.Extension(2, 1, 1))
    run = parcels.PublisherRun("p", 1, 5, (b"x", b"y"))
    messages = [
        parcels.Parcel(False, parcels.ParcelType.DSC_REQ, 3, info),
        parcels.Parcel(True, parcels.ParcelType.DSC_RES, 3, (info,)),
        parcels.Parcel(True, parcels.ParcelType.SEQ_RES, 3, 9),
        parcels.Parcel(True, parcels.ParcelType.PROTO_ERROR, 3, None, b"full"),
        parcels.Heartbeat(parcels.Mode.WRK, 4, 9),
        parcels.Publish(run),
        parcels.PublishAck("p", 1, 5, ((8, 2),)),
        parcels.FetchEventsReply(8, (("p", 1, 5, b"x"),)),
        parcels.AppendEntries(4, 7, 4, 6, ()),
    ]
    node = "a at 192.0.2.1:7878 in mode Wrk, version 2"
    assert said(stream(CLIENT, PARCELS_NODE, b"".join(map(ParcelCodec(3).encode, messages)))) == [
        f"DscReq of node 3, {node}",
        f"DscRes of node 3, 1 neighbour: {node}, response",
        "SeqRes of node 3, sequence 9, response",
        "ProtoError of node 3, 4 bytes of data, response",
        "Beat mode WRK, term 4, sequence 9",
        "Publish p epoch 1, 2 events: 5 to 6",
        "Published p epoch 1, 2 events from 5, sequence 8 to 9",
        "Fetched 1 event: 8",
        "Append term 4, heartbeat, after 7 of term 4, commit 6",
    ]


def test_members_of_a_group_are_read_on_a_given_port() -> None:
    frames = stream(CLIENT, ("192.0.2.2", 2324), MemberCodec().encode(LeaseRound(1, 2, 3)))
    assert said(frames) == []
    assert said(frames, ports={2324: Protocol.MEMBERS}) == ["LeaseRound term 1, number 2, last 3"]


@pytest.mark.parametrize("node", [HYDRA_NODE, FREENET_NODE, PARCELS_NODE])
def test_a_stream_is_read_again_after_a_gap_and_after_garbage(node: Any) -> None:
    codec: Any = {6174: HydraCodec(), 6180: FreenetCodec(), 7878: ParcelCodec()}[node[1]]
    message = {6174: hydra.Call(1), 6180: freenet.Ping(), 7878: parcels.Heartbeat(parcels.Mode.WRK, 1, 1)}[node[1]]
    data = codec.encode(message)
    whole = said(stream(CLIENT, node, data))
    lost = [
        link(tcp(CLIENT, node, 1, data)),
        link(tcp(CLIENT, node, 500, data)),
        link(tcp(CLIENT, node, 600, flags=FIN)),
    ]
    after = said(lost)
    assert after[0:2] == [*whole, f"not understood: the capture lacks {499 - len(data)} bytes of the stream"]
    garbage = stream(CLIENT, node, b"\xff" * 5_000, data + data)
    assert said(garbage)[-1] == whole[0]
    tls = said(stream(CLIENT, node, b"\x16\x03\x01\x02\x00\x01" + bytes(80)))
    assert tls == ["not understood: encrypted with TLS"]


def test_what_follows_a_lost_segment_is_read_once_it_is_acknowledged() -> None:
    first, second, third = (HydraCodec().encode(hydra.Call(term)) for term in (1, 2, 3))
    frames = [
        link(tcp(CLIENT, HYDRA_NODE, 1, first)),
        link(tcp(CLIENT, HYDRA_NODE, 1 + len(first + second), third)),
        link(tcp(HYDRA_NODE, CLIENT, 1, acknowledged=1 + len(first + second + third))),
    ]
    assert said(frames[:2]) == ["CALL term 1"]
    assert said(frames) == ["CALL term 1", "not understood: the capture lacks 8 bytes of the stream", "CALL term 3"]


@pytest.mark.parametrize("secret", [None, b"secret"])
def test_the_udp_carrier_of_hydra_is_read_with_the_lines_in_it(secret: bytes | None) -> None:
    lines = [HydraCodec().encode(hydra.Recv(number, b"PRIVMSG #c :" + b"x" * 400)) for number in range(9)]
    there, frames = carry(secret, b"".join(lines))
    found = read(frames, gaps=True)
    assert {line.protocol for line in found} == {"hydra"}
    texts = [format_line(line).partition(" hydra ")[2] for line in found]
    assert [text.split()[0] for text in texts[:4]] == ["INIT", "COOKIE", "OPEN", "ACCEPT"]
    assert [text for text in texts if text.startswith("RECV")] == [
        f"RECV {n}: PRIVMSG #c :" + "x" * 400 for n in range(9)
    ]
    assert not any("not understood" in text for text in texts)
    session = there.remote.hex()
    assert any(text.startswith(f"DATA session {session}, segment 1 of ") for text in texts)
    assert any(text.startswith(f"FIN session {session}, segment ") for text in texts)
    # Without the handshake, MACs are recognised by their looks.
    assert [line for line in said(frames[4:]) if line.startswith("RECV")] == [t for t in texts if t.startswith("RECV")]


def carry(secret: bytes | None, data: bytes) -> tuple[UdpSession, list[bytes]]:
    """Return a session and the frames with which it carries ``data``."""
    keys, drawn = SessionKeys(secret), iter(range(1, 99))

    def token(size: int) -> bytes:
        return next(drawn).to_bytes(size)

    frames: list[bytes] = []
    there = UdpSession(HYDRA_NODE, 0.0, keys=keys, max_ping=10.0, instance=bytes(8), token=token)
    here: UdpSession | None = None
    for step in range(30):
        now = step * 0.1
        if step == 3:
            there.write(data, now)
        if step == 5:
            there.close(now)
        for datagram in there.drain().datagrams:
            frames.append(link(udp(CLIENT, HYDRA_NODE, datagram)))
            if datagram[0] == INIT:
                cookie = sign(bytes((COOKIE,)) + datagram[1:9] + bytes(range(16)), keys.shared_key)
                frames.append(link(udp(HYDRA_NODE, CLIENT, cookie)))
                there.receive(cookie, now)
            elif datagram[0] == OPEN:
                here = UdpSession(
                    CLIENT,
                    now,
                    keys=keys,
                    max_ping=10.0,
                    instance=bytes(8),
                    opening=(datagram[1:9], datagram[25:33]),
                    token=token,
                )
            elif here is not None:
                here.receive(datagram, now)
        if here is not None:
            for datagram in here.drain().datagrams:
                frames.append(link(udp(HYDRA_NODE, CLIENT, datagram)))
                there.receive(datagram, now)
        there.tick(now)
    return there, frames


ENDPOINTS = [BACKBONE, HYDRA_NODE, FREENET_NODE, PARCELS_NODE]
payloads = st.binary(max_size=60) | st.builds(
    lambda start, rest: start + rest,
    st.sampled_from(
        [b"\x01\0\2", b"\x40\1", b"\x06", b"\7", b"\0\0\0\4\x82", b"\x20\xa5", b"RECV 1 ", b"\r\n", b"\x16\3\1"]
    ),
    st.binary(max_size=40),
)


@given(st.lists(st.tuples(payloads, st.sampled_from(ENDPOINTS), st.booleans(), st.integers(0, 99)), max_size=12))
def test_arbitrary_payloads_are_read_or_not_understood(sent: list[tuple[bytes, Any, bool, int]]) -> None:
    frames = [link(udp(CLIENT, to, data) if is_udp else tcp(CLIENT, to, at, data)) for data, to, is_udp, at in sent]
    for line in read(frames, gaps=True, with_data=True):
        assert format_line(line).isprintable()


def secrets_of(message: Any) -> list[bytes]:
    values = [getattr(message, name, b"") for name in ("token", "mac", "nonce", "proof")]
    return [value for value in values if isinstance(value, bytes) and len(set(value)) > 4]


@given(st.one_of(*FYREHOSE, *HYDRA, *FREENET, *PARCELS))
def test_every_message_is_read_and_its_secrets_are_not_printed(message: Any) -> None:
    if type(message).__module__ == freenet.__name__:
        frames = stream(CLIENT, FREENET_NODE, FreenetCodec().encode(message))
    elif type(message).__module__ == hydra.__name__:
        frames = stream(CLIENT, HYDRA_NODE, HydraCodec().encode(message))
    elif type(message).__module__.startswith("fyrehose_twisted.fyrehose"):
        frames = datagrams(message)
    else:
        frames = stream(CLIENT, PARCELS_NODE, ParcelCodec(7).encode(message))
    (line,) = read(frames, with_data=False)
    assert line.problem is None
    printed = format_line(line) + format_json(line)
    for secret in secrets_of(message):
        assert secret.hex() not in printed
        assert repr(secret)[2:-1] not in printed
