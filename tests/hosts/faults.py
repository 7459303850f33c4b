"""Faults and random fault plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

KINDS = ("partition", "one-way", "flapping", "loss", "pause", "kill")
STORING = (*KINDS, "full-disk")
"""Faults of services whose files are on a small disk."""
ON_IRC = (*KINDS, "deaf")
"""Faults of the node with a connection to an IRC server, from which it is cut off."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that begins after a quiet time and ends.

    :ivar kind: one of :data:`STORING` or :data:`ON_IRC`.
    :ivar after: seconds since the end of the previous fault.
    :ivar lasts: seconds.
    :ivar host: affected host, which a partition separates from all others.
    :ivar share: packet loss, from 0 to 1.
    """

    kind: str
    after: float
    lasts: float
    host: str
    share: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dict, for a stored plan."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.kind} of {self.host} for {self.lasts:g} s, {self.after:g} s after the previous one"


def draw(
    random: Random,
    hosts: Sequence[str],
    *,
    killed: Sequence[str] | None = None,
    filled: Sequence[str] | None = None,
    kinds: Sequence[str] = KINDS,
    seconds: float = 8.0,
    longest: float = 4.0,
    shortest: float = 0.5,
) -> list[Fault]:
    """Draw faults of several kinds, one after another.

    :param hosts: hosts that may be affected.
    :param killed: hosts that may be killed, by default all.
    :param filled: hosts whose disk may be filled, by default all.
    :param seconds: approximate duration of the plan.
    :param longest: maximum duration of one fault in seconds.
    """
    plan: list[Fault] = []
    used = 0.0
    while not plan or used < seconds:
        after, lasts = round(random.uniform(0.2, 1.0), 2), round(random.uniform(shortest, longest), 2)
        kind = random.choice(kinds)
        host = random.choice({"kill": killed, "full-disk": filled}.get(kind) or hosts)
        plan.append(Fault(kind, after, lasts, host, round(random.uniform(0.05, 0.3), 2)))
        used += after + lasts
    return plan
