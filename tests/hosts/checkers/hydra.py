"""Checker of hydra histories: a single voice on IRC, and true outcomes of lines.

It reads the following entries, and ``healed`` of the harness, the end of a fault:

==========  ==========================================================================================
``asked``   a client submitted ``line``, a unique text
``told``    outcome of ``line``: ``outcome`` is ``said``, ``refused`` or ``uncertain``
``seen``    the witness in the channel saw ``line`` from the connection ``prefix``
``status``  status of a node: ``leader``, ``term``, and ``nodes``, the tags of registered nodes
==========  ==========================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hosts.history import Entry, of_kind

from fyrehose_twisted.hydra.config import Timers
from fyrehose_twisted.hydra.simulation.invariants import max_recovery_time

TIMERS = Timers()
HEALED = TIMERS.max_ping + TIMERS.max_vote[1]
"""Seconds after a partition between nodes within which there is one network again.

It takes less than MAX_PING (docs/one-leader.md), and MAX_VOTE more if an election is split and repeated.
"""
RECOVERED = max_recovery_time(TIMERS) + TIMERS.ping_interval + TIMERS.max_ping + TIMERS.max_meet
"""Seconds after any other fault within which there is one network again.

The last PING of a leader that is gone may arrive after the fault, because TCP retransmits it. The nodes then elect a
leader within :func:`max_recovery_time`. After its next PING, the leader waits for MAX_PING until it drops the node that
is gone. That one can rejoin only then, as the network has no more places, and an induction takes up to MAX_MEET.
"""


def check(history: Sequence[Entry], bound: float = RECOVERED) -> list[str]:
    """Return the violations in a history.

    :param bound: seconds after each fault within which there is one network again.
    """
    return [*_one_voice(history), *_told_truly(history), *_healed(history, bound)]


def _one_voice(history: Sequence[Entry]) -> list[str]:
    """Check that no connection says a line submitted after a later connection had spoken.

    A line submitted earlier may arrive late, as the leader passed it to its kernel under its lease.
    """
    asked = {entry["line"]: entry["at"] for entry in of_kind(history, "asked")}
    spoke: dict[str, float] = {}
    violations = []
    for entry in of_kind(history, "seen"):
        began = spoke.setdefault(entry["prefix"], entry["at"])
        later = [at for prefix, at in spoke.items() if at > began and prefix != entry["prefix"]]
        if later and asked.get(entry["line"], 0.0) > min(later):
            violations.append(f"two voices: {entry['prefix']} said {entry['line']} after another had spoken")
    return violations


def _told_truly(history: Sequence[Entry]) -> list[str]:
    seen = Counter(entry["line"] for entry in of_kind(history, "seen"))
    violations = [f"seen {count} times: {line}" for line, count in seen.items() if count > 1]
    for entry in of_kind(history, "told"):
        match entry["outcome"]:
            case "said" if not seen[entry["line"]]:
                violations.append(f"said and not seen: {entry['line']}, told at {entry['at']:.2f} s")
            case "refused" if seen[entry["line"]]:
                violations.append(f"refused and seen: {entry['line']}")
    asked = {entry["line"] for entry in of_kind(history, "asked")}
    return violations + [f"seen and never asked for: {line}" for line in seen if line not in asked]


def _healed(history: Sequence[Entry], bound: float) -> list[str]:
    """Check that all nodes agree on one leader and know one another in time after the last fault."""
    ended = max((entry["at"] for entry in of_kind(history, "healed")), default=None)
    if ended is None:
        return []
    latest: dict[str, Entry] = {}
    clients = {entry["client"] for entry in of_kind(history, "status")}
    for entry in of_kind(history, "status"):
        if ended <= entry["at"] <= ended + bound:
            latest[entry["client"]] = entry
            if is_one(list(latest.values()), len(clients)):
                return []
    seen = {client: (entry["leader"], entry["term"], entry["nodes"]) for client, entry in sorted(latest.items())}
    return [f"not one network {bound:.0f} s after the last fault: {seen}"]


def is_one(answers: Sequence[Entry], count: int) -> bool:
    """Return whether ``count`` nodes answered with the same leader, term and nodes."""
    views = {(entry["leader"], entry["term"], tuple(entry["nodes"])) for entry in answers}
    if len(answers) != count or len(views) != 1:
        return False
    ((leader, _, nodes),) = views
    return leader is not None and len(nodes) == count
