"""Fault schedules: drawing from a seed, text format, and shrinking."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.sim.faults.faults import Fault, parse_fault

if TYPE_CHECKING:
    from fyrehose_twisted.sim.network import Network

MIN_SHRUNK_DURATION = 0.05
"""Minimum fault duration after shrinking, in seconds."""


FaultKinds = Sequence[tuple[float, Callable[[Random, float], Fault]]]
"""Kinds of faults: pairs of a weight and a function that draws one fault for a given start time."""


class FaultSchedule:
    """Faults of a run in order of time. The text format has one fault per line; ``#`` starts a comment."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self.faults = tuple(sorted(faults, key=lambda fault: fault.at))

    @classmethod
    def draw(cls, rng: Random, count: int, *, until: float, kinds: FaultKinds) -> FaultSchedule:
        """Draw ``count`` faults that begin in the first ``until`` seconds."""
        weights = [weight for weight, _ in kinds]
        makers = rng.choices([make for _, make in kinds], weights, k=count)
        return cls([make(rng, round(rng.uniform(0.0, until), 3)) for make in makers])

    @classmethod
    def parse(cls, text: str) -> FaultSchedule:
        """Parse the text format that :meth:`__str__` returns.

        :raises ConfigurationError: if a line is invalid; the message names it.
        """
        faults = []
        for number, line in enumerate(text.splitlines(), 1):
            stripped = line.split("#")[0].strip()
            if not stripped:
                continue
            try:
                faults.append(parse_fault(stripped))
            except (ConfigurationError, ValueError) as error:
                raise ConfigurationError(f"line {number} of the faults, {stripped!r}: {error}") from error
        return cls(faults)

    def schedule_on(self, network: Network) -> None:
        """Schedule the faults on ``network``, relative to now.

        :raises ConfigurationError: if a fault names an unknown host, or the disk of a host without one.
        """
        self.check(network)
        for fault in self.faults:
            network.call_in(fault.at, partial(_begin_fault, fault, network))

    def check(self, network: Network) -> None:
        """Check that all faults are applicable to ``network``.

        :raises ConfigurationError: if a fault is not; the message names the first.
        """
        for fault in self.faults:
            try:
                fault.check(network)
            except (ConfigurationError, KeyError) as error:
                raise ConfigurationError(f"the fault '{fault}': {error.args[0]}") from None

    @property
    def ends_at(self) -> float:
        """End of the last fault, in seconds after the start."""
        return max((fault.ends_at for fault in self.faults), default=0.0)

    def __str__(self) -> str:
        return "".join(f"{fault}\n" for fault in self.faults)

    def __len__(self) -> int:
        return len(self.faults)

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.faults)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FaultSchedule) and self.faults == other.faults

    def __hash__(self) -> int:
        return hash(self.faults)


def shrink(schedule: FaultSchedule, fails: Callable[[FaultSchedule], bool]) -> FaultSchedule:
    """Return a minimal schedule with which the run still fails: removing any fault would make it pass.

    The durations of the remaining faults are shortened while the run fails. The number of runs is quadratic in the
    number of faults at worst, and logarithmic if one fault is responsible.

    :param fails: runs the scenario with a schedule and returns whether it fails.
    """
    faults = list(schedule.faults)
    size = max(1, len(faults) // 2)
    while faults:
        position, removed = 0, False
        while position < len(faults):
            rest = faults[:position] + faults[position + size :]
            if fails(FaultSchedule(rest)):
                faults, removed = rest, True
            else:
                position += size
        if size == 1 and not removed:
            break
        size = max(1, size // 2)
    for index, fault in enumerate(faults):
        shorter = replace(fault, duration=round(fault.duration / 2, 3))
        while shorter.duration >= MIN_SHRUNK_DURATION and fails(
            FaultSchedule([*faults[:index], shorter, *faults[index + 1 :]])
        ):
            faults[index] = shorter
            shorter = replace(shorter, duration=round(shorter.duration / 2, 3))
    return FaultSchedule(faults)


def _begin_fault(fault: Fault, network: Network) -> None:
    network.counters["faults"] += 1
    for observe in network.observers.fault_began:
        observe(fault)
    fault.begin(network)
