"""Simulated host: its clock, its crashes, and the node that it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fyrehose_twisted.effects import Address, Close, Dial, Send, Write
from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.interfaces import ConcurrentPersist, INode
from fyrehose_twisted.sim.crash_mode import Boot, CrashMode
from fyrehose_twisted.sim.disk.disk import Disk, PowerCut
from fyrehose_twisted.sim.hosts.pending_crashes import PendingCrash, PendingCrashes
from fyrehose_twisted.sim.hosts.tick_timer import TickTimer
from fyrehose_twisted.sim.scheduler import Scheduler
from fyrehose_twisted.sim.wallclock import CLOCK_GRAIN as CLOCK_GRAIN  # for callers that import it from here
from fyrehose_twisted.sim.wallclock import WallClock

MAX_TICKS_PER_MOMENT = 100
"""Ticks within one moment after which an endless loop is assumed."""

MAX_DRAINS_PER_FLUSH = 1_000_000
"""Drains within one flush after which an endless loop is assumed."""

RESTART_DELAY = 2.0
"""Seconds after which a process supervisor restarts a process that a disk failure ended."""


_DISK_EFFECTS = {CrashMode.KILLED: Disk.process_killed, CrashMode.POWER: Disk.power_lost, CrashMode.DISK: Disk.wipe}


class HostObservers(Protocol):
    """Observers of hosts."""

    @property
    def started(self) -> Sequence[Callable[[Host], None]]:
        """Observers of node starts."""

    @property
    def stopped(self) -> Sequence[Callable[[Host, str], None]]:
        """Observers of crashes."""

    @property
    def paused(self) -> Sequence[Callable[[Host], None]]:
        """Observers of pauses."""

    @property
    def resumed(self) -> Sequence[Callable[[Host], None]]:
        """Observers of resumes."""

    @property
    def persisted(self) -> Sequence[Callable[[Host, Any], None]]:
        """Observers of persisted state."""

    @property
    def event_emitted(self) -> Sequence[Callable[[Host, Any], None]]:
        """Observers of emitted events."""


class HostSocket(Protocol):
    """Datagram socket of a host."""

    def host_stopped(self) -> None:
        """Discard queued datagrams: the node has stopped."""

    def host_resumed(self) -> None:
        """Deliver queued datagrams: the node has resumed."""


class HostStreams(Protocol):
    """Stream connections of hosts."""

    def perform(self, host: Host, effect: Dial | Write | Close) -> None:
        """Carry out an effect of the node of ``host``."""

    def host_stopped(self, host: Host, crash: CrashMode) -> None:
        """End the connections of ``host``: its node has stopped."""

    def host_resumed(self, host: Host) -> None:
        """Deliver queued data: the node of ``host`` has resumed."""


class HostNetwork(Protocol):
    """Interface of the network to a host.

    :ivar active_host: host whose node is being called, or was when an exception was raised.
    """

    scheduler: Scheduler
    active_host: Host | None

    @property
    def now(self) -> float:
        """True virtual time, UTC seconds since 1970."""

    @property
    def observers(self) -> HostObservers:
        """Observers of the run."""

    @property
    def sockets(self) -> Mapping[Address, HostSocket]:
        """Datagram sockets by host address."""

    @property
    def streams(self) -> HostStreams:
        """Stream connections of all hosts."""

    def call_in(self, seconds: float, call: Callable[[], object]) -> None:
        """Schedule a call."""

    def send(self, source: Host, effect: Send) -> None:
        """Transmit copies of the datagrams of ``effect``."""


class Host:
    """Host that runs one node.

    :ivar index: index of the host in the network, from 0.
    :ivar node: current node; a new one after each crash.
    :ivar up: whether the host is up; packets that arrive while it is down are lost.
    :ivar paused: whether the host is paused like a stopped process; packets queue until it resumes.
    :ivar other_address: second address, of the other IP version, or ``None``.
    :ivar persisted: last persisted state of the node.
    :ivar boots: number of starts, including failed ones.
    :ivar disk: disk for the files of the node, if any; notified of every crash.
    :ivar on_persist: makes state durable before anything that depends on it happens. If it raises
        :class:`~fyrehose_twisted.errors.OperationalError` or :class:`OSError`, the process ends, as in production.
    :ivar start_delay: seconds after the start of a run at which a scenario starts the host.
    """

    __slots__ = (
        "_drain_again",
        "_flushing",
        "_last_crash",
        "_pending_commands",
        "_pending_crashes",
        "_powered_off",
        "_start",
        "_timer",
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
        "other_address",
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
        self.other_address: Address | None = None
        self.start_delay = 0.0
        self.persisted: Any = None
        self.on_event: Callable[[Any], None] | None = None
        self.on_persist: Callable[[Any], None] | None = None
        self.disk: Disk | None = None
        self._start = start
        self._last_crash: CrashMode | None = None
        self._powered_off = False
        self._pending_crashes = PendingCrashes(network.call_in)
        self._timer = TickTimer(network.scheduler, self.clock, self._tick)
        self._flushing = False
        self._drain_again = False
        self._pending_commands: list[Callable[[Any, float], object]] = []

    def __repr__(self) -> str:
        return f"<host {self.name}>"

    def address_towards(self, peer: Address) -> Address | None:
        """Return the address from which datagrams to ``peer`` are sent, ``None`` without one of that IP version."""
        if (":" in peer[0]) == (":" in self.address[0]):
            return self.address
        return self.other_address

    @property
    def running(self) -> bool:
        """Whether the host is up and not paused."""
        return self.up and not self.paused

    @property
    def now(self) -> float:
        """Time of the host's clock, UTC seconds."""
        return self.clock.read(self.network.now)

    @property
    def powered_off(self) -> bool:
        """Whether the host has no power, so that it does not even refuse connections."""
        return self._powered_off

    @property
    def crashes_once_durable(self) -> bool:
        """Whether the host will crash at the next persist of its node."""
        return self._pending_crashes.at_persist is not None

    # Faults

    def start(self) -> None:
        """Start the node with the persisted state. Does nothing if the host is up.

        If the node cannot start because of the disk, the host stays down and retries after :data:`RESTART_DELAY`
        seconds.
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
            self._last_crash = after  # A failed start does not restore what the crash destroyed.
            return
        for observe in self.network.observers.started:
            observe(self)
        self.flush()

    def stop(self, mode: CrashMode = CrashMode.KILLED, description: str | None = None) -> bool:
        """Crash the host until :meth:`start`. Only durable state survives.

        :param description: text for observers; the crash mode by default.
        :return: whether the host was up.
        """
        if not self.up:
            return False
        self.up = False
        self.paused = False
        self._last_crash = mode
        self._powered_off = mode in (CrashMode.POWER, CrashMode.DISK)
        self._pending_crashes.host_stopped(powered_off=self._powered_off)
        self._timer.disarm()
        self._pending_commands.clear()
        self.network.sockets[self.address].host_stopped()
        self.network.streams.host_stopped(self, mode)
        if self.disk is not None:
            _DISK_EFFECTS[mode](self.disk)
        for observe in self.network.observers.stopped:
            observe(self, mode.value if description is None else description)
        return True

    def crash_after_persist(self, mode: CrashMode, duration: float) -> None:
        """Crash after the next persist within ``duration`` seconds, before dependent effects are sent.

        A power failure strikes before a persist that comes with concurrent effects, and after those.
        The host restarts ``duration`` seconds after the crash.
        """
        self._pending_crashes.arm_at_persist(mode, duration)

    def cut_power_after(self, cost: int, duration: float) -> None:
        """Lose power during a disk operation, if the disk does enough work within ``duration`` seconds.

        The host restarts ``duration`` seconds after the power loss.

        :param cost: work until then, in the units of
            :attr:`Disk.power_cut_after <fyrehose_twisted.sim.disk.disk.Disk>`.
        :raises ValueError: if the host has no disk.
        """
        if self.disk is None:
            raise ValueError(f"{self.name} has no disk")
        self._pending_crashes.arm_in_disk_work(self.disk, cost, duration)

    def pause(self) -> bool:
        """Pause the host like a stopped process, until :meth:`resume`; return whether it was running."""
        if not self.running:
            return False
        self.paused = True
        self._timer.disarm()
        for observe in self.network.observers.paused:
            observe(self)
        return True

    def resume(self) -> None:
        """Resume after :meth:`pause`: handle a passed deadline first, then queued input."""
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
        """Set the clock or change its rate; see :meth:`~fyrehose_twisted.sim.wallclock.WallClock.set`."""
        self.clock.set(self.network.now, offset=offset, rate=rate)
        self._timer.disarm()
        if self.running:
            self._timer.arm(self.node.next_deadline())

    # Node

    def perform(self, command: Callable[[Any, float], object]) -> bool:
        """Let the application call ``command(node, now)``, after the resume if the host is paused.

        :return: whether the call was made or queued; ``False`` if the host is down.
        """
        if not self.up:
            return False
        if self.paused:
            self._pending_commands.append(command)
            return True
        self.deliver(command, self.node)
        return True

    def deliver(self, call: Callable[..., object], *arguments: Any) -> None:
        """Call a method of the node with ``arguments`` and the time, and carry out its outputs."""
        self.network.active_host = self
        self._timer.ticks_this_moment = 0
        try:
            call(*arguments, self.clock.read(self.network.scheduler.now))
        except PowerCut:
            self._lose_power()
        self.flush()

    def flush(self) -> None:
        """Carry out the outputs of the node and schedule its next tick."""
        if self._flushing:
            self._drain_again = True  # The application called the node from an event handler.
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
        if self.up and not self.paused:
            self._timer.arm(self.node.next_deadline())
        self.network.active_host = None

    def _drain_node(self) -> None:
        """Drain the node once and carry out its outputs."""
        network, node = self.network, self.node
        observers = network.observers
        network.active_host = self
        persist, effects, events = node.drain()
        if type(persist) is ConcurrentPersist:
            self._carry_out(persist.effects)
            crash = self._pending_crashes.at_persist
            if crash is not None and crash.mode is CrashMode.POWER:
                self._crash_now(crash)  # The power fails before the disk is done.
                return
            persist = persist.state
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
            crash = self._pending_crashes.at_persist
            if crash is not None:
                self._crash_now(crash)
                return
        self._carry_out(effects)
        for event in events:
            self._drain_again = True  # The application may call the node while it handles the event.
            for told in observers.event_emitted:
                told(self, event)
            if self.on_event is not None:
                self.on_event(event)
            if not self.up or self.node is not node:
                return  # The event crashed the host; the remaining outputs are lost.

    def _carry_out(self, effects: list[Any]) -> None:
        network = self.network
        for effect in effects:
            if type(effect) is Send:
                network.send(self, effect)
            else:
                network.streams.perform(self, effect)

    def _crash_now(self, crash: PendingCrash) -> None:
        self.stop(crash.mode)
        self.network.call_in(crash.duration, self.start)

    def _tick(self) -> None:
        self.network.active_host = self
        timer = self._timer
        now = timer.begin_tick()
        if timer.ticks_this_moment > MAX_TICKS_PER_MOMENT:
            raise RuntimeError(
                f"{self._node_type} on {self.name} ticks at {now} without end; it wants {timer.deadline}"
            )
        try:
            self.node.tick(now)
        except PowerCut:
            self._lose_power()
        self.flush()

    def _process_failed(self, operation: str, error: Exception) -> None:
        """End the process because of a disk failure, and schedule a restart."""
        if self.stop(CrashMode.KILLED, f"{operation}: {type(error).__name__}: {error}"):
            self._schedule_restart(RESTART_DELAY)

    def _lose_power(self) -> None:
        """Handle a power loss during a disk operation."""
        pending = self._pending_crashes.in_disk_work
        lasts = RESTART_DELAY if pending is None else pending.duration
        if self.stop(CrashMode.POWER, f"{CrashMode.POWER.value} while the disk was busy"):
            self._schedule_restart(lasts)

    def _schedule_restart(self, delay: float) -> None:
        """Start the host after ``delay`` seconds unless it starts before."""
        self.network.active_host = None
        boots = self.boots

        def start() -> None:
            if self.boots == boots:
                self.start()

        self.network.call_in(delay, start)

    @property
    def _node_type(self) -> str:
        return type(self.node).__name__  # A repr may contain an address, which differs between runs.
