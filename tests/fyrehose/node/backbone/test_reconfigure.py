"""Reloading the limits of a running backbone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, ClassVar

from suite.seeds import seeds

from fyrehose_twisted.fyrehose.config import AddressList, BackboneConfig
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.simulation.scenarios import Limits
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, Keepalive, Push
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.crash_mode import CrashMode

ONE, TWO, THREE = (("10.0.0.1", 1), ("10.0.0.2", 1), ("10.1.0.3", 1))


def made(**more: Any) -> Backbone:
    return Backbone(BackboneConfig(**more), RandomForward(Random(1)))


def alive(node: Backbone) -> list[Any]:
    return sorted(client.address for client in node.clients)


def keep(node: Backbone, now: float, *peers: Any) -> None:
    for peer in peers:
        node.receive(Keepalive(ANY_ADDRESS, 0), peer, now)
    node.drain()


def pass_time(node: Backbone, start: float, end: float) -> None:
    # After a long pause between calls the node assumes a suspended machine and grants clients a grace time.
    for step in range(int((end - start) * 10)):
        node.tick(start + step / 10)


def test_a_reduced_client_limit_refuses_new_clients_and_keeps_the_served() -> None:
    node = made(max_clients=2)
    keep(node, 0.0, ONE, TWO, THREE)
    assert alive(node) == [ONE, TWO]
    node.reconfigure(BackboneConfig(max_clients=1))
    keep(node, 1.0, ONE, TWO, THREE)
    assert alive(node) == [ONE, TWO]
    pass_time(node, 1.0, 4.0)
    keep(node, 4.0, TWO)
    pass_time(node, 4.0, 7.1)
    assert alive(node) == [TWO]
    keep(node, 7.1, ONE)
    assert alive(node) == [TWO]
    node.reconfigure(BackboneConfig(max_clients=3))
    keep(node, 7.2, ONE, THREE)
    assert alive(node) == [ONE, TWO, THREE]


def test_a_client_no_longer_allowed_after_a_reload_expires() -> None:
    node = made()
    keep(node, 0.0, ONE, THREE)
    node.reconfigure(BackboneConfig(allow=AddressList(["10.0.0.0/16"])))
    keep(node, 1.0, ONE, THREE)
    assert node.drops.counts["not_allowed"] == 1
    pass_time(node, 1.0, 4.0)
    keep(node, 4.0, ONE)
    pass_time(node, 4.0, 5.5)
    assert alive(node) == [ONE]


def test_a_reload_changes_which_hosts_may_push() -> None:
    node = made()
    keep(node, 0.0, ONE)
    node.receive(Push(b"1"), ONE, 0.1)
    node.reconfigure(BackboneConfig(allow_push=AddressList(["10.1.0.0/16"])))
    node.receive(Push(b"2"), ONE, 0.2)
    assert (node.sequencer.last, node.drops.counts["push_not_allowed"]) == (1, 1)
    node.reconfigure(BackboneConfig())
    node.receive(Push(b"3"), ONE, 0.3)
    assert node.sequencer.last == 2


def test_a_reload_changes_the_request_budget_of_new_clients() -> None:
    node = made()
    node.reconfigure(BackboneConfig(request_rate=2, request_burst=3))
    bucket = node._request_budgets.bucket(ONE, 0.0)
    assert (bucket.rate, bucket.burst) == (2, 3)


class Reloads(Limits):
    """The limits of a backbone change every few seconds, and it crashes now and then."""

    name: ClassVar[str] = "fyrehose.reloads"
    duration: ClassVar[float] = 250.0
    messages: ClassVar[int] = 500

    def build(self) -> None:
        super().build()
        rng, usual = self._make_rng(), self.backbone.config
        for second in range(5, int(self.duration) - 10, 3):
            config = replace(
                usual,
                # Never fewer, since served clients stay and the table would exceed a lower limit.
                max_clients=len(self.profiles) + self.FREE_SLOTS + second // 20,
                allow=rng.choice((None, AddressList(["10.0.0.0/8"]), AddressList(["10.0.1.0/24"]))),
                allow_push=rng.choice((None, AddressList(["10.0.1.0/24"]))),
                request_rate=rng.choice((50.0, usual.request_rate)),
            )
            self.network.call_in(second, partial(self._reload, config))
        self.network.call_in(self.duration - 10, partial(self._reload, replace(usual, max_clients=1_000)))

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        return (
            (1.0, fault_generators.crashes(self._client_names, max_duration=10.0)),
            (0.5, fault_generators.crashes(["backbone"], kinds=(CrashMode.KILLED, CrashMode.POWER), after_persist=0.3)),
            (3.0, fault_generators.bad_links(self._host_names, hub="backbone")),
        )

    def _reload(self, config: BackboneConfig) -> None:
        self.backbone.config = config  # Used again at a restart.
        self.operate(self.backbone.host, "reconfigure", lambda node, now: node.reconfigure(config))


@seeds([1], more=[1, 2])
def test_invariants_hold_while_limits_are_reloaded(seeds: Sequence[int]) -> None:
    for seed in seeds:
        outcome = Reloads(seed).run()
        assert outcome.violation is None, outcome.violation
        assert outcome.counters["delivered"] > 500
        assert outcome.counters["dropped"] > 0
