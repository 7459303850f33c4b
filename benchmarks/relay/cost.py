"""CPU time of a relay for each delivery, beside that of a backbone with the same subscribers.

The measured server has a core for itself; the load has the other one, with the backbone that the relay follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from parcels.children import in_child
from race import bulk, crowd
from race.bulk import Cell, Target
from race.crowd import Crowd
from race.servers import BROKER_CORE, CLIENT_CORE, OURS

from relay.trees import BACKBONE, RELAY, Servers

BURSTS, SINGLE = "bursts", "single"
KINDS = (BURSTS, SINGLE)
SYSTEMS = (RELAY, BACKBONE)
FAN_OUTS = (1, 16, 100)
WARM_UP = 0.3
WINDOW = 256
"""Messages in flight in bursts."""

Costs = dict[tuple[str, int, str], list[float]]
"""Microseconds for each delivery, by kind of load, subscribers and system."""


class Load(NamedTuple):
    """Load of one measurement.

    :ivar rate: single messages/s.
    """

    size: int
    seconds: float
    rate: float


class Cost(NamedTuple):
    """Result of one measurement.

    :ivar delivery: microseconds of CPU time for each delivery.
    :ivar lost: deliveries that did not arrive.
    """

    delivery: float
    lost: float


def targets(servers: Servers) -> dict[str, Target]:
    """Start a backbone, and a relay with a backbone of its own."""
    alone = servers.backbone(BROKER_CORE)
    parent = servers.backbone(CLIENT_CORE)
    relay = servers.relay(parent, BROKER_CORE)
    return {
        BACKBONE: Target(OURS, alone.ports, alone.process.pid),
        RELAY: Target(OURS, (parent.ports[0], relay.ports[1]), relay.process.pid),
    }


def measure_one(target: Target, kind: str, fan_out: int, load: Load) -> Cost:
    """Run a load on a server."""
    if kind == SINGLE:
        figures = in_child(crowd.measure, target, Crowd(fan_out, load.rate, load.size, load.seconds, WARM_UP))
        return Cost(figures["microseconds_per_delivery"], figures["lost"])
    cell = Cell(fan_out, load.size, load.seconds, WARM_UP, WINDOW * load.size)
    figures = in_child(bulk.measure, target, cell)
    return Cost(1e6 / figures["deliveries_per_cpu_second"], figures["lost"])


def measure(directory: Path, rounds: int, load: Load, progress: Callable[[], object]) -> tuple[Costs, float]:
    """Return the costs of all rounds and the number of lost deliveries. ``progress`` is called after each of them."""
    costs: Costs = {}
    lost = 0.0
    with Servers(directory) as servers:
        places = targets(servers)
        for kind, fan_out, system in jobs(rounds):
            cost = measure_one(places[system], kind, fan_out, load)
            costs.setdefault((kind, fan_out, system), []).append(cost.delivery)
            lost += cost.lost
            progress()
    return costs, lost


def jobs(rounds: int) -> Iterator[tuple[str, int, str]]:
    """Yield kind, subscribers and system of each measurement; the systems alternate."""
    for number in range(rounds):
        for kind in KINDS:
            for fan_out in FAN_OUTS:
                for system in SYSTEMS[:: 1 if number % 2 else -1]:
                    yield kind, fan_out, system


def line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return ``a`` and ``b`` of the line ``a + b x`` with the least squares of relative errors."""
    weights = [1 / y**2 for _, y in points]
    total = sum(weights)
    middle_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    middle_y = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    square = sum(w * (x - middle_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    slope = sum(w * (x - middle_x) * (y - middle_y) for w, (x, y) in zip(weights, points, strict=True)) / square
    return middle_y - slope * middle_x, slope
