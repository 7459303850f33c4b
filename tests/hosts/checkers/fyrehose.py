"""Checker of fyrehose histories: one order, and each acknowledged message once at each reader.

Entries that it reads:

==========  ==========================================================================================
``began``   a reader that lived, or a journal, has read all that it has by the end of the history
``asked``   a publisher publishes ``line``, a text that it never uses again
``told``    ``line`` was acknowledged with the number ``sequence``; ``kept`` journals had synced it
``read``    a reader, or a journal after the round with ``journal`` set, has ``line`` as ``sequence``
==========  ==========================================================================================
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hosts.history import Entry, of_kind


def check(history: Sequence[Entry]) -> list[str]:
    """Return the violations of a history, empty if it is valid."""
    reads: defaultdict[str, list[Entry]] = defaultdict(list)
    journals: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in of_kind(history, "began", "read"):
        entries = (journals if entry.get("journal") else reads)[entry["client"]]
        if entry["what"] == "read":
            entries.append(entry)
    told = of_kind(history, "told")
    violations = _one_order({**reads, **journals})
    for reader, entries in reads.items():
        violations += _has_all(reader, entries, told)
    for journal, entries in journals.items():
        violations += _has_all(journal, entries, [entry for entry in told if entry.get("kept")])
    asked = {entry["line"] for entry in of_kind(history, "asked")}
    strange = {entry["line"] for entry in of_kind(history, "read")} - asked
    return violations + [f"read and never published: {line}" for line in sorted(strange)]


def _one_order(readers: dict[str, list[Entry]]) -> list[str]:
    violations = []
    lines: dict[int, str] = {}
    for reader, entries in readers.items():
        before = 0
        places: dict[str, int] = {}
        for entry in entries:
            number, line = entry["sequence"], entry["line"]
            if number <= before:
                violations.append(f"out of order: {reader} has {number} after {before}")
            before = max(before, number)
            if line in places:
                violations.append(f"twice: {reader} has {line} as {places[line]} and {number}")
            places[line] = number
            if lines.setdefault(number, line) != line:
                violations.append(f"two messages: {number} is {line} at {reader}, and {lines[number]}")
    return violations


def _has_all(reader: str, entries: Sequence[Entry], told: Sequence[Entry]) -> list[str]:
    places = {entry["line"]: entry["sequence"] for entry in entries}
    violations = []
    for entry in told:
        place = places.get(entry["line"])
        if place is None:
            violations.append(f"lost: {reader} has not {entry['line']}, acknowledged as {entry['sequence']}")
        elif place != entry["sequence"]:
            violations.append(f"renumbered: {reader} has {entry['line']} as {place}, told {entry['sequence']}")
    return violations
