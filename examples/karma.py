"""A bot whose count survives when the node that holds the connection to IRC is killed.

    PYTHONPATH=examples twistd -n hydra-node ... --bot karma.KarmaBot

Say `tea++` or `tea--` in the channel, and `!karma tea` to get the count. Each node counts the same lines, so the count
is the same on all of them. A new node gets the counts from the leader. With --journal they also survive a stop of all
nodes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator

from fyrehose_twisted.hydra import IrcLine, StatefulBot

CHANGE = re.compile(r"(\w[\w.-]*?)(\+\+|--)(?=$|[\s,.!?])")
FORGET = re.compile(r"!forget\s+(\w[\w.-]*)\s*$")
QUESTION = re.compile(r"!karma\s+(\w[\w.-]*)\s*$")


class KarmaBot(StatefulBot):
    """Counts `name++` and `name--`, and answers `!karma name`. Operators make it `!forget name`."""

    def __init__(self) -> None:
        self.karma: Counter[str] = Counter()
        self.missed = 0

    def line_received(self, line: IrcLine) -> Iterator[str]:
        """Count changes, and answer questions."""
        if line.command != "PRIVMSG" or line.ours:
            return
        question = QUESTION.match(line.text)
        if question:
            name = question[1]
            yield f"PRIVMSG {line.reply_to} :{name} has karma {self.karma[name.lower()]}"
            return
        forgotten = FORGET.match(line.text)
        if forgotten:
            if self.irc.is_op(line.reply_to, line.nick):
                del self.karma[forgotten[1].lower()]
            return
        for name, change in CHANGE.findall(line.text):
            self.karma[name.lower()] += 1 if change == "++" else -1

    def lines_missed(self, first: int, last: int) -> None:
        """Count missed lines: the counts may be wrong by as many."""
        self.missed += last - first + 1

    def snapshot(self) -> bytes:
        """Return the counts for a node that lacks them."""
        return json.dumps([self.karma, self.missed], sort_keys=True).encode()

    def restore(self, state: bytes) -> None:
        """Take over the counts of the leader."""
        karma, self.missed = json.loads(state)
        self.karma = Counter(karma)
