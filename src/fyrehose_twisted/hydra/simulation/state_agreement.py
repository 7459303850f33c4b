"""Applications in a simulated network that hand their state over, and the invariant that they agree on it."""

from __future__ import annotations

import zlib
from functools import partial
from typing import ClassVar

from fyrehose_twisted.hydra.events import (
    LeaderChanged,
    LinesMissed,
    LinesReceived,
    Role,
    RoleChanged,
    StateWanted,
)
from fyrehose_twisted.hydra.irc.shared_state import VIEW, SharedState
from fyrehose_twisted.hydra.node.node import HydraNode
from fyrehose_twisted.hydra.simulation.invariants import NetworkInvariant
from fyrehose_twisted.hydra.simulation.participants import Participants
from fyrehose_twisted.hydra.wire.lines import command_of
from fyrehose_twisted.hydra.wire.state_lines import STATE_COMMAND, decode_part
from fyrehose_twisted.sim.host import Host

GATHER_TIME = 0.2
"""Seconds that a leader waits for requests."""
REQUEST_INTERVAL = 10.0
"""Seconds between requests of a node."""


class LineDigest:
    """State that depends on every line: their number and a checksum over all of them."""

    def __init__(self) -> None:
        self.count = 0
        self.checksum = 0

    def line_received(self, line: bytes) -> None:
        """Apply a line."""
        self.count += 1
        self.checksum = zlib.crc32(line, self.checksum)

    def snapshot(self) -> bytes:
        """Return the state."""
        return b"%d %d" % (self.count, self.checksum)

    def restore(self, data: bytes) -> None:
        """Replace the state."""
        self.count, self.checksum = map(int, data.split())


class Application:
    """Application of one run of a node.

    :ivar agreed_term: term whose leader has handed its state over to this application, or to which it belongs.
    """

    def __init__(self) -> None:
        self.digest = LineDigest()
        self.shared = SharedState(lambda text: None)
        self.shared.parts = {VIEW: self.digest}
        self.role: Role | None = None
        self.agreed_term = -1
        self.is_offering = False
        self.requests_at = -1.0


class StateAgreement(NetworkInvariant):
    """Applications that have the state of a term's leader have equal state after each line of that term.

    :ivar restored: number of times that an application took over the complete state.
    """

    name: ClassVar[str] = "state agreement"

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self.restored = 0
        self._applications: dict[tuple[Host, int], Application] = {}
        self._states: dict[tuple[int, int], bytes] = {}

    def event_emitted(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host not in self.participants.hosts:
            return
        application = self._applications.setdefault((host, host.boots), Application())
        match event:
            case RoleChanged(role, _):
                self._role_changed(host, application, role)
            case LeaderChanged() | LinesMissed():
                if isinstance(event, LinesMissed):
                    application.shared.invalidate()
                self._ask_soon(host, application)
            case StateWanted():
                self._offer_soon(host, application)
            case LinesReceived(term, first, lines):
                for number, line in enumerate(lines, first):
                    self._line_received(host, application, term, number, line)

    def _role_changed(self, host: Host, application: Application, role: Role) -> None:
        before, application.role = application.role, role
        shared = application.shared
        shared.leading = role is Role.LEADER
        if role is Role.OUTSIDER:
            shared.invalidate()
        elif role is Role.LEADER and before in (None, Role.OUTSIDER):
            shared.bootstrapped()
        elif role is Role.LEADER:
            self._offer_soon(host, application)

    def _line_received(self, host: Host, application: Application, term: int, number: int, line: bytes) -> None:
        shared = application.shared
        if command_of(line) == STATE_COMMAND:
            before = shared.counters["state_restored"]
            shared.line_received(line)
            self.restored += shared.counters["state_restored"] - before
            part = decode_part(line)
            if part is not None and part.name == VIEW and part.number == part.total - 1 and shared.complete:
                application.agreed_term = term
        else:
            application.digest.line_received(line)
        if shared.complete and application.agreed_term == term:
            state = application.digest.snapshot()
            known = self._states.setdefault((term, number), state)
            if known != state:
                self.violated(f"the state after line {number} of term {term} is {state!r}, elsewhere {known!r}", host)

    def _ask_soon(self, host: Host, application: Application) -> None:
        if not application.shared.complete and application.requests_at < self.participants.network.elapsed:
            application.requests_at = self.participants.network.elapsed + REQUEST_INTERVAL
            self.participants.network.call_in(0.0, partial(self._ask, host, host.boots, application))

    def _ask(self, host: Host, boot: int, application: Application) -> None:
        if not host.running or host.boots != boot or application.shared.complete:
            return
        host.perform(lambda node, now: node.request_state(now))
        self.participants.network.call_in(REQUEST_INTERVAL, partial(self._ask, host, boot, application))

    def _offer_soon(self, host: Host, application: Application) -> None:
        if application.shared.complete and not application.is_offering:
            application.is_offering = True
            self.participants.network.call_in(GATHER_TIME, partial(self._offer, host, host.boots, application))

    def _offer(self, host: Host, boot: int, application: Application) -> None:
        application.is_offering = False
        if host.running and host.boots == boot and application.shared.complete:

            def relay(node: HydraNode, now: float) -> None:
                if application.role is Role.LEADER:
                    node.relay_state(application.shared.lines(), now)

            host.perform(relay)
