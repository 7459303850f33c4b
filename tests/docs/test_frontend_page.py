"""The page about the frontend lists all options, limits, errors and metrics, and its JavaScript runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from documented.terminal import Terminal
from twisted.internet.task import Clock

from fyrehose_twisted.fyrehose.frontend import tap
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.idempotency import IdempotencyKeys
from fyrehose_twisted.fyrehose.frontend.metrics import FrontendCollector
from fyrehose_twisted.fyrehose.frontend.service import FrontendService
from fyrehose_twisted.fyrehose.wire.envelope import MAX_ENVELOPED
from fyrehose_twisted.web.metrics import SiteCollector

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "howto" / "frontend.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "fyrehose_twisted"


def rows(section: str) -> list[list[str]]:
    """Return the cells of the last table of a section."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    table = [line[1:-1].split("|") for line in text.splitlines() if line.startswith("| ")]
    assert table, section
    return [[cell.strip() for cell in row] for row in table[2:]]


def names(cell: str) -> set[str]:
    return set(re.findall(r"`([A-Za-z_-]+)`", cell))


def code(*paths: str) -> str:
    return "\n".join((SOURCE / path).read_text(encoding="utf-8") for path in paths)


def test_table_of_frontend_options_is_complete() -> None:
    options: Any = tap.Options()
    known = {name.rstrip("=") for name in options.longOpt} - {"version", "help"}
    told = {row[0].strip("`").split()[0].removeprefix("--"): row[1].strip("`") for row in rows("Options")}
    assert set(told) == known
    defaults = {name: default for name, default in options.defaults.items() if default}
    assert {name: default for name, default in told.items() if default} == defaults


def test_table_of_frontend_limits_is_complete() -> None:
    config = FrontendConfig()
    # This site has no streams.
    numbers = {one.name for one in fields(config) if type(getattr(config, one.name)) in (int, float)}
    limits = {name.replace("_", "-"): getattr(config, name) for name in numbers - {"max_streams", "keepalive"}}
    assert {row[0].strip("`"): float(row[1].replace(",", "")) for row in rows("Limits")} == limits
    assert f"{MAX_ENVELOPED:,} bytes" in PAGE


def test_table_of_errors_of_the_line_protocol_is_complete() -> None:
    lines = code("fyrehose/frontend/line_protocol.py").splitlines()
    replies = [line for line in lines if re.search(r"_error_reply\(|_refuse\(", line)]
    words = set(re.findall(r'b"([a-z-]+)(?: %d)?"', "\n".join(replies)))
    assert len(words) > 6
    assert {row[0].strip("`") for row in rows("A message a line")} == words


def test_table_of_http_errors_is_complete() -> None:
    told = {name for row in rows("Over HTTP") for name in names(row[1])}
    ours = code("fyrehose/frontend/resources.py", "fyrehose/frontend/publish_queue.py")
    shared = (
        code("web/site.py", "web/access.py", "web/channel.py", "web/coding.py")
        + code("web/response.py").partition("def to_http_error")[0]
    )
    found = set(re.findall(r'(?:too_many_requests\(|_fail\(batch, |HTTPStatus\.[A-Z_]+,\s*)"([a-z-]+)"', ours + shared))
    assert {"busy", "timeout", "stopping", "too-many-messages", "cross-origin"} <= found
    assert told == found - {"internal"}


def test_table_of_frontend_metrics_is_complete() -> None:
    service = FrontendService("127.0.0.1:2323", http=None, lines=None, reactor=Clock())
    collectors = (
        FrontendCollector(service.publish_queue, service.lines, IdempotencyKeys(service.publish_queue)),
        SiteCollector("fyrehose_frontend_web", service.site),
    )
    families = [family for collector in collectors for family in collector.collect()]
    told = {
        family.name + "_total" * (family.type == "counter"): (
            family.type,
            {*family._labelnames, *(name for sample in family.samples for name in sample.labels)},
        )
        for family in families
    }
    documented = {row[0].strip("`"): (row[1], names(row[2])) for row in rows("Metrics")}
    assert documented == told
    events = next(row[4] for row in rows("Metrics") if "line_events" in row[0])
    counted = set(re.findall(r'counters\["([a-z_]+)"\]', code("fyrehose/frontend/line_protocol.py")))
    assert names(events) == counted
    reasons = next(row[4] for row in rows("Metrics") if "failed" in row[0])
    counting = [
        line for line in code("fyrehose/frontend/publish_queue.py").splitlines() if re.search(r"_fail\(|failed\[", line)
    ]
    assert names(reasons) == set(re.findall(r'"([a-z]+(?:-[a-z]+)?)"', "\n".join(counting)))
    page = code("fyrehose/frontend/service.py")
    assert "FrontendCollector(" in page
    assert 'SiteCollector("fyrehose_frontend_web", ' in page


@pytest.mark.extended
def test_javascript_example_publishes_through_the_frontend(
    terminal: Terminal, program: Callable[[str, str], Path]
) -> None:
    program("node", "nodejs")
    [block] = re.findall(r"^```js\n// publish.mjs\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (terminal.directory / "publish.mjs").write_text(terminal.spell_ports(block), encoding="utf-8")
    terminal.run("twistd -n --pidfile= --logfile=backbone.log fyrehose-backbone --settle-time 0 &")
    terminal.run("twistd -n --pidfile= --logfile=frontend.log fyrehose-frontend &")
    terminal.run('grep -c "lines starting" frontend.log', "1\n")
    terminal.run("node publish.mjs", "[ 1, 2 ]\n")


@pytest.mark.parametrize("section", ["Options", "Limits", "A message a line", "Over HTTP", "Metrics"])
def test_every_table_of_the_frontend_page_is_found(section: str) -> None:
    assert len(rows(section)) > 6
