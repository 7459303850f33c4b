"""Parcels cluster, and checks of its events."""

from __future__ import annotations

import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

from parcels.nodes import Cluster, Node, Unfit, fetch, free_ports, wait_until

PAGE = 1_000
"""Maximum number of events in a response to GET /events."""


class OurCluster(Cluster):
    """A cluster of ``twistd parcels-node`` processes.

    :param sync: whether an event is on the disks of a majority before it is acknowledged; otherwise it is in their
        memory, and the nodes have no files.
    :ivar places: addresses for publishers and other nodes.
    :ivar urls: HTTP URLs.
    """

    def __init__(self, size: int, directory: Path, *, sync: bool = False) -> None:
        self._sync = sync
        super().__init__(size, directory)

    def start(self) -> None:
        """Start all nodes and wait until each knows all others."""
        ports = free_ports(2 * self.size)
        self.places = [("127.0.0.1", port) for port in ports[: self.size]]
        self.urls = [f"http://127.0.0.1:{port}" for port in ports[self.size :]]
        for index, (port, http) in enumerate(zip(ports[: self.size], ports[self.size :], strict=True)):
            command = [*self.twistd(index), "-n", "--pidfile=", "parcels-node", "--name", f"n{index}"]
            command += ["--listen", f"tcp:{port}:interface=127.0.0.1", "--http", f"tcp:{http}:interface=127.0.0.1"]
            command += [] if index else ["--bootstrap"]
            command += ["--journal", f"kept-{index}", "--sync"] if self._sync else []
            # The others discover one another through the first.
            command += ["--peer", f"127.0.0.1:{ports[0 if index else 1]}"]
            self.nodes.append(Node(f"ours.{port}", command, self.directory))
        for index in range(self.size):
            wait_until(lambda index=index: self._knows_all(index), "our cluster works", self.nodes)
        self.leader = int(self.state(0)["leader"][1:])

    def twistd(self, index: int) -> list[str]:
        """Return the command of a node's twistd, without its arguments."""
        return [str(Path(sys.executable).parent / "twistd")]

    def state(self, index: int) -> Any:
        """Return a node's state of the cluster."""
        return fetch(f"{self.urls[index]}/cluster")

    def _knows_all(self, index: int) -> bool:
        state = self.state(index)
        members = [member for member in state["members"] if member["alive"]]
        return state["mode"] == "Wrk" and len(members) == self.size and state["leader"] is not None

    def reached(self, sequence: int) -> None:
        """Wait until all nodes are at a number. :raises Unfit: if one is not, or is past it."""
        for index in range(self.size):
            wait_until(lambda index=index: self.state(index)["sequence"] >= sequence, f"event {sequence:,}", self.nodes)
            if (last := self.state(index)["sequence"]) != sequence:
                raise Unfit(f"node {index} is at event {last:,}, and {sequence:,} are known of")

    def check_events(self, first: int, events: list[bytes]) -> None:
        """:raises Unfit: unless every node holds exactly these events from ``first`` on.

        ``events`` may be a part of what was published; of a long one only the beginning and the end are compared.
        """
        for start in {0, max(len(events) - PAGE, 0)}:
            wanted = events[start : start + PAGE]
            number = first + start
            for url in self.urls:
                held = fetch(f"{url}/events?from={number}&to={number + len(wanted) - 1}&encoding=base64")
                if [each["sequence"] for each in held] != list(range(number, number + len(wanted))):
                    raise Unfit(f"GET /events from {number:,} has not all numbers")
                if [b64decode(each["data"]) for each in held] != wanted:
                    raise Unfit(f"GET /events from {number:,} is not what was published")
