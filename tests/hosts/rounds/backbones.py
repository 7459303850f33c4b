"""Rounds of three backbones that take over from one another, with two publishers, two readers and a durable journal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from hosts.bridge import Process
from hosts.checkers import backbones as checker
from hosts.control import Answer, Control
from hosts.faults import Fault
from hosts.history import Entry
from hosts.rounds.fyrehose import FyrehoseRound

CLIENTS = Path(__file__).parents[1] / "clients"
MEMBERS = ("a", "b", "c")
READERS = ("r1", "r2")
PUBLISHERS = {"p1": 0.004, "p2": 0.02}
"""Seconds between two messages of each publisher. Those of the second one have to be kept by the journal."""
BEGUN = 90.0
"""Seconds within which the members are one group, and the first messages are acknowledged and read."""
TAKEN_OVER = 30.0
"""Seconds after a fault of the leader within which all readers have messages that another member has numbered."""
LIVE = 40.0
"""Seconds after the last fault within which all messages are acknowledged or failed, and read."""
LOSS = 0.05
OF_LEADER = (
    "kill",
    "kill-loss",
    "kill-all",
    "pause",
    "cut",
    "cut-members",
    "one-way-out",
    "one-way-in",
    "one-way-members",
    "terminate",
    "transfer",
)
"""Faults of the leader. Each must begin a new term.

