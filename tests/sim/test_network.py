from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.interfaces import Drained, IDatagramNode
from fyrehose_twisted.net.batch import Batch
from fyrehose_twisted.sim.network import Host, Link, Network

ALICE: Address = ("10.0.0.1", 1)
BOB: Address = ("10.0.0.2", 2)
CAROL: Address = ("10.0.0.3", 3)

Arrival = tuple[float, list[tuple[bytes, Address]]]


@implementer(IDatagramNode)
class Recorder:
    """Keeps what it receives, and wants a tick when told so."""

    def __init__(self, deadline: float | None = None) -> None:
        self.arrivals: list[Arrival] = []
        self.ticks: list[float] = []
        self.deadline = deadline
        self.wanted = Drained(None, [], [])

    def receive_batch(self, batch: Batch, now: float) -> None:
        self.arrivals.append((now, [(bytes(datagram), peer) for datagram, peer, _ in batch]))

    def tick(self, now: float) -> None:
        self.ticks.append(now)
        self.deadline = None

    def next_deadline(self) -> float | None:
        return self.deadline

    def drain(self) -> Drained:
        wanted, self.wanted = self.wanted, Drained(None, [], [])
        return wanted

    @property
    def datagrams(self) -> list[bytes]:
        return [datagram for _, batch in self.arrivals for datagram, _ in batch]


class Spinning(Recorder):
    """Wants to be ticked as soon as it was ticked."""

    def tick(self, now: float) -> None:
        self.deadline = now


@pytest.fixture
def pair() -> Callable[..., tuple[Network, Recorder]]:
    def make(seed: int = 1, link: Link | None = None, **options: Any) -> tuple[Network, Recorder]:
        network, bob = Network(seed, link, **options), Recorder()
        network.add(ALICE, Recorder())
        network.add(BOB, bob)
        return network, bob

    return make


Pair = Callable[..., tuple[Network, Recorder]]


def numbered(count: int) -> Send:
    return Send([b"%d" % number for number in range(count)], (BOB,))


def test_the_recorder_is_a_node() -> None:
    assert verifyObject(IDatagramNode, Recorder())


def test_one_seed_is_one_run_and_another_is_another(pair: Pair) -> None:
    def run(seed: int) -> list[Arrival]:
        network, bob = pair(seed, Link(loss=0.1, duplication=0.1, jitter=0.1), moment=0.01, split=0.3)
        network.send(ALICE, numbered(300))
        network.run(1)
        return bob.arrivals

    assert run(1) == run(1) != run(2)


def test_datagrams_are_lost_and_duplicated_as_often_as_the_link_says(pair: Pair) -> None:
    network, bob = pair(5, Link(loss=0.2, duplication=0.1))
    network.send(ALICE, numbered(10_000))
    network.run(1)
    counts = network.counts
    assert counts["sent"] == 10_000
    assert 1_850 < counts["lost"] < 2_150
    assert 700 < counts["duplicated"] < 900  # of those that were not lost
    assert counts["delivered"] == len(bob.datagrams) == 10_000 - counts["lost"] + counts["duplicated"]
    assert len(set(bob.datagrams)) == 10_000 - counts["lost"]


def test_a_perfect_link_keeps_order_and_takes_its_delay(pair: Pair) -> None:
    network, bob = pair(link=Link(delay=0.25), start=100.0)
    network.send(ALICE, numbered(50))
    network.run(1)
    assert bob.arrivals == [(100.25, [(b"%d" % number, ALICE) for number in range(50)])]


def test_jitter_lets_datagrams_overtake_within_its_bound(pair: Pair) -> None:
    network, bob = pair(link=Link(delay=0.25, jitter=0.5), start=100.0)
    network.send(ALICE, numbered(100))
    network.run(1)
    assert sorted(bob.datagrams) == sorted(numbered(100).datagrams) != bob.datagrams
    assert all(100.25 <= when <= 100.75 for when, _ in bob.arrivals)


def test_what_arrives_in_one_moment_is_one_batch_in_order_of_arrival(pair: Pair) -> None:
    network, bob = pair(link=Link(delay=0.0, jitter=0.1), start=100.0, moment=0.05)
    apart, together = Recorder(), bob
    network.send(ALICE, numbered(200))
    network.run(1)
    assert len(together.arrivals) <= 3
    assert all(round(when / 0.05) * 0.05 == pytest.approx(when) for when, _ in together.arrivals)
    network = Network(1, Link(delay=0.0, jitter=0.1), start=100.0)
    network.add(ALICE, Recorder())
    network.add(BOB, apart)
    network.send(ALICE, numbered(200))
    network.run(1)
    assert len(apart.arrivals) == 200
    assert together.datagrams == apart.datagrams


