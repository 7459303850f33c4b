"""Command line of `fyrehose journal`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fyrehose_twisted.fyrehose.wire.envelope import wrap as enveloped
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.segment_header import SegmentHeader
from fyrehose_twisted.journal.format.segment_header import encode as encode_header
from fyrehose_twisted.journal.store import Journal, open_journal
from fyrehose_twisted.record import Record

FYREHOSE = str(Path(sys.executable).parent / "fyrehose")
STREAM = "fyrehose://ticks"
BEGAN = 1_700_000_000_000_000

Run = Callable[..., tuple[int, str, str]]


def records(sequences: Iterable[int], stream: str = STREAM, epoch: int = 0) -> list[Record]:
    """Return records one second apart."""
    return [Record(stream, epoch, one, BEGAN + one % 1_000 * 1_000_000, b"tick %d" % one) for one in sequences]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a journal of 1 to 10, with 4 and 5 lost, and 12 above a gap at 11."""
    with closing(open_journal(tmp_path / "root", STREAM)) as journal:
        journal.append(records([1, 2, 3, 6, 7, 8, 9, 10, 12]))
        journal.lose(0, 4, 5)
    return tmp_path / "root"


@pytest.fixture
def path(root: Path) -> Path:
    return root / "fyrehose-ticks"


def spoil(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 0x10
    file.write_bytes(data)


class TestLs:
    def test_ls_prints_a_table_of_journals(self, run: Run, root: Path) -> None:
        status, out, err = run("ls", root)
        assert (status, err) == (0, "")
        heads, row = (line.split() for line in out.splitlines())
        shown = dict(zip(heads, row, strict=True))
        size = sum(file.stat().st_size for file in (root / "fyrehose-ticks").iterdir())
        assert shown == {
            "STREAM": STREAM,
            "EPOCH": "0",
            "FIRST": "1",
            "NEXT": "11",
            "LAST": "12",
            "RECORDS": "9",
            "LOST": "2",
            "MISSING": "1",
            "SEGMENTS": "1",
            "BYTES": str(size),
            "OLDEST": "2023-11-14T22:13:21Z",
            "NEWEST": "2023-11-14T22:13:32Z",
            "WRITER": "no",
        }

    def test_ls_prints_several_journals_and_their_writer_as_json(self, run: Run, root: Path) -> None:
        with closing(open_journal(root, "fyrehose://other")) as journal:
            journal.append(records([5], "fyrehose://other", epoch=1))
            journal.append(records([7], "fyrehose://other", epoch=2))
            journal.commit()
            status, out, _ = run("ls", "--json", root)
        assert status == 0
        rows = [json.loads(line) for line in out.splitlines()]
        assert [(row["stream"], row["epoch"], row["first"], row["writer"]) for row in rows] == [
            ("fyrehose://other", 1, 5, True),
            ("fyrehose://other", 2, 7, True),
            (STREAM, 0, 1, False),
        ]
        assert (rows[2]["oldest"], rows[2]["newest"]) == (BEGAN + 1_000_000, BEGAN + 12_000_000)

    def test_ls_prints_a_journal_without_records(self, run: Run, tmp_path: Path) -> None:
        open_journal(tmp_path, STREAM).close()
        assert run("ls", tmp_path)[0] == 0
        with closing(open_journal(tmp_path, STREAM)) as journal:
            journal.begin(0, 7)
        status, out, _ = run("ls", tmp_path)
        assert (status, out.splitlines()[1].split()[:6]) == (0, [STREAM, "0", "7", "7", "6", "0"])

    def test_ls_does_not_take_the_lock_of_a_writer(self, run: Run, path: Path) -> None:
        run("ls", path)
        with closing(Journal(LocalDirectory(path), STREAM)):
            pass
        (path / "lock").unlink()
        run("ls", path)
        assert not (path / "lock").exists()


class TestCat:
    def test_cat_prints_payloads_and_reports_missing_numbers(self, run: Run, root: Path) -> None:
        status, out, err = run("cat", root)
        assert (status, out) == (0, "".join(f"tick {one}\n" for one in (1, 2, 3, 6, 7, 8, 9, 10)))
        assert err.splitlines() == [
            "fyrehose: lost 4 to 5: no journal or client held them",
            "fyrehose: 11 of epoch 0 is missing; the records after it, up to 12, are not printed",
        ]

    @pytest.fixture
    def published_twice(self, tmp_path: Path) -> Path:
        """Return a journal in which 2 and 4 repeat 1 and 3."""
        with closing(open_journal(tmp_path / "twice", STREAM)) as journal:
            payloads = [enveloped(b"someones", counter, b"tick %d" % counter) for counter in (0, 0, 1, 1, 2)]
            journal.append([Record(STREAM, 0, 1 + row, 5, payload) for row, payload in enumerate(payloads)])
        return tmp_path / "twice"

    def test_cat_leaves_out_repeats(self, run: Run, published_twice: Path) -> None:
        assert run("cat", published_twice) == (0, "tick 0\ntick 1\ntick 2\n", "")
        assert run("cat", published_twice, "--from", 2) == (0, "tick 1\ntick 2\n", "")
        assert run("cat", published_twice, "--count", 2) == (0, "tick 0\ntick 1\n", "")

    def test_cat_marks_repeats_on_request(self, run: Run, published_twice: Path) -> None:
        assert run("cat", published_twice, "--repeats")[1].count("tick") == 5
        _, out, _ = run("cat", published_twice, "--repeats", "--format", "json")
        found = [json.loads(line) for line in out.splitlines()]
        assert [one["sequence"] for one in found if one.get("repeat")] == [2, 4]
        _, raw, _ = run("cat", published_twice, "--raw")
        assert raw.count("tick") == 5

    def test_cat_prints_records_as_json(self, run: Run, root: Path) -> None:
        with closing(open_journal(root, STREAM)) as journal:
            journal.append([Record(STREAM, 0, 11, 5, b"\xff")])
        _, out, _ = run("cat", root, "--format", "json", "--from", 10, "--to", 11)
        common = {"stream": STREAM, "epoch": 0}
        assert [json.loads(line) for line in out.splitlines()] == [
            common | {"sequence": 10, "received_at": BEGAN + 10_000_000, "data": "tick 10"},
            common | {"sequence": 11, "received_at": 5, "data": "/w==", "encoding": "base64"},
        ]

    @pytest.mark.parametrize(
        ("arguments", "numbers"),
        [
            ("--from 7 --to 9", [7, 8, 9]),
            ("--from 2 --count 3", [2, 3, 6]),
            ("--to 0", []),
            ("--from 90", []),
            ("--from @1700000007.5 --to 2023-11-14T22:13:29Z", [8, 9]),
            ("--from 2023-11-14T23:13:28+01:00", [8, 9, 10]),
            ("--to @1700000001", [1]),
            ("--from @1700000002 --to @1700000007", [2, 3, 6, 7]),
            ("--from @1700000007 --count 1", [7]),
        ],
    )
    def test_cat_prints_ranges_of_records(self, run: Run, path: Path, arguments: str, numbers: list[int]) -> None:
        status, out, err = run("cat", path, *arguments.split())
        assert (status, out) == (0, "".join(f"tick {one}\n" for one in numbers))
        assert ("lost 4 to 5" in err) == ({3, 6} <= {*numbers})

    def test_cat_reports_records_before_the_beginning(self, run: Run, path: Path) -> None:
        status, out, err = run("cat", path, "--from", 0, "--count", 1)
        assert (status, out) == (0, "tick 1\n")
        assert err == f"fyrehose: {STREAM} begins at 1 of epoch 0 here; earlier records are not kept\n"

    def test_cat_removes_envelopes_unless_raw(self, run: Run, tmp_path: Path) -> None:
        data = [enveloped(b"12345678", 1, b"inside"), b"bare", enveloped(b"12345678", 1, b"")[:-1]]
        for stream in (STREAM, "freenet://x"):
            with closing(open_journal(tmp_path / stream[:4], stream)) as journal:
                journal.append([Record(stream, 0, number, 1, each) for number, each in enumerate(data)])
        as_they_are = "".join(each.decode(errors="surrogateescape") + "\n" for each in data)
        bare = "inside\n" + as_they_are.partition("\n")[2]
        assert run("cat", tmp_path / "fyre")[1] == bare
        assert run("cat", tmp_path / "fyre", "--raw")[1] == as_they_are
        assert run("cat", tmp_path / "free")[1] == as_they_are

    def test_cat_selects_an_epoch(self, run: Run, root: Path) -> None:
        with closing(open_journal(root, STREAM)) as journal:
            journal.append(records([1, 2], epoch=5))
        assert run("cat", root)[1].endswith("tick 10\ntick 1\ntick 2\n")
        assert run("cat", root, "--epoch", 5, "--from", 2)[:2] == (0, "tick 2\n")
        status, _, err = run("cat", root, "--from", 2)
        assert (status, err) == (
            1,
            f"fyrehose: {STREAM} has several epochs, 0, 5; select one with --epoch\n",
        )
        assert run("cat", root, "--epoch", 2)[2] == f"fyrehose: {STREAM} has no epoch 2; it has 0, 5\n"

    def test_cat_reports_an_epoch_missing_in_an_empty_journal(self, run: Run, tmp_path: Path) -> None:
        open_journal(tmp_path, STREAM).close()
        assert run("cat", tmp_path, "--epoch", 2)[2] == f"fyrehose: {STREAM} has no epoch 2; it is empty\n"

    def test_cat_requires_a_stream_among_several(self, run: Run, root: Path) -> None:
        with closing(open_journal(root, "fyrehose://other")) as journal:
            journal.append(records([5], "fyrehose://other"))
        assert run("cat", root, "--stream", "fyrehose://other")[:2] == (0, "tick 5\n")
        status, _, err = run("cat", root)
        assert (status, err) == (
            1,
            f"fyrehose: {root} has several journals; select one with --stream fyrehose://other\n",
        )
        assert run("cat", root, "--stream", "fyrehose://no")[2] == (
            f"fyrehose: {root} has no journal of fyrehose://no; it has fyrehose-other, fyrehose-ticks\n"
        )
        status, _, err = run("cat", root / "fyrehose-ticks", "--stream", "fyrehose://other")
        assert (status, err.endswith(f"is the journal of {STREAM}, not of fyrehose://other\n")) == (1, True)

    def test_cat_prints_ranges_of_wrapping_numbers(self, run: Run, tmp_path: Path) -> None:
        wrap = 2**63
        with closing(open_journal(tmp_path, "freenet://x", wrap=wrap)) as journal:
            journal.append(records([wrap - 1, 0, 1, 2], "freenet://x"))
        assert run("cat", tmp_path, "--from", 1)[1] == "tick 1\ntick 2\n"
        assert run("cat", tmp_path, "--from", wrap - 1, "--to", 0)[1] == f"tick {wrap - 1}\ntick 0\n"
        assert run("cat", tmp_path, "--from", wrap - 9, "--to", 0)[1] == f"tick {wrap - 1}\ntick 0\n"

    def test_cat_reports_damage_and_fails(self, run: Run, root: Path, path: Path) -> None:
        run("seal", root)
        spoil(path / "0000000001.seg", -20)
        status, out, err = run("cat", root)
        assert (status, out) == (1, "")
        assert "0000000001.seg, bytes " in err
        assert "the checksum of the body is wrong; left out" in err

    def test_cat_follow_prints_new_records(self, path: Path) -> None:
        command = [FYREHOSE, "journal", "cat", str(path), "--from", "9", "--follow"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            assert [running.stdout.readline() for _ in range(2)] == ["tick 9\n", "tick 10\n"]
            with closing(Journal(LocalDirectory(path), STREAM)) as journal:
                journal.append(records([11]))
                journal.commit()
                assert [running.stdout.readline() for _ in range(2)] == ["tick 11\n", "tick 12\n"]
                journal.append(records([1], epoch=1))  # A start number implies its epoch.
                journal.commit()
                journal.append(records([13]))
                journal.commit()
                assert running.stdout.readline() == "tick 13\n"
                running.send_signal(signal.SIGINT)
                assert (*running.communicate(timeout=60), running.returncode) == ("", "", 0)

    @pytest.mark.parametrize("follow", [[], ["--follow"]])
    def test_cat_ends_when_its_output_is_closed(self, tmp_path: Path, follow: list[str]) -> None:
        with closing(open_journal(tmp_path, STREAM)) as journal:
            journal.append(records(range(1, 50_000)))
        command = [FYREHOSE, "journal", "cat", str(tmp_path), *follow]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            assert running.stdout is not None
            assert running.stderr is not None
            if follow:  # Read everything, so that it waits for more when the reader closes.
                assert sum(len(running.stdout.readline()) > 0 for _ in range(49_999)) == 49_999
            else:
                running.stdout.readline()
            running.stdout.close()
            assert running.wait(60) == 0
            assert running.stderr.read() == b""

    def test_cat_reports_a_full_output_disk(self, root: Path) -> None:
        with open("/dev/full", "w") as full:
            ran = subprocess.run([FYREHOSE, "journal", "cat", root], stdout=full, stderr=-1, text=True, timeout=60)
        assert ran.returncode == 1
        assert "No space left on device" in ran.stderr
        assert "Traceback" not in ran.stderr


class TestCheck:
    def test_check_reports_good_and_damaged_journals(self, run: Run, root: Path, path: Path) -> None:
        status, out, err = run("check", root)
        size = (path / "0000000001.log").stat().st_size
        assert (status, err) == (0, "")
        assert out.splitlines() == [
            f"{path}: declared lost in epoch 0: 4 to 5",
            f"{path}: missing in epoch 0: 11",
            f"{STREAM}: 1 segment, {size:,} bytes; epoch 0 from 1 to 12, 9 records, 2 lost, 1 missing;"
            " nothing is damaged",
        ]
        spoil(path / "durable", 12)
        status, out, _ = run("check", root)
        assert status == 1
        assert out.startswith(f"{path}: damage: durable, bytes 0 to 180: ")
        assert out.endswith("; damage in 1 place\n")

    def test_check_of_a_journal_in_use_reports_no_torn_end(self, run: Run, path: Path) -> None:
        with closing(Journal(LocalDirectory(path), STREAM)) as journal:
            journal.append(records([11]))
            journal.commit(sync=False)
            with open(path / "0000000001.log", "ab") as file:
                file.write(b"half a frame")
            status, out, _ = run("check", path)
            assert status == 0
            assert "torn" not in out

    @pytest.mark.parametrize("command", ["ls", "cat", "check", "repair", "seal"])
    def test_directories_that_are_no_journals_are_reported(self, run: Run, tmp_path: Path, command: str) -> None:
        assert run(command, tmp_path / "no")[::2] == (1, f"fyrehose: {tmp_path / 'no'}: No such file or directory\n")
        (tmp_path / "file").write_bytes(b"")
        assert run(command, tmp_path / "file")[::2] == (1, f"fyrehose: {tmp_path / 'file'}: Not a directory\n")
        assert run(command, tmp_path)[::2] == (
            1,
            f"fyrehose: {tmp_path} holds no journal, and neither do its subdirectories\n",
        )
        newer = bytearray(encode_header(SegmentHeader(1, STREAM, 0, 0, 1)))
        newer[8] = 2
        newer[-4:] = zlib.crc32(newer[:-4]).to_bytes(4, "little")
        (tmp_path / "0000000001.seg").write_bytes(newer)
        status, _, err = run(command, tmp_path)
        assert status == 1
        assert "0000000001.seg cannot be read: unsupported format version 2; expected 1" in err

    def test_check_continues_after_an_unreadable_journal(self, run: Run, root: Path) -> None:
        (root / "fyrehose-a").mkdir()
        (root / "fyrehose-a" / "0000000001.seg").write_bytes(bytes(3_000))
        status, out, _ = run("check", root)
        assert status == 1
        assert "damage: 0000000001.seg, bytes 0 to 3,000" in out
        assert f"{STREAM}: 1 segment" in out


class TestRepairAndSeal:
    def test_repair_copies_records_from_a_replica(self, run: Run, root: Path, path: Path, tmp_path: Path) -> None:
        with closing(open_journal(tmp_path / "other", STREAM)) as journal:
            journal.append(records(range(1, 15)))
        status, out, err = run("repair", root, "--from", tmp_path / "other", "--dry-run")
        assert (status, err) == (0, "")
        assert "to do: copy 1 record of 11 of epoch 0" in out
        status, out, _ = run("repair", root, "--from", tmp_path / "other")
        assert status == 0
        assert out.splitlines()[-1] == f"{path}: {STREAM} now has epoch 0 from 1 to 14, 12 records, 2 lost"
        assert run("cat", root, "--from", 10)[1] == "".join(f"tick {one}\n" for one in range(10, 15))

    def test_repair_reports_a_conflict_with_a_replica(self, run: Run, root: Path, tmp_path: Path) -> None:
        with closing(open_journal(tmp_path / "other", STREAM)) as journal:
            journal.append(records(range(1, 12)))
            journal.append([Record(STREAM, 0, 12, 1, b"another")])
        status, out, _ = run("repair", root, "--from", tmp_path / "other")
        assert status == 1
        assert "conflict" in out

    def test_repair_of_all_headers_requires_the_stream(self, run: Run, root: Path, path: Path) -> None:
        spoil(path / "0000000001.log", 20)
        status, _, err = run("repair", root)
        assert (status, err.endswith("give it with --stream URI\n")) == (1, True)
        assert run("repair", root, "--stream", STREAM)[0] == 0
        assert run("check", root)[0] == 0

    def test_repair_of_a_header_of_wrapping_numbers_requires_the_wrap(self, run: Run, tmp_path: Path) -> None:
        stream, wrap = "freenet://x", 2**63
        with closing(open_journal(tmp_path, stream, wrap=wrap)) as journal:
            journal.append(records([wrap - 1, 0], stream))
        spoil(tmp_path / "freenet-x" / "0000000001.log", 20)
        assert run("repair", tmp_path, "--stream", stream, "--wrap", wrap)[0] == 0
        with closing(open_journal(tmp_path, stream, wrap=wrap)) as journal:
            assert list(journal.held(0, 0, 2**64 - 1)) == [(wrap - 1, wrap)]

    def test_repair_and_compaction_are_refused_beside_a_writer(self, run: Run, root: Path, tmp_path: Path) -> None:
        with closing(open_journal(root, STREAM)):
            for command in ("repair", "seal"):
                status, _, err = run(command, root)
                assert status == 1
                assert "in use by " in err
            pytest.importorskip("pyarrow")
            status, out, err = run("seal", root, "--parquet", tmp_path / "out")
            assert status == 0
            assert "is open for writing in another process; its segments are not compacted" in err
            assert out == f"{tmp_path}/out/fyrehose-ticks/0-1-10.parquet: 10 rows\n"

    def test_seal_compacts_full_segments_once(self, run: Run, root: Path, path: Path) -> None:
        assert run("seal", root) == (0, f"{STREAM}: 1 segment compacted\n", "")
        assert sorted(file.name for file in path.glob("0*")) == [
            "0000000001.idx",
            "0000000001.seg",
            "0000000002.log",
        ]
        assert run("seal", root) == (0, f"{STREAM}: 0 segments compacted\n", "")
        assert run("check", root)[0] == 0

    def test_seal_refuses_a_damaged_journal(self, run: Run, root: Path, path: Path) -> None:
        with closing(open_journal(root, STREAM)) as journal:
            journal.append(records([11]))
            journal.commit()
            journal.append(records([20]))
        data = (path / "0000000001.log").read_bytes()
        spoil(path / "0000000001.log", data.index(b"tick 11"))
        damaged = (path / "0000000001.log").read_bytes()
        status, _, err = run("seal", root)
        assert status == 1
        assert "the checksum of the body is wrong. `fyrehose journal check` lists all damage" in err
        assert (path / "0000000001.log").read_bytes() == damaged
        assert not list(path.glob("*.tmp"))

    def test_seal_to_parquet_without_pyarrow_names_the_missing_extra(
        self, run: Run, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
        status, _, err = run("seal", root, "--parquet", root / "out")
        assert (status, "pip install 'fyrehose_twisted[parquet]'" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            "cat . --from soon",
            "'soon' is neither a sequence number nor a time such as 2026-01-31T12:00:00Z or @1769860800",
        ),
        ("cat . --to @x", "'@x' is neither a sequence number"),
        ("cat . --from @1e999", "'@1e999' is neither a sequence number"),
        ("cat . --count 0", "'0' is not a whole number above 0"),
        ("repair . --wrap -1", "'-1' is not a whole number"),
    ],
)
def test_invalid_journal_arguments_are_reported(run: Run, arguments: str, complaint: str) -> None:
    status, out, err = run(*arguments.split())
    assert (status, out) == (2, "")
    assert complaint in err


def test_follow_rejects_a_time_as_its_end(run: Run, root: Path) -> None:
    status, _, err = run("cat", root, "--follow", "--to", "@1")
    assert status == 2
    assert "cannot be combined with a time as --to" in err


def test_journal_commands_import_only_needed_modules(root: Path) -> None:
    program = (
        "import sys; from fyrehose_twisted.cli.main import main as f\n"
        "try: f({!r})\nexcept SystemExit: print(*sys.modules)"
    )
    for arguments, unwanted in (
        (("journal", "--help"), {"twisted", "numpy", "tqdm", "pyarrow"}),
        (("journal", "cat", str(root)), {"twisted", "pyarrow"}),
        (("journal", "check", str(root)), {"twisted", "pyarrow", "fyrehose_twisted.fyrehose.node"}),
    ):
        ran = subprocess.run(
            [sys.executable, "-c", program.format(arguments)], capture_output=True, text=True, timeout=60, check=True
        )
        assert not unwanted & set(ran.stdout.splitlines()[-1].split())


def test_check_shows_progress_on_a_terminal(root: Path, shown_on_terminal: Any) -> None:
    status, out, seen = shown_on_terminal([FYREHOSE, "journal", "check", root])
    assert status == 0
    assert "fyrehose-ticks:" in seen
    assert "missing in epoch 0: 11" in out
