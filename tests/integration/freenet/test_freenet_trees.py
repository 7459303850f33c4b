"""Trees over many node processes, of which some are killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from integration.running.programs import Start

from fyrehose_twisted.freenet.wire.location import distance, key_location
from fyrehose_twisted.freenet.wire.signing import named_key

KEY = named_key("news")


@pytest.mark.extended
@pytest.mark.parametrize("count", [16, pytest.param(50, marks=pytest.mark.soak(seconds=120))])
def test_tree_of_node_processes_heals_after_kills(network: Callable[..., Any], count: int) -> None:
    # With a smaller HTL, many searches miss the root, and there are two trees for a while.
    nodes = network(count, "--max-htl", 40, chords=(7, 19), subscribers=range(0, count, 5))
    for node in nodes:
        node.start()
    tree = nodes.wait_for_one_tree()
    roots = [node for node, stream in tree.items() if stream["is_root"]]
    published: list[tuple[int, str]] = []

    def publish(by: Any, *packets: str) -> None:
        published.extend(zip(by.publish(*packets), packets, strict=True))

    publisher = nodes.subscribers()[0]
    publish(publisher, *(f"calm {number}" for number in range(10)))
    nodes.wait_for_packet(published[-1][0])
    # The node with the largest subtree, except the root and the publisher.
    mine = publisher.status()["node"]
    inner = max(tree, key=lambda one: (one not in (*roots, mine), len(tree[one]["subscribers"])))
    killed = [nodes.by_id(inner)]
    killed[0].kill()
    publish(publisher, *(f"without an inner node {number}" for number in range(10)))
    nodes.wait_for_packet(published[-1][0])
    root = nodes.by_id(next(node for node, stream in nodes.wait_for_one_tree().items() if stream["is_root"]))
    if root is publisher:
        publisher = nodes.subscribers()[-1]
    root.kill()
    killed.append(root)
    publish(publisher, *(f"without the root {number}" for number in range(10)))
    nodes.wait_for_packet(published[-1][0])
    # A node that never subscribed belongs to the tree while it has packets to publish.
    stranger = next(node for node in nodes if node.number % 5 and node not in killed)
    publish(stranger, "from afar")
    nodes.wait_for_packet(published[-1][0])
    alive = nodes.subscribers()
    assert len(alive) >= len(range(0, count, 5)) - 2
    for node in alive:
        node.stop()
    assert len(published) == 31
    for node in alive:
        assert node.journal() == published, node
    for node in (one for one in killed if "--journal" in one.options):
        assert set(node.journal()) <= set(published)


@pytest.mark.extended
def test_tree_is_rooted_at_the_node_nearest_to_the_key(network: Callable[..., Any]) -> None:
    nodes = network(8, chords=(3,), subscribers=(0, 3, 6))
    for node in nodes:
        node.start()
    nodes.wait_for_one_tree()
    place = key_location(KEY)
    nearest = min(nodes, key=lambda node: distance(node.number / 8, place))
    # Another node may be the root until it has probed for a better one.
    nearest.wait_for(lambda state: any(stream["is_root"] for stream in state["streams"]))
    nodes.wait_for_one_tree(root=nearest)


def test_restarted_subscriber_receives_the_packets_it_missed(network: Callable[..., Any]) -> None:
    nodes = network(4, subscribers=(0, 2))
    for node in nodes:
        node.start()
    for node in nodes.subscribers():
        node.wait_until_settled()
    away, here = nodes[0], nodes[2]
    before = away.status()
    first = here.publish("one", "two")
    away.wait_for_packet(first[-1])
    away.kill()
    second = here.publish("three", "four", "five")
    away.start().wait_for_packet(second[-1])
    after = away.status()
    assert (after["node"], after["location"]) == (before["node"], before["location"])
    assert after["boot"] != before["boot"]
    away.stop()
    assert away.journal() == list(zip([*first, *second], ["one", "two", "three", "four", "five"], strict=True))


@pytest.mark.extended
def test_node_with_another_secret_is_no_neighbour(network: Callable[..., Any], tmp_path: Path) -> None:
    for name, secret in (("right", "a" * 32), ("wrong", "b" * 32)):
        path = tmp_path / name
        path.write_text(secret)
        path.chmod(0o600)
    nodes = network(3, subscribers=(0,))
    for node, secret in zip(nodes, ("right", "right", "wrong"), strict=True):
        node.options += ["--secret-file", secret]
        node.start()
    nodes[2].wait_for(lambda state: state["counts"].get("refused_wrong_secret", 0) >= 2)
    nodes[0].wait_for(lambda state: len(state["neighbours"]) == 1)
    nodes[1].wait_for(lambda state: state["counts"].get("refused_wrong_secret", 0) >= 1)
    assert nodes[2].status()["neighbours"] == []


@pytest.mark.extended
def test_only_the_holder_of_the_key_publishes_to_a_signed_stream(
    network: Callable[..., Any], start: Start, tmp_path: Path
) -> None:
    def fyrehose(*arguments: object) -> Any:
        program = start("fyrehose", "freenet", *arguments, cwd=tmp_path)
        program.finish()
        return program

    made = fyrehose("key", "--new", "key")
    key = bytes.fromhex(made.out.split()[0])
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert fyrehose("key", "key").out == made.out
    fyrehose("key", "--new", "other")
    nodes = network(3)
    for node in nodes:
        node.options += ["--subscribe", key.hex(), "--journal", f"{node.number}.journal"]
        node.start()
    for node in nodes:
        node.wait_until_settled(key)
    control = f"tcp:{nodes[1].control}"
    # Its number follows a gap, so that the first subscriber does not matter.
    subscribe = "fyrehose", "freenet", "subscribe", "-c", f"tcp:{nodes[2].control}", key.hex(), "--after=-1"
    following = start(*subscribe, "--count", 3)
    published = start("fyrehose", "freenet", "publish", "-c", control, "--key-file", "key", key.hex(), cwd=tmp_path)
    assert published.finish(b"first\nsecond\n") == 0, published
    third = fyrehose("publish", "-c", control, "--key-file", "key", key.hex(), "third", "one")
    numbers = [*map(int, published.out.split()), int(third.out)]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    refused = fyrehose("publish", "-c", control, key.hex(), "unsigned")
    assert "must be signed" in refused.err
    refused = fyrehose("publish", "-c", control, "--key-file", "other", key.hex(), "not mine")
    assert "is the key of" in refused.err
    with closing(nodes[0].asking()) as asking:
        # The signature is for another number.
        forged = nodes[0].journal
        answer = asking.ask(ask="publish", key=key.hex(), data="x" * 200, number=numbers[-1] + 1, id=1)
    assert answer["why"] == "bad-signature", forged
    for node in nodes:
        node.wait_for_packet(numbers[-1], key)
    assert following.finish() == 0, following
    assert following.out.splitlines() == ["first", "second", "third one"], following
    for node in nodes:
        node.stop()
    expected = list(zip(numbers, ["first", "second", "third one"], strict=True))
    assert [node.journal(key) for node in nodes] == [expected] * 3


@pytest.mark.extended
def test_invalid_node_options_are_reported_before_the_start(
    start: Start, free_port: Callable[[], int], tmp_path: Path
) -> None:
    def listen(more: str = "") -> tuple[str, str]:
        return "--listen", f"tcp:{free_port()}{more}"  # Each node probes its port, so it has one of its own.

    (tmp_path / "bad").write_text("{}")
    said = {
        listen(":interface=0.0.0.0"): "is not on loopback: give --secret-file",
        (*listen(), "--control", "tcp:1:interface=0.0.0.0"): "publishes in this node's name",
        ("--location", "1.0"): "--location 1.0: a location goes from 0",
        ("--subscribe", "x"): "'x' is not a key",
        (*listen(), "--peer", "nobody"): "--peer 'nobody' is neither HOST:PORT",
        (*listen(), "--state", "bad"): "is not that of a freenet node",
        ("--coalesce", "never"): "coalesce='never': choose one of queue, reject, parallel",
    }
    command = "twistd", "-n", "--pidfile=", "freenet-node"
    # They start concurrently.
    programs = {options: start(*command, *options, cwd=tmp_path) for options in said}
    for options, program in programs.items():
        assert program.finish() == 1, program
        assert said[options] in program.out + program.err, program
    assert not os.path.exists(tmp_path / "twistd.pid")
