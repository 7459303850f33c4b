"""Round of a protocol: hosts, clients, a fault plan, and the check of the history."""

from __future__ import annotations

import json
import signal
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic
from traceback import format_exc
from typing import Any

from hosts.bridge import Bridge, Deadline, Process
from hosts.faults import STORING, Fault
from hosts.history import Entry, History

FLAP = 0.4
"""Seconds for which a flapping link is alternately down and up."""
STOPPED = 2.0
"""Seconds after there is room again for which the next fault waits for a service that found none to end."""


@dataclass(slots=True)
class Result:
    """Result of a round.

    :ivar faults: number of injected faults by kind.
    :ivar operations: number of client requests.
    :ivar acknowledged: number of acknowledged requests.
    :ivar violations: findings of the checker and of the liveness bounds.
    :ivar pauses: seconds without a delivery, as each reader saw them, by kind of fault; of rounds that measure them.
    """

    protocol: str
    seed: int
    directory: Path
    faults: Counter[str] = field(default_factory=Counter)
    operations: int = 0
    acknowledged: int = 0
    violations: list[str] = field(default_factory=list)
    pauses: dict[str, list[float]] = field(default_factory=dict)


class Round(ABC):
    """Services on hosts, and clients that use them while faults are injected.

    :cvar protocol: name on the command line.
    :cvar check: checker, a function of the history.
    :cvar injects: kinds of faults that :meth:`inject` supports.
    """

    protocol: str
    check: Callable[[Sequence[Entry]], list[str]]
    injects: frozenset[str] = frozenset(STORING)

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = Random(seed)
        self.directory = directory
        self.history = History(directory / "history.jsonl")
        self.bridge = Bridge(directory)
        self.over = threading.Event()
        self.result = Result(self.protocol, seed, directory)
        self._threads: list[threading.Thread] = []
        self._restarting = threading.Lock()

    @abstractmethod
    def plan(self) -> list[Fault]:
        """Draw the fault plan."""

    @abstractmethod
    def begin(self) -> None:
        """Start services and clients, and wait until they work."""

    @abstractmethod
    def settle(self) -> None:
        """Wait, after all faults, until operations succeed again and readers have read everything.

        :raises Deadline: if that takes longer than the bound.
        """

    @abstractmethod
    def service(self, host: str) -> Process:
        """Return the process of a host that faults pause and kill."""

    @abstractmethod
    def restart(self, host: str) -> None:
        """Restart a killed service with the same data."""

    def await_fault(self, fault: Fault) -> None:
        """Wait until a fault is due.

        :raises Deadline: if the service does not recover from the previous one within its bound.
        """
        self.wait(fault.after)

    def run(self) -> Result:
        """Run the round. Failures of liveness and of the harness count as violations."""
        plan = self.plan()
        (self.directory / "plan.json").write_text(json.dumps([fault.as_dict() for fault in plan], indent=1))
        try:
            self.begin()
            for fault in plan:
                self.await_fault(fault)
                self.history.add("harness", "fault", **fault.as_dict())
                self.result.faults[fault.kind] += 1
                self.inject(fault)
                self.history.add("harness", "healed", kind=fault.kind, host=fault.host)
            self.history.add("harness", "calm")
            self.settle()
        except Deadline as late:
            self.result.violations.append(f"not live: {late}")
        except Exception:
            self.result.violations.append(f"the harness failed: {format_exc()}")
        finally:
            self.over.set()
            for thread in self._threads:
                thread.join(30)
            self.bridge.close()
            self.history.close()
        self.result.violations += type(self).check(self.history.entries)
        return self.result

    def work(self, target: Callable[..., None], *arguments: object) -> None:
        """Run a client in a thread until :attr:`over` is set."""

        def run() -> None:
            try:
                target(*arguments)
            except Exception:
                self.result.violations.append(f"a client of the harness failed: {format_exc()}")

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def follow(self, process: Process, handle: Callable[[dict[str, Any]], None]) -> None:
        """Pass on each JSON line that a client prints, until the round is over."""
        rest = ""
        with process.log.open() as file:
            while not self.over.is_set():
                rest += file.read()
                *lines, rest = rest.split("\n")
                for line in lines:
                    if line.startswith("{"):
                        handle(json.loads(line))
                self.wait(0.02)

    def wait(self, seconds: float) -> None:
        """Sleep while clients work."""
        self.over.wait(seconds)

    def until(self, condition: Callable[[], object], seconds: float, what: str) -> None:
        """Wait until a condition holds.

        :raises Deadline: if it does not within ``seconds``.
        """
        end = monotonic() + seconds
        while not condition():
            if monotonic() > end:
                raise Deadline(f"{what}: not within {seconds:g} s")
            self.over.wait(0.02)

    def isolated(self, host: str) -> list[tuple[str, str]]:
        """Return the pairs that separate a host from all others, in both directions."""
        others = [name for name in self.bridge.hosts if name != host]
        return [pair for other in others for pair in ((host, other), (other, host))]

    def inject(self, fault: Fault) -> None:
        """Inject a fault for its duration."""
        match fault.kind:
            case "partition":
                self.bridge.cut(self.isolated(fault.host))
                self.wait(fault.lasts)
                self.bridge.cut(())
            case "one-way":
                direction = self.isolated(fault.host)[fault.share > 0.17 :: 2]
                self.bridge.cut(direction)
                self.wait(fault.lasts)
                self.bridge.cut(())
            case "flapping":
                end = monotonic() + fault.lasts
                while monotonic() < end:
                    self.bridge.cut(self.isolated(fault.host))
                    self.wait(FLAP)
                    self.bridge.cut(())
                    self.wait(FLAP)
            case "loss":
                self.bridge.lose(fault.share)
                self.wait(fault.lasts)
                self.bridge.lose(0)
            case "pause":
                self.service(fault.host).pause()
                self.wait(fault.lasts)
                self.service(fault.host).resume()
            case "kill":
                service = self.service(fault.host)
                service.kill()
                self.wait(fault.lasts)
                with self._restarting:
                    if self.service(fault.host) is service:
                        self.restart(fault.host)
            case "full-disk":
                self.bridge.hosts[fault.host].fill_disk()
                self.wait(fault.lasts)
                self.bridge.hosts[fault.host].free_disk()
                service = self.service(fault.host)
                self.work(self._supervise, fault.host, service)
                with suppress(Deadline):  # It may not have written anything.
                    self.until(lambda: self.service(fault.host) is not service, STOPPED, "a service is started again")
            case _:
                raise ValueError(f"unknown fault {fault.kind}")

    def _supervise(self, host: str, service: Process) -> None:
        """Restart a service that found no room when it has ended, with status 1 as documented.

        A busy host may need longer than :data:`STOPPED` for that.
        """
        while not service.ended:
            if self.over.is_set():
                return
            self.wait(0.05)
        status = service.process.returncode
        with self._restarting:
            if self.over.is_set() or self.service(host) is not service or status == -signal.SIGKILL:
                return
            self.history.add("harness", "stopped", host=host, status=status)
            if status != 1:
                self.result.violations.append(f"{host} ended with status {status}, and not 1, on a full disk")
            self.restart(host)
