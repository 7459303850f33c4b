"""Failover: time from the end of a leader until a client on IRC sees the next one join, and the outcome of all lines.

Meanwhile the client talks, both other nodes follow, and one of them submits lines, at most once each.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from parcels.nodes import Unfit

from hydra.networks import NICK, Client, Network, now, until

KILLED, TERMINATED, CUT_OFF, NO_SERVER = "kill -9", "SIGTERM", "KILL on IRC", "kill -9 of the IRC server"
UNGUARDED = "kill -9, no guardian"
TALK_EVERY, SAY_EVERY = 0.05, 0.1
BEFORE, AFTER = 0.5, 0.5
"""Minimum seconds of talk before a leader ends, and after the next one has joined."""
CALM = 0.2
"""Seconds of quiet once all networks are complete."""
WAITS = 60.0
"""Maximum seconds without a leader in the channel."""


class Failover(NamedTuple):
    """A single failover."""

    kind: str
    scale: float
    seconds: float
    lines: Counter[str]
    trace: list[str]
    """Log lines of the nodes since then."""


class _Talk:
    def __init__(self, network: Network) -> None:
        self._network = network
        self.talked: dict[str, float] = {}
        self.said: dict[int, str] = {}
        self.user: Any = None
        self.speaker: Any = None

    def next(self) -> int:
        self._network.numbers += 1
        return self._network.numbers

    async def talk(self) -> None:
        while True:
            text = f"talk {self.next()}"
            self.talked[text] = now()
            if not self.user.over:
                self.user.talk(text)
            await asyncio.sleep(TALK_EVERY)

    async def say(self) -> None:
        while True:
            number = self.next()
            self.said[number] = f"say {number}"
            self.speaker.say(number, self.said[number])
            await asyncio.sleep(SAY_EVERY)


async def fail_over(network: Network, kind: str, rng: Random) -> Failover:
    """End the leader or its connection, wait for the next one, and make the network complete again."""
    leader, server = await network.whole()
    node = network.nodes[leader]
    others = [each for each in network.nodes if each is not node]
    rng.shuffle(others)
    talk = _Talk(network)
    talk.user = network.users[server]
    heard = [(user, len(user.joins), len(user.said)) for user in network.users]
    clients = [Client() for _ in others]
    tasks: list[asyncio.Task[None]] = []
    try:
        for client, each in zip(clients, others, strict=True):
            await client.connect(each.socket, follow=True)
        talk.speaker = clients[0]
        tasks = [asyncio.create_task(talk.talk()), asyncio.create_task(talk.say())]
        # At a random time between two PINGs.
        await asyncio.sleep(BEFORE + rng.uniform(0, 5.0 * network.scale))
        marks = {each.name: each.log.stat().st_size for each in network.nodes}
        began = now()
        if kind in (KILLED, UNGUARDED):
            node.process.process.send_signal(signal.SIGKILL)
        elif kind == TERMINATED:
            node.process.process.send_signal(signal.SIGTERM)
        elif kind == CUT_OFF:
            talk.user.send(f"KILL {NICK} :a benchmark")
        else:
            network.servers[server].process.process.send_signal(signal.SIGKILL)
            talk.user = network.users[1 - server]

        async def joined() -> Any:
            return next(((user, user.joins[joins]) for user, joins, _ in heard if len(user.joins) > joins), None)

        user, (at, _) = await until(joined, f"{kind}: somebody joins", WAITS)
        talk.user = user
        await asyncio.sleep(AFTER)
        for task in tasks:
            task.cancel()
        await _drained(talk, clients)
        said = Counter(text for user, _, count in heard for text in user.said[count:])
        lines = _count(talk, clients, said, began, at)
    finally:
        for task in tasks:
            task.cancel()
        for client in clients:
            with suppress(AttributeError):
                await client.close()
    trace = []
    for each in network.nodes:
        text = each.log.read_bytes()[marks[each.name] :].decode(errors="replace")
        trace += [f"{each.name} {line}" for line in text.splitlines()]
    if kind in (KILLED, UNGUARDED, TERMINATED):
        await node.ended()
        node.start()
    elif kind == NO_SERVER:
        network.servers[server].process.process.wait()
        network.servers[server].start()
        await network.users[server].close()
        await network.users[server].connect(network.servers[server].port)
    return Failover(kind, network.scale, at - began, lines, trace)


async def _drained(talk: _Talk, clients: list[Client]) -> None:
    """Wait until a last line is at both nodes, and every line has its outcome."""
    last = f"talk {talk.next()}"
    talk.user.talk(last)

    async def over() -> bool:
        return all(any(line.endswith(last) for line in client.lines[-50:]) for client in clients) and (
            len(talk.speaker.outcomes) == len(talk.said)
        )

    with suppress(Unfit):
        await until(over, "all lines are where they should be", 10.0)


def _count(talk: _Talk, clients: list[Client], seen: Counter[str], began: float, joined: float) -> Counter[str]:
    lines: Counter[str] = Counter()
    heard = [Counter(re.findall(r":(talk \d+)$", "\n".join(client.lines), re.MULTILINE)) for client in clients]
    for text, at in talk.talked.items():
        lines["talked"] += 1
        if not any(text in one for one in heard):
            lines["lost" if began - 2 * TALK_EVERY <= at <= joined else "lost at another time"] += 1
        elif not all(text in one for one in heard):
            lines["heard by one only"] += 1
        lines["heard twice"] += any(one[text] > 1 for one in heard)
    lines["reported as missed"] = sum(client.missed for client in clients)
    for number, text in talk.said.items():
        lines["to be said"] += 1
        outcome = talk.speaker.outcomes.get(number, "nothing").partition(":")[0]
        lines[f"outcome {outcome}"] += 1
        if outcome == "said" and not seen[text]:
            lines["said, never seen"] += 1
        if outcome == "uncertain" and seen[text]:
            lines["uncertain, but seen"] += 1
        if outcome == "refused" and seen[text]:
            lines["refused, but seen"] += 1
        lines["said twice"] += seen[text] > 1
    return lines


class Failovers:
    """Failovers of several concurrent networks, each of which sees all kinds in turn.

    :ivar found: all failovers.
    :ivar failures: errors. A failed network is replaced by a new one.
    """

    def __init__(self, directory: Path, rng: Random) -> None:
        self.found: list[Failover] = []
        self.failures: list[str] = []
        self.traces: dict[str, list[str]] = {}
        self._directory = directory
        self._rng = rng
        self._count = 0

    def _new_network(self, scale: float, kinds: Sequence[str]) -> Network:
        self._count += 1
        name = f"{self._count}"
        return Network(name, self._directory / name, scale, guardian=UNGUARDED not in kinds)

    async def measure(self, scale: float, kinds: Sequence[str], rounds: int, networks: int, progress: Any) -> None:
        """Measure a number of rounds."""
        there = [self._new_network(scale, kinds) for _ in range(networks)] if rounds else []
        try:
            await self._try(there, [network.start() for network in there], scale, kinds)
            for turn in range(rounds):
                # Starting processes would distort the measurement.
                await self._try(there, [network.whole() for network in there], scale, kinds)
                await asyncio.sleep(CALM)
                works = [
                    fail_over(network, kinds[(turn + number) % len(kinds)], self._rng)
                    for number, network in enumerate(there)
                ]
                results = await self._try(there, works, scale, kinds)
                self.found += [result for result in results if isinstance(result, Failover)]
                progress.update(len(results))
        finally:
            for network in there:
                await network.stop()

    async def _try(self, there: list[Network], works: list[Any], scale: float, kinds: Sequence[str]) -> list[Any]:
        results = await asyncio.gather(*works, return_exceptions=True)
        for index, result in enumerate(results):
            if not isinstance(result, Exception):
                continue
            network = there[index]
            self.failures.append(f"network {network.name}, timescale {scale:g}: {result}")
            self.traces[network.name] = network.trace()
            await network.stop()
            there[index] = self._new_network(scale, kinds)
            await there[index].start()
        return results
