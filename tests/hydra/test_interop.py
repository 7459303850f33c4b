"""Recorded lines of the reference implementation, and nodes among peers that behave like it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fyrehose_twisted.effects import Address, Dial, Peer, Write
from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.hydra.config import LinkTarget, NodeConfig
from fyrehose_twisted.hydra.events import CloseIrc, OpenIrc, Role, ToIrc
from fyrehose_twisted.hydra.node.node import HydraNode
from fyrehose_twisted.hydra.wire.codec import HydraCodec, HydraDecoder
from fyrehose_twisted.hydra.wire.messages import (
    LEGACY_MAX_LINE,
    LEGACY_TAG,
    MAX_ID,
    Call,
    Drop,
    Elect,
    Hello,
    Keepalive,
    Knock,
    Malformed,
    Meet,
    Message,
    Nominate,
    Ping,
    Pledge,
    Pong,
    Recv,
    Send,
    Welcome,
)

Vector = dict[str, Any]

VECTORS: list[Vector] = json.loads(
    (Path(__file__).parent.parent / "vectors" / "hydra.json").read_text(encoding="utf-8")
)
KINDS: dict[str, type] = {
    kind.__name__.upper(): kind
    for kind in (Ping, Pong, Recv, Send, Drop, Nominate, Pledge, Call, Elect, Knock, Meet, Welcome, Hello)
}

REFUSED_BY_US = {"line_knock": "bad-id"}
"""Id 0 belongs to no node."""

WRITTEN_OTHERWISE_BY_US: dict[str, bytes | None] = {
    "RECV 0 :n!u@h PRIVMSG #c :hello  world": b"RECV 0 :n!u@h PRIVMSG #c :hello  world",
    "PING 0 1 42 extra": b"PING 0 1 42",
    "FOO 1 2": None,
}
"""Lines that the reference writes back with fewer blanks or extra words, or with an unknown command changed."""

READ_OTHERWISE_BY_US = {
    "KNOCK 42 Tw\nKNOCK 43 Tw": "control-character",
    "KNOCK 42 T\0w": "control-character",
    "knock 42 Tw": "unknown-command",
    "BANANA 1 2": "unknown-command",
    "KNOCK 0 Tw": "bad-id",
    "KNOCK deadbeef Tw": "bad-id",
    "KNOCK 0x2a Tw": "bad-id",
    "KNOCK -1 Tw": "bad-id",
    "KNOCK": "missing-field",
    "PING": "missing-field",
    "MEET 444454915": "missing-field",
    "PONG 1": "missing-field",
    "SEND 42": "missing-field",
}
"""Recorded lines of peers that are no valid messages. The reference ignores some and completes others."""

ANSWERS_TO_NOBODY = [Malformed("bad-id", line) for line in (b"MEET 0 1045618677", b"WELCOME 0", b"HELLO 0 1045618677")]
"""Replies of the reference to a knock without an id."""


def of_kind(kind: str) -> list[Any]:
    found = [pytest.param(vector, id=vector["name"]) for vector in VECTORS if vector["kind"] == kind]
    assert found
    return found


def decode(data: bytes) -> list[Message]:
    decoder = HydraDecoder()
    found = decoder.feed(data)
    decoder.feed(b"")
    return found


def named(fields: dict[str, Any]) -> Message:
    """Return the message that a vector describes."""
    values = {name: value for name, value in fields.items() if name != "command"}
    if "line" in values:
        values["line"] = values["line"].encode()
    message: Message = KINDS[fields["command"]](**values)
    return message


def said(vector: Vector) -> dict[str, bytes]:
    """Return all data that each speaker of a conversation sent."""
    streams: dict[str, bytes] = {}
    for step in vector["steps"]:
        text = step.get("line") or step.get("text")
        speaker = f"{step['from']} {step.get('link', '')}"
        if text is None and step.get("event", "").split(" ")[0] in KINDS:
            text = step["event"] + "\r\n"
        if text is not None:
            whole = step["from"].startswith("node") or text.endswith("...(600 bytes)") or not text.endswith("bytes)")
            streams[speaker] = streams.get(speaker, b"") + text.encode("latin-1") + (b"" if whole else b"\r\n")
    return streams


def conversations() -> list[Any]:
    return [*of_kind("transcript"), *of_kind("exchange")]


@pytest.mark.parametrize("vector", of_kind("golden"))
def test_reference_line_survives_a_round_trip(vector: Vector) -> None:
    data, fields = vector["line"].encode(), vector["fields"]
    refused = REFUSED_BY_US.get(vector["name"])
    if refused is not None:
        assert decode(data) == [Malformed(refused, data[:-2])]
        with pytest.raises(UnencodableMessage, match="id 0"):
            HydraCodec().encode(named(fields))
        return
    (found,) = decode(data)
    assert found == named(fields)
    assert type(found) is KINDS[fields["command"]]
    assert HydraCodec(LEGACY_MAX_LINE).encode(found) == data


@pytest.mark.parametrize("vector", of_kind("reparse"))
def test_reserialized_line_matches_the_reference_except_for_what_it_loses(vector: Vector) -> None:
    line, again = vector["line"], vector["fields"]["serialised_again"].encode()
    (found,) = decode(line.encode() + b"\r\n")
    if isinstance(found, Malformed):
        assert found.reason == "unknown-command"
        ours = None
    else:
        ours = HydraCodec().encode(found)[:-2]
    assert ours == WRITTEN_OTHERWISE_BY_US.get(line, again)
    assert (ours == again) is (line not in WRITTEN_OTHERWISE_BY_US)


@pytest.mark.parametrize("vector", conversations())
def test_every_line_sent_by_the_reference_decodes(vector: Vector) -> None:
    for speaker, data in said(vector).items():
        if vector["kind"] == "transcript" or speaker.startswith("node"):
            found = decode(data)
            if data.startswith(b"MEET 0 "):
                assert found == ANSWERS_TO_NOBODY
            else:
                assert not any(isinstance(message, Malformed | Keepalive) for message in found)
                assert b"".join(map(HydraCodec(LEGACY_MAX_LINE).encode, found)) == data


@pytest.mark.parametrize("vector", of_kind("exchange"))
def test_every_line_sent_to_the_reference_decodes_or_has_a_reason(vector: Vector) -> None:
    for speaker, data in said(vector).items():
        if not speaker.startswith("node"):
            for message in decode(data):
                if isinstance(message, Malformed):
                    line = message.line.decode("latin-1")
                    expected = "unknown-command" if "..." in line else READ_OTHERWISE_BY_US[line]
                    assert message.reason == expected


@pytest.mark.parametrize("vector", conversations())
def test_chunking_does_not_affect_recorded_lines(vector: Vector) -> None:
    for data in said(vector).values():
        decoder, found = HydraDecoder(), []
        for byte in data:
            found += decoder.feed(bytes((byte,)))
        assert found == decode(data)
        assert decoder.waiting == len(data.rpartition(b"\r\n")[2])


def test_recorded_lines_contain_every_message_that_the_reference_sends() -> None:
    sent = {
        type(message)
        for vector in VECTORS
        if vector["kind"] in ("transcript", "exchange")
        for speaker, data in said(vector).items()
        if vector["kind"] == "transcript" or speaker.startswith("node")
        for message in decode(data)
    }
    assert sent == {Malformed, *KINDS.values()} - {Recv, Send}


def test_knock_of_the_reference_has_the_legacy_tag() -> None:
    knocks = [
        message
        for vector in VECTORS
        if vector["kind"] == "transcript"
        for data in said(vector).values()
        for message in decode(data)
        if isinstance(message, Knock)
    ]
    assert {message.tag for message in knocks} == {LEGACY_TAG}


def test_ids_on_the_wire_are_decimal() -> None:
    assert decode(b"PONG 1 4294967295 3\r\n") == [Pong("1", MAX_ID, 3)]
    assert decode(b"PONG 1 ffffffff 3\r\n") == [Malformed("bad-id", b"PONG 1 ffffffff 3")]


SERVER: Address = "10.0.0.99", 6_174
"""Address at which the first node dials the reference."""


class End:
    """One end of a connection.

    :ivar node: owner; ``None`` for a scripted peer.
    :ivar heard: data received by a scripted peer.
    """

    def __init__(self, wires: Wires, node: int | None, peer: Peer) -> None:
        self.wires = wires
        self.node = node
        self.peer = peer
        self.decoder = HydraDecoder()
        self.heard = b""
        self.open = True
        self.other: End

    def send(self, data: bytes) -> None:
        self.wires.under_way.append((self.other, data))
        self.wires.run(0.0)

    def close(self) -> None:
        self.wires.hang_up(self)
        self.wires.run(0.0)


class Wires:
    """Three nodes linked to the first, and scripted peers, on a network without latency.

    :ivar told: node number and event, of all nodes.
    """

    def __init__(self, *, size: int = 3, nodes: int = 3, targets: tuple[LinkTarget, ...] = ()) -> None:
        self.now = 1_000.0
        self.under_way: deque[tuple[End, bytes | None]] = deque()
        self.ends: dict[tuple[int, Peer], End] = {}
        self.dialled: list[End] = []
        self.told: list[tuple[int, Any]] = []
        self.said: list[bytes] = []
        self._number = 0
        self.nodes: list[HydraNode] = []
        for number in range(nodes):
            config = NodeConfig(
                tag=f"node{number}",
                network_size=size,
                bootstrap=number == 0,
                targets=(LinkTarget(_address(0)),) if number else targets,
            )
            self.nodes.append(HydraNode(config, Random(number), self.now, remembers=True))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            while self._settle():
                pass
            due = min((one.next_deadline() or inf for one in self.nodes), default=inf)
            if due > end:
                break
            self.now = max(self.now, due)
            for node in self.nodes:
                node.tick(self.now)
        self.now = end

    def connect(self, number: int, source: str = "10.0.0.77") -> End:
        """Connect to a node and return the test's end."""
        self._number += 1
        end = self._pair(None, Peer(_address(number), self._number, True), number, (source, 50_000 + self._number))
        self.run(0.0)
        return end

    def hang_up(self, end: End) -> None:
        if end.open:
            end.open = False
            self.under_way.append((end.other, None))

    def _settle(self) -> bool:
        busy = False
        for number, node in enumerate(self.nodes):
            drained = node.drain()
            for effect in drained.effects:
                busy = True
                if isinstance(effect, Dial):
                    self._dial(number, effect.address)
                elif isinstance(effect, Write):
                    end = self.ends.get((number, effect.peer))
                    if end is not None and end.open:
                        self.under_way.append((end.other, b"".join(map(HydraCodec().encode, effect.messages))))
                else:
                    self.hang_up(self.ends.pop((number, effect.peer)))
            for event in drained.events:
                busy = True
                self.told.append((number, event))
                if isinstance(event, OpenIrc):
                    node.irc_opened(self.now, b"bot!bot@example.org")
                elif isinstance(event, CloseIrc):
                    node.irc_closed(event.reason, self.now)
                elif isinstance(event, ToIrc):
                    assert self.now < event.deadline
                    self.said.append(event.line)
                    node.irc_handed(event, True, self.now)
        while self.under_way:
            busy = True
            end, data = self.under_way.popleft()
            if not end.open:
                continue
            if data is None:
                end.open = False
            if end.node is None:
                end.heard += data or b""
            elif data is None:
                del self.ends[end.node, end.peer]
                self.nodes[end.node].disconnected(end.peer, "closed", self.now)
            else:
                for message in end.decoder.feed(data):
                    self.nodes[end.node].receive(message, end.peer, self.now)
        return busy

    def _dial(self, number: int, address: Address) -> None:
        self._number += 1
        peer = Peer(address, self._number, True)
        if address == SERVER:
            self.dialled.append(self._pair(number, peer, None, _address(number)).other)
        else:
            self._pair(number, peer, int(address[0].rpartition(".")[2]), (_address(number)[0], 50_000 + self._number))

    def _pair(self, dialler: int | None, peer: Peer, acceptor: int | None, source: Address) -> End:
        ends = End(self, dialler, peer), End(self, acceptor, Peer(source, peer.number, False))
        ends[0].other, ends[1].other = reversed(ends)
        for end in ends:
            if end.node is not None:
                self.ends[end.node, end.peer] = end
                self.nodes[end.node].connected(end.peer, self.now)
        return ends[0]