``cut-members`` and ``one-way-members`` concern packets to other members only: clients still reach the leader.
``kill-loss`` is a kill while :data:`LOSS` of all packets are lost. ``kill-all`` kills all members at once, and starts
them again.
"""


def draw(random: Random, count: int) -> list[Fault]:
    """Draw faults of the leader: all kinds equally often, in random order."""
    kinds = [kind for start in range(0, count, len(OF_LEADER)) for kind in random.sample(OF_LEADER, len(OF_LEADER))]
    return [
        Fault(kind, round(random.uniform(0.3, 1.3), 2), round(random.uniform(1.5, 3.0), 2), "leader", LOSS)
        for kind in kinds[:count]
    ]


class BackbonesRound(FyrehoseRound):
    """Round in which the leader is killed, stopped and cut off, again and again.

    :cvar takeovers: number of faults.
    """

    protocol = "backbones"
    check = staticmethod(checker.check)
    injects = frozenset(OF_LEADER)
    takeovers = len(OF_LEADER)

    def plan(self) -> list[Fault]:
        return draw(self.random, self.takeovers)

    def begin(self) -> None:
        self._services: dict[str, Process] = {}
        self._told: set[str] = set()
        self._has: dict[str, set[str]] = {name: set() for name in READERS}
        self._read_at: dict[str, list[float]] = {name: [] for name in READERS}
        self._led: dict[str, list[tuple[int, str, float]]] = {name: [] for name in READERS}
        for name in (*MEMBERS, "journal", *READERS, *PUBLISHERS):
            self.bridge.add(name)
        self._secret = self.directory / "secret"
        self._secret.write_bytes(b"a secret of the members, and of nobody else\n")
        self._secret.chmod(0o600)
        hosts = self.bridge.hosts
        self._backbones = ",".join(f"{hosts[name].address}:2323" for name in MEMBERS)
        self._at = {hosts[name].address: name for name in MEMBERS}
        for name in MEMBERS:
            self.restart(name)
        self.until(self._is_group, BEGUN, "the members are one group")
        self._journal = hosts["journal"].directory / "kept"
        self._services["journal"] = hosts["journal"].start(
            "twistd", "-n", "--pidfile=", "fyrehose-journal", "-b", self._backbones, "-d", self._journal, log="journal"
        )
        self._services["journal"].wait_for("journal")
        for name in READERS:
            self.history.add(name, "began")
            self._start_client(name, self._read, "takeover_reader.py", self._backbones)
        self.until(lambda: all(self._led.values()), BEGUN, "each reader has a leader")
        for kept, (name, period) in enumerate(PUBLISHERS.items()):
            self._start_client(name, self._publish, "fyrehose_publisher.py", self._backbones, name, kept, period)
        self.until(lambda: self._told == set(PUBLISHERS), BEGUN, "each publisher has a message acknowledged")

    def restart(self, host: str) -> None:
        here = self.bridge.hosts[host]
        options = ["fyrehose-backbone", "--member", host, "--interface", here.address, "--open", "--bootstrap"]
        options += ["--peer-secret-file", str(self._secret), "--state", "state", "--control", "unix:control"]
        for name in MEMBERS:
            options += [] if name == host else ["--peer", f"{self.bridge.hosts[name].address}:2324"]
        self._services[host] = here.start("twistd", "-n", "--pidfile=", *options)

    def await_fault(self, fault: Fault) -> None:
        self.until(self._is_group, TAKEN_OVER, f"the members are one group before {fault}")
        self._told.clear()
        self.until(lambda: self._told == set(PUBLISHERS), LIVE, "each publisher has a message acknowledged again")
        self.wait(fault.after)

    def inject(self, fault: Fault) -> None:
        """Inject a fault of the leader, wait until a new term has begun, and undo it."""
        term, leader = self._leader()
        since = monotonic()
        undo = self._begin_fault(fault.kind, leader)
        self.until(lambda: self._is_taken_over(term), TAKEN_OVER, f"a term after {term} begins after {fault}")
        self.wait(fault.lasts - (monotonic() - since))
        undo()
        self.result.pauses.setdefault(fault.kind, []).extend(self._pauses(since, term))

    def _begin_fault(self, kind: str, leader: str) -> Callable[[], object]:
        """Begin a fault; return how to end it."""
        service = self.service(leader)
        others = [name for name in self.bridge.hosts if name != leader]
        members = [name for name in MEMBERS if name != leader]
        match kind:
            case "kill":
                service.kill()
                return lambda: self.restart(leader)
            case "kill-loss":
                self.bridge.lose(LOSS)
                service.kill()
                return lambda: (self.restart(leader), self.bridge.lose(0))
            case "kill-all":
                for name in MEMBERS:
                    self.service(name).kill()
                for name in MEMBERS:
                    self.restart(name)
                return lambda: None
            case "terminate":
                service.process.send_signal(signal.SIGTERM)
                return lambda: (service.process.wait(LIVE), self.restart(leader))
            case "pause":
                service.pause()
                return service.resume
            case "transfer":
                self._ask(leader, "transfer")
                return lambda: None
            case "cut":
                cut = self.isolated(leader)
            case "cut-members":
                cut = [pair for name in members for pair in ((leader, name), (name, leader))]
            case "one-way-out":
                cut = [(leader, name) for name in others]
            case "one-way-in":
                cut = [(name, leader) for name in others]
            case "one-way-members":
                cut = [(leader, name) for name in members]
            case _:
                raise ValueError(f"unknown fault {kind}")
        self.bridge.cut(cut)
        return lambda: self.bridge.cut(())

    def settle(self) -> None:
        self.until(self._is_group, LIVE, "the members are one group again")
        super().settle()

    # What members and readers tell

    def _ask(self, host: str, what: str) -> Answer:
        """Return the answer of a member, empty while it has none."""
        with suppress(OSError, ValueError), Control(self.bridge.hosts[host].directory / "control") as control:
            control.ask(what)
            for answer in control.answers(1.0):
                return answer
        return {}

    def _is_group(self) -> bool:
        """Return whether all members vote, are connected to the leader, and know it."""
        found = {name: self._ask(name, "status").get("status", {}) for name in MEMBERS}
        leaders = {one.get("leader") for one in found.values()}
        if len(leaders) != 1 or None in leaders:
            return False
        members = found[leaders.pop()].get("members", ())
        return sum(one["connected"] and one["votes"] for one in members) == len(MEMBERS)

    def _leader(self) -> tuple[int, str]:
        """Return the newest term that a reader knows, and the leader of that term."""
        term, leader, _ = max(led[-1] for led in self._led.values())
        return term, leader

    def _is_taken_over(self, term: int) -> bool:
        return all(self._resumed_at(name, term) is not None for name in READERS)

    def _resumed_at(self, reader: str, term: int) -> float | None:
        """Return when a reader had its first message after it knew the leader of a later term."""
        changed = next((at for newer, _, at in self._led[reader] if newer > term), None)
        return None if changed is None else next((at for at in reversed(self._read_at[reader]) if at >= changed), None)

    def _pauses(self, since: float, term: int) -> list[float]:
        """Return the longest time between two deliveries to each reader, from a fault until it was over."""
        pauses = []
        for reader in READERS:
            resumed = self._resumed_at(reader, term)
            assert resumed is not None
            times = self._read_at[reader]
            pairs = pairwise(times)
            pauses.append(max(after - before for before, after in pairs if since < after and before < resumed))
        return pauses

    def _start_client(self, name: str, handle: Callable[[str, Entry], None], program: str, *arguments: object) -> None:
        self._services[name] = self.bridge.hosts[name].start(
            sys.executable, CLIENTS / program, *arguments, log="client"
        )
        self.work(self.follow, self._services[name], lambda entry: handle(name, entry))

    def _read(self, name: str, printed: dict[str, Any]) -> None:
        match printed["what"]:
            case "read":
                for number, line in printed["messages"]:
                    self.history.add(name, "read", time=printed["time"], line=line, sequence=number)
                    self._has[name].add(line)
                self._read_at[name].append(printed["time"])
            case "leader":
                self.history.add(name, **printed)
                self._led[name].append((printed["term"], self._at[printed["address"]], printed["time"]))
            case _:
                self.history.add(name, **printed)
