"""What the node services have in common as processes."""

from __future__ import annotations

import signal
from contextlib import closing
from typing import Any

from integration.running.control import Asking
from integration.running.programs import Program


class ServiceNode:
    """A node in a process of its own.

    :ivar program: its process, since the latest start.
    """

    program: Program

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it with SIGTERM."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        assert self.program.signal(number).finish() == -number, self.program
        assert "Traceback" not in self.program.out, self.program


class ControlledNode(ServiceNode):
    """A node with a control port.

    :param asking: makes a connection to a control port.
    :param control: control port.
    """

    def __init__(self, asking: type[Asking], control: int) -> None:
        self._asking = asking
        self.control = control

    def asking(self) -> Any:
        """Connect to its control port."""
        return self._asking(self.control)

    def status(self) -> dict[str, Any]:
        """Return its status, empty without a response."""
        try:
            with closing(self.asking()) as asking:
                found: dict[str, Any] = asking.ask(ask="status")["status"]
                return found
        except OSError:
            return {}
