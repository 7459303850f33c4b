"""``fyrehose freenet`` on the command line."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from suite.control_node import PlayNode, run_command

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.freenet.cli.publish import format_status, publish
from fyrehose_twisted.freenet.wire.signing import SigningKey, named_key, verify

KEY = named_key("news")
STATE: dict[str, Any] = {
    "node": "00000000000000ab",
    "boot": "1",
    "location": 0.5,
    "requests": 3,
    "neighbours": [
        {"node": "01", "location": 0.25, "linked": True, "silent": 1.4},
        {"node": "\x1b[2J", "location": 0.125, "linked": False, "silent": None},
    ],
    "streams": [
        {
            "key": "ab" * 20,
            "location": 0.75,
            "phase": "settled",
            "parent": None,
            "is_root": True,
            "subscribers": ["01", "02"],
            "local": True,
            "newest": 1_234,
            "root": 0.5,
        },
        {
            "key": "cd" * 20,
            "location": 0.75,
            "phase": "searching",
            "parent": None,
            "is_root": False,
            "subscribers": [],
            "local": False,
            "newest": None,
            "root": None,
        },
    ],
    "counts": {"loops": 1_000},
    "later": "something that is not known here",
}
SHOWN = f"""\
node 00000000000000ab at 0.500000 on the ring, 3 requests pending

