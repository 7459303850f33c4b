"""Clients of several backbones agree on the stream across takeovers, on a network that loses, delays and repeats."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from random import Random

import pytest

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import MessagesDelivered, MessagesLost, NumbersSkipped
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.packets import (
    Deliver,
    Forward,
    Head,
    Keepalive,
    KeepaliveAck,
    Leader,
    Packet,
    Request,
    Status,
)
from fyrehose_twisted.fyrehose.wire.term_start import TermStart, encode_term_start

MEMBERS: tuple[Address, ...] = (("10.0.0.1", 2323), ("10.0.0.2", 2323), ("10.0.0.3", 2323))
CLIENTS: tuple[Address, ...] = (("10.0.1.1", 4000), ("10.0.1.2", 4000), ("10.0.1.3", 4000), ("10.0.1.4", 4000))
START = 1_700_000_000.0
STEP, ASK_INTERVAL = 0.004, 0.03


class Site:
    """Four clients, and three members of which one at a time numbers messages."""

    def __init__(self, seed: int, loss: float) -> None:
        self.rng = Random(seed)
        self.loss, self.delay = loss, 0.0
        self.now = START
        self.order = count()
        self.calls: list[tuple[float, int, Callable[[], None]]] = []
        self.clients = {address: Client(MEMBERS, ClientConfig(start=1), self.rng, START) for address in CLIENTS}
        self.tokens: dict[tuple[Address, Address], bytes] = {}
        self.leader, self.term, self.bound, self.last = MEMBERS[0], 1, 0, 0
        self.is_numbering = True
        self.heads: dict[Address, int] = {}
        self.memory: dict[int, bytes] = {}
        self.sent: dict[int, bytes] = {}
        self.delivered: dict[Address, dict[int, bytes]] = {address: {} for address in CLIENTS}
        self.skipped: dict[Address, set[int]] = {address: set() for address in CLIENTS}
        self.lost: set[int] = set()
        self.ticks: dict[Address, float] = {}
        for address in CLIENTS:
            self.drain(address)

    def call(self, delay: float, function: Callable[[], None]) -> None:
        heapq.heappush(self.calls, (self.now + delay, next(self.order), function))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.calls and self.calls[0][0] <= end:
            self.now, _, function = heapq.heappop(self.calls)
            function()
        self.now = end

    def send(self, packet: Packet, source: Address, target: Address) -> None:
        receive = self.client_received if target in self.clients else self.member_received
        for _ in range(1 + (self.rng.random() < 0.02)):
            if self.rng.random() >= self.loss:
                delay = self.delay + self.rng.choice((0.0005, 0.001, 0.001, 0.002, 0.04))
                self.call(delay, lambda: receive(encode(packet), source, target))

    # Clients

    def client_received(self, datagram: bytes, source: Address, target: Address) -> None:
        self.clients[target].receive_batch(Batch.pack([(datagram, source)]), self.now)
        self.drain(target)

    def tick(self, address: Address) -> None:
        if self.ticks.get(address) == self.now:
            self.clients[address].tick(self.now)
            self.drain(address)

    def drain(self, address: Address) -> None:
        client, drained = self.clients[address], True
        while drained:
            _, effects, events = client.drain()
            for effect in effects:
                for datagram in effect.iter_datagrams():
                    for peer in effect.peers:
                        self.send(decode(datagram), address, peer)
            for event in events:
                self.record(address, event)
            drained = bool(events)
        deadline = client.next_deadline()
        assert deadline is not None
        self.ticks[address] = max(deadline, self.now)
        heapq.heappush(self.calls, (self.ticks[address], next(self.order), lambda: self.tick(address)))

    def record(self, address: Address, event: object) -> None:
        delivered = self.delivered[address]
        if isinstance(event, MessagesDelivered):
            for message in event.messages:
                assert message.sequence > max(delivered, default=0)
                delivered[message.sequence] = message.payload
        elif isinstance(event, NumbersSkipped):
            self.skipped[address].update(range(event.first, event.last + 1))
        elif isinstance(event, MessagesLost):
            self.lost.update(range(event.first, event.last + 1))

    # Members

    def member_received(self, datagram: bytes, source: Address, target: Address) -> None:
        packet = decode(datagram)
        if isinstance(packet, Keepalive):
            self.tokens[target, source] = packet.token
            if target == self.leader and self.is_numbering:
                self.send(Status(packet.token, 0, self.last), target, source)
            self.send(Leader(packet.token, self.term, self.leader, False, MEMBERS), target, source)
            if target == self.leader:
                self.send(KeepaliveAck(packet.token), target, source)
        elif target == self.leader and isinstance(packet, Head) and packet.term == self.term:
            if packet.token == self.tokens.get((target, source)):
                self.heads[source] = max(packet.highest, self.heads.get(source, 0))
        elif target == self.leader and isinstance(packet, Request):
            held = [number for number in self.memory if packet.first <= number <= packet.last][:1_024]
            for number in held:
                self.send(Deliver(number, self.memory[number]), target, source)
            if not held or held[0] > packet.first:
                for other in self.rng.sample(CLIENTS, 2):
                    if other != source:
                        self.send(Forward(source, packet.first, packet.last), target, other)

    def publish(self, messages: int) -> None:
        for _ in range(messages):
            self.number(b"%d of term %d" % (self.last + 1, self.term))
            self.run(STEP)

    def number(self, data: bytes) -> None:
        self.last += 1
        assert self.last not in self.sent, "a number was assigned twice"
        self.bound = max(self.bound, self.last + self.rng.choice((3, 40, 3_000)))
        self.sent[self.last] = self.memory[self.last] = data
        for address in CLIENTS:
            self.send(Deliver(self.last, data), self.leader, address)

    def take_over(self, leader: Address) -> None:
        # Clients cannot tell the late messages of a member that leads again from its new ones, so it counts its own.
        own = self.last if leader == self.leader else 0
        self.leader, self.term, self.is_numbering = leader, self.term + 1, False
        self.heads = {}
        self.memory = self.memory if own else {}
        for _ in range(100):
            for address in [one for one in CLIENTS if one not in self.heads]:
                token = self.tokens.get((leader, address))
                if token is not None:
                    self.send(Leader(token, self.term, leader, True, MEMBERS), leader, address)
            self.run(ASK_INTERVAL)
            if len(self.heads) == len(CLIENTS):
                break
        else:
            raise AssertionError("a client does not answer")
        held = max(own, *self.heads.values())
        assert held <= self.bound
        self.last, self.is_numbering = self.bound, True
        self.number(encode_term_start(TermStart(self.term, held, self.bound + 1)))


@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(12))
def test_clients_agree_on_the_stream_across_takeovers(seed: int, loss: float) -> None:
    site = Site(seed, loss)
    site.run(2.0)
    for _ in range(4):
        site.publish(site.rng.randint(0, 40))
        site.delay = site.rng.choice((0.0, 0.05))  # The last messages of the former leader arrive after the HEADs.
        site.publish(site.rng.randint(0, 3))
        site.delay = 0.0
        site.take_over(site.rng.choice(MEMBERS))
    site.publish(20)
    site.run(20.0)
    ends = {client.next_sequence for client in site.clients.values()}
    assert ends == {site.last + 1}
    first = site.delivered[CLIENTS[0]]
    assert all(delivered == first for delivered in site.delivered.values())
    assert all(site.sent[number] == data for number, data in first.items())
    starts = {number for number, data in site.sent.items() if data.startswith(b"\xf7FY\x02")}
    skipped = set.union(*site.skipped.values())
    assert not skipped & set(first)
    assert not starts & set(first)
    assert not (skipped | set(first)) & site.lost  # No client received it.
    assert site.lost | skipped | set(first) | starts == set(range(1, site.last + 1))
