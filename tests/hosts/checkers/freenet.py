"""Checker of freenet histories: packets are delivered at most once, under one number, and refused ones never. At the
end there is one tree.

Entries that it reads:

=============  =======================================================================================
``began``      a client subscribed; it lives until an ``ended`` of its own
``asked``      a publisher publishes ``line``, a text that it never uses again
``told``       ``line`` was published as packet ``number``
``failed``     the ``answer`` for the line in its ``id`` was no number; its ``why`` says what became of the line
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

UNCERTAIN = "timed-out", "uncertain", "stopped"
"""Reasons after which a packet may still be published."""


def check(history: Sequence[Entry]) -> list[str]:
    """Return the violations of a history, empty if it is valid."""
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
    read = {line for lines in reads.values() for line in lines}
    strange = read - set(asked)
    violations += [f"read and never published: {line}" for line in sorted(strange)]
    violations += _one_packet_a_number(history)
    violations += _one_number_a_packet(history)
    violations += [f"refused and read: {line} ({why})" for line, why in _refused(history).items() if line in read]
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


def _one_number_a_packet(history: Sequence[Entry]) -> list[str]:
    numbers = {entry["line"]: (entry["number"], "told") for entry in of_kind(history, "told")}
    violations = []
    for entry in of_kind(history, "read"):
        line, number, client = entry["line"], entry["number"], entry["client"]
        known, where = numbers.setdefault(line, (number, f"read by {client}"))
        if known != number:
            violations.append(f"renumbered: {client} has {line} as {number}, and it was {where} as {known}")
    return violations


def _refused(history: Sequence[Entry]) -> dict[str, str]:
    """Return the lines that were certainly not published, with the reasons."""
    answers = [entry["answer"] for entry in of_kind(history, "failed")]
    return {
        answer["id"]: answer["why"]
        for answer in answers
        if answer.get("why", "stopped") not in UNCERTAIN and answer.get("id")
    }
