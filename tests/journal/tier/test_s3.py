"""Segments in object storage behind a server of the S3 protocol."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest
from suite.object_storage import (
    BUCKET,
    CREDENTIALS,
    Faults,
    S3Server,
    s3_proxy,
    s3_server,
    storage_environment,
    tier_url,
)

from fyrehose_twisted.journal.arrow.parquet import export, final_files, halves
from fyrehose_twisted.journal.errors import JournalError, TierError
from fyrehose_twisted.journal.format.disk import EXPORT_LOCK_NAME, TIER_LOCK_NAME, LocalDirectory
from fyrehose_twisted.journal.reader import open_reader
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig, open_journal
from fyrehose_twisted.journal.tier.mover import SegmentMover
from fyrehose_twisted.journal.tier.objects import ArrowObjects
from fyrehose_twisted.record import Record

pq = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.extended

STREAM = "fyrehose://test"
COUNT = 300
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def running() -> Iterator[S3Server]:
    """Return a server of the S3 protocol, for all tests of this module."""
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(running: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """Return the server with an empty bucket, and set the credentials for it."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    for key in running.list_objects():
        running.request("DELETE", f"/{BUCKET}/{key}")
    return running


def make_journal(root: Path, count: int = COUNT, size: int = 100) -> Path:
    """Write a journal with compacted segments below ``root``; return its directory."""
    journal = open_journal(root, STREAM, config=JournalConfig(segment_bytes=20 * size, frame_records=16))
    for number in range(1, count + 1):
        journal.append([Record(STREAM, 0, number, number * 1_000_000, b"%0*d" % (size, number))])
        journal.commit(sync=False)
    journal.compact()
    journal.close()
    return root / "fyrehose-test"


def read_all(path: Path) -> list[Record]:
    reader = open_reader(path)
    try:
        bounds = reader.bounds(0)
        assert bounds is not None
        return [record for block in reader.read(0, bounds.first, bounds.last) for record in block.records()]
    finally:
        reader.close()


def segments(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.name.endswith(".seg"))


def move(path: Path, url: str) -> list[str]:
    return SegmentMover(LocalDirectory(path), ArrowObjects(), url).run().moved


def test_every_command_reads_through_the_tier(s3: S3Server, tmp_path: Path, run: Run) -> None:
    path = make_journal(tmp_path)
    before = {command: run(command, path)[:2] for command in ("cat", "check")}
    local = segments(path)
    status, output, errors = run("tier", path, "--to", s3.url)
    assert (status, errors) == (0, "")
    assert output.splitlines()[-1].startswith(f"{path}: {len(local)} segments of ")
    assert "endpoint" not in output
    assert not segments(path)
    assert len(s3.list_objects()) == len(local) > 5
    assert {command: run(command, path)[:2] for command in ("cat", "check")} == before
    status, output, _ = run("ls", path)
    assert "TIERED" in output
    assert run("seal", path)[0] == 0
    assert run("cat", path)[:2] == before["cat"]
    run("tier", path, "--to", s3.url)
    assert not segments(path)
    assert run("cat", path)[:2] == before["cat"]


def test_parquet_files_are_written_from_the_tier(s3: S3Server, tmp_path: Path, run: Run) -> None:
    path = make_journal(tmp_path / "journals")
    move(path, s3.url)
    status, output, _ = run("seal", path, "--parquet", tmp_path / "parquet")
    assert status == 0
    assert f"{COUNT} rows" in output


def exported(s3: S3Server) -> list[str]:
    return sorted(key.rpartition("/")[2] for key in s3.list_objects() if key.startswith("journals/fyrehose-test/"))


def read_exported(path: Path, url: str) -> list[int]:
    """Return the numbers in final Parquet files, followed by those of the journal after them."""
    with closing(open_reader(path)) as reader:
        found = halves(reader, url)
        numbers = [number for file in found.files for number in pq.read_table(file)["sequence"].to_pylist()]
        return numbers + [int(number) for number in found.tail.read_all()["sequence"].to_pylist()]


