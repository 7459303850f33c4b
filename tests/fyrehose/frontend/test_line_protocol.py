"""Line protocol of the frontend."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite.frontend_bench import Frontend

from fyrehose_twisted.errors import NotConnected, PublishTimeout
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.wire.envelope import MAX_ENVELOPED
from fyrehose_twisted.fyrehose.wire.message_key import add_key
from fyrehose_twisted.fyrehose.wire.packets import Holding
from fyrehose_twisted.web.tokens import Tokens

TOKENS = Tokens({"ann": b"a" * 16, "bob": b"b" * 16})


def test_each_line_is_answered_with_its_sequence_number(frontend: Frontend) -> None:
    client = frontend.connect().send(b"one\ntwo\r\n")
    assert (client.answers, frontend.publisher.messages) == (["1", "2"], [b"one", b"two"])
    client.send(b"thr").send(b"ee\nfo")
    assert client.answers == ["1", "2", "3"]


def test_lines_that_require_journals_are_answered_after_the_sync() -> None:
    frontend = Frontend(kept=1)
    client = frontend.connect().send(b"one\n\ntwo\n").send(b"three\n")
    frontend.publish_queue.journals.holdings_received([Holding(1, 2)])
    assert client.answers == ["1", "error empty", "2"]
    frontend.clock.pump([1] * 31)
    assert client.answers[3:] == ["error not-kept 3"]
    assert (frontend.lines.counters["lines"], frontend.lines.counters["errors"]) == (2, 2)
    client.send(b"four\nfive\n").end()
    frontend.publish_queue.stop()
    assert client.answers[4:] == ["error not-kept 4", "error not-kept 5"]


def test_the_last_line_needs_no_newline(frontend: Frontend) -> None:
    client = frontend.connect().send(b"one\ntwo").end()
    assert (client.answers, frontend.publisher.messages) == (["1", "2"], [b"one", b"two"])
    assert client.wire.disconnecting
    assert client.wire.producer is None


def test_an_empty_connection_is_closed_without_a_reply(frontend: Frontend) -> None:
    client = frontend.connect().end()
    assert (client.answers, client.wire.disconnecting) == ([], True)


def test_empty_lines_are_answered_with_an_error(frontend: Frontend) -> None:
    client = frontend.connect().send(b"\none\n\r\n\ntwo\n")
    assert client.answers == ["error empty", "1", "error empty", "error empty", "2"]


def test_lines_that_are_too_long_are_answered_with_an_error(frontend: Frontend) -> None:
    longest = b"x" * MAX_ENVELOPED
    client = frontend.connect()
    client.send(b"one\n" + longest + b"\n" + longest + b"\r\n" + longest + b"y\ntwo\n")
    assert client.answers == ["1", "2", "3", "error too-large", "4"]
    client.send(longest).send(b"y" * 100).send(longest).send(b"\nthree\n")
    assert client.answers[5:] == ["error too-large", "5"]
    assert [len(message) for message in frontend.publisher.messages] == [3, MAX_ENVELOPED, MAX_ENVELOPED, 3, 5]
    client.send(longest * 2).end()
    assert client.answers[7:] == ["error too-large"]


def test_replies_keep_the_order_of_lines(frontend: Frontend) -> None:
    frontend.publisher.held = []
    client = frontend.connect().send(b"1\n").send(b"\n").send(b"2\n")
    assert client.answers == []
    held = frontend.publisher.held
    held[1][0].callback(held[1][1])
    assert client.answers == []
    held[0][0].callback(held[0][1])
    assert client.answers == ["1", "error empty", "2"]


def test_invalid_lines_do_not_split_batches(frontend: Frontend) -> None:
    client = frontend.connect().send(b"x\n\n" * 1_000)
    assert client.answers == [answer for number in range(1, 1_001) for answer in (str(number), "error empty")]
    # Errors are reported within the batch, since separate batches would delay other clients.
    assert sum(frontend.publisher.runs) == 1_000
    assert len(frontend.publisher.runs) == 8


def test_error_replies_keep_their_order_when_a_batch_fails(frontend: Frontend) -> None:
    frontend.publisher.held = []
    client = frontend.connect().send(b"1\n\n2\n" + b"x" * (MAX_ENVELOPED + 1) + b"\n3\n")
    frontend.publisher.answer(PublishTimeout("late"))
    assert client.answers == ["error unknown", "error empty", "error unknown", "error too-large", "error unknown"]
    assert frontend.lines.counters["errors"] == 5
    assert frontend.lines.counters["lines"] == 0


def test_a_half_closed_connection_is_aborted_if_the_client_does_not_read(frontend: Frontend) -> None:
    client = frontend.connect().send(b"x\n").end()
    assert client.wire.disconnecting
    frontend.clock.advance(29)
    assert not client.wire.aborted
    frontend.clock.advance(1)
    assert client.wire.aborted
    assert frontend.lines.counters["stalled"] == 1
    client.close()
    assert frontend.clock.getDelayedCalls() == []


def test_failed_lines_are_answered_with_an_error(frontend: Frontend) -> None:
    frontend.publisher.held = []
    client = frontend.connect().send(b"1\n2\n")
    frontend.publisher.answer(PublishTimeout("late"))
    frontend.publish_queue.connection_changed(False)
    client.send(b"3\n")
    frontend.clock.pump([1] * 31)
    assert client.answers == ["error unknown", "error unknown", "error not-published"]


def test_all_replies_are_sent_before_the_connection_is_closed(frontend: Frontend) -> None:
    frontend.publisher.held = []
    client = frontend.connect().send(b"1\n2\n").end()
    assert not client.wire.disconnecting
    frontend.publisher.answer()
    assert (client.answers, client.wire.disconnecting) == (["1", "2"], True)


def test_reading_pauses_while_too_many_lines_are_unanswered() -> None:
    frontend = Frontend(FrontendConfig(unanswered_lines=10))
    frontend.publisher.held = []
    client = frontend.connect().send(b"x\n" * 9)
    assert client.is_read
    client.send(b"x\n")
    assert not client.is_read
    frontend.publisher.answer()
    assert client.is_read
    assert client.answers == [str(number) for number in range(1, 11)]


def test_reading_pauses_while_the_publish_queue_is_full() -> None:
    frontend = Frontend(FrontendConfig(waiting_bytes_per_client=1_000))
    frontend.publisher.full = True
    client = frontend.connect().send(b"x" * 900 + b"\n").send(b"y" * 900 + b"\n")
    assert not client.is_read
    frontend.publisher.make_room()
    frontend.clock.advance(0.05)
    assert client.is_read
    assert client.answers == ["1", "2"]


def test_lines_of_one_read_respect_the_limit_of_unanswered_lines() -> None:
    frontend = Frontend(FrontendConfig(unanswered_lines=600))
    frontend.publisher.held = []
    client = frontend.connect().send(b"x\n" * 5_000 + b"\n" * 2_000)
    assert sum(frontend.publisher.runs) < 600 + 256
    client.end()
    while frontend.publisher.held:
        waiting, frontend.publisher.held = frontend.publisher.held, []
        assert sum(len(numbers) for _, numbers in waiting) < 600 + 256
        for deferred, numbers in waiting:
            deferred.callback(numbers)
    assert client.answers == [str(number) for number in range(1, 5_001)] + ["error empty"] * 2_000


def test_a_line_that_is_too_long_is_answered_in_order() -> None:
    frontend = Frontend(FrontendConfig(unanswered_lines=600))
    frontend.publisher.held = []
    client = frontend.connect().send(b"x\n" * 2_000 + b"y" * (MAX_ENVELOPED + 2))
    # TLS delivers buffered data even while paused.
    assert not client.is_read
    client.send(b"y\nz\n")
    while frontend.publisher.held:
        waiting, frontend.publisher.held = frontend.publisher.held, []
        for deferred, numbers in waiting:
            deferred.callback(numbers)
    assert client.answers == [*map(str, range(1, 2_001)), "error too-large", "2001"]


@pytest.mark.parametrize("is_gone", [False, True])
def test_many_waiting_connections_are_all_answered_at_once(is_gone: bool) -> None:
    frontend = Frontend(FrontendConfig(unanswered_lines=4))
    frontend.publisher.full = True
    clients = [frontend.connect(f"127.0.{number // 50}.1").send(b"x\n" * 12) for number in range(400)]
    if is_gone:

        def gone(messages: Any) -> Any:
            raise NotConnected("the publisher is gone")

        frontend.publisher.publish_many = gone
    frontend.publisher.make_room()
    assert {len(client.answers) for client in clients} == {12}
    assert all(client.is_read for client in clients)


def test_invalid_lines_count_against_the_rate_limit() -> None:
    frontend = Frontend(FrontendConfig(messages_per_client=100, burst=1))
    client = frontend.connect().send(b"\n" * 400)
    assert (len(client.answers), client.is_read) == (256, False)
    frontend.clock.advance(1.5)
    assert len(client.answers) == 256
    frontend.clock.advance(0.1)
    assert (len(client.answers), client.is_read) == (400, True)
    other = frontend.connect().send(b"x\n")
    assert other.answers == []


def test_reading_pauses_while_a_client_is_above_its_rate() -> None:
    frontend = Frontend(FrontendConfig(messages_per_client=10, burst=1))
    client = frontend.connect().send(b"x\n" * 20).send(b"y\n")
    assert (len(client.answers), client.is_read) == (20, False)
    frontend.clock.advance(0.5)
    assert not client.is_read
    frontend.clock.advance(0.6)
    assert (len(client.answers), client.is_read) == (21, True)
    # Connections of one client share its rate limit.
    client.send(b"x\n" * 20)
    other = frontend.connect().send(b"z\n")
    assert other.answers == []
    assert frontend.connect("127.0.0.2").send(b"z\n").answers != []


def test_reading_pauses_while_a_client_does_not_read_replies(frontend: Frontend) -> None:
    client = frontend.connect()
    client.wire.producer.pauseProducing()
    assert not client.is_read
    frontend.clock.advance(29)
    client.wire.producer.resumeProducing()
    assert client.is_read
    client.wire.producer.pauseProducing()
    frontend.clock.advance(30)
    assert client.wire.aborted
    assert frontend.lines.counters["stalled"] == 1


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /messages HTTP/1.1\r\nHost: localhost\r\n\r\nmessage\n",
        b"POST / HTTP/1.0\nmessage\n",
        b"get /x?a=b HTTP/1.1\r\n",
        b"OPTIONS * HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\n\n",
        bytes.fromhex("000300082112a442") + b"\n23456789012345678\nmessage\n",
        bytes.fromhex("001c000100082112a442") + b"\n23456789012345678\nmessage\n",
    ],
)
@pytest.mark.parametrize("tokens", [None, TOKENS])
def test_requests_of_browsers_are_refused(request_: bytes, tokens: Any) -> None:
    frontend = Frontend(tokens=tokens)
    client = frontend.connect()
    for byte in request_:
        client.send(bytes([byte]))
    client.send(b"more\n")
    assert (client.answers, client.wire.disconnecting) == (["error http"], True)
    assert frontend.publisher.messages == []


@pytest.mark.parametrize("size", [1_000, 65_536, 2**20])
@pytest.mark.parametrize("tokens", [None, TOKENS])
def test_http_requests_with_a_long_path_are_refused(size: int, tokens: Any) -> None:
    frontend = Frontend(tokens=tokens)
    client = frontend.connect()
    request = b"POST /" + b"x" * (2 * MAX_ENVELOPED) + b" HTTP/1.1\r\nHost: localhost\r\n\r\nmessage\n"
    for start in range(0, len(request), size):
        client.send(request[start : start + size])
    assert client.wire.disconnecting
    assert len(client.answers) == 1
    assert frontend.publisher.messages == []


@pytest.mark.parametrize("cut", [1, MAX_ENVELOPED + 2])
def test_a_first_line_that_is_too_long_ends_the_connection(frontend: Frontend, cut: int) -> None:
    client = frontend.connect()
    line = b"x" * (MAX_ENVELOPED + 2) + b"\nmore\n"
    client.send(line[:cut]).send(line[cut:])
    assert (client.answers, client.wire.disconnecting) == (["error too-large"], True)
    assert frontend.publisher.messages == []


def test_a_later_line_may_look_like_an_http_request(frontend: Frontend) -> None:
    client = frontend.connect().send(b"GET it\nGET / HTTP/1.1\n")
    assert client.answers == ["1", "2"]


class TestTokens:
    def test_a_connection_without_a_token_is_refused(self) -> None:
        frontend = Frontend(tokens=TOKENS)
        for first in (b"message\n", b"token\n", b"token \n", b"token " + b"c" * 16 + b"\n", b"x" * 600):
            client = frontend.connect().send(first + b"more\n")
            assert (client.answers, client.wire.disconnecting) == (["error token"], True), first
        assert frontend.publisher.messages == []

    def test_a_connection_with_a_valid_token_is_admitted(self) -> None:
        frontend = Frontend(tokens=TOKENS)
        client = frontend.connect().send(b"token " + b"a" * 16 + b"\r\none\n")
        assert (client.answers, frontend.publisher.messages) == (["1"], [b"one"])
        assert client.protocol.client == "ann"

    def test_a_connection_without_a_token_times_out(self) -> None:
        frontend = Frontend(tokens=TOKENS)
        client = frontend.connect().send(b"token")
        frontend.clock.advance(30)
        assert (client.answers, client.wire.disconnecting) == (["error timeout"], True)

    def test_limits_of_lines_apply_per_token(self) -> None:
        frontend = Frontend(FrontendConfig(line_connections_per_client=1), TOKENS)
        clients = [frontend.connect().send(b"token " + token * 16 + b"\nx\n") for token in (b"a", b"a", b"b")]
        assert [client.answers for client in clients] == [["1"], ["error too-many-connections"], ["2"]]
        clients[0].close()
        assert frontend.connect().send(b"token " + b"a" * 16 + b"\nx\n").answers == ["3"]


def test_the_number_of_line_connections_is_limited() -> None:
    frontend = Frontend(FrontendConfig(max_line_connections=3, line_connections_per_client=2))
    clients = [frontend.connect() for _ in range(2)]
    third = frontend.connect()
    assert third.answers == ["error too-many-connections"]
    third.close()
    other = frontend.connect("127.0.0.2")
    assert frontend.connect("127.0.0.3").protocol is None
    assert len(frontend.lines) == 3
    for client in (*clients, other):
        client.close()
    assert len(frontend.lines) == 0
    assert frontend.lines.refused == 2
    assert not frontend.lines._connections_by_client


def test_a_closed_connection_leaves_nothing_pending(frontend: Frontend) -> None:
    frontend.publisher.full = True
    client = frontend.connect().send(b"one\n")
    client.close()
    assert len(frontend.publish_queue) == 0
    frontend.publisher.make_room()
    assert frontend.publisher.messages == []
    frontend.clock.advance(2)
    assert frontend.clock.getDelayedCalls() == []


def test_stopping_answers_pending_lines_and_closes_connections() -> None:
    frontend = Frontend(FrontendConfig(messages_per_client=10, burst=0.1))
    frontend.publisher.held = []
    client = frontend.connect().send(b"1\n2\n").send(b"3\n4\n")
    frontend.lines.close()
    assert not client.wire.disconnecting
    frontend.publisher.answer()
    assert client.answers == ["1", "2", "error not-published", "error not-published"]
    assert client.wire.disconnecting


def test_replies_do_not_depend_on_how_bytes_are_split() -> None:
    @given(st.lists(st.binary(max_size=12), max_size=30), st.integers(0, 2**32))
    def check(lines: list[bytes], seed: int) -> None:
        lines = [line.replace(b"\n", b"").rstrip(b"\r") for line in lines]
        if lines and (b" HTTP/" in lines[0] or lines[0].startswith(b"\x16\x03")):
            return
        frontend, rng = Frontend(), random.Random(seed)
        client = frontend.connect()
        data = b"".join(line + b"\n" for line in lines)
        while data:
            cut = rng.randint(1, 8)
            client.send(data[:cut])
            data = data[cut:]
        client.end()
        assert frontend.publisher.messages == [line for line in lines if line]
        assert len(client.answers) == len(lines)
        assert [answer == "error empty" for answer in client.answers] == [not line for line in lines]

    check()


def test_an_unauthenticated_connection_is_closed_for_a_new_one() -> None:
    frontend = Frontend(FrontendConfig(max_line_connections=2), TOKENS)
    known, stranger = frontend.connect().send(b"token " + b"a" * 16 + b"\nx\n"), frontend.connect().send(b"token")
    other = frontend.connect().send(b"token " + b"b" * 16 + b"\ny\n")
    assert stranger.wire.aborted
    assert (known.answers, other.answers) == (["1"], ["2"])
    stranger.close()
    assert len(frontend.lines) == 2
    assert frontend.connect().protocol is None
    assert frontend.lines.refused == 2


def test_unread_lines_do_not_discard_replies() -> None:
    frontend = Frontend()
    client = frontend.connect().send(b"1\n")
    frontend.lines.close()
    # The client may still be sending, so its lines are read and dropped until it closes.
    assert client.is_read
    assert client.wire.half_closed
    client.send(b"2\n")
    assert (client.answers, frontend.publisher.messages) == (["1"], [b"1"])
    client.end()
    assert not client.wire.half_closed


def test_lines_begin_with_a_key_if_a_separator_is_set() -> None:
    frontend = Frontend(FrontendConfig(key_separator=b"\t"))
    client = frontend.connect().send(b"a\t1\nno key\n\n\tempty\nb\t2\t3\n%b\n" % (b"c\t" + bytes(MAX_ENVELOPED)))
    assert client.answers == ["1", "error no-key", "error empty", "error no-key", "2", "error too-large"]
    assert frontend.publisher.messages == [add_key(b"1", b"a"), add_key(b"2\t3", b"b")]
