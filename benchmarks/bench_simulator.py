"""Simulator compared with a bare heap and with Twisted's own clock: events, datagrams and simulated seconds a second.

Every measurement runs in a process of its own, and compared ones alternate. Rates depend on the machine; compare the
ratios of one run. Medians over rounds. Seconds are of CPU time, on which other work on the machine has less influence;
everything here runs in one thread, so on an idle machine they equal real time.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from random import Random
from statistics import median
from typing import Any, NamedTuple

from results import add_option, write
from twisted.internet.task import Clock

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.driver import NodeDriver
from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.interfaces import INode, Outputs
from fyrehose_twisted.process.progress import ProgressBar
from fyrehose_twisted.sim.clock import HeapClock
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network import DEFAULT_START, Network
from fyrehose_twisted.sim.scheduler import Scheduler

PENDING = 50_000
STEP = 0.1
"""Virtual seconds between two reads of the elapsed time."""

PUBLISHERS = 5
INTERVAL = 0.5
"""Virtual seconds between messages. After a second without one, subscribers ask for a missed message."""

MESSAGE = bytes(128)
DELAY = JITTER = 0.002
FIRST_MESSAGE = 1.75
WARM_UP = 2.0
"""Virtual seconds until all clients are connected."""

BACKBONE: Address = ("10.0.0.1", 2323)

Figures = dict[str, float]


class Timed(NamedTuple):
    """Number of repetitions and their duration in seconds."""

    times: int
    seconds: float


def timed(step: Callable[[], object], budget: float) -> Timed:
    """Repeat ``step`` for ``budget`` seconds, at least once."""
    times, started = 0, time.process_time()
    while True:
        step()
        times += 1
        used = time.process_time() - started
        if used >= budget:
            return Timed(times, used)


def phases() -> Iterator[float]:
    """Yield the first due time of each pending call; the same number is due in every step."""
    order = list(range(PENDING))
    Random(1).shuffle(order)
    for place in order:
        yield DEFAULT_START + (place + 0.5) / PENDING


def bare_heap(budget: float) -> Figures:
    """Lower bound in Python: pop the first call of a heap, call it, and let it push itself again."""
    order, now = count(), DEFAULT_START
    heap: list[tuple[float, int, Callable[[], None]]] = []

    def again() -> None:
        heappush(heap, (now + 1.0, next(order), again))

    def step() -> None:
        nonlocal now
        until, pop = now + STEP, heappop
        while heap[0][0] <= until:
            now, _, call = pop(heap)
            call()
        now = until

    heap += [(when, next(order), again) for when in phases()]
    heapify(heap)
    return rate(timed(step, budget))


def scheduler(budget: float) -> Figures:
    """Simulator's scheduler, with calls that only reschedule themselves."""
    made = Scheduler(DEFAULT_START)

    def again() -> None:
        made.call_at(made.now + 1.0, again)

    for when in phases():
        made.call_at(when, again)
    return rate(timed(lambda: made.run_until(made.now + STEP), budget))


class Idle:
    """Node that wants to be called every second and does nothing."""

    __slots__ = ("due_at",)

    def __init__(self, due_at: float) -> None:
        self.due_at = due_at

    def tick(self, now: float) -> None:
        """See INode."""
        self.due_at = now + 1.0

    def next_deadline(self) -> float:
        """See INode."""
        return self.due_at

    def drain(self) -> Outputs:
        """See INode."""
        return Outputs(None, [], [])


def idle_maker(due_at: float) -> Callable[[Any], INode]:
    """Return a factory of idle nodes by ``Boot``."""

    def make(boot: Any) -> INode:
        node: Any = Idle(due_at)
        return node  # type: ignore[no-any-return]

    return make


def idle_hosts(budget: float) -> Figures:
    """Simulated hosts whose nodes do nothing."""
    network = Network(1)
    for number, when in enumerate(phases()):
        host = network.add(f"host-{number}", address_of(number), idle_maker(when))
        host.start()
    return rate(timed(lambda: network.run(STEP), budget))


def heap_clock(budget: float) -> Figures:
    """HeapClock."""
    clock = HeapClock(DEFAULT_START)

    def again() -> None:
        clock.callLater(1.0, again)

    for when in phases():
        clock.callLater(when - DEFAULT_START, again)
    return rate(timed(lambda: clock.run(STEP), budget))


