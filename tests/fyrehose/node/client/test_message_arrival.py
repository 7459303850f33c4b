from __future__ import annotations

from dataclasses import astuple
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import ClientConfig, RepairConfig
from fyrehose_twisted.fyrehose.events import MessagesDelivered
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.node.client.memory_store import MemoryStore
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.packets import Deliver, Forward, Keepalive, KeepaliveAck, Packet

BACKBONE: Address = ("10.0.0.1", 2323)
PEER: Address = ("10.0.0.8", 4000)
OTHER_PEER: Address = ("10.0.0.9", 4000)
START = 1_700_000_000.0
QUICK = RepairConfig(reorder_delay=0.01, first_retry=0.02, last_retry=0.05, attempts=4)
HIGHEST = 70


class Arrival(NamedTuple):
    """DELIVERs of some numbers, in their order, or FORWARDs for them.

    :ivar forged: the DATA is not that of the backbone's message.
    """

    kind: str
    numbers: range
    peer: Address
    forged: bool = False

    def packets(self) -> list[Packet]:
        if self.kind == "forward":
            return [Forward(self.peer, number, number + 1) for number in self.numbers]
        text = b"MESSAGE %3d" if self.forged else b"message %3d"
        return [Deliver(number, text % number) for number in self.numbers]

    @property
    def source(self) -> Address:
        return BACKBONE if self.kind == "forward" else self.peer


numbers = st.builds(
    lambda first, count, step: range(first, first + count * step, step),
    st.integers(1, HIGHEST),
    st.integers(1, 20),
    st.sampled_from([1, 1, 1, 2, 3]),
)
arrivals = st.one_of(
    st.builds(Arrival, st.just("deliver"), numbers, st.just(BACKBONE)),
    st.builds(Arrival, st.just("deliver"), numbers, st.sampled_from([BACKBONE, PEER, OTHER_PEER]), st.booleans()),
    st.builds(Arrival, st.just("forward"), numbers, st.sampled_from([PEER, OTHER_PEER])),
)
steps = st.lists(
    st.tuples(
        st.lists(arrivals, max_size=6),
        st.sampled_from([0.0, 0.001, 0.015, 0.03]),
        st.sampled_from(["", "", "", "pause", "resume"]),
    ),
    max_size=8,
)


def outcome(config: ClientConfig, stream: list[Any], *, at_once: bool, held: range = range(0)) -> list[Any]:
    """Feed the datagrams of each step as one batch, or each as its own; return all that can be observed.

    :param held: numbers that the store holds at the start.
    """
    store, now = MemoryStore(), START
    for number in held:
        store.put(number, [b"stored  %3d" % number])
    client = Client(BACKBONE, config, Random(1), now, store=store)
    seen: list[Any] = []
    delivered: list[Any] = []
    told: list[str] = []  # Drops within a batch are told before its messages are delivered.
    sent: list[Any] = []

    def drain() -> None:
        while True:
            _, effects, events = client.drain()
            for send in effects:
                for datagram in send.iter_datagrams():
                    packet = decode(datagram)
                    sent.extend((packet, peer) for peer in send.peers)
                    if isinstance(packet, Keepalive) and now < START + 0.01:
                        client.receive_batch(Batch.pack([(encode(KeepaliveAck(packet.token)), BACKBONE)]), now)
            for event in events:
                if isinstance(event, MessagesDelivered):
                    delivered.extend(event.messages)
                else:
                    told.append(repr(event))
            if not events:
                return

    client.tick(now)
    drain()
    for arrived, wait, command in stream:
        datagrams = [(encode(packet), each.source) for each in arrived for packet in each.packets()]
        for batch in [datagrams] if at_once else [[datagram] for datagram in datagrams]:
            if batch:
                client.receive_batch(Batch.pack(batch), now)
                drain()
        if command == "pause":
            client.pause()
        elif command == "resume":
            client.resume(now)
        now += wait
        client.tick(now)
        drain()
        held = [(number, store.get(number), store.received_at(number)) for number in store.lowest(1, 2 * HIGHEST, 999)]
        state = (client.next_sequence, client.missing_count, client.buffered_bytes, client.next_deadline())
        answers = sorted(((str(packet), peer) for packet, peer in sent), key=str)
        seen.append(
            (list(delivered), list(told), answers, astuple(client.counters), dict(client.drops.counts), held, state)
        )
        sent.clear()
    return seen


@given(
    stream=steps,
    buffer_bytes=st.sampled_from([700, 3_000, 10**6]),
    journal=st.booleans(),
    held=st.sampled_from([range(0), range(3, 6)]),
)
def test_runs_have_the_results_of_their_single_messages(
    stream: list[Any], buffer_bytes: int, journal: bool, held: range
) -> None:
    config = ClientConfig(start=1, repair=QUICK, buffer_bytes=buffer_bytes, journal=journal)
    singly = outcome(config, stream, at_once=False, held=held)
    for one, other in zip(singly, outcome(config, stream, at_once=True, held=held), strict=True):
        for what, (expected, found) in enumerate(zip(one, other, strict=True)):
            assert found == expected, what


def deliver(*ranges: range, peer: Address = BACKBONE) -> list[Arrival]:
    return [Arrival("deliver", each, peer) for each in ranges]


@pytest.mark.parametrize(
    ("stream", "buffer_bytes"),
    [
        pytest.param(
            [
                (deliver(range(2, 3), range(6, 10)), 0.015, ""),
                (deliver(range(1, 2), range(1, 2), range(4, 6), range(1, 2)), 0.0, ""),
            ],
            700,
            id="repeated",
        ),
        pytest.param(
            [(deliver(range(1, 4, 2)), 0.015, ""), (deliver(range(5, 6), range(2, 3)), 0.0, "")], 10**6, id="repaired"
        ),
    ],
)
def test_gaps_are_scheduled_before_the_measured_round_trip_changes(stream: list[Any], buffer_bytes: int) -> None:
    config = ClientConfig(start=1, repair=QUICK, buffer_bytes=buffer_bytes, journal=False)
    assert outcome(config, stream, at_once=True) == outcome(config, stream, at_once=False)


def test_a_run_from_a_peer_does_not_replace_stored_messages() -> None:
    arrived = [*deliver(range(1, 2), range(9, 10)), *deliver(range(2, 9), peer=PEER)]
    stream = [([], 0.0, ""), (arrived, 0.0, "")]
    config = ClientConfig(start=1, repair=QUICK)
    singly = outcome(config, stream, at_once=False, held=range(3, 6))
    assert outcome(config, stream, at_once=True, held=range(3, 6)) == singly
    stored = singly[-1][5]
    assert [number for number, data, _ in stored if data.startswith(b"stored")] == [3, 4, 5]


def test_backbone_corrects_a_run_that_a_peer_forged() -> None:
    forged = [Arrival("deliver", range(2, 9), PEER, forged=True)]
    stream = [(deliver(range(1, 2), range(9, 10)), 0.015, ""), (forged, 0.0, ""), (deliver(range(2, 9)), 0.0, "")]
    *_, drops, stored, _ = outcome(ClientConfig(start=1, repair=QUICK), stream, at_once=True)[-1]
    assert drops["false_repair"] == 7
    assert [data for _, data, _ in stored] == [b"message %3d" % number for number in range(1, 10)]
