"""A backbone that is given other limits while it runs."""

from __future__ import annotations

from random import Random
from typing import Any

from fyrehose_twisted.fyrehose.admission import AddressList
from fyrehose_twisted.fyrehose.backbone import Backbone
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.forwarding import RandomForward
from fyrehose_twisted.fyrehose.messages import ANY_ADDRESS, Keepalive, Push

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
    # One that was not called for long takes it that the machine slept, and waits for its clients.
    for step in range(int((end - start) * 10)):
        node.tick(start + step / 10)


def test_a_smaller_table_refuses_more_and_throws_nobody_out() -> None:
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


def test_who_is_not_allowed_any_more_expires() -> None:
    node = made()
    keep(node, 0.0, ONE, THREE)
    node.reconfigure(BackboneConfig(allow=AddressList(["10.0.0.0/16"])))
    keep(node, 1.0, ONE, THREE)
    assert node.drops.counts["not_allowed"] == 1
    pass_time(node, 1.0, 4.0)
    keep(node, 4.0, ONE)
    pass_time(node, 4.0, 5.5)
    assert alive(node) == [ONE]


def test_who_may_publish() -> None:
    node = made()
    keep(node, 0.0, ONE)
    node.receive(Push(b"1"), ONE, 0.1)
    node.reconfigure(BackboneConfig(allow_push=AddressList(["10.1.0.0/16"])))
    node.receive(Push(b"2"), ONE, 0.2)
    assert (node.numbering.last, node.drops.counts["push_not_allowed"]) == (1, 1)
    node.reconfigure(BackboneConfig())
    node.receive(Push(b"3"), ONE, 0.3)
    assert node.numbering.last == 2


def test_budgets_of_those_who_come() -> None:
    node = made()
    node.reconfigure(BackboneConfig(request_rate=2, request_burst=3))
    bucket = node._requests.bucket(ONE, 0.0)
    assert (bucket.rate, bucket.burst) == (2, 3)
