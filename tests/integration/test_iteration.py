"""Asynchronous iteration with Twisted, with services in processes of their own."""

from __future__ import annotations

from typing import Any

import pytest
from integration.running.backbone import RunningBackbone, StartBackbone
from integration.running.cluster import StartCluster
from pytest_twisted import ensureDeferred
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from fyrehose_twisted.errors import BeyondEnd, MessagesMissing, NotConnected
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import MessagesLost
from fyrehose_twisted.fyrehose.protocol import StreamProtocol
from fyrehose_twisted.fyrehose.service.connect import join
from fyrehose_twisted.parcels.client.http_client import ParcelsClient

DEADLINE = 60.0


def bounded(work: Any) -> Deferred[Any]:
    async def awaited() -> Any:
        return await work

    return Deferred.fromCoroutine(awaited()).addTimeout(DEADLINE, reactor)


@ensureDeferred
async def test_a_stream_is_iterated_over(backbone: RunningBackbone) -> None:
    async with await join(reactor, StreamProtocol(), backbone.text) as stream:
        assert stream.connected
        numbers = await stream.publish_many([b"%d" % index for index in range(100)])
        for index, number in enumerate(numbers):
            message = await bounded(anext(stream))
            assert (message.sequence, message.data) == (number, b"%d" % index)
        waiting = Deferred.fromCoroutine(anext(stream))
        number = await stream.publish(b"later")
        assert (await bounded(waiting)).sequence == number
    assert not stream.connected
    assert [message async for message in stream] == []
    with pytest.raises(NotConnected):
        stream.publish(b"too late")


@ensureDeferred
async def test_lost_messages_are_raised_in_their_place_or_yielded(start_backbone: StartBackbone) -> None:
    backbone = start_backbone("--retransmit", "0")
    publisher = await join(reactor, StreamProtocol(), backbone.text)
    await publisher.publish_many([b"gone"] * 5)
    await publisher.leave(at_once=True)
    async with await join(reactor, StreamProtocol(ClientConfig(start=1)), backbone.text) as stream:
        await stream.publish(b"held")
        with pytest.raises(MessagesMissing, match="messages 1 to 5 are lost"):
            await bounded(anext(stream))
        assert (await bounded(anext(stream))).data == b"held"
    async with await join(reactor, StreamProtocol(ClientConfig(start=1)), backbone.text) as stream:
        await stream.publish(b"held, too")
        items: list[Any] = []
        batches = stream.batches()
        while not items or isinstance(items[-1], MessagesLost):
            items += await bounded(anext(batches))
        assert isinstance(items[0], MessagesLost)
        assert items[-1].data == b"held, too"


@ensureDeferred
async def test_an_exception_in_the_block_leaves_at_once(backbone: RunningBackbone) -> None:
    stream = await join(reactor, StreamProtocol(), backbone.text)
    await stream.publish(b"1")
    assert reactor.seconds() < stream._may_leave_at()
    await stream.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert stream.transport is None


@ensureDeferred
async def test_events_of_a_cluster_are_iterated_over(start_cluster: StartCluster) -> None:
    node = start_cluster("a")["a"]
    client = ParcelsClient([node.url], reactor=reactor)
    async with client.iterate(first=1, max_waiting=100) as events:
        numbers = [await client.publish(b"%d" % index * 100) for index in range(10)]
        for index, number in enumerate(numbers):
            event = await bounded(anext(events))
            assert (event.sequence, event.data) == (number, b"%d" % index * 100)
        assert events.follower.next == numbers[-1] + 1
    assert [event async for event in events] == []
    with pytest.raises(BeyondEnd):
        await bounded(anext(client.iterate(first=1_000)))
    await client.close()
