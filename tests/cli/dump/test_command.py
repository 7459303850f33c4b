from __future__ import annotations

import io
import json
import os
import socket
import sys
from pathlib import Path

import pytest
from suite.captures import link, pcap, udp

from fyrehose_twisted.cli.dump import live
from fyrehose_twisted.cli.main import main
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.packets import Deliver

CLIENT, BACKBONE = ("192.0.2.1", 4000), ("192.0.2.2", 2323)
FRAMES = [link(udp(BACKBONE, CLIENT, encode(Deliver(number, b"x")))) for number in (1, 4)]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["dump", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def capture(tmp_path: Path) -> str:
    path = tmp_path / "file.pcap"
    path.write_bytes(pcap(FRAMES))
    return str(path)


def test_a_file_is_printed(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capture) == 0
    start = "192.0.2.2:2323 > 192.0.2.1:4000 fyrehose DELIVER"
    assert capsys.readouterr().out == f"22:13:20.000000 {start} 1, 1 byte\n22:13:20.001000 {start} 4, 1 byte\n"


def test_json_gaps_and_count(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capture, "--json", "--gaps") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("note") for line in lines] == [None, None, "2 missing: 2 to 3", "2 still missing: 2 to 3"]
    assert run(capture, "--count", "1") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_ports_can_be_given(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capture, "--port", "2323=hydra") == 0
    assert capsys.readouterr().out.count(" hydra not understood: ") == 2
    assert run(capture, "--port", "x=hydra") == 2
    assert "'x=hydra' does not begin with a port; write it like 2323=fyrehose" in capsys.readouterr().err
    assert run(capture, "--port", "1=irc") == 2
    assert "'irc' is not one of fyrehose, hydra, freenet, parcels, members" in capsys.readouterr().err


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pcap(FRAMES))))
    assert run("-") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_cut_file_is_printed_up_to_the_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.pcap"
    path.write_bytes(pcap(FRAMES)[:-1])
    assert run(str(path)) == 1
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1
    assert said.err == "fyrehose: the capture is cut within a packet\n"


def test_problems_with_files_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(tmp_path / "none")) == 1
    assert capsys.readouterr().err == f"fyrehose: {tmp_path / 'none'}: No such file or directory\n"
    assert run("/dev/null") == 1
    assert "neither pcap nor pcapng: the file begins with nothing" in capsys.readouterr().err
    assert run() == 2
    assert "one of the arguments FILE -i/--interface is required" in capsys.readouterr().err


def test_a_missing_capability_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*arguments: int) -> socket.socket:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(live.socket, "socket", refuse)
    assert run("--interface", "eth0") == 1
    assert capsys.readouterr().err == (
        "fyrehose: live capture requires the capability CAP_NET_RAW: run it as root, or pipe into it:"
        " sudo tcpdump -i eth0 -w - | fyrehose dump -\n"
    )


def test_other_systems_are_told_to_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert run("-i", "en0") == 1
    assert "live capture requires Linux; elsewhere, pipe into it" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="capturing requires CAP_NET_RAW")
def test_an_interface_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-i", "none9") == 1
    said = capsys.readouterr().err
    assert said.startswith("fyrehose: interface none9: ")
    assert "; there are lo" in said
