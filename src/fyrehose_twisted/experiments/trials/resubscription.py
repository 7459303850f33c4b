"""Orphans that look for parents one after the other: the procedure of the reference simulation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random

from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.experiments.simulated_network import World


def orphans_of(world: World, dead: Collection[int]) -> dict[int, list[int]]:
    """Return the parents among ``dead`` of each node that has one, does not die itself, and runs."""
    found: dict[int, list[int]] = {}
    for number in sorted(world.nodes.keys() - set(dead)):
        parents = [stream.parent.node for stream in world.nodes[number].streams.values() if stream.parent is not None]
        lost = sorted({parent for parent in parents if parent in dead})
        if lost:
            found[number] = lost
    return found


def resubscribe_in_turn(world: World, orphans: Mapping[int, Collection[int]], rng: Random, patience: float) -> None:
    """Let each orphan notice that its parents are dead when the one before has new ones.

    :param orphans: the dead parents of each.
    :param patience: seconds that one orphan may take.
    :raises OperationalError: if one takes longer.
    """
    world.run_while(world.is_moving, world.now + patience)
    order = list(orphans)
    rng.shuffle(order)
    for number in order:
        for parent in orphans[number]:
            world.notice(number, parent)
        if not world.run_while(lambda number=number: world.is_moving() or _looks(world, number), world.now + patience):  # type: ignore[misc]
            raise OperationalError(f"node {number} has found no parent after {patience:,.0f} simulated seconds")


def _looks(world: World, number: int) -> bool:
    node = world.nodes.get(number)
    return node is not None and any(
        not stream.connected or stream.own_uid is not None for stream in node.streams.values()
    )
