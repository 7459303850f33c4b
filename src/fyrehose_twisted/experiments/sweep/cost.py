"""How long networks may take, and which of them are one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import log2
from typing import NamedTuple

from fyrehose_twisted.experiments.sweep.grid import Cell

TASK_SECONDS = 2.0
"""A task takes so long, if all goes as estimated: Spark needs some 50 ms of a core for each."""
SHORT_TASK_SECONDS = 0.5
"""It may be as short as this where otherwise a core would have nothing to do."""
FIRST_WAVE_SECONDS = 10.0
"""The first wave takes so long: after it, it is known how far the estimate is from what this machine needs."""
WAVE_SECONDS = 60.0
"""Other waves take so long. This is what is lost when a sweep is killed."""

# As measured on one core: seconds for a link, a node, an attempt to swap and a message.
_LINK, _NODE, _SWAP, _MESSAGE = 2e-7, 5e-6, 9e-6, 18e-6


class SweepTask(NamedTuple):
    """Networks that one worker simulates, one after another.

    :ivar positions: of the networks in the grid.
    :ivar seconds: how long they take, as estimated.
    """

    positions: tuple[int, ...]
    seconds: float


def estimate(cell: Cell) -> float:
    """Return for how many seconds a network keeps one core busy, roughly; the order of magnitude is what counts."""
    one = cell.settings
    swaps = one.rounds * one.n if one.topology == "swapped" else 0
    hops = log2(one.n)
    members = one.keys * min(one.n, one.subscribers * hops / 4)
    phases = 1 + bool(one.kill) + bool(one.churn)
    messages = one.keys * one.subscribers * 6 * hops + members * one.packets * phases
    # Who goes had a place in each stream that it was a member of; to mend one takes some 80 messages.
    messages += 80 * members * (one.kill + one.churn * one.duration / 3_600)
    # Neighbours that disagree for want of a message ask one another over and over.
    messages *= 4 if one.loss else 1
    return one.n * (_NODE + one.degree * _LINK) + swaps * _SWAP + messages * _MESSAGE


def make_tasks(costs: Iterable[tuple[int, float]], cores: int) -> Iterator[SweepTask]:
    """Yield tasks for networks, of which each has a place and a cost in seconds, in their order.

    A task is ended as soon as it takes :data:`TASK_SECONDS`, or earlier if there is not enough for all cores.
    """
    left = list(costs)
    total = sum(cost for _, cost in left)
    enough = min(TASK_SECONDS, max(SHORT_TASK_SECONDS, total / max(1, cores)))
    places: list[int] = []
    seconds = 0.0
    for place, cost in left:
        places.append(place)
        seconds += cost
        # Sums of the same numbers in another order may differ a little.
        if seconds >= enough * (1 - 1e-9):
            yield SweepTask(tuple(places), seconds)
            places, seconds = [], 0.0
    if places:
        yield SweepTask(tuple(places), seconds)


def take_wave(costs: Sequence[tuple[int, float]], cores: int, seconds: float) -> list[SweepTask]:
    """Return the tasks of the first networks that keep ``cores`` busy for ``seconds``; the longest task comes first."""
    count, total = 0, 0.0
    while count < len(costs) and (total < seconds * cores or not count):
        total += costs[count][1]
        count += 1
    # Else a long one that is begun last would keep one core busy when the others have nothing left.
    return sorted(make_tasks(costs[:count], cores), key=lambda task: -task.seconds)
