from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable
from io import StringIO
from random import Random
from typing import Any

import pytest
from sim.tcp.stream_nodes import LengthCodec, MakeStreamNetwork

from fyrehose_twisted.effects import Address, Close, Dial, Peer, Write
from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.observer import Observer, SimPacket
from fyrehose_twisted.sim.tcp.segments import StreamLimits
from fyrehose_twisted.sim.trace import TraceWriter

NOWHERE: Address = ("192.0.2.1", 1)


class Witness(Observer):
    """Check that every message either arrives or is dropped, exactly once."""

    def __init__(self) -> None:
        self.open: dict[int, SimPacket] = {}
        self.came_to_an_end = 0

    def sent(self, packet: SimPacket) -> None:
        self.open[packet.number] = packet

    def arrived(self, packet: SimPacket, host: Host) -> None:
        assert self.open.pop(packet.number) is packet
        assert packet.to == host.address
        self.came_to_an_end += 1

    def dropped(self, packet: SimPacket, reason: str) -> None:
        assert self.open.pop(packet.number) is packet
        assert reason in ("reset", "timed out", "closed", "down", "gone")
        self.came_to_an_end += 1


WORDS = {"dialled", "connected", "accepted", "refused", "reset", "closed", "timed out", "blocked", "unblocked"}


class Chaos:
    """Four hosts that dial, write and close at random, under every kind of fault.

    A message says which connection of which run of which host it is for, and its number there.
    """

    def __init__(
        self, stream_network: MakeStreamNetwork, seed: int, codec: LengthCodec | None, split_seed: int = 0
    ) -> None:
        link = Link(delay=0.005, jitter=0.02, loss=0.05)
        self.hosts = stream_network(
            "a", "b", "c", "d", seed=seed, link=link, codec=codec, split=0.1, split_seed=split_seed, moment=0.001
        )
        self.hosts.network.streams.limits = StreamLimits(window=4_096, high=4_096, low=1_024)
        self.witness = Witness()
        self.hosts.network.add_observer(self.witness)
        self.out = StringIO()
        self.trace = TraceWriter(self.hosts.network, self.out, scenario="chaos", seed=seed, describe=str)
        self.hosts.network.add_observer(self.trace)
        self.rng = Random(f"{seed}/chaos")
        self.written: dict[Peer, int] = {}
        self.seen: dict[tuple[Any, Peer], tuple[int, int]] = {}
        for host in self.hosts.hosts.values():
            self.watch(host)

    def watch(self, host: Host) -> None:
        node = host.node

        def react(what: str, detail: Any, peer: Peer | None) -> None:
            if what == "got" and peer is not None:
                connection, number = map(int, detail.split()[:2])
                assert self.seen.get((node, peer), (connection, 0)) == (connection, number)
                self.seen[node, peer] = connection, number + 1

        node.react = react

    def run_command(self) -> None:
        rng, stream_hosts = self.rng, self.hosts
        name = rng.choice("abcd")
        host, node = stream_hosts.hosts[name], stream_hosts[name]
        if rng.random() < 0.15 or not node.peers:
            stream_hosts.dial(name, rng.choice("abcd".replace(name, "")))
        elif rng.random() < 0.05:
            peer = rng.choice(node.peers)
            if host.running:
                node.forget(peer)
                stream_hosts.want(name, Close(peer))
        elif host.running:
            peer = rng.choice(node.peers)
            first = self.written.get(peer, 0)
            count = self.written[peer] = first + rng.choice((1, 1, 1, 5, 40))
            stream_hosts.want(
                name, Write([f"{peer.number} {n} {'x' * rng.randrange(60)}" for n in range(first, count)], peer)
            )

    def spoil(self) -> None:
        rng, stream_hosts = self.rng, self.hosts
        name, other = rng.sample("abcd", 2)
        network, host, lasts = stream_hosts.network, stream_hosts.hosts[name], rng.choice((0.1, 1.0, 10.0, 80.0))
        kind = rng.randrange(8)
        if kind < 2 and host.up:
            host.stop(rng.choice(list(CrashMode)))
            network.call_in(lasts, lambda: self.start(host))
        elif kind == 2 and host.running:
            host.pause()
            network.call_in(lasts, host.resume)
        elif kind == 3:
            stream_hosts.cut(name, other, lasts)
        elif kind == 4:
            stream_hosts.cut_both_ways(name, other, lasts)
        elif kind == 5:
            slow = network.streams.throttle_reads(
                host, 500.0, stream_hosts.hosts[other].address if rng.random() < 0.5 else None
            )
            network.call_in(lasts, lambda: network.streams.remove_throttle(slow))
        elif kind == 6:
            network.streams.reset(host, stream_hosts.hosts[other])
        elif kind == 7:
            network.streams.half_open(host, stream_hosts.hosts[other])

    def start(self, host: Host) -> None:
        if not host.up:
            host.start()
            self.watch(host)

    def run(self) -> str:
        for _ in range(60):
            for _ in range(self.rng.randrange(40)):
                self.run_command()
                self.hosts.network.run(self.rng.random() * 0.2)
            if self.rng.random() < 0.5:
                self.spoil()
        self.hosts.network.run(100.0)
        self.finish()
        self.trace.end()
        return self.out.getvalue()

    def finish(self) -> None:
        """Let every host write once more, so that it notices dead connections, and then close."""
        for host in self.hosts.hosts.values():
            self.start(host)
            host.resume()
        for last in (False, True):
            for name in "abcd":
                for peer in list(self.hosts[name].peers):
                    first = self.written.get(peer, 0)
                    self.written[peer] = first + 1
                    self.hosts.want(name, Write([f"{peer.number} {first}"], peer))
                    if last:
                        self.hosts[name].forget(peer)
                        self.hosts.want(name, Close(peer))
            self.hosts.network.run(200.0)