def test_split_cuts_batches_and_loses_nothing(pair: Pair) -> None:
    network, bob = pair(split=0.2)
    network.send(ALICE, numbered(500))
    network.run(1)
    assert bob.datagrams == numbered(500).datagrams
    assert 60 < len(bob.arrivals) < 140
    assert network.counts["batches"] == len(bob.arrivals)


def test_a_link_of_its_own_has_one_direction(pair: Pair) -> None:
    network, bob = pair()
    network.links[ALICE, BOB] = Link(loss=1.0)
    network.send(ALICE, numbered(5))
    network.send(CAROL, numbered(5))
    network.run(1)
    assert [peer for _, batch in bob.arrivals for _, peer in batch] == [CAROL] * 5


def test_what_is_sent_was_copied(pair: Pair) -> None:
    network, bob = pair()
    buffer = bytearray(b"before")
    network.send(ALICE, Send([memoryview(buffer)], (BOB,)))
    buffer[:] = b"after!"
    network.run(1)
    assert bob.datagrams == [b"before"]


def test_on_send_sees_what_is_lost_too(pair: Pair) -> None:
    network, _ = pair(link=Link(loss=1.0))
    seen: list[tuple[Address, Send]] = []
    network.on_send = lambda source, effect: seen.append((source, effect))
    network.send(ALICE, numbered(1))
    assert seen == [(ALICE, numbered(1))]


class TestHost:
    def host(self, network: Network, node: Recorder) -> Host:
        return network.add(CAROL, node)

    def test_it_persists_then_sends_then_tells(self) -> None:
        network, bob = Network(1), Recorder()
        network.add(BOB, bob)
        host = self.host(network, Recorder())
        order: list[str] = []
        network.on_send = lambda source, effect: order.append(f"send after {host.persisted}")
        host.on_event = order.append
        host.node.wanted = Drained("mark", [numbered(1)], ["event"])  # type: ignore[attr-defined]
        host.flush()
        assert order == ["send after ['mark']", "event"]

    def test_it_ticks_when_the_node_wants_it(self) -> None:
        network = Network(1, start=100.0)
        node = Recorder(deadline=101.5)
        self.host(network, node)
        network.run(1)
        assert node.ticks == []
        network.run(1)
        assert node.ticks == [101.5]

    def test_a_deadline_in_the_past_is_now(self) -> None:
        network = Network(1, start=100.0)
        node = Recorder(deadline=50.0)
        self.host(network, node)
        network.run(1)
        assert node.ticks == [100.0]

    def test_an_earlier_deadline_takes_the_place_of_a_later_one(self) -> None:
        network = Network(1, start=100.0)
        node = Recorder(deadline=105.0)
        host = self.host(network, node)
        node.deadline = 102.0
        host.flush()
        network.run(10)
        assert node.ticks == [102.0]

    def test_down_it_neither_receives_nor_sends_nor_ticks(self, pair: Pair) -> None:
        network, bob = pair(start=100.0)
        bob.deadline = 101.0
        host = network.hosts[BOB]
        host.flush()
        host.stop()
        bob.wanted = Drained(None, [Send([b"x"], (ALICE,))], [])
        host.flush()
        network.send(ALICE, numbered(3))
        network.run(5)
        assert bob.arrivals == []
        assert bob.ticks == []
        assert network.counts["unreachable"] == 3
        assert network.counts["sent"] == 3

    def test_restarted_it_runs_another_node_and_remembers_what_it_persisted(self, pair: Pair) -> None:
        network, bob = pair(start=100.0)
        host = network.hosts[BOB]
        bob.wanted = Drained("mark", [], [])
        bob.deadline = 102.0
        host.flush()
        host.stop()
        network.run(1)
        another = Recorder(deadline=103.0)
        host.restart(another)
        network.send(ALICE, numbered(1))
        network.run(5)
        assert host.persisted == ["mark"]
        assert (another.ticks, len(another.arrivals)) == ([103.0], 1)
        assert bob.ticks == []

    def test_restarted_without_a_node_it_goes_on_with_its_own(self, pair: Pair) -> None:
        network, bob = pair(start=100.0)
        host = network.hosts[BOB]
        bob.deadline = 102.0
        host.flush()
        host.stop()
        network.run(5)
        host.restart()
        network.run(1)
        assert bob.ticks == [105.0]

    def test_a_node_that_ticks_without_end_is_an_error(self) -> None:
        network = Network(1)
        self.host(network, Spinning(deadline=0.0))
        with pytest.raises(RuntimeError, match=r"Spinning.* ticks at .* without end"):
            network.run(1)
