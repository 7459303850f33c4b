"""Names and modes that a server announces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.hydra.wire.isupport import ServerSupport

text = st.text(st.characters(codec="latin-1"), max_size=20)


def changes(support: ServerSupport, line: str) -> list[tuple[bool, str, str]]:
    return list(support.member_changes(line.split()))


def test_parameters_of_other_modes_are_skipped() -> None:
    support = ServerSupport()
    assert changes(support, "+b-l+kov *!*@x secret anna bob") == [(True, "o", "anna"), (True, "v", "bob")]
    assert changes(support, "-l+l-k+o 5 key anna") == [(True, "o", "anna")]
    assert changes(support, "+ntsi-o anna") == [(False, "o", "anna")]
    assert changes(support, "+oo anna") == [(True, "o", "anna")]
    assert changes(support, "") == []


def test_announced_modes_replace_the_usual_ones() -> None:
    support = ServerSupport()
    support.learn(["PREFIX=(Yov)!@+", "CHANMODES=beI,kL,lj,mnt", "CASEMAPPING=ascii", "NETWORK=x"])
    assert changes(support, "+Yj-Lh anna 3:5 x bob") == [(True, "Y", "anna")]
    assert support.split_member("!@+anna") == ("Yov", "anna")
    assert support.highest_first("vvoY") == "Yov"
    assert support.casefold("A[") == "a["
    assert ServerSupport().casefold("A[") == "a{"


def test_unusable_announcements_are_ignored() -> None:
    support = ServerSupport()
    support.learn(["PREFIX=", "PREFIX=(ov)@", "PREFIX=ov@+", "CHANMODES=b,k", "CHANMODES=", "CASEMAPPING=klingon", ""])
    assert support == ServerSupport()


@given(st.lists(text, max_size=6), st.lists(text, max_size=6), text)
def test_anything_a_server_says_is_parsed(tokens: list[str], words: list[str], name: str) -> None:
    support = ServerSupport()
    support.learn(tokens)
    for _, mode, nick in support.member_changes(words):
        assert support.highest_first(mode) == mode
        assert nick in words
    modes, nick = support.split_member(name)
    assert name.endswith(nick)
    assert len(modes) + len(nick) == len(name)
