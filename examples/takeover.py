"""Three backbones that take over from one another, while messages are published; the leader is killed twice.

Each member is a ``twistd fyrehose-backbone --member`` process on loopback. One publisher publishes a message every few
milliseconds, and waits for no answer before the next. Two subscribers read. The member that leads is killed with -9
and started again, twice. At the end, each subscriber must have every acknowledged message once, in order, and under
the number that was acknowledged.

    python examples/takeover.py
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet.defer import ensureDeferred
from twisted.internet.task import LoopingCall, deferLater, react
from twisted.python.failure import Failure

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.fyrehose import Message, PublisherProtocol, SubscriberProtocol, join

NAMES = "Ada", "Boole", "Curie"
KILLS = 2
CALM = 1.0
"""Seconds of messages before each kill, and after the last one."""
PATIENCE = 60.0
STARTED = time.monotonic()


def say(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"{time.monotonic() - STARTED:6.2f} s  {text}", flush=True)


def free_ports(count: int) -> list[int]:
    """Return ports that are free for UDP and TCP, as is the next one, below the range of ephemeral ports."""
    found: list[int] = []
    for port in random.sample(range(10_000, 32_000, 2), 11_000):
        with suppress(OSError), ExitStack() as stack:
            udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            udp.bind(("127.0.0.1", port))
            stack.enter_context(socket.create_server(("127.0.0.1", port + 1)))
            found.append(port)
        if len(found) == count:
            return found
    raise SystemExit("takeover: no ports are free")


class Member:
    """A member in a process of its own. Its port for other members is the next after that for clients."""

    def __init__(self, name: str, port: int, others: Sequence[int], directory: Path) -> None:
        self.name, self.port, self.directory = name, port, directory
        self._options = [f"--member={name}", f"--port={port}", f"--state={name}.state", "--bootstrap"]
        self._options += [f"--peer=127.0.0.1:{other + 1}" for other in others]
        self._options += [f"--control=unix:{name}.socket"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, again if it was killed."""
        twistd = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile=", f"--logfile={self.name}.log"]
        # In a session of its own, so that Ctrl-C is for us alone.
        self._process = subprocess.Popen(
            [*twistd, "fyrehose-backbone", *self._options], cwd=self.directory, start_new_session=True
        )

    def kill(self) -> None:
        """Kill it with -9; it may be dead already."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def status(self) -> dict[str, Any]:
        """Return the status of `fyrehose backbone status --json`; empty while the member does not answer."""
        with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(PATIENCE)
            asking.connect(str(self.directory / f"{self.name}.socket"))
            asking.sendall(b'{"ask": "status"}\n')
            found: dict[str, Any] = json.loads(asking.makefile().readline()).get("status", {})
            return found
        return {}


class Subscriber(SubscriberProtocol):
    """Subscriber that checks the order and measures the pauses."""

    def __init__(self, name: str, on_leader: Callable[[int], None]) -> None:
        super().__init__()
        self.name = name
        self.messages: dict[int, bytes] = {}
        self.longest_pause = 0.0
        self._on_leader = on_leader
        self._last, self._received_at = 0, 0.0

    def messages_received(self, messages: Sequence[Message]) -> None:
        now = time.monotonic()
        if self._received_at:
            self.longest_pause = max(self.longest_pause, now - self._received_at)
        self._received_at = now
        for message in messages:
            if message.sequence <= self._last:
                raise SystemExit(f"takeover: {self.name} received {message.sequence} after {self._last}")
            self._last = message.sequence
            self.messages[message.sequence] = bytes(message.data)

    def messages_lost(self, first: int, last: int) -> None:
        raise SystemExit(f"takeover: {self.name} lost {first} to {last}")

    def leader_changed(self, backbone: tuple[str, int], term: int) -> None:
        self._on_leader(backbone[1])


class Group:
    """The members, the publisher and the subscribers."""

    def __init__(self, reactor: Any, stack: ExitStack) -> None:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = free_ports(len(NAMES))
        self.members = {
            port: Member(name, port, [other for other in ports if other != port], directory)
            for name, port in zip(NAMES, ports, strict=True)
        }
        for member in self.members.values():
            stack.callback(member.kill)
        self.reactor = reactor
        self.backbone = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.leader: Member | None = None
        self.subscribers = [Subscriber(f"subscriber {number}", self._leads) for number in (1, 2)]
        self.publisher = PublisherProtocol()
        self.published = 0
        self.acknowledged: dict[int, bytes] = {}
        self.longest_answer = 0.0
        self._waiting = 0
        self._failed: list[Failure] = []

    async def join(self) -> None:
        """Connect all clients."""
        for client in (*self.subscribers, self.publisher):
            await join(self.reactor, client, self.backbone, timeout=PATIENCE)

    async def begin(self) -> None:
        """Wait until all members stand by for the leader, and it has numbered a first message."""
        self.publish()
        await self.wait_for(lambda: self.acknowledged, "no message is acknowledged")
        await self.wait_for(lambda: all(map(self._follows, self.members.values())), "the members are no group")
        self.longest_answer = 0.0  # The first message waits until clients of a former backbone could have answered.

    def publish(self) -> None:
        """Publish a message."""
        data, since = b"message %d" % self.published, time.monotonic()
        self.published += 1
        self._waiting += 1

        def acknowledged(number: int) -> None:
            if number in self.acknowledged:
                raise SystemExit(f"takeover: number {number} was acknowledged for two messages")
            self.acknowledged[number] = data
            self.longest_answer = max(self.longest_answer, time.monotonic() - since)

        def answered(result: Any) -> None:
            self._waiting -= 1
            if isinstance(result, Failure):
                self._failed.append(result)

        self.publisher.publish(data).addCallback(acknowledged).addBoth(answered)

    async def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Wait until a condition holds."""
        until = time.monotonic() + PATIENCE
        while not condition():
            if self._failed:
                raise SystemExit(f"takeover: a message was not published: {self._failed[0].getErrorMessage()}")
            if time.monotonic() > until:
                raise SystemExit(f"takeover: {what}: not within {PATIENCE:g} s")
            await deferLater(self.reactor, 0.01)

    async def kill_the_leader(self) -> None:
        """Kill the leader, wait until another member numbers messages, and start it again."""
        await deferLater(self.reactor, CALM)
        killed, numbered = self.leader, len(self.acknowledged)
        assert killed is not None
        say(f"{killed.name} leads and has numbered {numbered:,} messages; it is killed with -9")
        since = time.monotonic()
        killed.kill()
        await self.wait_for(lambda: self.leader is not killed, "no other member leads")
        at_once = len(self.acknowledged)
        await self.wait_for(lambda: len(self.acknowledged) > at_once, "no message is acknowledged")
        assert self.leader is not None
        say(f"{self.leader.name} leads and numbers messages, {time.monotonic() - since:.2f} s after the kill")
        killed.start()
        await self.wait_for(lambda: self._follows(killed), f"{killed.name} does not follow")
        say(f"{killed.name} is back and stands by")

    async def finish(self) -> None:
        """Wait until all messages have arrived, and check them."""
        await self.wait_for(lambda: not self._waiting, "not all messages are acknowledged")
        for subscriber in self.subscribers:
            await self.wait_for(partial(self._has_all, subscriber), f"{subscriber.name} does not have all messages")
            if subscriber.messages != self.acknowledged:
                raise SystemExit(f"takeover: {subscriber.name} does not have the acknowledged messages")
        for client in (*self.subscribers, self.publisher):
            await client.leave()

    def _has_all(self, subscriber: Subscriber) -> bool:
        return len(subscriber.messages) >= len(self.acknowledged)

    def _leads(self, port: int) -> None:
        self.leader = self.members[port]

    def _follows(self, member: Member) -> bool:
        if self.leader is None or not member.status().get("leader"):
            return False
        # The leader has to be connected to it as well, and it has to vote.
        others = self.leader.status().get("members", ())
        return any(one["name"] == member.name and one["connected"] and one["votes"] for one in others)


