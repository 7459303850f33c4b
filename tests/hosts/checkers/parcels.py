"""Checker of parcels histories: a log that is linearizable, and one order without gaps at all readers.

Entries that it reads:

==========  ==========================================================================================
``began``   a reader follows from event 1 and has read all that it has by the end of the history
``asked``   a publisher publishes ``line``, a text of its own, under the idempotency key ``key``; a repeated
            request is asked again
``told``    the event with this ``key`` has the number ``sequence``
``read``    a reader has ``line`` as ``sequence``
==========  ==========================================================================================

For an append-only log, linearizability is this: numbers are unique, and an event whose acknowledgement came before
another one was first asked for has the lower number.
"""

from __future__ import annotations

from collections.abc import Sequence

from hosts.history import Entry, of_kind


def check(history: Sequence[Entry]) -> list[str]:
    """Return the violations of a history, empty if it is valid."""
    return [*_one_number_a_key(history), *_real_time(history), *_one_order(history)]


def _one_number_a_key(history: Sequence[Entry]) -> list[str]:
    violations = []
    numbers: dict[str, int] = {}
    keys: dict[int, str] = {}
    for entry in of_kind(history, "told"):
        key, number = entry["key"], entry["sequence"]
        if numbers.setdefault(key, number) != number:
            violations.append(f"two numbers: key {key} got {numbers[key]} and {number}")
        elif keys.setdefault(number, key) != key:
            violations.append(f"one number for two: {number} is that of keys {keys[number]} and {key}")
    return violations


def _real_time(history: Sequence[Entry]) -> list[str]:
    asked: dict[str, float] = {}
    told: dict[str, tuple[float, int]] = {}
    for entry in of_kind(history, "asked"):
        asked[entry["key"]] = min(entry["at"], asked.get(entry["key"], entry["at"]))
    for entry in of_kind(history, "told"):
        told.setdefault(entry["key"], (entry["at"], entry["sequence"]))
    ended = sorted((at, number, key) for key, (at, number) in told.items())
    highest, last, place = 0, "", 0
    violations = []
    for key in sorted(told, key=lambda key: asked.get(key, 0.0)):
        while place < len(ended) and ended[place][0] < asked.get(key, 0.0):
            if ended[place][1] > highest:
                highest, last = ended[place][1:]
            place += 1
        if told[key][1] < highest:
            violations.append(f"against time: {key} has {told[key][1]}, asked for after {last} had {highest}")
    return violations


def _one_order(history: Sequence[Entry]) -> list[str]:
    violations = []
    asked = {entry["line"]: entry["key"] for entry in of_kind(history, "asked")}
    told: dict[str, int] = {}
    for entry in of_kind(history, "told"):
        told.setdefault(entry["key"], entry["sequence"])
    lines: dict[int, str] = {}
    for reader in dict.fromkeys(entry["client"] for entry in of_kind(history, "began")):
        places: dict[str, int] = {}
        expected = 1
        for entry in of_kind(history, "read"):
            if entry["client"] != reader:
                continue
            number, line = entry["sequence"], entry["line"]
            if number != expected:
                violations.append(f"gap or repeat: {reader} has {number} where {expected} is due")
            expected = number + 1
            if line in places:
                violations.append(f"twice: {reader} has {line} as {places[line]} and {number}")
            places[line] = number
            if lines.setdefault(number, line) != line:
                violations.append(f"two events: {number} is {line} at {reader}, and {lines[number]}")
            if line not in asked:
                violations.append(f"read and never published: {line}")
        for line, key in asked.items():
            if key in told and places.get(line) != told[key]:
                violations.append(f"lost: {reader} has {line} as {places.get(line)}, acknowledged as {told[key]}")
    return violations
