"""Client node: arbitrary datagrams of any host never raise, and memory is bounded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from random import Random

from fuzz.choices import Choices, piece
from fuzz.seeds import bytes_of, draw
from fuzz.targets.fyrehose_codec import PACKETS
from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import PublishQueueFull
from fyrehose_twisted.fyrehose.config import ClientConfig, Start
from fyrehose_twisted.fyrehose.events import MessagesDelivered, MessagesLost, NumbersSkipped
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.envelope import wrap
from fyrehose_twisted.fyrehose.wire.packets import Deliver, Forward, KeepaliveAck, Leader
from fyrehose_twisted.fyrehose.wire.term_start import TermStart, encode_term_start

BACKBONE = ("192.0.2.1", 2323)
PEERS = [BACKBONE, ("192.0.2.8", 4002), ("198.51.100.1", 0)]
START = 1_700_000_000.0
BUFFER = 8_192
REPORT, START_TERM, ACKNOWLEDGE, PUBLISH, PAUSE, RESUME, WAIT = range(249, 256)
"""Actions that may take the place of a peer."""


def seeds() -> Iterable[bytes]:
    """Return sessions: a configuration byte followed by actions and datagrams."""
    packets = [encode(packet) for packet in draw(PACKETS)]
    joined = bytes((ACKNOWLEDGE, 0))
    for setup in range(8):
        stream = [
            bytes((0, 1)) + piece(encode(Deliver(number, wrap(b"publishr", number, b"x")))) + bytes((WAIT, 1))
            for number in (5, 6, 7, 9, 12, 8, 10, 11, 40, 13)
        ]
        asked = bytes((0, 1)) + piece(encode(Forward(PEERS[1], 5, 9)))
        yield bytes((setup,)) + joined + b"".join(stream) + asked + bytes((PUBLISH, 3, WAIT, 20, PAUSE, 0)) + stream[0]
        following = bytes((REPORT, 7)) + stream[3] + bytes((REPORT, 11, START_TERM, 8)) + stream[4] + bytes((WAIT, 9))
        again = bytes((REPORT, 14, START_TERM, 77, WAIT, 90, REPORT, 18))
        yield bytes((setup | 32,)) + joined + b"".join(stream) + following + again + bytes((PUBLISH, 3, REPORT, 23))
    for start in range(0, len(packets), 8):
        yield b"\0" + joined + b"".join(bytes((0, 1)) + piece(data) for data in packets[start : start + 8])
    for data in bytes_of("fyrehose"):
        yield b"\0" + joined + b"\0\x14" + piece(data)


def one(data: bytes) -> None:
    """Run the session in ``data``. Each step is a peer or an action, a number and optionally a datagram."""
    choices = Choices(data)
    setup, now = choices.number(), START
    config = ClientConfig(
        start=(Start.LIVE, Start.OLDEST, 5)[setup % 3],
        raw=bool(setup & 4),
        subscribe=not setup & 64,
        history_bytes=BUFFER,
        buffer_bytes=BUFFER,
    )
    node = Client(PEERS[:2] if setup & 32 else BACKBONE, config, Random(1), START)
    following = 0
    node.tick(now)
    tokens = [b""]
    while choices:
        kind, count = choices.number(), choices.number()
        arrivals: list[tuple[bytes, tuple[str, int]]] = []
        if kind == ACKNOWLEDGE:
            arrivals = [(encode(KeepaliveAck(tokens[-1])), PEERS[count % 2])]
        elif kind in (REPORT, START_TERM):
            arrivals = _takeover(kind, count, tokens[-1] or bytes(16))
        elif kind == PUBLISH:
            with contextlib.suppress(PublishQueueFull):
                node.publish(bytes(count), now)
        elif kind == PAUSE:
            node.pause()
        elif kind == RESUME:
            node.resume(now)
        elif kind == WAIT:
            now += count / 8
            node.tick(now)
        else:
            arrivals = [(choices.piece(), PEERS[kind % len(PEERS)])] * (count % 40)
        node.receive_batch(Batch.pack(arrivals), now)
        sent = 0
        while True:
            _, effects, events = node.drain()
            for effect in effects:
                for datagram in effect.iter_datagrams():
                    packet = decode(datagram)
                    sent += len(datagram)
                    tokens += [packet.token] if hasattr(packet, "token") else []
            for event in events:
                following = _check_order(event, following)
            if not events:
                break
        assert node.buffered_bytes <= BUFFER + 65_535
        assert sent <= 300_000, f"{sent:,} bytes were sent at once"
        deadline = node.next_deadline()
        assert deadline is None or deadline < now + 600


def _takeover(kind: int, count: int, token: bytes) -> list[tuple[bytes, Address]]:
    """Return a LEADER of a backbone, or the first message of a term."""
    peer, term = PEERS[count % 2], 1 + count // 4 % 8
    if kind == REPORT:
        leader = peer if count & 2 else PEERS[count // 32 % 3]
        return [(encode(Leader(token, term, leader, count & 3 == 3, (*PEERS[:2], ("192.0.2.9", 9)))), peer)]
    first = 4 + 30 * term
    return [(encode(Deliver(first, encode_term_start(TermStart(term, first - 1 - count // 16, first)))), peer)]


def _check_order(event: object, following: int) -> int:
    """Check the order of an event and return the lowest number that may follow."""
    if isinstance(event, (MessagesLost, NumbersSkipped)):
        assert following <= event.first <= event.last
        return event.last + 1
    if isinstance(event, MessagesDelivered):
        for number in [message.sequence for message in event.messages]:
            assert number >= following, f"{number} comes behind {following - 1}"
            following = number + 1
    return following
