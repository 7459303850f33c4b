"""Lines that this node's applications want said on IRC (document 002, SEND).

At most once, unless told otherwise: what was under way when the leader changed is reported as uncertain. The leader
relays each line that IRC has as RECV, with its tag; that is the acknowledgement. What IRC refused comes back the same
way, as the server's error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from math import inf

from fyrehose_twisted.errors import PublishQueueFull
from fyrehose_twisted.hydra.events import Outcome, Said
from fyrehose_twisted.hydra.node.context import Standing
from fyrehose_twisted.hydra.wire.lines import check_said, refusal_of, with_tag
from fyrehose_twisted.hydra.wire.messages import Send


@dataclass(slots=True)
class _Wish:
    name: str
    line: bytes
    token: Hashable
    since: float
    retry: bool
    sent: bool = False


class Saying:
    """What waits for a leader, and what is under way to it."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._nonce = f"{standing.rng.getrandbits(48):x}"
        self._number = 0
        self._waiting: deque[_Wish] = deque()
        self._under_way: dict[str, _Wish] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way)

    @property
    def waits(self) -> bool:
        """Return whether a line waits for a leader, or for answers to others."""
        return bool(self._waiting)

    def say(self, line: bytes, token: Hashable, now: float, *, retry: bool) -> None:
        """Take a line.

        :raises UnencodableMessage: if it cannot be said.
        :raises PublishQueueFull: if too many wait.
        """
        check_said(line)
        limit = self._standing.config.max_queue
        if len(self) >= limit:
            raise PublishQueueFull(f"{limit:,} lines wait to be said on IRC; wait for some of them")
        self._number += 1
        self._waiting.append(_Wish(f"{self._nonce}.{self._number}", line, token, now, retry))

    def take(self, now: float) -> list[tuple[str, Send]]:
        """Return what can go now, with its name; the rest waits for answers."""
        standing = self._standing
        me = standing.id
        if me is None or not standing.in_term or not self._waiting:
            return []
        going = []
        # A leader's queue has room for so many of each node.
        nodes = standing.config.network_size or len(standing.registry)
        room = max(1, standing.config.max_queue // max(2, nodes))
        while self._waiting and len(self._under_way) < room:
            wish = self._waiting.popleft()
            wish.sent = True
            self._under_way[wish.name] = wish
            going.append((wish.name, Send(me, with_tag(wish.name, wish.line))))
        return going

    def heard(self, name: str, line: bytes) -> None:
        """The leader relayed a line: it was said, unless it is an error of IRC.

        :param line: without its tag.
        """
        why = refusal_of(line)
        if why is not None:
            self.refused(name, why)
            return
        wish = self._pop(name)
        if wish is not None:
            self._standing.out.tell(Said(wish.token, Outcome.SAID, ""))

    def refused(self, name: str, why: str) -> None:
        """A line cannot be said, or one of the several that a message is said in."""
        wish = self._pop(name.partition("/")[0])
        if wish is not None:
            self._standing.out.tell(Said(wish.token, Outcome.REFUSED, why))

    def _pop(self, name: str) -> _Wish | None:
        wish = self._under_way.pop(name, None)
        if wish is None:
            # It was sent before, and is tried again meanwhile.
            wish = next((one for one in self._waiting if one.name == name), None)
            if wish is not None:
                self._waiting.remove(wish)
        return wish

    def leader_changed(self) -> None:
        """Whoever was to say what is under way may not have."""
        again = []
        for wish in self._under_way.values():
            if wish.retry:
                again.append(wish)
            else:
                self._standing.counts["uncertain"] += 1
                self._standing.out.tell(Said(wish.token, Outcome.UNCERTAIN, "leader-changed"))
        self._under_way.clear()
        self._waiting.extendleft(reversed(again))

    def close(self) -> None:
        """The node stops."""
        self.leader_changed()
        for wish in self._waiting:
            outcome = Outcome.UNCERTAIN if wish.sent else Outcome.REFUSED
            self._standing.out.tell(Said(wish.token, outcome, "stopped"))
        self._waiting.clear()

    def tick(self, now: float) -> None:
        """Give up what waits for too long."""
        wait = self._standing.config.max_wait
        out = self._standing.out
        for wish in [wish for wish in self._waiting if wish.since + wait <= now]:
            self._waiting.remove(wish)
            out.tell(Said(wish.token, Outcome.UNCERTAIN if wish.sent else Outcome.REFUSED, "no-leader"))
        for wish in [wish for wish in self._under_way.values() if wish.since + wait <= now]:
            del self._under_way[wish.name]
            out.tell(Said(wish.token, Outcome.UNCERTAIN, "no-answer"))

    def next_deadline(self) -> float:
        """Return when :meth:`tick` has something to do."""
        oldest = min((wish.since for wish in (*self._waiting, *self._under_way.values())), default=inf)
        return oldest + self._standing.config.max_wait
