"""Detection of a replaced cluster, whose sequence numbers are unrelated, by HTTP clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import pytest_twisted
from parcels.web.harness import Served, WaitUntil
from zope.interface import implementer

from fyrehose_twisted.errors import BeyondEnd, ClusterIdMismatch
from fyrehose_twisted.interfaces import IEventListener
from fyrehose_twisted.parcels.client import event_ids
from fyrehose_twisted.parcels.client.event_ids import cluster_id_param
from fyrehose_twisted.parcels.client.failover import NodeRequest, NodeResponse
from fyrehose_twisted.parcels.web import events
from fyrehose_twisted.web.sse import FrameReader

client_module: Any = pytest.importorskip("fyrehose_twisted.parcels.client.http_client")

inline = pytest_twisted.ensureDeferred

OLD, NEW = "00000000000000aa", "00000000000000bb"
STREAM = "text/event-stream"


@implementer(IEventListener)
class Listener:
    """Listener that records sequence numbers."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def events_ordered(self, events: Any) -> None:
        self.numbers += [event.sequence for event in events]

    def events_skipped(self, first: int, last: int) -> None:
        raise AssertionError(f"skipped {first} to {last}")


@pytest.fixture
def client(web: Served) -> Iterator[client_module.ParcelsClient]:
    """Return an HTTP client of the site."""
    made = client_module.ParcelsClient([web.url], timeout=120.0, timeout_total=120.0)
    yield made
    pytest_twisted.blockon(made.close())


def asking(query: str = "", *headers: str) -> bytes:
    return "\r\n".join([f"GET /events{query} HTTP/1.0", f"Accept: {STREAM}", *headers, "", ""]).encode()


def ids(data: bytes) -> list[str]:
    frames = FrameReader().feed(data.partition(b"\r\n\r\n")[2])
    return [frame.id for frame in frames if frame.event != "comment"]


@inline
async def test_event_ids_contain_the_cluster_id(web: Served) -> None:
    web.node.recreate_cluster(OLD)
    web.node.order(b"one", b"two")
    wire = await web.send(asking("?from=2"))
    assert ids(await wire.read(f"id: {OLD}-2\n\n".encode())) == [f"{OLD}-1", f"{OLD}-2"]
    answer = await web.ask("POST", "/events", b"three")
    assert answer.json == {"sequence": 3, "cluster_id": OLD, "founding": OLD}
    assert answer.headers["location"] == f"/events?from=3&to=3&cluster_id={OLD}"
    status = (await web.ask("GET", "/cluster")).json
    assert status["cluster_id"] == status["founding"] == OLD


@inline
async def test_event_id_of_a_former_cluster_is_a_conflict(web: Served) -> None:
    web.node.recreate_cluster(NEW)
    web.node.order(*[b"x"] * 108)
    for query, headers in (
        ("", {"accept": STREAM, "Last-Event-ID": f"{OLD}-105"}),
        (f"?from=106&cluster_id={OLD}", {"accept": STREAM}),
        (f"?from=1&to=2&cluster_id={OLD}", {}),
        (f"?from=1&to=2&founding={OLD}", {}),
    ):
        answer = await web.ask("GET", f"/events{query}", **headers)
        assert answer.code == 409, query
        assert {**answer.json, "message": ""} == {
            "error": "other-founding",
            "message": "",
            "cluster_id": NEW,
            "founding": NEW,
            "known": OLD,
        }
        assert f"re-created as {NEW}" in answer.json["message"]


@inline
async def test_event_id_ahead_of_the_node_waits_for_its_event(web: Served) -> None:
    web.node.recreate_cluster(OLD)
    web.node.order(b"1")
    wire = await web.send(asking("", f"Last-Event-ID: {OLD}-2"))
    assert ids(await wire.read(b"position\n")) == [f"{OLD}-2"]
    web.node.order(b"2", b"3")
    assert ids(await wire.read(f"id: {OLD}-3\n\n".encode())) == [f"{OLD}-2", f"{OLD}-3"]


@inline
async def test_event_id_without_a_cluster_id_is_accepted_in_any_cluster(web: Served) -> None:
    web.node.recreate_cluster(OLD)
    web.node.order(b"1", b"2")
    wire = await web.send(asking("", "Last-Event-ID: 1"))
    assert ids(await wire.read(f"id: {OLD}-2\n\n".encode())) == [f"{OLD}-1", f"{OLD}-2"]
    answer = await web.ask("GET", "/events", accept=STREAM, **{"Last-Event-ID": "99"})
    assert (answer.code, answer.json["error"]) == (409, "beyond-end")


@inline
async def test_node_without_a_cluster_answers_unavailable(web: Served) -> None:
    web.node.mode = "Dsc"
    answer = await web.ask("GET", "/events", accept=STREAM, **{"Last-Event-ID": f"{OLD}-1"})
    assert (answer.code, answer.json["error"]) == (503, "no-cluster")
    answer = await web.ask("GET", "/events", accept=STREAM, **{"Last-Event-ID": "1"})
    assert (answer.code, answer.json["error"]) == (503, "behind")


