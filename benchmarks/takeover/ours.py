"""Three backbones that take over from one another, and the pause of a subscriber of the library."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from parcels.children import in_child, run_in_reactor
from parcels.nodes import Cluster, Node, Unfit, free_ports, wait_until

from takeover.pauses import CALM, EVERY, PATIENCE, TRANSFER, Receipts, send_signal

SIZE = 3
TWISTD = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile=", "fyrehose-backbone"]


class Group(Cluster):
    """Members of a group of backbones.

    :ivar ports: UDP ports for clients.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(SIZE, directory)

    def start(self) -> None:
        """Start all members and wait until one numbers messages, and the others stand by."""
        free = free_ports(2 * SIZE)
        self.ports, peers = free[:SIZE], free[SIZE:]
        for index, (port, peer) in enumerate(zip(self.ports, peers, strict=True)):
            options = [f"--member=m{index}", f"--port={port}", f"--peer-listen=tcp:{peer}:interface=127.0.0.1"]
            options += [f"--peer=127.0.0.1:{other}" for other in peers if other != peer]
            options += [f"--state=m{index}.state", f"--control=unix:m{index}.socket", "--bootstrap", "--settle-time=0"]
            self.nodes.append(Node(f"m{index}", [*TWISTD, *options], self.directory))
        self.leader = wait_until(self._find_leader, "one member leads", self.nodes) - 1

    def ask(self, index: int, what: str) -> dict[str, Any]:
        """Ask a member on its control port. :raises OSError: if it does not answer."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(PATIENCE)
            asking.connect(str(self.directory / f"m{index}.socket"))
            asking.sendall(json.dumps({"ask": what}).encode() + b"\n")
            answer: dict[str, Any] = json.loads(asking.makefile().readline())
            return answer

    def _find_leader(self) -> int:
        # The index plus one, and 0 if they are not one group.
        states = [self.ask(index, "status")["status"] for index in range(SIZE)]
        leaders = {state["leader"] for state in states}
        for index, state in enumerate(states, 1):
            votes = sum(other["votes"] and other["connected"] for other in state["members"])
            if state["leads"] and leaders == {state["name"]} and votes == SIZE:
                return index
        return 0


def pause(directory: Path, fault: str, rng: Random) -> float:
    """Return the seconds without a message when the leader has a fault."""
    with Group(directory) as group:
        return float(in_child(_watch, group, fault, rng.uniform(*CALM), patience=2 * PATIENCE))


def _watch(group: Group, fault: str, calm: float) -> float:
    from twisted.internet.task import LoopingCall, deferLater

    from fyrehose_twisted.fyrehose import Message, PublisherProtocol, SubscriberProtocol, join

    receipts = Receipts()
    received: dict[int, bytes] = {}
    published: dict[int, bytes] = {}
    count = 0

    class Subscriber(SubscriberProtocol):
        def messages_received(self, messages: Sequence[Message]) -> None:
            receipts.add()
            received.update((message.sequence, bytes(message.data)) for message in messages)

    async def work(reactor: Any) -> float:
        backbones = ",".join(f"127.0.0.1:{port}" for port in group.ports)
        subscriber = await join(reactor, Subscriber(), backbones, timeout=PATIENCE)
        publisher = await join(reactor, PublisherProtocol(), backbones, timeout=PATIENCE)

        def publish() -> None:
            nonlocal count
            count += 1
            data = b"%0128d" % count
            publisher.publish(data).addCallback(lambda number: published.update({number: data}))

        publishing = LoopingCall(publish)
        publishing.start(EVERY)
        while not receipts.times:
            await deferLater(reactor, 0.01)
        await deferLater(reactor, calm)
        since = time.monotonic()
        if fault == TRANSFER:
            group.ask(group.leader, "transfer")
        else:
            send_signal(fault, group.nodes[group.leader].pid)
        while not receipts.are_steady(since):
            if time.monotonic() > since + PATIENCE:
                raise Unfit(f"fyrehose did not come back within {PATIENCE:g} s")
            await deferLater(reactor, 0.05)
        publishing.stop()
        deadline = time.monotonic() + PATIENCE
        while not len(received) == len(published) == count and time.monotonic() < deadline:
            await deferLater(reactor, 0.05)
        if received != published or len(published) != count:
            raise Unfit(f"of {count:,} messages {len(published):,} were acknowledged and {len(received):,} received")
        for client in (subscriber, publisher):
            await client.leave()
        return receipts.longest_pause(since)

    with suppress(KeyboardInterrupt):
        return float(run_in_reactor(work))
    raise Unfit("interrupted")
