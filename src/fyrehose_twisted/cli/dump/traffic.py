"""Traffic of the four protocols, decoded from captured frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fyrehose_twisted.cli.dump import fyrehose_words, hydra_words, stream_words
from fyrehose_twisted.cli.dump.capture_file import CapturedFrame
from fyrehose_twisted.cli.dump.description import Description
from fyrehose_twisted.cli.dump.gaps import GapTracker, NumberedStream, StreamKey
from fyrehose_twisted.cli.dump.headers import TCP, UDP, HeaderParser, Transport, UnreadableFrame
from fyrehose_twisted.cli.dump.ports import PortMap, Protocol
from fyrehose_twisted.cli.dump.tcp_streams import Gap, TcpStream, TcpStreams
from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.freenet.wire.codec import FreenetCodec
from fyrehose_twisted.freenet.wire.messages import SubscribeData
from fyrehose_twisted.fyrehose.wire.member_codec import MemberCodec
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, Deliver, Flags, Keepalive, Packet, Push
from fyrehose_twisted.fyrehose.wire.term_start import decode_term_start
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.hydra.transports.udp.datagrams import ACCEPT, DATA, FIN, MAC_SIZE, MAX_DATAGRAM
from fyrehose_twisted.hydra.wire.codec import HydraCodec
from fyrehose_twisted.hydra.wire.messages import Malformed
from fyrehose_twisted.lru_set import LruSet
from fyrehose_twisted.parcels.wire.codec import ParcelCodec

MAX_CLIENTS = 65_536
"""Addresses of clients that are known to speak fyrehose."""
MAX_CARRIER_SEGMENTS = 256
"""Segments after a gap that are buffered for one direction of a session of hydra's UDP carrier."""
MAX_SESSIONS = 256
"""Directions of such sessions that are followed."""

_TLS_RECORDS = (b"\x14\x03", b"\x15\x03", b"\x16\x03", b"\x17\x03")


@dataclass(slots=True)
class Line:
    """One line of output: a message, bytes that are none, or a note on gaps."""

    time: int
    """Nanoseconds since 1970."""
    source: Address | None = None
    destination: Address | None = None
    protocol: str = ""
    description: Description | None = None
    problem: str | None = None
    """Reason why the bytes are not understood."""
    note: str | None = None
    """Note on gaps; :attr:`destination` is the receiver of the stream."""


@dataclass
class _Session:
    """One direction of a session of hydra's UDP carrier."""

    decoder: Any
    expected: int | None = None
    waiting: dict[int, bytes] = field(default_factory=dict)
    has_mac: bool | None = None


_NEW_DECODER: dict[Protocol, Callable[[], Any]] = {
    Protocol.HYDRA: HydraCodec().decoder,
    Protocol.FREENET: FreenetCodec().decoder,
    Protocol.PARCELS: ParcelCodec().decoder,
    Protocol.MEMBERS: MemberCodec().decoder,
}
_DESCRIBE: dict[Protocol, Callable[[Any], Description]] = {
    Protocol.HYDRA: hydra_words.describe_message,
    Protocol.FREENET: stream_words.describe_freenet,
    Protocol.PARCELS: stream_words.describe_parcel,
    Protocol.MEMBERS: stream_words.describe_member_message,
}


