"""Channels that the leader has to be in, across changes of leader."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.wire.irc_line import CHANNEL_TYPES, casefold, is_single_param

MAX_CHANNELS = 50
"""Largest number of channels."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel and its key.

    :raises ConfigurationError: if either is invalid.
    """

    name: str
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not is_single_param(self.name) or self.name[0] not in CHANNEL_TYPES or "," in self.name:
            raise ConfigurationError(f"{self.name!r} is not a channel; write it as #name")
        if self.key is not None and (not is_single_param(self.key) or "," in self.key or self.key.startswith(":")):
            raise ConfigurationError(f"the key of {self.name} is not one printable word without a comma")


def parse_join(channels: str, keys: str = "") -> list[Channel]:
    """Return the channels of a JOIN; invalid ones are left out.

    :param channels: names separated by commas.
    :param keys: keys separated by commas.
    """
    found = []
    given = keys.split(",") if keys else []
    for number, name in enumerate(channels.split(",")):
        try:
            found.append(Channel(name, (given[number] if number < len(given) else "") or None))
        except ConfigurationError:
            continue
    return found


class ChannelMemory:
    """Channels that nodes joined and left at run time, learnt from the lines that all nodes receive.

    :ivar overflows: number of channels that were not remembered because there were too many.
    """

    def __init__(self) -> None:
        self.overflows = 0
        self._joined: dict[str, Channel] = {}
        self._left: dict[str, str] = {}

    def joined(self, channel: Channel) -> None:
        """Record a joined channel; a channel without a key keeps the known one."""
        folded = casefold(channel.name)
        self._left.pop(folded, None)
        known = self._joined.get(folded)
        if known is None and len(self._joined) >= MAX_CHANNELS:
            self.overflows += 1
        elif known is None or channel.key is not None:
            self._joined[folded] = channel

    def left(self, name: str) -> None:
        """Record that a node left a channel on purpose."""
        folded = casefold(name)
        self._joined.pop(folded, None)
        if folded in self._left or len(self._left) < MAX_CHANNELS:
            self._left[folded] = name
        else:
            self.overflows += 1

    def left_all(self) -> None:
        """Record that a node left all channels (``JOIN 0``)."""
        for channel in list(self._joined.values()):
            self.left(channel.name)

    def to_join(self, configured: Iterable[Channel]) -> tuple[Channel, ...]:
        """Return the channels for the next connection: the configured and the joined ones, without those left."""
        wanted = {casefold(channel.name): channel for channel in configured}
        for folded, channel in self._joined.items():
            if channel.key is not None or folded not in wanted:
                wanted[folded] = channel
        return tuple(channel for folded, channel in wanted.items() if folded not in self._left)[:MAX_CHANNELS]

    def snapshot(self) -> dict[str, Any]:
        """Return the memory as JSON-compatible objects."""
        return {
            "joined": [[channel.name, channel.key] for _, channel in sorted(self._joined.items())],
            "left": [name for _, name in sorted(self._left.items())],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Replace the memory by that of :meth:`snapshot`.

        :raises ValueError: if it is invalid.
        """
        try:
            joined = [Channel(name, key) for name, key in state["joined"][:MAX_CHANNELS]]
            left = [Channel(name).name for name in state["left"][:MAX_CHANNELS]]
        except (ConfigurationError, KeyError, TypeError) as error:
            raise ValueError(f"invalid channels: {error}") from error
        self._joined = {casefold(channel.name): channel for channel in joined}
        self._left = {casefold(name): name for name in left}
