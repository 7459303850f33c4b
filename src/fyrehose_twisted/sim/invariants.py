"""Invariants of simulated runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from fyrehose_twisted.sim.observer import Observer

if TYPE_CHECKING:
    from fyrehose_twisted.sim.host import Host
    from fyrehose_twisted.sim.network import Network


class InvariantViolated(AssertionError):
    """An invariant was violated.

    :ivar invariant: name of the invariant.
    :ivar elapsed: simulated seconds since the start of the run.
    :ivar nodes: names of the nodes involved.
    :ivar description: details of the violation.
    """

    def __init__(self, invariant: str, elapsed: float, nodes: Sequence[str], description: str) -> None:
        super().__init__(f"{invariant}: at {elapsed:.6f} s, {', '.join(nodes) or 'whole network'}: {description}")
        self.invariant = invariant
        self.elapsed = elapsed
        self.nodes = tuple(nodes)
        self.description = description

    def __reduce__(self) -> tuple[type[InvariantViolated], tuple[str, float, tuple[str, ...], str], dict[str, Any]]:
        # Includes the notes, which are attributes of an exception.
        return type(self), (self.invariant, self.elapsed, self.nodes, self.description), vars(self)


class Invariant(Observer):
    """Base class of invariants.

    A subclass overrides methods of :class:`~fyrehose_twisted.sim.observer.Observer` to check events as they happen, and
    :meth:`check` for the final state. It reports a violation with :meth:`violated`.

    :cvar name: the condition, in a few words.
    """

    name: ClassVar[str]

    def __init__(self, network: Network) -> None:
        self.network = network

    def sample(self) -> None:
        """Check the nodes. Called about once per simulated second."""

    def check(self) -> None:
        """Check the final state. Called after the faults, when the scenario has settled."""

    def violated(self, description: str, *hosts: Host) -> NoReturn:
        """Report a violation, which ends the run.

        :raises InvariantViolated: always.
        """
        raise InvariantViolated(self.name, self.network.elapsed, [host.name for host in hosts], description)
