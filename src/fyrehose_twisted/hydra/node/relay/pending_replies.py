"""Lines written to IRC that the server has not acknowledged.

A line accepted by TCP may still be lost. The leader therefore sends a PING after its lines. The reply proves that the
server has processed all earlier lines and has reported its errors about them.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import NamedTuple

from fyrehose_twisted.hydra.wire.irc_line import casefold, parse_irc_line

_JOIN = frozenset(("JOIN",))
_MESSAGE_COMMANDS = frozenset(("PRIVMSG", "NOTICE"))
_CHANNEL_COMMANDS = frozenset(("INVITE", "KICK", "MODE", "TOPIC"))
_NICK = frozenset(("NICK",))
_COMMANDS_OF_NUMERIC: dict[str, frozenset[str]] = {
    **dict.fromkeys(("404", "407", "411", "412", "413", "414", "415", "531", "716"), _MESSAGE_COMMANDS),
    **dict.fromkeys(("441", "482", "485"), _CHANNEL_COMMANDS),
    "442": _CHANNEL_COMMANDS | {"PART"},
    "477": _MESSAGE_COMMANDS | _JOIN,
    **dict.fromkeys(("431", "432", "433", "436", "447"), _NICK),
    "484": _CHANNEL_COMMANDS | _NICK,
    "437": _JOIN | _NICK,
    "443": frozenset(("INVITE",)),
    **dict.fromkeys(("405", "471", "473", "474", "475", "476", "479", "480", "489", "520"), _JOIN),
    **dict.fromkeys(("467", "472", "478", "501", "502", "696"), frozenset(("MODE",))),
}
"""Commands that an error numeric can refer to. Other numerics can refer to any command."""
_TARGET_PARAMS = {"INVITE": 2, "KICK": 2, "MODE": None}
"""Number of parameters that may be channels or nicks; ``None`` for all. Other commands have one."""
_WITHOUT_TARGET = frozenset(("411", "412", "417", "431", "472", "501", "502"))
"""Numerics that do not name a channel or nick."""


class SentLine(NamedTuple):
    """A line written to IRC."""

    number: int
    line_id: str | None
    line: bytes
    sent_at: float
    targets: set[str]
    """Targets that have not refused the line."""
    errors: list[bytes]
    """Error lines of the server about it."""


class PendingReplies:
    """Unacknowledged lines, oldest first.

    :ivar asked_number: number of the last line before the pending PING; ``None`` if no PING is pending.
    """

    def __init__(self) -> None:
        self.asked_number: int | None = None
        self._lines: deque[SentLine] = deque()
        self._number = 0

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def oldest_sent_at(self) -> float:
        """Time at which the oldest line was written; infinity if there is none."""
        return self._lines[0].sent_at if self._lines else inf

    def add(self, line_id: str | None, line: bytes, now: float) -> int:
        """Add a line and return its number."""
        self._number += 1
        _, targets = _command_and_targets(line)
        self._lines.append(SentLine(self._number, line_id, line, now, targets, []))
        return self._number

    def remove(self, number: int) -> None:
        """Remove a line that was not written."""
        self._lines = deque(one for one in self._lines if one.number != number)

    def ask(self) -> int:
        """Return the number for a PING after all lines so far."""
        self.asked_number = self._number
        return self._number

    def match_error(self, line: bytes) -> bool:
        """Attribute an error of the server to a line; return whether one matches."""
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
        """Remove and return all lines up to a number."""
        if self.asked_number is not None and self.asked_number <= number:
            self.asked_number = None
        answered = []
        while self._lines and self._lines[0].number <= number:
            answered.append(self._lines.popleft())
        return answered

    def clear(self) -> int:
        """Discard all lines and return their number."""
        count = len(self._lines)
        self._lines.clear()
        self.asked_number = None
        return count


def _command_and_targets(line: bytes) -> tuple[str, set[str]]:
    """Return the command of a line and its target channels and nicks."""
    parsed = parse_irc_line(line)
    if parsed is None:
        return "", set()
    names = parsed.params[: _TARGET_PARAMS.get(parsed.command, 1)]
    return parsed.command, {casefold(name) for word in names for name in word.split(",")}
