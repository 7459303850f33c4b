"""A bot that keeps count, and does not lose it when the node that holds the connection to IRC is killed.

    PYTHONPATH=examples twistd -n hydra-node ... --bot karma.KarmaBot

Say `tea++` or `tea--` in the channel, and ask with `!karma tea`. Each node counts for itself, and all of them see the
same lines, so whichever answers knows the count. With --journal it survives the end of all nodes, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from fyrehose_twisted.hydra.irc.bots import Bot, IrcLine

CHANGE = re.compile(r"(\w[\w.-]*?)(\+\+|--)(?=$|[\s,.!?])")
QUESTION = re.compile(r"!karma\s+(\w[\w.-]*)\s*$")


class KarmaBot(Bot):
    """Counts `name++` and `name--`, and answers `!karma name`."""

    def __init__(self) -> None:
        self.karma: Counter[str] = Counter()
        self.missed = 0

    def line_received(self, line: IrcLine) -> Iterator[str]:
        """Count, or answer."""
        if line.command != "PRIVMSG" or line.ours:
            return
        question = QUESTION.match(line.text)
        if question:
            name = question[1]
            yield f"PRIVMSG {line.reply_to} :{name} has karma {self.karma[name.lower()]}"
            return
        for name, change in CHANGE.findall(line.text):
            self.karma[name.lower()] += 1 if change == "++" else -1

    def lines_missed(self, first: int, last: int) -> None:
        """Some of what was said did not get here; the count may be off by that."""
        self.missed += last - first + 1