def _address(number: int) -> Address:
    return f"10.0.0.{number}", 6_174


def in_term(**how: Any) -> Wires:
    """Return nodes that follow one leader."""
    wires = Wires(**how)
    wires.run(60.0)
    (leader,) = [node for node in wires.nodes if node.role is Role.LEADER]
    assert {node.leader for node in wires.nodes} == {leader.id}
    wires.told.clear()
    return wires


def standing(wires: Wires) -> list[Any]:
    """Return the state that reference peers must not be able to change."""
    return [
        (node.id, node.role, node.term, node.leader, [one.id for one in node.state(wires.now).nodes])
        for node in wires.nodes
    ]


def spoken(vector: Vector) -> list[tuple[str, bytes]]:
    """Return speaker and data of each step, in order."""
    found = []
    for step in vector["steps"]:
        text = step.get("line") or step.get("text")
        if text is None and step.get("event", "").split(" ")[0] in KINDS:
            text = step["event"] + "\r\n"
        if text is not None:
            found.append((step["from"], text.encode("latin-1")))
    return found


def renamed(data: bytes, ids: dict[int, int]) -> bytes:
    """Return the lines with other ids."""

    def rename(word: bytes) -> bytes:
        return str(ids.get(int(word), int(word))).encode() if word.isdigit() else word

    return b"\r\n".join(b" ".join(map(rename, line.split(b" "))) for line in data.split(b"\r\n"))