@pytest.mark.parametrize("id", ["x", f"{OLD}-", "-1", "A" * 16 + "-1", f"{OLD}-1 ", f"{OLD}-1-1", "9" * 19])
@inline
async def test_malformed_event_id_is_refused(web: Served, id: str) -> None:
    answer = await web.ask("GET", "/events", **{"Last-Event-ID": id.replace(" ", "%20")})
    assert (answer.code, answer.json["error"]) == (400, "bad-request")
    for parameter in ("cluster_id", "founding"):
        answer = await web.ask("GET", f"/events?{parameter}=" + id.replace(" ", "%20"))
        assert (answer.code, answer.json["error"]) == (400, "bad-request")
        assert answer.json["message"].startswith(f"{parameter} must have 16")


@inline
async def test_next_page_of_a_range_checks_the_cluster_id(web: Served) -> None:
    web.node.recreate_cluster(OLD)
    web.node.order(*[b"x"] * 1_001)
    for parameter in ("cluster_id", "founding"):
        answer = await web.ask("GET", f"/events?{parameter}={OLD}")
        assert answer.headers["link"] == f'</events?from=1001&to=1001&cluster_id={OLD}>; rel="next"'


@inline
async def test_event_stream_ends_when_its_node_enters_another_cluster(web: Served, reached: WaitUntil) -> None:
    web.node.recreate_cluster(OLD)
    web.node.order(b"1")
    wire = await web.send(asking("?from=1"))
    await wire.read(f"id: {OLD}-1\n\n".encode())
    web.node.recreate_cluster(NEW)
    web.node.order(b"another 1")
    assert ids(await wire.closed()) == [f"{OLD}-0", f"{OLD}-1"]


@inline
async def test_follower_fails_when_its_cluster_was_replaced(
    web: Served, client: client_module.ParcelsClient, reached: WaitUntil
) -> None:
    web.node.recreate_cluster(OLD)
    web.node.order(b"1")
    assert await client.publish(b"2") == 2
    assert client.cluster_id == OLD
    listener = Listener()
    following = client.follow(listener, 1)
    await reached(lambda: listener.numbers == [1, 2])
    assert following.cluster_id == OLD
    web.node.recreate_cluster(NEW)
    web.node.order(*[b"x"] * 8)
    with pytest.raises(ClusterIdMismatch) as raised:
        await following.stopped
    assert (raised.value.expected, raised.value.cluster_id) == (OLD, NEW)
    assert listener.numbers == [1, 2]
    # A later run resumes with the stored cluster id and number.
    with pytest.raises(ClusterIdMismatch):
        await client.follow(listener, following.next, following.cluster_id).stopped
    with pytest.raises(ClusterIdMismatch):
        await client.events(1, 2, OLD)
    assert [event.sequence for event in await client.events(1, 2, NEW)] == [1, 2]


@inline
async def test_client_understands_a_node_that_knows_the_cluster_id_only_as_founding(
    web: Served, client: client_module.ParcelsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parameter(query: Mapping[bytes, bytes]) -> str:
        assert b"cluster_id" not in query
        return cluster_id_param(query)

    monkeypatch.setattr(events, "cluster_id_param", parameter)
    for module in (events, event_ids):
        monkeypatch.setattr(module, "cluster_id_members", lambda cluster_id: {"founding": cluster_id})
    web.node.recreate_cluster(NEW)
    assert await client.publish(b"1") == 1
    assert client.cluster_id == NEW
    assert [event.sequence for event in await client.events(1, 1, NEW)] == [1]
    with pytest.raises(ClusterIdMismatch) as raised:
        await client.events(1, 1, OLD)
    assert (raised.value.expected, raised.value.cluster_id) == (OLD, NEW)
    with pytest.raises(ClusterIdMismatch):
        await client.follow(Listener(), 2, OLD).stopped


@inline
async def test_status_of_an_older_node_has_the_cluster_id(
    client: client_module.ParcelsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def older(request: NodeRequest) -> NodeResponse:
        return NodeResponse(200, b'{"name": "a", "founding": "%b"}' % OLD.encode())

    monkeypatch.setattr(client.nodes, "request", older)
    assert await client.cluster() == {"name": "a", "founding": OLD, "cluster_id": OLD}


@inline
async def test_follower_that_starts_beyond_the_end_fails(web: Served, client: client_module.ParcelsClient) -> None:
    web.node.recreate_cluster(OLD)
    web.node.order(b"1")
    with pytest.raises(BeyondEnd) as raised:
        await client.follow(Listener(), 3).stopped
    assert (raised.value.first, raised.value.next) == (3, 2)
