"""The pages about hydra match the code."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import get_args

from fyrehose_twisted.hydra import config
from fyrehose_twisted.hydra.config import NodeConfig, Timers
from fyrehose_twisted.hydra.node import link_table
from fyrehose_twisted.hydra.node.induction import MAX_WAITING_KNOCKS
from fyrehose_twisted.hydra.node.relay import irc_writer
from fyrehose_twisted.hydra.service.tap import Options
from fyrehose_twisted.hydra.transports.link_url import EXAMPLES, parse_link
from fyrehose_twisted.hydra.wire import messages
from fyrehose_twisted.hydra.wire.codec import HydraCodec
from fyrehose_twisted.hydra.wire.lines import MAX_TOKEN, command_of, untag
from fyrehose_twisted.hydra.wire.messages import E_RECV, E_SEND, Keepalive, Malformed, Message, Recv, Send
from fyrehose_twisted.hydra.wire.state_lines import STATE_COMMAND, WANT, Snapshot, encode_snapshot

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fyrehose_twisted" / "hydra"
CODE = "\n".join(path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py")))


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def rows(text: str, heading: str) -> list[list[str]]:
    """Return the rows of the first table below a heading."""
    lines = text.partition(f"\n{heading}\n")[2].splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table = []
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table


def test_table_of_hydra_messages_is_complete() -> None:
    told = {row[0]: row[1] for row in rows(page("protocol/hydra"), "## The messages")}
    kinds = [kind for kind in get_args(Message) if kind not in (Keepalive, Malformed)]
    assert list(told) == [f"`{kind.__name__.upper()}`" for kind in kinds]
    for kind in kinds:
        fields = told[f"`{kind.__name__.upper()}`"].strip("`").split()
        assert [field.strip("[]") for field in fields] == list(kind._fields)
        assert [field for field in fields if field.startswith("[")] == [f"[{name}]" for name in kind._field_defaults]


def test_all_irc_commands_are_documented() -> None:
    text = (
        page("protocol/hydra").partition("### Lines of IRC")[2].partition("\n\n")[2].partition("The leader leaves")[0]
    )
    sends, _, receives = text.partition("a RECV also")
    assert set(re.findall(r"`([A-Z]+)`", sends)) == {command.decode() for command in E_SEND}
    assert set(re.findall(r"`([A-Z]+)`", receives)) == {command.decode() for command in E_RECV - E_SEND}


def test_lines_on_the_hydra_page_are_valid_messages() -> None:
    shown = re.findall(r"^    ((?:PING|SEND|RECV) .*)$", page("protocol/hydra"), re.MULTILINE)
    assert len(shown) == 5
    for line in shown:
        [message] = HydraCodec().decoder().feed(line.encode() + b"\r\n")
        assert HydraCodec().encode(message) == line.encode() + b"\r\n"
        if isinstance(message, Send | Recv) and command_of(message.line) != STATE_COMMAND:
            assert untag(message.line)[0] == "9b2c41.7"
    wanted = [line.split(" ", 2)[2].encode() for line in shown if "WANT" in line]
    told = [line.split(" ", 2)[2].encode() for line in shown if "STATE" in line]
    assert [untag(line)[1] for line in wanted] == [WANT]
    assert told == encode_snapshot(Snapshot("irc", b'{"term":7}'))


def test_limits_on_the_hydra_page_match_the_code() -> None:
    text = "\n".join(" ".join(row) for row in rows(page("protocol/hydra"), "## Limits"))
    defaults = NodeConfig()
    for value in (
        messages.MAX_LINE,
        messages.LEGACY_MAX_LINE,
        messages.MAX_IRC,
        messages.MAX_VAL,
        messages.MAX_TAG,
        messages.MAX_REASON,
        MAX_TOKEN,
        config.MAX_NODES,
        defaults.max_links,
        link_table.MAX_MALFORMED_LINES,
        MAX_WAITING_KNOCKS,
        defaults.max_queue,
        int(defaults.max_wait),
        irc_writer.MAX_SEEN_LINE_IDS,
    ):
        assert re.search(rf"\b{value:,}\b", text), value


def test_timers_on_the_hydra_page_match_the_code() -> None:
    told = {row[0]: row[1] for row in rows(page("one-leader"), "## How long it takes")}
    timers = Timers()
    low, high = timers.max_vote
    for what, value in (
        ("PING of the leader", f"each {timers.ping_interval:g}"),
        ("lease, from the sending of a PING (`lease`)", f"{timers.lease:g}"),
        ("PING of a leader with quick leases", f"each {timers.quick_ping_interval:g}"),
        ("quick lease, from the sending of a PING (`quick_lease`)", f"{timers.quick_lease:g}"),
        ("promise of a node that answers a quick PING", f"{timers.promise_for(timers.quick_lease):g}"),
        ("wait after that promise before a nomination", "{:g} to {:g}".format(*timers.quick_vote)),
        ("silence after which a node is dropped (MAX_PING)", f"{timers.max_ping:g}"),
        ("induction (MAX_MEET), at most", f"{timers.max_meet:g}"),
        ("attempt to be elected (MAX_VOTE), drawn at random each time", f"{low:g} to {high:g}"),
        ("promise of a node that answers (`promise`)", f"{timers.promise:g}"),
        ("time without a leader until a node leaves its network", f"{timers.no_leader_timeout:g}"),
    ):
        assert told[what] == value, what
    assert timers.promise / timers.lease > 1.3 / 0.7


def test_every_reason_for_a_bad_line_is_documented() -> None:
    text = page("protocol/hydra").partition("## What is refused")[2]
    reasons = set(re.findall(r'(?:BadLine\(|_integer\(word, )"([a-z-]+)"', CODE))
    assert len(reasons) > 6
    assert reasons <= set(re.findall(r"`([a-z-]+)`", text))


def test_every_hydra_counter_is_documented() -> None:
    text = page("protocol/hydra").partition("## What is refused")[2]
    text += page("howto/hydra-operate").partition("## What to watch")[2]
    told = set(re.findall(r"`([a-z_]+)[^`\n]*`", text))
    counted = set(
        re.findall(
            r'\bcount(?:er)?s\["([a-z_]+)"\]',
            "\n".join(path.read_text(encoding="utf-8") for path in PURE),
        )
    )
    assert len(counted) > 30
    assert {
        name for name in counted if name not in told and not name.startswith(("unbound_", "unregistered_"))
    } == set()


PURE = [path for path in PACKAGE.rglob("*.py") if not {"irc", "simulation", "transports"} & set(path.parts)]


def test_table_of_hydra_metrics_is_complete() -> None:
    code = (PACKAGE / "service" / "metrics.py").read_text(encoding="utf-8")
    names = set(re.findall(r'^            \("([a-z_]+)", "', code, re.MULTILINE))
    names |= set(re.findall(r'"fyrehose_hydra_([a-z_]+)"', code))
    assert len(names) > 8
    table = "\n".join(row[0] for row in rows(page("howto/hydra-operate"), "## What to watch"))
    assert {name for name in names if not re.search(rf"`{name}(?:_total)?\b", table)} == set()


def test_table_of_hydra_options_is_complete() -> None:
    options = Options()
    known = {f"--{name}" for name in (*options.longOpt,)}
    known = {name.rstrip("=") for name in known} - {"--help", "--version", "--udp-listen"}
    table = "\n".join(row[0] for row in rows(page("howto/hydra"), "## Options"))
    assert set(re.findall(r"--[a-z-]+", table)) == known


def test_link_urls_on_the_hydra_page_can_be_parsed() -> None:
    shown = [row[0].strip("`") for row in rows(page("howto/hydra"), "### Links")]
    assert [parse_link(link).kind for link in shown] == list(EXAMPLES)


def test_safety_rules_named_in_the_code_are_documented() -> None:
    rules = set(re.findall(r"\bS[1-9]\b", CODE))
    assert rules == set(re.findall(r"^\*\*(S[1-9])\.", page("one-leader"), re.MULTILINE))


def test_names_on_the_hydra_pages_exist() -> None:
    for name in ("one-leader", "howto/hydra", "howto/hydra-bots", "howto/hydra-operate", "protocol/hydra"):
        for kind, dotted in re.findall(r"\{(class|mod)\}`~?([\w.]+)`", page(name)):
            parent, _, last = dotted.rpartition(".")
            assert import_module(dotted) if kind == "mod" else hasattr(import_module(parent), last), dotted
