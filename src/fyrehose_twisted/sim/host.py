"""A machine on the simulated network: its clock, its crashes, and the node that it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fyrehose_twisted.effects import Address, Close, Dial, Send, Write
from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.interfaces import INode
from fyrehose_twisted.sim.crash_mode import Boot, CrashMode
from fyrehose_twisted.sim.disk.disk import Disk, PowerCut
from fyrehose_twisted.sim.scheduler import Scheduler
from fyrehose_twisted.sim.wallclock import WallClock

CLOCK_GRAIN = 1e-3
"""The driver's, which cannot be imported without Twisted."""

MAX_TICKS_PER_MOMENT = 100
"""Ticks at one moment after which a node that still wants another at once is in an endless loop."""

MAX_DRAINS_PER_FLUSH = 1_000_000
"""More, and a node that has events whenever it is drained will never come to an end."""

RESTART_DELAY = 2.0
"""Seconds after which what watches over the process of a host starts it again, if its disk made it end."""


_DISK_EFFECTS = {CrashMode.KILLED: Disk.process_killed, CrashMode.POWER: Disk.power_lost, CrashMode.DISK: Disk.wipe}


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
    def event_emitted(self) -> Sequence[Callable[[Host, Any], None]]:
        """Told what a node told its application."""


class HostSocket(Protocol):
    """The datagrams that wait to be read by a host."""

    def host_stopped(self) -> None:
        """The node of the host is gone."""

    def host_resumed(self) -> None:
        """The node of the host reads again."""


class HostStreams(Protocol):
    """The stream connections of hosts."""

    def perform(self, host: Host, effect: Dial | Write | Close) -> None:
        """Do what the node of ``host`` wants."""

    def host_stopped(self, host: Host, crash: CrashMode) -> None:
        """The node of ``host`` is gone."""

    def host_resumed(self, host: Host) -> None:
        """The node of ``host`` reads again."""


