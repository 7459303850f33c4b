"""Transfer of the application's state, as the peer of a node sees it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from parcels.counter import Sum
from parcels.harness import Host, Net
from parcels.node.harness import join, members, warnings

from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.node.members import state_transfer
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.wire.messages import FetchState, FetchStateReply

SOURCE, OTHER = MemberId("source", 1), MemberId("other", 1)
NOT_HELD = FetchStateReply(0, 0, 0, False, b"")


class Digits(Sum):
    """State with a snapshot of several parts."""

    def snapshot(self) -> bytes:
        return b"%0100000d" % self.total

    def restore(self, data: bytes) -> None:
        super().restore(data.lstrip(b"0") or b"0")


@pytest.fixture
def state() -> Sum:
    return Digits()


@pytest.fixture
def net() -> Net:
    return Net()


@pytest.fixture
def host(net: Net, state: Sum) -> Host:
    host = net.node("Ivan", 1, bootstrap=True, application=state)
    net.run(2)
    return host


def publish(net: Net, host: Host, *events: bytes) -> None:
    host.node.publish(list(events), object(), net.now)
    host.flush()
    net.run(1)


def ask(net: Net, end: Any, message: FetchState) -> FetchStateReply:
    end.send(message)
    net.run(0.01)
    [reply] = [one for one in end.take() if isinstance(one, FetchStateReply)]
    return reply


def test_a_state_is_sent_in_parts(net: Net, host: Host) -> None:
    publish(net, host, b"5", b"7")
    end = join(net, host, "Boris")
    data, sequence = b"", 0
    while len(data) < 100_000:
        reply = ask(net, end, FetchState(sequence, len(data)))
        assert (reply.sequence, reply.offset, reply.total, reply.held) == (2, len(data), 100_000, True)
        assert 0 < len(reply.data) <= state_transfer.PART_BYTES
        sequence, data = reply.sequence, data + reply.data
        publish(net, host, b"1000")  # Must not change the state in the middle of its transfer.
    assert data == b"%0100000d" % 12


def test_a_transfer_begins_again_when_its_snapshot_is_gone(net: Net, host: Host) -> None:
    publish(net, host, b"5")
    end = join(net, host, "Boris")
    first = ask(net, end, FetchState(0, 0))
    publish(net, host, b"7")
    net.run(state_transfer.SNAPSHOT_LIFETIME)
    end = join(net, host, "Vera")
    assert ask(net, end, FetchState(0, 0)).sequence == 2
    again = ask(net, end, FetchState(first.sequence, len(first.data)))
    assert (again.sequence, again.offset) == (2, 0)


def test_a_node_without_a_usable_state_says_so(net: Net) -> None:
    without = net.node("Ivan", 1, bootstrap=True)
    net.run(2)
    assert ask(net, join(net, without, "Boris"), FetchState(0, 0)) == NOT_HELD


def test_a_node_sends_no_state_that_has_failed_or_is_too_large(
    net: Net, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = join(net, host, "Boris")
    with monkeypatch.context() as patch:
        patch.setattr(state_transfer, "MAX_STATE_BYTES", 99_999)
        assert ask(net, end, FetchState(0, 0)) == NOT_HELD
    publish(net, host, b"no number")
    assert ask(net, end, FetchState(0, 0)) == NOT_HELD


def test_a_node_becomes_a_member_once_it_has_the_state(net: Net, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(net, host, b"5", b"7")
    asked: list[float] = []

    def fetch_received(message: FetchState, caller: Any, now: float) -> None:
        asked.append(now)

    handlers = host.node._request_handlers
    monkeypatch.setitem(handlers, FetchState, fetch_received)
    net.node("Boris", 2, (1,), application=Digits(), join_events=0)
    net.run(5.0)
    assert asked
    assert members(host) == ["Ivan"]
    monkeypatch.undo()
    assert net.run(5.0, lambda: members(host) == ["Boris", "Ivan"])
    assert net.hosts["Boris"].node.components.application_state.is_complete


def test_a_node_that_gets_no_state_becomes_a_member_nevertheless(net: Net) -> None:
    without = net.node("Ivan", 1, bootstrap=True)
    net.run(2)
    publish(net, without, b"5", b"7")
    joining = net.node("Boris", 2, (1,), application=Digits(), join_events=0)
    net.run(state_transfer.JOIN_PATIENCE - 2.0)
    assert members(without) == ["Ivan"]
    assert net.run(5.0, lambda: members(without) == ["Boris", "Ivan"])
    assert "the state lacks events 1 to 2, and no node that can be reached has it" in warnings(joining)


class Requester:
    """Node that lacks the events up to 10, and has asked a node for its state."""

    def __init__(self) -> None:
        self.state = Sum()
        node = ClusterNode(NodeConfig("Ivan"), Random(1), 0.0, application=self.state)
        node.components.delivery.start_after(10)
        self.application = node.components.application_state
        self.transfer = node.components.state_transfer
        self.transfer._source = SOURCE
        self.asked: list[FetchState] = []
        node.components.links.request = lambda member, message: self.asked.append(message)  # type: ignore[method-assign]

    def reply(self, *reply: Any, sender: MemberId = SOURCE) -> bool:
        return self.transfer.reply_received(FetchStateReply(*reply), sender, 0.0)


@pytest.fixture
def requester() -> Requester:
    return Requester()


@pytest.mark.interpreted
def test_a_state_is_put_together_from_its_parts(requester: Requester) -> None:
    assert requester.reply(12, 0, 4, True, b"12")
    assert requester.asked == [FetchState(12, 2)]
    assert requester.application.sequence == 0
    assert requester.reply(12, 2, 4, True, b"34")
    assert (requester.application.sequence, requester.state.total) == (12, 1234)


@pytest.mark.interpreted
def test_parts_of_different_snapshots_are_not_mixed(requester: Requester) -> None:
    assert requester.reply(12, 0, 4, True, b"12")
    assert not requester.reply(13, 2, 4, True, b"99")
    assert not requester.reply(12, 1, 4, True, b"99")
    assert not requester.reply(12, 2, 4, True, b"99", sender=OTHER)
    assert requester.reply(13, 0, 4, True, b"56")  # The source has begun again.
    assert requester.reply(13, 2, 4, True, b"78")
    assert (requester.application.sequence, requester.state.total) == (13, 5678)


@pytest.mark.interpreted
@pytest.mark.parametrize(
    "reply",
    [
        (0, 0, 0, False, b""),
        (12, 0, state_transfer.MAX_STATE_BYTES + 1, True, b"1"),
        (12, 0, 4, True, b"12345"),
        (9, 0, 4, True, b"1234"),
        (12, 0, 4, True, b""),
    ],
    ids=["not held", "too large", "longer than it says", "too old", "empty part"],
)
def test_an_unusable_state_is_not_restored(requester: Requester, reply: tuple[Any, ...]) -> None:
    assert requester.reply(*reply)
    assert (requester.application.sequence, requester.state.total) == (0, 0)
    assert requester.transfer._source is None
