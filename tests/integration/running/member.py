"""Members of a group of backbones as processes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from integration.running.control import Asking
from integration.running.programs import Program, Start, wait_until
from integration.running.service_node import ControlledNode


class RunningMember(ControlledNode):
    """``twistd fyrehose-backbone --member`` in a process of its own, restarted with the same options.

    :ivar address: address for clients.
    """

    def __init__(self, start: Start, asking: type[Asking], name: str, ports: tuple[int, int, int], root: Path) -> None:
        self._start = start
        self._root = root
        self.name = name
        self.port, self.peer_port, control = ports
        super().__init__(asking, control)
        self.address = f"127.0.0.1:{self.port}"
        self.peers: list[RunningMember] = []
        self.options: list[object] = []

    def start(self, *more: object) -> RunningMember:
        """Start or restart it."""
        peers = [option for peer in self.peers for option in ("--peer", f"127.0.0.1:{peer.peer_port}")]
        places = "--port", self.port, "--peer-listen", f"tcp:{self.peer_port}", "--control", f"tcp:{self.control}"
        own = "--name=ticks", "--member", self.name, "--state", f"{self.name}.state", "--settle-time=0"
        command = "twistd", "-n", "--pidfile=", "fyrehose-backbone", *own, *places, *peers, *self.options, *more
        self.program = self._start(*command, cwd=self._root, stderr=subprocess.STDOUT)
        return self

    @property
    def is_numbering(self) -> bool:
        """Whether it numbers messages."""
        return self.status().get("state") == "serving"


class RunningGroup(dict[str, RunningMember]):
    """Members by name."""

    @property
    def addresses(self) -> str:
        """Addresses for clients."""
        return ",".join(member.address for member in self.values())

    def leader(self, *but: RunningMember) -> RunningMember:
        """Return the member that numbers messages; wait while there is none.

        :param but: members that are known not to do so any more.
        """
        found: list[RunningMember] = []

        def is_found() -> bool:
            found[:] = [member for member in self.values() if member not in but and member.is_numbering]
            return len(found) == 1

        wait_until(is_found, self.describe)
        return found[0]

    def wait_for(self, condition: Callable[[dict[str, Any]], object], *members: RunningMember) -> None:
        """Wait until a condition holds for the status of each member, by default of all."""
        for member in members or self.values():
            wait_until(lambda member=member: bool(condition(member.status())), self.describe)

    def wait_until_joined(self) -> None:
        """Wait until all are members, and connected."""

        def joined(state: dict[str, Any]) -> bool:
            members = state.get("members", [])
            return len(members) == len(self) and all(one["votes"] and one["connected"] for one in members)

        self.wait_for(joined)

    def describe(self) -> str:
        """Return the status and the output of all members, for a test that fails."""
        return "\n".join(f"{name}: {member.status()}\n{member.program}" for name, member in self.items())


class RunningSubscriber:
    """``fyrehose sub`` in a process of its own."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @property
    def messages(self) -> list[tuple[int, str]]:
        """Number and data of the messages that it has printed."""
        lines = self.program.out.splitlines(keepends=True)
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [(one["sequence"], one["data"]) for one in found]

    def wait_for(self, *data: str) -> list[tuple[int, str]]:
        """Wait until its latest messages are these; return all."""
        self.program.wait_until(lambda: [one for _, one in self.messages][-len(data) :] == list(data))
        return self.messages

    def stop(self) -> None:
        """Stop it."""
        self.program.signal(signal.SIGINT).finish()
