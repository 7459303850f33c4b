"""Freenet nodes and networks as processes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from integration.running.control import Asking
from integration.running.programs import AwaitTrue, Start
from integration.running.service_node import ControlledNode

from fyrehose_twisted.freenet.wire.signing import named_key, strip_signature
from fyrehose_twisted.journal.reader import open_reader

KEY = named_key("news")


class Node(ControlledNode):
    """``twistd freenet-node`` in a process of its own, restarted with the same options."""

    def __init__(
        self, number: int, start: Start, await_true: AwaitTrue, asking: type[Asking], ports: tuple[int, int], root: Path
    ) -> None:
        self.number = number
        self._start = start
        self.await_true = await_true
        self.port, control = ports
        super().__init__(asking, control)
        self.root = root
        self.options: list[object] = []

    def __repr__(self) -> str:
        return f"node {self.number}"

    def start(self) -> Node:
        """Start or restart it."""
        own = "--listen", f"tcp:{self.port}", "--control", f"tcp:{self.control}", "--state", f"{self.number}.state"
        command = "twistd", "-n", "--pidfile=", "freenet-node", *own, *self.options
        self.program = self._start(*command, cwd=self.root, stderr=subprocess.STDOUT)
        return self

    def stream(self, key: bytes = KEY) -> dict[str, Any]:
        """Return the status of one of its streams, empty if it has none."""
        found: list[dict[str, Any]] = self.status().get("streams", [])
        return next((one for one in found if one["key"] == key.hex()), {})

    def wait_for(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Return its status once a condition on it holds."""
        found: list[dict[str, Any]] = []

        def holds() -> bool:
            assert self.program.process.poll() is None, self.program
            found.append(self.status())
            return bool(found[-1]) and bool(condition(found[-1]))

        self.await_true(holds, lambda: f"{self}: {json.dumps(found[-1])}\n{self.program}")
        return found[-1]

    def wait_until_settled(self, key: bytes = KEY) -> None:
        """Wait until it belongs to a tree."""
        self.wait_for(
            lambda state: any(one["key"] == key.hex() and one["phase"] == "settled" for one in state["streams"])
        )

    def wait_for_packet(self, number: int, key: bytes = KEY) -> None:
        """Wait until it has a packet."""
        self.wait_for(
            lambda state: any(one["key"] == key.hex() and one["newest"] == number for one in state["streams"])
        )

    def publish(self, *packets: str, key: bytes = KEY) -> list[int]:
        """Publish packets and return their numbers."""
        with closing(self.asking()) as asking:
            for identity, packet in enumerate(packets):
                asking.tell(ask="publish", key=key.hex(), data=packet, id=identity)
            answers = {answer["id"]: answer for answer in (asking.read() for _ in packets)}
        assert all("number" in answer for answer in answers.values()), answers
        return [answers[identity]["number"] for identity in range(len(packets))]

    def journal(self, key: bytes = KEY) -> list[tuple[int, str]]:
        """Return the packets in its journal, which must have no writer any more."""
        found: list[tuple[int, str]] = []
        with closing(open_reader(self.root / f"{self.number}.journal" / f"freenet-{key.hex()}")) as reader:
            for epoch in reader.epochs():
                bounds = reader.bounds(epoch)
                assert bounds is not None
                for block in reader.read(epoch, bounds.first, bounds.last):
                    payloads = (strip_signature(key, bytes(payload)).decode() for payload in block.payloads())
                    found += zip(block.positions.tolist(), payloads, strict=True)
        return found


class Network(list[Node]):
    """Nodes that know some of one another."""

    def subscribers(self) -> list[Node]:
        """Return running nodes that subscribe to the stream."""
        return [node for node in self if "--subscribe" in node.options and node.program.process.poll() is None]

    def tree(self) -> dict[str, dict[str, Any]]:
        """Return the status of the stream at each member, by node id."""
        running = (node for node in self if node.program.process.poll() is None)
        states = [state for state in (node.status() for node in running) if "streams" in state]
        return {state["node"]: stream for state in states for stream in state["streams"] if stream["key"] == KEY.hex()}

    def wait_for_one_tree(self, root: Node | None = None) -> dict[str, dict[str, Any]]:
        """Return the status of the stream at each member once there is one root. Nodes that start together do not
        know one another at first, so that there are several.

        :param root: node that must be the root.
        """
        found: list[dict[str, dict[str, Any]]] = []

        def holds() -> bool:
            found.append(self.tree())
            settled = all(stream["phase"] == "settled" for stream in found[-1].values())
            roots = [node for node, stream in found[-1].items() if stream["is_root"]]
            return settled and len(roots) == 1 and (root is None or roots == [root.status().get("node")])

        for node in self.subscribers():
            node.wait_until_settled()
        self[0].await_true(holds, lambda: json.dumps(found[-1], indent=1))
        return found[-1]

    def by_id(self, node: str) -> Node:
        """Return a node by its id."""
        return next(one for one in self if one.status().get("node") == node)

    def wait_for_packet(self, number: int) -> None:
        """Wait until all subscribers have a packet."""
        for node in self.subscribers():
            node.wait_for_packet(number)


MakeNetwork = Callable[..., Network]
