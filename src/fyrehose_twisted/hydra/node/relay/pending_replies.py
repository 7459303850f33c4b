"""Lines that IRC was handed and has not answered for.

What TCP took need not get anywhere. So the leader sends a PING behind its lines: once that is answered, the server has
had all that went before, and has said what it refuses of that.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import NamedTuple

from fyrehose_twisted.hydra.wire.irc_line import casefold, parse_irc_line

_JOIN = frozenset(("JOIN",))
_MESSAGE_COMMANDS = frozenset(("PRIVMSG", "NOTICE"))
_CHANNEL_COMMANDS = frozenset(("KICK", "MODE", "TOPIC"))
_COMMANDS_OF_NUMERIC: dict[str, frozenset[str]] = {
    **dict.fromkeys(("404", "407", "411", "412", "413", "414", "415", "531", "716"), _MESSAGE_COMMANDS),
    **dict.fromkeys(("441", "482", "484", "485"), _CHANNEL_COMMANDS),
    "442": _CHANNEL_COMMANDS | {"PART"},
    "477": _MESSAGE_COMMANDS | _JOIN,
    **dict.fromkeys(("405", "437", "471", "473", "474", "475", "476", "479", "480", "489", "520"), _JOIN),
    **dict.fromkeys(("467", "472", "478", "501", "502", "696"), frozenset(("MODE",))),
}
"""Commands that a numeric can be about; those of the others can be about any."""
_TARGET_PARAMS = {"KICK": 2, "MODE": None}
"""How many parameters of a command may be channels or nicks; that of others is the first."""
_WITHOUT_TARGET = frozenset(("411", "412", "417", "472", "501", "502"))
"""Numerics that do not name the channel or the nick."""


class SentLine(NamedTuple):
    """A line that IRC was handed."""

    number: int
    line_id: str | None
    line: bytes
    sent_at: float
    targets: set[str]
    """Those that have not refused it."""
    errors: list[bytes]
    """What the server said against it."""


class PendingReplies:
    """Lines without an answer, the oldest first.

    :ivar asked_number: number of the line that the last question was put behind, while it is not answered.
    """

    def __init__(self) -> None:
        self.asked_number: int | None = None
        self._lines: deque[SentLine] = deque()
        self._number = 0

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def oldest_sent_at(self) -> float:
        """When the one that waits longest was handed over; infinity if there is none."""
        return self._lines[0].sent_at if self._lines else inf

    def add(self, line_id: str | None, line: bytes, now: float) -> int:
        """A line is handed over; return its number."""
        self._number += 1
        _, targets = _command_and_targets(line)
        self._lines.append(SentLine(self._number, line_id, line, now, targets, []))
        return self._number

    def remove(self, number: int) -> None:
        """It was not, after all."""
        self._lines = deque(one for one in self._lines if one.number != number)

    def ask(self) -> int:
        """Return the number of a question behind all that was handed over."""
        self.asked_number = self._number
        return self._number

    def match_error(self, line: bytes) -> bool:
        """The server said something against something; return whether it was against one of these lines."""
        numeric = parse_irc_line(line)
        if numeric is None:
            return False
        named = {casefold(word) for word in numeric.params[1:-1]}
        for handed in self._lines:
            command, _ = _command_and_targets(handed.line)
            if command not in _COMMANDS_OF_NUMERIC.get(numeric.command, (command,)):
                continue
            hit = named & handed.targets
            if hit or casefold(command) in named or (numeric.command in _WITHOUT_TARGET and not handed.errors):
                handed.targets.difference_update(hit)
                handed.errors.append(line)
                return True
        return False

    def acknowledge(self, number: int) -> list[SentLine]:
        """The server has had all lines up to a number; return those."""
        if self.asked_number is not None and self.asked_number <= number:
            self.asked_number = None
        answered = []
        while self._lines and self._lines[0].number <= number:
            answered.append(self._lines.popleft())
        return answered

    def clear(self) -> int:
        """There will be no answer; return to how many lines."""
        count = len(self._lines)
        self._lines.clear()
        self.asked_number = None
        return count


def _command_and_targets(line: bytes) -> tuple[str, set[str]]:
    """Return the command of a line, and the channels and nicks that it is for."""
    parsed = parse_irc_line(line)
    if parsed is None:
        return "", set()
    names = parsed.params[: _TARGET_PARAMS.get(parsed.command, 1)]
    return parsed.command, {casefold(name) for word in names for name in word.split(",")}