def test_parquet_files_are_written_to_the_bucket(s3: S3Server, tmp_path: Path, run: Run) -> None:
    path = make_journal(tmp_path / "journals")
    place = f"s3://{BUCKET}/journals/fyrehose-test"
    status, output, errors = run("seal", path, "--parquet", s3.url)
    assert (status, errors) == (0, "")
    assert output.splitlines()[1:] == [f"{place}/0-1-{COUNT}.parquet: {COUNT} rows"]
    assert run("seal", path, "--parquet", s3.url)[1].splitlines()[1:] == []
    run("seal", path, "--parquet", tmp_path / "lake")
    table = pq.read_table(tmp_path / "lake" / "fyrehose-test" / f"0-1-{COUNT}.parquet")
    assert pq.read_table(s3.url.replace("/journals", "/journals/fyrehose-test")).equals(table)
    with closing(open_journal(path.parent, STREAM)) as journal:
        journal.append([Record(STREAM, 0, COUNT + 1, 1, b"later")])
        journal.commit()
    status, output, _ = run("tier", path, "--to", s3.url.replace("/journals", "/moved"), "--parquet", s3.url)
    assert status == 0
    assert output.splitlines()[0] == f"{place}/0-1-{COUNT + 1}.parquet: {COUNT + 1} rows"
    assert " segments of " in output.splitlines()[-1]
    assert exported(s3) == [f"0-1-{COUNT + 1}.parquet", "_manifest.json"]
    assert read_exported(path, s3.url) == list(range(1, COUNT + 2))


def test_parquet_credentials_in_the_url_are_refused_before_anything_is_done(tmp_path: Path, run: Run) -> None:
    path = make_journal(tmp_path)
    local = segments(path)
    for command in (["seal"], ["tier", "--to", f"file://{tmp_path}/bucket"]):
        status, output, errors = run(*command, path, "--parquet", "s3://AKIA:hush@bucket/lake")
        assert (status, output) == (1, "")
        assert "has credentials" in errors
        assert "hush" not in errors
    assert segments(path) == local


EXPORT = """
import sys
from pathlib import Path
from fyrehose_twisted.journal.arrow.parquet import export
from fyrehose_twisted.journal.reader import open_reader
reader = open_reader(Path(sys.argv[1]))
export(reader, sys.argv[2], numbers=100, on_message=print)
"""


