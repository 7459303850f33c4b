"""Settings of one network of a sweep."""

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
    """Settings of one network, without its seed. Times are simulated seconds.

    :ivar topology: links of the nodes: ``kleinberg``, ``random``, ``ring``, ``swapped`` (``kleinberg`` with shuffled
        locations that nodes improve by swapping), or ``file``.
    :ivar file: path of the links file, for ``topology = "file"``. On a cluster, workers must have it at the same path.
    :ivar n: number of nodes.
    :ivar degree: mean number of links per node.
    :ivar lattice: also link nodes of ``kleinberg`` and ``swapped`` to their neighbours on the ring.
    :ivar rounds: mean number of swaps attempted per node of ``swapped``.
    :ivar latency: latency of a link.
    :ivar loss: probability that a message is lost.
    :ivar settle: settling time after each step in a network that loses messages, since it may never become quiet. It
        also limits the wait for the answer to a subscription.
    :ivar keys: number of streams.
    :ivar subscribers: subscribers per stream.
    :ivar concurrent: subscribe all at once; otherwise each subscriber waits for the answer to the previous one.
    :ivar packets: packets published per stream before nodes are killed, and again after.
    :ivar kill: share of the nodes that are killed at once.
    :ivar churn: nodes that die per hour, as a share of all; as many return. 0 for none.
    :ivar duration: duration of the churn.
    :ivar policy: policy of the nodes. In a file each of its fields is a setting of its own.
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
        for name, (minimum, maximum) in _RANGES.items():
            if not minimum <= getattr(self, name) <= maximum:
                raise ConfigurationError(f"{name}={getattr(self, name)!r} is outside {minimum:,} to {maximum:,}")
        for name in ("latency", "settle", "duration"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ConfigurationError(f"{name}={getattr(self, name)!r}: a time is 0 or more seconds")
        if not 0.0 <= self.churn <= 1_000.0:
            raise ConfigurationError(f"churn={self.churn!r} is outside 0 to 1,000")
        for name in ("loss", "kill"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigurationError(f"{name}={getattr(self, name)!r}: a share goes from 0 up to, not including, 1")
        if self.subscribers > self.n:
            raise ConfigurationError(f"subscribers={self.subscribers}: with n={self.n} there are too few nodes")
        self._check_links()

    def _check_links(self) -> None:
        for name, where in _TOPOLOGIES_OF.items():
            if getattr(self, name) != DEFAULTS[name] and self.topology not in where:
                raise ConfigurationError(
                    f"{name}={getattr(self, name)!r} does not apply to topology={self.topology!r}, only with"
                    f" {' and '.join(where)}; give those a [[grid]] of their own"
                )
        if self.topology == "file":
            if not self.file:
                raise ConfigurationError("topology='file' needs file='PATH', the file with the links")
            return
        minimum = 2 if self.lattice or self.topology == "ring" else 0
        if not minimum <= self.degree <= self.n - 1:
            raise ConfigurationError(f"degree={self.degree:g}: with n={self.n} it goes from {minimum} to {self.n - 1}")
        if self.topology == "ring" and self.degree % 2:
            raise ConfigurationError(f"degree={self.degree:g}: in a ring it is even, half of it on either side")

    @classmethod
    def from_values(cls, values: Mapping[str, Value]) -> NetworkSettings:
        """Return settings with these values, and defaults for the others. Names are those of a file.

        :raises ConfigurationError: if a value is out of range, or two values are incompatible.
        """
        own: dict[str, Any] = {name: value for name, value in values.items() if name not in POLICY_DEFAULTS}
        policy: dict[str, Any] = {name: value for name, value in values.items() if name in POLICY_DEFAULTS}
        return cls(**own, policy=Policy(**policy))

    def values(self) -> dict[str, Value]:
        """Return all values by name, the policy last."""
        return {name: getattr(self.policy if name in POLICY_DEFAULTS else self, name) for name in DEFAULTS}


_RANGES = {
    "n": (2, 1_000_000),
    "rounds": (0, 1_000_000),
    "keys": (1, 100_000),
    "subscribers": (1, 1_000_000),
    "packets": (0, 1_000_000),
}
_TOPOLOGIES_OF = {"file": ("file",), "lattice": ("kleinberg", "swapped"), "rounds": ("swapped",)}

POLICY_DEFAULTS: dict[str, Any] = {setting.name: setting.default for setting in fields(Policy)}
"""Settings that are fields of a policy, and their defaults."""
DEFAULTS: dict[str, Any] = {
    setting.name: setting.default for setting in fields(NetworkSettings) if setting.name != "policy"
} | POLICY_DEFAULTS
"""All settings with their defaults, in the order of columns. A value has the type of its default."""


def coerce_value(name: str, value: object) -> Value:
    """Return ``value`` converted to the type of the setting ``name``.

    :raises ConfigurationError: if the value has another type.
    """
    kind = type(DEFAULTS[name])
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if type(value) is kind:
        return value  # type: ignore[return-value]  # It is the type of a value.
    raise ConfigurationError(f"{name}={value!r}: it must be {_TYPE_NAMES[kind]}")


_TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
