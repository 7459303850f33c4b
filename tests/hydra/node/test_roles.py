from __future__ import annotations

import pytest

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.roles import TRANSITIONS, RoleInputs, RoleMachine

CAUSES = [name for name in vars(RoleInputs) if not name.startswith("_")]
WAYS = {
    Role.OUTSIDER: [],
    Role.COHORT: ["welcomed"],
    Role.LEADER: ["bootstrapped"],
    Role.VOTER: ["welcomed", "pledged"],
    Role.NOMINEE: ["welcomed", "nominated"],
    Role.GONE: ["left"],
}


def in_role(role: Role) -> RoleMachine:
    roles = RoleMachine()
    for cause in WAYS[role]:
        roles.apply(cause, "")
    assert roles.role is role
    return roles


def test_each_role_can_be_reached() -> None:
    for role in Role:
        in_role(role)


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("role", list(Role))
def test_each_input_leads_to_the_role_in_the_table(role: Role, cause: str) -> None:
    roles = in_role(role)
    expected = TRANSITIONS.get((role, cause), role)
    why = roles.reason
    assert roles.apply(cause, "because") is (expected is not role)
    assert roles.role is expected
    assert roles.reason == ("because" if expected is not role else why)


def test_only_a_nominee_is_elected_and_only_an_outsider_bootstraps() -> None:
    assert {role for (role, cause), target in TRANSITIONS.items() if target is Role.LEADER} == {
        Role.OUTSIDER,
        Role.NOMINEE,
    }


def test_role_gone_is_final() -> None:
    assert not [cause for role, cause in TRANSITIONS if role is Role.GONE]