def lines_of_the_reference() -> list[Any]:
    """Return each conversation from the reference's side, with the role of each speaker."""
    found = []
    for vector in VECTORS:
        if vector["kind"] == "exchange":
            sides = [("node", "server" if vector["fields"]["node_role"] == "server" else "client")]
        elif vector["kind"] == "transcript":
            sides = [("mediator", "server"), ("joiner", "client")]
        else:
            continue
        found += [pytest.param(vector, side, role, id=f"{vector['name']}, {side}") for side, role in sides]
    return found


def play(wires: Wires, vector: Vector, side: str, role: str, ids: Callable[[int], dict[int, int]]) -> End:
    """Replay the reference's lines over a link to the first node."""
    node = wires.nodes[0]
    assert node.id is not None
    end = wires.dialled[-1] if role == "server" else wires.connect(0)
    if role == "client" and not any(data.startswith(b"KNOCK") for who, data in spoken(vector) if who == side):
        end.send(b"KNOCK 1804289383 Hebi\r\n")
    for who, data in spoken(vector):
        if who.startswith(side):
            end.send(renamed(data, ids(node.id)))
        wires.run(0.3)
    return end


def nobody_else(own: int) -> dict[int, int]:
    return {}


def the_node(own: int) -> dict[int, int]:
    """Return our node's substitute for the other speaker."""
    return dict.fromkeys((42, 1_505_335_290, 1_205_554_746), own)