def task_clock(budget: float) -> Figures:
    """Twisted's task.Clock."""
    clock = Clock()
    clock.rightNow = DEFAULT_START

    def again() -> None:
        clock.callLater(1.0, again)

    sort = clock._sortCalls
    # It sorts with every added call; filling it in this way would take an hour.
    clock._sortCalls = lambda: None  # type: ignore[method-assign]
    for when in phases():
        clock.callLater(when - DEFAULT_START, again)
    clock._sortCalls = sort  # type: ignore[method-assign]
    clock._sortCalls()
    done = timed(lambda: to_the_next_call(clock), budget)
    return {"events/s": done.times / done.seconds}


def rate(done: Timed) -> Figures:
    """Return events a second, where each pending call is made once a second."""
    return {"events/s": done.times * PENDING * STEP / done.seconds}


def to_the_next_call(clock: Clock) -> None:
    """Advance the time to the next call, as in a simulation."""
    clock.advance(max(0.0, clock.calls[0].getTime() - clock.seconds()))


def address_of(number: int) -> Address:
    """Return the address of a client."""
    return f"10.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}", 4_000


def client_maker(number: int) -> Callable[[Any], INode]:
    """Return a factory of clients by ``Boot``."""
    return lambda boot: make_client(number, boot.now)


def make_client(number: int, now: float) -> INode:
    """Make a client that subscribes and journals, as by default."""
    node: INode = Client(BACKBONE, ClientConfig(), Random(number), now)
    return node


def make_backbone(clients: int) -> INode:
    """Make a backbone that numbers at once."""
    node: INode = Backbone(BackboneConfig(max_clients=clients), RandomForward(Random(1)))
    return node


def begins(clients: int) -> list[float]:
    """Return the delay after which each client starts."""
    rng = Random(2)
    return [rng.random() for _ in range(clients)]


class Simulated:
    """Nodes on the simulated network. The publishers publish one after the other.

    :param moment: time span of arrivals that are delivered together.
    """

    def __init__(self, clients: int, *, moment: float) -> None:
        self.network = network = Network(1, Link(delay=DELAY, jitter=JITTER), moment=moment)
        network.add("backbone", BACKBONE, lambda boot: make_backbone(clients)).start()
        self.hosts: list[Host] = []
        for number, delay in enumerate(begins(clients)):
            host = network.add(f"client-{number}", address_of(number), client_maker(number))
            network.call_in(delay, host.start)
            self.hosts.append(host)
        self._turns = count()
        network.call_in(FIRST_MESSAGE, self._publish)

    @property
    def sent(self) -> int:
        """Return the number of datagrams so far."""
        return self.network.counters["sent"]

    @property
    def events(self) -> int:
        """Return the number of scheduler calls so far."""
        return self.network.scheduler.calls

    @property
    def elapsed(self) -> float:
        """Return the virtual seconds so far."""
        return self.network.elapsed

    def run(self, seconds: float) -> None:
        """Advance the time."""
        self.network.run(seconds)

    def check(self) -> None:
        """Check that the simulation did its work."""
        check([host.node for host in self.hosts])

    def _publish(self) -> None:
        self.network.call_in(INTERVAL, self._publish)
        publisher = self.hosts[next(self._turns) % PUBLISHERS]
        publisher.perform(lambda node, now: node.publish(MESSAGE, now))


