"""Is it worth while to tell a resubscriber where the root is? An experiment: two policies, the same networks.

    python examples/tree_experiment.py
    python examples/tree_experiment.py --runs 20 --kill 0.1 --page heal.html

In each network some nodes subscribe, then a share of all nodes dies at once, and the trees heal. Document 003 lets a
node take a resubscriber in if its own location is nearer to the key; with one number more in an answer, that of the
root counts instead. For either rule this prints how many trees there are after that, and how many subscribers the
largest one has.
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
# Whoever lost a parent looks for one within a second; roots look for one another much later.
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
    """Print a line for each rule, and return which share of the subscribers is in the largest tree."""
    shares = {}
    print(f"{'what has to be nearer':21} {'roots a key':>12} {'in one tree':>12} {'requests each':>14}")
    for accept in ("root", "own"):
        policy = Policy(accept=accept, first_probe=LATER, restart_interval=LATER)
        found = [heal(policy, options, seed) for seed in range(options.runs)]
        names = "roots_per_key", "reach", "repair_requests"
        roots, shares[accept], requests = (mean(one[name] for one in found) for name in names)
        print(f"location of its {accept:5} {roots:12.2f} {100 * shares[accept]:10.1f} % {requests:14.1f}", flush=True)
    return shares


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description="Compare two rules by which trees heal. It takes some seconds, and minutes with --nodes 10000.",
    )
    parser.add_argument("--nodes", type=int, default=1_000, help="nodes of a network [%(default)s]")
    parser.add_argument("--degree", type=float, default=10.0, help="links of a node [%(default)g]")
    parser.add_argument("--kill", type=float, default=0.3, help="share of the nodes that dies [%(default)g]")
    parser.add_argument("--runs", type=int, default=5, help="networks for each rule [%(default)s]")
    parser.add_argument("--page", metavar="FILE", help="also write a page that shows how one tree heals")
    options = parser.parse_args()
    print(f"{options.runs} networks of {options.nodes:,} nodes, {100 * options.kill:g} % die, {KEYS} streams in each\n")
    shares = compare(options)
    if options.page:
        heal(Policy(), options, 0, TRACE)
        with open(TRACE, encoding="utf-8") as trace, open(options.page, "w", encoding="utf-8") as page:
            recording = Recording.read(trace)
            write_page(recording, next(iter(recording.streams)), page)
        print(f"\n{options.page} shows one of them healing, and {TRACE} is what happened")
    gained = 100 * (shares["root"] - shares["own"])
    print(f"\nWith the root's location {gained:+.1f} % of the subscribers are in the largest tree; all trees hold.")


if __name__ == "__main__":
    main()
