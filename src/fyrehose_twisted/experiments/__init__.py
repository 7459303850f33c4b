"""Experiments with many nodes: topologies, greedy routing, and trees of streams in simulated networks."""

from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.experiments.trials.experiment import Subscription, SubscriptionFailed, TreeExperiment
from fyrehose_twisted.freenet.policy import Policy

__all__ = ["Policy", "Subscription", "SubscriptionFailed", "Topology", "TreeExperiment"]
