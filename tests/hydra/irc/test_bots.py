"""Bots, which receive the same lines on every node while only the leader's replies are sent."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import globalLogPublisher
from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError, UnencodableMessage
from fyrehose_twisted.hydra.events import LinesMissed, LinesReceived
from fyrehose_twisted.hydra.irc.bots import Bot, BotRunner, IrcLine, load_bot, parse_line
from fyrehose_twisted.interfaces import IBot

KARMA = Path(__file__).resolve().parents[3] / "examples" / "karma.py"


@implementer(IBot)
class EchoBot:
    """Bot that repeats lines and records every call."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def line_received(self, line: IrcLine) -> Iterable[str]:
        self.seen.append(line.raw)
        return [] if line.ours else [f"PRIVMSG {line.reply_to} :{line.text}"]

    def lines_missed(self, first: int, last: int) -> None:
        self.seen.append((first, last))

    def leading(self, leads: bool) -> None:
        self.seen.append(leads)


class FailingBot(Bot):
    """Bot that raises in every call."""

    def line_received(self, line: IrcLine) -> Iterable[str]:
        yield "PRIVMSG #c :never said"
        raise RuntimeError("broken on purpose")

    def lines_missed(self, first: int, last: int) -> None:
        raise RuntimeError("broken on purpose")

    def leading(self, leads: bool) -> None:
        raise RuntimeError("broken on purpose")


class NotABot:
    """Class that is no bot."""


class NeedsMore(Bot):
    """Bot whose constructor requires arguments."""

    def __init__(self, more: int) -> None:
        pass


@pytest.fixture
def failures() -> Any:
    """Return failures logged during the test."""
    found: list[Any] = []

    def observe(event: Any) -> None:
        if event.get("log_failure") is not None:
            found.append(event["log_failure"].value)

    globalLogPublisher.addObserver(observe)
    yield found
    globalLogPublisher.removeObserver(observe)


def lines(*texts: bytes, term: int = 1, first: int = 0) -> LinesReceived:
    return LinesReceived(term, first, list(texts))


@pytest.mark.parametrize(
    ("raw", "nick", "command", "params", "text", "reply_to", "ours"),
    [
        (b":n!u@h PRIVMSG #c :hi there", "n", "PRIVMSG", ("#c",), "hi there", "#c", False),
        (b":n!u@h privmsg bot :hi", "n", "PRIVMSG", ("bot",), "hi", "n", False),
        (b"@+hydra/n=a.1 :b!u@h PRIVMSG #c :hi", "b", "PRIVMSG", ("#c",), "hi", "#c", True),
        (b":irc.test MODE #c +nt", "irc.test", "MODE", ("#c", "+nt"), "", "#c", False),
        (b":n!u@h JOIN :#c", "n", "JOIN", (), "#c", "n", False),
        (b":n!u@h PRIVMSG #c : :x", "n", "PRIVMSG", ("#c",), " :x", "#c", False),
        (b"@time=1 :n!u@h QUIT :", "n", "QUIT", (), "", "n", False),
        (b":n PRIVMSG #c :\xff", "n", "PRIVMSG", ("#c",), "\udcff", "#c", False),
        (b"", "", "", (), "", "", False),
    ],
)
def test_line_is_parsed_for_bots(
    raw: bytes, nick: str, command: str, params: tuple[str, ...], text: str, reply_to: str, ours: bool
) -> None:
    line = parse_line(raw, 3, 7)
    assert (line.nick, line.command, line.params, line.text) == (nick, command, params, text)
    assert (line.reply_to, line.ours, line.term, line.number, line.replayed) == (reply_to, ours, 3, 7, False)
    assert line.raw == raw.removeprefix(b"@+hydra/n=a.1 ")


@given(st.binary(max_size=600))
def test_any_line_can_be_parsed_for_bots(raw: bytes) -> None:
    line = parse_line(raw, 1, 0)
    for part in (line.nick, line.prefix, line.text, *line.params):
        assert part.encode("utf-8", "surrogateescape") in raw


def test_only_replies_of_the_leader_are_sent() -> None:
    said: list[str] = []
    parrot = EchoBot()
    bots = BotRunner([parrot], said.append)
    bots.lines_received(lines(b":n!u@h PRIVMSG #c :one"))
    assert said == []
    bots.leading(True)
    bots.leading(True)
    bots.lines_received(lines(b":n!u@h PRIVMSG #c :two", b"@+hydra/n=a.1 PRIVMSG #c :two", first=1))
    assert said == ["PRIVMSG #c :two"]
    bots.lines_missed(LinesMissed(1, 3, 5))
    bots.leading(False)
    bots.lines_received(lines(b":n!u@h PRIVMSG #c :three", first=6))
    assert said == ["PRIVMSG #c :two"]
    one, two, three = (b":n!u@h PRIVMSG #c :%b" % word for word in (b"one", b"two", b"three"))
    assert parrot.seen == [one, True, two, b"PRIVMSG #c :two", (3, 5), False, three]


