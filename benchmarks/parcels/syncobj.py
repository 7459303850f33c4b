"""PySyncObj cluster, controlled from outside."""

from __future__ import annotations

import json
import select
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from race.servers import Missing

from parcels.figures import Figures, rates
from parcels.nodes import PATIENCE, Cluster, Node, Unfit, cpu_of, free_ports, wait_until

SCRIPT = Path(__file__).with_name("syncobj_node.py")


class SyncObjCluster(Cluster):
    """Processes with a replicated list.

    :param batches: let commands wait to be sent together, which is its default, but slow for a client that waits for
        each answer.
    """

    def __init__(self, size: int, directory: Path, *, batches: bool = True) -> None:
        super().__init__(size, directory)
        self._batches = "batches" if batches else "at-once"

    def start(self) -> None:
        """Start all nodes and wait until they agree on a leader."""
        if find_spec("pysyncobj") is None:
            raise Missing("not installed: pip install pysyncobj")
        places = [f"127.0.0.1:{port}" for port in free_ports(self.size)]
        for place in places:
            command = [
                sys.executable,
                str(SCRIPT),
                self._batches,
                place,
                *(other for other in places if other != place),
            ]
            self.nodes.append(Node(f"syncobj.{place}", command, self.directory, pipes=True))
        leader = wait_until(self._agreed, "PySyncObj has a leader", self.nodes)
        self.leader = places.index(leader)

    def _agreed(self) -> str | None:
        leaders = {self.ask(index, do="leader") for index in range(self.size)}
        connected = all(self.ask(index, do="connected") == self.size - 1 for index in range(self.size))
        return leaders.pop() if len(leaders) == 1 and connected else None

    def ask(self, index: int, **command: Any) -> Any:
        """Return the answer of a node."""
        node = self.nodes[index]
        assert node.input is not None
        assert node.output is not None
        node.input.write(json.dumps(command).encode() + b"\n")
        node.input.flush()
        # It answers with one line only, so nothing is left in the buffer of the pipe.
        if not select.select([node.output], [], [], 2 * PATIENCE)[0]:
            raise Unfit(f"{node.name} does not answer")
        line = node.output.readline()
        if not line:
            node.process.wait(5)
            node.check()
        return json.loads(line)

    def load(self, flight: int, seconds: float, warm_up: float) -> Figures:
        """Run commands on the leader."""
        before, cpu = self.ask(self.leader, do="count"), cpu_of(self.pids)
        outcome = self.ask(self.leader, do="load", flight=flight, seconds=seconds, warm_up=warm_up)
        cpu = cpu_of(self.pids) - cpu
        if not outcome["distinct"]:
            raise Unfit("PySyncObj gave two commands the same place")
        done = before + outcome["done"]
        for index in range(self.size):
            wait_until(lambda index=index: self.ask(index, do="count") >= done, "PySyncObj has all", self.nodes)
        figures = rates(outcome["times"], outcome["seconds"])
        # It generates its own load, so this includes more than the work of its nodes.
        figures["node_us_per_event"] = cpu / max(outcome["done"], 1) * 1e6
        return figures | {"lost": outcome["lost"], "failed": outcome["failed"]}