class Driven:
    """Nodes as in production, each with its NodeDriver, on a test clock that also carries the datagrams.

    A minimal network: no losses, no counters by kind, no observers, and one random generator for all links.
    """

    def __init__(self, clients: int, clock: HeapClock | Clock, *, stop_after: float | None = None) -> None:
        self.clock: Any = clock
        self.sent = 0
        self.events = 0
        self._started = time.process_time()
        self._stop_after = stop_after
        self._rng = Random(1)
        self._drivers: dict[Address, NodeDriver] = {}
        self._start(BACKBONE, make_backbone(clients))
        for number, delay in enumerate(begins(clients)):
            self.clock.callLater(delay, self._start_client, number)
            self._late()
        self._turns = count()
        self.clock.callLater(FIRST_MESSAGE, self._publish)

    @property
    def elapsed(self) -> float:
        """Return the virtual seconds so far."""
        return float(self.clock.seconds()) - DEFAULT_START

    def run(self, seconds: float) -> None:
        """Advance the time."""
        if isinstance(self.clock, HeapClock):
            self.clock.run(seconds)
            return
        end = self.clock.seconds() + seconds
        while self.clock.calls[0].getTime() <= end:
            to_the_next_call(self.clock)
            self._late()
        self.clock.advance(end - self.clock.seconds())

    def check(self) -> None:
        """Check that the nodes did their work."""
        check([driver.node for driver in self._drivers.values() if isinstance(driver.node, Client)])

    def _late(self) -> None:
        if self._stop_after is not None and time.process_time() - self._started > self._stop_after:
            raise TimeoutError

    def _start_client(self, number: int) -> None:
        self._start(address_of(number), make_client(number, self.clock.seconds()))

    def _start(self, address: Address, node: INode) -> None:
        driver = self._drivers[address] = NodeDriver(
            node, self.clock, perform=partial(self._send, address), on_event=lambda event: None
        )
        driver.flush()

    def _send(self, source: Address, effect: Send) -> None:
        later, arrive, random = self.clock.callLater, self._arrive, self._rng.random
        datagrams = [bytes(datagram) for datagram in effect.iter_datagrams()]
        for peer in effect.peers:
            for datagram in datagrams:
                later(DELAY + JITTER * random(), arrive, peer, datagram, source)
            self._late()
        self.sent += len(effect.peers) * len(datagrams)

    def _arrive(self, to: Address, datagram: bytes, source: Address) -> None:
        driver = self._drivers.get(to)
        if driver is not None:
            node: Any = driver.node
            node.receive_batch(Batch.pack([(datagram, source)]), driver.now())
            driver.flush()

    def _publish(self) -> None:
        self.clock.callLater(INTERVAL, self._publish)
        driver = self._drivers[address_of(next(self._turns) % PUBLISHERS)]
        node: Any = driver.node
        node.publish(MESSAGE, driver.now())
        driver.flush()


def check(clients: Sequence[Any]) -> None:
    """Check that all clients are connected and received the same messages, except for one that may be in flight."""
    delivered = {client.counters.delivered for client in clients}
    if not all(client.keepalive.connected for client in clients) or max(delivered) - min(delivered) > 1:
        raise SystemExit(f"it does not work: {min(delivered)} to {max(delivered)} messages were handed over")


