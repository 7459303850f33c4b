"""Trace of one message from a publisher through a backbone into a journal: the modules that it passes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, NamedTuple

from fyrehose_twisted import __file__ as package
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.protocol.backbone import BackboneProtocol
from fyrehose_twisted.fyrehose.protocol.journal import JournalProtocol
from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.net.udp import DatagramPort
from fyrehose_twisted.sim.clock import HeapClock

_CLOCK = "sim.clock"
LOOPBACK = "127.0.0.1"
ROUNDS = 1_000
PATIENCE = 5.0
"""Seconds to wait for a datagram on loopback."""
STEP = 0.01
"""Seconds of the simulated clock between rounds, while clients register."""


class Turn(NamedTuple):
    """One turn of a process's reactor.

    :ivar trigger: the call or packet that started the turn.
    :ivar modules: in order of the first call into each, relative to the package.
    """

    process: str
    trigger: str
    modules: tuple[str, ...]


class _Clock(HeapClock):
    """Stand-in for a reactor that never reads a socket by itself."""

    def addReader(self, reader: object) -> None:
        """Ignore the reader."""

    removeReader = addWriter = removeWriter = addReader


class _Run:
    """Publisher, backbone and journal on loopback sockets; each handles a datagram only when told to."""

    def __init__(self, stack: ExitStack) -> None:
        directory = Path(stack.enter_context(TemporaryDirectory()))
        self.clock = _Clock(1_000.0)
        self.backbone = BackboneProtocol(settle_time=0, reactor=self.clock)
        self.journal = JournalProtocol(
            ClientConfig(start=1), journal=open_journal(directory, "fyrehose://default"), reactor=self.clock
        )
        self.publisher = PublisherProtocol(reactor=self.clock)
        stack.callback(self.journal.journal.close)
        self.ports: dict[str, DatagramPort] = {}
        self.ports["backbone"] = self._listen(self.backbone, stack)
        address = self.ports["backbone"].getHost()
        for name, client in (("journal", self.journal), ("publisher", self.publisher)):
            client.backbone = (address.host, address.port)
            self.ports[name] = self._listen(client, stack)

    def _listen(self, protocol: Any, stack: ExitStack) -> DatagramPort:
        # Without offload, so that the path is the same on every kernel.
        port = DatagramPort(0, protocol, LOOPBACK, self.clock, offload=False)  # type: ignore[arg-type]
        port.startListening()
        stack.callback(port.connectionLost)
        return port

    def readable(self, name: str) -> bool:
        """Return whether a datagram waits for a process."""
        return bool(select([self.ports[name]], [], [], 0)[0])

    def register(self) -> None:
        """Advance the clock until both clients are registered and a first message has shown where the stream begins."""
        self._wait_for(lambda: all(client.connected_first.called for client in (self.journal, self.publisher)))
        self.publisher.publish(b"the first")
        self._wait_for(lambda: not self.publisher.pending)

    def _wait_for(self, reached: Callable[[], bool]) -> None:
        for _ in range(ROUNDS):
            quiet = not any(map(self.readable, self.ports))
            if quiet and reached():
                return
            self.clock.advance(STEP)
            for name, port in self.ports.items():
                while self.readable(name):
                    port.doRead()
        raise RuntimeError(f"backbone and clients did not come to rest within {ROUNDS * STEP:g} s of their clock")


def follow() -> list[Turn]:
    """Publish a message and return the turns until it is durable and its publisher knows its number."""
    with ExitStack() as stack:
        run = _Run(stack)
        run.register()
        turns = []

        def publish() -> None:
            run.publisher.publish(b"one message")

        turns.append(Turn("publisher", "publish()", _modules_of(publish)))
        for name, packet in (("backbone", "PUSH"), ("journal", "DELIVER"), ("publisher", "DELIVER")):
            select([run.ports[name]], [], [], PATIENCE)

            def read(name: str = name) -> None:
                run.ports[name].doRead()

            turns.append(Turn(name, f"{packet} arrives", _modules_of(read)))
        bounds = run.journal.journal.bounds(0)
        if run.publisher.pending or bounds is None or bounds.next != 3:
            raise RuntimeError(f"the message is not where it should be: {run.publisher.pending} pending, {bounds}")
        return turns


def _modules_of(act: Callable[[], None]) -> tuple[str, ...]:
    """Return the modules that are called, except the clock of this run and queries of the next deadline."""
    root = Path(package).parent
    seen: dict[str, None] = {}

    def called(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(str(root)):
            name = ".".join(Path(code.co_filename).relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            if name != _CLOCK and not _queries_deadline(frame):
                seen.setdefault(name)

    with _profiled(called):
        act()
    return tuple(seen)


def _queries_deadline(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "next_deadline":
            return True
        frame = frame.f_back
    return False


@contextmanager
def _profiled(called: Callable[[FrameType, str, object], None]) -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(before)
