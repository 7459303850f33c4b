"""Rounds of real processes: clients and servers with time stamps, and the stages of their messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from parcels.ours import OurCluster
from race.servers import CLIENT_CORE, NATS, OURS, Broker, Missing, start_nats, start_ours

from stages.chains import Chains, follow_events, follow_messages
from stages.clients import PARCELS, Task
from stages.counters import Counting, Counts, Trace
from stages.stamps import Stamps

HERE = Path(__file__).parent
PATIENCE = 60.0
"""Seconds within which a client must end."""
SUBSCRIBER_CORE = 2
"""Core of a subscriber in a process of its own, if there is such a core; otherwise it shares that of the publisher."""


class Case(NamedTuple):
    """What is measured.

    :ivar apart: the subscriber is another process than the publisher.
    :ivar members: nodes of a cluster.
    """

    system: str
    apart: bool = False
    members: int = 0

    @property
    def name(self) -> str:
        """Return its name in tables."""
        if self.members:
            return f"{PARCELS}, {self.members} nodes"
        return f"{self.system}, {'publisher and subscriber' if self.apart else 'one client'}"


class Pace(NamedTuple):
    """Messages of a round.

    :ivar rate: messages/s of a stream; events of a cluster follow one another.
    :ivar seconds: duration, about.
    """

    rate: float
    seconds: float
    size: int
    warm_up: int = 300

    def messages(self, case: Case) -> int:
        """Return the number of messages of a round."""
        return self.warm_up + int((self.rate / 2 if case.members else self.rate) * self.seconds)


class Outcome(NamedTuple):
    """Result of a round.

    :ivar chains: stages, if there are time stamps.
    :ivar whole: median in µs from the call that publishes to the callback.
    :ivar counts: counts of each process for one message.
    """

    chains: Chains | None
    whole: float
    counts: dict[str, Counts]


class StampedCluster(OurCluster):
    """A cluster whose nodes write time stamps when they end."""

    def twistd(self, index: int) -> list[str]:
        return stamped_twistd(self.directory / f"n{index}")

    def stop(self) -> None:
        for node in self.nodes:
            node.process.terminate()
        for node in self.nodes:
            with suppress(subprocess.TimeoutExpired):
                node.process.wait(10)
        super().stop()


def stamped_twistd(out: Path) -> list[str]:
    """Return the command of a twistd that writes time stamps to ``out``."""
    return [sys.executable, str(HERE / "stamped_twistd.py"), str(out)]


class Client:
    """A client process."""

    def __init__(self, task: Task, log: Path) -> None:
        self._log = log
        with open(log, "wb") as errors:
            command = [sys.executable, str(HERE / "clients.py"), json.dumps(task._asdict())]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)

    def expect(self, word: str) -> None:
        """Wait for a line. :raises RuntimeError: if it ends instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if line != word:
            raise RuntimeError(f"a client ended before it was {word}: {self._log.read_text()[-2_000:]}")

    def finish(self) -> None:
        """Wait for its end. :raises RuntimeError: if it fails."""
        if self.process.wait(PATIENCE):
            raise RuntimeError(f"a client failed: {self._log.read_text()[-2_000:]}")

    def stop(self) -> None:
        """Kill it, if it has not ended."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Round:
    """One round of one case.

    :param stamped: whether to stamp wake-ups and sends.
    :param hardware: whether this machine counts instructions.
    """

    def __init__(self, case: Case, pace: Pace, directory: Path, *, stamped: bool, hardware: bool) -> None:
        self.case = case
        self.pace = pace
        self.directory = directory
        self.stamped = stamped
        self.hardware = hardware
        self.messages = pace.messages(case)

    def run(self) -> Outcome:
        """Run it. :raises Missing: if a program is not installed."""
        with ExitStack() as stack:
            return self._cluster(stack) if self.case.members else self._stream(stack)

    def _client(self, stack: ExitStack, name: str, port: int, core: int | None) -> Client:
        task = Task(
            *(self.case.system, port, name != "subscriber", core, self.messages, self.pace.warm_up),
            *(0.0 if self.case.members else self.pace.rate, self.pace.size, str(self.directory / name), self.stamped),
        )
        client = Client(task, self.directory / f"{name}.log")
        stack.callback(client.stop)
        client.expect("ready")
        return client

    def _stream(self, stack: ExitStack) -> Outcome:
        broker = self._broker()
        running = stack.enter_context(ExitStack())
        running.callback(broker.stop)
        trace = self._trace(broker.process.pid) if self.stamped and self.case.system == NATS else None
        clients: dict[str, Client] = {}
        if self.case.apart:
            core = SUBSCRIBER_CORE if len(os.sched_getaffinity(0)) > SUBSCRIBER_CORE else CLIENT_CORE
            clients["subscriber"] = self._client(stack, "subscriber", broker.ports[0], core)
        clients["publisher"] = self._client(stack, "publisher", broker.ports[0], CLIENT_CORE)
        processes = {name: client.process.pid for name, client in clients.items()} | {"server": broker.process.pid}
        counting = self._count(clients["publisher"], list(processes.values()))
        for client in clients.values():
            client.finish()
        traced = None if trace is None else trace.finish()
        running.close()
        publisher = self._stamps("publisher")
        reader = self._stamps("subscriber") if self.case.apart else publisher
        server = self._stamps("server") if self.stamped and self.case.system == OURS else traced
        chains = follow_messages(publisher, server, reader, self.pace.warm_up) if self.stamped else None
        return self._outcome(chains, publisher, reader, counting, list(processes))

    def _broker(self) -> Broker:
        if self.case.system == NATS:
            return start_nats(self.directory)
        if not self.stamped:
            return start_ours(self.directory)
        return start_ours(self.directory, twistd=stamped_twistd(self.directory / "server"))

    def _trace(self, pid: int) -> Trace | None:
        try:
            return Trace(pid, self.directory)
        except Missing:
            return None

    def _cluster(self, stack: ExitStack) -> Outcome:
        cluster = (StampedCluster if self.stamped else OurCluster)(self.case.members, self.directory)
        with cluster:
            client = self._client(stack, "client", cluster.places[cluster.leader][1], None)
            counting = self._count(client, [client.process.pid, *cluster.pids])
            client.finish()
        stamps = self._stamps("client")
        names = [f"follower n{index}" for index in range(self.case.members)]
        names[cluster.leader] = "leader"
        chains = None
        if self.stamped:
            followers = [self._stamps(f"n{index}") for index in cluster.others]
            chains = follow_events(stamps, self._stamps(f"n{cluster.leader}"), followers, self.pace.warm_up)
        return self._outcome(chains, stamps, stamps, counting, ["client", *names])

    def _count(self, publisher: Client, pids: list[int]) -> Counting:
        """Count while the publisher publishes. perf and a slow start take a part of the time."""
        publisher.expect("running")
        counting = Counting(pids, hardware=self.hardware)
        time.sleep(0.4 * self.pace.seconds)
        counting.stop()
        return counting

    def _outcome(
        self, chains: Chains | None, publisher: Stamps, reader: Stamps, counting: Counting, names: list[str]
    ) -> Outcome:
        begins = publisher.begins
        within = bisect_left(begins, counting.ended) - bisect_left(begins, counting.began)
        pairs = list(zip(begins, reader.ends, strict=True))[self.pace.warm_up :]
        whole = median(end - begin for begin, end in pairs if end)
        return Outcome(chains, whole / 1e3, dict(zip(names, counting.counts(within), strict=True)))

    def _stamps(self, name: str) -> Stamps:
        return Stamps.load(self.directory / name)


def cases(members: list[int], systems: list[str]) -> Iterator[Case]:
    """Yield all cases."""
    for system in (OURS, NATS):
        if system in systems:
            yield Case(system)
            yield Case(system, apart=True)
    if PARCELS in systems:
        for count in members:
            yield Case(PARCELS, members=count)
