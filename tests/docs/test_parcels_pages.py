"""The pages about parcels match the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from fyrehose_twisted.parcels.wire import field_codecs, messages
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import Message, Mode, NodeInfo, Parcel, ParcelType, RefusalReason, node_id
from fyrehose_twisted.parcels.wire.payload import RESPONSES, WIRE_NAMES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "protocol" / "parcels.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "fyrehose_twisted" / "parcels"


def test_table_of_parcels_is_complete() -> None:
    table = re.findall(r"^\| `(\w+)` \| (yes)? ?\| `\[(.*)\]` \|$", PAGE, re.MULTILINE)
    ours = [kind for kind in get_args(Message) if kind is not Parcel]
    assert table == [(WIRE_NAMES[kind], "yes" * (kind in RESPONSES), ", ".join(kind._fields)) for kind in ours]


def test_table_of_refusals_is_complete() -> None:
    table = re.findall(r"^\| (\d+) \| `([a-z-]+)` \|", PAGE, re.MULTILINE)
    assert table == [(str(int(why)), why.name.lower().replace("_", "-")) for why in RefusalReason]


def test_every_reason_for_a_drop_is_documented() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in sorted(PACKAGE.glob("**/*.py")))
    counted = set(re.findall(r'faults\.count\("([a-z-]+)"', code))
    malformed = set(re.findall(r'BadParcel\(\s*"([a-z-]+)"', code))
    assert len(counted) > 6
    assert len(malformed) > 6
    for section, names in (("`dropped_`", counted), ("`links_malformed_`", malformed)):
        table = PAGE.partition("## What is refused")[2].partition(section)[2].partition("\n\n")[2].partition("\n\n")[0]
        assert names <= set(re.findall(r"`([a-z-]+)`", table)), section


def test_bytes_on_the_parcels_page_match_the_codec() -> None:
    me = NodeInfo(node_id("Ivan"), Mode.DSC, "Ivan", ("127.0.0.1", 7878))
    block = PAGE.partition("71      ")[2].partition("```")[0]
    shown = "71" + re.sub(
        r"\s", "", "".join(re.sub(r'(?:n = |map of|"|\{|\[).*', "", line) for line in block.split("\n"))
    )
    assert shown == ParcelCodec().encode(Parcel(False, ParcelType.DSC_REQ, me.id, me)).hex()
    beat = ParcelCodec(me.id).encode(messages.Heartbeat(Mode.WRK, 3, 42))
    assert f"`{beat[0]:02x}`, a head of {beat[0]} bytes" in PAGE
    assert f"`{beat[-5:].hex(' ')}`" in PAGE


def test_limits_on_the_parcels_page_match_the_code() -> None:
    for value in (
        messages.MAX_HEAD,
        messages.MAX_DATA,
        messages.MAX_NAME,
        messages.MAX_PUBLISHER,
        messages.MAX_EVENT,
        field_codecs.MAX_TEXT,
    ):
        assert f"{value:,}" in PAGE.partition("## Limits")[2]
