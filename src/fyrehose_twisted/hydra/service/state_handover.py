"""Handover of the application's state from the leader to nodes that lack it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from twisted.internet.interfaces import IDelayedCall

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.irc.shared_state import SharedState

GATHER_TIME = 0.2
"""Seconds (unscaled) that the leader waits for requests of other nodes before it relays a snapshot."""
SNAPSHOT_INTERVAL = 5.0
"""Seconds (unscaled) between snapshots."""
REQUEST_INTERVAL = 10.0
"""Seconds (unscaled) between the requests of a node."""
ADOPTION_TIME = 30.0
"""Seconds (unscaled) after which an elected leader with incomplete state adopts it.

Nodes with the complete state keep theirs, so only nodes that have less take it.
"""


class StateHandover:
    """Timing of requests and snapshots of one node.

    :param scale: factor for all times.
    :param request: asks the leader for a snapshot; returns whether there is one to ask.
    :param relay: relays the lines of a snapshot; returns whether this node may.
    """

    def __init__(
        self,
        shared: SharedState,
        reactor: Any,
        scale: float,
        *,
        request: Callable[[], bool],
        relay: Callable[[Sequence[bytes]], bool],
    ) -> None:
        self._shared = shared
        self._reactor = reactor
        self._scale = scale
        self._request_state = request
        self._relay = relay
        self._role: Role | None = None
        self._led_since = inf
        self._offered_at = -inf
        self._request_timer: IDelayedCall | None = None
        self._offer_timer: IDelayedCall | None = None

    def role_changed(self, role: Role) -> None:
        """Handle a role change of this node."""
        before, self._role = self._role, role
        self._led_since = self._reactor.seconds() if role is Role.LEADER else inf
        if role is Role.LEADER and before in (None, Role.OUTSIDER):
            self._shared.bootstrapped()
        elif role is Role.OUTSIDER:
            self._shared.invalidate()
        elif role is Role.LEADER:
            # The nodes may have received different lines at the end of the last term.
            self.wanted()
        self.check()

    def check(self) -> None:
        """Ask for the state now if it is incomplete, and again later."""
        if self._request_timer is not None and self._request_timer.active():
            self._request_timer.cancel()
        self._request()

    def wanted(self) -> None:
        """Handle the request of another node, as the leader."""
        if self._shared.complete and (self._offer_timer is None or not self._offer_timer.active()):
            due = max(self._reactor.seconds() + GATHER_TIME * self._scale, self._offered_at)
            self._offer_timer = self._reactor.callLater(due - self._reactor.seconds(), self._offer)

    def stop(self) -> None:
        """Cancel the timers."""
        for timer in (self._request_timer, self._offer_timer):
            if timer is not None and timer.active():
                timer.cancel()
        self._role = Role.GONE

    def _request(self) -> None:
        if self._shared.complete or self._role in (None, Role.GONE, Role.OUTSIDER):
            return
        if self._role is Role.LEADER:
            if self._led_since + ADOPTION_TIME * self._scale <= self._reactor.seconds():
                self._shared.adopt()
                self.wanted()
                return
        else:
            self._request_state()
        self._request_timer = self._reactor.callLater(REQUEST_INTERVAL * self._scale, self._request)

    def _offer(self) -> None:
        if self._shared.complete and self._role is Role.LEADER and self._relay(self._shared.lines()):
            self._offered_at = self._reactor.seconds() + SNAPSHOT_INTERVAL * self._scale
