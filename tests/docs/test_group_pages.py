"""The pages about groups of backbones state the timers and limits of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fyrehose_twisted.fyrehose.node.backbone import takeover
from fyrehose_twisted.fyrehose.node.member import leadership
from fyrehose_twisted.fyrehose.node.member.config import BACKBONE_TIMERS, MAX_MEMBERS, MemberConfig
from fyrehose_twisted.fyrehose.service.member.service import LABEL
from fyrehose_twisted.fyrehose.wire import member_codec, member_fields

DOCS = Path(__file__).parents[2] / "docs"
ARGUMENT = (DOCS / "one-number.md").read_text(encoding="utf-8")
GUIDE = (DOCS / "howto" / "failover.md").read_text(encoding="utf-8")
CONFIG = MemberConfig(name="a", stream="s", peers=(("b", 1),), client_address=("a", 1), peer_address=("a", 2))
CLOCK_TOLERANCE = 1.1
"""Factor by which the page allows the rates of two clocks to differ."""


def row(start: str) -> str:
    """Return the second column of the only row of the table of times that begins with ``start``."""
    table = ARGUMENT.partition("## How long it takes")[2]
    (found,) = re.findall(rf"^\| {re.escape(start)}[^|]*\| ([^|]+) \|$", table, re.MULTILINE)
    return str(found)


@pytest.mark.parametrize(
    ("start", "value"),
    [
        ("question for a promise", f"every {CONFIG.round_interval:g}"),
        ("lease, from the sending", f"{CONFIG.lease:g}"),
        ("promise of a member", f"{BACKBONE_TIMERS.stickiness:g}"),
        ("a leader without answers", f"{BACKBONE_TIMERS.check_quorum:g}"),
        ("silence of the leader", "{:g} to {:g}".format(*BACKBONE_TIMERS.election)),
        ("**after the leader is known to be dead**", "{:g} to {:g}".format(*BACKBONE_TIMERS.fast_election)),
        ("another attempt", "{:g} to {:g}".format(*BACKBONE_TIMERS.retry)),
        ("answers of the clients", f"{takeover.PATIENCE:g}"),
        ("the same, if the old leader was found dead", f"{BACKBONE_TIMERS.stickiness:g}"),
        ("a successor that is not elected", f"{BACKBONE_TIMERS.retry[1]:g}"),
        ("a restarted member votes again", f"{BACKBONE_TIMERS.stickiness:g}"),
    ],
)
def test_times_on_the_page_match_the_code(start: str, value: str) -> None:
    assert row(start) == value


def test_lease_ends_before_a_promise_at_the_stated_difference_of_clocks() -> None:
    assert "differ by less than 10 %" in ARGUMENT
    assert CONFIG.lease * CLOCK_TOLERANCE < BACKBONE_TIMERS.stickiness
    assert min(BACKBONE_TIMERS.election) >= BACKBONE_TIMERS.stickiness


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("R3", "after {:g} and {:g} ms".format(*(1_000 * delay for delay in takeover.REPEATS))),
        ("R4", f"at most every {1_000 * leadership.KEPT_INTERVAL:g} ms"),
    ],
)
def test_rules_state_the_intervals_of_the_code(rule: str, value: str) -> None:
    (text,) = re.findall(rf"^\*\*{rule}\. (?:.+\n)+", ARGUMENT, re.MULTILINE)
    assert value in " ".join(text.split())


def test_limits_on_the_pages_match_the_code() -> None:
    numbers = {7: "seven", 8: "eight"}
    assert f"at most {numbers[MAX_MEMBERS]} members" in GUIDE
    assert f"the latest {numbers[leadership.MAX_SEAMS]} seams" in ARGUMENT


def test_each_rule_that_the_page_refers_to_exists() -> None:
    rules = re.findall(r"^\*\*(R\d)\. ", ARGUMENT, re.MULTILINE)
    properties = re.findall(r"^\| \*\*(N\d)\*\* ", ARGUMENT, re.MULTILINE)
    assert set(re.findall(r"\bR\d\b", ARGUMENT)) == set(rules)
    assert set(re.findall(r"\bN\d\b", ARGUMENT)) == set(properties)
    proved = re.findall(r"^### (N\d)$", ARGUMENT, re.MULTILINE)
    assert proved == properties


def test_table_of_messages_between_members_is_complete() -> None:
    page = (DOCS / "protocol" / "fyrehose.md").read_text(encoding="utf-8")
    section = page.partition("## Between members\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| ([A-Z-]+) \| (.*?)\|$", section, re.MULTILINE)
    fields = {int(one.kind): ", ".join(one.make._fields) for one in member_codec._TYPES}
    kinds = {int(kind): kind.name.replace("_", "-") for kind in member_codec.MemberMessageKind}
    kinds[1] = "MEMBER-HELLO"  # HELLO is a message of other protocols.
    assert {int(kind): (name, text.strip()) for kind, name, text in rows} == {
        kind: (name, fields[kind]) for kind, name in kinds.items()
    }
    assert f"at most {member_codec.MAX_FRAME:,} bytes" in section
    assert f"`{LABEL.decode()}-proof` NUL" in section
    assert f"of at most {member_fields.MAX_NAME} bytes" in section