@pytest.mark.parametrize("seed", range(6))
def test_each_tcp_message_arrives_in_order_or_is_dropped_despite_faults(
    seed: int, codec: LengthCodec | None, stream_network: MakeStreamNetwork
) -> None:
    chaos = Chaos(stream_network, seed, codec)
    chaos.run()
    stream_hosts, counts = chaos.hosts, chaos.hosts.network.counters
    assert chaos.witness.open == {}
    assert counts["sent"] == counts["arrived"] + counts["dropped"] == chaos.witness.came_to_an_end
    assert counts["arrived"] > 500
    assert {what for _, _, what in stream_hosts.words} <= WORDS
    assert stream_hosts.forgotten()
    assert len(stream_hosts.network.scheduler) == 0


def test_tcp_runs_with_equal_seeds_have_equal_traces_for_any_segmentation(
    codec: LengthCodec | None, stream_network: MakeStreamNetwork, length_codec: type[LengthCodec]
) -> None:
    def run(seed: int, split_seed: int) -> str:
        return Chaos(stream_network, seed, length_codec() if codec else None, split_seed).run()

    trace = run(1, 0)
    assert trace == run(1, 0) == run(1, 5)
    assert trace != run(2, 0)
    entries = [json.loads(line) for line in trace.splitlines()]
    kinds = {entry["kind"] for entry in entries}
    assert {"run", "send", "arrive", "drop", "link", "start", "stop", "end"} <= kinds
    first = next(entry for entry in entries if entry["kind"] == "link")
    assert first["what"] == "dialled"
    assert {first["node"], first["to"]} <= set("abcd")
    sent = next(entry for entry in entries if entry["kind"] == "send")
    assert ("size" in sent) is (codec is not None)


def test_an_idle_connection_uses_little_memory_and_no_random_numbers(stream_network: MakeStreamNetwork) -> None:
    stream_hosts = stream_network(*(f"host-{number}" for number in range(40)))
    hosts = list(stream_hosts.hosts.values())
    pairs = [(one, other) for row, one in enumerate(hosts) for other in hosts[row + 1 :]]

    def cost(connect: Callable[[Host, Host], object]) -> float:
        gc.collect()
        tracemalloc.start()
        for one, other in pairs:
            connect(one, other)
        stream_hosts.network.run(5.0)
        stream_hosts.words.clear()
        for host in hosts:
            host.node.story.clear()
        gc.collect()
        size = tracemalloc.get_traced_memory()[0] / len(pairs)
        tracemalloc.stop()
        return size

    stream_hosts.link("host-0", "host-1")
    assert cost(stream_hosts.network.streams.connect) < 800
    assert cost(lambda one, other: stream_hosts.want(one.name, Dial(other.address))) < 1_100
    assert stream_hosts.network.counters["connections"] == 2 * len(pairs) + 1
    assert not any(stream_hosts.network._paths)
