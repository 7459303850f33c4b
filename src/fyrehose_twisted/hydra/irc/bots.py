"""Bots that continue across changes of leader.

Every node runs the bots; only the leader's replies are sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from twisted.logger import Logger
from twisted.python.reflect import namedAny
from zope.interface import implementer
from zope.interface.exceptions import Invalid
from zope.interface.verify import verifyObject

from fyrehose_twisted.errors import ConfigurationError, FyrehoseError
from fyrehose_twisted.hydra.events import LinesMissed, LinesReceived
from fyrehose_twisted.hydra.irc.shared_state import SharedState
from fyrehose_twisted.hydra.irc.view import VIEW_COMMANDS, IrcView
from fyrehose_twisted.hydra.wire.lines import command_of, untag
from fyrehose_twisted.hydra.wire.state_lines import STATE_COMMAND
from fyrehose_twisted.interfaces import IBot, IStatefulBot, IViewBot

_named_any: Any = namedAny
"""Twisted's ``namedAny``, which has no annotations."""


class IrcLine(NamedTuple):
    """A parsed line from IRC. Bytes that are not UTF-8 are kept as surrogates."""

    term: int
    number: int
    """Sequence number within the term, equal on all nodes."""
    nick: str
    """Nick of the sender, or server name; empty if the line has no prefix."""
    prefix: str
    """Whole prefix, such as ``nick!user@host``."""
    command: str
    """Command in upper case."""
    params: tuple[str, ...]
    """Parameters without the trailing text."""
    text: str
    """Trailing parameter, if preceded by a colon; else empty."""
    raw: bytes
    """Whole line, without tags."""
    ours: bool
    """Whether a node of the network submitted the line."""
    replayed: bool
    """Whether the line is replayed from the journal; replies to it are discarded."""

    @property
    def reply_to(self) -> str:
        """Target for a reply: the channel, or the sender of a private message."""
        target = self.params[0] if self.params else ""
        return target if target[:1] in ("#", "&", "+", "!") else self.nick


def parse_line(line: bytes, term: int, number: int, *, replayed: bool = False) -> IrcLine:
    """Parse a line of :class:`~fyrehose_twisted.hydra.events.LinesReceived`."""
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


@implementer(IBot, IViewBot)
class Bot:
    """Base class of bots that ignores everything; see :class:`~fyrehose_twisted.interfaces.IBot`.

    :ivar irc: who is in the channels; empty until a node runs the bot.
    """

    irc = IrcView()

    def view_attached(self, view: IrcView) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IViewBot`."""
        self.irc = view

    def line_received(self, line: IrcLine) -> Iterable[str]:
        """See :class:`~fyrehose_twisted.interfaces.IBot`."""
        return ()

    def lines_missed(self, first: int, last: int) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IBot`."""

    def leading(self, leads: bool) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IBot`."""


@implementer(IStatefulBot)
class StatefulBot(Bot):
    """Base class of bots whose state is handed over; see :class:`~fyrehose_twisted.interfaces.IStatefulBot`."""

    def snapshot(self) -> bytes:
        """See :class:`~fyrehose_twisted.interfaces.IStatefulBot`."""
        raise NotImplementedError

    def restore(self, state: bytes) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IStatefulBot`."""
        raise NotImplementedError


def load_bot(name: str) -> Any:
    """Return the bot created by calling the object with a dotted name.

    :raises ConfigurationError: if there is no such object, or its result is not a bot.
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
        raise ConfigurationError(f"--bot {name} cannot be created: {type(error).__name__}: {error}") from error
    try:
        verifyObject(IBot, bot)
    except Invalid as error:
        raise ConfigurationError(f"--bot {name} does not provide fyrehose_twisted.interfaces.IBot: {error}") from error
    return bot


class BotRunner:
    """Runner of the bots of a node, which sends their replies while the node leads.

    An exception of a bot is logged; the other bots continue.

    :param say: submits a line; may raise :class:`~fyrehose_twisted.errors.UnencodableMessage` or
        :class:`~fyrehose_twisted.errors.PublishQueueFull`.
    :ivar view: who is in the channels.
    :ivar shared: state that is handed over: that of the view, and of each bot that provides
        :class:`~fyrehose_twisted.interfaces.IStatefulBot`.
    """

    log = Logger()

    def __init__(self, bots: Iterable[Any], say: Callable[[str], object]) -> None:
        self.view = IrcView()
        self.shared = SharedState(self._warn)
        self._bots: tuple[Any, ...] = ()
        self._say = say
        self._is_leader = False
        self.replace(bots)

    def replace(self, bots: Iterable[Any]) -> None:
        """Run other bots from the next line on. New ones have no state; see :attr:`shared`."""
        self._bots = tuple(bots)
        names: Counter[str] = Counter()
        parts: dict[str, Any] = {}
        for bot in self._bots:
            if IViewBot.providedBy(bot):
                bot.view_attached(self.view)
            if IStatefulBot.providedBy(bot):
                name = type(bot).__name__[:40]
                names[name] += 1
                parts[f"bot.{name}" if names[name] == 1 else f"bot.{name}.{names[name]}"] = bot
        self.shared.parts = {**parts, "irc": self.view}

    @property
    def bots(self) -> tuple[Any, ...]:
        """Bots that run."""
        return self._bots

    def replay(self, events: Iterable[LinesReceived | LinesMissed]) -> int:
        """Replay journal events to the bots, discarding replies; return the number of lines."""
        count = 0
        for event in events:
            if isinstance(event, LinesMissed):
                self.lines_missed(event)
            else:
                count += len(event.lines)
                self._dispatch(event, replayed=True)
        # The network may have gone on without this node.
        self.shared.invalidate()
        return count

    def lines_received(self, lines: LinesReceived) -> None:
        """Pass lines to the bots."""
        self._dispatch(lines, replayed=False)

    def lines_missed(self, lines: LinesMissed) -> None:
        """Report a gap to the bots."""
        self.shared.invalidate()
        for bot in self._bots:
            try:
                bot.lines_missed(lines.first, lines.last)
            except Exception:
                self.log.failure("bot {bot!r} failed on a gap", bot=bot)

    def leading(self, leads: bool) -> None:
        """Report to the bots whether this node leads."""
        if leads == self._is_leader:
            return
        self._is_leader = self.shared.leading = leads
        for bot in self._bots:
            try:
                bot.leading(leads)
            except Exception:
                self.log.failure("bot {bot!r} failed on a change of leader", bot=bot)

    def _dispatch(self, lines: LinesReceived, *, replayed: bool) -> None:
        for number, line in enumerate(lines.lines, lines.first):
            command = command_of(line)
            if command == STATE_COMMAND:
                self.shared.line_received(line)
                continue
            if not self._bots and command not in VIEW_COMMANDS:
                continue
            parsed = parse_line(line, lines.term, number, replayed=replayed)
            self.view.line_received(parsed)
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
                self.log.warn("bot {bot!r}: {answer!r} was not sent: {error}", bot=bot, answer=answer, error=error)
            except Exception:
                self.log.failure("bot {bot!r} returned a reply that is not a line: {answer!r}", bot=bot, answer=answer)

    def _warn(self, text: str) -> None:
        self.log.warn("{text}", text=text)
