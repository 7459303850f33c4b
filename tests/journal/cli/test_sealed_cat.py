"""Records of sealed streams on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from suite.sealing import ring, seal_one, sealer

from fyrehose_twisted.cli.main import main
from fyrehose_twisted.fyrehose.wire.envelope import encode_envelope, wrap
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.record import Record
from fyrehose_twisted.sealing.key_file import create_key_ring

STREAM = "fyrehose://test"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    made, written = sealer(ring(stream=STREAM)), open_journal(tmp_path / "journals", STREAM)
    data = []
    for number in range(8):
        envelope = encode_envelope(b"someones", number)
        data += [seal_one(made, b"%d" % number, envelope), wrap(b"forger!!", number, b"plain")]
    written.append([Record(STREAM, 0, number, number, payload) for number, payload in enumerate(data, 1)])
    written.commit()
    written.close()
    create_key_ring(tmp_path / "keys", ring(stream=STREAM))
    return tmp_path


def cat(journal: Path, capfdbinary: pytest.CaptureFixture[bytes], *options: str, status: int = 0) -> bytes:
    with pytest.raises(SystemExit) as left:
        main(["journal", "cat", str(journal / "journals"), "--seal-key-file", str(journal / "keys"), *options])
    shown = capfdbinary.readouterr()
    assert left.value.code == status, shown.err
    return shown.err if status else shown.out


def test_opened_records_are_printed_and_others_left_out(
    journal: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert cat(journal, capfdbinary).split() == [b"%d" % number for number in range(8)]
    shown = [json.loads(line) for line in cat(journal, capfdbinary, "--format", "json").splitlines()]
    assert [(one["sequence"], one["data"]) for one in shown] == [(2 * number + 1, str(number)) for number in range(8)]


@pytest.mark.parametrize("count", [1, 3, 8, 20])
def test_refused_records_do_not_count(journal: Path, capfdbinary: pytest.CaptureFixture[bytes], count: int) -> None:
    assert len(cat(journal, capfdbinary, "--count", str(count)).split()) == min(count, 8)


def test_raw_payloads_are_not_opened(journal: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert b"--raw prints payloads as received, sealed" in cat(journal, capfdbinary, "--raw", status=2)
