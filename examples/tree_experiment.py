"""Comparison of two policies on the same networks: the value of telling a resubscriber the location of the root.

    python examples/tree_experiment.py
    python examples/tree_experiment.py --runs 20 --kill 0.1 --page heal.html

In each network some nodes subscribe, then a share of all nodes dies at once, and the trees heal. Document 003 lets a
node accept a resubscriber if its own location is nearer to the key. With one more number in an answer, the location of
the root is compared instead. For either rule this prints the number of trees after the repair, and the share of the
subscribers in the largest one.
"""

from __future__ import annotations

import argparse
from random import Random
from statistics import mean

from fyrehose_twisted.experiments import Policy, Topology, TreeExperiment
from fyrehose_twisted.experiments.report.page import write_page
from fyrehose_twisted.experiments.report.trace_replay import Recording

KEYS = 5
SUBSCRIBERS = 50
TRACE = "heal.jsonl"
# Seconds that are never reached: disables probes of roots, which would merge trees later.
LATER = 1e6


def heal(policy: Policy, options: argparse.Namespace, seed: int, trace: str | None = None) -> dict[str, float]:
    """Return the metrics of a network whose trees have healed."""
    rng = Random(seed)
    experiment = TreeExperiment(Topology.kleinberg(options.nodes, options.degree, seed), policy, seed=seed)
    if trace is not None:
        experiment.trace(trace)
    for key in [rng.randbytes(20) for _ in range(KEYS)]:
        for node in rng.sample(range(options.nodes), SUBSCRIBERS):
            experiment.subscribe(node, key)
            experiment.run("quiet")
    for node in rng.sample(range(options.nodes), round(options.kill * options.nodes)):
        experiment.kill(node)
    experiment.run("quiet")
    experiment.check()
    return experiment.metrics()


def compare(options: argparse.Namespace) -> dict[str, float]:
    """Print a line for each rule, and return the share of the subscribers in the largest tree by rule."""
    shares = {}
    print(f"{'compared location':21} {'roots per key':>13} {'in one tree':>12} {'requests each':>14}")
    for accept in ("root", "own"):
        policy = Policy(accept=accept, first_probe=LATER, restart_interval=LATER)
        results = [heal(policy, options, seed) for seed in range(options.runs)]
        names = "roots_per_key", "reach", "repair_requests"
        roots, shares[accept], requests = (mean(metrics[name] for metrics in results) for name in names)
        print(f"location of its {accept:5} {roots:13.2f} {100 * shares[accept]:10.1f} % {requests:14.1f}", flush=True)
    return shares


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(
        description="Compare two rules for healing trees. It takes some seconds, or minutes with --nodes 10000.",
    )
    parser.add_argument("--nodes", type=int, default=1_000, help="nodes per network [%(default)s]")
    parser.add_argument("--degree", type=float, default=10.0, help="links per node [%(default)g]")
    parser.add_argument("--kill", type=float, default=0.3, help="share of the nodes that die [%(default)g]")
    parser.add_argument("--runs", type=int, default=5, help="networks per rule [%(default)s]")
    parser.add_argument("--page", metavar="FILE", help="also write a page that shows how one tree heals")
    options = parser.parse_args()
    print(f"{options.runs} networks of {options.nodes:,} nodes, {100 * options.kill:g} % die, {KEYS} streams in each\n")
    shares = compare(options)
    if options.page:
        heal(Policy(), options, 0, TRACE)
        with open(TRACE, encoding="utf-8") as trace, open(options.page, "w", encoding="utf-8") as page:
            recording = Recording.read(trace)
            write_page(recording, next(iter(recording.streams)), page)
        print(f"\n{options.page} replays how one of them heals; {TRACE} is its trace")
    gained = 100 * (shares["root"] - shares["own"])
    print(
        f"\nWith the root's location {gained:+.1f} % of the subscribers are in the largest tree; all trees are valid."
    )


if __name__ == "__main__":
    main()
