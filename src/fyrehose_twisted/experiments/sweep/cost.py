"""Cost estimates of networks, and their grouping into tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import log2
from typing import NamedTuple

from fyrehose_twisted.experiments.sweep.grid import Cell

TASK_SECONDS = 2.0
"""Estimated duration of a task. Spark adds some 50 ms of a core per task."""
SHORT_TASK_SECONDS = 0.5
"""Minimum duration of a task when cores would otherwise be idle."""
FIRST_WAVE_SECONDS = 10.0
"""Duration of the first wave, which calibrates the estimate for this machine."""
WAVE_SECONDS = 60.0
"""Duration of later waves, and so the loss when a sweep is killed."""

# Measured seconds of one core per link, node, attempted swap and message.
_LINK, _NODE, _SWAP, _MESSAGE = 2e-7, 5e-6, 9e-6, 18e-6


class SweepTask(NamedTuple):
    """Networks that one worker simulates in sequence.

    :ivar positions: positions of the networks in the grid.
    :ivar seconds: estimated duration.
    """

    positions: tuple[int, ...]
    seconds: float


def estimate(cell: Cell) -> float:
    """Return a rough estimate of the seconds of one core that a network takes."""
    settings = cell.settings
    swaps = settings.rounds * settings.n if settings.topology == "swapped" else 0
    hops = log2(settings.n)
    members = settings.keys * min(settings.n, settings.subscribers * hops / 4)
    phases = 1 + bool(settings.kill) + bool(settings.churn)
    messages = settings.keys * settings.subscribers * 6 * hops + members * settings.packets * phases
    # Each lost membership takes some 80 messages to repair.
    messages += 80 * members * (settings.kill + settings.churn * settings.duration / 3_600)
    # With loss, neighbours that disagree exchange more messages.
    messages *= 4 if settings.loss else 1
    return settings.n * (_NODE + settings.degree * _LINK) + swaps * _SWAP + messages * _MESSAGE


def make_tasks(costs: Iterable[tuple[int, float]], cores: int) -> Iterator[SweepTask]:
    """Yield tasks for networks, given their positions and costs in seconds, in order.

    A task is complete once it takes :data:`TASK_SECONDS`, or earlier if there is too little work for all cores.
    """
    remaining = list(costs)
    total = sum(cost for _, cost in remaining)
    enough = min(TASK_SECONDS, max(SHORT_TASK_SECONDS, total / max(1, cores)))
    positions: list[int] = []
    seconds = 0.0
    for position, cost in remaining:
        positions.append(position)
        seconds += cost
        # Tolerates rounding errors, which depend on the order of summation.
        if seconds >= enough * (1 - 1e-9):
            yield SweepTask(tuple(positions), seconds)
            positions, seconds = [], 0.0
    if positions:
        yield SweepTask(tuple(positions), seconds)


def take_wave(costs: Sequence[tuple[int, float]], cores: int, seconds: float) -> list[SweepTask]:
    """Return tasks of the first networks that keep ``cores`` busy for ``seconds``, the longest task first."""
    count, total = 0, 0.0
    while count < len(costs) and (total < seconds * cores or not count):
        total += costs[count][1]
        count += 1
    # A long task that starts last would keep one core busy while the others are idle.
    return sorted(make_tasks(costs[:count], cores), key=lambda task: -task.seconds)
