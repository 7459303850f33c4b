"""The application's state over HTTP: on nodes, and replicas that follow them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from parcels.counter import Sum
from parcels.web.harness import Memory, Serve, Served, WaitUntil
from twisted.internet.defer import Deferred
from zope.interface import implementer

from fyrehose_twisted.errors import EventsNotHeld, StateFileError, StateUnavailable
from fyrehose_twisted.interfaces import IStateHolder
from fyrehose_twisted.parcels.state_snapshot import StateSnapshot, read_snapshot

client_module: Any = pytest.importorskip("fyrehose_twisted.parcels.client.http_client")

inline = pytest_twisted.ensureDeferred

CLUSTER = "00000000000000c1"


@implementer(IStateHolder)
class StatefulMemory(Memory):
    """Cluster of one node that holds a sum, or fails to as a test says."""

    holds_state = True

    def __init__(self) -> None:
        super().__init__()
        self.cluster_id = CLUSTER
        self.unavailable: StateUnavailable | None = None

    def state_snapshot(self) -> StateSnapshot:
        if self.unavailable is not None:
            raise self.unavailable
        return StateSnapshot(self.cluster_id, self.last, b"%d" % (self.forgotten + sum(int(e.data) for e in self.log)))

    forgotten = 0

    def forget(self, oldest: int) -> None:
        self.forgotten += sum(int(event.data) for event in self.log if event.sequence < oldest)
        super().forget(oldest)


@pytest.fixture
def node() -> StatefulMemory:
    return StatefulMemory()


@pytest.fixture
def web(node: StatefulMemory, serve: Serve) -> Served:
    return serve(node)


@pytest.fixture
def client() -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def make(*nodes: str, timeout: float = 120.0) -> Any:
        made.append(client_module.ParcelsClient(nodes, timeout=timeout, timeout_total=timeout))
        return made[-1]

    yield make
    for one in made:
        pytest_twisted.blockon(one.close())


@inline
async def test_state_names_the_event_after_which_it_was_taken(web: Served, node: StatefulMemory) -> None:
    node.order(b"5", b"7")
    answer = await web.ask("GET", "/state")
    assert (answer.code, answer.body) == (200, b"12")
    assert (answer.headers["sequence"], answer.headers["cluster-id"]) == ("2", CLUSTER)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "/state" in (await web.ask("GET", "/")).json["links"]


@inline
async def test_linearizable_state_is_taken_once_the_node_is_up_to_date(
    web: Served, node: StatefulMemory, reached: WaitUntil
) -> None:
    node.held = deque()
    asking = Deferred.fromCoroutine(web.ask("GET", "/state?linearizable=1"))
    await reached(lambda: bool(node.held))
    node.order(b"5")
    node.held.popleft()()
    assert (await asking).body == b"5"
    node.no_quorum()
    answer = await web.ask("GET", "/state?linearizable=1")
    assert (answer.code, answer.json["error"]) == (503, "no-quorum")
    assert (await web.ask("GET", "/state?linearizable=0")).body == b"5"


@inline
async def test_state_that_cannot_be_had_is_an_error(
    web: Served, node: StatefulMemory, memory: Memory, serve: Serve
) -> None:
    node.unavailable = StateUnavailable("behind", "the state contains the events up to 7 so far")
    answer = await web.ask("GET", "/state")
    assert (answer.code, answer.json["error"]) == (503, "behind")
    for query in ("linearizable=2", "from=1"):
        assert (await web.ask("GET", f"/state?{query}")).code == 400
    assert (await serve(memory).ask("GET", "/state")).code == 404


@inline
async def test_client_gets_the_state_of_the_first_node_that_has_it(
    web: Served, node: StatefulMemory, memory: Memory, serve: Serve, client: Callable[..., Any]
) -> None:
    node.order(b"5", b"7")
    without = serve(memory).url
    for linearizable in (False, True):
        taken = await client(without, web.url).state(linearizable=linearizable)
        assert taken == StateSnapshot(CLUSTER, 2, b"12")
    with pytest.raises(StateUnavailable, match="no node holds a state of the application") as raised:
        await client(without, without).state()
    assert raised.value.why == "not-held"


@inline
async def test_client_reports_why_no_node_has_the_state(
    web: Served, node: StatefulMemory, client: Callable[..., Any]
) -> None:
    node.unavailable = StateUnavailable("state-failed", "it cannot apply event 7")
    with pytest.raises(client_module.NoNodeAnswers, match="it cannot apply event 7"):
        await client(web.url, timeout=0.5).state()


@inline
async def test_replica_begins_with_a_snapshot_and_follows(
    web: Served, node: StatefulMemory, client: Callable[..., Any]
) -> None:
    node.order(b"5", b"7")
    replica = client(web.url).replicate(state := Sum())
    await replica.reached(2)
    assert (state.total, state.applied) == (12, [])
    waiting = replica.reached(3)
    node.order(b"100")
    await waiting
    assert (state.total, state.applied, replica.cluster_id) == (112, [3], CLUSTER)
    replica.stop()
    await replica.stopped


@inline
async def test_replica_begins_with_the_first_event_if_no_node_holds_the_state(
    memory: Memory, serve: Serve, client: Callable[..., Any]
) -> None:
    memory.order(b"5", b"7")
    replica = client(serve(memory).url).replicate(state := Sum())
    await replica.reached(2)
    assert (state.total, state.applied) == (12, [1, 2])


@inline
async def test_replica_resumes_from_its_file(
    web: Served, node: StatefulMemory, client: Callable[..., Any], tmp_path: Path
) -> None:
    node.order(b"5", b"7")
    path = tmp_path / "sum"
    replica = client(web.url).replicate(Sum(), path)
    await replica.reached(2)
    node.order(b"1")
    await replica.reached(3)
    replica.stop()
    await replica.stopped
    assert read_snapshot(path) == StateSnapshot(CLUSTER, 3, b"13")
    node.unavailable = StateUnavailable("behind", "must not be asked")
    node.order(b"2")
    replica = client(web.url).replicate(state := Sum(), path)
    await replica.reached(4)
    assert (state.total, state.applied) == (15, [4])


@inline
async def test_replica_takes_another_snapshot_where_events_are_gone(
    web: Served, node: StatefulMemory, client: Callable[..., Any]
) -> None:
    node.order(b"5", b"7")
    replica = client(web.url).replicate(state := Sum())
    await replica.reached(2)
    node.forget(3)
    node.forgotten += 1000
    node.jump(11)
    node.order(b"100")
    await replica.reached(11)
    assert (state.total, state.applied) == (1112, [])


@inline
async def test_replica_without_the_next_events_fails(
    memory: Memory, serve: Serve, client: Callable[..., Any], tmp_path: Path
) -> None:
    memory.order(b"5", b"7", b"9")
    memory.forget(3)
    replica = client(serve(memory).url).replicate(Sum())
    waiting = replica.reached(3)
    with pytest.raises(EventsNotHeld):
        await replica.stopped
    assert waiting.called
    waiting.addErrback(lambda failure: None)


@inline
async def test_replica_ends_with_what_its_state_raises(
    memory: Memory, serve: Serve, client: Callable[..., Any], tmp_path: Path
) -> None:
    memory.order(b"5", b"seven")
    path = tmp_path / "sum"
    replica = client(serve(memory).url).replicate(Sum(), path)
    with pytest.raises(ValueError, match="seven"):
        await replica.stopped
    assert (replica.sequence, path.exists()) == (1, False)
    path.write_bytes(b"no snapshot")
    with pytest.raises(StateFileError, match="is not a snapshot of a state"):
        await client(serve(memory).url).replicate(Sum(), path).stopped
