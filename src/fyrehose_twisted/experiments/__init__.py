"""Experiments with many nodes: networks, greedy routing over them, and the trees of streams that grow in them."""

from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.experiments.trials.experiment import Subscription, SubscriptionFailed, TreeExperiment
from fyrehose_twisted.freenet.policy import Policy

__all__ = ["Policy", "Subscription", "SubscriptionFailed", "Topology", "TreeExperiment"]
