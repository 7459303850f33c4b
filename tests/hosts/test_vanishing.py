"""The leader's host vanishes without closing its connections."""

from __future__ import annotations

from random import Random

import pytest
from hosts.bridge import Bridge
from hosts.vanishing import Vanishing


@pytest.mark.extended
def test_another_node_is_on_irc_after_the_host_of_the_leader_vanished(bridge: Bridge) -> None:
    vanishing = Vanishing(bridge, (), Random(1))
    first = vanishing._until(vanishing.leader)
    assert vanishing.lose_leader() > 0.0
    second = vanishing._until(vanishing.leader)
    assert second != first
    assert vanishing.status(second)["counts"]["elected"] == 1
