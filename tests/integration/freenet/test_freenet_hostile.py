"""Real nodes and a hostile peer on a real socket, which must not affect the others."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from time import monotonic
from typing import Any

import pytest
from integration.running.freenet import MakeNetwork, Network

from fyrehose_twisted.freenet.wire.codec import MAX_FRAME, FreenetCodec
from fyrehose_twisted.freenet.wire.location import key_location
from fyrehose_twisted.freenet.wire.messages import (
    BetterRoot,
    Dismissed,
    Hello,
    Located,
    Message,
    Ping,
    Pong,
    Prove,
    PublishData,
    PublishFailed,
    RejectedOverload,
    SubscribeData,
    SubscribeRequest,
    SubscribeRestarted,
    SubscribeSucceeded,
    SubscribeSucceededNewRoot,
    Unsubscribe,
)
from fyrehose_twisted.freenet.wire.signing import named_key

pytestmark = pytest.mark.extended

KEY = named_key("news")
PLACE = key_location(KEY)
PATIENCE = 120.0


class Stranger:
    """Hostile peer."""

    def __init__(self, port: int, location: float = 0.5, node: int | None = None) -> None:
        self.rng = random.Random(port)
        self.node = self.rng.getrandbits(64) if node is None else node
        self._codec = FreenetCodec()
        self._decoder = self._codec.decoder()
        self._messages: list[Message] = []
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.send(Hello(self.node, self.rng.getrandbits(64), location, self.rng.randbytes(16)))
        self.wait_for(Hello)
        self.send(Prove(b""))
        self.wait_for(Prove)

    def send(self, *messages: Message) -> None:
        """Send messages."""
        self.socket.sendall(b"".join(map(self._codec.encode, messages)))

    def read(self) -> Message:
        """Return the next message; keepalives are answered."""
        while not self._messages:
            data = self.socket.recv(65_536)
            if not data:
                raise EOFError("the node hung up")
            self._messages += self._decoder.feed(data)
        message = self._messages.pop(0)
        if isinstance(message, Ping):
            self.send(Pong())
            return self.read()
        return message

    def wait_for(self, kind: type) -> Any:
        """Return the next message of a type."""
        seen, end = [], monotonic() + PATIENCE
        while not isinstance(message := self.read(), kind):
            seen.append(message)
            assert monotonic() < end, f"no {kind} among {seen}"
        return message

    def ask(self, key: bytes) -> int:
        """Request a subscription; return the uid."""
        uid = self.rng.getrandbits(64)
        self.send(SubscribeRequest(uid, key, 10, -1, 0.5))
        return uid

    def flush(self) -> None:
        """Wait until the node has processed all sent messages."""
        self.send(Ping())
        self.wait_for(Pong)

    def close(self) -> None:
        """Disconnect."""
        self.socket.close()


@pytest.fixture
def nodes(network: MakeNetwork) -> Network:
    """Return three nodes with one tree, whose first node, the victim, is no subscriber."""
    nodes = network(3, subscribers=(1, 2))
    for node in nodes:
        node.start()
    nodes.wait_for_one_tree()
    for node in nodes:
        node.wait_for(lambda state: len(state.get("neighbours", [])) == 2)
    return nodes


@pytest.fixture
def replayed() -> list[tuple[int, str]]:
    """Return legitimately delivered packets."""
    return []


@pytest.fixture
def unharmed(nodes: Network, replayed: list[tuple[int, str]]) -> Iterator[None]:
    """Check that later packets are delivered, and nothing else."""
    yield
    packets = [f"packet {count}" for count in range(5)]
    for node in nodes:
        node.wait_for(lambda state: len(state["neighbours"]) >= 2)
    numbers = nodes[1].publish(*packets)
    nodes[2].wait_for_packet(numbers[-1])
    for node in nodes:
        assert node.program.process.poll() is None, node.program
        node.stop()
    for node in nodes[1:]:
        assert node.journal() == [*replayed, *zip(numbers, packets, strict=True)]


def counts(node: Any) -> dict[str, int]:
    found: dict[str, int] = node.wait_for(lambda state: "counts" in state)["counts"]
    return found


@pytest.mark.usefixtures("unharmed")
def test_messages_reserved_to_a_parent_are_ignored_from_other_peers(nodes: Network) -> None:
    forged = [
        SubscribeData(KEY, 7, b"forged"),
        SubscribeSucceeded(KEY, 1, PLACE),
        SubscribeSucceededNewRoot(KEY, 1, PLACE),
        SubscribeRestarted(KEY, 1, PLACE),
        Dismissed(KEY),
        BetterRoot(KEY, PLACE),
    ]
    for node in nodes:
        with closing(Stranger(node.port)) as stranger:
            for message in forged:
                stranger.send(message)
            stranger.flush()
        assert counts(node)["data_not_from_parent"] >= 1
        assert counts(node)["strays"] >= 1


@pytest.mark.usefixtures("unharmed")
def test_packet_of_a_peer_that_is_not_subscribed_is_refused(nodes: Network) -> None:
    for node in nodes[1:]:
        with closing(Stranger(node.port)) as stranger:
            stranger.send(PublishData(1, KEY, 7, 0.5, b"forged", 10, True))
            assert stranger.wait_for(PublishFailed) == PublishFailed(1, "not-subscribed")
        assert counts(node)["unsubscribed_publishers"] == 1


@pytest.mark.usefixtures("unharmed")
def test_forged_data_of_a_subscriber_is_not_delivered(nodes: Network) -> None:
    with closing(Stranger(nodes[1].port)) as stranger:
        uid = stranger.ask(KEY)
        assert stranger.wait_for(SubscribeSucceeded | SubscribeSucceededNewRoot).uid == uid
        stranger.send(SubscribeData(KEY, 7, b"forged"))
        # The node tells it that it is not the parent.
        assert stranger.wait_for(Unsubscribe) == Unsubscribe(KEY)
        stranger.send(Unsubscribe(KEY))
        stranger.flush()
    assert counts(nodes[1])["data_not_from_parent"] == 1


@pytest.mark.usefixtures("unharmed")
def test_flood_of_streams_is_limited(nodes: Network) -> None:
    node = nodes[0]
    with closing(Stranger(node.port)) as stranger:
        for _ in range(200):
            stranger.ask(stranger.rng.randbytes(20))
        stranger.wait_for(RejectedOverload)
        stranger.flush()
        state = node.status()
        assert len(state["streams"]) <= 32
        assert state["counts"]["overloads"] >= 100
        # Another peer can still subscribe.
        with closing(Stranger(node.port, node=1)) as other:
            uid = other.ask(KEY)
            assert other.wait_for(SubscribeSucceeded | SubscribeSucceededNewRoot).uid == uid


@pytest.mark.soak(seconds=30)
@pytest.mark.usefixtures("unharmed")
def test_peer_with_a_false_location_does_not_block_a_subscription(nodes: Network) -> None:
    key = next(key for count in range(1_000) if abs(key_location(key := named_key(f"stream {count}")) - 0.5) < 0.1)
    with closing(Stranger(nodes[0].port, location=key_location(key))) as liar:
        with closing(nodes[0].asking()) as asking:
            asking.tell(ask="subscribe", key=key.hex())
            request = liar.wait_for(SubscribeRequest)
            assert request.key == key
            # The request is not even accepted: after ten seconds another neighbour is tried.
            nodes[0].wait_for(lambda state: state["counts"].get("not_accepted"))
            nodes[0].wait_until_settled(key)
        liar.send(Located(0.1))
        liar.flush()


@pytest.mark.usefixtures("unharmed")
def test_replayed_messages_have_no_effect(nodes: Network, replayed: list[tuple[int, str]]) -> None:
    with closing(Stranger(nodes[1].port)) as stranger:
        request = SubscribeRequest(5, KEY, 10, -1, 0.5)
        packet = PublishData(6, KEY, 2**63 - 1, 0.5, b"again", 10, True)
        for _ in range(50):
            stranger.send(request, packet)
        stranger.flush()
        # A subscriber may publish it, once.
        nodes[2].wait_for_packet(2**63 - 1)
    assert counts(nodes[1])["loops"] >= 98
    replayed.append((2**63 - 1, "again"))


NO_MESSAGES = [
    b"\0" * 64,
    (MAX_FRAME + 1).to_bytes(4, "big"),
    b"\xff" * 4096,
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\0\0\0\x02\x81\x03",
    b"\0\0\0\x03\xff\xff\xff",
]


@pytest.mark.usefixtures("unharmed")
def test_malformed_messages_close_the_connection_and_are_counted(nodes: Network) -> None:
    for count, data in enumerate(NO_MESSAGES, 1):
        with closing(Stranger(nodes[0].port)) as stranger:
            stranger.socket.sendall(data)
            with pytest.raises((EOFError, ConnectionResetError)):
                stranger.wait_for(Dismissed)
        nodes[0].wait_for(lambda state, count=count: state["counts"].get("links_malformed", 0) == count)


@pytest.mark.usefixtures("unharmed")
def test_silent_connections_are_limited_and_time_out(nodes: Network) -> None:
    silent = []
    for _ in range(200):
        silent.append(socket.create_connection(("127.0.0.1", nodes[0].port), PATIENCE))
    # All but eight are closed to make room, and these eight time out.
    nodes[0].wait_for(lambda state: state["counts"].get("refused_silent", 0) >= 60)
    with closing(Stranger(nodes[0].port)) as neighbour:
        neighbour.flush()
        nodes[0].wait_for(lambda state: state["counts"].get("refused_late", 0) >= 1)
        for one in silent:
            with suppress(ConnectionResetError):
                while one.recv(4096):
                    pass
            one.close()
        neighbour.flush()