neighbours
  node   location  linked  silent for
  01     0.250000  yes     1 s
  ?[2J   0.125000  no      -

streams
  key                                       location  phase      parent  subscribers  own  newest
  {"ab" * 20}  0.750000  settled    (root)  2            yes  1,234
  {"cd" * 20}  0.750000  searching  -       0            no   -

counts
  event  count
  loops  1,000"""


run = partial(run_command, "freenet")


def test_status_prints_neighbours_and_streams(play: PlayNode) -> None:
    assert "\n".join(format_status(STATE)).replace("\x1b", "?").splitlines()[:2] == SHOWN.splitlines()[:2]
    status, out, err = run("status", "--control", play(lambda asked: [{"status": STATE}]).place)
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [line.split() for line in SHOWN.splitlines()]
    status, out, _ = run("status", "--control", play(lambda asked: [{"status": STATE}]).place, "--json")
    assert (status, json.loads(out)) == (0, STATE)
    assert run("status", "--control", play(lambda asked: [{"status": {}}]).place) == (
        1,
        "",
        "fyrehose: the node's status has an unknown format; try --json\n",
    )


def test_subscribe_prints_packets_gaps_and_changes(play: PlayNode) -> None:
    def tell(asked: dict[str, Any]) -> list[Any]:
        told = [
            {"key": "00", "number": 7, "data": "a"},
            {"missed": [8, 1_009]},
            {"change": "Restarting", "reason": "x"},
        ]
        return [{"following": asked["key"]}, *told, {"key": "00", "number": 10, "data": "\udcff"}]

    node = play(tell)
    arguments = "subscribe", "--control", node.place, "--after", "6", "--count", "2", "name:news"
    assert run(*arguments) == (
        0,
        "a\n\udcff\n",
        "fyrehose: packets 8 to 1,009 were not received\nfyrehose: restarting: reason x\n",
    )
    assert node.asked == [{"ask": "subscribe", "key": KEY.hex(), "after": 6}]
    status, out, err = run("subscribe", "--control", play(tell).place, "--json", "--count", "1", "name:news")
    assert (status, json.loads(out), err) == (0, {"key": "00", "number": 7, "data": "a"}, "")
    full = play(lambda asked: [{"following": asked["key"]}, {"error": "no room"}])
    assert run("subscribe", "--control", full.place, "name:news") == (1, "", "fyrehose: no room\n")


def test_subscribe_fails_when_too_few_packets_arrive_in_time(play: PlayNode) -> None:
    def tell(asked: dict[str, Any]) -> list[Any]:
        return [{"following": asked["key"]}, {"key": "00", "number": 7, "data": "a"}]

    arguments = "subscribe", "--control", play(tell).place, "--count", "3", "--within", "1.5", "name:news"
    assert run(*arguments) == (1, "a\n", "fyrehose: only 1 of 3 packets arrived within 1.5 s (--within)\n")
    arguments = "subscribe", "--control", play(tell).place, "--count", "1", "--within", "60", "name:news"
    assert run(*arguments) == (0, "a\n", "")
    arguments = "subscribe", "--control", play(tell).place, "--within", "60", "name:news"
    assert run(*arguments) == (1, "", "fyrehose: --within requires --count N\n")


def test_publish_sends_words_or_input_and_prints_the_number(play: PlayNode) -> None:
    node = play(lambda asked: [{"id": asked["id"], "number": 18}])
    assert run("publish", "--control", node.place, "name:news", "two", "words") == (0, "18\n", "")
    expected = {"ask": "publish", "key": KEY.hex(), "data": "two words", "number": None, "id": 1}
    assert node.asked == [{**expected, "allow_no_subscribers": False}]
    node = play(lambda asked: [{"id": asked["id"], "number": 18}])
    assert run("publish", "--control", node.place, "--allow-no-subscribers", "name:news", "x")[0] == 0
    assert node.asked[0]["allow_no_subscribers"] is True
    node = play(lambda asked: [{"id": asked["id"], "number": asked["id"] + 17}])
    status, out, err = run("publish", "--control", node.place, "name:news", data=b"a\n\xff\n")
    assert (status, out) == (0, "18\n19\n"), err
    assert [asked["data"] for asked in node.asked] == ["a", "\udcff"]
    refused = play(lambda asked: [{"id": asked["id"], "error": "it is taken", "why": "collision", "next": 5}])
    assert run("publish", "--control", refused.place, "--number", "4", "name:news", "x") == (
        1,
        "",
        "fyrehose: it is taken\n",
    )
    assert refused.asked[0]["number"] == 4
    refused = play(lambda asked: [{"id": asked["id"], "error": "it is taken", "why": "collision", "next": 5}])
    status, _, err = run("publish", "--control", refused.place, "name:news", data=b"a\nb\n")
    assert status == 1
    assert err.splitlines()[-1] == "fyrehose: 2 of 2 lines not published: line 1: it is taken"


def test_signed_packets_get_other_numbers_until_one_is_free(play: PlayNode, tmp_path: Path) -> None:
    signing = SigningKey.generate()
    signing.write(tmp_path / "key")

    def answer(asked: dict[str, Any]) -> list[Any]:
        if asked["ask"] == "next":
            return [{"next": 7}]
        if asked["number"] in (7, 20):
            return [{"id": asked["id"], "error": "taken", "why": "collision", "next": asked["number"] + 13}]
        return [{"id": asked["id"], "number": asked["number"]}]

    node = play(answer)
    arguments = "publish", "--control", node.place, "--key-file", str(tmp_path / "key"), signing.key.hex()
    status, out, err = run(*arguments, data=b"one\ntwo\n")
    assert (status, out) == (0, "33\n34\n"), err
    published = [asked for asked in node.asked if asked["ask"] == "publish"]
    assert [asked["number"] for asked in published] == [7, 20, 33, 34]
    for asked in published:
        data = asked["data"].encode("utf-8", "surrogateescape")
        assert verify(signing.key, asked["number"], data)
    # Who never finds a free one gives up.
    greedy = play(
        lambda asked: [{"next": 0, "id": asked.get("id"), "error": "taken"} if "id" in asked else {"next": 0}]
    )
    status, _, err = run(
        "publish", "--control", greedy.place, "--key-file", str(tmp_path / "key"), signing.key.hex(), "x"
    )
    assert (status, err) == (1, "fyrehose: taken\n")
    assert len(greedy.asked) == 17


@pytest.mark.parametrize(
    ("named", "complaint"),
    [
        ({"key": "xyz"}, "'xyz' is not a key"),
        ({"key": SigningKey(bytes(32)).key.hex()}, "must be signed; give --key-file FILE"),
        ({"number": 7}, "--number requires a packet on the command line"),
    ],
)
def test_invalid_publish_options_are_refused_before_connecting(named: dict[str, Any], complaint: str) -> None:
    options = argparse.Namespace(**{"key": "name:x", "key_file": None, "number": None, "packet": []} | named)
    with pytest.raises(ConfigurationError, match=complaint):
        publish(options, None, None).send(None)  # type: ignore[arg-type]


def test_key_prints_and_creates_stream_keys(tmp_path: Path) -> None:
    status, out, _ = run("key", "name:news")
    assert (status, out.split()[0]) == (0, KEY.hex())
    status, out, _ = run("key", "--new", "mine", cwd=tmp_path)
    assert (status, out[:8]) == (0, "ed25519f")
    assert run("key", "mine", cwd=tmp_path) == (0, out, "")
    status, _, err = run("key", "--new", "mine", cwd=tmp_path)
    assert (status, err) == (1, "fyrehose: key file mine exists already; choose another name\n")
    (tmp_path / "mine").chmod(0o644)
    status, _, err = run("key", "mine", cwd=tmp_path)
    assert (status, err) == (1, "fyrehose: key file mine is accessible to other users; chmod 600 it\n")
    assert run("key", "nonsense")[0] == 1


def test_commands_without_a_running_node_fail() -> None:
    status, _, err = run("status", "--control", "tcp:1")
    assert (status, err) == (
        1,
        "fyrehose: no node at tcp:1: refused; check that it is the node's --control, and that you have access\n",
    )