class HostNetwork(Protocol):
    """The network that a host is on.

    :ivar active_host: whose node is being called, or was when something raised.
    """

    scheduler: Scheduler
    active_host: Host | None

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
    :ivar paused: whether it stands still, as a stopped process does: it keeps what arrives until it goes on.
    :ivar persisted: what the node wanted durable last.
    :ivar boots: how often it was started, in vain too.
    :ivar disk: where its node keeps files, if it does; it is told of every crash.
    :ivar on_persist: makes durable what the node wants durable, before anything that depends on it happens. If it
        raises :class:`~fyrehose_twisted.errors.OperationalError` or :class:`OSError`, the process ends, as it does in
        production.
    :ivar start_delay: seconds after the start of a run at which a scenario starts it.
    """

    __slots__ = (
        "_deadline",
        "_drain_again",
        "_flushing",
        "_last_crash",
        "_pending_commands",
        "_pending_crash",
        "_pending_power_cut",
        "_powered_off",
        "_start",
        "_tick_at",
        "_tick_call",
        "_ticked_at",
        "_ticks_this_moment",
        "address",
        "boots",
        "clock",
        "disk",
        "index",
        "name",
        "network",
        "node",
        "on_event",
        "on_persist",
        "paused",
        "persisted",
        "start_delay",
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
        self.paused = False
        self.boots = 0
        self.start_delay = 0.0
        self.persisted: Any = None
        self.on_event: Callable[[Any], None] | None = None
        self.on_persist: Callable[[Any], None] | None = None
        self.disk: Disk | None = None
        self._start = start
        self._last_crash: CrashMode | None = None
        self._powered_off = False
        self._pending_power_cut: tuple[int, float] | None = None
        self._pending_crash: tuple[CrashMode, float] | None = None
        self._flushing = False
        self._drain_again = False
        self._deadline: float | None = None
        self._tick_at: float | None = None
        self._tick_call = 0
        self._ticked_at = 0.0
        self._ticks_this_moment = 0
        self._pending_commands: list[Callable[[Any, float], object]] = []

    def __repr__(self) -> str:
        return f"<host {self.name}>"

    @property
    def running(self) -> bool:
        """Whether the node runs now."""
        return self.up and not self.paused

    @property
    def now(self) -> float:
        """What this host's clock says, UTC seconds."""
        return self.clock.read(self.network.now)

    @property
    def powered_off(self) -> bool:
        """Whether it lost power and did not start since: nothing there answers, not even to refuse."""
        return self._powered_off

    @property
    def crashes_once_durable(self) -> bool:
        """Whether it crashes as soon as its node makes something durable."""
        return self._pending_crash is not None

    # What happens to it

    def start(self) -> None:
        """Start the node, with what an earlier one made durable. Does nothing to a host that is up.

        If the host has a disk and the node cannot be made because of it, the host stays down until the next attempt,
        after :data:`RESTART_DELAY` seconds.
        """
        if self.up:
            return
        self.up = True
        self.boots += 1
        if self._last_crash is CrashMode.DISK:
            self.persisted = None
        self.network.active_host = self
        self._powered_off = False
        after = self._last_crash
        try:
            self.node = self._start(Boot(self.now, self.persisted, after))
        except PowerCut:
            self._lose_power()
            return
        except (OperationalError, OSError) as error:
            if self.disk is None:
                raise
            self._process_failed("could not start", error)
            self._last_crash = after  # What it left of what was durable, a failed start does not bring back.
            return
        for observe in self.network.observers.started:
            observe(self)
        self.flush()

    def stop(self, mode: CrashMode = CrashMode.KILLED, description: str | None = None) -> bool:
        """Crash: nothing is sent, received or remembered until :meth:`start`, but for what was durable.

        :param description: what observers are told, if there is more to say than which crash it is.

        Returns whether it was up.
        """
        if not self.up:
            return False
        self.up = False
        self.paused = False
        self._last_crash = mode
        self._powered_off = mode in (CrashMode.POWER, CrashMode.DISK)
        self._pending_crash = None
        if self._powered_off:
            self._pending_power_cut = None
        self._disarm()
        self._pending_commands.clear()
        self.network.sockets[self.address].host_stopped()
        self.network.streams.host_stopped(self, mode)
        if self.disk is not None:
            _DISK_EFFECTS[mode](self.disk)
        for observe in self.network.observers.stopped:
            observe(self, mode.value if description is None else description)
        return True

    def crash_after_persist(self, mode: CrashMode, duration: float) -> None:
        """Crash if something is made durable in the next ``duration`` seconds, before anything that depends on it is
        sent, and start again ``duration`` seconds later."""
        armed = self._pending_crash = mode, duration

        def disarm() -> None:
            if self._pending_crash is armed:
                self._pending_crash = None

        self.network.call_in(duration, disarm)

    def cut_power_after(self, cost: int, duration: float) -> None:
        """Lose power in the middle of what the disk does, if it does that much in the next ``duration`` seconds, and
        start again ``duration`` seconds later.

        :param cost: what can still be done, as :attr:`Disk.fuse <fyrehose_twisted.sim.disk.disk.Disk>` counts it.
        :raises ValueError: if the host has no disk.
        """
        disk = self.disk
        if disk is None:
            raise ValueError(f"{self.name} has no disk")
        disk.power_cut_after = cost
        armed = self._pending_power_cut = cost, duration

        def disarm() -> None:
            if self._pending_power_cut is armed:
                self._pending_power_cut = disk.power_cut_after = None

        self.network.call_in(duration, disarm)

    def pause(self) -> bool:
        """Stand still, as a stopped process does, until :meth:`resume`. Returns whether it ran."""
        if not self.running:
            return False
        self.paused = True
        self._disarm()
        for observe in self.network.observers.paused:
            observe(self)
        return True

    def resume(self) -> None:
        """Go on after :meth:`pause`: first the clock is looked at, then what waits is read."""
        if not self.paused:
            return
        self.paused = False
        for observe in self.network.observers.resumed:
            observe(self)
        if not self.running:
            return
        deadline = self.node.next_deadline()
        if deadline is not None and deadline <= self.now:
            self._tick()
        self.network.sockets[self.address].host_resumed()
        todo, self._pending_commands = self._pending_commands, []
        for command in todo:
            self.perform(command)
        self.network.streams.host_resumed(self)
        self.flush()

    def set_clock(self, *, offset: float = 0.0, rate: float | None = None) -> None:
        """Set the clock forward or back, or make it run fast or slow: see
        :meth:`~fyrehose_twisted.sim.wallclock.WallClock.set`."""
        self.clock.set(self.network.now, offset=offset, rate=rate)
        self._disarm()
        self._arm()

    # What it does

    def perform(self, command: Callable[[Any, float], object]) -> bool:
        """Let the application call ``command(node, now)``, once the host goes on if it stands still.

        Returns whether it did or will; a host that is down does nothing.
        """
        if not self.up:
            return False
        if self.paused:
            self._pending_commands.append(command)
            return True
        self.deliver(command, self.node)
        return True

    def deliver(self, call: Callable[..., object], *arguments: Any) -> None:
        """Tell the node of something: call one of its methods with ``arguments`` and the time, and do what it wants."""
        self.network.active_host = self
        self._ticks_this_moment = 0
        try:
            call(*arguments, self.clock.read(self.network.scheduler.now))
        except PowerCut:
            self._lose_power()
        self.flush()

    def flush(self) -> None:
        """Do what the node wants, and come back when it wants to be called."""
        if self._flushing:
            self._drain_again = True  # Something called back into the node, as an application does on an event.
            return
        self._flushing = True
        try:
            drains = 0
            self._drain_again = True
            while self._drain_again and self.up and not self.paused:
                self._drain_again = False
                try:
                    self._drain_node()
                except PowerCut:
                    self._lose_power()
                drains += 1
                if drains > MAX_DRAINS_PER_FLUSH:
                    raise RuntimeError(
                        f"{self._node_type} on {self.name} has events each time it is drained, without end"
                    )
        finally:
            self._flushing = False
        self._arm()
        self.network.active_host = None

    def _drain_node(self) -> None:
        """Drain the node once and do what it wants."""
        network, node = self.network, self.node
        observers = network.observers
        network.active_host = self
        persist, effects, events = node.drain()
        if persist is not None:
            if self.on_persist is not None:
                try:
                    self.on_persist(persist)
                except (OperationalError, OSError) as error:
                    self._process_failed("could not persist", error)
                if not self.up or self.node is not node:
                    return
            self.persisted = persist
            for observe in observers.persisted:
                observe(self, persist)
            if self._pending_crash is not None:
                crash, lasts = self._pending_crash
                self.stop(crash)
                network.call_in(lasts, self.start)
                return
        for effect in effects:
            if type(effect) is Send:
                network.send(self, effect)
            else:
                network.streams.perform(self, effect)
        for event in events:
            self._drain_again = True  # What the application does with it may change what comes next.
            for told in observers.event_emitted:
                told(self, event)
            if self.on_event is not None:
                self.on_event(event)
            if not self.up or self.node is not node:
                return  # It crashed on what it was told, and the rest is gone with the node.

    def _arm(self) -> None:
        if not self.up or self.paused:
            return
        deadline = self._deadline = self.node.next_deadline()
        if deadline is None:
            self._disarm()
            return
        scheduler = self.network.scheduler
        due = max(self.clock.true_time_at(deadline), scheduler.now)
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
        network.active_host = self
        now, deadline, moment = self.now, self._deadline, network.now
        if deadline is not None and now < deadline < now + CLOCK_GRAIN:
            now = deadline  # As the driver does: rounding made the tick a hair early.
        if moment != self._ticked_at:
            self._ticked_at = moment
            self._ticks_this_moment = 0
        self._ticks_this_moment += 1
        if self._ticks_this_moment > MAX_TICKS_PER_MOMENT:
            raise RuntimeError(f"{self._node_type} on {self.name} ticks at {now} without end; it wants {deadline}")
        try:
            self.node.tick(now)
        except PowerCut:
            self._lose_power()
        self.flush()

    def _process_failed(self, operation: str, error: Exception) -> None:
        """The process ends because of its disk, and is started again."""
        if self.stop(CrashMode.KILLED, f"{operation}: {type(error).__name__}: {error}"):
            self._schedule_restart(RESTART_DELAY)

    def _lose_power(self) -> None:
        """Power was cut in the middle of what the disk did."""
        lasts = RESTART_DELAY if self._pending_power_cut is None else self._pending_power_cut[1]
        if self.stop(CrashMode.POWER, f"{CrashMode.POWER.value} while the disk was busy"):
            self._schedule_restart(lasts)

    def _schedule_restart(self, delay: float) -> None:
        """Start it after so many seconds, unless something else does sooner."""
        self.network.active_host = None
        boots = self.boots

        def start() -> None:
            if self.boots == boots:
                self.start()

        self.network.call_in(delay, start)

    @property
    def _node_type(self) -> str:
        return type(self.node).__name__  # Its repr may have an address in it, and differ from run to run.
