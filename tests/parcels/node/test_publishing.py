from __future__ import annotations

import pytest
from parcels.harness import Host, Net
from parcels.node.harness import connect, counter, delivered, mode

from fyrehose_twisted.errors import LocalError, MessageTooLarge, NotOrdered, PublishQueueFull
from fyrehose_twisted.parcels.events import EventsDelivered, PublishConfirmed, PublishUnconfirmed
from fyrehose_twisted.parcels.wire.messages import Mode, Publish, PublishAck, PublisherRun, PublishNack, RefusalReason


def test_publish_without_a_cluster_fails_at_once(net: Net) -> None:
    ivan = net.node("Ivan", 1, (2,))
    for publish in (
        lambda: ivan.node.publish([b"a", b"b"], 1, net.now),
        lambda: ivan.node.publish_as(PublisherRun("p", 0, 1, [b"a"]), 1, net.now),
    ):
        with pytest.raises(NotOrdered) as raised:
            publish()
        assert (raised.value.why, raised.value.unknown) == ("no-quorum", False)
    assert counter(ivan, "refused") == 3
    assert counter(ivan, "published") == 0


def test_node_refuses_an_oversize_event(net: Net) -> None:
    ivan = net.node("Ivan", 1, max_event=1_000)
    with pytest.raises(MessageTooLarge):
        ivan.node.publish([b"fine", bytes(1_001)], 1, net.now)
    with pytest.raises(MessageTooLarge):
        ivan.node.publish_as(PublisherRun("p", 0, 1, [bytes(1_001)]), 1, net.now)
    ivan.call("publish", [bytes(1_000)], 2)
    assert [one.token for one in ivan.of(PublishConfirmed)] == [2]
    assert len(delivered(ivan)) == 1


