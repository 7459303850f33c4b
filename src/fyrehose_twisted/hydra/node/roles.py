"""What a node is in its network, and what makes that change (document 002, its three states).

:data:`TRANSITIONS` is the whole of it; ``docs/one-leader.md`` shows it as a drawing that ``docs/diagrams.py`` makes of
that.
"""

from __future__ import annotations

from typing import Protocol

from automat import TypeMachineBuilder

from fyrehose_twisted.hydra.events import Role


class RoleInputs(Protocol):
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


class RoleCore:
    """Where a node is."""

    def __init__(self) -> None:
        self.role = Role.OUTSIDER


_MEMBER_ROLES = (Role.COHORT, Role.LEADER, Role.VOTER, Role.NOMINEE)
_INPUTS = (
    RoleInputs.founded,
    RoleInputs.welcomed,
    RoleInputs.led,
    RoleInputs.pledged,
    RoleInputs.nominated,
    RoleInputs.elected,
    RoleInputs.stepped_down,
    RoleInputs.parted,
    RoleInputs.left,
)

TRANSITIONS: dict[tuple[Role, str], Role] = {
    (role, cause.__name__): target
    for role, cause, target in (
        (Role.OUTSIDER, RoleInputs.founded, Role.LEADER),
        (Role.OUTSIDER, RoleInputs.welcomed, Role.COHORT),
        *((role, RoleInputs.led, Role.COHORT) for role in _MEMBER_ROLES),
        *((role, RoleInputs.pledged, Role.VOTER) for role in _MEMBER_ROLES),
        *((role, RoleInputs.nominated, Role.NOMINEE) for role in _MEMBER_ROLES),
        (Role.NOMINEE, RoleInputs.elected, Role.LEADER),
        (Role.LEADER, RoleInputs.stepped_down, Role.COHORT),
        *((role, RoleInputs.parted, Role.OUTSIDER) for role in _MEMBER_ROLES),
        *((role, RoleInputs.left, Role.GONE) for role in (Role.OUTSIDER, *_MEMBER_ROLES)),
    )
}
"""Where each of :class:`RoleInputs` leads from each role. What is not here changes nothing."""


def _make_builder() -> TypeMachineBuilder[RoleInputs, RoleCore]:
    builder = TypeMachineBuilder(RoleInputs, RoleCore)
    states = {role: builder.state(role.value) for role in Role}
    for role, state in states.items():
        for cause in _INPUTS:
            target = TRANSITIONS.get((role, cause.__name__), role)
            _add_transition(state, cause, states[target], target)
    return builder


def _add_transition(state: object, role_input: object, to: object, role: Role) -> None:
    @state.upon(role_input).to(to)  # type: ignore[attr-defined, untyped-decorator]  # Its types are made for literal states.
    def go(turns: RoleInputs, standpoint: RoleCore) -> None:
        standpoint.role = role


_machine = _make_builder().build()


class RoleMachine:
    """The machine, and why it is where it is."""

    def __init__(self) -> None:
        self._core = RoleCore()
        self._inputs = _machine(self._core)
        self.reason = "it just started"

    @property
    def role(self) -> Role:
        """What the node is."""
        return self._core.role

    def apply(self, name: str, reason: str) -> bool:
        """Something of :class:`RoleInputs` happened; returns whether the node is something else now."""
        before = self.role
        getattr(self._inputs, name)()
        if self.role is before:
            return False
        self.reason = reason
        return True
