"""Checker of freenet histories: each packet at most once, and one tree in the end.

Entries that it reads:

=============  =======================================================================================
``began``      a client subscribed; it lives until an ``ended`` of its own
``asked``      a publisher publishes ``line``, a text that it never uses again
``told``       ``line`` was published
``read``       a subscriber was given ``line``
``one``        the harness saw a packet of each publisher at each subscriber after the last fault
=============  =======================================================================================

What is published while a network is in parts may not reach all of it, so only what is asked for after ``one`` has to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from hosts.history import Entry, of_kind


def check(history: Sequence[Entry]) -> list[str]:
    """Return the violations of a history, none if it is right."""
    reads: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for entry in of_kind(history, "read"):
        reads[entry["client"]][entry["line"]] += 1
    violations = [
        f"read {count} times: {client} has {line}"
        for client, lines in reads.items()
        for line, count in lines.items()
        if count > 1
    ]
    asked = {entry["line"]: entry["at"] for entry in of_kind(history, "asked")}
    strange = {line for lines in reads.values() for line in lines} - set(asked)
    violations += [f"read and never published: {line}" for line in sorted(strange)]
    one = next((entry["at"] for entry in of_kind(history, "one")), None)
    if one is None:
        return violations
    ended = {entry["client"] for entry in of_kind(history, "ended")}
    live = [entry["client"] for entry in of_kind(history, "began") if entry["client"] not in ended]
    return violations + [
        f"lost: {client} has not {entry['line']}, published after the network was one again"
        for entry in of_kind(history, "told")
        for client in live
        if asked[entry["line"]] >= one and not reads[client][entry["line"]]
    ]
