"""Fyrehose rounds: a backbone, two publishers, two readers and a durable journal."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from hosts.bridge import BIN, Deadline, Process
from hosts.checkers import fyrehose as checker
from hosts.faults import STORING, Fault, draw
from hosts.history import Entry, of_kind
from hosts.rounds.base import Round

PUBLISHER = Path(__file__).parents[1] / "clients" / "fyrehose_publisher.py"
READERS = ("r1", "r2")
PUBLISHERS = ("p1", "p2")
BEGUN = 90.0
"""Seconds within which the first messages are acknowledged and read."""
LIVE = 40.0
"""Seconds after the last fault within which all messages are acknowledged or failed, and read. A publisher gives up
after 30 s.
"""


class FyrehoseRound(Round):
    """Round in which the backbone and the journal are also killed and restarted with their files."""

    protocol = "fyrehose"
    check = staticmethod(checker.check)

    def plan(self) -> list[Fault]:
        hosts = ("backbone", "journal", *READERS, *PUBLISHERS)
        return draw(self.random, hosts, kinds=STORING, killed=("backbone", "journal"), filled=("journal",))

    def begin(self) -> None:
        self._services: dict[str, Process] = {}
        self._told: set[str] = set()
        self._has: dict[str, set[str]] = {name: set() for name in READERS}
        for name in ("backbone", "journal", *READERS, *PUBLISHERS):
            self.bridge.add(name)
        self._backbone = f"{self.bridge.hosts['backbone'].address}:2323"
        self._journal = self.bridge.hosts["journal"].add_disk() / "kept"
        self.restart("backbone")
        self.restart("journal")
        for name in READERS:
            self.history.add(name, "began")
            self._services[name] = self.bridge.hosts[name].start(
                "fyrehose", "sub", "-b", self._backbone, "--connect-timeout", 60, "--from", 1, "--format", "json"
            )
            self.work(self.follow, self._services[name], lambda entry, name=name: self._read(name, entry))
        self.service("backbone").wait_for(r"(?s)(client [0-9.:]+ joined.*){3}")
        for kept, name in enumerate(PUBLISHERS):
            arguments = (PUBLISHER, self._backbone, name, kept, 0.05)
            self._services[name] = self.bridge.hosts[name].start(sys.executable, *arguments, log="publisher")
            self.work(self.follow, self._services[name], lambda entry, name=name: self._publish(name, entry))
        self.until(lambda: self._told == set(PUBLISHERS), BEGUN, "each publisher has a message acknowledged")

    def service(self, host: str) -> Process:
        return self._services[host]

    def restart(self, host: str) -> None:
        here = self.bridge.hosts[host]
        if host == "backbone":
            options = ("fyrehose-backbone", "--interface", "0.0.0.0", "--open", "--settle-time", 1)
        else:
            options = ("fyrehose-journal", "-b", self._backbone, "-d", self._journal)
        self._services[host] = here.start("twistd", "-n", "--pidfile=", *options)

    def settle(self) -> None:
        self._told.clear()
        self.until(lambda: self._told == set(PUBLISHERS), LIVE, "each publisher has a message acknowledged again")
        for name in PUBLISHERS:
            self.service(name).input.close()
        for name in PUBLISHERS:
            self.service(name).wait_for('"what": "done"', LIVE)
        told = {entry["line"] for entry in of_kind(list(self.history.entries), "told")}
        with suppress(Deadline):  # The checker reports missing messages.
            self.until(lambda: all(told <= self._has[name] for name in READERS), LIVE, "all is read")
        self._read_journal()

    def _read(self, name: str, message: Entry) -> None:
        line = message["data"]
        self.history.add(name, "read", line=line, sequence=message["sequence"])
        self._has[name].add(line)

    def _publish(self, name: str, printed: Entry) -> None:
        self.history.add(name, **printed)
        if printed["what"] == "asked":
            self.result.operations += 1
        elif printed["what"] == "told":
            self.result.acknowledged += 1
            self._told.add(name)

    def _read_journal(self) -> None:
        self.service("journal").kill()
        command = [BIN / "fyrehose", "journal", "cat", self._journal, "--format", "json"]
        here = self.bridge.hosts["journal"].directory
        printed = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=60)
        if printed.returncode:
            self.result.violations.append(f"the journal cannot be read: {printed.stderr}")
        self.history.add("journal", "began", journal=True)
        for line in printed.stdout.splitlines():
            record = json.loads(line)
            self.history.add("journal", "read", journal=True, line=record["data"], sequence=record["sequence"])
