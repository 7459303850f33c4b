"""Parcels rounds: three nodes, HTTP publishers that repeat requests under idempotency keys, and two readers."""

from __future__ import annotations

import json
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from typing import Any

from hosts.bridge import Deadline, Process
from hosts.checkers import parcels as checker
from hosts.faults import STORING, Fault, draw
from hosts.history import Entry, of_kind
from hosts.rounds.base import Round

NODES = ("a", "b", "c")
PUBLISHERS = ("p1", "p2", "p3")
READERS = ("r1", "r2")
ANSWERED = 3.0
"""Seconds after which a publisher repeats an unanswered request at the next node."""
LIVE = 60.0
"""Seconds within which three nodes work initially and after each fault, and operations succeed again."""


class ParcelsRound(Round):
    """Round in which one node at a time is partitioned, paused or killed, which a cluster of three tolerates."""

    protocol = "parcels"
    check = staticmethod(checker.check)

    def plan(self) -> list[Fault]:
        return draw(self.random, NODES, kinds=STORING, seconds=7, longest=5)

    def begin(self) -> None:
        self._services: dict[str, Process] = {}
        self._bootstrapped = False
        self._ending = False
        self._told: set[str] = set()
        self._done: set[str] = set()
        self._has: dict[str, set[str]] = {name: set() for name in READERS}
        for name in (*NODES, *PUBLISHERS, *READERS):
            self.bridge.add(name)
        for name in NODES:
            self.bridge.hosts[name].add_disk()
            self.restart(name)
            self._bootstrapped = True
        self._await_members()
        urls = [word for name in NODES for word in ("--http", f"http://{self.bridge.hosts[name].address}:8080")]
        for name in READERS:
            self.history.add(name, "began")
            reader = self.bridge.hosts[name].start(
                *("fyrehose", "parcels", "follow", *urls, "--from", 1, "--format", "json", "--timeout", 60)
            )
            self.work(self.follow, reader, lambda entry, name=name: self._read(name, entry))
        for number, name in enumerate(PUBLISHERS):
            self.work(self._publish, name, number)
        self.until(lambda: self._told == set(PUBLISHERS), LIVE, "each publisher has an event acknowledged")

    def service(self, host: str) -> Process:
        return self._services[host]

    def restart(self, host: str) -> None:
        here = self.bridge.hosts[host]
        neighbours = [f"--peer={self.bridge.hosts[name].address}:7878" for name in NODES if name != host]
        self._services[host] = here.start(
            *(
                "twistd",
                "-n",
                "--pidfile=",
                "parcels-node",
                f"--name={host}",
                f"--journal={here.disk}/kept",
                "--open",
                *neighbours,
            ),
            *(f"--listen=tcp:7878:interface={here.address}", f"--http=tcp:8080:interface={here.address}"),
            *(() if self._bootstrapped else ("--bootstrap",)),
        )

    def await_fault(self, fault: Fault) -> None:
        self._await_members()  # Two members would not tolerate the next fault.
        super().await_fault(fault)

    def _await_members(self) -> None:
        self.until(self._works, LIVE, "three members in mode Wrk")

    def settle(self) -> None:
        self._await_members()
        self._told.clear()
        self.until(lambda: self._told == set(PUBLISHERS), LIVE, "each publisher has an event acknowledged again")
        self._ending = True
        self.until(lambda: self._done == set(PUBLISHERS), LIVE, "each publisher has an answer")
        lines = {entry["key"]: entry["line"] for entry in of_kind(list(self.history.entries), "asked")}
        with suppress(Deadline):  # The checker reports missing events.
            told = {lines[entry["key"]] for entry in of_kind(list(self.history.entries), "told")}
            self.until(lambda: all(told <= self._has[name] for name in READERS), LIVE, "all is read")

    def _works(self) -> bool:
        states = [self._ask(PUBLISHERS[0], name, "GET", "/cluster") for name in NODES]
        return all(
            state is not None
            and state["mode"] == "Wrk"
            and sum(member["alive"] for member in state["members"]) == len(NODES)
            for state in states
        )

    def _ask(self, source: str, node: str, method: str, path: str, **more: Any) -> dict[str, Any] | None:
        """Return the HTTP response of a node to a host, ``None`` without a valid one."""
        address = self.bridge.hosts[node].address, 8080
        connection = HTTPConnection(*address)
        try:
            connection.sock = self.bridge.hosts[source].space.connect(address, ANSWERED)
            connection.request(method, path, **more)
            answer = connection.getresponse()
            content: dict[str, Any] = json.loads(answer.read())
        except (OSError, HTTPException, ValueError):
            return None
        finally:
            connection.close()
        return content if answer.status < 300 else None

    def _publish(self, name: str, node: int) -> None:
        number = 0
        while not self.over.is_set() and not self._ending:
            number += 1
            key = line = f"{name}-{number}"
            headers = {"Content-Type": "text/plain", "Publisher": name, "Idempotency-Key": key}
            self.result.operations += 1
            sequences: list[int] = []
            # Every tenth event is published again at another node after its acknowledgement.
            while len(sequences) <= (number % 10 == 0) and not self.over.is_set():
                self.history.add(name, "asked", key=key, line=line)
                answer = self._ask(name, NODES[node % 3], "POST", "/events", body=line.encode(), headers=headers)
                if answer is None:
                    node += 1
                    self.wait(0.1)
                    continue
                sequences.append(answer["sequence"])
                self.history.add(name, "told", key=key, sequence=answer["sequence"])
                node += len(sequences) == 1 and number % 10 == 0
            self.result.acknowledged += bool(sequences)
            self._told.add(name)
            self.wait(0.03)
        self._done.add(name)

    def _read(self, name: str, event: Entry) -> None:
        if "sequence" in event:
            self.history.add(name, "read", line=event["data"], sequence=event["sequence"])
            self._has[name].add(event["data"])
