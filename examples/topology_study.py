"""Grow networks by three link policies, and compare their links and routes.

    $ python examples/topology_study.py 300
      nodes  policy       degree  length  <0.1  >0.3  nearest  clustering  path  routed  hops
        300  density        19.8  0.0203   ...

The arguments are the numbers of nodes, 300 and 3,000 by default. ``--replicas`` networks are grown by each policy; the
means are followed by half the width of their 95 % confidence intervals.
"""

from __future__ import annotations

import argparse
from math import nan

from fyrehose_twisted.experiments.growth.growing_network import GrowingNetwork
from fyrehose_twisted.experiments.growth.link_policies import LINK_POLICIES
from fyrehose_twisted.experiments.measures.link_shapes import LinkShape, measure_links, published_hop_limit
from fyrehose_twisted.experiments.sweep.interval import confidence_interval

MEASURES = ("degree", "length", "<0.1", ">0.3", "nearest", "clustering", "path", "routed", "hops")


def limits(nodes: int) -> tuple[int, int]:
    """Return the minimum and maximum of links in the published study."""
    return (10, 20) if nodes <= 3_000 else (15, 30)


def values(shape: LinkShape, nodes: int) -> tuple[float, ...]:
    """Return the measures of one network."""
    routed = shape.greedy.within[published_hop_limit(nodes)].value
    return (
        shape.degree_mean,
        shape.length_mean,
        shape.short,
        shape.long,
        shape.nearest,
        shape.clustering,
        shape.path_mean,
        routed,
        shape.greedy.hops.value,
    )


def mean(numbers: tuple[float, ...]) -> str:
    """Return the mean of the numbers that there are, with half the width of its interval."""
    found = confidence_interval([number for number in numbers if number == number] or [nan])
    return f"{found.mean:.3g}" + ("" if found.high is None else f"±{found.high - found.mean:.1g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nodes", nargs="*", type=int, default=[300, 3_000])
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--rounds", type=int, help="rounds after which links are measured [500, or 1,000 above 1,000]")
    parser.add_argument("--joins", type=int, help="nodes that join before each round [all before the first]")
    parser.add_argument("--policy", choices=sorted(LINK_POLICIES), action="append")
    options = parser.parse_args()
    print(f"{'nodes':>7}  {'policy':11}" + "".join(f"  {name:>12}" for name in MEASURES))
    for nodes in options.nodes:
        rounds = options.rounds if options.rounds is not None else 500 if nodes <= 1_000 else 1_000
        for name in options.policy or sorted(LINK_POLICIES):
            found = []
            for seed in range(1, options.replicas + 1):
                network = GrowingNetwork(LINK_POLICIES[name](*limits(nodes)), seed)
                network.grow(nodes, rounds, joins_per_round=options.joins)
                found.append(values(measure_links(network.topology(), 2_000, seed), nodes))
            columns = [
                tuple(value for value in column if value == value) or (nan,) for column in zip(*found, strict=True)
            ]
            print(f"{nodes:7,}  {name:11}" + "".join(f"  {mean(column):>12}" for column in columns), flush=True)


if __name__ == "__main__":
    main()
