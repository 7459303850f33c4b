"""Arguments and output of ``fyrehose backbone``."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from suite.control_node import PlayNode, Reply, run_command

from fyrehose_twisted.fyrehose.cli.backbone import format_status


def member(name: str, **changed: Any) -> dict[str, Any]:
    return {
        "name": name,
        "client_address": f"10.0.0.{ord(name[0]) - 96}:2323",
        "peer_address": f"10.0.0.{ord(name[0]) - 96}:2324",
        "witness": False,
        "connected": True,
        "votes": True,
        **changed,
    }


STATUS = {
    "name": "a",
    "stream": "fyrehose://ticks",
    "state": "serving",
    "term": 1_007,
    "leader": "a",
    "leads": True,
    "lease_left": 0.6404,
    "last": 1_234,
    "bound": 17_618,
    "kept": 1_200,
    "quorum": 2,
    "witness": False,
    "members": [member("a"), member("b\x1b[2J", connected=False), member("w", witness=True)],
    "counters": {"elections": 1_000},
    "clients": 12,
    "later": "a field that this version does not know",
}

SHOWN = """\
member a of fyrehose://ticks: numbering messages
a leads in term 1,007, 640 ms of its lease left; 2 of 3 members connected, 2 have to agree
last number 1,234, bound 17,618, kept up to 1,200; 12 clients

