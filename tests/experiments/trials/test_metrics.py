"""Metrics of networks small enough to count by hand. The latency is 0.05 seconds."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan

import pytest

from fyrehose_twisted.experiments import Policy, Topology, TreeExperiment
from fyrehose_twisted.freenet.events import Packet, PacketPublished, PacketsDelivered
from fyrehose_twisted.freenet.wire.messages import SubscribeData
from fyrehose_twisted.sim.invariants import InvariantViolated

KEY = bytes(20)
OTHER = bytes(range(20))
LEAST_JITTER = Policy(restart_jitter=0.0)

Make = Callable[..., TreeExperiment]
Publish = Callable[..., int]


def picked(experiment: TreeExperiment, *names: str) -> tuple[float, ...]:
    metrics = experiment.metrics()
    return tuple(metrics[name] for name in names)


class TestTrees:
    def test_an_idle_experiment_has_no_measurements(self, line: Make) -> None:
        metrics = line().metrics()
        zero = {name for name, value in metrics.items() if value == 0.0}
        assert zero == {"keys", "subscribers", "members", "cycles", "messages", "simulated"}
        assert all(isnan(value) for name, value in metrics.items() if name not in zero)

    def test_members_of_a_tree_are_counted(self, line: Make, grown: Make) -> None:
        experiment = grown(line(), 0, 2)
        assert picked(experiment, "keys", "subscribers", "members") == (1.0, 2.0, 5.0)
        assert picked(experiment, "members_per_subscriber", "roots_per_key", "reach") == (2.5, 1.0, 1.0)

    def test_depth_counts_only_subscribers(self, line: Make, grown: Make) -> None:
        experiment = grown(line(), 0, 2)
        assert picked(experiment, "depth_mean", "depth_max") == (3.0, 4.0)

    def test_stretch_is_the_depth_divided_by_the_shortest_path(self, line: Make, grown: Make) -> None:
        experiment = grown(line(), 0, 2)
        assert picked(experiment, "stretch") == (1.0,)
        experiment.link(0, 4)
        experiment.run()
        # 4 links where 1 would do, and 2 where 2 have to be.
        assert picked(experiment, "stretch", "depth_max") == (2.5, 4.0)

    def test_a_root_has_depth_but_no_stretch(self, line: Make, grown: Make) -> None:
        experiment = grown(line(), 4)
        assert picked(experiment, "depth_mean", "depth_max") == (0.0, 0.0)
        assert isnan(experiment.metrics()["stretch"])

    def test_link_stress_counts_the_trees_of_a_link(self, line: Make, grown: Make) -> None:
        experiment = grown(grown(line(), 0), 2, key=OTHER)
        # Four links of the one, and of these two of the other too.
        assert picked(experiment, "link_stress_mean", "link_stress_max") == (6 / 4, 2.0)

    def test_streams_are_counted_by_node(self, line: Make, grown: Make) -> None:
        experiment = grown(grown(line(), 0), 2, key=OTHER)
        assert picked(experiment, "streams_per_node_mean", "streams_per_node_max") == (8 / 5, 2.0)
        assert picked(experiment, "keys", "subscribers", "members", "members_per_subscriber") == (2.0, 2.0, 8.0, 4.0)

    def test_fan_out_counts_the_children_of_members_that_have_any(self, grown: Make) -> None:
        star = Topology.from_edges([(0, 1), (0, 2), (0, 3), (3, 4)], [0.71, 0.1, 0.2, 0.3, 0.35])
        experiment = grown(TreeExperiment(star), 1, 2, 4)
        assert picked(experiment, "fan_out_mean", "fan_out_max") == ((3 + 1) / 2, 3.0)
        experiment.kill(1)
        experiment.run()
        # The root still keeps a place for it, but it is no child any more.
        assert picked(experiment, "fan_out_mean", "fan_out_max") == ((2 + 1) / 2, 2.0)

    def test_a_tree_that_is_split_reaches_a_part(self, line: Make, grown: Make) -> None:
        experiment = grown(line(LEAST_JITTER), 0, 2, 4)
        experiment.kill(3)
        experiment.run()
        assert picked(experiment, "roots_per_key", "reach", "subscribers") == (2.0, 2 / 3, 3.0)
        assert picked(experiment, "depth_mean", "depth_max") == ((2 + 0 + 0) / 3, 2.0)

    def test_a_tree_without_a_root_reaches_no_subscriber(self, line: Make, grown: Make) -> None:
        experiment = grown(line(Policy(restart_jitter=100.0), seed=2), 0, 2)
        experiment.kill(3)
        experiment.run(experiment.now + 0.06)
        assert picked(experiment, "reach") == (0.0,)

    def test_streams_without_subscribers_do_not_count(self, line: Make, grown: Make) -> None:
        experiment = grown(line(), 0)
        experiment.unsubscribe(0, KEY)
        experiment.run()
        assert picked(experiment, "keys", "subscribers", "members") == (0.0, 0.0, 0.0)

    def test_cycles_count_the_nodes_in_cycles(self, line: Make, grown: Make) -> None:
        experiment = grown(line(), 0)
        nodes = experiment._network.nodes
        parent = nodes[2].streams[KEY].parent
        nodes[3].streams[KEY].parent = next(one for one in nodes[3].streams[KEY].subscribers if one.node == 2)
        assert parent is not None
        assert picked(experiment, "cycles", "reach") == (2.0, 0.0)


class TestSubscriptions:
    def test_the_first_subscription_to_a_key_is_measured_separately(self, line: Make, grown: Make) -> None:
        experiment = grown(line(), 2, 0, 3)
        names = ("requests_first", "requests_later", "messages_first", "messages_later")
        # The first one passes 2 links, over each of which 4 messages go. The next passes 2 as well; the node at the
        # end of the second one has the stream, and says so at once. The last one has it already.
        assert picked(experiment, *(f"subscribe_{name}" for name in names)) == (2.0, (2 + 0) / 2, 8.0, (4 + 2 + 0) / 2)
        assert picked(experiment, "subscribe_hops", "subscribe_success") == ((2 + 4 + 1) / 3, 1.0)

    def test_each_key_has_its_own_first_subscription(self, line: Make, grown: Make) -> None:
        experiment = grown(grown(line(), 0), 3, key=OTHER)
        assert picked(experiment, "subscribe_requests_first") == ((4 + 1) / 2,)
        assert isnan(experiment.metrics()["subscribe_requests_later"])

    def test_failed_subscriptions_count(self, line: Make, grown: Make) -> None:
        experiment = grown(line(Policy(max_streams=1, retry=False)), 2)
        experiment.subscribe(0, OTHER).addErrback(lambda _: None)
        experiment.run()
        assert picked(experiment, "subscribe_success") == (0.5,)
        # Each request went over two links. That there is no room goes back over both.
        assert picked(experiment, "overload_rate") == (2 / 4,)


class TestPackets:
    def test_latency_is_from_publishing_to_delivery(self, line: Make, grown: Make, published: Publish) -> None:
        experiment = grown(line(), 0, 2, 4)
        published(experiment, 0, b"hello")
        # Four links up to the root, which has it then; down again two links, and four.
        assert picked(experiment, "latency_p50", "latency_p99") == pytest.approx((6 * 0.05, 8 * 0.05))
        assert picked(experiment, "delivery_ratio", "duplicates") == (1.0, 0.0)
        assert isnan(experiment.metrics()["lost_in_repair"])

    def test_packets_that_do_not_reach_a_partition_are_missing(
        self, line: Make, grown: Make, published: Publish
    ) -> None:
        experiment = grown(line(LEAST_JITTER), 0, 2, 4)
        published(experiment, 4, b"before")
        experiment.kill(3)
        experiment.run()
        published(experiment, 4, b"after")
        assert picked(experiment, "delivery_ratio", "lost_in_repair") == ((3 + 1) / (3 + 3), 2.0)

    def test_dead_and_unsubscribed_nodes_miss_nothing(self, line: Make, grown: Make, published: Publish) -> None:
        experiment = grown(line(), 0, 1, 4)
        experiment.publish(4, KEY, b"hello")
        experiment.kill(0)
        experiment.unsubscribe(1, KEY)
        experiment.run()
        assert picked(experiment, "delivery_ratio", "lost_in_repair") == (1.0, 0.0)

    def test_only_a_delivery_that_is_due_can_be_missing(self, line: Make) -> None:
        experiment = line()
        world, measures = experiment._network, experiment._metrics
        stayed, died, served, _, left = range(5)
        for node in range(5):
            measures.subscribe_started(node, KEY)
        measures.fault_occurred()
        measures.publish_started(1, stayed, KEY, b"x")
        measures.on_event(stayed, PacketsDelivered(KEY, [Packet(7, b"x")]))
        measures.on_event(stayed, PacketPublished(1, KEY, 7))
        world.packets_in_flight[KEY, 7, b"x"] = 1
        world.now = 0.1
        measures.node_died(died)
        del world.packets_in_flight[KEY, 7, b"x"]
        measures.on_event(served, PacketsDelivered(KEY, [Packet(7, b"x")]))
        measures.node_died(served)
        measures.unsubscribed(left, KEY)
        world.now = 5.0
        measures.on_event(died, PacketsDelivered(KEY, [Packet(7, b"x")]))
        # Due to four: two have it, one was cut off, one left when the packet had come to all others.
        assert picked(experiment, "delivery_ratio", "lost_in_repair") == (2 / 4, 2.0)
        assert picked(experiment, "latency_p50", "latency_p99") == (0.1, 0.1)

    def test_a_departure_before_the_last_delivery_is_no_loss(self, line: Make) -> None:
        experiment = line()
        measures = experiment._metrics
        for node in range(3):
            measures.subscribe_started(node, KEY)
        measures.publish_started(1, 0, KEY, b"x")
        measures.on_event(0, PacketPublished(1, KEY, 7))
        measures.node_died(1)
        measures.on_event(2, PacketsDelivered(KEY, [Packet(7, b"x")]))
        measures.publish_started(2, 0, KEY, b"y")
        measures.on_event(0, PacketPublished(2, KEY, 8))
        measures.on_event(1, PacketsDelivered(KEY, [Packet(8, b"y")]))
        # Of the first packet, due to 0 and 2, one came; of the second, due to all three, one.
        assert picked(experiment, "delivery_ratio") == (2 / 5,)

    def test_two_packets_with_the_same_number_are_counted_separately(self, line: Make) -> None:
        experiment = line()
        measures = experiment._metrics
        for node in range(3):
            measures.subscribe_started(node, KEY)
        for token, (publisher, data) in enumerate([(0, b"x"), (1, b"y")]):
            measures.publish_started(token, publisher, KEY, data)
            measures.on_event(publisher, PacketsDelivered(KEY, [Packet(7, data)]))
            measures.on_event(publisher, PacketPublished(token, KEY, 7))
        measures.on_event(2, PacketsDelivered(KEY, [Packet(7, b"x")]))
        measures.on_event(2, PacketsDelivered(KEY, [Packet(7, b"y")]))
        # Each is due to all three, and has come to its publisher and to 2.
        assert picked(experiment, "delivery_ratio") == (4 / 6,)
        experiment.check()
        measures.on_event(2, PacketsDelivered(KEY, [Packet(7, b"y")]))
        with pytest.raises(InvariantViolated, match="delivered twice"):
            experiment.check()

    def test_packets_are_not_due_to_later_subscribers(self, line: Make, grown: Make, published: Publish) -> None:
        experiment = grown(line(), 2)
        published(experiment, 2, b"hello")
        experiment.run(100.0)
        # It gets what was kept.
        grown(experiment, 0)
        assert picked(experiment, "delivery_ratio") == (1.0,)
        assert experiment.metrics()["latency_p99"] < 1.0

    def test_duplicates_are_counted_by_delivery(self, line: Make, grown: Make, published: Publish) -> None:
        experiment = grown(line(), 0, 2)
        number = published(experiment, 0, b"hello")
        experiment._network.nodes[2].receive(SubscribeData(KEY, number, b"hello"), 3, experiment.now)
        assert picked(experiment, "duplicates") == (1 / 2,)


class TestRepairs:
    def test_repair_time_is_measured_from_detection_to_the_new_parent(self, ring: Make, grown: Make) -> None:
        experiment = grown(ring(LEAST_JITTER), 1, 0)
        experiment.kill(2)
        experiment.run()
        # Its other neighbour is on the tree: a request there, and the answer.
        assert picked(experiment, "repair_time_p50", "repair_time_p99") == pytest.approx((0.1, 0.1))
        assert picked(experiment, "repair_requests", "repair_restarted") == (1.0, 0.0)

    def test_a_restart_of_the_root_is_announced_to_each_member_once(self) -> None:
        topology = Topology.kleinberg(300, 10, seed=2)
        experiment = TreeExperiment(topology, seed=2)
        for node in range(0, 300, 6):
            experiment.subscribe(node, KEY)
            experiment.run()
        world = experiment._network

        def counted(name: str) -> int:
            return sum(node.counters[name] for node in world.nodes.values())

        experiment.run(1_300.0)
        experiment.run()
        told, restarts = counted("restarted_sent"), counted("volunteered")
        experiment.run(3_000.0)
        experiment.run()
        restarts = counted("volunteered") - restarts
        assert restarts >= 4
        assert counted("restarted_sent") - told == restarts * (len(experiment.tree(KEY)) - 1)

    def test_restart_announcements_and_requests_in_the_subtree_are_counted(self, line: Make, grown: Make) -> None:
        experiment = grown(line(LEAST_JITTER), 0, 2)
        experiment.kill(3)
        experiment.run()
        # The request goes down two links, and comes back as often: then the highest one is root itself.
        assert picked(experiment, "repair_time_p50") == pytest.approx((0.2,))
        assert picked(experiment, "repair_requests", "repair_restarted") == (2.0, 2.0)

    def test_restarts_are_counted_by_hour_of_membership(self, line: Make, grown: Make) -> None:
        experiment = grown(line(Policy(restart_jitter=0.0, first_probe=1e6, restart_interval=1e6)), 0)
        # They became members 0.2, 0.25, 0.3, 0.35 and 0.4 seconds after the start.
        experiment.run(10.0)
        assert picked(experiment, "restarts_per_stream_hour") == (0.0,)
        experiment.kill(3)
        experiment.run()
        hours = (5 * 10.0 - 1.5 + 4 * (experiment.now - 10.0)) / 3_600.0
        assert picked(experiment, "restarts_per_stream_hour") == pytest.approx((1 / hours,))

    def test_probes_of_a_root_count_as_restarts(self, line: Make, grown: Make) -> None:
        experiment = grown(line(Policy(first_probe=2.0)), 0)
        experiment.run(10.0)
        # After 2 seconds, and 4 after that, more or less.
        assert picked(experiment, "restarts_per_stream_hour") == pytest.approx((2 / (5 * 10.0 - 1.5) * 3_600.0,))

    def test_an_unfinished_repair_is_not_measured(self, line: Make, grown: Make) -> None:
        experiment = grown(line(Policy(restart_jitter=100.0), seed=2), 0, 2)
        experiment.kill(3)
        experiment.run(experiment.now + 0.16)
        assert isnan(experiment.metrics()["repair_time_p50"])
        assert picked(experiment, "repair_requests", "repair_restarted") == (0.0, 2.0)


def test_messages_and_time_are_counted_from_the_start(line: Make, grown: Make) -> None:
    experiment = grown(line(Policy(first_probe=1e6, restart_interval=1e6)), 0)
    experiment.run(7.0)
    assert picked(experiment, "messages", "simulated") == (16.0, 7.0)
    assert experiment.messages == 16


def test_all_metrics_are_numbers(ring: Make, grown: Make) -> None:
    assert all(type(value) is float for value in grown(ring(), 0, 1).metrics().values())
