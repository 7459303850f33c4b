"""Members of the channels, as the lines from IRC tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fyrehose_twisted.hydra.wire.isupport import ServerSupport

MAX_MEMBERS = 20_000
"""Largest number of memberships that are tracked, in all channels together."""


class Roster:
    """Who is in which channel, and with which modes.

    :ivar support: names and modes of the server.
    :ivar overflows: number of members that were not recorded because there were too many.
    """

    def __init__(self) -> None:
        self.support = ServerSupport()
        self.overflows = 0
        self._channels: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {}
        """Name of each channel, and nick and modes of each member, by folded names."""
        self._size = 0

    @property
    def channels(self) -> list[str]:
        """Names of the channels that the leader is in."""
        return [name for name, _ in self._channels.values()]

    def members(self, channel: str) -> dict[str, str]:
        """Return the modes of each member of a channel by nick, the highest first; empty for an unknown channel."""
        return dict(self._members(channel).values())

    def modes(self, channel: str, nick: str) -> str | None:
        """Return the modes of a member, the highest first; ``None`` if the nick is not in the channel."""
        found = self._members(channel).get(self.support.casefold(nick))
        return None if found is None else found[1]

    def clear(self) -> None:
        """Forget everything at the start of a connection."""
        self._channels.clear()
        self._size = 0
        self.support = ServerSupport()

    def entered(self, channel: str) -> None:
        """Start the list of a channel that the leader has joined."""
        self.left(channel)
        self._channels[self.support.casefold(channel)] = channel, {}

    def left(self, channel: str) -> None:
        """Drop the list of a channel that the leader has left."""
        self._size -= len(self._members(channel))
        self._channels.pop(self.support.casefold(channel), None)

    def joined(self, channel: str, nick: str, modes: str = "") -> None:
        """Record a member."""
        found = self._members(channel, None)
        folded = self.support.casefold(nick)
        if found is None or not nick:
            return
        if folded not in found:
            if self._size >= MAX_MEMBERS:
                self.overflows += 1
                return
            self._size += 1
        found[folded] = nick, self.support.highest_first(modes)

    def removed(self, channel: str, nick: str) -> None:
        """Drop a member."""
        if self._members(channel).pop(self.support.casefold(nick), None) is not None:
            self._size -= 1

    def quit(self, nick: str) -> None:
        """Drop a user from all channels."""
        for name in self.channels:
            self.removed(name, nick)

    def renamed(self, nick: str, new: str) -> None:
        """Change the nick of a user in all channels."""
        old, folded = self.support.casefold(nick), self.support.casefold(new)
        for _, members in self._channels.values():
            found = members.pop(old, None)
            if found is not None:
                self._size -= folded in members
                members[folded] = new, found[1]

    def names_listed(self, channel: str, names: str) -> None:
        """Take over the names of an RPL_NAMREPLY, which a server sends for the leader's channels only."""
        if self._members(channel, None) is None:
            self.entered(channel)
        for word in names.split(" "):
            modes, nick = self.support.split_member(word)
            self.joined(channel, nick.partition("!")[0], modes)

    def mode_changed(self, channel: str, words: Sequence[str]) -> None:
        """Apply a MODE line: modes and their parameters."""
        members = self._members(channel)
        for is_set, mode, nick in self.support.member_changes(words):
            folded = self.support.casefold(nick)
            if folded in members:
                known, modes = members[folded]
                modes = modes + mode if is_set else modes.replace(mode, "")
                members[folded] = known, self.support.highest_first(modes)

    def snapshot(self) -> dict[str, Any]:
        """Return the roster as JSON-compatible objects."""
        support = self.support
        return {
            "support": [support.prefixes, support.modes, support.casemapping],
            "channels": {name: sorted(members.values()) for name, members in self._channels.values()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Replace the roster by that of :meth:`snapshot`.

        :raises ValueError: if it is invalid.
        """
        fresh = Roster()
        try:
            prefixes, modes, casemapping = state["support"]
            fresh.support.learn([f"PREFIX={prefixes}", f"CHANMODES={modes}", f"CASEMAPPING={casemapping}"])
            for channel, members in state["channels"].items():
                fresh.entered(channel)
                for nick, found in members:
                    fresh.joined(channel, nick, found)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"invalid roster: {error}") from error
        self.support, self._channels, self._size = fresh.support, fresh._channels, fresh._size

    def _members(self, channel: str, default: Any = {}) -> Any:  # noqa: B006  # It is empty, and nobody fills it.
        found = self._channels.get(self.support.casefold(channel))
        return default if found is None else found[1]
