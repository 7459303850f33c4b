"""What a node is in its network, and what makes that change (document 002, its three states).

:data:`MOVES` is the whole of it; ``docs/one-leader.md`` shows it as a drawing that ``docs/diagrams.py`` makes of that.
"""

from __future__ import annotations

from typing import Protocol

from automat import TypeMachineBuilder

from fyrehose_twisted.hydra.events import Role


class Turns(Protocol):
    """What happens to a node that changes its role. What does not matter in a role is ignored there."""

    def founded(self) -> None:
        """It began a network."""

    def welcomed(self) -> None:
        """The network took it in."""

    def led(self) -> None:
        """It follows a leader."""

    def pledged(self) -> None:
        """It is for another in an election."""

    def nominated(self) -> None:
        """It is for itself."""

    def elected(self) -> None:
        """A quorum voted for it."""

    def stepped_down(self) -> None:
        """It leads no more: its lease is over, or it gave it up."""

    def parted(self) -> None:
        """It belongs to no network any more."""

    def left(self) -> None:
        """It was told to stop."""


class Standpoint:
    """Where a node is."""

    def __init__(self) -> None:
        self.role = Role.OUTSIDER


_MEMBERS = (Role.COHORT, Role.LEADER, Role.VOTER, Role.NOMINEE)
_CAUSES = (
    Turns.founded,
    Turns.welcomed,
    Turns.led,
    Turns.pledged,
    Turns.nominated,
    Turns.elected,
    Turns.stepped_down,
    Turns.parted,
    Turns.left,
)

MOVES: dict[tuple[Role, str], Role] = {
    (role, cause.__name__): target
    for role, cause, target in (
        (Role.OUTSIDER, Turns.founded, Role.LEADER),
        (Role.OUTSIDER, Turns.welcomed, Role.COHORT),
        *((role, Turns.led, Role.COHORT) for role in _MEMBERS),
        *((role, Turns.pledged, Role.VOTER) for role in _MEMBERS),
        *((role, Turns.nominated, Role.NOMINEE) for role in _MEMBERS),
        (Role.NOMINEE, Turns.elected, Role.LEADER),
        (Role.LEADER, Turns.stepped_down, Role.COHORT),
        *((role, Turns.parted, Role.OUTSIDER) for role in _MEMBERS),
        *((role, Turns.left, Role.GONE) for role in (Role.OUTSIDER, *_MEMBERS)),
    )
}
"""Where each of :class:`Turns` leads from each role. What is not here changes nothing."""


def _make() -> TypeMachineBuilder[Turns, Standpoint]:
    builder = TypeMachineBuilder(Turns, Standpoint)
    states = {role: builder.state(role.value) for role in Role}
    for role, state in states.items():
        for cause in _CAUSES:
            target = MOVES.get((role, cause.__name__), role)
            _transition(state, cause, states[target], target)
    return builder


def _transition(state: object, cause: object, to: object, role: Role) -> None:
    @state.upon(cause).to(to)  # type: ignore[attr-defined, untyped-decorator]  # Its types are made for literal states.
    def go(turns: Turns, standpoint: Standpoint) -> None:
        standpoint.role = role


_machine = _make().build()


class Roles:
    """The machine, and why it is where it is."""

    def __init__(self) -> None:
        self._standpoint = Standpoint()
        self._turns = _machine(self._standpoint)
        self.why = "it just started"

    @property
    def role(self) -> Role:
        """What the node is."""
        return self._standpoint.role

    def happened(self, what: str, why: str) -> bool:
        """Something of :class:`Turns` happened; returns whether the node is something else now."""
        before = self.role
        getattr(self._turns, what)()
        if self.role is before:
            return False
        self.why = why
        return True
