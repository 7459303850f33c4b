"""The page about the query service lists all limits, options, filters, errors and metrics."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.registry import Collector
from twisted.internet.task import Clock

from fyrehose_twisted.framing import Unframed
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.query.config import RELOADED, QueryConfig
from fyrehose_twisted.query.metrics import QueryCollector
from fyrehose_twisted.query.monitoring.scraper import ScrapeTarget
from fyrehose_twisted.query.records.expression import MAX_DOCUMENT, MAX_PARTS, Expression, InvalidExpression
from fyrehose_twisted.query.records.journals import JournalDirectory
from fyrehose_twisted.query.records.pattern import FUNCTIONS, SIMPLE_FILTER
from fyrehose_twisted.query.records.query_params import FOLLOW_PARAMS, RANGE_PARAMS
from fyrehose_twisted.query.records.record_json import RecordView
from fyrehose_twisted.query.site import QuerySite
from fyrehose_twisted.query.tap import Options
from fyrehose_twisted.record import Record
from fyrehose_twisted.web.metrics import SiteCollector

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "howto" / "query.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "fyrehose_twisted"


def section(heading: str) -> str:
    """Return the text of a section."""
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def limits() -> dict[str, tuple[bool, float]]:
    """Return the limits on the page: whether each is reloadable, and its default."""
    found = re.findall(r"^\| `(\w+)`( \*)? \| ([0-9.,]+) \| .+ \|$", section("Limits"), re.MULTILINE)
    return {name: (bool(mark), float(default.replace(",", ""))) for name, mark, default in found}


def test_table_of_query_limits_is_complete() -> None:
    config = QueryConfig()
    numbers = {one.name: getattr(config, one.name) for one in fields(config)}
    numbers = {name: value for name, value in numbers.items() if type(value) in (int, float)}
    assert limits() == {name: (name in RELOADED, float(value)) for name, value in numbers.items()}


def test_limits_in_the_query_page_text_match_the_config() -> None:
    config = QueryConfig()
    text = " ".join(PAGE.split())
    for said in (
        f"after {config.page_records:,} records, about {config.page_bytes // 2**20} MiB of payloads",
        f"or {config.scan_records:,} examined records",
        f"at most {config.max_expression:,} characters and {MAX_PARTS} operators",
        f"of more than {MAX_DOCUMENT:,} bytes",
        f"Every {config.keepalive:g} s the service sends a keepalive",
        f"reads nothing for {config.stall_timeout:g} s",
        f"within {config.poll_interval * 1_000:g} ms",
    ):
        assert said in text, said


def test_table_of_query_options_is_complete() -> None:
    options = Options()
    there = {name.rstrip("=") for name in options.longOpt} - {"help", "version"}
    assert set(re.findall(r"^\| `--([a-z-]+)", section("Options"), re.MULTILINE)) == there


def filters() -> list[str]:
    """Return the filters in the table."""
    cells = re.findall(r"^\| (`.+`) \| [^|]+ \|$", section("Filter"), re.MULTILINE)
    found = [match[1] or match[2] for cell in cells for match in re.finditer(r"``(.+?) ?``(?!`)|`([^`]+)`", cell)]
    return [text.strip() for text in found]


RECORD = {
    "open": True,
    "door": "north",
    "lux": 412.5,
    "room": 7,
    "user": {"name": "ann"},
    "items": [{"price": 1}, {"price": 101}, {}],
    "tags": ["urgent"],
    "warning": "late",
    "content-type": "image/png",
}


def item(document: Any) -> RecordView:
    return RecordView(b'"fyrehose://default"', 0, 1, 1, 0, json.dumps(document).encode())


def test_filters_on_the_query_page_match_their_documents() -> None:
    found = filters()
    assert len(found) >= 11
    wanted = {text: Expression(text).matches(item(RECORD)) for text in found}
    assert [text for text, wants in wanted.items() if not wants] == []
    assert not any(Expression(text).matches(item({})) for text in found)
    assert [text for text in found if not re.match(SIMPLE_FILTER, text)] == []


def test_allowed_filter_functions_on_the_query_page_match_the_code() -> None:
    text = re.search(r"functions except (.+?)\.\s", " ".join(section("Filter").split()))
    assert text is not None
    assert set(re.findall("`([a-z_]+)`", text[1])) == FUNCTIONS
    for refused in ("[a, b]", "{a: b}", "sort_by(a, &x)"):
        with pytest.raises(InvalidExpression):
            Expression(refused)


def test_table_of_query_errors_is_complete() -> None:
    rows = re.findall(r"^\| ([0-9, ]+) \| (`.+?`) \| .+ \|$", section("Errors"), re.MULTILINE)
    told = {name for _, names in rows for name in re.findall("`([a-z-]+)`", names)}
    code = "".join(
        path.read_text() for package in ("web", "query") for path in sorted((SOURCE / package).rglob("*.py"))
    )
    named = set(re.findall(r'(?:HttpError\(\s*[\w.]+,|too_many_requests\()\s*"([a-z-]+)"', code))
    # Publishing errors and internal errors are not on the page.
    assert told == named - {"queue-full", "key-reused", "sequence-changed", "internal"}


def rows_of(collectors: list[Collector]) -> dict[str, tuple[str, frozenset[str]]]:
    """Return the type and the labels of each metric of the collectors."""
    found = {}
    for collector in collectors:
        for family in collector.collect():
            kept: Any = family
            labels = frozenset(kept._labelnames) | {name for sample in family.samples for name in sample.labels}
            found[family.name + "_total" * (family.type == "counter")] = family.type, labels
    return found


def test_table_of_query_metrics_is_complete(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, "fyrehose://orders")
    journal.append([Record("fyrehose://orders", 0, 1, 1, b"")])
    journal.commit()
    journal.close()
    sources = JournalDirectory(tmp_path, lambda stream, payloads: Unframed(payloads))
    sources.refresh()
    site = QuerySite(sources, QueryConfig(), Clock(), targets=[ScrapeTarget("b", "http://127.0.0.1:1/metrics")])
    told = rows_of([SiteCollector("fyrehose_query", site), QueryCollector(site)])
    sources.close()
    rows = re.findall(r"^\| `(fyrehose_\w+)` \| (\w+) \| (.*?)\| .+ \|$", section("Metrics"), re.MULTILINE)
    assert {name: (kind, frozenset(re.findall("`([a-z]+)`", labels))) for name, kind, labels in rows} == told


def test_table_of_query_parameters_is_complete() -> None:
    rows = re.findall(r"^\| (`.+?`) \| .+ \| .*\|$", section("Ranges"), re.MULTILINE)
    assert {name.encode() for cell in rows for name in re.findall("`([a-z_]+)`", cell)} == set(RANGE_PARAMS)
    assert set(FOLLOW_PARAMS) - set(RANGE_PARAMS) == {b"id"}
