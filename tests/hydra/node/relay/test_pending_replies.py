from __future__ import annotations

from math import inf

import pytest

from fyrehose_twisted.hydra.node.relay.pending_replies import PendingReplies


def handed(*lines: bytes) -> PendingReplies:
    answers = PendingReplies()
    for number, line in enumerate(lines, 1):
        assert answers.add(f"x.{number}", line, float(number)) == number
    return answers


def refused(answers: PendingReplies) -> dict[str | None, list[bytes]]:
    return {one.line_id: one.errors for one in answers.acknowledge(len(answers)) if one.errors}


def test_reply_acknowledges_all_earlier_lines() -> None:
    answers = handed(b"PRIVMSG #c :one", b"PRIVMSG #c :two")
    number = answers.ask()
    answers.add("x.3", b"PRIVMSG #c :three", 3.0)
    assert answers.oldest_sent_at == 1.0
    assert [one.line_id for one in answers.acknowledge(number)] == ["x.1", "x.2"]
    assert (len(answers), answers.asked_number, answers.oldest_sent_at) == (1, None, 3.0)


def test_old_reply_leaves_a_later_ping_pending() -> None:
    answers = handed(b"PRIVMSG #c :one")
    first = answers.ask()
    answers.add("x.2", b"PRIVMSG #c :two", 2.0)
    second = answers.ask()
    answers.acknowledge(first)
    assert answers.asked_number == second


def test_line_that_was_not_written_can_be_removed() -> None:
    answers = handed(b"PRIVMSG #c :one", b"PRIVMSG #c :two")
    answers.remove(1)
    assert [one.line_id for one in answers.acknowledge(2)] == ["x.2"]


def test_clear_discards_all_pending_lines() -> None:
    answers = handed(b"PRIVMSG #c :one", b"PRIVMSG #c :two")
    answers.ask()
    assert answers.clear() == 2
    assert (len(answers), answers.asked_number, answers.oldest_sent_at) == (0, None, inf)


@pytest.mark.parametrize(
    ("numeric", "name"),
    [
        (b":irc.x 404 bot #C :Cannot send to channel", "x.3"),
        (b":irc.x 482 bot #c :You're not channel operator", "x.1"),
        (b":irc.x 442 bot #c :You're not on that channel", "x.1"),
        (b":irc.x 441 bot anna #c :They aren't on that channel", "x.1"),
        (b":irc.x 401 bot nobody :No such nick", "x.4"),
        (b":irc.x 401 bot Anna :No such nick", "x.1"),
        (b":irc.x 401 bot ghost :No such nick", "x.2"),
        (b":irc.x 461 bot MODE :Not enough parameters", "x.2"),
        (b":irc.x 472 bot y :is unknown mode char to me", "x.2"),
        (b":irc.x 412 bot :No text to send", "x.3"),
        (b":irc.x 473 bot #d :Cannot join channel (+i)", "x.5"),
        (b":irc.x 999 bot #d :Nobody knows that one", "x.5"),
    ],
)
def test_error_is_attributed_to_the_first_matching_line(numeric: bytes, name: str) -> None:
    answers = handed(
        b"KICK #c anna",
        b"MODE #c +yo ghost",
        b"PRIVMSG #c :hi",
        b"PRIVMSG nobody :hi",
        b"JOIN #d",
        b"PRIVMSG #c :again",
    )
    assert answers.match_error(numeric)
    assert refused(answers) == {name: [numeric]}


def test_errors_for_equal_lines_are_attributed_one_by_one() -> None:
    answers = handed(b"PRIVMSG #c :hi", b"PRIVMSG #c :hi")
    first, second = b":irc.x 404 bot #c :one", b":irc.x 404 bot #c :two"
    assert answers.match_error(first)
    assert answers.match_error(second)
    assert not answers.match_error(b":irc.x 404 bot #c :three")
    assert refused(answers) == {"x.1": [first], "x.2": [second]}


def test_each_target_of_a_line_may_refuse_it() -> None:
    answers = handed(b"PRIVMSG #a,#b,#c :hi", b"PRIVMSG #c :hi")
    numerics = [b":irc.x 404 bot #c :no", b":irc.x 404 bot #a :no", b":irc.x 404 bot #c :no"]
    assert all(map(answers.match_error, numerics))
    assert refused(answers) == {"x.1": numerics[:2], "x.2": numerics[2:]}


@pytest.mark.parametrize(
    "numeric",
    [
        b":irc.x 433 bot other :Nickname is already in use",
        b":irc.x 404 bot #d :Cannot send to channel",
        b":irc.x 473 bot #c :Cannot join channel (+i)",
        b":irc.x 404",
        b":irc.x 404 bot",
        b"",
    ],
)
def test_unrelated_error_matches_no_line(numeric: bytes) -> None:
    answers = handed(b"PRIVMSG #c :hi")
    assert not answers.match_error(numeric)
    assert refused(answers) == {}