@pytest.mark.parametrize("ids", [nobody_else, the_node])
@pytest.mark.parametrize(("vector", "side", "role"), lines_of_the_reference())
def test_recorded_reference_lines_do_not_change_the_network(
    vector: Vector, side: str, role: str, ids: Callable[[int], dict[int, int]]
) -> None:
    wires = in_term(targets=(LinkTarget(SERVER, legacy=True),) if role == "server" else ())
    before = standing(wires)
    end = play(wires, vector, side, role, ids)
    wires.run(40.0)
    assert standing(wires) == before
    assert wires.told == []
    assert end.open
    # The reference crashes on longer lines and on lines with a missing word.
    for message in decode(end.heard):
        assert not isinstance(message, Malformed)
        assert len(HydraCodec(LEGACY_MAX_LINE).encode(message)) <= LEGACY_MAX_LINE + 2


@pytest.mark.parametrize("vector", of_kind("exchange"))
def test_recorded_lines_of_unbound_peers_do_not_change_the_network(vector: Vector) -> None:
    wires = in_term()
    before = standing(wires)
    end = wires.connect(0)
    for who, data in spoken(vector):
        if who.startswith("peer"):
            end.send(data)
    wires.run(40.0)
    assert standing(wires) == before
    assert [event for _, event in wires.told] == []
    assert b"MEET" not in end.heard.replace(b"MEET 42 42", b"")


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("line", ["NOMINATE 9 {id}", "PING 9 x {id}", "DROP {id}", "PONG x {id} 0", "CALL 9"])
def test_unbound_peer_cannot_impersonate_a_node(line: str, number: int) -> None:
    wires = in_term()
    before = standing(wires)
    end = wires.connect(number)
    for node in wires.nodes:
        end.send(line.format(id=node.id).encode() + b"\r\n")
    wires.run(40.0)
    assert standing(wires) == before
    assert wires.told == []
    assert wires.nodes[number].counters[f"unbound_{line.split(' ')[0].lower()}"] >= 3


