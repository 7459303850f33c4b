from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from suite.captures import link, pcap, udp
from suite.tshark import PLUGIN, Tshark

from fyrehose_twisted.cli.main import main


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["wireshark", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_the_path_of_the_dissectors_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert capsys.readouterr().out == f"{PLUGIN}\n"


def test_installed_dissectors_are_loaded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    program: Callable[[str, str], Path],
) -> None:
    tshark = Tshark(program("tshark", "tshark"), tmp_path)
    capture = tmp_path / "file.pcap"
    capture.write_bytes(pcap([link(udp(("192.0.2.1", 2323), ("192.0.2.2", 2323), b"\x20"))]))
    assert "KEEPALIVE-ACK" not in tshark.run(capture, plugin=None)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run("--install") == 0
    installed = tmp_path / ".local/lib/wireshark/plugins/fyrehose.lua"
    assert capsys.readouterr().out == f"{installed}\n"
    assert "KEEPALIVE-ACK" in tshark.run(capture, plugin=None)


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert run("--install", "--directory", str(tmp_path / "file")) == 1
    assert capsys.readouterr().err == f"fyrehose: {tmp_path / 'file'}: File exists\n"
