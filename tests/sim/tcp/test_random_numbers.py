from __future__ import annotations

from itertools import pairwise
from typing import Any

from sim.tcp.stream_nodes import MakeStreamNetwork

from fyrehose_twisted.effects import Address
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.tcp.route import SplitMix64

NOWHERE: Address = ("192.0.2.1", 1)


def test_stream_random_numbers_are_uniform() -> None:
    dice = SplitMix64("seed")
    numbers = [dice.random() for _ in range(20_000)]
    assert all(0.0 <= number < 1.0 for number in numbers)
    for tenth in range(10):
        assert 1_800 < sum(tenth / 10 <= number < (tenth + 1) / 10 for number in numbers) < 2_200
    follows = sum(one < other for one, other in pairwise(numbers))
    assert 9_700 < follows < 10_300
    assert 1.9 < sum(dice.expovariate(0.5) for _ in range(20_000)) / 20_000 < 2.1
    whole = [dice.randrange(3, 7) for _ in range(4_000)]
    assert sorted(set(whole)) == [3, 4, 5, 6]
    assert min(whole.count(number) for number in range(3, 7)) > 900


def test_each_seed_has_its_own_stream_random_numbers() -> None:
    assert [SplitMix64("a").random() for _ in range(2)] == [SplitMix64("a").random()] * 2
    assert SplitMix64("a").random() != SplitMix64("b").random()


def test_each_direction_has_its_own_stream_random_numbers(stream_network: MakeStreamNetwork) -> None:
    firsts = []
    for seed in (1, 2):
        network = stream_network("a", "b", "c", seed=seed)
        one, *others = network.hosts.values()
        ways = [(one, other.address) for other in others] + [(other, one.address) for other in others]
        firsts += [network.network.streams.route_rng(source, to).random() for source, to in ways]
    assert len(set(firsts)) == 8


def test_segment_losses_of_a_pair_do_not_depend_on_other_traffic(stream_network: MakeStreamNetwork) -> None:
    def run(*others: str) -> list[Any]:
        network = stream_network("a", "b", *others, link=Link(jitter=0.1, loss=0.3, tail=0.1))
        for name in ("a", *others):
            network.link(name, "b")
        for number in range(50):
            network.write("a", "b", number)
            for name in others:
                network.write(name, "b", f"{name} {number}")
            network.network.run(0.1)
        network.run_until(60)
        return [entry for entry in network["b"].told("got") if isinstance(entry[2], int)]

    assert run() == run("c", "d")
