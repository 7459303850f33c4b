from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from suite.journals import WriteJournal

from fyrehose_twisted.errors import ConfigurationError, FyrehoseError
from fyrehose_twisted.journal.errors import JournalDamaged
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.spark.session import add_session_options
from fyrehose_twisted.spark.verify import command
from fyrehose_twisted.spark.verify.output import VerificationOutput
from fyrehose_twisted.spark.verify.verdict import MAX_ROWS, conclusion, verdict

STREAM = "fyrehose://test"

Run = Callable[..., int]


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_session_options(command.add_parser(parser.add_subparsers()))
    return parser.parse_args(["verify", "--quiet", *arguments])


@pytest.fixture
def run(spark: Any) -> Run:
    """Return a function that runs the command in the session of the tests."""

    def run(*arguments: object) -> int:
        options = parse(*map(str, arguments))
        status: int = options.run(options)
        return status

    return run


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pyarrow.dataset.dataset(path, partitioning="hive").to_table().to_pylist()
    return found


def test_verify_of_agreeing_journals_exits_with_0(
    run: Run, write_journal: WriteJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = write_journal(range(1, 11)), write_journal(range(1, 11), group=3)
    assert run(f"left={path}", f"right={other}") == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        STREAM,
        "  journal  numbers  records  lost  damaged  before  after",
        "  left     1 to 10       10     0        0       0      0",
        "  right    1 to 10       10     0        0       0      0",
        "All is well: 10 of 10 numbers are there, and no payloads differ.",
    ]
    assert err == ""


@pytest.mark.parametrize("beside", [True, False])
def test_verify_reports_records_missing_at_the_end_of_the_open_segment(
    run: Run, write_journal: WriteJournal, capsys: pytest.CaptureFixture[str], beside: bool
) -> None:
    path = write_journal(range(1, 5_001))
    (file,) = path.glob("*.log")
    data = bytearray(file.read_bytes())
    data[-500] ^= 4
    file.write_bytes(data)
    replica = [f"good={write_journal(range(1, 5_001))}"] if beside else []
    assert run(f"bad={path}", *replica) == 1
    (told,) = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["bad"]]
    assert told == ["bad", "1", "to", "5,000", "4,000", "0", "1,000", "0", "0"]


def test_verify_refuses_a_journal_without_a_durable_position(run: Run, write_journal: WriteJournal) -> None:
    path = write_journal(range(1, 11))
    with closing(Journal(LocalDirectory(path), STREAM)) as journal:
        journal.roll()
    (path / "durable").unlink()
    with pytest.raises(JournalDamaged, match=r"0000000002\.log: nothing says what of it is durable"):
        run(f"one={path}")


def test_verify_writes_and_replaces_its_tables(
    run: Run, write_journal: WriteJournal, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "an out: put=1"
    records = [(number, b"%d" % number) for number in range(1, 101)]
    left = write_journal([*records[:40], *records[50:]], lost=[(41, 50)])
    right = write_journal([*records[:20], (21, b"\xff"), *records[21:45], *records[46:]], lost=[(46, 46)])
    assert run(f"left={left}", f"right={right}", "--out", out, "--json") == 2
    summary = json.loads(capsys.readouterr().out)
    assert summary == json.loads((out / "verify.json").read_text())
    assert (summary["status"], summary["records"], summary["healed"]) == (2, 189, 98)
    assert {name: (one["runs"], one["numbers"]) for name, one in summary["findings"].items()} == {
        "divergence/payload": (1, 1),
        "missing/lost": (2, 11),
        "missing/nobody": (1, 1),
    }
    findings = {
        (row["kind"], row["reason"], row["journal"], row["first"], row["last"]) for row in rows(out / "findings")
    }
    assert findings == {
        ("divergence", "payload", None, 21, 21),
        ("missing", "lost", "left", 41, 50),
        ("missing", "lost", "right", 46, 46),
        ("missing", "nobody", None, 46, 46),
    }
    healed = rows(out / "healed")
    assert [row["sequence"] for row in healed] == list(range(1, 101))
    assert {row["stream"] for row in healed} == {STREAM}
    by_number = {row["sequence"]: (row["status"], row["payload"], row["journal"]) for row in healed}
    assert by_number[21] == ("quarantined", None, None)
    assert by_number[46] == ("lost", None, None)
    assert by_number[45] == ("ok", b"45", "right")
    versions = [(row["sequence"], row["journal"], row["payload"]) for row in rows(out / "quarantine")]
    assert versions == [(21, "left", b"21"), (21, "right", b"\xff")]

    assert run(f"left={left}", "--out", out, "--no-healed") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [
        f"tables: findings, quarantine, verify.json in {out}",
        "Losses: no journal has 10 of 100 numbers; no payloads differ.",
    ]
    assert sorted(path.name for path in out.iterdir() if path.suffix != ".crc") == [
        "findings",
        "quarantine",
        "verify.json",
    ]
    assert rows(out / "quarantine") == []
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name or "old" in path.name] == []


def test_verify_of_an_empty_journal_writes_empty_tables(
    run: Run, write_journal: WriteJournal, tmp_path: Path, spark: Any
) -> None:
    out = tmp_path / "out"
    assert run(write_journal([]), "--out", out) == 0
    assert spark.read.parquet(str(out / "healed")).count() == 0
    assert spark.read.parquet(str(out / "findings")).columns[2:5] == ["kind", "reason", "journal"]


def test_verify_refuses_to_replace_other_files(
    spark: Any, tmp_path: Path, write_journal: WriteJournal, run: Run
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").touch()
    with pytest.raises(ConfigurationError, match="out holds precious, which is not of an earlier verification"):
        run(write_journal([1]), "--out", tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="file is not a directory"):
        VerificationOutput(spark, str(tmp_path / "file"))
    (tmp_path / "half" / "findings").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="half holds findings"):
        VerificationOutput(spark, str(tmp_path / "half"))


