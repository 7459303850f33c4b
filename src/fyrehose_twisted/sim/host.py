"""A machine on the simulated network: its clock, its crashes, and the node that it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fyrehose_twisted.effects import Address, Dial, HangUp, Send, Write
from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.interfaces import INode
from fyrehose_twisted.sim.crash_mode import Boot, Crash
from fyrehose_twisted.sim.disk.disk import Disk, PowerCut
from fyrehose_twisted.sim.scheduler import Scheduler
from fyrehose_twisted.sim.wallclock import WallClock

CLOCK_GRAIN = 1e-3
"""The driver's, which cannot be imported without Twisted."""

IDLE_TICKS = 100
"""Ticks at one moment after which a node that still wants another at once is in an endless loop."""

DRAINS_AT_ONCE = 1_000_000
"""More, and a node that has events whenever it is drained will never come to an end."""

RESTART_AFTER = 2.0
"""Seconds after which what watches over the process of a host starts it again, if its disk made it end."""


_AFTERMATH = {Crash.KILLED: Disk.killed, Crash.POWER: Disk.power_lost, Crash.DISK: Disk.wipe}


class HostObservers(Protocol):
    """The observers of what hosts do."""

    @property
    def started(self) -> Sequence[Callable[[Host], None]]:
        """Told that a host runs a new node."""

    @property
    def stopped(self) -> Sequence[Callable[[Host, str], None]]:
        """Told that a host crashed, and how."""

    @property
    def paused(self) -> Sequence[Callable[[Host], None]]:
        """Told that a host stands still."""

    @property
    def resumed(self) -> Sequence[Callable[[Host], None]]:
        """Told that a host goes on."""

    @property
    def persisted(self) -> Sequence[Callable[[Host, Any], None]]:
        """Told what a node made durable."""

    @property
    def told(self) -> Sequence[Callable[[Host, Any], None]]:
        """Told what a node told its application."""


class HostSocket(Protocol):
    """The datagrams that wait to be read by a host."""

    def host_stopped(self) -> None:
        """The node of the host is gone."""

    def host_resumed(self) -> None:
        """The node of the host reads again."""


class HostStreams(Protocol):
    """The stream connections of hosts."""

    def carry_out(self, host: Host, effect: Dial | Write | HangUp) -> None:
        """Do what the node of ``host`` wants."""

    def host_stopped(self, host: Host, crash: Crash) -> None:
        """The node of ``host`` is gone."""

    def host_resumed(self, host: Host) -> None:
        """The node of ``host`` reads again."""


class HostNetwork(Protocol):
    """The network that a host is on.

    :ivar acting: whose node is being called, or was when something raised.
    """

    scheduler: Scheduler
    acting: Host | None

    @property
    def now(self) -> float:
        """True virtual time, UTC seconds since 1970."""

    @property
    def observers(self) -> HostObservers:
        """The observers of the run."""

    @property
    def sockets(self) -> Mapping[Address, HostSocket]:
        """The sockets of hosts, by address."""

    @property
    def streams(self) -> HostStreams:
        """The stream connections."""

    def call_in(self, seconds: float, call: Callable[[], object]) -> None:
        """Call ``call`` after a while."""

    def send(self, source: Host, effect: Send) -> None:
        """Send copies of the datagrams of ``effect`` on their way."""