def test_publisher_name_is_limited_to_160_bytes(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    for name in ("", "x" * 161, "ä" * 81):
        with pytest.raises(LocalError):
            ivan.node.publish_as(PublisherRun(name, 0, 1, [b"x"]), 1, net.now)
    ivan.call("publish_as", PublisherRun("x" * 160, 0, 1, [b"x"]), 1)
    assert len(ivan.of(PublishConfirmed)) == 1


def test_publish_over_the_pending_byte_limit_is_refused(net: Net) -> None:
    ivan = net.node("Ivan", 1, max_event=1_000, pending_bytes=4_000)
    ivan.node.publish([bytes(1_000)] * 3, 1, net.now)
    with pytest.raises(PublishQueueFull):
        ivan.node.publish([bytes(1_000)], 2, net.now)
    ivan.flush()
    ivan.call("publish", [bytes(1_000)], 3)
    assert [one.token for one in ivan.of(PublishConfirmed)] == [1, 3]


def test_empty_publish_has_no_effect(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    ivan.call("publish", [], 1)
    assert ivan.of(PublishConfirmed) == ivan.of(EventsDelivered) == []


def test_run_repeated_at_several_nodes_is_ordered_once(trio: tuple[Host, Host, Host], net: Net) -> None:
    run = PublisherRun("somebody", 0, 1, [b"once"])
    for host in trio:
        host.call("publish", [b"noise"], "noise")
        host.call("publish_as", run, "first")
        host.call("publish_as", run, "at once")
    net.run(1.0)
    trio[0].call("publish_as", run, "later")
    trio[1].call("publish_as", run, "later")
    net.run(1.0)
    answers = [one for host in trio for one in host.of(PublishConfirmed) if one.token != "noise"]
    assert len(answers) == 8
    assert len({one.numbers for one in answers}) == 1
    assert [len(host.of(PublishConfirmed)) for host in trio] == [4, 4, 3]
    for host in trio:
        assert delivered(host).count(b"once") == 1


def test_overlapping_runs_order_each_event_once(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    ivan.call("publish_as", PublisherRun("p", 0, 1, [b"1", b"2"]), 1)
    ivan.call("publish", [b"between"], 2)
    ivan.call("publish_as", PublisherRun("p", 0, 2, [b"2", b"3"]), 3)
    assert ivan.of(PublishConfirmed) == [
        PublishConfirmed(1, ((1, 2),)),
        PublishConfirmed(2, ((3, 1),)),
        PublishConfirmed(3, ((2, 1), (4, 1))),
    ]
    assert delivered(ivan) == [b"1", b"2", b"between", b"3"]
    ivan.call("publish_as", PublisherRun("p", 0, 9, [b"9"]), 4)
    ivan.call("publish_as", PublisherRun("unknown", 0, 9, [b"9"]), 5)
    assert [(one.token, one.reason, one.unknown) for one in ivan.of(PublishUnconfirmed)] == [
        (4, RefusalReason.OUT_OF_ORDER, False),
        (5, RefusalReason.FORGOTTEN, True),
    ]


def test_external_publisher_is_acknowledged_by_every_node(trio: tuple[Host, Host, Host], net: Net) -> None:
    run = PublisherRun("client", 5, 1, (b"a", b"b"))
    for host in trio:
        end = connect(net, host)
        end.send(Publish(run))
        net.run(0.5)
        assert end.take() == [PublishAck("client", 5, 1, ((1, 2),))]
        end.send(Publish(run), Publish(run))
        net.run(0.5)
        assert end.take()[0] == PublishAck("client", 5, 1, ((1, 2),))
    assert [delivered(host) for host in trio] == [[b"a", b"b"]] * 3


def test_external_publisher_is_acknowledged_after_delivery(trio: tuple[Host, Host, Host], net: Net) -> None:
    end = connect(net, trio[1])
    end.send(Publish(PublisherRun("client", 0, 1, (b"a",))))
    while not end.received:
        assert net.run(1.0, lambda: bool(trio[1].of(EventsDelivered) or end.received))
        assert trio[1].of(EventsDelivered)
        net.run(0.001)


def test_invalid_runs_of_an_external_publisher_are_refused_with_a_reason(net: Net) -> None:
    ivan = net.node("Ivan", 1, max_event=1_000)
    end = connect(net, ivan)
    largest = 2**63 - 1
    for run, expected in (
        (PublisherRun("p", 0, 0, (b"x",)), RefusalReason.OUT_OF_ORDER),
        (PublisherRun("p", 0, 2, (b"x",)), RefusalReason.FORGOTTEN),
        (PublisherRun("p", 0, largest, (b"x",)), RefusalReason.FORGOTTEN),
        (PublisherRun("p", 0, 1, (bytes(1_001),)), RefusalReason.OVERSIZE),
        (PublisherRun("p", 0, 1, (bytes(600),) * 101), RefusalReason.OVERSIZE),
        (PublisherRun("p", largest, 1, (b"1",)), None),
        (PublisherRun("p", largest - 1, 1, (b"x",)), RefusalReason.OUT_OF_ORDER),
        (PublisherRun("p", largest, 3, (b"x",)), RefusalReason.OUT_OF_ORDER),
        (PublisherRun("p", largest, 0, (b"x",)), RefusalReason.OUT_OF_ORDER),
        (PublisherRun("p", largest, 2, (b"2",)), None),
    ):
        end.send(Publish(run))
        net.run(0.1)
        (answer,) = end.take()
        assert answer[:3] == run[:3]
        assert expected is None if isinstance(answer, PublishAck) else answer.why is expected
        assert not end.closed_by_peer
    assert delivered(ivan) == [b"1", b"2"]


def test_empty_runs_of_an_external_publisher_are_refused(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    end = connect(net, ivan)
    for first in (0, 1, 2, 5):
        end.send(Publish(PublisherRun("p", 0, first, ())))
    end.send(Publish(PublisherRun("p", 0, 1, (b"a", b"b"))))
    for first in (1, 2, 3, 4):
        end.send(Publish(PublisherRun("p", 0, first, ())))
    net.run(0.1)
    answers = end.take()
    assert [type(one) for one in answers] == [PublishNack] * 4 + [PublishAck] + [PublishNack] * 4
    assert delivered(ivan) == [b"a", b"b"]


def test_external_publisher_is_refused_after_the_loss_of_the_quorum(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, vera = trio
    end = connect(net, ivan)
    boris.kill()
    vera.kill()
    end.send(Publish(PublisherRun("client", 0, 1, (b"a",))))
    net.run(12.0)
    assert [(type(one), one.why) for one in end.take()] == [(PublishNack, RefusalReason.NO_QUORUM)]
    end.send(Publish(PublisherRun("client", 0, 1, (b"a",))))
    net.run(0.1)
    assert [(type(one), one.why) for one in end.take()] == [(PublishNack, RefusalReason.NO_QUORUM)]


def test_external_publisher_over_the_byte_limit_is_refused_as_too_many(trio: tuple[Host, Host, Host], net: Net) -> None:
    _ivan, _boris, _vera = trio
    small = net.node("Olga", 4, (1,), max_event=1_000, pending_bytes=4_000)
    assert net.run(10.0, lambda: mode(small) is Mode.WRK)
    end = connect(net, small)
    small.node.components.links.ready_targets.clear()  # The node cannot reach the leader.
    for number in range(1, 7):
        end.send(Publish(PublisherRun("client", 0, number, (bytes(1_000),))))
    net.run(0.1)
    assert [(one.first, one.why) for one in end.take()] == [
        (4, RefusalReason.TOO_MANY),
        (5, RefusalReason.TOO_MANY),
        (6, RefusalReason.TOO_MANY),
    ]


def test_temporarily_refused_run_is_resent_before_later_runs(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, _ = trio
    peer = next(end.peer for end in boris.ends.values() if end.peer.address == net.address(1))
    boris.call("publish", [b"1"], 1)
    run = next(one.run for _, _, one in boris.wrote if isinstance(one, Publish))
    ivan.up = False  # The leader misses this run; it replies as a leader without a quorum does.
    net.run(0.002)
    ivan.up = True
    boris.node.receive(PublishNack(*run[:3], RefusalReason.NO_QUORUM, "not yet"), peer, net.now)
    boris.flush()
    boris.call("publish", [b"2"], 2)
    net.run(2.0)
    assert boris.of(PublishUnconfirmed) == []
    assert [one.token for one in boris.of(PublishConfirmed)] == [1, 2]


def test_failed_dial_of_an_unknown_address_is_ignored(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    ivan.events.clear()
    ivan.call("dial_failed", ("10.0.0.77", 7_878), "refused")
    assert (ivan.events, ivan.dialled) == ([], [])
    assert mode(ivan) is Mode.WRK


def test_event_is_ordered_only_behind_the_expected_one(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, vera, olga = trio
    vera.call("publish_as", PublisherRun("p", 1, 1, [b"a"], 0), "a")
    olga.call("publish_as", PublisherRun("q", 1, 1, [b"b"], 0), "b")
    net.run(1.0)
    assert [one.numbers for one in vera.of(PublishConfirmed)] == [((1, 1),)]
    (failed,) = olga.of(PublishUnconfirmed)
    assert failed == PublishUnconfirmed(
        "b", (), RefusalReason.UNEXPECTED, "the last event has number 1, not 0", False, 1
    )
    assert delivered(ivan) == [b"a"]


def test_condition_is_refused_while_a_member_does_not_know_of_any(trio: tuple[Host, Host, Host], net: Net) -> None:
    ivan, boris, vera = trio
    for host in (boris, ivan):
        (known,) = [one for one in host.node.components.neighbours if one.info.name == "Vera"]
        assert known.info.ours is not None
        known.info = known.info._replace(ours=known.info.ours._replace(version=1))
        with pytest.raises(NotOrdered) as raised:
            host.node.publish_as(PublisherRun("p", 1, 1, [b"a"], 0), "a", net.now)
        assert (raised.value.why, raised.value.unknown) == ("not-supported", False)
    # This node has not heard of the old version yet.
    vera.call("publish_as", PublisherRun("p", 1, 1, [b"a"], 0), "a")
    net.run(1.0)
    (failed,) = vera.of(PublishUnconfirmed)
    assert (failed.reason, failed.unknown) == (RefusalReason.NOT_SUPPORTED, False)
    assert delivered(ivan) == []
