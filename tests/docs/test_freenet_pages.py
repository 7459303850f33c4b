"""The pages about freenet match the code."""

from __future__ import annotations

import re
from pathlib import Path

from fyrehose_twisted.freenet import config, policy
from fyrehose_twisted.freenet.node import context, packet_window, publishing, routing, tree
from fyrehose_twisted.freenet.service.config import MAX_NEIGHBOURS
from fyrehose_twisted.freenet.service.service import FAILURE_REASONS
from fyrehose_twisted.freenet.service.tap import Options
from fyrehose_twisted.freenet.wire import codec, messages
from fyrehose_twisted.freenet.wire.codec import FreenetCodec, MessageCode
from fyrehose_twisted.freenet.wire.location import key_location
from fyrehose_twisted.freenet.wire.messages import Unsubscribe
from fyrehose_twisted.freenet.wire.signing import KEY_PREFIX, MAX_SIGNED_CONTENT

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fyrehose_twisted" / "freenet"
CODE = "\n".join(
    path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "simulation"
)


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


def test_table_of_freenet_messages_is_complete() -> None:
    told = {row[1].strip("`"): (int(row[0]), row[2].strip("`").split()) for row in rows(PROTOCOL, "## The messages")}
    kinds = {code: getattr(messages, "".join(map(str.capitalize, code.name.split("_")))) for code in MessageCode}
    assert told == {kind.__name__: (int(code), list(kind._fields)) for code, kind in kinds.items()}


PROTOCOL = page("protocol/freenet")


def test_bytes_on_the_freenet_page_match_the_codec() -> None:
    (shown,) = re.findall(r"^    ([0-9a-f]{8}(?: [0-9a-f]+)+)$", PROTOCOL, re.MULTILINE)
    assert FreenetCodec().encode(Unsubscribe(bytes(20))) == bytes.fromhex(shown)


def test_locations_of_keys_on_the_page_are_correct() -> None:
    told = [float(row[1]) for row in rows(PROTOCOL, "## The ring")]
    assert told == [key_location(bytes(20)), key_location(bytes(range(20)))]
    assert f"`{KEY_PREFIX.hex()}`" in PROTOCOL


def test_limits_on_the_freenet_page_match_the_code() -> None:
    told = [re.findall(r"\d[\d,]*", row[1].replace(" s", "")) for row in rows(PROTOCOL, "## Limits")]
    rules = policy.Policy()
    expected: list[list[float]] = [
        [codec.MAX_FRAME],
        [messages.MAX_DATA, MAX_SIGNED_CONTENT],
        [rules.max_streams],
        [MAX_NEIGHBOURS],
        [config.NodeConfig(0, 0, 0.0).handshake_timeout],
        [config.NodeConfig(0, 0, 0.0).max_handshakes_per_host],
        [routing.MAX_PARALLEL_REQUESTS],
        [rules.max_waiting],
        [rules.max_waiting],
        [publishing.MAX_QUEUED_PACKETS],
        [rules.keep_packets],
        [context.MAX_RECENT_UIDS],
        [rules.max_htl, messages.MAX_HTL],
        [rules.accepted_timeout],
        [rules.completion_timeout],
        [rules.hold],
        [rules.publish_timeout],
        [tree.REGROWTH_PERIOD],
        [rules.restart_interval],
        [rules.restart_interval],
        [rules.suspicion],
    ]
    assert [[float(number.replace(",", "")) for number in row] for row in told] == expected
    assert f"{packet_window.MAX_JUMP:,} ahead" in PROTOCOL
    assert f"up to {publishing.MAX_NUMBER_ATTEMPTS} times" in PROTOCOL
    assert config.NodeConfig(0, 0, 0.0).max_neighbours == MAX_NEIGHBOURS
    assert tree.__doc__


def test_every_freenet_counter_is_documented() -> None:
    told = set(re.findall(r"`([a-z_]+)`", page("howto/freenet").partition("What is counted:")[2]))
    counted = set(re.findall(r'counters\["([a-z_]+)"\]', CODE))
    counted |= {f"refused_{why}" for why in re.findall(r'_refuse\(peer, "([a-z_]+)"', CODE)}
    assert len(counted) > 30
    assert counted - told == set()
    assert {name for name in told - counted if not name.startswith(("data_", "links_"))} == set()


def test_table_of_freenet_metrics_is_complete() -> None:
    code = (PACKAGE / "service" / "metrics.py").read_text(encoding="utf-8")
    names = set(re.findall(r'^            \(\s*"([a-z_]+)",\s*"', code, re.MULTILINE)) | {"streams", "counted_total"}
    assert len(names) > 6
    table = [row[0] for row in rows(page("howto/freenet"), "## What to watch")]
    assert {re.sub(r"\{.*", "", cell.strip("`")).removeprefix("fyrehose_freenet_") for cell in table} == names


def test_table_of_freenet_options_is_complete() -> None:
    known = {f"--{name.rstrip('=')}" for name in Options().longOpt} - {"--help", "--version"}
    table = "\n".join(row[0] for row in rows(page("howto/freenet"), "## Options"))
    assert set(re.findall(r"--[a-z-]+", table)) == known


def test_every_reason_for_a_failed_publish_has_a_text() -> None:
    given = set(re.findall(r'(?:NotPublished\(|_fail\((?:stream|\*found)|PublishFailed\()[^"\n]*, "([a-z-]+)"', CODE))
    assert len(given) >= 6
    assert given <= set(FAILURE_REASONS)