class TrafficReader:
    """Decoder of the frames of one capture. All its tables are bounded.

    :param ports: protocol by transport and port.
    :param with_data: whether to print the start of DATA.
    :param gaps: whether to note gaps.
    :ivar counts: messages by protocol; bytes that are none are counted as ``not understood``, and frames of other
        traffic as ``other``.
    """

    def __init__(self, ports: PortMap, *, with_data: bool = False, gaps: bool = False) -> None:
        self.counts: Counter[str] = Counter()
        self._ports = ports
        self._with_data = with_data
        self._gaps = GapTracker() if gaps else None
        self._headers = HeaderParser()
        self._streams = TcpStreams()
        self._clients = LruSet(MAX_CLIENTS)
        self._unnumbered = LruSet(MAX_CLIENTS)
        """Clients that do not receive the whole stream."""
        self._sessions: dict[tuple[Address, Address, bytes], _Session] = {}

    def read(self, frame: CapturedFrame) -> Iterator[Line]:
        """Yield the lines for a frame."""
        try:
            packet = self._headers.parse(frame.link_type, frame.data)
        except UnreadableFrame as problem:
            self.counts["not understood"] += 1
            yield Line(frame.time, problem=str(problem))
            return
        protocol = None if packet is None else self._protocol_of(packet)
        if packet is None or protocol is None:
            self.counts["other"] += 1
            return
        line = Line(frame.time, packet.source, packet.destination, protocol.value)
        if packet.protocol == TCP:
            yield from self._read_segment(packet, protocol, line)
        elif packet.missing:
            yield self._problem(line, f"the capture cut {packet.missing:,} bytes off the datagram")
        elif protocol is Protocol.FYREHOSE:
            yield from self._read_fyrehose(packet, line)
        else:
            yield from self._read_carrier(packet, line)

    def finish(self) -> Iterator[Line]:
        """Yield notes on what is missing at the end."""
        if self._gaps is not None:
            for key, note in self._gaps.summary():
                yield Line(0, destination=key.receiver, protocol=key.name, note=note)

    def _protocol_of(self, packet: Transport) -> Protocol | None:
        kind, source, destination = packet.protocol, packet.source, packet.destination
        protocol = self._ports.get((kind, destination[1])) or self._ports.get((kind, source[1]))
        # Clients repair one another from and to ports of their own.
        if protocol is None and kind == UDP and (source in self._clients or destination in self._clients):
            return Protocol.FYREHOSE
        return protocol

    def _described(self, line: Line, description: Description) -> Line:
        self.counts[line.protocol] += 1
        return Line(line.time, line.source, line.destination, line.protocol, description)

    def _problem(self, line: Line, problem: str) -> Line:
        self.counts["not understood"] += 1
        return Line(line.time, line.source, line.destination, line.protocol, problem=problem)

    # fyrehose

    def _read_fyrehose(self, packet: Transport, line: Line) -> Iterator[Line]:
        try:
            decoded = fyrehose_words.decode_datagram(packet.payload)
        except RemoteError as problem:
            yield self._problem(line, str(problem))
            return
        for each in decoded:
            self._learn(each, packet.source)
            yield self._described(line, fyrehose_words.describe_packet(each, with_data=self._with_data))
            if isinstance(each, Deliver) and self._gaps is not None and packet.destination not in self._unnumbered:
                start = decode_term_start(each.sequence, each.data)
                skipped = range(0) if start is None else start.skipped
                yield from self._note_numbers(line, "fyrehose", packet.destination, each.sequence, skipped)

    def _learn(self, packet: Packet, source: Address) -> None:
        """Learn from a client's packet where it receives, and whether that is the whole stream."""
        if isinstance(packet, Keepalive):
            address = source if packet.address == ANY_ADDRESS else packet.address
            self._clients.add(address)
            self._clients.add(source)
            if packet.flags & (Flags.NOSUBSCRIBE | Flags.HEARS):
                if self._unnumbered.add(address) and self._gaps is not None:
                    self._gaps.forget(StreamKey("fyrehose", address))
            else:
                self._unnumbered.discard(address)
        elif isinstance(packet, Push) and packet.confirm and source not in self._clients:
            self._unnumbered.add(source)

    def _note_numbers(
        self, line: Line, name: str, receiver: Address, number: int, skipped: range = range(0)
    ) -> Iterator[Line]:
        assert self._gaps is not None, "the caller has seen to it"
        stream: NumberedStream = self._gaps.stream(StreamKey(name, receiver))
        notes = [*stream.skip(skipped[0], skipped[-1])] if skipped else []
        for note in (*notes, *stream.add(number)):
            yield Line(line.time, destination=receiver, protocol=name, note=note)

    # Streams

    def _read_segment(self, segment: Transport, protocol: Protocol, line: Line) -> Iterator[Line]:
        other = self._streams.reverse(segment)
        if other is not None:
            back = Line(line.time, line.destination, line.source, line.protocol)
            yield from self._read_parts(other, other.acknowledged(segment.acknowledged), protocol, back)
        stream = self._streams.get(segment, _NEW_DECODER[protocol])
        yield from self._read_parts(stream, stream.add(segment), protocol, line)

    def _read_parts(
        self, stream: TcpStream, parts: list[bytes | Gap], protocol: Protocol, line: Line
    ) -> Iterator[Line]:
        for part in parts:
            if isinstance(part, Gap):
                yield self._problem(line, f"the capture lacks {part.size:,} bytes of the stream")
                stream.resynchronize()
            elif stream.is_encrypted or (
                stream.is_encrypted is None and part[:2] in _TLS_RECORDS and part[2:3] <= b"\x04"
            ):
                stream.is_encrypted = True
                yield self._problem(line, "encrypted with TLS")
            else:
                yield from self._read_stream(stream, part, protocol, line)

    def _read_stream(self, stream: TcpStream, data: bytes, protocol: Protocol, line: Line) -> Iterator[Line]:
        decoder: Any = stream.decoder
        for chunk in (data, b""):  # What is wrong after complete messages is raised by the next call.
            try:
                messages = decoder.feed(chunk)
            except RemoteError as problem:
                yield self._problem(line, str(problem))
                stream.resynchronize()
                return
            for message in messages:
                was_aligned, stream.is_aligned = stream.is_aligned, True
                if not was_aligned and isinstance(message, Malformed):
                    continue  # The line has lost its start.
                stream.is_encrypted = False
                yield from self._describe(message, protocol, line)
                if isinstance(message, SubscribeData) and self._gaps is not None:
                    name = f"freenet {message.key.hex()}"
                    assert line.destination is not None, "a segment has addresses"
                    yield from self._note_numbers(line, name, line.destination, message.packet)

    def _describe(self, message: Any, protocol: Protocol, line: Line) -> Iterator[Line]:
        try:
            yield self._described(line, _DESCRIBE[protocol](message))
        except RemoteError as problem:
            yield self._problem(line, str(problem))

    # The UDP carrier of hydra

    def _read_carrier(self, packet: Transport, line: Line) -> Iterator[Line]:
        try:
            datagram = hydra_words.decode_datagram(packet.payload)
        except RemoteError as problem:
            yield self._problem(line, str(problem))
            return
        there, back = (packet.source, packet.destination), (packet.destination, packet.source)
        if datagram.kind == ACCEPT:
            # The acceptor is addressed by the new id, the dialler by that of its OPEN.
            for key in ((*there, datagram.session), (*back, datagram.accepted)):
                self._session(key).has_mac = datagram.has_mac
                self._session(key).expected = 1
        if datagram.kind not in (DATA, FIN):
            yield self._described(line, hydra_words.describe_datagram(datagram))
            return
        session = self._session((*there, datagram.session))
        if datagram.has_mac is not None:
            session.has_mac = datagram.has_mac
        elif session.has_mac or (session.has_mac is None and _looks_signed(datagram.payload)):
            datagram = datagram._replace(payload=datagram.payload[:-MAC_SIZE], has_mac=True)
        else:
            datagram = datagram._replace(has_mac=False)
        yield self._described(line, hydra_words.describe_datagram(datagram))
        if datagram.sequence and len(datagram.payload) <= MAX_DATAGRAM:
            if self._gaps is not None:
                name = f"hydra session {datagram.session.hex()}"
                yield from self._note_numbers(line, name, packet.destination, datagram.sequence)
            yield from self._read_carried(session, datagram.sequence, datagram.payload, line)

    def _read_carried(self, session: _Session, sequence: int, payload: bytes, line: Line) -> Iterator[Line]:
        if session.expected is None:
            session.expected = sequence
        if not session.expected <= sequence < session.expected + MAX_CARRIER_SEGMENTS:
            if sequence < session.expected:
                return  # Sent again.
            session.expected, session.decoder = sequence, HydraCodec().decoder()
            session.waiting.clear()
        session.waiting.setdefault(sequence, payload)
        while session.expected in session.waiting:
            data = session.waiting.pop(session.expected)
            session.expected += 1
            try:
                for message in session.decoder.feed(data):
                    yield from self._describe(message, Protocol.HYDRA, line)
            except RemoteError as problem:
                yield self._problem(line, str(problem))
                session.decoder = HydraCodec().decoder()

    def _session(self, key: tuple[Address, Address, bytes]) -> _Session:
        session = self._sessions.pop(key, None) or _Session(HydraCodec().decoder())
        self._sessions[key] = session
        if len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session


def _looks_signed(payload: bytes) -> bool:
    """Return whether the end of a payload of lines is more likely a MAC than text."""
    end = payload[-MAC_SIZE:]
    return len(end) == MAC_SIZE and any((byte < 32 and byte not in b"\t\r\n") or byte > 126 for byte in end)


def endpoints(line: Line) -> str:
    """Return ``SOURCE > DESTINATION``."""
    if line.source is None or line.destination is None:
        return ""
    return f"{format_address(line.source)} > {format_address(line.destination)}"
