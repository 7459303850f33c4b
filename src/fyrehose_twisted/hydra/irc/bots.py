"""Bots that outlive the node that holds the connection to IRC."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from twisted.logger import Logger
from twisted.python.reflect import namedAny
from zope.interface import implementer
from zope.interface.exceptions import Invalid
from zope.interface.verify import verifyObject

from fyrehose_twisted.errors import ConfigurationError, FyrehoseError
from fyrehose_twisted.hydra.events import LinesMissed, LinesReceived
from fyrehose_twisted.hydra.wire.lines import untag
from fyrehose_twisted.interfaces import IBot

_named_any: Any = namedAny
"""Twisted's, which is not annotated."""


class IrcLine(NamedTuple):
    """A line from IRC, taken apart. Bytes that are no UTF-8 are kept as surrogates."""

    term: int
    number: int
    """Counts the lines of a term; all nodes number them alike."""
    nick: str
    """Who said it, or the name of the server; empty if the line does not say."""
    prefix: str
    """All that the line says about that, such as ``nick!user@host``."""
    command: str
    """In capitals."""
    params: tuple[str, ...]
    """Without the text."""
    text: str
    """The last parameter, if it has a colon before it; else empty."""
    raw: bytes
    """All of it, without tags."""
    ours: bool
    """Whether a node of the network said it."""
    replayed: bool
    """Whether it comes from the journal: then nothing that is answered will be said."""

    @property
    def reply_to(self) -> str:
        """Where to answer: the channel, or whoever spoke to us alone."""
        target = self.params[0] if self.params else ""
        return target if target[:1] in ("#", "&", "+", "!") else self.nick


def parse_line(line: bytes, term: int, number: int, *, replayed: bool = False) -> IrcLine:
    """Return a line, as :class:`~fyrehose_twisted.hydra.events.LinesReceived` has it, taken apart."""
    token, raw = untag(line)
    rest = raw.decode("utf-8", "surrogateescape")
    if rest.startswith("@"):
        rest = rest.partition(" ")[2].lstrip(" ")
    prefix = ""
    if rest.startswith(":"):
        prefix, _, rest = rest[1:].partition(" ")
    head, colon, text = rest.lstrip(" ").partition(" :")
    words = [word for word in head.split(" ") if word]
    command = words.pop(0).upper() if words else ""
    return IrcLine(
        term,
        number,
        prefix.partition("!")[0],
        prefix,
        command,
        tuple(words),
        text if colon else "",
        raw,
        token is not None,
        replayed,
    )


@implementer(IBot)
class Bot:
    """See :class:`~fyrehose_twisted.interfaces.IBot`: does nothing, for those who change that."""

    def line_received(self, line: IrcLine) -> Iterable[str]:
        """See :class:`~fyrehose_twisted.interfaces.IBot`."""
        return ()

    def lines_missed(self, first: int, last: int) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IBot`."""

    def leading(self, leads: bool) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IBot`."""


def load_bot(name: str) -> Any:
    """Return the bot that a dotted name makes when it is called.

    :raises ConfigurationError: if there is none, or what it makes is no bot.
    """
    try:
        make = _named_any(name)
    except Exception as error:
        raise ConfigurationError(
            f"--bot {name} cannot be imported: {error}; is its directory on PYTHONPATH?"
        ) from error
    try:
        bot = make()
    except Exception as error:
        raise ConfigurationError(f"--bot {name} cannot be made: {type(error).__name__}: {error}") from error
    try:
        verifyObject(IBot, bot)
    except Invalid as error:
        raise ConfigurationError(f"--bot {name} is no fyrehose_twisted.interfaces.IBot: {error}") from error
    return bot


class BotRunner:
    """Tells bots what came, and has said what they answer while this node leads.

    One that raises is logged, and the others go on.

    :param say: has a line said; may raise what is the line's fault, or that too many wait.
    """

    log = Logger()

    def __init__(self, bots: Iterable[Any], say: Callable[[str], object]) -> None:
        self._bots = tuple(bots)
        self._say = say
        self._is_leader = False

    def replay(self, events: Iterable[LinesReceived | LinesMissed]) -> int:
        """Tell them what was kept; return how many lines that was. Nothing that they answer is said."""
        count = 0
        if self._bots:
            for event in events:
                if isinstance(event, LinesMissed):
                    self.lines_missed(event)
                else:
                    count += len(event.lines)
                    self._dispatch(event, replayed=True)
        return count

    def lines_received(self, lines: LinesReceived) -> None:
        """Lines came."""
        if self._bots:
            self._dispatch(lines, replayed=False)

    def lines_missed(self, lines: LinesMissed) -> None:
        """Lines came, and not here."""
        for bot in self._bots:
            try:
                bot.lines_missed(lines.first, lines.last)
            except Exception:
                self.log.failure("bot {bot!r} failed on lines that were missed", bot=bot)

    def leading(self, leads: bool) -> None:
        """This node leads, or does not."""
        if leads == self._is_leader:
            return
        self._is_leader = leads
        for bot in self._bots:
            try:
                bot.leading(leads)
            except Exception:
                self.log.failure("bot {bot!r} failed on becoming leader, or being none", bot=bot)

    def _dispatch(self, lines: LinesReceived, *, replayed: bool) -> None:
        for number, line in enumerate(lines.lines, lines.first):
            parsed = parse_line(line, lines.term, number, replayed=replayed)
            for bot in self._bots:
                try:
                    answers = list(bot.line_received(parsed))
                except Exception:
                    self.log.failure("bot {bot!r} failed on {line!r}", bot=bot, line=parsed.raw)
                    continue
                if self._is_leader and not replayed:
                    self._send_replies(bot, answers)

    def _send_replies(self, bot: Any, answers: list[str]) -> None:
        for answer in answers:
            try:
                self._say(answer)
            except FyrehoseError as error:
                self.log.warn("bot {bot!r}: {answer!r} is not said: {error}", bot=bot, answer=answer, error=error)
            except Exception:
                self.log.failure("bot {bot!r} answers something that is no line: {answer!r}", bot=bot, answer=answer)
