"""Durable journals in real processes, with real sockets and files."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from integration.running.backbone import RunningBackbone
from integration.running.journal import RunningJournal, StartJournal, StartLoad
from integration.running.programs import Start

from fyrehose_twisted.fyrehose.wire.codec import encode_deliver
from fyrehose_twisted.journal.errors import NotInJournal
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.reader import open_reader
from fyrehose_twisted.journal.remote.client import RemoteJournal, SecretRejected
from fyrehose_twisted.journal.upkeep.check import check as looked_through
from fyrehose_twisted.record import Record

KILLS = 4
SEEDS = [1, pytest.param(None, marks=pytest.mark.soak)]
"""A soak uses a new seed each time."""
DEADLINE = 120.0
SECRET = b"a secret that is long enough"

PATIENT = """
from dataclasses import replace

from fyrehose_twisted.fyrehose.protocol.journal import JournalProtocol
from fyrehose_twisted.fyrehose.node.client.repair import RepairConfig


class PatientJournalProtocol(JournalProtocol):
    def __init__(self, config, **more):
        super().__init__(replace(config, repair=RepairConfig(attempts=200)), **more)
"""
"""Repairs are requested from random clients, including those that hold nothing or were just killed: with the default
number of attempts, a message held by one journal only is sometimes given up.
"""

Check = Callable[[Any], str]


def records_of(reader: Any, last: int) -> list[Record]:
    return [record for block in reader.read(0, 1, last) for record in block.records()]


def random_of(seed: int | None) -> Random:
    """Return the random generator of a test and print its seed."""
    chosen = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    print(f"seed {chosen}")
    return Random(chosen)


def nothing_is_damaged(path: Path) -> None:
    """Check a journal like `fyrehose journal check`, within this process."""
    checked = looked_through(LocalDirectory(path))
    assert checked.damaged == 0, checked.findings


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Return options of a journal that gives no message up before it has asked every client."""
    (tmp_path / "patient.py").write_text(PATIENT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "--protocol", "patient.PatientJournalProtocol"


def caught_up(backbone: RunningBackbone, *journals: RunningJournal) -> int:
    """Wait until the journals have all messages of the backbone; return the last number."""
    last: int = backbone.sequence
    for journal in journals:
        journal.wait_for(last)
    return last


def test_two_journals_are_equal_and_serve_a_late_subscriber(
    start: Start, backbone: RunningBackbone, start_journal: StartJournal, check: Check
) -> None:
    journals = [start_journal(backbone, name) for name in ("a", "b")]
    backbone.wait_for_clients(2)
    lines = [b"%d" % number for number in range(1, 3_001)]
    publisher = start("fyrehose", "pub", "-b", backbone.text)
    assert publisher.finish(b"".join(line + b"\n" for line in lines)) == 0, publisher
    last = caught_up(backbone, *journals)

    late = start("fyrehose", "sub", "-b", backbone.text, "--from", "oldest", "--format", "json", "--count", 3_000)
    assert late.finish() == 0, late
    assert late.err == ""
    found = [json.loads(line) for line in late.out.splitlines()]
    for journal in journals:
        journal.stop()
        check(journal)
    ours, theirs = (journal.records() for journal in journals)
    assert ours == theirs
    assert [number for number, _ in ours] == list(range(1, last + 1))
    kept = dict(zip(range(1, last + 1), journals[0].lines(), strict=True))
    assert [item["data"].encode() for item in found] == [kept[item["sequence"]] for item in found]
    assert sorted(kept[item["sequence"]] for item in found) == sorted(lines)
    assert [item["sequence"] for item in found] == sorted(item["sequence"] for item in found)


@pytest.mark.extended
@pytest.mark.parametrize("seed", SEEDS)
def test_messages_seen_by_readers_survive_repeated_kills_of_a_journal(
    backbone: RunningBackbone,
    start_journal: StartJournal,
    load: StartLoad,
    check: Check,
    patient: tuple[str, str],
    seed: int | None,
) -> None:
    rng = random_of(seed)
    journals = [
        start_journal(backbone, "each group", *patient),
        start_journal(backbone, "now and then", "--fsync", 0.2, *patient),
    ]
    backbone.wait_for_clients(2)
    publishing = load(backbone)
    for number in range(KILLS):
        # In sequence, so that the other journal has what one misses.
        journal = journals[number % 2]
        journal.wait_for(journal.bounds().next + rng.randint(1, 500))
        seen = journal.bounds()
        digest = journal.digest(seen.first, seen.next - 1)
        journal.kill()
        nothing_is_damaged(journal.path)
        again = journal.bounds()
        assert again.first == seen.first
        assert again.next >= seen.next
        assert journal.digest(seen.first, seen.next - 1) == digest
        journal.start()
        assert journal.digest(seen.first, seen.next - 1) == digest
        journal.wait_for_live(backbone.sequence)
    publishing.pause()
    caught_up(backbone, *journals)
    publishing.finish()
    caught_up(backbone, *journals)
    for journal in journals:
        journal.stop()
        check(journal)
    assert journals[0].digest() == journals[1].digest()
    publishing.check(journals[0].lines())


@pytest.mark.extended
def test_sigterm_under_load_leaves_no_partial_record(
    backbone: RunningBackbone, start_journal: StartJournal, load: StartLoad, check: Check, patient: tuple[str, str]
) -> None:
    stopped = start_journal(backbone, "stopped", *patient)
    other = start_journal(backbone, "other", "--fsync", 3_600, *patient)
    backbone.wait_for_clients(2)
    publishing = load(backbone)
    for _ in range(3):
        stopped.wait_for(stopped.bounds().next + 200)
        stopped.stop()
        # Messages missed while it was stopped may be missing still, but the next start has nothing to repair.
        assert "the next start" not in check(stopped)
        held = stopped.bounds().next - 1
        stopped.start()
        stopped.program.wait_for(rf"is complete up to {held:,}\b")
    publishing.finish()
    last = caught_up(backbone, stopped)
    assert other.bounds().next == 0  # Readers have to wait for the clock there,
    for journal in (stopped, other):
        journal.stop()
        check(journal)
    assert other.bounds().next == last + 1  # or for the end of the process.
    assert stopped.digest() == other.digest()
    publishing.check(stopped.lines())


def size_of(path: Path) -> int:
    """Return the size of all files; a file removed meanwhile counts as 0."""
    total = 0
    for entry in os.scandir(path):
        try:
            total += entry.stat().st_size
        except FileNotFoundError:
            continue
    return total


@pytest.mark.extended
def test_retention_under_load_keeps_the_newest_records(
    start: Start, backbone: RunningBackbone, start_journal: StartJournal, load: StartLoad, check: Check
) -> None:
    limit = 12_000_000
    journal = start_journal(backbone, "short", "--retention", "12MB")
    backbone.wait_for_clients(1)
    publishing = load(backbone, 100)
    journal.wait_for(1)
    largest = 0
    with closing(open_reader(journal.path)) as reader:
        beginnings = set()
        while len(beginnings) < 3:
            first = journal.bounds().first
            journal.wait_for(journal.bounds().next + 500)
            largest = max(largest, size_of(journal.path))
            if first > 1:
                beginnings.add(first)
            reader.refresh()
            bounds = reader.bounds(0)
            assert bounds is not None
            try:
                blocks = list(reader.read(0, bounds.first, bounds.next - 1))
            except NotInJournal:
                continue  # It was dropped just now.
            numbers = [number for block in blocks for number in block.positions.tolist()]
            assert numbers == list(range(bounds.first, bounds.next))
    publishing.finish()
    # Messages that arrive between two checks, a second apart, exceed the limit briefly.
    assert largest < 2 * limit, largest
    last = caught_up(backbone, journal)
    journal.program.wait_for(r"dropped its oldest records: [0-9,]+ bytes")
    assert check(journal)
    journal.stop()
    journal.start()
    kept = journal.bounds()
    assert 1 < kept.first < kept.next == last + 1
    assert size_of(journal.path) < 1.3 * limit
    late = start("fyrehose", "sub", "-b", backbone.text, "--from", "oldest", "--format", "json", "--count", 100)
    assert late.finish() == 0, late
    assert late.err == ""
    oldest = json.loads(late.out.splitlines()[0])["sequence"]
    assert kept.first <= oldest <= journal.bounds().first  # More may have been dropped meanwhile.
    assert [json.loads(line)["sequence"] for line in late.out.splitlines()] == list(range(oldest, oldest + 100))


@pytest.mark.extended
def test_remote_readers_receive_the_records_of_the_files(
    backbone: RunningBackbone, start_journal: StartJournal, load: StartLoad, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "secret").chmod(0o600)
    given = start_journal(backbone, "given", "--serve", "tcp:0")
    secret = start_journal(
        backbone, "secret journal", "--serve", "tcp:0:interface=0.0.0.0", "--serve-secret-file", "secret"
    )
    backbone.wait_for_clients(2)
    publishing = load(backbone)
    for journal, known in ((given, None), (secret, SECRET)):
        port = int(journal.program.wait_for(r"--serve: listening on [0-9.]+:(\d+)")[1])
        journal.wait_for(1_000)
        with RemoteJournal("127.0.0.1", port, known) as remote, closing(open_reader(journal.path)) as reader:
            far = remote.reader("fyrehose://default")
            bounds = far.bounds(0)
            assert bounds is not None
            assert bounds.first == 1
            assert bounds.next > 1_000
            reader.refresh()
            near = records_of(reader, bounds.next - 1)
            assert len(near) == bounds.next - 1
            assert records_of(far, bounds.next - 1) == near
            assert far.get(0, 1_000) == near[999]
    publishing.finish()
    for wrong in (None, b"another secret that is long enough"):
        with RemoteJournal("127.0.0.1", port, wrong) as remote, pytest.raises(SecretRejected):
            remote.open()
    given.stop()
    secret.stop()


@pytest.mark.extended
@pytest.mark.parametrize("seed", SEEDS)
def test_garbage_at_every_port_does_not_disturb_a_journal(
    backbone: RunningBackbone, start_journal: StartJournal, load: StartLoad, check: Check, seed: int | None
) -> None:
    rng = random_of(seed)
    journal = start_journal(backbone, "bothered", "--serve", "tcp:0")
    other = start_journal(backbone, "other")
    port = int(journal.program.wait_for(r"--serve: listening on [0-9.]+:(\d+)")[1])
    backbone.wait_for_clients(2)
    publishing = load(backbone)
    # Without a secret, other hosts may supply missing messages, so only present ones can be told from forgeries.
    journal.wait_for(500)
    far = 1_000_000_000
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bad:
        for number in range(500):
            bad.sendto(rng.randbytes(rng.randint(0, 1_400)), ("127.0.0.1", journal.port))
            forged = encode_deliver(rng.choice((number, 2**48 - 1 - number, rng.randrange(far, 2**48))), b"forged")
            bad.sendto(bytes(forged), ("127.0.0.1", journal.port))
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port), DEADLINE) as bad, suppress(ConnectionError):
            bad.sendall(rng.randbytes(rng.randint(1, 5_000)))
            with suppress(OSError):  # The server may have closed before.
                bad.shutdown(socket.SHUT_WR)
            while bad.recv(65_536):
                pass
    bounds = journal.bounds()
    journal.wait_for(bounds.next + 500)
    with RemoteJournal("127.0.0.1", port) as remote:
        assert len(records_of(remote.reader("fyrehose://default"), 100)) == 100
    publishing.finish()
    caught_up(backbone, journal, other)
    for one in (journal, other):
        one.stop()
        check(one)
    assert journal.digest() == other.digest()
    publishing.check(journal.lines())
    assert "journal.serving" not in journal.program.out or "request failed" not in journal.program.out


def test_a_journal_in_use_is_refused_in_one_line(
    backbone: RunningBackbone, start_journal: StartJournal, launch_journal: Start, tmp_path: Path
) -> None:
    journal = start_journal(backbone, "used")
    second = launch_journal("-b", backbone.text, "-d", tmp_path / "used")
    assert second.finish() == 1
    assert second.out == f"fyrehose-journal: {journal.path} is in use by another process that writes to it\n"
    assert journal.program.process.poll() is None
    # Readers need no lock, and a port in use is reported once.
    taken = launch_journal("-b", backbone.text, "-d", "another", "--port", journal.port)
    assert taken.finish() == 1
    assert taken.out.count("stopping: ") == 1
    assert f"stopping: cannot listen on 127.0.0.1:{journal.port}: Address already in use\n" in taken.out
    assert "Traceback" not in taken.out
    assert journal.program.signal(signal.SIGTERM).finish() == -signal.SIGTERM
