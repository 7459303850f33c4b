from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.hydra.wire.line_splitting import MAX_PARTS, IrcLimits, max_line_length, split_to_fit
from fyrehose_twisted.hydra.wire.messages import MAX_IRC

PREFIX = b"bot!user@host.example"
LIMITS = IrcLimits()
ROOM = 512 - 2 - len(b": ") - len(PREFIX)


def test_line_limit_is_reduced_by_the_sender_prefix() -> None:
    assert max_line_length(PREFIX, LIMITS) == ROOM
    assert max_line_length(PREFIX, IrcLimits(line=1024)) == ROOM + 512


@pytest.mark.parametrize("prefix", [b"bot", b"bot!user", b""])
def test_unknown_prefix_counts_with_its_largest_size(prefix: bytes) -> None:
    longest = len(b"bot!") + 10 + len(b"@") + 63
    assert 512 - 2 - 2 - longest <= max_line_length(prefix, LIMITS) <= 512 - 2 - 2 - longest + 3


def test_fitting_line_is_unchanged() -> None:
    line = b"PRIVMSG #c :" + b"x" * (ROOM - 12)
    assert split_to_fit(line, PREFIX, LIMITS, split=True) == split_to_fit(line, PREFIX, LIMITS, split=False) == [line]


def test_long_line_is_split_between_words() -> None:
    words = [b"word%03d" % number for number in range(70)]
    lines = split_to_fit(b"PRIVMSG #c :" + b" ".join(words), PREFIX, LIMITS, split=True)
    assert len(lines) == 2
    assert all(line.startswith(b"PRIVMSG #c :word") and len(line) <= ROOM for line in lines)
    assert b" ".join(line.partition(b" :")[2] for line in lines).split() == words


def test_long_word_is_split_between_characters() -> None:
    text = "ä" * 249
    lines = split_to_fit(b"NOTICE #c :" + text.encode(), PREFIX, IrcLimits(line=301), split=True)
    assert "".join(line.decode().partition(" :")[2] for line in lines) == text


def test_each_part_of_a_split_action_is_an_action() -> None:
    line = b"PRIVMSG #c :\x01ACTION " + b"waves " * 80 + b"\x01"
    lines = split_to_fit(line, PREFIX, LIMITS, split=True)
    assert len(lines) == 2
    for part in lines:
        assert part.startswith(b"PRIVMSG #c :\x01ACTION waves ")
        assert part.endswith(b"\x01")
        assert len(part) <= ROOM


@pytest.mark.parametrize(
    "line",
    [
        b"PRIVMSG #c :\x01DCC " + b"x" * 490 + b"\x01",
        b"PRIVMSG #c :\x01ACTION" + b"x" * 490 + b"\x01",
        b"TOPIC #c :" + b"x" * 490,
        b"KICK #c x :" + b"x" * 490,
        b"PRIVMSG #c " + b"x" * 490,
        b"PRIVMSG #" + b"c" * 480 + b" :" + b"x" * 18,
    ],
)
def test_unsplittable_line_is_refused(line: bytes) -> None:
    with pytest.raises(UnencodableMessage, match=rf"has {len(line)} bytes; only {ROOM} fit"):
        split_to_fit(line, PREFIX, LIMITS, split=True)


def test_long_line_is_refused_when_splitting_is_off() -> None:
    with pytest.raises(UnencodableMessage, match="after its sender"):
        split_to_fit(b"PRIVMSG #c :" + b"x " * 240, PREFIX, LIMITS, split=False)


@pytest.mark.parametrize(("line", "most"), [(b"TOPIC #c :" + b"x" * 11, 10), (b"KICK #c anna :" + b"x" * 6, 5)])
def test_overlong_topic_or_kick_reason_is_refused(line: bytes, most: int) -> None:
    limits = IrcLimits(topic=10, kick=5)
    with pytest.raises(UnencodableMessage, match=f"has {most + 1} bytes; {most} fit"):
        split_to_fit(line, PREFIX, limits, split=True)
    assert split_to_fit(line[:-1], PREFIX, limits, split=True) == [line[:-1]]


@given(
    text=st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), min_size=1).filter(
        lambda text: len(text.encode()) <= MAX_IRC - 12
    ),
    line=st.integers(80, 600),
)
def test_split_parts_fit_and_contain_the_whole_text(text: str, line: int) -> None:
    limits = IrcLimits(line=line)
    whole = b"PRIVMSG #c :" + text.encode()
    try:
        lines = split_to_fit(whole, PREFIX, limits, split=True)
    except UnencodableMessage:
        assert text.startswith("\x01")
        return
    assert 1 <= len(lines) <= MAX_PARTS
    assert all(len(one) <= max_line_length(PREFIX, limits) for one in lines)
    texts = [one.removeprefix(b"PRIVMSG #c :").decode() for one in lines]
    if not text.startswith("\x01"):
        assert "".join(texts).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("line", [0, 20, 40, 10**9])
def test_arbitrary_server_limits_cause_no_failure(line: int) -> None:
    whole = b"PRIVMSG #c :" + b"x" * 400
    if line > 512:
        assert split_to_fit(whole, PREFIX, IrcLimits(line=line), split=True) == [whole]
    else:
        with pytest.raises(UnencodableMessage, match="fit"):
            split_to_fit(whole, PREFIX, IrcLimits(line=line), split=True)
