"""Checker of freenet histories: each packet at most once and under one number, and one tree in the end.

Entries that it reads:

=============  =======================================================================================
``began``      a client subscribed; it lives until an ``ended`` of its own
``asked``      a publisher publishes ``line``, a text that it never uses again
``told``       ``line`` was published as packet ``number``
``read``       a subscriber was given ``line`` as packet ``number``
``noticed``    a subscriber was given another ``answer``; after a change ``Renumbered`` numbers count anew
``one``        the harness saw a packet of each publisher at each subscriber after the last fault
=============  =======================================================================================

What is published while a network is in parts may not reach all of it, so only what is asked for after ``one`` has to.
Two trees may give a number twice; subscribers are told when these grow together.
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
    violations += _one_packet_a_number(history)
    one = next((entry["at"] for entry in of_kind(history, "one")), None)
    if one is None:
        return violations
    violations += _told_numbers(history, {line for line, at in asked.items() if at >= one})
    ended = {entry["client"] for entry in of_kind(history, "ended")}
    live = [entry["client"] for entry in of_kind(history, "began") if entry["client"] not in ended]
    return violations + [
        f"lost: {client} has not {entry['line']}, published after the network was one again"
        for entry in of_kind(history, "told")
        for client in live
        if asked[entry["line"]] >= one and not reads[client][entry["line"]]
    ]


def _one_packet_a_number(history: Sequence[Entry]) -> list[str]:
    violations = []
    lines: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for entry in of_kind(history, "read", "noticed"):
        known = lines[entry["client"]]
        if entry["what"] == "noticed":
            if entry["answer"].get("change") == "Renumbered":
                known.clear()
        elif known.setdefault(entry["number"], entry["line"]) != entry["line"]:
            number, line, client = entry["number"], entry["line"], entry["client"]
            violations.append(f"two packets: {number} is {known[number]} and {line} at {client}")
    return violations


def _told_numbers(history: Sequence[Entry], late: set[str]) -> list[str]:
    told = {entry["line"]: entry["number"] for entry in of_kind(history, "told") if entry["line"] in late}
    return [
        f"renumbered: {entry['client']} has {entry['line']} as {entry['number']}, told {told[entry['line']]}"
        for entry in of_kind(history, "read")
        if told.get(entry["line"], entry["number"]) != entry["number"]
    ]
