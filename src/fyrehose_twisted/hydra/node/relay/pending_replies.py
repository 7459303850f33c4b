"""Lines that IRC was handed and has not answered for.

What TCP took need not get anywhere. So the leader sends a PING behind its lines: once that is answered, the server has
had all that went before, and has said what it refuses of that.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import NamedTuple

from fyrehose_twisted.hydra.wire.irc_line import fold, parse_line

_JOIN = frozenset(("JOIN",))
_SPEECH = frozenset(("PRIVMSG", "NOTICE"))
_CHANGES = frozenset(("KICK", "MODE", "TOPIC"))
_ABOUT: dict[str, frozenset[str]] = {
    **dict.fromkeys(("404", "407", "411", "412", "413", "414", "415", "531", "716"), _SPEECH),
    **dict.fromkeys(("441", "482", "484", "485"), _CHANGES),
    "442": _CHANGES | {"PART"},
    "477": _SPEECH | _JOIN,
    **dict.fromkeys(("405", "437", "471", "473", "474", "475", "476", "479", "480", "489", "520"), _JOIN),
    **dict.fromkeys(("467", "472", "478", "501", "502", "696"), frozenset(("MODE",))),
}
"""Commands that a numeric can be about; those of the others can be about any."""
_NAMES = {"KICK": 2, "MODE": None}
"""How many parameters of a command may be channels or nicks; that of others is the first."""
_WITHOUT_TARGET = frozenset(("411", "412", "417", "472", "501", "502"))
"""Numerics that do not name the channel or the nick."""


class Handed(NamedTuple):
    """A line that IRC was handed."""

    number: int
    name: str | None
    line: bytes
    at: float
    targets: set[str]
    """Those that have not refused it."""
    refusals: list[bytes]
    """What the server said against it."""


class Answers:
    """Lines without an answer, the oldest first.

    :ivar asked: number of the line that the last question was put behind, while it is not answered.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self._lines: deque[Handed] = deque()
        self._number = 0

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def oldest(self) -> float:
        """When the one that waits longest was handed over; infinity if there is none."""
        return self._lines[0].at if self._lines else inf

    def add(self, name: str | None, line: bytes, now: float) -> int:
        """A line is handed over; return its number."""
        self._number += 1
        _, targets = _subject(line)
        self._lines.append(Handed(self._number, name, line, now, targets, []))
        return self._number

    def remove(self, number: int) -> None:
        """It was not, after all."""
        self._lines = deque(one for one in self._lines if one.number != number)

    def ask(self) -> int:
        """Return the number of a question behind all that was handed over."""
        self.asked = self._number
        return self._number

    def refused(self, line: bytes) -> bool:
        """The server said something against something; return whether it was against one of these lines."""
        numeric = parse_line(line)
        if numeric is None:
            return False
        named = {fold(word) for word in numeric.params[1:-1]}
        for handed in self._lines:
            command, _ = _subject(handed.line)
            if command not in _ABOUT.get(numeric.command, (command,)):
                continue
            hit = named & handed.targets
            if hit or fold(command) in named or (numeric.command in _WITHOUT_TARGET and not handed.refusals):
                handed.targets.difference_update(hit)
                handed.refusals.append(line)
                return True
        return False

    def answered(self, number: int) -> list[Handed]:
        """The server has had all lines up to a number; return those."""
        if self.asked is not None and self.asked <= number:
            self.asked = None
        answered = []
        while self._lines and self._lines[0].number <= number:
            answered.append(self._lines.popleft())
        return answered

    def clear(self) -> int:
        """There will be no answer; return to how many lines."""
        count = len(self._lines)
        self._lines.clear()
        self.asked = None
        return count


def _subject(line: bytes) -> tuple[str, set[str]]:
    """Return the command of a line, and the channels and nicks that it is for."""
    parsed = parse_line(line)
    if parsed is None:
        return "", set()
    names = parsed.params[: _NAMES.get(parsed.command, 1)]
    return parsed.command, {fold(name) for word in names for name in word.split(",")}
