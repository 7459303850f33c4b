"""Durable promises of a node, and detection of their loss."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.hydra.service.state_file import RECORD_SIZE, StateFile

BOOT, OTHER_BOOT = b"1" * 16, b"2" * 16
VOW = DurableState(term=7, voted=9, nominee=2**32 - 1, voter=5, promised=77, until=1_234.5)
QUIET = 15.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


def opened(path: Path, *, network: str = "n", now: float = 100.0, boot: bytes = BOOT, **options: Any) -> StateFile:
    return StateFile(path, network, promise_period=QUIET, now=now, boot_id=lambda: boot, **options)


def kept(path: Path, *vows: DurableState, **options: Any) -> None:
    file = opened(path, **options)
    for vow in vows:
        file.save(vow)
    file.close()


def test_new_state_file_is_empty_and_complete(path: Path) -> None:
    file = opened(path)
    assert (file.durable, file.remembers) == (DurableState(), True)
    assert path.stat().st_mode & 0o777 == 0o600
    file.close()
    again = opened(path)
    assert (again.durable, again.remembers) == (DurableState(), True)
    again.close()


@pytest.mark.parametrize("sync", [False, True])
def test_last_state_is_restored(path: Path, sync: bool) -> None:
    for count in range(1, 6):
        kept(path, *(VOW._replace(term=number) for number in range(count)), VOW, sync=sync)
        file = opened(path)
        assert (file.durable, file.remembers) == (VOW, True)
        file.close()
    assert path.stat().st_size == 2 * RECORD_SIZE


def test_state_survives_sigkill(path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path;"
        "from fyrehose_twisted.hydra.service.state_file import StateFile;"
        "from fyrehose_twisted.hydra.node.durable_state import DurableState;"
        f"file = StateFile(Path({str(path)!r}), 'n', promise_period=15.0, now=100.0, boot_id=lambda: {BOOT!r});"
        "[file.save(DurableState(term=number)) for number in range(1, 1001)]; os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    file = opened(path)
    assert (file.durable, file.remembers) == (DurableState(term=1_000), True)
    file.close()


def test_promises_are_unknown_after_a_reboot(path: Path) -> None:
    kept(path, VOW)
    file = opened(path, boot=OTHER_BOOT, now=10.0)
    assert (file.durable, file.remembers) == (VOW._replace(promised=0, until=0.0), False)
    file.close()


def test_killed_leader_is_not_bound_to_its_own_promise(path: Path) -> None:
    for own, bound in ((77, False), (78, True), (0, True)):
        file = opened(path)
        file.save(VOW, own)
        file.close()
        file = opened(path)
        assert (file.durable, file.remembers) == (VOW if bound else VOW._replace(promised=0, until=0.0), True)
        file.close()


def test_uncertainty_survives_another_restart(path: Path) -> None:
    kept(path, VOW)
    opened(path, boot=OTHER_BOOT, now=10.0).close()
    file = opened(path, boot=OTHER_BOOT, now=24.9)
    assert not file.remembers
    file.save(VOW)
    file.close()
    file = opened(path, boot=OTHER_BOOT, now=24.95)
    assert not file.remembers
    file.close()
    file = opened(path, boot=OTHER_BOOT, now=25.0)
    assert (file.durable, file.remembers) == (VOW, True)
    file.close()


def test_removed_or_emptied_file_counts_as_incomplete(path: Path) -> None:
    kept(path, VOW)
    path.unlink()
    file = opened(path)
    assert (file.durable, file.remembers) == (DurableState(), False)
    file.close()
    path.write_bytes(b"")
    file = opened(path, now=1_000.0)
    assert (file.durable, file.remembers) == (DurableState(), False)
    file.close()
    # The power failed before the write was durable.
    path.write_bytes(bytes(2 * RECORD_SIZE))
    file = opened(path, now=2_000.0)
    assert not file.remembers
    file.close()


@pytest.mark.parametrize("last", [0, 1])
def test_interrupted_write_makes_promises_uncertain(path: Path, last: int) -> None:
    kept(path, *[VOW._replace(term=number) for number in range(3 + last)])
    newest = 3 + last - 1
    data = bytearray(path.read_bytes())
    records = {data[start + 32 : start + 40][0]: start for start in (0, RECORD_SIZE)}
    torn = records[max(records)]
    data[torn + 60] ^= 1
    path.write_bytes(data)
    file = opened(path)
    assert (file.durable, file.remembers) == (VOW._replace(term=newest - 1), False)
    file.close()


@pytest.mark.parametrize("content", [b"x", b"x" * 2 * RECORD_SIZE, b"HYDRA", b"\1" * (2 * RECORD_SIZE + 1)])
def test_damaged_file_error_says_what_to_do(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StateFileError, match=r"damaged.*truncate -s 0"):
        opened(path)
    os.truncate(path, 0)
    file = opened(path)
    assert not file.remembers
    file.close()


def test_state_file_is_bound_to_one_network_and_one_process(path: Path) -> None:
    kept(path, VOW)
    with pytest.raises(StateFileError, match="another network"):
        opened(path, network="m")
    file = opened(path)
    with pytest.raises(StateFileError, match="in use by another node"):
        opened(path)
    file.close()
    opened(path).close()


def test_write_error_is_reported_and_final(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(path)

    def full(*arguments: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(StateFileError, match="No space left"):
            file.save(VOW)
    with pytest.raises(StateFileError, match="before"):
        file.save(VOW)
    file.close()
    with pytest.raises(StateFileError, match="cannot be locked"):
        opened(path / "nowhere" / "state")


def test_format_is_two_records_of_128_bytes_with_checksums(path: Path) -> None:
    file = opened(path)
    file.save(VOW, 77)
    file.close()
    head = "48594452410000011b16b1df538ba12d" + "31" * 16
    new = (head + "02" + "00" * 91, "41bb5364")
    saved = (
        head
        + "03000000000000000700000000000000"
        + "0900000000000000ffffffff050000004d0000000000000000000000004a93404d"
        + "00" * 43,
        "ba11686a",
    )
    assert path.read_bytes().hex() == "".join(new + saved)
