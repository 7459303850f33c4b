"""Client of a multicast group: whether it hears the group."""

from __future__ import annotations

from collections.abc import Callable

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.events import GroupAbandoned, GroupAnnounced, GroupHeard, GroupSilent
from fyrehose_twisted.fyrehose.node.base import NodeOutput

SILENCE = 3.0
"""Seconds without a BEACON after which a client hears the group no longer: six intervals."""

ANSWER_AGE = 2.0
"""Seconds after an answer to a KEEPALIVE during which a backbone is taken to be there: two keepalive intervals."""

MAX_SPREAD, SPREAD_PER_LISTENER = 0.05, 0.00025
"""Maximum number of seconds over which clients spread their REQUESTs for the same loss, and its share for each."""


class GroupListening:
    """State of a client with regard to the multicast group of its backbone.

    It hears the group while BEACONs arrive, which are sent to nowhere else. It tells so in its KEEPALIVEs, and is then
    served by the group.

    :param tell: tells the backbone at once whether the client hears the group.
    :ivar hears: whether the client hears the group.
    :ivar group: group that the backbone has announced, if any.
    :ivar spread: seconds over which to spread REQUESTs, so that many clients do not ask for the same loss at once.
    """

    def __init__(self, output: NodeOutput, tell: Callable[[bool, float], None]) -> None:
        self.hears = False
        self.group: Address | None = None
        self.spread = 0.0
        self._tell = tell
        self._output = output
        self._silent_at: float | None = None

    def announced(self, group: Address, backbone: Address, now: float) -> None:
        """Handle the GROUP of the backbone."""
        if group != self.group:
            self.abandon(now)
            self.group, self._silent_at = group, now + SILENCE
            self._output.events.append(GroupAnnounced(group, backbone))

    def beacon_received(self, listeners: int, now: float) -> None:
        """Handle a BEACON of the backbone."""
        if self.group is None:
            return  # It comes from a group that the client has left.
        self._silent_at = now + SILENCE
        self.spread = min(MAX_SPREAD, listeners * SPREAD_PER_LISTENER)
        if not self.hears:
            self._set_hears(True, now)
            self._output.events.append(GroupHeard(self.group))

    def tick(self, now: float, answered_at: float) -> None:
        """Detect that the group has fallen silent.

        :param answered_at: time of the latest answer to a KEEPALIVE. A backbone that does not answer is silent itself.
        """
        if self.group is None or self._silent_at is None or now < self._silent_at:
            return
        if now > answered_at + ANSWER_AGE:
            self._silent_at = now + ANSWER_AGE
            return
        self._silent_at, was_heard = None, self.hears
        self._output.events.append(GroupSilent(self.group, was_heard))
        if was_heard:
            self._set_hears(False, now)

    def abandon(self, now: float) -> None:
        """Forget the group: it was that of a backbone that does not answer or leads no longer."""
        if self.group is not None:
            self._output.events.append(GroupAbandoned())
        self.group = self._silent_at = None
        if self.hears:
            self._set_hears(False, now)

    def next_deadline(self) -> float | None:
        """Return the time at which :meth:`tick` is due."""
        return self._silent_at

    def _set_hears(self, hears: bool, now: float) -> None:
        self.hears = hears
        self.spread = self.spread if hears else 0.0
        self._tell(hears, now)
