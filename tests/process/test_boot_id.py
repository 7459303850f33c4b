from __future__ import annotations

from pathlib import Path

import pytest

from fyrehose_twisted.process import boot_id as boot
from fyrehose_twisted.process.boot_id import read_boot_id


def test_the_boot_id_has_16_bytes() -> None:
    assert len(read_boot_id()) == 16


@pytest.mark.parametrize("content", [None, "", "not a uuid\n"])
def test_without_a_boot_id_of_the_kernel_every_read_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    told = tmp_path / "boot_id"
    if content is not None:
        told.write_text(content)
    monkeypatch.setattr(boot, "_BOOT_ID_PATH", told)
    assert read_boot_id() != read_boot_id()


def test_the_boot_id_is_that_of_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "boot_id"
    told.write_text("11111111-2222-3333-4444-555555555555\n")
    monkeypatch.setattr(boot, "_BOOT_ID_PATH", told)
    assert read_boot_id().hex() == "11111111222233334444555555555555"
