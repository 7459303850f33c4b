"""Freenet rounds: five nodes on a ring with a chord, each with a subscriber, two of them with a publisher."""

from __future__ import annotations

from contextlib import suppress

from hosts.bridge import Deadline, Process
from hosts.checkers import freenet as checker
from hosts.control import Control
from hosts.faults import Fault, draw
from hosts.history import of_kind
from hosts.rounds.base import Round

NODES = ("a", "b", "c", "d", "e")
LINKS = {"a": "bc", "b": "c", "c": "d", "d": "e", "e": "a"}
"""Dial targets of each node."""
PUBLISHERS = ("a", "d")
KEY = "name:rounds"
MORE = 10
"""Packets per publisher after the network has healed."""
LIVE = 90.0
"""Seconds after the last fault within which there is one tree. Roots probe 2, 4, 8 and 16 s after they became roots,
and a request takes some time.
"""


class FreenetRound(Round):
    """Round in which any node may be partitioned, paused or killed while the others stay linked."""

    protocol = "freenet"
    check = staticmethod(checker.check)

    def plan(self) -> list[Fault]:
        return draw(self.random, NODES, seconds=8, longest=5)

    def begin(self) -> None:
        self._services: dict[str, Process] = {}
        self._ending = False
        self._sessions = dict.fromkeys(NODES, 0)
        self._waiting: dict[str, set[str]] = {}
        for name in NODES:
            self.bridge.add(name)
        for name in NODES:
            self.restart(name)
        for name in NODES:
            self.service(name).wait_for("listening|Starting factory|starting up")
            self.work(self._subscribe, name)
        for name in PUBLISHERS:
            self.work(self._publish, name)
        self.until(lambda: self._is_one(0.0), LIVE, "a packet of each publisher is at each subscriber")

    def service(self, host: str) -> Process:
        return self._services[host]

    def restart(self, host: str) -> None:
        here = self.bridge.hosts[host]
        peers = [f"--peer={self.bridge.hosts[name].address}:6180" for name in LINKS[host]]
        self._services[host] = here.start(
            *("twistd", "-n", "--pidfile=", "freenet-node", f"--listen=tcp:6180:interface={here.address}", "--open"),
            *("--state=state", "--control=unix:control", *peers),
        )

    def settle(self) -> None:
        calm = self.history.now
        self.until(lambda: self._is_one(calm), LIVE, "a packet of each publisher is at each subscriber again")
        one = self.history.add("harness", "one")["at"]
        self.until(lambda: self._published(one) >= MORE * len(PUBLISHERS), LIVE, "packets are published")
        self._ending = True
        self.until(lambda: not any(self._waiting.values()), LIVE, "each packet has an outcome")
        with suppress(Deadline):  # The checker reports missing packets.
            self.until(lambda: not checker.check(list(self.history.entries)), 15, "all is read")

    def _published(self, since: float) -> int:
        """Return the numbers of packets requested and published since then."""
        entries = list(self.history.entries)
        asked = {entry["line"] for entry in of_kind(entries, "asked") if entry["at"] >= since}
        return sum(entry["line"] in asked for entry in of_kind(entries, "told"))

    def _is_one(self, since: float) -> bool:
        entries = list(self.history.entries)
        asked = {entry["line"] for entry in of_kind(entries, "asked") if entry["at"] > since}
        pairs = {
            (entry["client"].partition("/")[0], entry["line"].partition("-")[0])
            for entry in of_kind(entries, "read")
            if entry["line"] in asked
        }
        return len(pairs) == len(NODES) * len(PUBLISHERS)

    def _subscribe(self, name: str) -> None:
        while not self.over.is_set():
            with suppress(OSError), Control(self.bridge.hosts[name].directory / "control") as control:
                self._sessions[name] += 1
                client = f"{name}/{self._sessions[name]}"
                control.ask("subscribe", key=KEY)
                self.history.add(client, "began")
                try:
                    while not self.over.is_set():
                        for answer in control.answers():
                            if "data" in answer:
                                self.history.add(client, "read", line=answer["data"], number=answer["number"])
                            elif "following" not in answer:
                                self.history.add(client, "noticed", answer=answer)
                except OSError:
                    self.history.add(client, "ended")
            self.wait(0.2)

    def _publish(self, name: str) -> None:
        number = 0
        while not self.over.is_set():
            with suppress(OSError), Control(self.bridge.hosts[name].directory / "control") as control:
                waiting = self._waiting[name] = set()
                while not self.over.is_set():
                    if not self._ending:
                        number += 1
                        line = f"{name}-{number}"
                        waiting.add(line)
                        self.history.add(name, "asked", line=line)
                        self.result.operations += 1
                        control.ask("publish", key=KEY, data=line, id=line)
                    self.wait(0.1)
                    for answer in control.answers():
                        if "number" in answer:
                            self.history.add(name, "told", line=answer["id"], number=answer["number"])
                            self.result.acknowledged += 1
                        else:
                            self.history.add(name, "failed", answer=answer)
                        waiting.discard(answer.get("id", ""))
            self.wait(0.2)
