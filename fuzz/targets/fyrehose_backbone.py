"""Backbone node: arbitrary batches never raise, and the amplification is bounded."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from fuzz.choices import Choices, piece
from fuzz.seeds import bytes_of, draw
from fuzz.targets.fyrehose_codec import PACKETS
from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.packets import (
    MAX_DELIVERABLE,
    MAX_SEQUENCE,
    Deliver,
    Dialect,
    Flags,
    Keepalive,
    Push,
)
from fyrehose_twisted.fyrehose.wire.token import make_token

PEERS = [
    ("192.0.2.7", 4001),
    ("192.0.2.8", 4002),
    ("127.0.0.1", 1),
    ("198.51.100.1", 0),
    ("2001:db8::7", 4001),
    ("fe80::1%eth0", 4001),
]
SECRET = b"sixteen bytes and a few"
START = 1_700_000_000.0
LAST = (0, 2**16 - 3, 2**32 - 5, MAX_SEQUENCE - 20)
"""Last assigned numbers, after which byte columns carry over or the numbers are exhausted."""
MAX_CLIENTS = 3
LARGEST_ANSWER = 3 * (MAX_CLIENTS + 1)
"""Maximum bytes sent per byte received: a DELIVER of 9 bytes, to all clients and the sender, for a PUSH of 3."""


def seeds() -> Iterable[bytes]:
    """Return sessions: a configuration byte followed by batches."""
    packets = [encode(packet) for packet in draw(PACKETS)]
    joins = [bytes((peer, 1)) + piece(encode(Keepalive())) for peer in range(3)]
    joins += [bytes((peer, 1)) + piece(encode(Keepalive(flags=Flags.IPV4 | Flags.IPV6))) for peer in (1, 4, 5)]
    proved = [
        bytes((peer, 1)) + piece(encode(Keepalive(PEERS[peer], 0, make_token(SECRET, PEERS[peer], 0, START))))
        for peer in range(2)
    ]
    run = [b"\0\x14" + piece(encode(Push(b"x", dialect))) for dialect in Dialect]
    for setup in range(16):
        yield bytes((setup,)) + b"".join((*proved, *joins, *run, b"\xff\x08", *run))
    for start in range(0, len(packets), 8):
        yield b"\0" + b"".join(joins) + b"".join(bytes((1, 1)) + piece(data) for data in packets[start : start + 8])
    for data in bytes_of("fyrehose"):
        yield b"\0" + joins[0] + b"\0\x01" + piece(data)


def one(data: bytes) -> None:
    """Run the session in ``data``. Each step is a peer, a number of copies and a datagram.

    A step with peer 255 ends a batch, after which time passes.
    """
    choices = Choices(data)
    setup = choices.number()
    last, now = LAST[setup >> 2 & 3], START
    node = Backbone(
        BackboneConfig(max_clients=MAX_CLIENTS, secret=SECRET if setup & 1 else None, trust_addresses=bool(setup & 16)),
        RandomForward(Random(1)),
        BackboneStart(
            last=last,
            bound=last,
            settle_until=START + 1 if setup & 2 else None,
            query_clients=bool(setup & 2),
        ),
        own_address=lambda peer: ("2001:db8::1" if ":" in peer[0] else "192.0.2.1", 2323),
    )
    arrivals: list[tuple[bytes, Address]] = []
    given = sent = 0
    while choices:
        peer, count = choices.number(), choices.number()
        if peer != 255:
            arrivals += [(choices.piece(), PEERS[peer % len(PEERS)])] * (count % 40)
        if peer == 255 or len(arrivals) >= 400 or not choices:
            given += sum(len(datagram) for datagram, _ in arrivals)
            sent += _receive(node, arrivals, now)
            arrivals = []
            now += count / 8
            node.tick(now)
            sent += _receive(node, [], now)
            assert sent <= LARGEST_ANSWER * given, f"{sent:,} bytes for {given:,}"


def _receive(node: Backbone, arrivals: list[tuple[bytes, Address]], now: float) -> int:
    """Pass a batch to the node and return the number of bytes sent."""
    node.receive_batch(Batch.pack(arrivals, truncated=[3] if len(arrivals) == 5 else ()), now)
    persist, effects, events = node.drain()
    assert persist is None or persist.last <= persist.bound <= MAX_SEQUENCE
    sent = 0
    for effect in effects:
        assert len(effect.peers) <= MAX_CLIENTS
        for datagram in effect.iter_datagrams():
            packet = decode(datagram)
            if isinstance(packet, Deliver):
                assert packet.sequence <= node.sequencer.last
                assert len(packet.data) <= MAX_DELIVERABLE
            sent += len(datagram) * len(effect.peers)
    assert len(node.clients) <= MAX_CLIENTS
    assert len(events) <= 2 * len(arrivals) + MAX_CLIENTS + 2
    deadline = node.next_deadline()
    assert deadline is None or deadline < now + 60
    return sent
