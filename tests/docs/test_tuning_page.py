"""The page about tuning quotes measured figures, real defaults, and options that the benchmarks accept."""

from __future__ import annotations

import re
import shlex
from dataclasses import MISSING, fields
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig, RepairConfig
from fyrehose_twisted.journal.store import JournalConfig
from fyrehose_twisted.net.udp import KERNEL_BUFFER, UNTUNED_BUFFER
from fyrehose_twisted.spark.session import SETTINGS
from fyrehose_twisted.spark.source.options import ROWS_PER_PARTITION

ROOT = Path(__file__).resolve().parents[2]
COMMENT = re.compile(r"<!--.*?-->")
PAGE, BENCHMARKS = (
    COMMENT.sub("", (ROOT / "docs" / page).read_text(encoding="utf-8")) for page in ("howto/tuning.md", "benchmarks.md")
)

TAPS = {
    "fyrehose-backbone": "fyrehose.service.backbone_tap",
    "fyrehose-journal": "fyrehose.service.journal_tap",
    "parcels-node": "parcels.service.tap",
    "hydra-node": "hydra.service.tap",
    "freenet-node": "freenet.service.tap",
}
CONFIGS: dict[str, Any] = {kind.__name__: kind for kind in (BackboneConfig, ClientConfig, JournalConfig, RepairConfig)}
CONSTANTS = {
    "net.core.rmem_max": UNTUNED_BUFFER,
    "rowsPerPartition": ROWS_PER_PARTITION,
    "spark.sql.execution.arrow.maxBytesPerBatch": SETTINGS["spark.sql.execution.arrow.maxBytesPerBatch"],
}
NUMBER = re.compile(r"(?<![\w.,#])\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
LINK = re.compile(r"\(\[[^\]]+\]\(\.\./benchmarks\.md#([\w-]+)\)\)")


def sections(text: str) -> dict[str, str]:
    """Return the text of each section by its anchor, subsections included."""
    found: dict[str, str] = {}
    headings = list(re.finditer(r"^(#+) (.+)$", text, re.MULTILINE))
    for number, heading in enumerate(headings):
        end = next((other.start() for other in headings[number + 1 :] if len(other[1]) <= len(heading[1])), len(text))
        anchor = re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-")
        found[anchor] = text[heading.end() : end]
    return found


def rows(text: str) -> list[dict[str, str]]:
    """Return the rows of all tables by the heads of their columns."""
    found: list[dict[str, str]] = []
    heads: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            heads = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not heads:
            heads = cells
        elif set(line) - set("| -"):
            found.append(dict(zip(heads, cells, strict=True)))
    return found


def quotations(page: str) -> list[tuple[str, str]]:
    """Return each quotation, by cell or paragraph, with the anchor of its source."""
    prose = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    quoted = [row["measured"] for row in rows(prose) if row.get("measured")]
    quoted += [text for text in re.split(r"\n\n|\n- ", prose) if LINK.search(text) and not text.startswith("|")]
    found = []
    for text in quoted:
        anchors = LINK.findall(text)
        assert len(set(anchors)) == 1, f"{text!r} has {len(anchors)} sources"
        found.append((LINK.sub("", text), anchors[0]))
    return found


def check_quotations(page: str, source: str) -> int:
    """Assert that each quoted figure is in its source; return their number."""
    there = sections(source)
    count = 0
    for text, anchor in quotations(page):
        figures = set(NUMBER.findall(re.sub(r"`[^`]*`", "", text)))
        missing = figures - set(NUMBER.findall(there[anchor]))
        assert not missing, f"{missing} of {text!r} stand nowhere in #{anchor}"
        count += len(figures)
    return count


def test_every_tuning_figure_is_in_the_section_it_is_quoted_from() -> None:
    assert check_quotations(PAGE, BENCHMARKS) > 60


@pytest.mark.parametrize("number", [0, 10, -1])
def test_wrong_tuning_figure_is_detected(number: int) -> None:
    text, _ = quotations(PAGE)[number]
    right = max(NUMBER.findall(re.sub(r"`[^`]*`", "", text)), key=len)
    with pytest.raises(AssertionError, match="stand nowhere"):
        check_quotations(PAGE.replace(right, f"9{right}"), BENCHMARKS)


def test_every_measured_tuning_value_names_its_source() -> None:
    for row in rows(PAGE):
        cell = row.get("measured", "")
        assert bool(cell) == bool(LINK.search(cell)), cell


def default_of(setting: str) -> Any:
    """Return the default in the code, or ``None`` if the setting is not part of it."""
    if option := re.match(r"([a-z]+-[a-z]+) --([a-z-]+)$", setting):
        service, name = option.groups()
        return import_module(f"fyrehose_twisted.{TAPS[service]}").Options()[name]
    kind, _, name = setting.partition(".")
    if kind in CONFIGS:
        (field,) = [one for one in fields(CONFIGS[kind]) if one.name == name]
        assert field.default is not MISSING
        return field.default
    return CONSTANTS.get(setting)


WORDS = {"off": 0, "everything": None, "a quarter": None}


def test_defaults_on_the_tuning_page_match_the_code() -> None:
    checked = 0
    for row in rows(PAGE):
        named = re.match(r"`([^`]+)`", row.get("setting", ""))
        if named is None or "default" not in row:
            continue
        setting, told = named[1], row["default"].removesuffix(" on Linux")
        if setting not in CONSTANTS and not re.match(rf"[a-z]+-[a-z]+ --|(?:{'|'.join(CONFIGS)})\.", setting):
            continue
        default = default_of(setting)
        if told in WORDS:
            assert default == WORDS[told], setting
        else:
            assert told == str(getattr(default, "name", default)) or float(told) == float(default), setting
        checked += 1
    assert checked >= 18


def test_requested_receive_buffer_matches_the_tuning_page() -> None:
    assert f"asks for {KERNEL_BUFFER // 2**20} MiB" in PAGE


@pytest.mark.parametrize("name", ["tuning", "benchmarks"])
def test_benchmarks_accept_the_options_on_the_pages(name: str) -> None:
    text = {"tuning": PAGE, "benchmarks": BENCHMARKS}[name]
    commands = re.findall(r"^\.venv/bin/python (benchmarks/\w+\.py)(.*)$", text, re.MULTILINE)
    assert len(commands) >= 10
    for path, arguments in commands:
        source = (ROOT / path).read_text(encoding="utf-8")
        words = shlex.split(arguments)
        for word in words:
            if word.startswith("--"):
                assert f'"{word}"' in source, f"{path} has no {word}"
        for only in [value for word, value in pairwise(words) if word == "--only"]:
            for part in only.split(","):
                assert f'"{part}"' in source, f"{path} has no part {part}"