class Host:
    """One machine and its node.

    :ivar index: which host of the network this is, from 0.
    :ivar node: what it runs; a new one after each crash.
    :ivar up: whether it runs; what arrives while it does not is lost.
    :ivar standing: whether it stands still, as a stopped process does: it keeps what arrives until it goes on.
    :ivar persisted: what the node wanted durable last.
    :ivar boots: how often it was started, in vain too.
    :ivar disk: where its node keeps files, if it does; it is told of every crash.
    :ivar on_persist: makes durable what the node wants durable, before anything that depends on it happens. If it
        raises :class:`~fyrehose_twisted.errors.OperationalError` or :class:`OSError`, the process ends, as it does in
        production.
    :ivar begins: seconds after the start of a run at which a scenario starts it.
    """

    __slots__ = (
        "_again",
        "_crash",
        "_cut",
        "_dark",
        "_deadline",
        "_flushing",
        "_start",
        "_stop_between",
        "_tick_at",
        "_tick_call",
        "_ticked_at",
        "_ticks_now",
        "_todo",
        "address",
        "begins",
        "boots",
        "clock",
        "disk",
        "index",
        "name",
        "network",
        "node",
        "on_event",
        "on_persist",
        "persisted",
        "standing",
        "up",
    )

    def __init__(
        self, network: HostNetwork, index: int, name: str, address: Address, start: Callable[[Boot], INode]
    ) -> None:
        self.network = network
        self.index = index
        self.name = name
        self.address = address
        self.clock = WallClock()
        self.node: Any = None
        self.up = False
        self.standing = False
        self.boots = 0
        self.begins = 0.0
        self.persisted: Any = None
        self.on_event: Callable[[Any], None] | None = None
        self.on_persist: Callable[[Any], None] | None = None
        self.disk: Disk | None = None
        self._start = start
        self._crash: Crash | None = None
        self._dark = False
        self._cut: tuple[int, float] | None = None
        self._stop_between: tuple[Crash, float] | None = None
        self._flushing = False
        self._again = False
        self._deadline: float | None = None
        self._tick_at: float | None = None
        self._tick_call = 0
        self._ticked_at = 0.0
        self._ticks_now = 0
        self._todo: list[Callable[[Any, float], object]] = []

    def __repr__(self) -> str:
        return f"<host {self.name}>"

    @property
    def running(self) -> bool:
        """Whether the node runs now."""
        return self.up and not self.standing

    @property
    def now(self) -> float:
        """What this host's clock says, UTC seconds."""
        return self.clock.read(self.network.now)

    @property
    def dark(self) -> bool:
        """Whether it lost power and did not start since: nothing there answers, not even to refuse."""
        return self._dark

    @property
    def crashes_once_durable(self) -> bool:
        """Whether it crashes as soon as its node makes something durable."""
        return self._stop_between is not None

    # What happens to it

    def start(self) -> None:
        """Start the node, with what an earlier one made durable. Does nothing to a host that is up.

        If the host has a disk and the node cannot be made because of it, the host stays down until the next attempt,
        after :data:`RESTART_AFTER` seconds.
        """
        if self.up:
            return
        self.up = True
        self.boots += 1
        if self._crash is Crash.DISK:
            self.persisted = None
        self.network.acting = self
        self._dark = False
        after = self._crash
        try:
            self.node = self._start(Boot(self.now, self.persisted, after))
        except PowerCut:
            self._lose_power()
            return
        except (OperationalError, OSError) as error:
            if self.disk is None:
                raise
            self._fail("could not start", error)
            self._crash = after  # What it left of what was durable, a failed start does not bring back.
            return
        for observe in self.network.observers.started:
            observe(self)
        self.flush()

    def stop(self, crash: Crash = Crash.KILLED, how: str | None = None) -> bool:
        """Crash: nothing is sent, received or remembered until :meth:`start`, but for what was durable.

        :param how: what observers are told, if there is more to say than which crash it is.

        Returns whether it was up.
        """
        if not self.up:
            return False
        self.up = False
        self.standing = False
        self._crash = crash
        self._dark = crash in (Crash.POWER, Crash.DISK)
        self._stop_between = None
        if self._dark:
            self._cut = None
        self._disarm()
        self._todo.clear()
        self.network.sockets[self.address].host_stopped()
        self.network.streams.host_stopped(self, crash)
        if self.disk is not None:
            _AFTERMATH[crash](self.disk)
        for observe in self.network.observers.stopped:
            observe(self, crash.value if how is None else how)
        return True

    def stop_after_persisting(self, crash: Crash, lasts: float) -> None:
        """Crash if something is made durable in the next ``lasts`` seconds, before anything that depends on it is sent,
        and start again ``lasts`` seconds later."""
        armed = self._stop_between = crash, lasts

        def disarm() -> None:
            if self._stop_between is armed:
                self._stop_between = None

        self.network.call_in(lasts, disarm)

    def cut_power_after(self, cost: int, lasts: float) -> None:
        """Lose power in the middle of what the disk does, if it does that much in the next ``lasts`` seconds, and start
        again ``lasts`` seconds later.

        :param cost: what can still be done, as :attr:`Disk.fuse <fyrehose_twisted.sim.disk.disk.Disk>` counts it.
        :raises ValueError: if the host has no disk.
        """
        disk = self.disk
        if disk is None:
            raise ValueError(f"{self.name} has no disk")
        disk.fuse = cost
        armed = self._cut = cost, lasts

        def disarm() -> None:
            if self._cut is armed:
                self._cut = disk.fuse = None

        self.network.call_in(lasts, disarm)

    def stand(self) -> bool:
        """Stand still, as a stopped process does, until :meth:`go_on`. Returns whether it ran."""
        if not self.running:
            return False
        self.standing = True
        self._disarm()
        for observe in self.network.observers.paused:
            observe(self)
        return True

    def go_on(self) -> None:
        """Go on after :meth:`stand`: first the clock is looked at, then what waits is read."""
        if not self.standing:
            return
        self.standing = False
        for observe in self.network.observers.resumed:
            observe(self)
        if not self.running:
            return
        deadline = self.node.next_deadline()
        if deadline is not None and deadline <= self.now:
            self._tick()
        self.network.sockets[self.address].host_resumed()
        todo, self._todo = self._todo, []
        for command in todo:
            self.do(command)
        self.network.streams.host_resumed(self)
        self.flush()

    def set_clock(self, *, by: float = 0.0, rate: float | None = None) -> None:
        """Set the clock forward or back, or make it run fast or slow: see
        :meth:`~fyrehose_twisted.sim.wallclock.WallClock.set`."""
        self.clock.set(self.network.now, by=by, rate=rate)
        self._disarm()
        self._arm()

    # What it does

    def do(self, command: Callable[[Any, float], object]) -> bool:
        """Let the application call ``command(node, now)``, once the host goes on if it stands still.

        Returns whether it did or will; a host that is down does nothing.
        """
        if not self.up:
            return False
        if self.standing:
            self._todo.append(command)
            return True
        self.feed(command, self.node)
        return True

    def feed(self, call: Callable[..., object], *what: Any) -> None:
        """Tell the node of something: call one of its methods with ``what`` and the time, and do what it wants."""
        self.network.acting = self
        self._ticks_now = 0
        try:
            call(*what, self.clock.read(self.network.scheduler.now))
        except PowerCut:
            self._lose_power()
        self.flush()

    def flush(self) -> None:
        """Do what the node wants, and come back when it wants to be called."""
        if self._flushing:
            self._again = True  # Something called back into the node, as an application does on an event.
            return
        self._flushing = True
        try:
            drains = 0
            self._again = True
            while self._again and self.up and not self.standing:
                self._again = False
                try:
                    self._carry_out()
                except PowerCut:
                    self._lose_power()
                drains += 1
                if drains > DRAINS_AT_ONCE:
                    raise RuntimeError(f"{self._kind} on {self.name} has events each time it is drained, without end")
        finally:
            self._flushing = False
        self._arm()
        self.network.acting = None

    def _carry_out(self) -> None:
        """Drain the node once and do what it wants."""
        network, node = self.network, self.node
        observers = network.observers
        network.acting = self
        persist, effects, events = node.drain()
        if persist is not None:
            if self.on_persist is not None:
                try:
                    self.on_persist(persist)
                except (OperationalError, OSError) as error:
                    self._fail("could not persist", error)
                if not self.up or self.node is not node:
                    return
            self.persisted = persist
            for observe in observers.persisted:
                observe(self, persist)
            if self._stop_between is not None:
                crash, lasts = self._stop_between
                self.stop(crash)
                network.call_in(lasts, self.start)
                return
        for effect in effects:
            if type(effect) is Send:
                network.send(self, effect)
            else:
                network.streams.carry_out(self, effect)
        for event in events:
            self._again = True  # What the application does with it may change what comes next.
            for told in observers.told:
                told(self, event)
            if self.on_event is not None:
                self.on_event(event)
            if not self.up or self.node is not node:
                return  # It crashed on what it was told, and the rest is gone with the node.

    def _arm(self) -> None:
        if not self.up or self.standing:
            return
        deadline = self._deadline = self.node.next_deadline()
        if deadline is None:
            self._disarm()
            return
        scheduler = self.network.scheduler
        due = max(self.clock.reaches(deadline), scheduler.now)
        # As the driver does: a tick that comes too early costs less than moving it again and again.
        if self._tick_at is None or due < self._tick_at:
            self._disarm()
            self._tick_at = due
            self._tick_call = scheduler.call_at(due, self._tick_due)

    def _disarm(self) -> None:
        if self._tick_at is not None:
            self._tick_at = None
            self.network.scheduler.cancel(self._tick_call)

    def _tick_due(self) -> None:
        self._tick_at = None
        self._tick()

    def _tick(self) -> None:
        network = self.network
        network.acting = self
        now, deadline, moment = self.now, self._deadline, network.now
        if deadline is not None and now < deadline < now + CLOCK_GRAIN:
            now = deadline  # As the driver does: rounding made the tick a hair early.
        if moment != self._ticked_at:
            self._ticked_at = moment
            self._ticks_now = 0
        self._ticks_now += 1
        if self._ticks_now > IDLE_TICKS:
            raise RuntimeError(f"{self._kind} on {self.name} ticks at {now} without end; it wants {deadline}")
        try:
            self.node.tick(now)
        except PowerCut:
            self._lose_power()
        self.flush()

    def _fail(self, what: str, error: Exception) -> None:
        """The process ends because of its disk, and is started again."""
        if self.stop(Crash.KILLED, f"{what}: {type(error).__name__}: {error}"):
            self._start_again(RESTART_AFTER)

    def _lose_power(self) -> None:
        """Power was cut in the middle of what the disk did."""
        lasts = RESTART_AFTER if self._cut is None else self._cut[1]
        if self.stop(Crash.POWER, f"{Crash.POWER.value} while the disk was busy"):
            self._start_again(lasts)

    def _start_again(self, after: float) -> None:
        """Start it after so many seconds, unless something else does sooner."""
        self.network.acting = None
        boots = self.boots

        def start() -> None:
            if self.boots == boots:
                self.start()

        self.network.call_in(after, start)

    @property
    def _kind(self) -> str:
        return type(self.node).__name__  # Its repr may have an address in it, and differ from run to run.
