"""CTCP replies and their rate limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.hydra.irc.ctcp import CTCP_BURST, CTCP_RATE, CtcpResponder
from fyrehose_twisted.hydra.wire.lines import check_sendable


def responder(times: list[float] | None = None) -> CtcpResponder:
    now = times or [0.0]
    return CtcpResponder("hydra 1", lambda: now[0])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("\x01VERSION\x01", "\x01VERSION hydra 1\x01"),
        ("\x01version", "\x01VERSION hydra 1\x01"),
        ("\x01PING 17 23\x01", "\x01PING 17 23\x01"),
        ("\x01PING\x01", "\x01PING\x01"),
        ("\x01CLIENTINFO\x01", "\x01CLIENTINFO CLIENTINFO PING VERSION\x01"),
        ("\x01DCC SEND a 1 2 3\x01", None),
        ("\x01ACTION waves\x01", None),
        ("VERSION", None),
        ("\x01", None),
        ("", None),
    ],
)
def test_requests_get_the_usual_replies(text: str, answer: str | None) -> None:
    assert responder().reply("anna", text) == (None if answer is None else f"NOTICE anna :{answer}")


def test_replies_have_a_rate() -> None:
    now = [0.0]
    ctcp = responder(now)
    answers = [ctcp.reply("anna", "\x01PING 1\x01") for _ in range(CTCP_BURST + 4)]
    assert [answer is not None for answer in answers] == [True] * CTCP_BURST + [False] * 4
    now[0] += 1 / CTCP_RATE
    assert ctcp.reply("bob", "\x01PING 1\x01") is not None
    assert (ctcp.answered, ctcp.limited) == (CTCP_BURST + 1, 4)


def test_servers_and_lines_without_sender_are_not_answered() -> None:
    assert responder().reply("irc.example", "\x01VERSION\x01") is None
    assert responder().reply("", "\x01VERSION\x01") is None


@given(st.text(max_size=700).filter(lambda text: not set("\r\n\0") & set(text)))
def test_every_reply_may_be_sent(text: str) -> None:
    answer = responder().reply("anna", f"\x01PING {text}\x01")
    assert answer is not None
    check_sendable(answer.encode())
