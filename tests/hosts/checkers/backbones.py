"""Checker of histories of backbones that take over from one another.

It requires all that :mod:`hosts.checkers.fyrehose` does, and that publishers notice pauses only. Further entries:

==========  ==========================================================================================
``failed``  ``line`` was not acknowledged in time
``term``    a reader was told that ``term`` starts at number ``first``, that clients hold messages up to
            ``held_up_to``, and that the numbers between these are not part of the stream
==========  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hosts.checkers import fyrehose
from hosts.history import Entry, of_kind


def check(history: Sequence[Entry]) -> list[str]:
    """Return the violations of a history, empty if it is valid."""
    violations = fyrehose.check(history)
    violations += [
        f"failed: {entry['line']} of {entry['client']}: {entry['why']}" for entry in of_kind(history, "failed")
    ]
    starts: dict[int, tuple[int, int]] = {}
    for entry in of_kind(history, "term"):
        term, start = entry["term"], (entry["held_up_to"], entry["first"])
        if starts.setdefault(term, start) != start:
            violations.append(f"two starts: term {term} has {start} at {entry['client']}, and {starts[term]}")
    in_order = [starts[term][1] for term in sorted(starts)]
    if any(first >= after for first, after in pairwise(in_order)):
        violations.append(f"terms overlap: they start at {in_order}")
    read = {entry["sequence"]: entry for entry in of_kind(history, "read")}
    for term, (held_up_to, first) in starts.items():
        violations += [
            f"never given: {read[number]['client']} has {number}, which term {term} leaves out"
            for number in range(held_up_to + 1, first + 1)
            if number in read
        ]
    return violations
