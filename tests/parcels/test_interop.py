"""Nodes among peers that implement only the source document, compared byte by byte."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from parcels.harness import Net

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.parcels.events import EventsDelivered, NeighbourAdded, NeighbourRemoved, PublishConfirmed
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import Mode, NodeInfo, Parcel, ParcelType, node_id

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "vectors" / "parcels.json").read_text(encoding="utf-8")
)
TRANSCRIPTS = [one for one in VECTORS if one["kind"] == "transcript"]
LIVE = {one["name"]: one for one in VECTORS if one["kind"] == "live"}
DSC_REQ, DSC_RES, SEQ_REQ, SEQ_RES, PROTO_ERROR = ParcelType
BORIS = "127.0.0.1", 7_879
IVAN = "127.0.0.1", 7_878


def info(name: str, number: int, mode: Mode = Mode.WRK) -> NodeInfo:
    return NodeInfo(node_id(name), mode, name, (f"10.0.0.{number}", 7_878))


def answer(name: str, number: int, *others: NodeInfo) -> Parcel:
    return Parcel(True, DSC_RES, node_id(name), (*others, info(name, number)))


def question(about: NodeInfo) -> Parcel:
    return Parcel(False, DSC_REQ, about.id, about)


def parcels(data: bytes) -> list[Parcel]:
    """Decode data that a reference peer received; fail on anything that would crash it."""
    decoder = ParcelCodec().decoder()
    found = decoder.feed(data)
    assert decoder.waiting == 0
    assert all(isinstance(one, Parcel) for one in found)
    return found  # type: ignore[return-value]


def names(host: Any) -> list[str]:
    return [one.name for one in host.node.state(host.net.now).neighbours]


def check(*actors: Any) -> None:
    """Check that reference peers received only one parcel of the document per connection."""
    for actor in actors:
        assert actor.garbage == []
        for end in actor.accepted:
            (parcel,) = parcels(bytes(end.raw))
            assert (parcel.type, type(parcel.body)) in ((DSC_REQ, NodeInfo), (SEQ_REQ, type(None)))
            assert not parcel.is_response
            assert parcel.data == b""


def test_joiners_receive_the_replies_of_the_reference(net: Net) -> None:
    boris = net.node("Boris", 0, address=BORIS)
    assert boris.node.mode is Mode.WRK
    for transcript in TRANSCRIPTS:
        end = net.connect(boris, "127.0.0.1")
        end.send_bytes(bytes.fromhex(transcript["hex"]))
        net.run(0.01)
        assert end.raw.hex() == transcript["reply_hex"]
    assert names(boris) == ["Ivan", "Olga", "Petr", "Vera"]
    assert [one.votes for one in boris.node.state(net.now).neighbours] == [False] * 4
    assert len(boris.of(NeighbourAdded)) == 4


@pytest.mark.parametrize("cut", [1, 50])
def test_fragmented_parcel_is_answered_once_complete(net: Net, cut: int) -> None:
    boris = net.node("Boris", 0, address=BORIS)
    data = bytes.fromhex(TRANSCRIPTS[0]["hex"])
    end = net.connect(boris, "127.0.0.1")
    end.send_bytes(data[:cut])
    net.run(2.0)
    assert end.raw == b""
    end.send_bytes(data[cut:])
    net.run(0.1)
    assert end.raw.hex() == TRANSCRIPTS[0]["reply_hex"]


@pytest.mark.parametrize("name", [name for name in LIVE if name.startswith("responder:") and "thread" not in name])
def test_recorded_request_of_a_reference_peer_is_answered(net: Net, name: str) -> None:
    vector = LIVE[name]
    fields = vector["fields"]
    reply = bytes.fromhex(fields.get("reply_hex", ""))
    own = BORIS
    if reply and "over 255" not in name:
        (expected,) = parcels(reply)
        assert isinstance(expected.body, tuple)
        own = expected.body[-1].host  # type: ignore[union-attr]
    boris = net.node("Boris", 0, address=own)
    end = net.connect(boris, "127.0.0.1")
    data = bytes.fromhex(vector["hex"])
    end.send_bytes(data)
    net.run(0.01)
    got = parcels(bytes(end.raw))
    assert b"\x64ours" not in end.raw
    if "own name" in name:
        assert [one.type for one in got] in ([PROTO_ERROR], [DSC_RES])
    elif "two DscReq" in name:
        assert bytes(end.raw) == 2 * reply
    elif reply and "over 255" not in name:
        assert bytes(end.raw) == reply
    elif "SeqReq" in name and "body" not in name:
        assert got == [Parcel(True, SEQ_RES, node_id("Boris"), 0)]
    elif "abort" not in fields["outcome"] and "over 255" not in name:
        assert [one.type for one in got] == [PROTO_ERROR]
    if "garbage" in name or "n=0" in name:
        assert end.closed_by_peer
    else:
        assert not end.closed_by_peer
    end.close()
    net.run(3.0)
    assert boris.node.mode is Mode.WRK


def test_every_kind_of_parcel_is_answered_and_no_connection_is_closed(net: Net) -> None:
    boris = net.node("Boris", 2)
    boris.call("publish", [b"a"] * 300, 1)
    about = info("Ivan", 1)
    for parcel, expected in (
        (question(about), DSC_RES),
        (Parcel(False, SEQ_REQ, about.id), SEQ_RES),
        (Parcel(False, SEQ_RES, about.id), SEQ_RES),  # The document's name for the request.
        (Parcel(True, SEQ_RES, about.id, 3), PROTO_ERROR),
        (Parcel(True, DSC_RES, about.id, (about,)), PROTO_ERROR),
        (Parcel(True, DSC_RES, about.id, ()), PROTO_ERROR),
        (Parcel(False, DSC_REQ, about.id), PROTO_ERROR),
        (Parcel(False, DSC_REQ, about.id, 7), PROTO_ERROR),
        (Parcel(False, SEQ_REQ, about.id, about), PROTO_ERROR),
        (Parcel(False, PROTO_ERROR, about.id), PROTO_ERROR),
    ):
        end = net.connect(boris, "10.0.0.1")
        end.send(parcel)
        net.run(0.01)
        (got,) = parcels(bytes(end.raw))
        assert (got.type, got.is_response, got.id) == (expected, True, node_id("Boris"))
        assert not end.closed_by_peer
        if expected is SEQ_RES:
            assert got.body == 300


def test_discovery_reply_with_many_neighbours_is_valid(net: Net) -> None:
    boris = net.node("Boris", 2)
    for number in range(10, 18):
        net.connect(boris, f"10.0.0.{number}").send(question(info(f"peer{number}", number)))
    net.run(0.01)
    for ours in (False, True):
        end = net.connect(boris, "10.0.0.1")
        about = info("Ivan", 1)
        own = boris.node.components.neighbours.me
        end.send(question(about._replace(ours=own.ours._replace(incarnation=5)) if ours else about))
        net.run(0.01)
        (got,) = parcels(bytes(end.raw))
        assert sorted(one.name for one in got.body) == ["Boris", *(f"peer{number}" for number in range(10, 18))]
        # A reference peer reads the declared length and ignores the rest.
        head = bytes(end.raw[1 : 1 + end.raw[0]])
        assert len(end.raw) > len(head) + 1
        size_at = head.index(b"dsize") + 5
        size = int.from_bytes(head[size_at + 1 : size_at + 3 if head[size_at] == 0x19 else size_at + 2], "big")
        assert len(end.raw) == 1 + len(head) + size
        assert head.count(b"dname") >= 2
        assert (b"\x64ours" in end.raw) is ours


def test_discovery_reply_lists_the_responder_in_its_head(net: Net) -> None:
    boris = net.node("Boris", 2)
    for number in range(10, 18):
        net.connect(boris, f"10.0.0.{number}").send(question(info(f"peer{number}", number)))
    end = net.connect(boris, "10.0.0.1")
    end.send(question(info("Ivan", 1)))
    net.run(0.01)
    assert b"Boris" in end.raw[: 1 + end.raw[0]]


def test_discovery_request_with_an_overlong_name_gets_a_protocol_error(net: Net) -> None:
    boris = net.node("Boris", 2)
    for name in ("ä" * 64, "n" * 140):
        end = net.connect(boris, "10.0.0.1")
        end.send(question(info(name, 1)))
        net.run(0.01)
        assert [one.type for one in parcels(bytes(end.raw))] == [PROTO_ERROR]
        assert name not in names(boris)


def test_names_of_the_maximum_length_are_accepted(net: Net) -> None:
    boris = net.node("Boris", 2)
    for name in ("ä" * 32, "n" * 64):
        end = net.connect(boris, "10.0.0.1")
        end.send(question(info(name, 1)))
        net.run(0.01)
        assert [one.type for one in parcels(bytes(end.raw))] == [DSC_RES]
        assert name in names(boris)
    end = net.connect(boris, "10.0.0.3")
    end.send(question(info("Ivan", 3)))
    net.run(0.01)
    (got,) = parcels(bytes(end.raw))
    assert len(got.body) == 3


def test_longest_discovery_request_fits_a_parcel(net: Net) -> None:
    peer = net.play(1)
    address = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 65_535
    net.node("ä" * 32, 2, (1,), address=address, seed=2)
    net.run(0.1)
    check(peer)
    assert len(peer.accepted) == 1


def test_discovery_request_differs_from_the_reference_only_by_its_extension(net: Net) -> None:
    def reply(end: Any, message: Any) -> None:
        end.send_bytes(bytes.fromhex(TRANSCRIPTS[0]["reply_hex"]))
        end.close()

    boris = net.play(BORIS, reply)
    ivan = net.node("Ivan", 0, (BORIS,), address=IVAN)
    net.run(0.1)
    first = bytes(boris.accepted[0].raw)
    (parcel,) = parcels(first)
    assert isinstance(parcel.body, NodeInfo)
    assert parcel.body.ours is not None
    plain = parcel._replace(body=parcel.body._replace(ours=None))
    assert ParcelCodec().encode(plain).hex() == TRANSCRIPTS[0]["hex"]
    # The bytes differ by one key in a map of five, and by its length.
    reference = bytes.fromhex(TRANSCRIPTS[0]["hex"])
    at = reference.index(b"\xa4\x62id")
    assert first[1:at] == reference[1:at]
    assert first[at] == 0xA5
    assert first[at + 1 : len(reference)] == reference[at + 1 :]
    assert first[len(reference) : len(reference) + 5] == b"\x64ours"
    assert ivan.of(NeighbourAdded)


def joined(net: Net, vector: dict[str, Any], keeps_open: bool = False) -> tuple[Any, Any]:
    def reply(end: Any, message: Any) -> None:
        data = bytes.fromhex(vector["hex"])
        for piece in (data[:1], data[1:40], data[40:]):
            end.send_bytes(piece)
        if not keeps_open:
            end.close()

    peer = net.play(BORIS, reply)
    ivan = net.node("Ivan", 0, (BORIS,), address=IVAN)
    net.run(1.0)
    return ivan, peer


@pytest.mark.parametrize("name", [name for name in LIVE if name.startswith("joiner:")])
def test_recorded_reply_of_a_reference_peer_is_handled(net: Net, name: str) -> None:
    vector = LIVE[name]
    ivan, peer = joined(net, vector, "kept open" in name)
    check(peer)
    afterwards = vector["fields"].get("dsc_res_of_joiner_afterwards_hex")
    if "received_hex" in vector["fields"]:
        (sent,) = parcels(bytes(peer.accepted[0].raw))
        (expected,) = parcels(bytes.fromhex(vector["fields"]["received_hex"]))
        assert isinstance(sent.body, NodeInfo)
        assert isinstance(expected.body, NodeInfo)
        assert sent.body._replace(ours=None, host=IVAN) == expected.body._replace(host=IVAN)
    if afterwards and "type SeqRes" not in name and "same id" not in name and "joiner itself" not in name:
        (expected,) = parcels(bytes.fromhex(afterwards))
        wanted = {one.name for one in expected.body} - {"Ivan"}  # type: ignore[union-attr]
        assert set(names(ivan)) == wanted
        end = net.connect(ivan, "127.0.0.1")
        end.send_bytes(bytes.fromhex(TRANSCRIPTS[2]["hex"]))
        net.run(0.01)
        (got,) = parcels(bytes(end.raw))
        assert {one.name for one in got.body} == wanted | {"Ivan"}  # type: ignore[union-attr]
    net.run(20.0)
    check(peer)
    assert "Ivan" not in names(ivan)


@pytest.mark.parametrize("sequences", [(24, 23), (23, 24), (255,), (0,), (300, 2**40)])
@pytest.mark.parametrize("found", [True, False])
def test_new_cluster_starts_at_the_highest_sequence_of_its_reference_peers(
    net: Net, sequences: tuple[int, ...], found: bool
) -> None:
    peers = [
        net.document(number, answer(f"peer{number}", number), sequence) for number, sequence in enumerate(sequences, 2)
    ]
    ivan = net.node("Ivan", 1, tuple(range(2, 2 + len(sequences))), bootstrap=found)
    assert net.run(3.0, lambda: ivan.node.mode is Mode.WRK)
    assert ivan.node.sequence == max(sequences)
    assert ivan.node.oldest == max(sequences) + 1
    ivan.call("publish", [b"next"], 1)
    assert ivan.of(PublishConfirmed) == [PublishConfirmed(1, ((max(sequences) + 1, 1),))]
    assert [one.sequence for each in ivan.of(EventsDelivered) for one in each.events] == [max(sequences) + 1]
    end = net.connect(ivan, "10.0.0.9")
    end.send(Parcel(False, SEQ_REQ, 9))
    net.run(0.01)
    assert parcels(bytes(end.raw))[0].body == max(sequences) + 1
    check(*peers)
    boris = net.node("Boris", 8, (1,))
    assert net.run(10.0, lambda: boris.node.mode is Mode.WRK)
    boris.call("publish", [b"and"], 2)
    net.run(1.0)
    assert boris.of(PublishConfirmed) == [PublishConfirmed(2, ((max(sequences) + 2, 1),))]
    check(*peers)


@pytest.mark.parametrize("silent", [True, False])
def test_bootstrap_starts_at_0_when_the_sequence_request_is_not_answered(net: Net, silent: bool) -> None:
    def reply(end: Any, message: Any) -> None:
        if message.type is DSC_REQ:
            end.send(answer("Boris", 2))
        if message.type is DSC_REQ or not silent:
            end.close()

    peer = net.play(2, reply)
    ivan = net.node("Ivan", 1, (2,), bootstrap=True)
    assert net.run(6.0, lambda: ivan.node.mode is Mode.WRK)
    assert ivan.node.sequence == 0
    net.run(20.0)
    assert names(ivan) == ["Boris"]
    asked = [end.received[0].type for end in peer.accepted]
    assert asked.count(SEQ_REQ) == 1
    check(peer)


def test_bootstrap_succeeds_when_the_sequence_request_is_refused(net: Net) -> None:
    def reply(end: Any, message: Any) -> None:
        end.send(answer("Boris", 2) if message.type is DSC_REQ else Parcel(True, PROTO_ERROR, node_id("Boris")))
        end.close()

    net.play(2, reply)
    ivan = net.node("Ivan", 1, (2,), bootstrap=True)
    assert net.run(20.0, lambda: ivan.node.mode is Mode.WRK)
    assert names(ivan) == ["Boris"]


def test_existing_cluster_takes_precedence_over_reference_peers(net: Net) -> None:
    net.node("Olga", 4)
    peer = net.document(2, answer("Boris", 2), 77)
    ivan = net.node("Ivan", 1, (2, 4), bootstrap=True)
    assert net.run(5.0, lambda: ivan.node.mode is Mode.WRK)
    assert ivan.node.sequence == 0
    assert [one.name for one in ivan.node.state(net.now).members] == ["Ivan", "Olga"]
    check(peer)


def test_reference_peer_stays_a_neighbour_without_a_vote(net: Net) -> None:
    peer = net.document(2, answer("Boris", 2), 5)
    ivan = net.node("Ivan", 1, (2,))
    net.run(60.0)
    check(peer)
    (one,) = ivan.node.state(net.now).neighbours
    assert (one.name, one.address, one.ours, one.votes, one.mode) == ("Boris", "10.0.0.2:7878", False, False, "Wrk")
    assert one.silent <= 1.6
    assert [member.name for member in ivan.node.state(net.now).members] == ["Ivan"]
    times = [at for at, _ in ivan.dialled][3:]
    between = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert min(between) == pytest.approx(1.5, abs=0.01)
    assert max(between) == pytest.approx(1.5, abs=0.01)
    assert len(ivan.of(NeighbourAdded)) == 1
    assert ivan.of(NeighbourRemoved) == []


def test_neighbours_of_a_reference_peer_are_discovered(net: Net) -> None:
    peers = [net.document(2, answer("Boris", 2, info("Vera", 3)), 5), net.document(3, answer("Vera", 3), 9)]
    ivan = net.node("Ivan", 1, (2,))
    net.run(5.0)
    assert names(ivan) == ["Boris", "Vera"]
    check(*peers)


def test_silent_reference_peer_is_removed_after_5_seconds(net: Net) -> None:
    peer = net.document(2, answer("Boris", 2), 5)
    ivan = net.node("Ivan", 1, (2,))
    net.run(10.0)
    heard = ivan.node.state(net.now).neighbours[0].silent
    peer.answer = None
    net.run(5.0 - heard - 0.3)
    assert names(ivan) == ["Boris"]
    net.run(1.5)
    assert names(ivan) == []
    (removed,) = ivan.of(NeighbourRemoved)
    assert (removed.name, removed.address) == ("Boris", ("10.0.0.2", 7_878))
    assert "silent" in removed.reason
    assert ivan.node.mode is Mode.WRK
    # It is dialled again, and returns.
    net.document(2, answer("Boris", 2), 5)
    net.run(10.0)
    assert names(ivan) == ["Boris"]
    check(peer)


def test_reference_peer_that_refuses_connections_is_removed_and_may_return(net: Net) -> None:
    net.document(2, answer("Boris", 2), 5)
    ivan = net.node("Ivan", 1, (2,))
    net.run(10.0)
    del net.listening[net.address(2)]
    net.run(1.6)
    assert names(ivan) == []
    (removed,) = ivan.of(NeighbourRemoved)
    assert "refused" in removed.reason
    net.document(2, answer("Boris", 2), 5)
    net.run(5.0)
    assert names(ivan) == ["Boris"]


def test_reference_peer_that_dials_is_dialled_back(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    peer = net.document(7, answer("Boris", 7), 5)
    end = net.connect(ivan, "10.0.0.7")
    end.send(question(info("Boris", 7, Mode.DSC)))
    net.run(20.0)
    assert names(ivan) == ["Boris"]
    assert len(peer.accepted) > 10
    assert ivan.node.state(net.now).neighbours[0].mode == "Wrk"
    check(peer)


def test_reference_peer_that_only_dials_stays_while_it_dials(net: Net) -> None:
    ivan = net.node("Ivan", 1)
    net.silent.add(net.address(7))
    for _ in range(5):
        net.connect(ivan, "10.0.0.7").send(question(info("Boris", 7)))
        net.run(4.0)
        assert names(ivan) == ["Boris"]
    net.run(3.0)
    assert names(ivan) == []


def test_nodes_form_a_cluster_among_reference_peers(net: Net) -> None:
    peers = [
        net.document(4, answer("Olga", 4, info("Petr", 5)), 10),
        net.document(5, answer("Petr", 5, info("Olga", 4)), 20),
    ]
    net.node("Ivan", 1, (2, 3, 4, 5), bootstrap=True)
    net.run(3.0)
    for name, number in (("Boris", 2), ("Vera", 3)):
        net.node(name, number, (1, 4, 5))
    hosts = [net.hosts[name] for name in ("Ivan", "Boris", "Vera")]
    assert net.run(20.0, lambda: all(host.node.mode is Mode.WRK for host in hosts))
    net.run(10.0)
    for host in hosts:
        host.call("publish", [b"x" + host.address[0].encode()], 1)
    net.run(1.0)
    for host in hosts:
        state = host.node.state(net.now)
        assert [one.name for one in state.members] == ["Boris", "Ivan", "Vera"]
        others = [name for name in ("Boris", "Ivan", "Vera") if name != state.name]
        assert names(host) == sorted([*others, "Olga", "Petr"])
        assert (state.sequence, state.quorum) == (23, 2)
    assert hosts[0].read() == hosts[1].read() == hosts[2].read()
    hosts[1].kill()
    net.run(10.0)
    assert [one.name for one in hosts[0].node.state(net.now).members] == ["Ivan", "Vera"]
    check(*peers)
    for peer in peers:
        assert b"parcels" not in b"".join(bytes(end.raw) for end in peer.accepted)


def test_only_one_of_two_reference_peers_with_the_same_id_is_listed(net: Net) -> None:
    vector = LIVE["joiner: two nodes with the same id and different names"]
    ivan, peer = joined(net, vector)
    assert len(names(ivan)) == 1
    net.run(10.0)
    assert ivan.node.mode is Mode.WRK
    check(peer)


def test_reference_peer_missing_from_its_own_list_is_named_by_its_address(net: Net) -> None:
    vector = LIVE["joiner: DscRes lists the joiner itself"]
    ivan, peer = joined(net, vector)
    assert names(ivan) == ["127.0.0.1:7879"]
    net.run(10.0)
    assert names(ivan) == ["127.0.0.1:7879"]
    assert ivan.node.mode is Mode.WRK
    check(peer)


def test_malformed_discovery_reply_is_ignored_and_retried_with_backoff(net: Net) -> None:
    ivan, peer = joined(net, LIVE["joiner: garbage reply"])
    net.run(30.0)
    assert names(ivan) == []
    assert ivan.node.mode is Mode.DSC
    # It is retried with backoff.
    assert 10 <= len(ivan.dialled) <= 25
    check(peer)


def test_connection_that_opens_after_the_dial_timeout_is_used(net: Net) -> None:
    net.silent.add(net.address(2))
    ivan = net.node("Ivan", 1, (2,))
    net.run(12.1)  # The node has given up the dial by now.
    peer = Peer(net.address(2), 1, True)
    ivan.wrote.clear()
    ivan.node.connected(peer, net.now)
    ivan.flush()
    assert [one.type for _, to, one in ivan.wrote if to == peer] == [DSC_REQ]