def test_replies_to_replayed_lines_are_discarded() -> None:
    said: list[str] = []
    parrot = EchoBot()
    bots = BotRunner([parrot], said.append)
    bots.leading(True)
    assert bots.replay([lines(b":n PRIVMSG #c :a", b":n PRIVMSG #c :b"), LinesMissed(1, 2, 3)]) == 2
    assert said == []
    assert parrot.seen == [True, b":n PRIVMSG #c :a", b":n PRIVMSG #c :b", (2, 3)]
    assert BotRunner([], said.append).replay([lines(b"x")]) == 1


def test_failing_bot_does_not_stop_the_others(failures: list[Any]) -> None:
    said: list[str] = []
    parrot = EchoBot()
    bots = BotRunner([FailingBot(), parrot], said.append)
    bots.leading(True)
    bots.lines_received(lines(b":n PRIVMSG #c :a"))
    bots.lines_missed(LinesMissed(1, 1, 1))
    assert said == ["PRIVMSG #c :a"]
    assert parrot.seen == [True, b":n PRIVMSG #c :a", (1, 1)]
    assert [str(failure) for failure in failures] == ["broken on purpose"] * 3


def test_invalid_reply_is_only_logged(failures: list[Any]) -> None:
    tried: list[str] = []

    def say(line: str) -> None:
        tried.append(line)
        if "bad" in line:
            raise UnencodableMessage("not a line")
        if "worse" in line:
            raise AttributeError("not a string either")

    bots = BotRunner([EchoBot()], say)
    bots.leading(True)
    bots.lines_received(lines(b":n PRIVMSG #c :bad", b":n PRIVMSG #c :worse", b":n PRIVMSG #c :good"))
    assert [line.rsplit(":", 1)[1] for line in tried] == ["bad", "worse", "good"]
    assert [str(failure) for failure in failures] == ["not a string either"]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (NotABot, "does not provide fyrehose_twisted.interfaces.IBot"),
        (NeedsMore, "cannot be created: TypeError"),
        ("a string", "cannot be created: TypeError"),
    ],
)
def test_invalid_bot_is_refused_at_the_start(made: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "of_ours", SimpleNamespace(bot=made))
    with pytest.raises(ConfigurationError, match=why):
        load_bot("of_ours.bot")
    with pytest.raises(ConfigurationError, match="cannot be imported"):
        load_bot("of_ours.nothing")


def test_bot_is_created_by_its_dotted_name() -> None:
    assert type(load_bot("fyrehose_twisted.hydra.irc.bots.Bot")) is Bot


@pytest.fixture
def karma() -> Any:
    spec = spec_from_file_location("karma_example", KARMA)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.KarmaBot()


def test_example_bot_counts_karma(karma: Any) -> None:
    said: list[str] = []
    bots = BotRunner([karma], said.append)
    bots.replay([lines(b":n!u@h PRIVMSG #c :tea++, coffee-- tea++", b":n!u@h PRIVMSG #c :C++ and a+++")])
    bots.leading(True)
    bots.lines_received(
        lines(
            b":n!u@h PRIVMSG #c :Tea++",
            b":n!u@h NOTICE #c :tea++",
            b"@+hydra/n=a.1 :b!u@h PRIVMSG #c :tea++",
            b":n!u@h PRIVMSG #c :!karma TEA",
            b":n!u@h PRIVMSG bot :!karma coffee",
            b":n!u@h PRIVMSG #c :!karma nobody",
            b":n!u@h PRIVMSG #c :see !karma tea",
            first=2,
        )
    )
    assert said == [
        "PRIVMSG #c :TEA has karma 3",
        "PRIVMSG n :coffee has karma -1",
        "PRIVMSG #c :nobody has karma 0",
    ]


def test_example_bot_obeys_operators_and_hands_its_counts_over(karma: Any) -> None:
    said: list[str] = []
    bots = BotRunner([karma], said.append)
    bots.leading(True)
    bots.lines_received(
        lines(
            b":s 353 bot = #c :@anna bob",
            b":bob!u@h PRIVMSG #c :tea++ milk++",
            b":bob!u@h PRIVMSG #c :!forget tea",
            b":anna!u@h PRIVMSG #c :!forget milk",
        )
    )
    assert dict(karma.karma) == {"tea": 1}
    other = type(karma)()
    taker = BotRunner([other], said.append)
    taker.lines_received(lines(*bots.shared.lines(), first=4))
    taker.lines_received(lines(b":n!u@h PRIVMSG #c :tea++", first=9))
    assert dict(other.karma) == {"tea": 2}
    assert karma.snapshot() != other.snapshot()
