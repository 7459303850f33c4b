"""Stream nodes that record their inputs, and a network of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from zope.interface import implementer

from fyrehose_twisted.effects import Address, Close, Dial, Peer, Write
from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.interfaces import ILinkNode, IStreamCodec, IStreamDecoder, Outputs
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.observer import Observer


class MalformedLength(RemoteError):
    """The received bytes do not begin with a length."""


@implementer(IStreamDecoder)
class LengthDecoder:
    def __init__(self, fed: list[bytes]) -> None:
        self.fed = fed
        self.rest = b""

    def feed(self, data: bytes) -> list[str]:
        self.fed.append(data)
        self.rest += data
        messages = []
        while len(self.rest) >= 4:
            if self.rest[0] != 0:
                raise MalformedLength(f"{self.rest[0]} is no length")
            size = int.from_bytes(self.rest[:4], "big")
            if len(self.rest) < 4 + size:
                break
            messages.append(self.rest[4 : 4 + size].decode())
            self.rest = self.rest[4 + size :]
        return messages


@implementer(IStreamCodec)
class LengthCodec:
    """Length-prefixed text; text that begins with ``!`` is encoded as malformed bytes.

    :ivar fed: what decoders were given.
    """

    def __init__(self) -> None:
        self.fed: list[bytes] = []

    def encode(self, message: str) -> bytes:
        data = message.encode()
        return b"\xff" * 8 if message.startswith("!") else len(data).to_bytes(4, "big") + data

    def decoder(self) -> LengthDecoder:
        return LengthDecoder(self.fed)


@implementer(ILinkNode)
class RecordingStreamNode:
    """A stream node that records its inputs, emits scripted outputs, and checks its inputs.

    :ivar story: ``(now, what, detail)``, as it happened.
    """

    def __init__(self) -> None:
        self.story: list[tuple[float, str, Any]] = []
        self.peers: list[Peer] = []
        self.wants: list[Any] = []
        self.events: list[Any] = []
        self.persist: Any = None
        self.full: list[Peer] = []
        self.dialling = 0
        self.react: Callable[[str, Any, Peer | None], object] = lambda what, detail, peer: None

    def connected(self, peer: Peer, now: float) -> None:
        assert peer not in self.peers
        self.peers.append(peer)
        self.happened(now, "connected", peer.address, peer)

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        self.happened(now, "dial failed", reason, None)

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        self.forget(peer)
        self.happened(now, "disconnected", reason, peer)

    def receive(self, message: Any, peer: Peer, now: float) -> None:
        assert peer in self.peers
        self.happened(now, "got", message, peer)

    def blocked(self, peer: Peer, now: float) -> None:
        assert peer in self.peers
        assert peer not in self.full
        self.full.append(peer)
        self.happened(now, "blocked", None, peer)

    def unblocked(self, peer: Peer, now: float) -> None:
        self.full.remove(peer)
        self.happened(now, "unblocked", None, peer)

    def tick(self, now: float) -> None:
        raise AssertionError("nobody asked for a tick")

    def next_deadline(self) -> float | None:
        return None

    def drain(self) -> Outputs:
        drained = Outputs(self.persist, self.wants, self.events)
        self.persist, self.wants, self.events = None, [], []
        return drained

    def happened(self, now: float, what: str, detail: Any, peer: Peer | None) -> None:
        self.story.append((now, what, detail))
        self.react(what, detail, peer)

    def forget(self, peer: Peer) -> None:
        self.peers.remove(peer)
        if peer in self.full:
            self.full.remove(peer)

    def told(self, *what: str) -> list[tuple[float, str, Any]]:
        return [entry for entry in self.story if entry[1] in what]

    @property
    def got(self) -> list[Any]:
        return [detail for _, what, detail in self.story if what == "got"]

    @property
    def ended(self) -> list[tuple[float, Any]]:
        return [(now, detail) for now, what, detail in self.story if what in ("disconnected", "dial failed")]


class StreamNetwork(Observer):
    """A network of recording stream nodes, starting at time 0, with an exact latency of 0.25 s."""

    def __init__(
        self, *names: str, seed: int = 1, link: Link | None = None, codec: LengthCodec | None = None, **options: Any
    ) -> None:
        self.network = Network(seed, Link(delay=0.25) if link is None else link, **{"start": 0.0} | options)
        self.network.streams.codec = codec
        self.network.add_observer(self)
        self.words: list[tuple[float, str, str]] = []
        self.hosts = {name: self.add(name) for name in names}

    def add(self, name: str) -> Host:
        number = len(self.network.hosts) + 1
        host = self.network.add(name, (f"10.0.0.{number}", number), lambda boot: RecordingStreamNode())
        host.start()
        return host

    def connection_changed(self, host: Host, to: Address, change: str) -> None:
        self.words.append((self.network.now, host.name, change))

    def __getitem__(self, name: str) -> RecordingStreamNode:
        node: RecordingStreamNode = self.hosts[name].node
        return node

    def run_until(self, when: float) -> None:
        self.network.scheduler.run_until(when)

    def want(self, name: str, *effects: Any) -> None:
        self.hosts[name].perform(lambda node, now: node.wants.extend(effects))

    def dial(self, name: str, to: str) -> None:
        self.want(name, Dial(self.hosts[to].address))

    def link(self, name: str, to: str) -> None:
        """Open a connection between two hosts at once."""
        self.network.streams.connect(self.hosts[name], self.hosts[to])

    def peer(self, name: str, to: str) -> Peer:
        ends = self.network.streams.connection_ends(self.hosts[name])
        return next(peer for peer in self[name].peers if ends[peer.number].to == self.hosts[to].address)

    def write(self, name: str, to: str, *messages: Any) -> None:
        self.want(name, Write(messages, self.peer(name, to)))

    def close(self, name: str, to: str) -> None:
        peer = self.peer(name, to)
        self[name].forget(peer)
        self.want(name, Close(peer))

    def cut(self, source: str, to: str, lasts: float | None = None) -> None:
        network = self.network
        change = network.override_links([self.hosts[source].address], [self.hosts[to].address], up=False)
        if lasts is not None:
            network.call_in(lasts, lambda: network.remove_override(change))

    def cut_both_ways(self, one: str, other: str, lasts: float | None = None) -> None:
        self.cut(one, other, lasts)
        self.cut(other, one, lasts)

    def pause(self, name: str, lasts: float) -> None:
        assert self.hosts[name].pause()
        self.network.call_in(lasts, self.hosts[name].resume)

    def drops(self) -> dict[str, int]:
        counts = self.network.counters
        return {key.removeprefix("dropped: "): counts[key] for key in counts if key.startswith("dropped: ")}

    def forgotten(self) -> bool:
        """Tell whether no connection has left state."""
        return not any(self.network.streams.connection_ends(host) for host in self.hosts.values())


class MakeStreamNetwork(Protocol):
    def __call__(
        self, *names: str, seed: int = 1, link: Link | None = None, codec: LengthCodec | None = None, **options: Any
    ) -> StreamNetwork: ...


class MakeConnectedPair(Protocol):
    def __call__(
        self, *, seed: int = 1, link: Link | None = None, codec: LengthCodec | None = None, **options: Any
    ) -> StreamNetwork: ...
