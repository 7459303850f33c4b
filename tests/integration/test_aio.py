"""Clients on asyncio, with services in processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from integration.running.backbone import RunningBackbone, StartBackbone
from integration.running.cluster import StartCluster
from integration.running.journal import StartJournal
from suite.loops import DEADLINE, LOOPS, Run, on_asyncio

from fyrehose_twisted import aio
from fyrehose_twisted.errors import (
    BeyondEnd,
    ConfigurationError,
    MessageNotKept,
    MessagesMissing,
    MessageTooLarge,
    NotConnected,
    NotOrdered,
    OperationalError,
)
from fyrehose_twisted.fyrehose.config import ClientConfig, OutboxConfig
from fyrehose_twisted.fyrehose.events import MessagesLost
from fyrehose_twisted.journal.errors import JournalError


@pytest.fixture
def run() -> Run:
    """Run a coroutine on asyncio's own event loop."""
    return on_asyncio


@pytest.fixture(params=LOOPS)
def run_on_each(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine on each event loop."""
    chosen: Run = request.param
    return chosen


QUICK = ClientConfig(journal=False)
"""Configuration of a client that answers no repair requests, and so does not stay for them at the end."""


async def take(messages: Any, count: int) -> list[Any]:
    """Return so many items of an asynchronous iterator."""
    return [await anext(messages) for _ in range(count)]


def test_messages_are_published_and_received_in_order(backbone: RunningBackbone, run_on_each: Run) -> None:
    async def main() -> None:
        async with (
            aio.connect(backbone.text, config=QUICK) as stream,
            await aio.connect(backbone.text, config=QUICK) as publisher,
        ):
            assert stream.connected
            numbers = [await publisher.publish(b"%d" % index) for index in range(50)]
            numbers += await publisher.publish_many([b"%d" % index for index in range(50, 1_000)])
            numbers += await asyncio.gather(*[publisher.publish(b"%d" % index) for index in range(1_000, 2_000)])
            received = await take(stream, 2_000)
            assert [(message.sequence, message.data) for message in received] == [
                (number, b"%d" % index) for index, number in enumerate(numbers)
            ]
            await stream.publish(b"keyed", key=b"k")
            keyed = await anext(stream)
            assert (keyed.key, keyed.data) == (b"k", b"keyed")
            with pytest.raises(MessageTooLarge):
                await stream.publish(bytes(stream.max_message + 1))
        assert not stream.connected
        assert [message async for message in stream] == []
        with pytest.raises(NotConnected):
            await stream.publish(b"too late")

    run_on_each(main())


def test_a_time_limit_and_a_cancellation_lose_no_message(backbone: RunningBackbone, run: Run) -> None:
    async def main() -> None:
        async with aio.connect(backbone.text, config=QUICK) as stream:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(stream), 0.01)
            reader = asyncio.create_task(take(stream, 1))
            await asyncio.sleep(0)
            published = stream.submit(b"1")
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
            assert (await anext(stream)).sequence == await published
            cancelled = stream.submit(b"2")
            cancelled.cancel()
            assert (await anext(stream)).data == b"2", "it was on its way already"

    run(main())


def test_a_slow_reader_is_waited_for_and_loses_nothing(backbone: RunningBackbone, run_on_each: Run) -> None:
    async def main() -> None:
        config = ClientConfig(buffer_bytes=200_000, journal=False)
        async with (
            aio.connect(backbone.text, max_waiting=10_000, config=config) as stream,
            aio.connect(backbone.text, config=QUICK) as publisher,
        ):
            inbox = stream.protocol._inbox
            for first in range(0, 1_000, 100):
                await publisher.publish_many([b"%d" % number * 200 for number in range(first, first + 100)])
            while not inbox.is_paused:
                await asyncio.sleep(0)
            assert inbox.weight < 400_000
            received = await take(stream, 1_000)
            assert [message.data for message in received] == [b"%d" % number * 200 for number in range(1_000)]

    run_on_each(main())


def test_a_full_send_queue_is_waited_for(backbone: RunningBackbone, run: Run) -> None:
    async def main() -> None:
        config = ClientConfig(outbox=OutboxConfig(queue_messages=8), journal=False)
        async with aio.connect(backbone.text, config=config) as stream:
            numbers = await asyncio.gather(*[stream.publish(b"x") for _ in range(100)])
            assert sorted(numbers) == list(range(1, 101))

    run(main())


def test_lost_messages_are_raised_in_their_place(start_backbone: StartBackbone, run: Run) -> None:
    backbone = start_backbone("--retransmit", "0")

    async def main() -> None:
        publisher = await aio.connect(backbone.text)
        await publisher.publish_many([b"gone"] * 5)
        await publisher.close(at_once=True)
        async with aio.connect(backbone.text, config=ClientConfig(start=1)) as stream:
            number = await stream.publish(b"held")
            with pytest.raises(MessagesMissing, match=r"messages 1 to 5 are lost") as caught:
                await anext(stream)
            assert (caught.value.first, caught.value.last) == (1, 5)
            message = await anext(stream)
            assert (message.sequence, message.data) == (number, b"held")

    run(main())


def test_batches_hold_what_arrived_together(backbone: RunningBackbone, run: Run) -> None:
    async def main() -> None:
        async with aio.connect(backbone.text, config=QUICK) as stream:
            await stream.publish_many([b"x"] * 500)
            received: list[Any] = []
            async for batch in stream.batches():
                received += batch
                if len(received) == 500:
                    break
            assert [message.sequence for message in received] == list(range(1, 501))

    run(main())


def test_a_message_is_kept_by_a_journal_or_the_publisher_is_told(
    backbone: RunningBackbone, start_journal: StartJournal, tmp_path: Path, run: Run
) -> None:
    journal = start_journal(backbone, tmp_path / "journal")

    async def main() -> None:
        config = ClientConfig(outbox=OutboxConfig(timeout=1.0), journal=False)
        async with aio.connect(backbone.text, config=config) as stream:
            number = await stream.publish(b"kept", kept=1)
            records = [record async for record in aio.journal(journal.path)]
            assert [(record.sequence, record.payload[-4:]) for record in records] == [(number, b"kept")]
            with pytest.raises(MessageNotKept):
                await stream.publish(b"not kept", kept=2)

    run(main())


def test_a_journal_is_followed_while_it_is_written(
    backbone: RunningBackbone, start_journal: StartJournal, tmp_path: Path, run_on_each: Run
) -> None:
    journal = start_journal(backbone, tmp_path / "journal")

    async def main() -> None:
        async with aio.connect(backbone.text, config=QUICK) as stream:
            await stream.publish_many([b"%d" % number for number in range(1, 101)], kept=1)
            records = aio.journal(journal.path, follow=True)
            first = await take(records, 100)
            following = asyncio.create_task(take(records, 100))
            await asyncio.sleep(0)
            await stream.publish_many([b"%d" % number for number in range(101, 201)], kept=1)
            read = first + await following
            assert [record.sequence for record in read] == list(range(1, 201))
            assert all(record.payload.endswith(b"%d" % record.sequence) for record in read)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(records), 0.2)
            some = aio.journal(journal.path, epoch=0, first=50, last=60, follow=True)
            assert [record.sequence async for record in some] == list(range(50, 61))

    run_on_each(main())


@pytest.mark.extended
def test_gaps_of_a_journal_are_told(
    start_backbone: StartBackbone, start_journal: StartJournal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backbone = start_backbone("--retransmit", "0")
    journal = start_journal(backbone, tmp_path / "journal")

    async def main() -> None:
        async with aio.connect(backbone.text) as publisher:
            await publisher.publish(b"first", kept=1)
            journal.stop()
            await publisher.publish_many([b"missed"] * 3)
            await publisher.close(at_once=True)
            journal.start()
            async with aio.connect(backbone.text) as other:
                await other.publish(b"last", kept=1)
            gaps: list[tuple[int, int, int]] = []
            read = aio.journal(journal.path, on_gap=lambda *gap: gaps.append(gap))
            assert [record.sequence async for record in read] == [1, 5]
            assert gaps == [(0, 2, 4)]
            assert [record.sequence async for record in aio.journal(journal.path)] == [1, 5]
            assert "epoch 0 lacks records 2 to 4" in caplog.text

    on_asyncio(main())


def test_what_cannot_be_reached_is_told(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        with pytest.raises(NotConnected, match=r"127\.0\.0\.1:9 did not answer within 0\.2 s"):
            await aio.connect("127.0.0.1:9", timeout=0.2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(aio.connect("127.0.0.1:9")._connect(), 0.05)
        with pytest.raises(ConfigurationError, match="is not HOST:PORT"):
            await aio.connect("127.0.0.1")
        with pytest.raises(OperationalError, match=r"'nobody\.invalid' has no IP address"):
            await aio.connect("nobody.invalid:2323")
        with pytest.raises(ConfigurationError, match="give nodes="):
            aio.cluster()
        with pytest.raises(JournalError, match="does not exist"):
            await anext(aio.journal(tmp_path / "nothing"))

    run(main())


def test_a_connection_that_is_given_up_has_closed_its_socket() -> None:
    def sockets() -> int:
        count = 0
        for descriptor in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):  # One of them was that of the directory.
                count += os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
        return count

    async def main() -> None:
        before = sockets()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await aio.connect("127.0.0.1:9")
        assert sockets() == before

    on_asyncio(main())


def test_a_stream_outlives_a_restart_of_its_backbone(start_backbone: StartBackbone, free_port: Any, run: Run) -> None:
    port = free_port()
    first = start_backbone("--state", "state", port=port)

    async def main() -> None:
        async with aio.connect(first.text, config=QUICK) as stream:
            number = await stream.publish(b"before")
            first.kill()
            second = start_backbone("--state", "state", port=port)
            later = await stream.publish(b"after")
            assert later > number
            received = [item.data async for item in take_until(stream, later)]
            assert received == [b"before", b"after"]
            second.stop()

    async def take_until(stream: aio.Stream, last: int) -> Any:
        async for item in stream.items():
            if not isinstance(item, MessagesLost):
                yield item
            if getattr(item, "sequence", 0) == last:
                return

    run(main())


def test_events_are_published_and_followed_while_nodes_die(start_cluster: StartCluster, run_on_each: Run) -> None:
    cluster = start_cluster("a", "b", "c")
    addresses = ",".join(node.address for node in cluster.values())
    urls = ",".join(node.url for node in cluster.values())

    async def main() -> None:
        async with aio.cluster(addresses, http=urls) as client, client.follow(first=1) as events:
            numbers = [await client.publish(b"%d" % index) for index in range(20)]
            cluster["a"].program.signal(signal.SIGKILL).finish()
            numbers += await asyncio.gather(*[client.publish(b"%d" % index) for index in range(20, 100)])
            followed = await take(events, 100)
            assert [(event.sequence, event.data) for event in followed] == [
                (number, b"%d" % index) for index, number in enumerate(numbers)
            ]
            assert [event.sequence for event in await client.events(1, 3)] == numbers[:3]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(events), 0.1)
            with pytest.raises(MessageTooLarge):
                await client.publish(bytes(2**20))
        assert [event async for event in events] == []
        with pytest.raises(NotOrdered, match="closed"):
            await client.publish(b"too late")

    run_on_each(main())


def test_a_full_queue_of_a_cluster_is_waited_for_also_behind_cancelled_publications(
    start_cluster: StartCluster, run: Run
) -> None:
    node = start_cluster("a")["a"]

    async def main() -> None:
        async with aio.cluster(node.address) as client:
            events = [bytes([index]) * 48_000 for index in range(200)]  # The queue holds 8 MiB.
            publishing = [asyncio.create_task(client.publish(event)) for event in events]
            await asyncio.sleep(0)
            for task in publishing[:-1]:
                task.cancel()
            assert await publishing[-1] < await client.publish(b"x")
            numbers = await asyncio.gather(*[client.publish(event) for event in events])
            assert len(set(numbers)) == len(events)
            assert not client._room_waiters

    run(main())


def test_a_cluster_is_used_by_http_alone_and_tells_what_is_missing(start_cluster: StartCluster, run: Run) -> None:
    node = start_cluster("a")["a"]

    async def main() -> None:
        async with aio.cluster(http=node.url) as client:
            assert await client.publish_many([b"1", b"2"]) == [1, 2]
            with pytest.raises(BeyondEnd):
                await anext(client.follow(first=1_000))
            event = await anext(client.follow(first=2))
            assert (event.sequence, event.data) == (2, b"2")
        async with aio.cluster(node.address) as client:
            assert await client.publish(b"3") == 3
            with pytest.raises(ConfigurationError, match="this needs HTTP"):
                client.follow()
        async with aio.cluster("127.0.0.1:1", timeout=1.0) as client:
            with pytest.raises(NotOrdered):
                await client.publish(b"4")

    run(main())


def test_a_slow_follower_is_waited_for(start_cluster: StartCluster, run: Run) -> None:
    node = start_cluster("a")["a"]

    async def main() -> None:
        async with aio.cluster(node.address, http=node.url) as client:
            numbers = await client.publish_many([b"x" * 1_000] * 500)
            events = client._http_client().iterate(
                1, max_waiting=10_000, make_waiter=asyncio.get_running_loop().create_future, wake=aio.futures.wake
            )
            async with events:
                first = await anext(events)
                while not events._inbox.is_paused:
                    await asyncio.sleep(0)
                rest = await take(events, 499)
                assert [event.sequence for event in [first, *rest]] == numbers

    run(main())


def test_no_reactor_of_twisted_is_imported(backbone: RunningBackbone, start_cluster: StartCluster) -> None:
    node = start_cluster("a")["a"]
    program = textwrap.dedent(
        r"""
        import asyncio, logging, re, sys
        from fyrehose_twisted import aio
        from fyrehose_twisted.errors import NotConnected

        async def main(backbone, node, url):
            async with aio.connect(backbone) as stream:
                await stream.publish(b"1")
                print((await anext(stream)).data)
            async with aio.cluster(node, http=url) as cluster, cluster.follow(first=1) as events:
                await cluster.publish(b"2")
                print((await anext(events)).data)
            try:
                await aio.connect("localhost:9", timeout=0.1)
            except NotConnected:
                print("refused")
            print([name for name in sys.modules if re.fullmatch(r"twisted.internet.(\w*reactor|reactor\w*)", name)])

        logging.basicConfig(level=logging.INFO, format="%(name)s", stream=sys.stdout)
        asyncio.run(main(*sys.argv[1:]))
        """
    )
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", program, backbone.text, node.address, node.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert "twisted" in lines, "what is logged goes to logging"
    assert [line for line in lines if not line.startswith(("fyrehose_twisted.", "twisted"))] == [
        "b'1'",
        "b'2'",
        "refused",
        "[]",
    ]
