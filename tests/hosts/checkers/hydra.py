"""Checker of hydra histories: a single voice on IRC, and true outcomes of lines.

It reads the following entries, and ``healed`` of the harness, the end of a fault of a ``kind``:

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

HEALED = 10.0
"""Seconds after a partition within which there is one network again (docs/one-leader.md)."""
RECOVERED = 30.0
"""Seconds after any other fault: a killed node has to start, and a dropped one to rejoin."""


def check(history: Sequence[Entry]) -> list[str]:
    """Return the violations in a history."""
    return [*_one_voice(history), *_told_truly(history), *_healed(history)]


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


def healed_by(history: Sequence[Entry]) -> float:
    """Return the time by which all nodes must form one network again, 0 if there was no fault."""
    ended = of_kind(history, "healed")
    return max((entry["at"] + (HEALED if entry["kind"] == "partition" else RECOVERED) for entry in ended), default=0)


def _healed(history: Sequence[Entry]) -> list[str]:
    """Check that all nodes agree on one leader and know one another in time after the last fault."""
    ended = [entry["at"] for entry in of_kind(history, "healed")]
    if not ended:
        return []
    latest: dict[str, Entry] = {}
    clients = {entry["client"] for entry in of_kind(history, "status")}
    for entry in of_kind(history, "status"):
        if max(ended) <= entry["at"] <= healed_by(history):
            latest[entry["client"]] = entry
            if is_one(list(latest.values()), len(clients)):
                return []
    seen = {client: (entry["leader"], entry["term"], entry["nodes"]) for client, entry in sorted(latest.items())}
    return [f"not one network {healed_by(history) - max(ended):.0f} s after the last fault: {seen}"]


def is_one(answers: Sequence[Entry], count: int) -> bool:
    """Return whether ``count`` nodes answered with the same leader, term and nodes."""
    views = {(entry["leader"], entry["term"], tuple(entry["nodes"])) for entry in answers}
    if len(answers) != count or len(views) != 1:
        return False
    ((leader, _, nodes),) = views
    return leader is not None and len(nodes) == count
