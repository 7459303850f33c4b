"""Notice streams: fragments, and a session that receives arbitrary messages."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.checks import check_size
from fuzz.choices import Choices, piece
from fyrehose_twisted.hydra.transports.notice_stream import (
    MAX_FRAGMENT,
    MAX_FRAGMENTS,
    Fragment,
    NoticeState,
    NoticeStream,
    decode_fragment,
    encode_fragment,
)

OURS, THEIRS = b"a" * 12, b"b" * 12
KEY = b"a secret of some length"


def _pair(secret: bytes | None) -> tuple[NoticeStream, NoticeStream]:
    return (
        NoticeStream(b"ivan", b"boris", OURS, 0.0, secret=secret),
        NoticeStream(b"boris", b"ivan", THEIRS, 0.0, secret=secret),
    )


def seeds() -> Iterable[bytes]:
    """Return the messages that a session receives from a peer that writes a little."""
    for secret in (None, KEY):
        one_end, other = _pair(secret)
        heard, now = [], 0.0
        other.write(b"PING 1 x 1\r\n" * 60, now)
        for _ in range(60):
            now += 1.0
            one_end.tick(now)
            other.tick(now)
            for message in one_end.drain().messages:
                other.receive(message, now)
            for message in other.drain().messages:
                heard.append(message)
                one_end.receive(message, now)
        other.end("enough", now)
        heard += other.drain().messages
        yield bytes((secret is not None,)) + b"".join(piece(message) + b"\x08" for message in heard)
        yield bytes((secret is not None,)) + b"".join(piece(message) + b"\x08" for message in reversed(heard))
    yield b"\0" + piece(encode_fragment(Fragment(0, 1, 1, b"x"), None)) + b"\0"


def one(data: bytes) -> None:
    """Deliver messages with pauses in eighths of a second."""
    choices = Choices(data)
    secret = KEY if choices.number() & 1 else None
    session, _ = _pair(secret)
    session.write(b"something that waits\r\n" * 20, 0.0)
    now, came = 0.0, 0
    while choices:
        message = choices.piece()
        found = decode_fragment(message, None)
        if found is not None:
            assert encode_fragment(found, None) == message
            assert 1 <= found.position <= found.total <= MAX_FRAGMENTS
            assert len(found.data) <= MAX_FRAGMENT
        session.receive(message, now)
        now += choices.number() / 8
        session.tick(now)
        output = session.drain()
        came += len(output.data)
        assert all(len(said) <= 400 and said.isascii() for said in output.messages)
        assert session.waiting >= 0
        deadline = session.next_deadline()
        assert (deadline is None) == (session.state is NoticeState.OVER)
    check_size(b"x" * came, len(data), factor=1)
