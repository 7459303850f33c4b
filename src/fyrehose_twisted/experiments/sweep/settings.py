"""What one network of a sweep is like, and what is done in it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.freenet.policy import Policy

TOPOLOGIES = ("kleinberg", "random", "ring", "swapped", "file")

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """One network, but for its seed. Times are in seconds of simulated time.

    :ivar topology: how nodes are linked: ``kleinberg``, ``random``, ``ring``, ``swapped``, which is ``kleinberg`` with
        locations that have nothing to do with the links until nodes have swapped them, or ``file``.
    :ivar file: the file with the links, of ``topology = "file"``; with a cluster, workers must have it at that path.
    :ivar n: nodes.
    :ivar degree: links of a node, on average; in a ``ring`` of each node.
    :ivar lattice: whether nodes of ``kleinberg`` and ``swapped`` are linked to their neighbours on the ring besides.
    :ivar rounds: attempts of each node of ``swapped`` to swap, on average.
    :ivar latency: from a node to the next one.
    :ivar loss: chance that a message is lost on its way.
    :ivar settle: how long a network that loses messages, and so need not become quiet, is given where others are
        given until they are; a subscriber waits no longer for its answer.
    :ivar keys: streams.
    :ivar subscribers: nodes that subscribe to each.
    :ivar concurrent: whether all subscribe at once; otherwise each waits until the one before has been answered.
    :ivar packets: packets that are published under each key before nodes are killed, and as many after that.
    :ivar kill: share of the nodes that is killed at once.
    :ivar churn: nodes that die in an hour, as a share of all, one at a time; as many come back. 0 for none.
    :ivar duration: for how long nodes die and come back.
    :ivar policy: how nodes route, wait and repair. In a file each of its fields is a setting like these.
    """

    topology: str = "kleinberg"
    file: str = ""
    n: int = 1_000
    degree: float = 10.0
    lattice: bool = False
    rounds: int = 100
    latency: float = 0.05
    loss: float = 0.0
    settle: float = 120.0
    keys: int = 40
    subscribers: int = 100
    concurrent: bool = False
    packets: int = 1
    kill: float = 0.0
    churn: float = 0.0
    duration: float = 3_600.0
    policy: Policy = field(default_factory=Policy)

    def __post_init__(self) -> None:
        if self.topology not in TOPOLOGIES:
            raise ConfigurationError(f"topology={self.topology!r}: choose one of {', '.join(TOPOLOGIES)}")
        for name, (least, most) in _RANGES.items():
            if not least <= getattr(self, name) <= most:
                raise ConfigurationError(f"{name}={getattr(self, name)!r} is outside {least:,} to {most:,}")
        for name in ("latency", "settle", "duration"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ConfigurationError(f"{name}={getattr(self, name)!r}: a time is 0 or more seconds")
        if not 0.0 <= self.churn <= 1_000.0:
            raise ConfigurationError(f"churn={self.churn!r} is outside 0 to 1,000")
        for name in ("loss", "kill"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigurationError(f"{name}={getattr(self, name)!r}: a share goes from 0 up to, not including, 1")
        if self.subscribers > self.n:
            raise ConfigurationError(f"subscribers={self.subscribers}: with n={self.n} there are not so many nodes")
        self._check_links()

    def _check_links(self) -> None:
        for name, where in _TOPOLOGIES_OF.items():
            if getattr(self, name) != DEFAULTS[name] and self.topology not in where:
                raise ConfigurationError(
                    f"{name}={getattr(self, name)!r} means nothing with topology={self.topology!r}, only with"
                    f" {' and '.join(where)}; give those a [[grid]] of their own"
                )
        if self.topology == "file":
            if not self.file:
                raise ConfigurationError("topology='file' needs file='PATH', the file with the links")
            return
        least = 2 if self.lattice or self.topology == "ring" else 0
        if not least <= self.degree <= self.n - 1:
            raise ConfigurationError(f"degree={self.degree:g}: with n={self.n} it goes from {least} to {self.n - 1}")
        if self.topology == "ring" and self.degree % 2:
            raise ConfigurationError(f"degree={self.degree:g}: in a ring it is even, half of it on either side")

    @classmethod
    def from_values(cls, values: Mapping[str, Value]) -> NetworkSettings:
        """Return the settings that have these values, and defaults for others; names are those of a file.

        :raises ConfigurationError: if a value is out of range, or two do not go together.
        """
        own: dict[str, Any] = {name: value for name, value in values.items() if name not in POLICY_DEFAULTS}
        policy: dict[str, Any] = {name: value for name, value in values.items() if name in POLICY_DEFAULTS}
        return cls(**own, policy=Policy(**policy))

    def values(self) -> dict[str, Value]:
        """Return all values by name, those of the policy last."""
        return {name: getattr(self.policy if name in POLICY_DEFAULTS else self, name) for name in DEFAULTS}


_RANGES = {
    "n": (2, 1_000_000),
    "rounds": (0, 1_000_000),
    "keys": (1, 100_000),
    "subscribers": (1, 1_000_000),
    "packets": (0, 1_000_000),
}
_TOPOLOGIES_OF = {"file": ("file",), "lattice": ("kleinberg", "swapped"), "rounds": ("swapped",)}

POLICY_DEFAULTS: dict[str, Any] = {one.name: one.default for one in fields(Policy)}
"""The settings that are fields of a policy."""
DEFAULTS: dict[str, Any] = {
    one.name: one.default for one in fields(NetworkSettings) if one.name != "policy"
} | POLICY_DEFAULTS
"""All settings by name, in the order of columns, and their defaults. A value is of the type of its default."""


def coerce_value(name: str, value: object) -> Value:
    """Return ``value`` as a value of the setting ``name``.

    :raises ConfigurationError: if it is of another type.
    """
    kind = type(DEFAULTS[name])
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if type(value) is kind:
        return value  # type: ignore[return-value]  # It is the type of a value.
    raise ConfigurationError(f"{name}={value!r}: it has to be {_TYPE_NAMES[kind]}")


_TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