@pytest.mark.parametrize("number", [0, 1, 2])
def test_reference_peer_is_welcomed_with_its_own_message_sequence(number: int) -> None:
    wires = in_term()
    before = standing(wires)
    own = wires.nodes[number].id
    end = wires.connect(number)
    start = len(end.heard)
    end.send(b"KNOCK 1804289383 Hebi\r\n")
    assert end.heard[start:] == b"MEET 1804289383 %d\r\nWELCOME 1804289383\r\nHELLO 1804289383 %d\r\n" % (own, own)
    wires.run(60.0)
    assert standing(wires) == before


def test_reference_peer_stays_connected_without_answering_pings() -> None:
    wires = in_term()
    leader = wires.nodes[0].leader
    end = wires.connect(0)
    end.send(b"KNOCK 1804289383 Hebi\r\n")
    wires.run(60.0)
    pings = [message for message in decode(end.heard) if isinstance(message, Ping)]
    assert len(pings) >= 10
    assert {message.id for message in pings} == {leader}
    assert len({message.val for message in pings}) >= 10
    assert end.open
    assert Drop not in map(type, decode(end.heard))


def test_two_reference_peers_receive_nothing_from_each_other() -> None:
    wires = in_term()
    first, second = wires.connect(0), wires.connect(0)
    first.send(b"KNOCK 1804289383 Hebi\r\n")
    second.send(b"KNOCK 846930886 Hebi\r\n")
    wires.run(1.0)
    assert b"846930886" not in first.heard
    for line in (b"NOMINATE 9 846930886", b"PLEDGE 9 1 846930886", b"PONG x 846930886 3", b"DROP 1804289383"):
        second.send(line + b"\r\n")
    wires.run(20.0)
    assert b"846930886" not in first.heard
    assert b"DROP" not in first.heard


def test_reference_peer_does_not_count_towards_a_quorum() -> None:
    wires = Wires(nodes=1, targets=(LinkTarget(SERVER, legacy=True),))
    wires.run(1.0)
    server = wires.dialled[-1]
    for _ in range(20):
        server.send(b"PING 0 2 1804289383\r\n")
        client = wires.connect(0)
        client.send(b"KNOCK 846930886 Hebi\r\n")
        for end in (server, client):
            for ping in [message for message in decode(end.heard) if isinstance(message, Ping)]:
                end.send(b"PONG %b %d 1\r\n" % (ping.val.encode(), ping.id))
                end.send(b"PONG %b 846930886 0\r\n" % ping.val.encode())
        wires.run(5.0)
    assert not any(isinstance(event, OpenIrc) for _, event in wires.told)
    assert wires.said == []


def test_pings_of_a_reference_server_are_answered_and_the_first_is_followed_by_a_knock() -> None:
    wires = in_term(targets=(LinkTarget(SERVER, legacy=True),))
    own = wires.nodes[0].id
    server = wires.dialled[-1]
    start = len(server.heard)
    for number in (b"2", b"3"):
        server.send(b"PING 0 %b 1804289383\r\n" % number)
    said = [one for one in decode(server.heard[start:]) if not isinstance(one, Ping | Keepalive)]
    assert said == [Knock(own or 0, "node0"), Pong("2", own or 0, 0, "node0"), Pong("3", own or 0, 0, "node0")]
