"""Let a few nodes lie while all others swap locations, and measure what becomes of the network.

    $ python examples/swapping_attack.py
    attackers  clustered  largest share  one root
    ...

``clustered`` is the share of the nodes near the point that the attackers chose, ``largest share`` that of all keys of
which one node is the nearest, and ``one root`` the share of the requests for a key, from 20 nodes, that end at the same
node.

The links are those of a small world, whose nodes have lost their locations and find new ones by swapping. An attacker
claims a location near a point of its choice, and neighbours that make every swap look good. Its partner takes that
location along; the attacker claims the next one.
"""

from __future__ import annotations

import argparse
from collections import Counter
from math import log
from random import Random

import numpy as np
from numpy.random import PCG64, Generator

from fyrehose_twisted.experiments import Topology
from fyrehose_twisted.experiments.topologies.location_swapping import WALK_LENGTH, draw_attempts
from fyrehose_twisted.experiments.topologies.request_routing import route_requests
from fyrehose_twisted.freenet.wire.location import distance

POINT = 0.3
"""Location around which the attackers gather the others."""
WIDTH = 0.01
"""Distance from the point within which a node counts as clustered."""


def swap(topology: Topology, attackers: set[int], rounds: int, reset: float, seed: int) -> list[float]:
    """Return the locations after some rounds, in each of which there are as many attempts as nodes.

    :param reset: probability that a node draws a new location instead of attempting a swap.
    """
    rng, walks = Random(seed), Generator(PCG64(seed))
    places = topology.locations.tolist()
    neighbours = [topology.neighbours(node).tolist() for node in range(topology.n)]

    def length(node: int, place: float, partner: int) -> float:
        return sum(log(max(distance(place, places[one]), 1e-12)) for one in neighbours[node] if one != partner)

    for _ in range(rounds):
        attempts = draw_attempts(topology.indptr, topology.indices, walks, walk=WALK_LENGTH, reset=reset)
        for one, other, chance in zip(*(column.tolist() for column in attempts), strict=True):
            if other < 0:
                places[one] = chance
            elif attackers.isdisjoint((one, other)):
                before = length(one, places[one], other) + length(other, places[other], one)
                after = length(one, places[other], other) + length(other, places[one], one)
                if after < before or log(max(chance, 1e-300)) < before - after:
                    places[one], places[other] = places[other], places[one]
            elif not attackers.issuperset((one, other)):
                attacker, victim = (one, other) if one in attackers else (other, one)
                # The location that the victim gives away is lost: the attacker claims another one at once.
                places[victim] = (POINT + (rng.random() - 0.5) * WIDTH) % 1.0
                places[attacker] = (POINT + (rng.random() - 0.5) * WIDTH) % 1.0
    return places


def largest_share(topology: Topology) -> float:
    """Return the largest share of the ring to whose locations one node is the nearest."""
    ordered = np.sort(topology.locations)
    gaps = np.diff(ordered, append=ordered[0] + 1.0)
    return float(((gaps + np.roll(gaps, 1)) / 2).max())


def agreement(topology: Topology, seed: int, keys: int = 50, sources: int = 20) -> float:
    """Return the mean share of the requests for a key that end at its most common root."""
    rng = Generator(PCG64(seed))
    places = np.repeat(rng.random(keys), sources)
    found = route_requests(topology, rng.integers(0, topology.n, len(places)), places, seed=seed).end
    return float(
        np.mean([Counter(ends.tolist()).most_common(1)[0][1] for ends in found.reshape(keys, sources)]) / sources
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--attackers", type=int, nargs="*", default=[0, 2, 8])
    parser.add_argument("--reset", type=float, default=0.0, help="probability of a new location in place of an attempt")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    links = Topology.kleinberg(options.nodes, 10, options.seed)
    places = Topology.random(options.nodes, 0, options.seed + 1).locations
    # The links are known, and the locations that suited them are not.
    network = Topology.from_edges(links.edges(), places, n=options.nodes)
    print("attackers  clustered  largest share  one root")
    for count in options.attackers:
        found = swap(network, set(range(count)), options.rounds, options.reset, options.seed)
        after = Topology.from_edges(network.edges(), found, n=options.nodes)
        clustered = np.mean([distance(place, POINT) <= WIDTH for place in found])
        share, agreed = largest_share(after), agreement(after, options.seed)
        print(f"{count:9}  {clustered:9.0%}  {share:13.1%}  {agreed:8.0%}", flush=True)


if __name__ == "__main__":
    main()
