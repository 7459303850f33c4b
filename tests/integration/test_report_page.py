from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from integration.running.browser import OpenBrowser

pytestmark = pytest.mark.extended

STREAM = "fyrehose://<script>alert(1)</script>"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
MAIN = "from fyrehose_twisted.spark.cli import main; main()"
TIME = pa.timestamp("us", "UTC")


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.mkdir(parents=True)
    columns = {}
    for name, value in rows[0].items():
        kind = TIME if isinstance(value, datetime) else pa.string() if value is None else None
        columns[name] = pa.array([row[name] for row in rows], kind)
    pq.write_table(pa.table(columns), path / "part-0.parquet")


def found(kind: str, reason: str, journal: str | None, first: int, last: int) -> dict[str, Any]:
    count = last - first + 1
    return {"journal": journal, "stream": STREAM, "epoch": 0, "kind": kind, "reason": reason, "first": first,
            "last": last, "count": count, "detail": "<b>bold</b>"}  # fmt: skip


def write_tables(verify: Path, run: Path) -> None:
    findings = [
        found("missing", "nobody", None, 9_001, 9_300),
        found("divergence", "payload", None, 500, 541),
        *(found("missing", "lost", "east", first, first + 6) for first in range(1_000, 8_000, 100)),
    ]
    write(verify / "findings", findings)
    partition = "stream=fyrehose%3A%2F%2F<script>alert(1)<%2Fscript>/epoch=0"
    versions = [(number, name) for number in range(500, 542) for name in ("east", "west")]
    write(verify / "quarantine" / partition, [
        {"sequence": number, "journal": name, "payload": name.encode()} for number, name in versions
    ])  # fmt: skip
    ends = {"stream": STREAM, "epoch": 0, "first": 1, "next": 10_001}
    totals = {"missing/nobody": (1, 300), "divergence/payload": (1, 42), "missing/lost": (70, 490)}
    said = {
        "journals": [{"journal": name, **ends, "records": 9_876, "lost": 490} for name in ("east", "west")],
        "findings": {key: {"runs": runs, "numbers": numbers} for key, (runs, numbers) in totals.items()},
        "status": 2,
        "records": 19_752,
        "seconds": 2.5,
    }
    (verify / "verify.json").write_text(json.dumps(said))
    times = [NOON + timedelta(seconds=10 * index) for index in range(30)]
    windows = [{"stream": STREAM, "window_start": time, "window_end": time + timedelta(seconds=10)} for time in times]
    sums = {"messages": 123, "bytes": 4_567, "publishers": 2, "lost": 1, "gaps": 1, "repairs": 3, "repeats": 0}
    write(run / "gold/traffic/hour=2026-01-31-12", [{**one, **sums} for one in windows])
    delays = {"copies": 246, "p50_us": 900, "p95_us": 2_000, "p99_us": 5_000, "max_us": 1_250_000}
    write(run / "gold/latency/hour=2026-01-31-12", [{**one, **delays} for one in windows])
    silver = {"status": "ok", "copies": 2, "repeat": False, "bad_json": None}
    write(run / "silver" / partition / "bucket=0", [
        {**silver, "sequence": number, "late_copies": int(number % 50 == 0)} for number in range(1, 9_001)
    ])  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page written by the command."""
    root = tmp_path_factory.mktemp("report")
    write_tables(root / "verify", root / "run")
    out = root / "report.html"
    arguments = ["report", str(root / "verify"), str(root / "run"), "--out", str(out), "--master", "local[2]"]
    command = [sys.executable, "-c", MAIN, *arguments]
    ran = subprocess.run(command, capture_output=True, timeout=600, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, f"{out}\n"), ran.stderr
    return out


def test_journal_report_page_draws_the_figures_of_its_tables(open_browser: OpenBrowser, page: Path) -> None:
    shown = open_browser().show_figures(page.as_uri(), 1200, 900)
    dom = shown.run("document.documentElement.outerHTML")
    dom = re.sub(r"<(script|style)\b.*?</\1>", "", dom, flags=re.DOTALL)
    assert "alert(1)" not in re.sub(r"&lt;script&gt;alert\(1\)&lt;/script&gt;", "", dom)
    drawn = dict(re.findall(r'<figure class="card" id="([^"]+)">(.*?)</figure>', dom, re.DOTALL))
    assert list(drawn) == ["rate", "troubles", "latency-0", "gaps-0", "repairs-0", "divergence-0"]
    points = {name: len(re.findall(r'class="point\b', svg)) for name, svg in drawn.items()}
    assert points["rate"] == 60
    assert points["troubles"] >= 60
    assert points["latency-0"] == 120
    assert points["gaps-0"] >= 70
    assert points["repairs-0"] >= 100
    assert points["divergence-0"] >= 2
    text = unescape(re.sub(r"<[^>]+>", " ", dom))
    text = re.sub(r"\s+", " ", text)
    for said in (
        "The journals disagree on 42 numbers.",
        "19,752 records compared in 2 journals of 1 stream, in 2.5 s.",
        "Refined: 9,000 numbers, of which 0 lost and 0 repeated; 180 copies came late and filled gaps.",
        "Traffic: 3,690 messages, 137,010 bytes.",
        "300 numbers in no journal, in 1 run",
        "490 numbers declared lost by a journal, in 70 runs",
        "30 lost in 30 gaps, 90 repaired, 0 repeated",
        "Highest median 900 µs, highest 99th percentile 5 ms, maximum 1.25 s.",
        "east ≠ west: 42 numbers",
        "The largest 12 of 72 findings; 60 more are in the table.",
    ):
        assert said in text, said


def test_journal_report_page_has_two_colour_schemes_and_fits_a_phone(open_browser: OpenBrowser, page: Path) -> None:
    for name, width, height, dark in (
        ("light", 1200, 2600, False),
        ("dark", 1200, 2600, True),
        ("phone", 400, 3600, False),
    ):
        shown = open_browser().show_figures(page.as_uri(), width, height, dark=dark)
        assert shown.run("document.documentElement.scrollWidth") <= width
        png = shown.keep(f"report-{name}").read_bytes()
        assert (int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")) == (width, height)
        assert len(png) > 100_000