def run_export(path: Path, url: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", EXPORT, str(path), url]
    return subprocess.Popen(command, env=storage_environment(), stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("method", "where", "final"),
    [
        ("POST", "0-101-200.parquet?uploads", 100),
        ("POST", "0-101-200.parquet?uploadId=", 100),
        ("HEAD", "0-101-200.parquet", 100),
        ("GET", "0-101-200.parquet", 100),
        ("POST", "_manifest.json?uploadId=", 0),
        ("HEAD", "_manifest.json", 100),
    ],
)
def test_a_killed_export_leaves_nothing_that_is_taken_for_a_file(
    s3: S3Server, tmp_path: Path, method: str, where: str, final: int
) -> None:
    path = make_journal(tmp_path)
    reached, go_on = Event(), Event()

    def hold(seen: str, target: str) -> int | None:
        if seen != method or where not in target:
            return None
        reached.set()
        go_on.wait()
        return 500  # The process was killed before this request.

    faults = Faults(before=hold)
    with s3_proxy(s3, faults) as port:
        process = run_export(path, tier_url(port))
        try:
            assert reached.wait(60)
        finally:
            process.kill()
            process.communicate()
        faults.before = lambda m, p: None
        with closing(open_reader(path)) as reader:
            assert sum(file.last + 1 - file.first for file in final_files(reader, s3.url)) == final
        assert read_exported(path, s3.url) == list(range(1, COUNT + 1))
        go_on.set()
    with closing(open_reader(path)) as reader:
        export(reader, s3.url, numbers=100, on_message=print)
        assert len(final_files(reader, s3.url)) == 3
    assert exported(s3) == ["0-1-100.parquet", "0-101-200.parquet", "0-201-300.parquet", "_manifest.json"]
    assert read_exported(path, s3.url) == list(range(1, COUNT + 1))


def test_an_interrupt_from_the_keyboard_does_not_cut_a_manifest(s3: S3Server, tmp_path: Path) -> None:
    path = make_journal(tmp_path)
    reached, go_on = Event(), Event()

    def hold(method: str, where: str) -> None:
        if method == "POST" and "_manifest.json?uploads" in where:
            reached.set()
            go_on.wait()

    with s3_proxy(s3, Faults(before=hold)) as port:
        process = run_export(path, tier_url(port))
        try:
            assert reached.wait(60)
            process.send_signal(signal.SIGINT)
        finally:
            go_on.set()
            _, errors = process.communicate()
    assert "KeyboardInterrupt" in errors
    assert read_exported(path, s3.url) == list(range(1, COUNT + 1))
    with closing(open_reader(path)) as reader:
        assert [file.last for file in final_files(reader, s3.url)] == [100]


def test_an_upload_that_was_altered_is_refused(s3: S3Server, tmp_path: Path, run: Run) -> None:
    path = make_journal(tmp_path)
    altered: list[str] = []

    def alter(method: str, where: str) -> None:
        if method == "HEAD" and where.endswith(".parquet") and not altered:
            content = s3.request("GET", where)
            s3.request("PUT", where, content[:200] + bytes([content[200] ^ 1]) + content[201:])
            altered.append(where)

    with s3_proxy(s3, Faults(before=alter)) as port:
        status, _, errors = run("seal", path, "--parquet", tier_url(port))
        assert altered
        assert status == 1
        assert f"0-1-{COUNT}.parquet does not read back as it was written" in errors
        assert exported(s3) == []
        assert run("seal", path, "--parquet", tier_url(port))[0] == 0
    assert exported(s3) == [f"0-1-{COUNT}.parquet", "_manifest.json"]


@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_a_failing_server_fails_an_export_and_not_its_readers(s3: S3Server, tmp_path: Path, method: str) -> None:
    path = make_journal(tmp_path)
    faults = Faults(before=lambda m, p: 500 if m == method else None)
    with closing(open_reader(path)) as reader, s3_proxy(s3, faults) as port:
        try:
            with pytest.raises(TierError, match=r"cannot be (read|written|listed)"):
                export(reader, tier_url(port), numbers=100, on_message=print)
        finally:
            faults.before = lambda m, p: None
        assert read_exported(path, s3.url) == list(range(1, COUNT + 1))
        assert len(export(reader, tier_url(port), numbers=100, on_message=print)) == 3
    assert read_exported(path, s3.url) == list(range(1, COUNT + 1))


def test_a_listing_that_fails_is_not_taken_for_an_empty_bucket(s3: S3Server, tmp_path: Path) -> None:
    path = make_journal(tmp_path)
    faults = Faults(before=lambda m, p: 500 if "list-type=2" in p else None)
    failing = pytest.raises(TierError, match="s3://bucket/journals/fyrehose-test cannot be listed")
    with closing(open_reader(path)) as reader, s3_proxy(s3, faults) as port, failing:
        final_files(reader, tier_url(port))


def test_a_writer_continues_and_retention_removes_objects(s3: S3Server, tmp_path: Path) -> None:
    path = make_journal(tmp_path)
    records = read_all(path)
    journal = open_journal(tmp_path, STREAM)
    move(path, s3.url)
    assert journal.get(0, 1) == records[0]
    assert [record for block in journal.read(0, 1, COUNT) for record in block.records()] == records
    journal.append([Record(STREAM, 0, COUNT + 1, COUNT * 1_000_000, b"new")])
    journal.close()
    config = JournalConfig(retention=Retention(seconds=100.0))
    journal = Journal(open_reader(path).directory, STREAM, config=config, clock=lambda: 250.0)
    assert journal.trim()
    kept = [record for block in journal.read(0, journal.bounds(0).first, COUNT + 1) for record in block.records()]  # type: ignore[union-attr]
    journal.close()
    objects = len(s3.list_objects())
    SegmentMover(LocalDirectory(path), ArrowObjects(), s3.url).run(before=0)
    assert 0 < len(s3.list_objects()) < objects
    assert read_all(path) == kept
    assert kept[-2] == records[-1]


@pytest.mark.parametrize(
    ("command", "option", "name", "work"),
    [("tier", "--to", TIER_LOCK_NAME, "moving segments of"), ("seal", "--parquet", EXPORT_LOCK_NAME, "exporting")],
)
def test_two_processes_with_the_same_work_exclude_each_other(
    s3: S3Server, tmp_path: Path, run: Run, command: str, option: str, name: str, work: str
) -> None:
    path = make_journal(tmp_path)
    lock = LocalDirectory(path).lock(name)
    status, _, errors = run(command, path, option, s3.url)
    lock.close()
    assert status == 1
    assert f"another process is {work} {path} to object storage" in errors
    assert run("check", path)[0] == 0
    assert run(command, path, option, s3.url)[0] == 0


@pytest.mark.parametrize("change", ["removed", "altered", "truncated"])
def test_a_missing_or_changed_object_is_named(s3: S3Server, tmp_path: Path, run: Run, change: str) -> None:
    path = make_journal(tmp_path)
    move(path, s3.url)
    key = s3.list_objects()[2]
    content = s3.request("GET", f"/{BUCKET}/{key}")
    s3.request("DELETE", f"/{BUCKET}/{key}")
    if change == "altered":
        s3.request("PUT", f"/{BUCKET}/{key}", content[:-9] + b"?" + content[-8:])
    elif change == "truncated":
        s3.request("PUT", f"/{BUCKET}/{key}", content[:-9])
    for command in ("cat", "check"):
        status, _, errors = run(command, path)
        assert status == 1
        assert f"object s3://{BUCKET}/{key} is " in errors
        assert ("is missing" if change == "removed" else "is not the copy of") in errors
    s3.request("PUT", f"/{BUCKET}/{key}", content)
    assert run("cat", path)[0] == 0


def test_a_truncated_answer_is_an_error_and_not_less_data(s3: S3Server, tmp_path: Path) -> None:
    path = make_journal(tmp_path)
    records = read_all(path)
    faults = Faults()
    with s3_proxy(s3, faults) as port:
        move(path, tier_url(port))
        faults.truncate = 700
        with pytest.raises(TierError, match=rf"object s3://{BUCKET}/journals/\S+ "):
            read_all(path)
        faults.truncate = None
        assert read_all(path) == records


@pytest.mark.parametrize("method", ["PUT", "POST", "GET", "HEAD"])
def test_a_failing_server_leaves_the_segments_where_they_are(s3: S3Server, tmp_path: Path, method: str) -> None:
    path = make_journal(tmp_path)
    records, local = read_all(path), segments(path)
    faults = Faults(before=lambda m, p: 500 if m == method else None)
    with s3_proxy(s3, faults) as port:
        try:
            with pytest.raises(TierError, match=r"cannot be (read|written)"):
                move(path, tier_url(port))
            assert segments(path) == local
        finally:
            faults.before = lambda m, p: None
        assert read_all(path) == records
        assert move(path, tier_url(port)) == local
        assert len(s3.list_objects()) == len(local)
        assert read_all(path) == records


def test_a_server_that_dies_during_an_upload_loses_nothing(tmp_path: Path, s3: S3Server) -> None:
    path = make_journal(tmp_path, 40, size=400_000)  # Objects of more than one part.
    records, local = read_all(path), segments(path)
    with s3_server() as other:

        def die(method: str, where: str) -> None:
            if method == "PUT" and "uploadId" in where:
                other.process.kill()
                other.process.wait()

        with s3_proxy(other, Faults(before=die)) as port, pytest.raises(TierError, match="cannot be written"):
            move(path, tier_url(port))
    assert segments(path) == local
    # The server is gone for good: the object of the broken upload cannot be removed, so that segment stays.
    report = SegmentMover(LocalDirectory(path), ArrowObjects(), s3.url).run()
    assert "cannot be removed" in report.skipped[0]
    assert report.moved == local[1:]
    assert read_all(path) == records


@pytest.mark.parametrize("method", ["PUT", "HEAD", "GET"])
def test_a_killed_process_leaves_a_state_that_the_next_run_repairs(s3: S3Server, tmp_path: Path, method: str) -> None:
    path = make_journal(tmp_path)
    records, local = read_all(path), segments(path)
    reached, go_on = Event(), Event()

    def hold(seen: str, where: str) -> None:
        if seen == method:
            reached.set()
            go_on.wait()

    faults = Faults(before=hold)
    with s3_proxy(s3, faults) as port:
        program = "from fyrehose_twisted.cli.main import main; main()"
        command = [sys.executable, "-c", program, "journal", "tier", str(path), "--to", tier_url(port)]
        process = subprocess.Popen(command, env=storage_environment())
        try:
            assert reached.wait(60)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            faults.before = lambda m, p: None
            go_on.set()
        assert read_all(path) == records
        assert segments(path) == local
        assert move(path, tier_url(port)) == local
        assert read_all(path) == records
        assert len(s3.list_objects()) == len(local)


def test_a_bucket_that_does_not_exist_is_an_error(s3: S3Server, tmp_path: Path, run: Run) -> None:
    path = make_journal(tmp_path)
    status, _, errors = run("tier", path, "--to", s3.url.replace("//bucket", "//none"))
    assert status == 1
    assert "NO_SUCH_BUCKET" in errors
    assert "not-a-secret" not in errors
    assert len(segments(path)) > 5


def test_credentials_in_the_url_are_refused_and_not_repeated(tmp_path: Path, run: Run) -> None:
    path = make_journal(tmp_path)
    status, output, errors = run("tier", path, "--to", "s3://AKIA:hush@bucket/journals")
    assert status == 1
    assert "has credentials" in errors
    assert "hush" not in output + errors


def test_a_local_directory_is_object_storage_too(tmp_path: Path, run: Run) -> None:
    path = make_journal(tmp_path / "journals")
    before = run("cat", path)
    assert run("tier", path, "--to", f"file://{tmp_path}/mounted here")[0] == 0
    assert not segments(path)
    assert run("cat", path) == before
    assert len(list((tmp_path / "mounted here").rglob("*.seg"))) > 5


def test_a_manifest_in_place_of_a_segment_needs_the_object(s3: S3Server, tmp_path: Path) -> None:
    path = make_journal(tmp_path)
    move(path, s3.url)
    for index in path.glob("*.idx"):
        index.unlink()
    assert len(read_all(path)) == COUNT  # Found by scanning the objects.
    s3.request("DELETE", f"/{BUCKET}/{s3.list_objects()[0]}")
    with pytest.raises(JournalError, match="is missing"):
        open_reader(path)


def test_a_service_moves_segments_by_itself_and_reads_them(s3: S3Server, tmp_path: Path, run: Run) -> None:
    path = make_journal(tmp_path)
    before, local = run("cat", path), segments(path)
    options = [
        f"--directory={tmp_path}",
        "--name=test",
        f"--tier-to={s3.url}",
        "--tier-after=0s",
        "--backbone=127.0.0.1:1",
    ]
    program = "from twisted.scripts.twistd import run; run()"
    command = [sys.executable, "-c", program, "--nodaemon", "--pidfile=", "fyrehose-journal", *options]
    process = subprocess.Popen(command, env=storage_environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if " moved to " in line or "stay on this machine" in line)
    finally:
        process.terminate()
        rest = process.stdout.read()
        process.wait()
        process.stdout.close()
    assert f"{len(local)} segments of " in line
    assert "not-a-secret" not in line + rest
    assert not segments(path)
    assert run("cat", path) == before
