"""Cluster resources of the node's site, and the reform request."""

from __future__ import annotations

import json
from typing import Any

import pytest
import pytest_twisted
from parcels.web.harness import Memory, Serve, Served
from prometheus_client.parser import text_string_to_metric_families

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.parcels.backup import unpack_events, unpack_head
from fyrehose_twisted.parcels.web import WebConfig, backup

inline = pytest_twisted.ensureDeferred


@inline
async def test_cluster_resource_lists_members_and_neighbours(web: Served) -> None:
    web.node.order(b"x")
    found = (await web.ask("GET", "/cluster")).json
    member = {"name": "node-1", "incarnation": "0" * 16, "address": "127.0.0.1:4000", "alive": True}
    assert found["members"] == [{**member, "term": 3, "sequence": 1, "lag": 0}]
    assert found["neighbours"][0]["votes"] is False
    assert (found["sequence"], found["mode"], found["leader"], found["quorum"]) == (1, "Wrk", "node-1", 1)


@inline
async def test_health_reports_the_mode_and_fails_without_a_quorum(web: Served) -> None:
    answer = await web.ask("GET", "/health")
    assert (answer.code, answer.json) == (200, {"mode": "Wrk", "why": "alone"})
    web.node.no_quorum()
    answer = await web.ask("GET", "/health")
    assert (answer.code, answer.json) == (503, {"mode": "Err", "why": "no quorum"})


@inline
async def test_reform_over_http_requires_the_cluster_name_and_no_quorum(web: Served) -> None:
    async def reform(body: Any) -> tuple[int, str]:
        answer = await web.ask("POST", "/cluster/reform", json.dumps(body).encode())
        return answer.code, answer.json.get("error", "")

    assert await reform({"reform": "test"}) == (409, "working")
    web.node.no_quorum()
    assert await reform({"reform": "tset"}) == (409, "wrong-cluster")
    for body in ({}, {"reform": 1}, [], None, {"reform": "test", "force": True}):
        assert (await reform(body))[0] == 400
    assert web.node.reformed == 0
    assert await reform({"reform": "test"}) == (202, "")
    assert web.node.reformed == 1


@inline
async def test_leadership_is_transferred_over_http(web: Served) -> None:
    async def transfer(body: Any) -> tuple[int, dict[str, Any]]:
        answer = await web.ask("POST", "/cluster/transfer", json.dumps(body).encode())
        return answer.code, answer.json

    assert await transfer({}) == (202, {"to": "node-2"})
    assert await transfer({"to": "node-2"}) == (202, {"to": "node-2"})
    code, said = await transfer({"to": "node-3"})
    assert (code, said["error"]) == (409, "no-successor")
    for body in ({"to": 1}, {"to": None}, [], {"to": "node-2", "now": True}):
        assert (await transfer(body))[0] == 400
    web.node.mode = "Err"
    code, said = await transfer({})
    assert (code, said["error"], said["leader"]) == (409, "not-leader", "node-7")


@inline
async def test_member_is_removed_over_http(web: Served) -> None:
    async def remove(body: Any) -> tuple[int, dict[str, Any]]:
        answer = await web.ask("POST", "/cluster/remove", json.dumps(body).encode())
        return answer.code, answer.json

    assert await remove({"name": "node-2"}) == (202, {"removed": "node-2"})
    code, said = await remove({"name": "node-3"})
    assert (code, said["error"]) == (409, "no-such-member")
    for body in ({}, {"name": 1}, [], {"name": "node-2", "now": True}):
        assert (await remove(body))[0] == 400
    web.node.mode = "Err"
    code, said = await remove({"name": "node-2"})
    assert (code, said["error"], said["leader"]) == (409, "not-leader", "node-7")


@inline
async def test_backup_has_a_head_and_pages_of_events(
    web: Served, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "PAGE_BYTES", 10)
    memory.order(b"12345", b"67890", b"x" * 50, b"y")
    answer = await web.ask("GET", "/backup")
    assert (answer.code, answer.headers["content-type"]) == (200, "application/cbor")
    head = unpack_head(answer.body)
    assert (head.cluster, head.oldest, head.last, head.state) == ("test", 1, 4, None)
    pages, first = [], 1
    while first <= head.last:
        events = unpack_events((await web.ask("GET", f"/backup/events?from={first}")).body)
        pages.append([event.sequence for event in events])
        first += len(events)
    assert pages == [[1, 2], [3], [4]]
    memory.forget(3)
    answer = await web.ask("GET", "/backup/events?from=2")
    assert (answer.code, answer.json["error"], answer.json["oldest"]) == (410, "not-held", 3)
    for query in ("", "?from=0", "?from=1&to=2"):
        assert (await web.ask("GET", f"/backup/events{query}")).code == 400
    memory.no_quorum()
    answer = await web.ask("GET", "/backup")
    assert (answer.code, answer.json["error"]) == (503, "behind")


@inline
async def test_reform_over_http_requires_the_token(memory: Memory, serve: Serve) -> None:
    web = serve(memory, token=b"t")
    memory.no_quorum()
    assert (await web.ask("POST", "/cluster/reform", b'{"reform": "test"}')).code == 401
    assert memory.reformed == 0


@inline
async def test_http_requests_and_node_state_are_exported_as_metrics(web: Served) -> None:
    await web.ask("POST", "/events", b"x")
    await web.ask("GET", "/nothing")
    answer = await web.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    samples = {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }
    expected = {
        ("fyrehose_parcels_sequence",): 1,
        ("fyrehose_parcels_oldest",): 1,
        ("fyrehose_parcels_leading",): 1,
        ("fyrehose_parcels_members", "true"): 1,
        ("fyrehose_parcels_neighbours", "false"): 1,
        ("fyrehose_parcels_mode", "Wrk"): 1,
        ("fyrehose_parcels_mode", "Err"): 0,
        ("fyrehose_parcels_events_ordered_total",): 1,
        ("fyrehose_parcels_bad_parcels_total",): 0,
        ("fyrehose_parcels_web_requests_total", "POST", "/events", "201"): 1,
        ("fyrehose_parcels_web_requests_total", "GET", "other", "404"): 1,
        ("fyrehose_parcels_web_connections",): 1,
        ("fyrehose_parcels_web_streams",): 0,
    }
    assert {key: samples.get(key) for key in expected} == expected


@inline
async def test_index_links_the_resources_and_their_description(web: Served) -> None:
    assert "/events" in (await web.ask("GET", "/")).json["links"]
    described = (await web.ask("GET", "/openapi.json")).json
    assert described["openapi"].startswith("3.1")
    assert "/callbacks" not in described["paths"]
    for path in ("/", "/cluster", "/health", "/metrics", "/openapi.json"):
        assert (await web.ask("GET", path + "?x=1")).code == 400


def test_web_config_refuses_values_out_of_range() -> None:
    for wrong in ({"max_body": 0}, {"keepalive": -1.0}, {"callback_backoff": (2.0, 1.0)}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            WebConfig(**wrong)
