"""Arguments and output of the commands for hydra nodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from suite.control_node import PlayNode, run_command
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, UNIXClientEndpoint

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.cli.status import format_status, send_failure
from fyrehose_twisted.net.control.client import client_endpoint
from fyrehose_twisted.net.control.line_input import MAX_IN_FLIGHT, LineSender

STATE = {
    "network": "default",
    "tag": "a",
    "id": 7,
    "role": "cohort",
    "why": "9 inducted it",
    "term": 1_234,
    "leader": 9,
    "size": 3,
    "quorum": 2,
    "nodes": [
        {"id": 7, "tag": "a", "hops": 0, "neighbour": "", "silent": 0.0},
        {"id": 9, "tag": "b\x1b[2J", "hops": 1, "neighbour": "tcp:b:6174", "silent": 0.25},
        {"id": 11, "tag": "", "hops": None, "neighbour": "", "silent": None},
    ],
    "links": [
        {"name": "tcp:b:6174", "node": 9, "legacy": False, "open": True},
        {"name": "tcp:h:1", "node": None, "legacy": True, "open": False},
    ],
    "lease": None,
    "promised": 9,
    "irc": "closed",
    "waiting": 0,
    "expected": 17,
    "counts": {"said": 1_000},
    "summary": "member, follows b",
    "later": "something that is not known here",
}


SHOWN = """\
network default of 3 nodes, seen from a (7)
member, follows b
cohort in term 1,234: 9 inducted it
b?[2J (9) leads; 2 have to agree
IRC is closed; 0 lines queued for it; the next line from it is 17

nodes
  tag    id  hops  via         last heard
  a      7   0     -           0.0 s ago
  b?[2J  9   1     tcp:b:6174  0.2 s ago
  -      11  -     -           -

links
  link        node  protocol   open
  tcp:b:6174  9     hydra      yes
  tcp:h:1     -     reference  no

counts
  event  count
  said   1,000"""


run = partial(run_command, "hydra")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("status", "the following arguments are required: -c/--control"),
        ("say --control tcp:1 --timeout 0", "'0' is not a time above 0"),
        ("follow --control tcp:1 --count 0", "'0' is not a whole number above 0"),
    ],
)
def test_invalid_arguments_are_refused_with_exit_status_2(arguments: str, complaint: str) -> None:
    status, out, err = run(*arguments.split())
    assert (status, out) == (2, "")
    assert complaint in err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            "status --control tcp:1",
            "no node at tcp:1: refused; check that it is the node's --control, and that you have access",
        ),
        ("say --control /nowhere/x hi", "no node at /nowhere/x: "),
        (
            "follow --control nonsense:1",
            "--control 'nonsense:1' is not an endpoint such as unix:/run/node.sock",
        ),
    ],
)
def test_command_failure_is_reported_in_one_line(arguments: str, complaint: str) -> None:
    status, out, err = run(*arguments.split())
    assert (status, out) == (1, "")
    assert err.startswith(f"fyrehose: {complaint}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("unix:/run/x", UNIXClientEndpoint),
        ("unix:/run/x:mode=600", UNIXClientEndpoint),
        ("unix:x", UNIXClientEndpoint),
        ("/run/x", UNIXClientEndpoint),
        ("6175", TCP4ClientEndpoint),
        ("tcp:6175", TCP4ClientEndpoint),
        ("tcp:6175:interface=127.0.0.1", TCP4ClientEndpoint),
    ],
)
def test_control_address_selects_the_kind_of_endpoint(place: str, kind: type) -> None:
    assert isinstance(client_endpoint(place, None), kind)


@pytest.mark.parametrize("place", ["", "tcp:", "tcp:0", "tcp:99999", "x"])
def test_invalid_control_address_is_refused(place: str) -> None:
    with pytest.raises(ConfigurationError):
        client_endpoint(place, None)


def test_network_status_is_formatted_as_text() -> None:
    shown = "\n".join(format_status(STATE))
    assert shown == SHOWN
    leading = "\n".join(format_status({**STATE, "leader": 7, "lease": 3.21, "size": None}))
    assert "network default of any number of nodes" in leading
    assert "this node leads, its lease ends in 3.2 s; 2 have to agree" in leading
    assert "no node leads; 2 have to agree" in "\n".join(format_status({**STATE, "leader": None}))


def test_status_prints_text_or_json(play: PlayNode) -> None:
    node = play(lambda asked: [{"status": STATE}])
    status, out, err = run("status", "--control", node.place)
    assert (status, err) == (0, "")
    assert out == "\n".join(format_status(STATE)) + "\n"
    assert node.asked == [{"ask": "status"}]
    status, out, err = run("status", "--json", "--control", play(lambda asked: [{"status": STATE}]).place)
    assert json.loads(out) == STATE
    for answer, complaint in (
        ([{"status": {"role": 1}}], "status has an unknown format; try --json"),
        ([{"error": "no"}], "fyrehose: no\n"),
        ([b"nonsense\n"], "the node closed the connection: malformed"),
        ([None], "the node closed the connection: closed"),
    ):
        status, out, err = run("status", "--control", play(lambda asked, answer=answer: answer).place)
        assert (status, out) == (1, "")
        assert complaint in err
        assert err.count("\n") == 1
    status, _, err = run("status", "--timeout", "0.2", "--control", play(lambda asked: []).place)
    assert (status, err) == (1, "fyrehose: the node did not answer within 0.2 s\n")


def said(outcome: str, why: str = "") -> Callable[[dict[str, Any]], list[Any]]:
    return lambda asked: [{"said": outcome, "why": why, "id": asked["id"]}]


def test_say_sends_lines_and_reports_refused_ones(play: PlayNode) -> None:
    node = play(said("said"))
    assert run("say", "--control", node.place, "PRIVMSG", "#c", ":hi there", "--retry") == (0, "", "")
    assert node.asked == [{"ask": "say", "line": "PRIVMSG #c :hi there", "retry": True, "id": 1}]
    node = play(said("said"))
    lines = b"PRIVMSG #c :\xff\r\n" + b"".join(b"PRIVMSG #c :%d\n" % number for number in range(500))
    status, out, err = run("say", "--control", node.place, data=lines)
    assert (status, out) == (0, ""), err
    assert [asked["line"] for asked in node.asked[:2]] == ["PRIVMSG #c :\udcff", "PRIVMSG #c :0"]
    assert len(node.asked) == 501
    for outcome, why, complaint in (
        ("uncertain", "no-answer", "no-answer: the line may or may not have been sent"),
        ("refused", "no-leader", "no-leader: the line was not sent and will not be"),
    ):
        assert run("say", "--control", play(said(outcome, why)).place, "x") == (1, "", f"fyrehose: {complaint}\n")
    status, _, err = run("say", "--control", play(said("refused", "no-leader")).place, data=b"a\nb\n")
    assert status == 1
    assert err.splitlines()[-1] == (
        "fyrehose: 2 of 2 lines not sent: line 1: no-leader: the line was not sent and will not be"
    )
    assert send_failure({"error": "it is bad", "id": 1}) == "it is bad"


def test_lines_that_were_sent_do_not_count_as_unsent(play: PlayNode) -> None:
    def answer(asked: dict[str, Any]) -> list[Any]:
        return said("refused", "no-leader")(asked) if asked["line"] == "b" else said("said")(asked)

    status, _, err = run("say", "--control", play(answer).place, data=b"a\nb\nc\n")
    assert status == 1
    assert err.splitlines()[-1].startswith("fyrehose: 1 of 3 lines not sent: line 2: no-leader")


def test_lines_in_flight_are_limited_to_what_a_node_accepts() -> None:
    pending: list[Deferred[int]] = []

    async def send(line: bytes) -> int:
        pending.append(Deferred())
        return await pending[-1]

    sender = LineSender(100, "lines", send)
    results = []
    for _ in range(MAX_IN_FLIGHT):
        assert Deferred.fromCoroutine(sender.when_room()).called
        results.append(sender.publish(b"PRIVMSG #c :x"))
    room = Deferred.fromCoroutine(sender.when_room())
    assert not room.called
    pending[7].callback(0)
    assert room.called
    assert [number for number, result in enumerate(results) if result.called] == [7]
    sender.stop(None)


def test_follow_prints_lines_gaps_and_leaders(play: PlayNode) -> None:
    told = [
        {"following": True},
        {"leader": 9, "tag": "b", "term": 3},
        {"line": ":n PRIVMSG #c :\udcff", "term": 3, "number": 1},
        {"missed": [2, 5], "term": 3},
        {"leader": None, "tag": "", "term": 3},
        {"line": ":n PRIVMSG #c :b", "term": 3, "number": 6},
        {"line": ":n PRIVMSG #c :c", "term": 3, "number": 7},
    ]
    status, out, err = run("follow", "--count", "2", "--control", play(lambda asked: told).place)
    assert (status, out) == (0, ":n PRIVMSG #c :\udcff\n:n PRIVMSG #c :b\n")
    assert err.splitlines() == [
        "fyrehose: b (9) leads in term 3",
        "fyrehose: lines 2 to 5 of term 3 were not received",
        "fyrehose: no node leads in term 3",
    ]
    status, out, err = run("follow", "--json", "--control", play(lambda asked: [*told, None]).place)
    assert [json.loads(line) for line in out.splitlines()] == told[1:]
    assert (status, err) == (1, "fyrehose: the node closed the connection: closed\n")


@pytest.mark.parametrize(
    ("answer", "status", "shown"),
    [
        ({"reloaded": ["joins #c", "bots Karma"]}, 0, "joins #c; bots Karma\n"),
        ({"reloaded": []}, 0, "no changes\n"),
        ({"error": "the file is bad"}, 1, "fyrehose: the file is bad\n"),
    ],
)
def test_reload_prints_what_has_changed(play: PlayNode, answer: dict[str, Any], status: int, shown: str) -> None:
    def reply(asked: dict[str, Any]) -> list[Any]:
        return [answer] if asked == {"ask": "reload"} else []

    found, out, err = run("reload", "--control", play(reply).place)
    assert (found, out + err) == (status, shown)
