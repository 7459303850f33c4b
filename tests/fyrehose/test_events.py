from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.events import Message, MessageColumns, Messages

columns = st.lists(
    st.tuples(st.integers(1, 2**48 - 1), st.integers(0, 2**60), st.binary(min_size=4, max_size=9)), max_size=5
)
stretches = st.lists(st.tuples(columns, st.sampled_from([0, 3])), max_size=4)


def made(parts: list[tuple[list[tuple[int, int, bytes]], int]]) -> tuple[Messages, list[Message]]:
    """Return a sequence of messages and the equal list."""
    messages = Messages(
        [
            MessageColumns([n for n, _, _ in rows], [at for _, at, _ in rows], [data for _, _, data in rows], envelope)
            for rows, envelope in parts
        ]
    )
    return messages, [Message(n, at, data[envelope:], data) for rows, envelope in parts for n, at, data in rows]


@given(stretches, st.slices(12))
def test_messages_behave_like_a_sequence(parts: list[tuple[list[tuple[int, int, bytes]], int]], some: slice) -> None:
    messages, expected = made(parts)
    assert list(messages) == expected
    assert list(messages) == expected, "it can be gone through again"
    assert len(messages) == len(expected)
    assert [messages[row] for row in range(len(expected))] == expected
    assert [messages[row] for row in range(-len(expected), 0)] == expected
    assert messages[some] == expected[some]
    assert messages == expected
    assert repr(messages) == f"Messages({expected!r})"
    assert all(type(message) is Message for message in messages)
    for row in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError):
            messages[row]


def test_messages_are_created_lazily_on_access() -> None:
    payloads = [b"one", b"two"]
    messages = Messages([MessageColumns(range(1, 3), [5, 6], payloads, 0)])
    looking = iter(messages)
    assert next(looking) == Message(1, 5, b"one", b"one")
    payloads[1] = b"six"
    assert next(looking).data == b"six"
