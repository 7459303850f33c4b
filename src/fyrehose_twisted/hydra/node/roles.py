"""State machine of a node's role (document 002, its three states).

:data:`TRANSITIONS` defines it completely. ``docs/diagrams.py`` draws the diagram in ``docs/one-leader.md`` from it.
"""

from __future__ import annotations

from typing import Protocol

from automat import TypeMachineBuilder

from fyrehose_twisted.hydra.events import Role


class RoleInputs(Protocol):
    """Inputs of the state machine. An input without a transition from the current role is ignored."""

    def bootstrapped(self) -> None:
        """The node bootstrapped a network."""

    def welcomed(self) -> None:
        """The node was inducted into a network."""

    def led(self) -> None:
        """The node follows a leader."""

    def pledged(self) -> None:
        """The node pledged to another node in an election."""

    def nominated(self) -> None:
        """The node nominated itself."""

    def elected(self) -> None:
        """A quorum voted for the node."""

    def stepped_down(self) -> None:
        """The node stopped leading because its lease ended or it resigned."""

    def parted(self) -> None:
        """The node left its network."""

    def left(self) -> None:
        """The node was stopped."""


class RoleCore:
    """Holder of the role, as Automat requires."""

    def __init__(self) -> None:
        self.role = Role.OUTSIDER


_MEMBER_ROLES = (Role.COHORT, Role.LEADER, Role.VOTER, Role.NOMINEE)
_INPUTS = (
    RoleInputs.bootstrapped,
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
        (Role.OUTSIDER, RoleInputs.bootstrapped, Role.LEADER),
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
"""Next role by role and :class:`RoleInputs`. An input that is missing here changes nothing."""


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
    """The state machine of one node, with the reason of its last change."""

    def __init__(self) -> None:
        self._core = RoleCore()
        self._inputs = _machine(self._core)
        self.reason = "it just started"

    @property
    def role(self) -> Role:
        """Role of the node."""
        return self._core.role

    def apply(self, name: str, reason: str) -> bool:
        """Apply an input of :class:`RoleInputs`; return whether the role changed."""
        before = self.role
        getattr(self._inputs, name)()
        if self.role is before:
            return False
        self.reason = reason
        return True
