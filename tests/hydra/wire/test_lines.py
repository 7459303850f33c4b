from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.hydra.wire.lines import add_tag, check_sendable, command_of, fits_recv, is_sendable, untag
from fyrehose_twisted.hydra.wire.messages import MAX_IRC, MAX_LINE, SENDABLE


@given(st.text(st.sampled_from("abcdefXYZ0189.-_"), min_size=1, max_size=32), st.binary(max_size=600))
def test_token_survives_tagging_of_any_line(token: str, line: bytes) -> None:
    assert untag(add_tag(token, line)) == (token, line)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"PRIVMSG #c :@+hydra/n=7 hi",
        b"@+hydra/n= PRIVMSG #c :hi",
        b"@+hydra/n=7",
        b"@+hydra/n=7;x=y PRIVMSG #c :hi",
        b"@time=1;+hydra/n=7 PRIVMSG #c :hi",
        b"@+hydra/n=" + b"7" * 33 + b" PRIVMSG #c :hi",
        b"@+hydra/n=\x80 PRIVMSG #c :hi",
    ],
)
def test_untagged_lines_have_no_token(line: bytes) -> None:
    assert untag(line) == (None, line)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_untagged_without_failure(line: bytes) -> None:
    _, rest = untag(line)
    assert line.endswith(rest)
    command_of(line)
    assert fits_recv(line) is not any(one in line for one in (b"\r", b"\n", b"\0"))
    if is_sendable(line):
        assert line.split(b" ")[0] in SENDABLE
        assert not set(line) & set(b"\r\n\0")


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (b"PRIVMSG #c :hi", b"PRIVMSG"),
        (b"privmsg #c :hi", b"PRIVMSG"),
        (b":a!b@c PRIVMSG #c :hi", b"PRIVMSG"),
        (b"@time=1 :a!b@c QUIT", b"QUIT"),
        (b"@time=1 PING :x", b"PING"),
        (b":a!b@c", b""),
        (b"@time=1", b""),
        (b"", b""),
        (b"   ", b""),
    ],
)
def test_command_is_found_after_tags_and_prefix(line: bytes, command: bytes) -> None:
    assert command_of(line) == command


@pytest.mark.parametrize("command", sorted(SENDABLE))
def test_allowed_commands_are_sendable(command: bytes) -> None:
    check_sendable(command + b" #c :hi")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"PRIVMSG #c :hi\r\nQUIT", "CR, LF or NUL"),
        (b"PRIVMSG #c :hi\nQUIT", "CR, LF or NUL"),
        (b"PRIVMSG #c :hi\rQUIT", "CR, LF or NUL"),
        (b"PRIVMSG #c :hi\0", "CR, LF or NUL"),
        (b"PRIVMSG #c :" + b"x" * (MAX_IRC - 11), "511 bytes"),
        (b"", "does not begin"),
        (b" PRIVMSG #c :hi", "does not begin"),
        (b":a!b@c PRIVMSG #c :hi", "does not begin"),
        (b"@x=y PRIVMSG #c :hi", "does not begin"),
        (b"QUIT :bye", "not one of"),
        (b"MODES other", "not one of"),
        (b"OPER a b", "not one of"),
        (b"privmsg #c :hi", "not one of"),
        (b"PRIVMSG", "requires parameters"),
        (b"PRIVMSG  ", "requires parameters"),
    ],
)
def test_other_lines_are_refused(line: bytes, why: str) -> None:
    with pytest.raises(UnencodableMessage, match=why):
        check_sendable(line)
    assert not is_sendable(line)


def test_line_of_the_largest_size_is_sendable() -> None:
    check_sendable(b"PRIVMSG #c :" + b"x" * (MAX_IRC - 12))


def test_relayed_line_fits_a_line_between_nodes() -> None:
    assert fits_recv(b"x" * (MAX_LINE - 32))
    assert not fits_recv(b"x" * (MAX_LINE - 31))
