"""Followers of node processes whose cluster was wiped and bootstrapped again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from integration.running.cluster import StartCluster
from integration.running.programs import Program, Start


def lines(first: int, last: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(first, last + 1))


def printed(follower: Program) -> list[tuple[str, int]]:
    found = [json.loads(line) for line in follower.out.splitlines()]
    return [(one["cluster_id"], one["sequence"]) for one in found]


def test_cluster_id_survives_a_restart_but_not_the_loss_of_the_data(
    start: Start, start_cluster: StartCluster, tmp_path: Path
) -> None:
    (node,) = start_cluster("east", options=lambda node: ["--journal", "kept"]).values()
    former = node.state()["cluster_id"]
    assert node.publish(b"one") == 1
    command = "fyrehose", "parcels", "follow", "--http", node.url, "--format", "json"
    follower = start(*command, "--from", 1)
    follower.wait_for(r'"sequence": 1, ')
    node.kill()
    node.start()
    assert node.wait_to_work("east")["cluster_id"] == former
    assert node.publish(b"two") == 2
    follower.wait_for(r'"sequence": 2, ')

    node.kill()
    shutil.rmtree(tmp_path / "kept")
    node.start()
    cluster_id = node.wait_to_work("east")["cluster_id"]
    assert cluster_id != former
    assert [node.publish(b"another %d" % number) for number in range(1, 5)] == [1, 2, 3, 4]
    assert follower.finish() == 1, follower
    assert printed(follower) == [(former, 1), (former, 2)]
    assert follower.err == (
        f"fyrehose: the cluster was re-created as {cluster_id}, and its numbers are not those of {former}; read it"
        f" from its first event on: --from 1, without --cluster-id or with --cluster-id {cluster_id}\n"
    )
    again = start(*command, "--from", 3, "--founding", former)
    assert again.finish() == 1
    assert "re-created" in again.err
    stream = {"Accept": "text/event-stream"}
    status, body = node.ask("/events", **stream, Last_Event_ID=f"{former}-2")
    assert (status, json.loads(body)["error"], json.loads(body)["cluster_id"]) == (409, "other-founding", cluster_id)
    status, body = node.ask("/events", **stream, Last_Event_ID="99")
    assert (status, json.loads(body)["error"]) == (409, "beyond-end")
    beyond = start(*command, "--from", 100)
    assert beyond.finish() == 1
    assert beyond.err == "fyrehose: event 100 lies beyond the end; the next one will be 5\n"
    whole = start(*command, "--from", 1, "--count", 4, "--cluster-id", cluster_id)
    assert whole.finish() == 0, whole
    assert printed(whole) == [(cluster_id, number) for number in range(1, 5)]


@pytest.mark.extended
def test_follower_of_all_nodes_fails_when_the_cluster_was_wiped(start: Start, start_cluster: StartCluster) -> None:
    cluster = start_cluster("east", "north", "west")
    (former,) = {node.state()["cluster_id"] for node in cluster.values()}
    urls = [part for node in cluster.values() for part in ("--http", node.url)]
    publisher = start("fyrehose", "parcels", "publish", "--node", cluster["north"].address)
    assert publisher.finish(lines(1, 100)) == 0, publisher
    follower = start("fyrehose", "parcels", "follow", *urls, "--from", 1, "--format", "json")
    follower.wait_for(r'"sequence": 100, ')
    for node in cluster.values():
        node.kill()
    for node in cluster.values():
        node.start()
    cluster.wait_to_work()
    (cluster_id,) = {node.state()["cluster_id"] for node in cluster.values()}
    assert cluster_id != former
    publisher = start("fyrehose", "parcels", "publish", "--node", cluster["north"].address)
    assert publisher.finish(lines(1, 108)) == 0, publisher
    assert follower.finish() == 1, follower
    assert printed(follower) == [(former, number) for number in range(1, 101)]
    assert f"the cluster was re-created as {cluster_id}" in follower.err
