"""Parcels nodes and clusters as processes."""

from __future__ import annotations

import json
import subprocess
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from integration.running.programs import DEADLINE, Start, wait_until
from integration.running.service_node import ServiceNode


class RunningNode(ServiceNode):
    """``twistd parcels-node`` in a process of its own, restarted with the same options.

    :ivar address: address for nodes and publishers.
    :ivar url: URL of its HTTP site.
    """

    def __init__(
        self,
        start: Start,
        name: str,
        ports: tuple[int, int],
        root: Path,
        options: Callable[[RunningNode], list[object]],
    ) -> None:
        self._start = start
        self._root = root
        self._options = options
        self.name = name
        self.port, self.http_port = ports
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"http://127.0.0.1:{self.http_port}"
        self.context: Any = None

    def start(self, *more: object) -> RunningNode:
        """Start or restart it."""
        command = "twistd", "-n", "--pidfile=", "parcels-node", "--name", self.name, *self._options(self), *more
        self.program = self._start(*command, cwd=self._root, stderr=subprocess.STDOUT)
        return self

    def ask(self, path: str, data: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """Send a request; return status and body of the response."""
        request = Request(self.url + path, data, {name.replace("_", "-"): value for name, value in headers.items()})
        try:
            with urlopen(request, timeout=DEADLINE, context=self.context) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            with error:
                return error.code, error.read()

    def publish(self, data: bytes) -> int:
        """Publish an event over HTTP and return its sequence number."""
        status, body = self.ask("/events", data, Content_Type="application/octet-stream")
        assert status == 201, (status, body, self.program)
        number: int = json.loads(body)["sequence"]
        return number

    def state(self) -> dict[str, Any]:
        """Return the state of the cluster, empty without a response."""
        try:
            status, body = self.ask("/cluster")
        except OSError:
            return {}
        assert status == 200, body
        found: dict[str, Any] = json.loads(body)
        return found

    def events(self, first: int, last: int) -> list[tuple[int, str, str]]:
        """Return sequence number, publisher and data of events."""
        status, body = self.ask(f"/events?from={first}&to={last}&encoding=base64")
        assert status == 200, body
        found = [(one["sequence"], one["publisher"], b64decode(one["data"]).decode()) for one in json.loads(body)]
        return found if not found or found[-1][0] >= last else found + self.events(found[-1][0] + 1, last)

    def metrics(self) -> dict[str, float]:
        """Return its counters."""
        _, body = self.ask("/metrics")
        lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
        return {
            name.removeprefix("fyrehose_parcels_"): float(value) for name, value in (x.rsplit(" ", 1) for x in lines)
        }

    def wait_for(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Return the state of the cluster once a condition on it holds."""
        found: list[dict[str, Any]] = []

        def holds() -> bool:
            found.append(self.state())
            return bool(found[-1]) and bool(condition(found[-1]))

        wait_until(holds, lambda: f"{self.name}: {found[-1]}\n{self.program}")
        return found[-1]

    def wait_for_event(self, sequence: int) -> None:
        """Wait until it has delivered an event."""
        self.wait_for(lambda state: state["sequence"] >= sequence)

    def wait_to_work(self, *names: str) -> dict[str, Any]:
        """Wait until its cluster orders events with exactly these members, all alive."""

        def works(state: dict[str, Any]) -> bool:
            alive = sorted(member["name"] for member in state["members"] if member["alive"])
            return state["mode"] == "Wrk" and bool(state["leader"]) and alive == sorted(names)

        return self.wait_for(works)


class RunningCluster(dict[str, RunningNode]):
    """Nodes by name, each of which knows all others."""

    @property
    def leader(self) -> RunningNode:
        """Return the leader as named by a working node; wait while there is none."""
        named: list[str] = []

        def is_named() -> bool:
            states = [node.state() for node in self.values()]
            named[:] = [state["leader"] for state in states if state.get("mode") == "Wrk" and state["leader"] in self]
            return bool(named)

        wait_until(is_named, lambda: f"no leader: {[node.state() for node in self.values()]}")
        return self[named[0]]

    @property
    def followers(self) -> list[RunningNode]:
        """Return the other nodes."""
        leader = self.leader
        return [node for node in self.values() if node is not leader]

    def wait_to_work(self) -> None:
        """Wait until all nodes are members and agree on the leader."""
        wait_until(
            lambda: len({node.wait_to_work(*self)["leader"] for node in self.values()}) == 1,
            lambda: f"no common leader: {[node.state() for node in self.values()]}",
        )

    def events(self, first: int, last: int) -> list[tuple[int, str, str]]:
        """Return the events of all nodes, which must be equal."""
        for node in self.values():
            node.wait_for_event(last)
        found = [node.events(first, last) for node in self.values()]
        assert all(one == found[0] for one in found), found
        assert [number for number, _, _ in found[0]] == list(range(first, last + 1))
        return found[0]


StartCluster = Callable[..., RunningCluster]
