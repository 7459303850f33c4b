"""Asynchronous iteration with Twisted, with services in processes of their own."""

from __future__ import annotations

from typing import Any

import pytest
from integration.running.backbone import RunningBackbone, StartBackbone
from integration.running.cluster import StartCluster
from pytest_twisted import ensureDeferred
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from fyrehose_twisted.errors import BeyondEnd, NotConnected
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import MessagesLost
from fyrehose_twisted.fyrehose.protocol import StreamProtocol
from fyrehose_twisted.fyrehose.service.connect import join
from fyrehose_twisted.parcels.client.http_client import ParcelsClient

DEADLINE = 60.0
QUICK = ClientConfig(journal=False)
"""Configuration of a client that answers no repair requests, and so does not stay for them at the end."""


def bounded(work: Any) -> Deferred[Any]:
    async def awaited() -> Any:
        return await work

    return Deferred.fromCoroutine(awaited()).addTimeout(DEADLINE, reactor)


@ensureDeferred
async def test_a_stream_is_iterated_over(backbone: RunningBackbone) -> None:
    async with await join(reactor, StreamProtocol(QUICK), backbone.text) as stream:
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
async def test_lost_messages_are_yielded_in_their_place_with_the_others(start_backbone: StartBackbone) -> None:
    backbone = start_backbone("--retransmit", "0")
    publisher = await join(reactor, StreamProtocol(), backbone.text)
    await publisher.publish_many([b"gone"] * 5)
    await publisher.leave(at_once=True)
    async with await join(reactor, StreamProtocol(ClientConfig(start=1)), backbone.text) as stream:
        number = await stream.publish(b"held")
        items = stream.items()
        assert await bounded(anext(items)) == MessagesLost(1, 5)
        assert (await bounded(anext(items))).sequence == number
        await stream.publish_many([b"x"] * 10)
        batches, received = stream.batches(), list[Any]()
        while len(received) < 10:
            received += await bounded(anext(batches))
        assert [message.data for message in received] == [b"x"] * 10


@ensureDeferred
async def test_an_exception_in_the_block_leaves_at_once(backbone: RunningBackbone) -> None:
    stream = await join(reactor, StreamProtocol(), backbone.text)
    await stream.publish(b"1")
    assert reactor.seconds() < stream._may_leave_at()
    await stream.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert stream.transport is None
    assert stream._linger is None


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