def resident() -> int:
    """Return the peak resident memory of the process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024


def network_run(clients: int, budget: float, *, moment: float) -> Figures:
    """Run a backbone and its clients on the simulated network."""
    before = resident()
    figures = world_run(Simulated(clients, moment=moment), clients, budget)
    return {**figures, "resident": (resident() - before) / clients}


def driven_run(clients: int, budget: float) -> Figures:
    """Run the same on HeapClock."""
    return world_run(Driven(clients, HeapClock(DEFAULT_START)), clients, budget)


def task_clock_run(clients: int, budget: float, stop_after: float) -> Figures:
    """Run the same on task.Clock, for ``stop_after`` seconds."""
    clock = Clock()
    clock.rightNow = DEFAULT_START
    try:
        return world_run(Driven(clients, clock, stop_after=stop_after), clients, budget)
    except TimeoutError:
        return {"stopped at": clock.seconds() - DEFAULT_START, "stopped after": stop_after}


def world_run(world: Simulated | Driven, clients: int, budget: float) -> Figures:
    """Return the rates per second once all clients are connected."""
    world.run(WARM_UP)
    step = max(INTERVAL, 1_000 // clients)
    sent, events = world.sent, world.events
    done = timed(lambda: world.run(step), budget)
    figures = {
        "datagrams/s": (world.sent - sent) / done.seconds,
        "events/s": (world.events - events) / done.seconds,
        "simulated s/s": done.times * step / done.seconds,
    }
    gc.freeze()
    sent = world.sent
    done = timed(lambda: world.run(step), budget)
    figures["frozen"] = (world.sent - sent) / done.seconds
    gc.unfreeze()
    world.check()
    return figures


def memory(clients: int) -> Figures:
    """Return the bytes per client, by purpose."""
    network, figures = Network(1, Link(delay=DELAY, jitter=JITTER), moment=0.001), Figures()
    backbone = network.add("backbone", BACKBONE, lambda boot: make_backbone(clients))
    backbone.start()
    addresses = [address_of(number) for number in range(clients)]
    names = [f"client-{number}" for number in range(clients)]
    nodes: list[INode | None] = [None] * clients
    rngs: list[Random | None] = [None] * clients
    tracemalloc.start()
    before = 0

    def so_far(what: str) -> None:
        nonlocal before
        gc.collect()
        now = tracemalloc.get_traced_memory()[0]
        figures[what], before = (now - before) / clients, now

    so_far("nothing")
    for number in range(clients):
        rngs[number] = Random(number)
    so_far("rng")
    config = ClientConfig()
    for number, rng in enumerate(rngs):
        assert rng is not None
        nodes[number] = Client(BACKBONE, config, rng, network.now)
    so_far("node")
    hosts = [
        network.add(names[number], addresses[number], partial(lambda node, boot: node, nodes[number]))
        for number in range(clients)
    ]
    so_far("Host")
    for host in hosts:
        network.path(host, BACKBONE)
        network.path(backbone, host.address)
    so_far("Paths")
    for delay, host in zip(begins(clients), hosts, strict=True):
        network.call_in(delay, host.start)
    network.run(WARM_UP)
    check([host.node for host in hosts])
    so_far("connected")
    del figures["nothing"]
    return figures


@dataclass
class Measurement:
    """A measurement in a process of its own.

    :ivar rounds: number of rounds; 0 for every round.
    """

    name: str
    label: str
    arguments: tuple[Any, ...] = ()
    rounds: int = 0
    results: list[Figures] = field(default_factory=list)

    def run(self) -> None:
        """Measure once more."""
        command = [sys.executable, __file__, "--measure", json.dumps([self.name, *self.arguments])]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        self.results.append(json.loads(done.stdout))

    def figure(self, what: str) -> float | None:
        """Return the median; ``None`` if a measurement failed."""
        if not all(what in result for result in self.results):
            return None
        return median(result[what] for result in self.results)


TOLD = {
    "bare heap": "`heapq`",
    "idle hosts": "hosts",
    "HeapClock": "`HeapClock`",
    "task.Clock": "`task.Clock`",
    "network": "simulated network",
    "driven": "driver on `HeapClock`",
    "driven, task.Clock": "driver on `task.Clock`",
}
"""Names in the docs, if others."""
MEASURES: dict[str, Callable[..., Figures]] = {
    "bare heap": bare_heap,
    "scheduler": scheduler,
    "idle hosts": idle_hosts,
    "HeapClock": heap_clock,
    "task.Clock": task_clock,
    "network": partial(network_run, moment=0.001),
    "network, one by one": partial(network_run, moment=0.0),
    "driven": driven_run,
    "driven, task.Clock": task_clock_run,
    "memory": memory,
}


def main() -> None:
    """Run all measurements in turn and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round, and at most 1,000 clients")
    parser.add_argument("--rounds", type=int, default=3, help="[%(default)s]")
    add_option(parser, "simulator")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        name, *arguments = json.loads(options.measure)
        print(json.dumps(MEASURES[name](*arguments)))
        return
    rounds, budget, limit = (1, 0.2, 3.0) if options.quick else (options.rounds, 0.5, 10.0)
    sizes = (10, 1_000) if options.quick else (10, 1_000, 10_000)
    alone = [
        Measurement("bare heap", "heapq, an empty function", (budget,)),
        Measurement("scheduler", "Scheduler, an empty function", (budget,)),
        Measurement("idle hosts", "hosts, a node that does nothing", (budget,)),
        Measurement("HeapClock", "HeapClock, an empty function", (budget,)),
        Measurement("task.Clock", "task.Clock, an empty function", (budget,)),
    ]
    crowds = {
        clients: [
            # Starting a large number of clients takes so long that it is measured once.
            Measurement(name, label, (clients, budget, *more), rounds=1 if clients > 1_000 else 0)
            for name, label, more in (
                ("network", "Network, moments of 1 ms", ()),
                ("network, one by one", "Network, one by one", ()),
                ("driven", "NodeDriver, HeapClock", ()),
                ("driven, task.Clock", "NodeDriver, task.Clock", (limit,)),
            )
        ]
        for clients in sizes
    }
    remembered = Measurement("memory", "memory", (sizes[-1],), rounds=1)
    everything = [*alone, *(each for crowd in crowds.values() for each in crowd), remembered]
    turns = [each for turn in range(rounds) for each in everything if not each.rounds or turn < each.rounds]
    for each in ProgressBar(turns, unit=" measurements", desc="measured"):
        each.run()
    print(f"Medians of {rounds} rounds; seconds are of CPU time. More than 1,000 clients: once.\n")
    print_alone(alone)
    print_crowds(crowds)
    print_memory(remembered, crowds[sizes[-1]][0])
    how = f"medians of {rounds} rounds; more than 1,000 clients once"
    write(options.json, tables(alone, crowds, remembered), how)


