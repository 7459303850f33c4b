"""Foreign peers of a node: reference implementations and hostile clients."""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

import cbor2
import pytest
from integration.running.cluster import RunningNode, StartCluster
from integration.running.programs import AwaitTrue, Start

PATIENCE = 120.0


class DocumentNode:
    """Reference node that knows only document 004, made of sockets and CBOR.

    :ivar asked: peers that requested its neighbours.
    """

    def __init__(self, name: str) -> None:
        self.asked: list[str] = []
        self.problems: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.id = int.from_bytes(sha256(name.encode()).digest()[:2], "big")
        self.identity = {"id": self.id, "mode": "Wrk", "name": name, "host": {"V4": [[127, 0, 0, 1], self.port]}}
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def refused(self, port: int) -> bool:
        """Send a discovery request to a node; return whether it answers with an error."""
        return bool(self._ask(port, "DscReq", {"DscReq": {"identity": self.identity}})["parcel_type"] == "ProtoError")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def join(self, port: int) -> list[dict[str, Any]]:
        """Send a discovery request to a node on a connection of its own."""
        answer = self._ask(port, "DscReq", {"DscReq": {"identity": self.identity}})
        found: list[dict[str, Any]] = answer["body"]["DscRes"]["neighbours"]
        return found

    def sequence(self, port: int) -> int:
        """Request a node's last sequence number."""
        found: int = self._ask(port, "SeqReq", "Empty")["body"]["SeqRes"]["seq_number"]
        return found

    def close(self) -> None:
        # close() alone does not close a listener on which another thread waits.
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(PATIENCE)

    def _ask(self, port: int, kind: str, body: Any) -> dict[str, Any]:
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
            self._send(connection, False, kind, body)
            return _receive(connection)

    def _send(self, connection: socket.socket, is_response: bool, kind: str, body: Any) -> None:
        parcel = {"is_response": is_response, "parcel_type": kind, "id": self.id, "size": 0, "body": body}
        data = cbor2.dumps(parcel)
        # The reference writes length and head separately, in two segments.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(bytes([len(data)]))
        connection.sendall(data)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(PATIENCE)
                try:
                    self._answer(connection)
                except (OSError, EOFError):
                    continue  # A peer probed whether it is alive.
                except Exception as error:
                    self.problems.append(repr(error))

    def _answer(self, connection: socket.socket) -> None:
        parcel = _receive(connection)
        if parcel["parcel_type"] == "DscReq":
            self.asked.append(parcel["body"]["DscReq"]["identity"]["name"])
            self._send(connection, True, "DscRes", {"DscRes": {"neighbours": [self.identity]}})
        elif parcel["parcel_type"] == "SeqReq":
            self._send(connection, True, "SeqRes", {"SeqRes": {"seq_number": 0}})
        else:
            self.problems.append(f"the reference would die of {parcel}")


def _receive(connection: socket.socket) -> dict[str, Any]:
    (size,) = _exactly(connection, 1)
    parcel: dict[str, Any] = cbor2.loads(_exactly(connection, size))
    _exactly(connection, parcel["size"])
    return parcel


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


PlayDocumentNode = Callable[[str], DocumentNode]


@pytest.fixture
def document_node() -> Iterator[PlayDocumentNode]:
    """Return a factory of reference nodes."""
    nodes: list[DocumentNode] = []

    def made(name: str) -> DocumentNode:
        nodes.append(DocumentNode(name))
        return nodes[-1]

    yield made
    for node in nodes:
        node.close()
        assert node.problems == []


@pytest.mark.extended
def test_reference_peers_become_neighbours_without_a_vote(
    start_cluster: StartCluster, document_node: PlayDocumentNode, await_true: AwaitTrue
) -> None:
    ours_joins, joins_ours = document_node("Boris"), document_node("Vera")

    def with_boris(node: RunningNode) -> list[object]:
        return ["--peer", ours_joins.address] if node.name == "east" else []

    cluster = start_cluster("east", "north", options=with_boris)
    await_true(lambda: "east" in ours_joins.asked, lambda: ours_joins.asked)
    known = {one["name"] for one in joins_ours.join(cluster["north"].port)}
    assert known >= {"east", "north"}
    await_true(lambda: "north" in joins_ours.asked, lambda: joins_ours.asked)
    for node, name in ((cluster["east"], "Boris"), (cluster["north"], "Vera")):
        state = node.wait_for(lambda state, name=name: name in {one["name"] for one in state["neighbours"]})
        found = {one["name"]: one for one in state["neighbours"]}[name]
        assert (found["ours"], found["votes"]) == (False, False)
        assert {member["name"] for member in state["members"]} == {"east", "north"}
    assert cluster["north"].publish(b"without them") == 1
    cluster.events(1, 1)
    assert joins_ours.sequence(cluster["east"].port) == 1


def test_nodes_with_invalid_names_are_refused(start_cluster: StartCluster, document_node: PlayDocumentNode) -> None:
    (node,) = start_cluster("east").values()
    for name in ("", "n" * 65, "\x1b[2J", "north\n"):
        assert document_node(name).refused(node.port), name
    fits = document_node("n" * 64)
    assert not fits.refused(node.port)
    node.wait_for(lambda state: {one["name"] for one in state["neighbours"]} == {"n" * 64})
    assert node.metrics()["dropped_bad_name_total"] == 4
    # The log contains names as Python literals.
    assert "name '\\x1b[2J' of 4 bytes: use 1 to 64 bytes of printable text" in node.program.out
    assert "\x1b" not in node.program.out


