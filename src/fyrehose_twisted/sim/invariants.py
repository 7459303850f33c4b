"""What must hold in every run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from fyrehose_twisted.sim.observer import Observer

if TYPE_CHECKING:
    from fyrehose_twisted.sim.host import Host
    from fyrehose_twisted.sim.network import Network


class InvariantViolated(AssertionError):
    """Something happened that must not.

    :ivar invariant: which invariant says so.
    :ivar elapsed: when, in simulated seconds after the start of the run.
    :ivar nodes: names of the nodes concerned.
    :ivar description: what happened.
    """

    def __init__(self, invariant: str, elapsed: float, nodes: Sequence[str], description: str) -> None:
        super().__init__(
            f"{invariant}: at {elapsed:.6f} s, {', '.join(nodes) or 'nowhere in particular'}: {description}"
        )
        self.invariant = invariant
        self.elapsed = elapsed
        self.nodes = tuple(nodes)
        self.description = description

    def __reduce__(self) -> tuple[type[InvariantViolated], tuple[str, float, tuple[str, ...], str], dict[str, Any]]:
        # With its notes, which an exception keeps among its attributes.
        return type(self), (self.invariant, self.elapsed, self.nodes, self.description), vars(self)


class Invariant(Observer):
    """One thing that must hold. A subclass watches events as they happen, by overriding methods of
    :class:`~fyrehose_twisted.sim.observer.Observer`, and looks at the outcome in :meth:`check`; where something is
    wrong it calls :meth:`violated`.

    :cvar name: says what must hold, in a few words.
    """

    name: ClassVar[str]

    def __init__(self, network: Network) -> None:
        self.network = network

    def sample(self) -> None:
        """Look at the nodes: called about once in a simulated second."""

    def check(self) -> None:
        """Look at the outcome: called when faults are over and nothing more is to be expected."""

    def violated(self, description: str, *hosts: Host) -> NoReturn:
        """End the run.

        :raises InvariantViolated: always.
        """
        raise InvariantViolated(self.name, self.network.elapsed, [host.name for host in hosts], description)
