"""Resubscription of orphans one after the other, as in the reference simulation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random

from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.experiments.simulated_network import SimulatedNetwork


def find_orphans(network: SimulatedNetwork, dead: Collection[int]) -> dict[int, list[int]]:
    """Return the dead parents of each running node that has any and is not in ``dead`` itself."""
    found: dict[int, list[int]] = {}
    for number in sorted(network.nodes.keys() - set(dead)):
        parents = [stream.parent.node for stream in network.nodes[number].streams.values() if stream.parent is not None]
        lost = sorted({parent for parent in parents if parent in dead})
        if lost:
            found[number] = lost
    return found


def resubscribe_in_turn(
    network: SimulatedNetwork, orphans: Mapping[int, Collection[int]], rng: Random, patience: float
) -> None:
    """Let each orphan notice its dead parents once the previous orphan has new ones.

    :param orphans: dead parents of each orphan.
    :param patience: maximum seconds per orphan.
    :raises OperationalError: if an orphan takes longer.
    """
    network.run_while(network.has_traffic, network.now + patience)
    order = list(orphans)
    rng.shuffle(order)
    for number in order:
        for parent in orphans[number]:
            network.notice_death(number, parent)

        def searching(number: int = number) -> bool:
            return network.has_traffic() or _is_searching(network, number)

        if not network.run_while(searching, network.now + patience):
            raise OperationalError(f"node {number} found no parent within {patience:,.0f} simulated seconds")


def _is_searching(network: SimulatedNetwork, number: int) -> bool:
    node = network.nodes.get(number)
    return node is not None and any(
        not stream.connected or stream.own_restart_uid is not None for stream in node.streams.values()
    )