def test_hostile_connections_do_not_disturb_a_node(
    start: Start, start_cluster: StartCluster, await_true: AwaitTrue
) -> None:
    (node,) = start_cluster("east").values()
    place, began = ("127.0.0.1", node.port), monotonic()

    def counted(name: str) -> int:
        return int(node.metrics().get(name + "_total", 0))

    def say(data: bytes) -> None:
        with socket.create_connection(place, PATIENCE) as connection, suppress(ConnectionError):
            connection.sendall(data)
            with suppress(OSError):  # The node may have closed before.
                connection.shutdown(socket.SHUT_WR)
            while connection.recv(65_536):
                pass

    parcel = cbor2.dumps({"is_response": False, "parcel_type": "SeqReq", "id": 1, "size": 0, "body": "Empty"})
    huge = cbor2.dumps({"is_response": False, "parcel_type": "SeqReq", "id": 1, "size": 2**40, "body": "Empty"})
    garbage = [
        b"GET / HTTP/1.1\r\nHost: here\r\nUser-Agent: " + b"x" * 100 + b"\r\n\r\n",
        b"\xff" * 65_536,
        bytes(65_536),
        bytes([len(huge)]) + huge,
        bytes([200]) + b"\x9f" * 200,
    ]
    for data in garbage:
        say(data)
    await_true(lambda: counted("links_malformed") >= len(garbage), lambda: json.dumps(node.metrics()))
    for data in (b"", bytes([len(parcel)]), bytes([len(parcel)]) + parcel[:20]):
        say(data)
    # A port scan resets its connections.
    for _ in range(50):
        scanner = socket.create_connection(place, PATIENCE)
        scanner.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        scanner.close()
    # Many connections that send nothing or one byte: one host may not use all of them.
    slow = [socket.create_connection(place, PATIENCE) for _ in range(140)]
    for connection in slow[::2]:
        with suppress(ConnectionError):
            connection.sendall(bytes([len(parcel)]))
    await_true(lambda: counted("links_refused") >= 1, node.metrics)
    assert node.publish(b"1") == 1
    for connection in slow:
        connection.close()
    publisher = start("fyrehose", "parcels", "publish", "--node", node.address, "--numbers")
    assert publisher.finish(b"2\n") == 0, publisher
    assert publisher.out == "2\n"
    assert node.state()["mode"] == "Wrk"
    # One log line per host and minute.
    assert 1 <= node.program.out.count("hung up on") <= 1 + (monotonic() - began) // 60
    node.stop()


@pytest.mark.extended
def test_hostile_http_clients_do_not_disturb_a_node(
    start: Start, start_cluster: StartCluster, await_true: AwaitTrue
) -> None:
    (node,) = start_cluster("east", options=lambda node: ["--max-event", 4_000, "--window-mib", 1]).values()
    status, body = node.ask("/events", bytes(4_001))
    assert (status, json.loads(body)["limit"]) == (413, 4_000)
    # Over TCP the node itself has to report it.
    publisher = start("fyrehose", "parcels", "publish", "-n", node.address)
    assert publisher.finish(b"x" * 4_001) == 1
    assert "line 1: oversize: an event has more than 4,000 bytes" in publisher.err
    # One client follows all events and reads none of them.
    unread = socket.socket()
    unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    unread.connect(("127.0.0.1", node.http_port))
    unread.sendall(b"GET /events?from=1 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
    await_true(lambda: node.metrics()["web_streams"] == 1, node.metrics)
    numbers = start("seq", "-f", "%03900.0f", 1, 2_000, of_ours=False, stdin=subprocess.DEVNULL)
    assert numbers.finish() == 0
    publisher = start("fyrehose", "parcels", "publish", "-n", node.address)
    assert publisher.finish(numbers.outputs[1]) == 0, publisher
    assert publisher.err.rstrip().endswith("2,000 events, numbers 1 to 2,000")
    # Unread data is not buffered for it: the rest of the line would be 8 MB.
    follower = start("fyrehose", "parcels", "follow", "--http", node.url, "--from", 1)
    follower.wait_for("0002000\n")
    assert follower.err.startswith("fyrehose: no node holds 1 to ")
    assert follower.err.count("\n") == 1
    resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{node.program.process.pid}/status").read_text())
    assert resident is not None
    assert int(resident[1]) < 200_000
    # If that took long, the client that reads nothing was disconnected.
    found = node.metrics()
    assert found["web_streams"] + found.get('web_streams_ended_total{reason="stalled"}', 0) == 2
    unread.close()
    follower.destroy()
    await_true(lambda: node.metrics()["web_streams"] == 0, node.metrics)
    node.stop()


@pytest.mark.extended
def test_unauthenticated_peers_do_not_fill_the_neighbour_table(
    make_nodes: StartCluster, document_node: PlayDocumentNode, await_true: AwaitTrue, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("right horse battery staple")
    (tmp_path / "secret").chmod(0o600)
    cluster = make_nodes("east", "north", options=lambda node: ["--secret-file", "secret"])
    cluster["east"].start()
    cluster["east"].wait_to_work("east")
    silent = [socket.create_connection(("127.0.0.1", cluster["east"].port), PATIENCE) for _ in range(64)]
    strangers = [document_node(f"Guest-{number}") for number in range(80)]
    for stranger in strangers:
        stranger.join(cluster["east"].port)
    # It has the name of the member that joins, and so keeps the name from it.
    document_node("north").join(cluster["east"].port)
    cluster["north"].start()
    cluster.wait_to_work()
    assert cluster["north"].publish(b"among strangers") == 1
    cluster.events(1, 1)
    for node in cluster.values():
        strange = [one for one in node.state()["neighbours"] if one["name"].startswith("Guest")]
        assert len(strange) <= 16
    assert cluster["east"].state()["counters"]["dropped_too_many_neighbours"] >= 1
    for connection in silent:
        connection.close()