async def main(reactor: Any, stack: ExitStack, interval: float) -> None:
    """Run the example; exit with status 1 on any failure."""
    group = Group(reactor, stack)
    for member in group.members.values():
        member.start()
    try:
        await group.join()
        await group.begin()
        say(f"{', '.join(NAMES)} are one group of backbones, and number messages")
        publishing = LoopingCall(group.publish)
        publishing.start(interval)
        for _ in range(KILLS):
            await group.kill_the_leader()
        await deferLater(reactor, CALM)
        publishing.stop()
        await group.finish()
    except FyrehoseError as error:
        raise SystemExit(f"takeover: {error}") from None
    pause = max(subscriber.longest_pause for subscriber in group.subscribers)
    print(f"\n{len(group.acknowledged):,} of {group.published:,} messages were acknowledged, the slowest after")
    print(f"{group.longest_answer:.2f} s. Both subscribers have all of them, each once and in order.")
    print(f"Nothing was lost, no number was used twice, and the longest pause of a subscriber was {pause:.2f} s.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interval", type=float, default=0.005, metavar="S", help="between messages [%(default)g]")
    arguments = parser.parse_args()
    # Enter the stack outside of the reactor, so that no member outlives an interrupted start.
    with ExitStack() as stack:
        react(lambda reactor: ensureDeferred(main(reactor, stack, arguments.interval)))