def tables(
    alone: Sequence[Measurement], crowds: dict[int, list[Measurement]], remembered: Measurement
) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return the tables for the docs."""
    simulated: dict[str, dict[str, float | None]] = {}
    for label, figure in (("datagrams", "datagrams/s"), ("simulated seconds", "simulated s/s")):
        for clients, measurements in crowds.items():
            cells = {TOLD[each.name]: each.figure(figure) for each in measurements if each.name in TOLD}
            simulated[f"{label}, {clients:,} clients"] = cells
    of = {what: remembered.figure(what) or 0.0 for what in remembered.results[0]}
    parts = {
        "its node": of["node"],
        "its host and two paths": of["Host"] + of["Paths"],
        "its random generator": of["rng"],
    }
    return {
        "scheduler": {"events": {TOLD.get(each.name, each.name): each.figure("events/s") for each in alone}},
        "simulator": simulated,
        "simulator-memory": {
            "all": {"bytes": sum(of[what] for what in ("node", "rng", "Host", "Paths", "connected"))},
            **{name: {"bytes": value} for name, value in parts.items()},
        },
    }


def print_alone(measurements: Sequence[Measurement]) -> None:
    """Print events a second."""
    print(f"{f'{PENDING:,} pending, each once a second':<40}{'events/s':>12}{'to heapq':>10}{'to task.Clock':>15}")
    heap, clock = (measurements[index].figure("events/s") or 0.0 for index in (0, -1))
    for each in measurements:
        figure = each.figure("events/s") or 0.0
        print(f"{each.label:<40}{figure:>12,.0f}{figure / heap:>10.5f}{figure / clock:>15,.0f}")


def print_crowds(crowds: dict[int, list[Measurement]]) -> None:
    """Print rates per second."""
    print("\nA backbone and its clients; a KEEPALIVE and its ACK a second for each, and two messages a second to all")
    for clients, measurements in crowds.items():
        columns = f"{'datagrams/s':>12}{'ratio':>10}{'events/s':>12}{'simulated s/s':>15}{'gc frozen':>11}"
        print(f"\n{f'{clients:,} clients':<40}{columns}")
        anchor = measurements[2].figure("datagrams/s") or 0.0
        for each in measurements:
            figure = each.figure("datagrams/s")
            if figure is None:
                # If only some rounds were completed, their figure would be too good.
                stopped = next(result for result in each.results if "stopped at" in result)
                seconds, reached = stopped["stopped after"], stopped["stopped at"]
                print(f"{each.label:<40}stopped after {seconds:g} s, {reached:.3f} simulated s after the start")
                continue
            events = each.figure("events/s") or 0.0
            frozen, simulated = (each.figure("frozen") or 0.0) / figure, each.figure("simulated s/s") or 0.0
            print(
                f"{each.label:<40}{figure:>12,.0f}{figure / anchor:>10.3f}"
                f"{f'{events:,.0f}' if events else '':>12}{simulated:>15,.2f}{frozen:>11.2f}"
            )


def print_memory(measurement: Measurement, crowd: Measurement) -> None:
    """Print bytes per client."""
    of = {what: measurement.figure(what) or 0.0 for what in measurement.results[0]}
    print(f"\n{f'Bytes for each of {measurement.arguments[0]:,} connected clients':<40}")
    print(f"{'the node':<40}{of['node']:>12,.0f}")
    print(f"{'the Random that it is given':<40}{of['rng']:>12,.0f}")
    print(f"{'its Host':<40}{of['Host']:>12,.0f}")
    print(f"{'its two Paths':<40}{of['Paths']:>12,.0f}")
    print(f"{'once connected: entries, timers, buffers':<40}{of['connected']:>12,.0f}")
    print(f"{'resident in a run':<40}{crowd.figure('resident') or 0.0:>12,.0f}")


if __name__ == "__main__":
    main()
