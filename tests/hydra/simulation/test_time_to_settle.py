"""Time that a network takes to be one again after it lost its leader."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest
from suite.seeds import seeds

from fyrehose_twisted.effects import Address
from fyrehose_twisted.hydra.config import NodeConfig
from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.simulation import scenarios
from fyrehose_twisted.hydra.simulation.invariants import find_disagreement
from fyrehose_twisted.hydra.simulation.scenarios import NetworkScenario
from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.network_core import LinkOverride


class LostLeader(NetworkScenario):
    """The leader of three nodes, each of which may bootstrap, is lost and returns."""

    duration = 120.0
    settle_timeout = 60.0
    sizes = (3,)
    encoded_probability = 0.0

    def _add_node(self, number: int, size: int, *, states: bool) -> None:
        self.edges = [(one, other) for one in range(size) for other in range(size) if one != other]
        super()._add_node(number, size, states=states)

    def arrange(self) -> None:
        """See :class:`NetworkScenario`."""
        self.healed_at = self.one_at = inf
        self.lasts = self.rng.uniform(6.0, 9.0)
        self.network.call_in(35.0, self._begin)

    def _begin(self) -> None:
        (leader,) = (host for host in self.participants.hosts if host.node.role is Role.LEADER)
        self.lose(leader)

    def lose(self, leader: Host) -> None:
        """Lose the leader and let it return after :attr:`lasts` seconds."""
        raise NotImplementedError

    def healed(self) -> None:
        """Record when the nodes are one network again."""
        self.healed_at = self.network.elapsed
        self._watch()

    def _watch(self) -> None:
        if find_disagreement(self.participants.hosts) is None:
            self.one_at = self.network.elapsed
        else:
            self.network.call_in(0.1, self._watch)


class UnheardResignation(LostLeader):
    """The leader is heard neither by IRC nor by other nodes, resigns, and its connections break meanwhile."""

    name = "hydra.unheard"
    both_ways = False

    def lose(self, leader: Host) -> None:
        """See :class:`LostLeader`."""
        guardian = self.participants.guardians.get(leader)
        own = [leader.address] + ([] if guardian is None else [guardian.address])
        others = [address for address in self.network.hosts if address not in own]
        cuts = [self._cut(own, others)] + ([self._cut(others, own)] if self.both_ways else [])
        self.participants.cut_off_irc(leader, self.lasts)
        self.operate(leader, "say", lambda node, now: self.participants.say(leader, node, now, retry=False))
        self.network.call_in(self.lasts, lambda: self._heal(leader, cuts))

    def _cut(self, sources: Sequence[Address], destinations: Sequence[Address]) -> LinkOverride:
        return self.network.override_links(sources, destinations, up=False)

    def _heal(self, leader: Host, cuts: Sequence[LinkOverride]) -> None:
        assert leader.node.counters["links_silent"] == 0
        for cut in cuts:
            self.network.remove_override(cut)
        # Kernels reset a connection if data arrives after its socket was closed, and discard what was not sent.
        for end in list(self.network.streams.connection_ends(leader).values()):
            end.terminate("reset")
            if end.other is not None:
                end.other.terminate("reset")
        self.healed()


class UnheardPartition(UnheardResignation):
    """The same, and the leader hears nothing either."""

    name = "hydra.unheard-partition"
    both_ways = True


class KilledWithoutGuardian(LostLeader):
    """The leader is killed, and no DROP is sent for it."""

    name = "hydra.no-guardian"
    guardian_probability = 0.0

    def lose(self, leader: Host) -> None:
        """See :class:`LostLeader`."""
        leader.stop(CrashMode.POWER)

        def restart() -> None:
            leader.start()
            self.healed()

        self.network.call_in(self.lasts, restart)


def all_bootstrap(**options: object) -> NodeConfig:
    options["bootstrap"] = True
    return NodeConfig(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scenario", "bound"),
    # The first two take a redial and an election. The last one takes 25 s from the last PING to an election, 15 s if
    # it is split, and 15 s more until the dead node is dropped.
    [(UnheardResignation, 10.0), (UnheardPartition, 10.0), (KilledWithoutGuardian, 50.0)],
)
@seeds(range(6), more=range(100))
def test_a_network_that_lost_its_leader_is_one_again_in_time(
    scenario: type[LostLeader], bound: float, seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenarios, "NodeConfig", all_bootstrap)
    took = {}
    for seed in seeds:
        run = scenario(seed)
        assert run.run().violation is None, seed
        took[seed] = round(run.one_at - run.healed_at, 1)
    assert max(took.values()) < bound, took
