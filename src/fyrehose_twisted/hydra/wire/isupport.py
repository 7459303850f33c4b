"""What an IRC server announces about itself (RPL_ISUPPORT), as far as channels and their members need it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fyrehose_twisted.hydra.wire.irc_line import CASEMAPPINGS

DEFAULT_PREFIXES = "(qaohv)~&@%+"
"""PREFIX of a server that announces none; what it does not know never occurs."""
DEFAULT_MODES = "beI,k,l"
"""First three groups of CHANMODES of a server that announces none."""
_PREFIX = re.compile(r"\(([A-Za-z]{1,10})\)([!-~]{1,10})")
_CHANMODES = re.compile(r"[A-Za-z]{0,52}(,[A-Za-z]{0,52}){2,}")


@dataclass(slots=True)
class ServerSupport:
    """Names and modes of a server.

    :ivar prefixes: value of PREFIX: modes of members, then the marks that stand for them, highest first.
    :ivar modes: value of CHANMODES.
    :ivar casemapping: value of CASEMAPPING, lower case.
    """

    prefixes: str = DEFAULT_PREFIXES
    modes: str = DEFAULT_MODES
    casemapping: str = "rfc1459"

    def learn(self, words: Sequence[str]) -> None:
        """Take over the tokens of an RPL_ISUPPORT; unusable ones are ignored."""
        for word in words:
            name, _, value = word.partition("=")
            if name == "PREFIX" and (found := _PREFIX.fullmatch(value)) and len(found[1]) == len(found[2]):
                self.prefixes = value
            elif name == "CHANMODES" and _CHANMODES.fullmatch(value):
                self.modes = value
            elif name == "CASEMAPPING" and value.lower() in CASEMAPPINGS:
                self.casemapping = value.lower()

    def casefold(self, name: str) -> str:
        """Return a form of a name that is equal for names which the server treats as the same."""
        return name.translate(CASEMAPPINGS.get(self.casemapping, CASEMAPPINGS["rfc1459"]))

    def split_member(self, word: str) -> tuple[str, str]:
        """Split a word of RPL_NAMREPLY into the modes of the member and its nick (or ``nick!user@host``)."""
        modes, marks = self._member_modes()
        found = ""
        while word and word[0] in marks:
            found += modes[marks.index(word[0])]
            word = word[1:]
        return found, word

    def member_changes(self, words: Sequence[str]) -> Iterator[tuple[bool, str, str]]:
        """Yield the changes to members in a MODE line: whether the mode is set, the mode, and the nick.

        :param words: modes and their parameters.
        """
        member_modes, _ = self._member_modes()
        lists, always, on_set = self.modes.split(",")[:3]
        params = iter(words[1:])
        is_set = True
        for mode in words[0] if words else "":
            if mode in "+-":
                is_set = mode == "+"
            elif mode in member_modes:
                nick = next(params, None)
                if nick is not None:
                    yield is_set, mode, nick
            elif mode in lists or mode in always or (is_set and mode in on_set):
                next(params, None)

    def highest_first(self, modes: str) -> str:
        """Return modes of a member once each, the highest first."""
        return "".join(mode for mode in self._member_modes()[0] if mode in modes)

    def _member_modes(self) -> tuple[str, str]:
        modes, _, marks = self.prefixes[1:].partition(")")
        return modes, marks
