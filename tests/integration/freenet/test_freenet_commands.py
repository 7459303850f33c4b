"""``fyrehose freenet`` commands on real nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from integration.running.programs import Start

from fyrehose_twisted.freenet.wire.signing import named_key

KEY = named_key("news")
Run = Callable[..., Any]


@pytest.fixture
def freenet(start: Start, tmp_path: Path) -> Run:
    """Return a function that runs ``fyrehose freenet`` with a node's control port until it exits."""

    def run(node: Any, command: str, *arguments: object, data: bytes = b"") -> Any:
        program = start("fyrehose", "freenet", command, "-c", f"tcp:{node.control}", *arguments, cwd=tmp_path)
        program.finish(data)
        return program

    return run


def test_publishing_to_a_stream_without_subscribers_fails(network: Callable[..., Any], freenet: Run) -> None:
    nodes = network(2)
    for node in nodes:
        node.start()
    for node in nodes:
        node.wait_for(lambda state: len(state["neighbours"]) == 1)
    refused = freenet(nodes[1], "publish", KEY.hex(), "to nobody")
    assert (refused.process.returncode, refused.out) == (1, ""), refused
    assert "no-subscribers" in refused.err, refused
    lines = freenet(nodes[1], "publish", KEY.hex(), data=b"a\nb\n")
    assert (lines.process.returncode, lines.out) == (1, ""), lines
    assert "2 of 2 lines not published" in lines.err, lines
    allowed = freenet(nodes[1], "publish", "--allow-no-subscribers", KEY.hex(), "all the same")
    assert (allowed.process.returncode, allowed.err) == (0, ""), allowed
    nodes[0].options += ["--subscribe", KEY.hex()]
    nodes[0].stop()
    nodes[0].start().wait_until_settled()
    nodes[1].wait_for(lambda state: len(state["neighbours"]) == 1)
    published = freenet(nodes[1], "publish", KEY.hex(), "to a subscriber")
    assert (published.process.returncode, published.err) == (0, ""), published
    nodes[0].wait_for_packet(int(published.out))


def test_subscribe_fails_when_too_few_packets_arrive_in_time(network: Callable[..., Any], freenet: Run) -> None:
    nodes = network(2, subscribers=(0,))
    for node in nodes:
        node.start()
    nodes.wait_for_one_tree()
    nodes[0].publish("one")
    late = freenet(nodes[1], "subscribe", "--count", 2, "--within", 3, KEY.hex())
    assert (late.process.returncode, late.out) == (1, "one\n"), late
    assert "only 1 of 2 packets arrived within 3 s" in late.err, late


def test_publishing_through_a_node_creates_no_journal_there(network: Callable[..., Any], freenet: Run) -> None:
    nodes = network(2)
    nodes[0].options += ["--subscribe", KEY.hex()]
    nodes[1].options += ["--journal", "kept"]
    for node in nodes:
        node.start()
    nodes[0].wait_until_settled()
    nodes[1].wait_for(lambda state: len(state["neighbours"]) == 1)
    published = freenet(nodes[1], "publish", KEY.hex(), data=b"one\ntwo\n")
    assert published.process.returncode == 0, published
    nodes[0].wait_for_packet(int(published.out.split()[-1]))
    assert not (nodes[1].root / "kept" / f"freenet-{KEY.hex()}").exists()
    # A subscription creates it.
    read = freenet(nodes[1], "subscribe", "--count", 2, "--within", 60, KEY.hex())
    assert (read.process.returncode, read.out) == (0, "one\ntwo\n"), read
    assert (nodes[1].root / "kept" / f"freenet-{KEY.hex()}").exists()