class TestOutput:
    def replace(self, output: VerificationOutput, said: str, error: type[Exception] | None = None) -> None:
        with output.replace_atomically():
            output.write_summary({"said": said})
            if error is not None:
                raise error

    def said(self, tmp_path: Path) -> str:
        text: str = json.loads((tmp_path / "out" / "verify.json").read_text())["said"]
        return text

    def test_a_failed_write_keeps_the_earlier_tables(self, spark: Any, tmp_path: Path) -> None:
        where = str(tmp_path / "out")
        self.replace(VerificationOutput(spark, where), "first")
        output = VerificationOutput(spark, where)
        with pytest.raises(ZeroDivisionError):
            self.replace(output, "second", ZeroDivisionError)
        assert self.said(tmp_path) == "first"
        assert [path.name for path in tmp_path.iterdir()] == ["out"]

    def test_leftovers_of_a_crash_are_restored_or_removed(self, spark: Any, tmp_path: Path) -> None:
        where = str(tmp_path / "out")
        self.replace(VerificationOutput(spark, where), "first")
        (tmp_path / "out").rename(tmp_path / ".out.old")  # As after a crash between two renames.
        (tmp_path / ".out.partial").mkdir()
        output = VerificationOutput(spark, where)
        assert self.said(tmp_path) == "first"
        self.replace(output, "second")
        assert self.said(tmp_path) == "second"
        assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_unreadable_journal_is_an_error_of_verify(run: Run, write_journal: WriteJournal, tmp_path: Path) -> None:
    with pytest.raises(FyrehoseError, match="no such directory"):
        run(tmp_path / "none")
    path = write_journal([1])
    with pytest.raises(ConfigurationError, match="given twice"):
        run(path, path)


@pytest.mark.parametrize(
    "arguments",
    [["--tolerance", "-1"], ["--tolerance", "nan"], ["--tolerance", "x"], ["--rows-per-partition", "0"]],
)
def test_invalid_verify_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("somewhere", *arguments)
    assert arguments[1] in capsys.readouterr().err


class TestVerdict:
    def summary(self, *journals: dict[str, Any], status: int = 0, **findings: Any) -> dict[str, Any]:
        found = {name.replace("_", "/", 1).replace("_", "-"): one for name, one in findings.items()}
        return {
            "status": status,
            "streams": sorted({one["stream"] for one in journals}) or [STREAM],
            "journals": list(journals),
            "findings": found,
            "numbers": 1_000,
            "healed": 990,
        }

    def journal(self, name: str, epoch: int = 0) -> dict[str, Any]:
        counts = dict.fromkeys(("records", "lost", "damaged", "before", "after"), 0)
        return {"journal": name, "stream": STREAM, "epoch": epoch, "first": 1, "next": 1_001, **counts}

    def finding(self, runs: int, **more: Any) -> dict[str, Any]:
        one = {"stream": STREAM, "epoch": 0, "journal": "a", "first": 5, "last": 9, "count": 5, "detail": None}
        return {"runs": runs, "numbers": 5 * runs, "examples": [one | more] * min(runs, 5)}

    def test_the_verdict_lists_few_findings_by_severity(self) -> None:
        summary = self.summary(
            self.journal("a"),
            status=2,
            missing_lost=self.finding(12),
            divergence_payload=self.finding(1, journal=None, detail="b differs from a", last=5),
        )
        assert list(verdict(summary))[3:] == [
            "DIVERGENCE: different payloads under the same number: 5 numbers in 1 range",
            "  5 (b differs from a)",
            "declared lost by the journal: 60 numbers in 12 ranges",
            *["  a: 5 to 9"] * 5,
            "  … and 7 more",
            "The journals DISAGREE on 5 of 1,000 numbers.",
        ]

    def test_the_verdict_names_epochs_and_streams_if_there_are_several(self) -> None:
        other = self.journal("a") | {"stream": "fyrehose://other"}
        summary = self.summary(self.journal("a", 7), other, missing_lost=self.finding(1, epoch=7))
        lines = list(verdict(summary))
        assert lines[:2] == ["fyrehose://other", "  journal     numbers  records  lost  damaged  before  after"]
        assert "  journal  epoch     numbers  records  lost  damaged  before  after" in lines
        assert "  a: 5 to 9 of epoch 7 of fyrehose://test" in lines

    def test_the_verdict_abbreviates_many_epochs(self) -> None:
        lines = list(verdict(self.summary(*(self.journal("a", epoch) for epoch in range(MAX_ROWS + 3)))))
        assert lines[-2] == "  … and 3 more"

    def test_the_verdict_of_an_empty_stream_says_so(self) -> None:
        assert list(verdict(self.summary()))[:2] == [STREAM, "  no journal of it has any number yet"]

    @pytest.mark.parametrize(
        ("status", "findings", "expected"),
        [
            (1, ["missing_lost"], "Losses, but together the journals have all 1,000 numbers; no payloads differ."),
            (1, ["missing_nobody"], "Losses: no journal has 5 of 1,000 numbers; no payloads differ."),
            (2, ["order_epoch"], "Records are not in order, among 1,000 numbers; no payloads differ."),
            (0, ["missing_before"], "All is well: 990 of 1,000 numbers are there, and no payloads differ."),
        ],
    )
    def test_the_conclusion_follows_from_the_findings(self, status: int, findings: list[str], expected: str) -> None:
        summary = self.summary(status=status, **{name: self.finding(1) for name in findings})
        assert conclusion(summary) == expected
