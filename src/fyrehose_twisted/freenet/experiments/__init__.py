"""Experiments with many nodes: networks, greedy routing over them, and the trees of streams that grow in them."""

from fyrehose_twisted.freenet.experiments.experiment import Subscription, SubscriptionFailed, TreeExperiment
from fyrehose_twisted.freenet.experiments.topology import Topology
from fyrehose_twisted.freenet.policy import Policy

__all__ = ["Policy", "Subscription", "SubscriptionFailed", "Topology", "TreeExperiment"]