members
  name   leads  address         peer address    connected  votes  witness
  a      yes    10.0.0.1:2323   10.0.0.1:2324   yes        yes    no
  b?[2J  no     10.0.0.2:2323   10.0.0.2:2324   no         yes    no
  w      no     10.0.0.23:2323  10.0.0.23:2324  yes        yes    yes

counts
  event      count
  elections  1,000
"""

run = partial(run_command, "backbone")


def status(**changed: Any) -> dict[str, Any]:
    return {**STATUS, **changed}


def replies(*answers: Any) -> Reply:
    """Return a node that gives one answer after the other, and repeats the last one."""
    left = list(answers)
    return lambda asked: [left.pop(0) if len(left) > 1 else left[0]]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("status", "the following arguments are required: -c/--control"),
        ("transfer b c --control tcp:1", "unrecognized arguments: c"),
        ("members remove --control tcp:1", "'remove' is not 'remove NAME'"),
        ("members add b --control tcp:1", "'add b' is not 'remove NAME'"),
        ("members remove b c --control tcp:1", "'remove b c' is not 'remove NAME'"),
    ],
)
def test_invalid_arguments_are_refused_with_exit_status_2(arguments: str, complaint: str) -> None:
    code, out, err = run(*arguments.split())
    assert (code, out) == (2, "")
    assert complaint in err


@pytest.mark.parametrize("command", ["status", "members remove b"])
def test_unreachable_control_port_is_named_in_the_error(command: str) -> None:
    code, out, err = run(*command.split(), "--control", "tcp:1")
    assert (code, out) == (1, "")
    assert err == (
        "fyrehose: no node at tcp:1: refused; check that it is the node's --control, and that you have access\n"
    )


def test_status_names_leader_lease_numbers_and_members(play: PlayNode) -> None:
    node = play(replies({"status": STATUS}))
    code, out, err = run("status", "--control", node.place)
    assert (code, err) == (0, "")
    assert out == SHOWN
    assert node.asked == [{"ask": "status"}]
    code, out, err = run("status", "--json", "--control", play(replies({"status": STATUS})).place)
    assert json.loads(out) == STATUS


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"leader": None, "leads": False}, "no member leads in term 1,007; 2 of 3 members connected, 2 have to agree"),
        ({"leader": "b", "leads": False}, "b leads in term 1,007; 2 of 3 members connected, 2 have to agree"),
        ({"quorum": 0}, "there is no group yet: start one member with --bootstrap, and connect it to all its peers"),
        ({"state": "witness"}, "member a of fyrehose://ticks: votes, and numbers no messages"),
        ({"state": "later"}, "member a of fyrehose://ticks: later"),
        (
            {"state": "standby"},
            "member a of fyrehose://ticks: standing by: another member of the group numbers messages",
        ),
    ],
)
def test_status_describes_each_state_of_a_group(changed: dict[str, Any], line: str) -> None:
    assert line in list(format_status(status(**changed)))


def test_members_are_listed_as_a_table_or_as_json(play: PlayNode) -> None:
    code, out, err = run("members", "--control", play(replies({"status": STATUS})).place)
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split() == ["a", "yes", "10.0.0.1:2323", "10.0.0.1:2324", "yes", "yes", "no"]
    assert len(out.splitlines()) == 4
    code, out, err = run("members", "--json", "--control", play(replies({"status": STATUS})).place)
    assert json.loads(out) == STATUS["members"]


def test_transfer_waits_until_the_next_leader_is_known(play: PlayNode) -> None:
    script = (
        {"status": STATUS, "transferring": "b"},
        {"status": status(leader=None, leads=False)},
        {"status": status(leader="b", leads=False, term=1_008)},
    )
    node = play(replies(*script))
    code, out, err = run("transfer", "--control", node.place)
    assert (code, err) == (0, "")
    assert out.startswith("b leads in term 1,008, after ")
    assert out.endswith(" ms\n")
    assert node.asked == [{"ask": "transfer"}, {"ask": "status"}, {"ask": "status"}]
    node = play(replies(*script))
    code, out, err = run("transfer", "b", "--json", "--control", node.place)
    assert node.asked[0] == {"ask": "transfer", "member": "b"}
    printed = json.loads(out)
    assert printed.pop("seconds") > 0
    assert printed == {"leader": "b", "term": 1_008}


@pytest.mark.parametrize("leader", ["a", "c"])
def test_transfer_fails_if_another_member_than_the_chosen_one_leads(play: PlayNode, leader: str) -> None:
    node = play(
        replies({"status": STATUS, "transferring": "b"}, {"status": status(leader=leader, leads=False, term=1_009)})
    )
    assert run("transfer", "--control", node.place) == (
        1,
        "",
        f"fyrehose: b does not lead: {leader} leads in term 1,009\n",
    )


def test_transfer_gives_up_after_its_timeout(play: PlayNode) -> None:
    waiting = status(leader=None, leads=False)
    node = play(replies({"status": STATUS, "transferring": "b"}, {"status": waiting}))
    code, out, err = run("transfer", "--timeout", "0.3", "--control", node.place)
    assert (code, out) == (1, "")
    assert err == "fyrehose: transferring b is not done within 0.3 s; no member leads in term 1,007\n"


def test_remove_waits_until_the_member_has_no_vote(play: PlayNode) -> None:
    gone = status(members=[member("a"), member("b", votes=False), member("c")])
    script = {"status": status(members=[member("a"), member("b")]), "removing": "b"}
    node = play(replies(script, {"status": status(members=[member("b")])}, {"status": gone}))
    assert run("members", "remove", "b", "--control", node.place)[:2] == (
        0,
        "b is removed; the members are a, c, 2 have to agree\n",
    )
    assert node.asked[0] == {"ask": "remove", "member": "b"}
    node = play(replies({"status": gone, "removing": "b"}))
    assert json.loads(run("members", "remove", "b", "--json", "--control", node.place)[1]) == gone["members"]


@pytest.mark.parametrize("command", ["transfer", "members"])
@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"error": "a cannot: b\x1b leads"}, "fyrehose: a cannot: b"),
        ({"status": {"name": 1}}, "status has an unknown format"),
        ({"status": 7}, "the reply of the node is not a status"),
    ],
)
def test_refusals_and_unknown_replies_are_reported_in_one_line(
    play: PlayNode, command: str, answer: dict[str, Any], complaint: str
) -> None:
    code, out, err = run(*command.split(), "--control", play(replies(answer)).place)
    assert (code, out) == (1, "")
    assert complaint in err
    assert "\x1b" not in err
    assert err.count("\n") == 1
