"""View of IRC that all nodes get from the lines: channels to join, members and their modes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.hydra.irc import channels, roster
from fyrehose_twisted.hydra.irc.bots import parse_line
from fyrehose_twisted.hydra.irc.channels import MAX_CHANNELS, Channel
from fyrehose_twisted.hydra.irc.view import VIEW_COMMANDS, IrcView
from fyrehose_twisted.hydra.wire.lines import add_tag, command_of

CONFIGURED = (Channel("#c"), Channel("#keyed", "old"))
CONNECTED = [
    b":s 005 bot CASEMAPPING=rfc1459 PREFIX=(ov)@+ CHANMODES=b,k,l,mnt :are supported by this server",
    b":bot!u@h JOIN :#c",
    b":s 353 bot = #c :@anna +bob bot",
]


class Feed:
    """A view and the lines that it gets."""

    def __init__(self) -> None:
        self.view = IrcView()
        self.term = 1
        self.number = 0

    def __call__(self, *lines: bytes, ours: bool = False) -> IrcView:
        for line in lines:
            assert command_of(line) in VIEW_COMMANDS
            self.number += 1
            raw = add_tag(f"a.{self.number}", b":bot!u@h " + line) if ours else line
            self.view.line_received(parse_line(raw, self.term, self.number))
        return self.view

    def joins(self) -> dict[str, str | None]:
        return {channel.name: channel.key for channel in self.view.to_join(CONFIGURED)}


@pytest.fixture
def feed() -> Feed:
    return Feed()


def test_members_and_their_modes_follow_the_lines(feed: Feed) -> None:
    view = feed(*CONNECTED)
    assert (view.nick, view.joined) == ("bot", ["#c"])
    assert view.members("#C") == {"anna": "o", "bob": "v", "bot": ""}
    assert view.is_op("#c", "ANNA")
    assert not view.is_op("#c", "bob")
    assert [view.has_voice("#c", nick) for nick in ("anna", "bob", "bot", "nobody")] == [True, True, False, False]
    feed(b":carl!u@h JOIN #c", b":anna!u@h MODE #c +vbo-v bob *!*@spam carl bob", b":bob!u@h NICK Robert")
    assert view.members("#c") == {"anna": "o", "bot": "", "carl": "o", "Robert": ""}
    feed(b":carl!u@h KICK #c anna :bye", b":Robert!u@h QUIT :gone")
    assert view.members("#c") == {"bot": "", "carl": "o"}
    feed(b":carl!u@h PART #c :x")
    assert (view.is_in("#c", "carl"), view.is_in("#c", "bot"), view.is_in("#d", "bot")) == (False, True, False)


def test_names_tell_the_channel_of_a_server_that_announces_nothing(feed: Feed) -> None:
    view = feed(b":bot!u@h JOIN #c", b":s 353 bot @ #c :bot @anna")
    assert (view.nick, view.members("#c")) == ("bot", {"bot": "", "anna": "o"})


def test_all_modes_of_a_member_are_known_with_multi_prefix(feed: Feed) -> None:
    view = feed(*CONNECTED, b":s 353 bot = #c :@+anna", b":x!u@h MODE #c -o anna")
    assert view.members("#c")["anna"] == "v"


def test_members_are_forgotten_when_the_leader_leaves_or_changes(feed: Feed) -> None:
    view = feed(*CONNECTED, b":anna!u@h KICK #c bot :out")
    assert (view.joined, view.members("#c")) == ([], {})
    feed(b":bot!u@h JOIN #c", b":s 353 bot = #c :anna")
    assert view.members("#c") == {"bot": "", "anna": ""}
    feed.term = 2
    feed(b":s 005 bot_ PREFIX=(ov)@+ :x")
    assert (view.nick, view.joined, view.members("#c")) == ("bot_", [], {})
    feed(b":bot_!u@h NICK bot")
    assert view.nick == "bot"


def test_next_leader_joins_what_nodes_joined_and_nothing_that_they_left(feed: Feed) -> None:
    feed(*CONNECTED)
    assert feed.joins() == {"#c": None, "#keyed": "old"}
    feed(b"JOIN #new,#two key", b"PART #c :bye", b"JOIN #keyed new", ours=True)
    assert feed.joins() == {"#keyed": "new", "#new": "key", "#two": None}
    feed(b":bot!u@h JOIN #NEW", b":bot!u@h JOIN #forced", b":anna!u@h KICK #forced bot")
    assert feed.joins() == {"#keyed": "new", "#new": "key", "#two": None, "#forced": None}
    feed.term = 2
    feed(b"PART #two,#new,#forced", b"JOIN #C", ours=True)
    assert feed.joins() == {"#c": None, "#keyed": "new"}
    feed(b"JOIN 0", ours=True)
    assert feed.joins() == {}


def test_parts_of_others_and_refused_joins_change_no_channel(feed: Feed) -> None:
    feed(*CONNECTED, b":anna!u@h PART #c", b":anna!u@h JOIN #d", b":bot!u@h PART #c :a service made it")
    feed.view.line_received(parse_line(add_tag("a.9", b":s 473 bot #shut :Cannot join"), 1, 9))
    assert feed.joins() == {"#c": None, "#keyed": "old"}


def test_wanted_nick_is_that_of_the_last_nick_line_of_a_node(feed: Feed) -> None:
    feed(*CONNECTED)
    assert feed.view.wanted_nick is None
    feed(b":bot!u@h NICK Guest1")
    assert (feed.view.nick, feed.view.wanted_nick) == ("Guest1", None)
    feed(b"NICK robot", ours=True)
    assert feed.view.wanted_nick == "robot"


def test_memory_and_roster_have_limits(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "MAX_MEMBERS", 5)
    view = feed(*CONNECTED)
    feed(*(b":u%d!u@h JOIN #c" % number for number in range(9)))
    assert (len(view.members("#c")), view.overflows) == (5, 7)
    feed(b":u0!u@h PART #c", b":anna!u@h QUIT", b":x!u@h JOIN #c")
    assert len(view.members("#c")) == 4
    feed(*(b"JOIN #%d" % number for number in range(MAX_CHANNELS + 3)), ours=True)
    assert len(feed.joins()) == MAX_CHANNELS == channels.MAX_CHANNELS
    assert view.overflows == 7 + 4
    feed(*(b"PART #out%d" % number for number in range(MAX_CHANNELS + 1)), ours=True)
    assert view.overflows == 7 + 4 + 1


words = st.sampled_from(
    ["#c", "#d", "bot", "anna", "B[b", "b{B", "+o", "-v+o", "=", "*!*@*", "@anna +bot", "x,#c", "0", ""]
)
commands = st.sampled_from(sorted(VIEW_COMMANDS))
prefixes = st.sampled_from([b":bot!u@h ", b":anna!u@h ", b":B[b!u@h ", b":s ", b""])
lines = st.builds(
    lambda prefix, command, params, text: b"%b%b %b" % (prefix, command, " ".join([*params, *text]).encode()),
    prefixes,
    commands,
    st.lists(words, max_size=4),
    words.map(lambda word: [f":{word}"]) | st.just([]),
)


@given(st.lists(st.tuples(lines, st.booleans(), st.integers(1, 2))), st.lists(st.tuples(lines, st.booleans())))
def test_restored_view_goes_on_like_the_original(before: Any, after: Any) -> None:
    original, restored = IrcView(), IrcView()
    for number, (line, ours, term) in enumerate(before):
        original.line_received(parse_line(add_tag("t", line) if ours else line, term, number))
    restored.restore(original.snapshot())
    assert restored.snapshot() == original.snapshot()
    for number, (line, ours) in enumerate(after):
        for view in (original, restored):
            view.line_received(parse_line(add_tag("t", line) if ours else line, 2, number))
    assert restored.snapshot() == original.snapshot()
    for view in (original, restored):
        assert view._roster._size == sum(len(view.members(channel)) for channel in view.joined)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"term":1,"nick":"","wanted_nick":null,"memory":{"joined":[],"left":[]},"roster":{}}',
        b'{"term":"1","nick":"","wanted_nick":null,"memory":{"joined":[],"left":[]},'
        b'"roster":{"support":["","",""],"channels":{}}}',
        b'{"term":1,"nick":"","wanted_nick":null,"memory":{"joined":[["no channel",null]],"left":[]},'
        b'"roster":{"support":["","",""],"channels":{}}}',
    ],
)
def test_unusable_snapshot_leaves_the_view_as_it_is(feed: Feed, data: bytes) -> None:
    view = feed(*CONNECTED)
    before = view.snapshot()
    with pytest.raises(ValueError, match=r"invalid|Expecting"):
        view.restore(data)
    assert view.snapshot() == before


class Server:
    """A model of an IRC server: who is in which channel with which mode."""

    def __init__(self) -> None:
        self.channels: dict[str, dict[str, set[str]]] = {"#c": {"bot": set()}, "#d": {"bot": set()}}

    def act(self, action: str, nick: str, channel: str, other: str, mode: str) -> bytes | None:
        """Carry out an action and return the line that tells it."""
        members = self.channels[channel]
        head = f":{nick}!u@h "
        if action == "JOIN" and nick not in members:
            members[nick] = set()
            return f"{head}JOIN {channel}".encode()
        if action == "PART" and nick in members and nick != "bot":
            del members[nick]
            return f"{head}PART {channel} :bye".encode()
        if action == "KICK" and other in members and other != "bot":
            del members[other]
            return f"{head}KICK {channel} {other} :out".encode()
        if action == "QUIT" and nick != "bot":
            for members in self.channels.values():
                members.pop(nick, None)
            return f"{head}QUIT :gone".encode()
        if action == "NICK" and not any(other in members for members in self.channels.values()):
            for members in self.channels.values():
                if nick in members:
                    members[other] = members.pop(nick)
            return f"{head}NICK {other}".encode()
        if action == "MODE" and other in members:
            (members[other].add if mode[0] == "+" else members[other].discard)(mode[1])
            return f"{head}MODE {channel} +b{mode} *!*@x {other}".encode()
        return None


nicks = st.sampled_from(["anna", "bob", "carl", "dora"])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["JOIN", "PART", "KICK", "QUIT", "NICK", "MODE"]),
            nicks,
            st.sampled_from(["#c", "#d"]),
            nicks,
            st.sampled_from(["+o", "-o", "+v", "-v"]),
        ),
        max_size=60,
    )
)
def test_roster_agrees_with_a_server(actions: list[tuple[str, str, str, str, str]]) -> None:
    server, feed = Server(), Feed()
    feed(CONNECTED[0], b":bot!u@h JOIN #c", b":bot!u@h JOIN #d")
    for action in actions:
        line = server.act(*action)
        if line is not None:
            feed(line)
    for channel, members in server.channels.items():
        assert {nick: set(modes) for nick, modes in feed.view.members(channel).items()} == members
