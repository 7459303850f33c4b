"""Control socket of a node: requests, followers and limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite.control_client import ControlClient, check_client_limit
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from fyrehose_twisted.errors import ConfigurationError, MalformedPacket, PublishQueueFull, UnencodableMessage
from fyrehose_twisted.hydra.events import LeaderChanged, LineOutcome, LinesMissed, LinesReceived, Outcome
from fyrehose_twisted.hydra.service.control import HydraControl
from fyrehose_twisted.net.control.json_lines import MAX_REQUEST, JsonLines
from fyrehose_twisted.net.control.server import MAX_PENDING, MAX_UNSENT, ControlFactory


class Service:
    """Scripted node service."""

    def __init__(self) -> None:
        self.leader: LeaderChanged | None = None
        self.listeners: list[Any] = []
        self.said: list[tuple[str, bool]] = []
        self.sayings: list[Deferred[LineOutcome]] = []

    def status(self) -> dict[str, Any]:
        return {"role": "leader", "tag": "\udcff"}

    def listen(self, listener: Any) -> None:
        self.listeners.append(listener)

    def unlisten(self, listener: Any) -> None:
        self.listeners.remove(listener)

    def reload(self) -> list[str]:
        if self.said:
            raise ConfigurationError("the file is bad")
        return ["joins #c"]

    def say_and_tell(self, line: str, *, retry: bool = False) -> Deferred[LineOutcome]:
        if line == "bad":
            raise UnencodableMessage("it is bad")
        if line == "full":
            raise PublishQueueFull("too many wait")
        self.said.append((line, retry))
        self.sayings.append(Deferred())
        return self.sayings[-1]


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def factory(service: Service) -> ControlFactory:
    return ControlFactory(lambda gone: HydraControl(service, gone))


@pytest.fixture
def client(factory: ControlFactory) -> ControlClient:
    return ControlClient(factory)


def test_control_requests_are_answered(client: ControlClient, service: Service) -> None:
    assert client.ask({"ask": "status"}) == [{"status": {"role": "leader", "tag": "\udcff"}}]
    asked = {"ask": "say", "line": "PRIVMSG #c :\udcff", "id": 7}
    assert client.ask(asked, {**asked, "retry": True, "id": 8}) == []
    assert service.said == [("PRIVMSG #c :\udcff", False), ("PRIVMSG #c :\udcff", True)]
    service.sayings[1].callback(LineOutcome(1, Outcome.UNCERTAIN, "no-answer"))
    service.sayings[0].callback(LineOutcome(0, Outcome.SAID, ""))
    assert client.read() == [
        {"said": "uncertain", "why": "no-answer", "id": 8},
        {"said": "said", "why": "", "id": 7},
    ]
    assert client.ask({"ask": "say", "line": "bad", "id": 9}, {"ask": "say", "line": "full", "id": 10}) == [
        {"error": "it is bad", "id": 9},
        {"error": "too many wait", "id": 10},
    ]


def test_follower_receives_lines_gaps_and_leaders(client: ControlClient, service: Service) -> None:
    service.leader = LeaderChanged(3, 4711, "b")
    leader = {"leader": 4711, "tag": "b", "term": 3}
    assert client.ask({"ask": "follow"}) == [{"following": True}, leader]
    (listener,) = service.listeners
    listener.lines_received(LinesReceived(3, 17, [b":n PRIVMSG #c :a", b"@+hydra/n=x.1 :b PRIVMSG #c :\xff"]))
    listener.lines_missed(LinesMissed(3, 19, 20))
    listener.leader_changed(LeaderChanged(3, None, ""))
    assert client.read() == [
        {"line": ":n PRIVMSG #c :a", "term": 3, "number": 17},
        {"line": ":b PRIVMSG #c :\udcff", "term": 3, "number": 18},
        {"missed": [19, 20], "term": 3},
        {"leader": None, "tag": "", "term": 3},
    ]
    assert client.ask({"ask": "follow"}) == [{"following": True}]
    assert len(service.listeners) == 1
    client.control.connectionLost(Failure(ConnectionDone()))
    assert service.listeners == []


@pytest.mark.parametrize(
    "question", [{}, {"ask": "else"}, {"ask": "say"}, {"ask": "say", "line": 1}, {"ask": ["status"]}, {"ask": None}]
)
def test_unknown_request_is_answered_with_an_error(client: ControlClient, question: Any) -> None:
    (answer,) = client.ask(question)
    assert "unknown request" in answer["error"]
    assert client.ask({"ask": "status"})
    assert not client.control.is_closed


@pytest.mark.parametrize(
    "data", [b"nonsense\n", b"[]\n", b"7\n", b"\xff\xfe\n", b"[" * 10_000 + b"\n", b"x" * (MAX_REQUEST + 1)]
)
def test_invalid_json_ends_the_connection(client: ControlClient, data: bytes) -> None:
    client.control.dataReceived(b'{"ask": "status"}\n' + data)
    assert client.transport.aborted
    assert client.control.malformed_reason in ("no-json", "no-object", "overlong-line")


def test_pending_sends_of_a_client_are_limited(client: ControlClient, service: Service) -> None:
    client.ask(*({"ask": "say", "line": str(number)} for number in range(MAX_PENDING - 1)))
    assert client.transport.producerState == "producing"
    client.ask({"ask": "say", "line": "last"})
    assert client.transport.producerState == "paused"
    service.sayings[0].callback(LineOutcome(0, Outcome.SAID, ""))
    assert client.transport.producerState == "producing"


def test_slow_follower_is_disconnected(client: ControlClient, service: Service) -> None:
    client.ask({"ask": "follow"})
    (listener,) = service.listeners
    client.control.pauseProducing()
    lines = LinesReceived(1, 0, [b"x" * 1_000] * 1_000)
    for _ in range(MAX_UNSENT // 2_000_000):
        listener.lines_received(lines)
    assert not client.transport.aborted
    for _ in range(MAX_UNSENT // 500_000):
        listener.lines_received(lines)
    assert client.transport.aborted
    assert service.listeners == []
    assert client.control.unsent_bytes == 0


def test_number_of_clients_is_limited_and_all_close_with_the_node(factory: ControlFactory) -> None:
    check_client_limit(factory)


@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.none())), st.data())
def test_json_objects_survive_a_round_trip(messages: list[dict[str, Any]], data: Any) -> None:
    codec = JsonLines(10_000_000)
    stream = b"".join(map(codec.encode, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    decoder = codec.decoder()
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += decoder.feed(stream[start:end])
    assert found == messages


def test_unencodable_object_is_refused() -> None:
    with pytest.raises(UnencodableMessage):
        JsonLines(100).encode({"a": b"bytes"})
    with pytest.raises(MalformedPacket):
        JsonLines(10).decoder().feed(b"x" * 11)


def test_reload_tells_what_has_changed_or_why_nothing_has(client: ControlClient, service: Service) -> None:
    assert client.ask({"ask": "reload"}) == [{"reloaded": ["joins #c"]}]
    service.said.append(("", False))
    assert client.ask({"ask": "reload"}) == [{"error": "the file is bad"}]


def test_snapshots_for_other_nodes_are_not_shown(client: ControlClient, service: Service) -> None:
    client.ask({"ask": "follow"})
    (listener,) = service.listeners
    listener.lines_received(LinesReceived(3, 1, [b":hydra HYDRA STATE irc 0 1 00000000 eA==", b":n PRIVMSG #c :a"]))
    assert client.read() == [{"line": ":n PRIVMSG #c :a", "term": 3, "number": 2}]
