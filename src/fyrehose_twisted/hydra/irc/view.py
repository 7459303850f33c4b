"""What all nodes know about IRC from the lines that they receive: channels, members and the leader's nick."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from fyrehose_twisted.hydra.irc.channels import Channel, ChannelMemory, parse_join
from fyrehose_twisted.hydra.irc.roster import Roster

VIEW_COMMANDS = frozenset((b"005", b"353", b"JOIN", b"PART", b"KICK", b"QUIT", b"NICK", b"MODE"))
"""Commands that change a view; other lines need not be passed to it."""


class ReceivedLine(Protocol):
    """The part of an :class:`~fyrehose_twisted.hydra.irc.bots.IrcLine` that a view reads."""

    @property
    def term(self) -> int:
        """Term."""

    @property
    def nick(self) -> str:
        """Nick of the sender."""

    @property
    def command(self) -> str:
        """Command in upper case."""

    @property
    def params(self) -> tuple[str, ...]:
        """Parameters without the trailing text."""

    @property
    def text(self) -> str:
        """Trailing parameter."""

    @property
    def ours(self) -> bool:
        """Whether a node submitted the line."""


class IrcView:
    """View of IRC, equal on all nodes that received the same lines.

    Members are known once the leader of the term has joined a channel and IRC has listed its names.

    :ivar nick: nick of the leader; empty until IRC has told it.
    :ivar wanted_nick: nick that a node asked for by a NICK line, ``None`` for the configured one.
    :ivar channels: memory of the channels that nodes joined and left.
    """

    def __init__(self) -> None:
        self.nick = ""
        self.wanted_nick: str | None = None
        self.channels = ChannelMemory()
        self._roster = Roster()
        self._term = 0

    # For bots

    @property
    def joined(self) -> list[str]:
        """Names of the channels that the leader is in."""
        return self._roster.channels

    @property
    def overflows(self) -> int:
        """Number of channels and members that were not recorded because there were too many."""
        return self.channels.overflows + self._roster.overflows

    def members(self, channel: str) -> dict[str, str]:
        """Return the modes of each member by nick, such as ``ov`` for an operator with voice; empty if unknown."""
        return self._roster.members(channel)

    def is_in(self, channel: str, nick: str) -> bool:
        """Return whether a user is in a channel."""
        return self._roster.modes(channel, nick) is not None

    def is_op(self, channel: str, nick: str) -> bool:
        """Return whether a user is an operator of a channel, or its owner or admin."""
        return not set("qao").isdisjoint(self._roster.modes(channel, nick) or "")

    def has_voice(self, channel: str, nick: str) -> bool:
        """Return whether a user may speak in a moderated channel: has voice, or a higher mode."""
        return bool(self._roster.modes(channel, nick))

    # For the service

    def to_join(self, configured: Iterable[Channel]) -> tuple[Channel, ...]:
        """Return the channels that the next leader joins."""
        return self.channels.to_join(configured)

    def line_received(self, line: ReceivedLine) -> None:
        """Apply a line."""
        if line.term != self._term:
            # The leader of another term has a connection of its own.
            self._term, self.nick = line.term, ""
            self._roster.clear()
        words = (*line.params, line.text) if line.text else line.params
        if line.ours:
            self._node_asked(line.command, words)
        else:
            self._server_told(line.nick, line.command, words)

    def snapshot(self) -> bytes:
        """Return the view as JSON; equal views give equal bytes."""
        state = {
            "term": self._term,
            "nick": self.nick,
            "wanted_nick": self.wanted_nick,
            "memory": self.channels.snapshot(),
            "roster": self._roster.snapshot(),
        }
        return json.dumps(state, sort_keys=True, separators=(",", ":")).encode()

    def restore(self, data: bytes) -> None:
        """Replace the view by that of :meth:`snapshot`.

        :raises ValueError: if it is invalid; the view is then unchanged.
        """
        channels, roster = ChannelMemory(), Roster()
        state: Any = json.loads(data)
        try:
            term, nick, wanted = state["term"], state["nick"], state["wanted_nick"]
            channels.restore(state["memory"])
            roster.restore(state["roster"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"invalid view: {error}") from error
        if type(term) is not int or type(nick) is not str or not (wanted is None or type(wanted) is str):
            raise ValueError("invalid view: term or nick")
        self._term, self.nick, self.wanted_nick, self.channels, self._roster = term, nick, wanted, channels, roster

    def _node_asked(self, command: str, words: Sequence[str]) -> None:
        """Remember what a node changed on purpose; the server's own line about it is the next or the previous one."""
        match command, words:
            case "JOIN", ("0", *_):
                self.channels.left_all()
            case "JOIN", (names, *keys):
                for wanted in parse_join(names, keys[0] if keys else ""):
                    self.channels.joined(wanted)
            case "PART", (names, *_):
                for unwanted in parse_join(names):
                    self.channels.left(unwanted.name)
            case "NICK", (nick, *_):
                self.wanted_nick = nick

    def _server_told(self, sender: str, command: str, words: Sequence[str]) -> None:
        roster = self._roster
        match command, words:
            case "005", (nick, *tokens):
                self.nick = nick
                roster.support.learn(tokens)
            case "353", (nick, *_, channel, names):
                self.nick = nick
                roster.names_listed(channel, names)
            case "JOIN", (name, *_):
                if self._is_leader(sender):
                    roster.entered(name)
                    for entered in parse_join(name):
                        self.channels.joined(entered)
                roster.joined(name, sender)
            case "PART", (name, *_):
                self._removed(name, sender)
            case "KICK", (name, nick, *_):
                self._removed(name, nick)
            case "QUIT", _:
                roster.quit(sender)
            case "NICK", (new, *_):
                if self._is_leader(sender):
                    self.nick = new
                roster.renamed(sender, new)
            case "MODE", (name, *changes):
                roster.mode_changed(name, changes)

    def _removed(self, channel: str, nick: str) -> None:
        if self._is_leader(nick):
            self._roster.left(channel)
        else:
            self._roster.removed(channel, nick)

    def _is_leader(self, nick: str) -> bool:
        fold = self._roster.support.casefold
        return bool(self.nick) and fold(nick) == fold(self.nick)
