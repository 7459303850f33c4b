"""``fyrehose doctor`` on this machine."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from suite.doctor_checks import CHECKS

from fyrehose_twisted.cli.doctor import ports
from fyrehose_twisted.cli.doctor.disk import DIRECTORY, FSYNC
from fyrehose_twisted.cli.doctor.kernel import format_size, probe_socket_buffers
from fyrehose_twisted.cli.doctor.offload import COUNT, probe_offload
from fyrehose_twisted.cli.doctor.ports import Port, PortOwner, probe_ports
from fyrehose_twisted.net.udp import KERNEL_BUFFER

FYREHOSE = Path(sys.executable).parent / "fyrehose"


def doctor(*options: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FYREHOSE, "doctor", *options], capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Return the findings by check, for a good directory, one in memory and a file."""
    good = tmp_path_factory.mktemp("good")
    file = good.parent / "file"
    file.touch()
    done = doctor("--json", "-d", good, "-d", file, "-d", "/dev/shm")
    assert (done.returncode, done.stderr) == (1, "")
    sorted_out: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(done.stdout):
        assert list(finding) == ["check", "level", "found", "advice"]
        assert finding["level"] in ("ok", "warn", "wrong")
        assert finding["level"] == "ok" or finding["advice"]
        sorted_out.setdefault(finding["check"], []).append(finding)
    assert os.listdir(good) == []
    return sorted_out


def test_doctor_runs_every_check(found: dict[str, list[dict[str, Any]]]) -> None:
    assert list(found) == list(CHECKS)
    assert not any("the check failed" in finding["found"] for findings in found.values() for finding in findings)


def test_doctor_reports_the_socket_buffer_sizes_of_the_kernel(found: dict[str, list[dict[str, Any]]]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            one.setsockopt(socket.SOL_SOCKET, option, KERNEL_BUFFER)
        share = 2 if sys.platform == "linux" else 1
        receive = one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // share
        send = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // share
    assert probe_socket_buffers(KERNEL_BUFFER) == (receive, send, None)
    (finding,) = found["kernel buffers"]
    if receive < KERNEL_BUFFER:
        assert f"{format_size(receive)} to receive" in finding["found"]
    assert (finding["level"] == "ok") is (min(receive, send) >= KERNEL_BUFFER)


def test_doctor_reports_each_directory_separately(found: dict[str, list[dict[str, Any]]]) -> None:
    assert [finding["level"] for finding in found[DIRECTORY]] == ["ok", "wrong", "ok"]
    assert len(found[FSYNC]) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this file system there")
def test_doctor_warns_about_a_journal_in_memory(found: dict[str, list[dict[str, Any]]]) -> None:
    memory = found["file system"][-1]
    assert memory["level"] == "warn"
    assert re.search("/dev/shm lies on (dev)?tmpfs", memory["found"])


def test_doctor_reports_an_unwritable_directory(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    # Root may write there.
    directory, reason = (tmp_path, "Permission denied") if os.geteuid() else (Path("/proc"), ".+")
    done = doctor("-d", directory)
    assert done.returncode == 1
    found = rf"^wrong directory +{directory} cannot keep a journal: {reason}$"
    assert re.search(found, done.stdout, re.MULTILINE), done.stdout


def test_doctor_with_strict_fails_on_warnings() -> None:
    easy, strict = doctor("-d", "/dev/shm"), doctor("-d", "/dev/shm", "--strict")
    last = re.fullmatch(r"\d+ checks: \d+ ok, [1-9]\d* to look at, (\d+) wrong\.", easy.stdout.splitlines()[-1])
    assert last, easy.stdout
    # The machine may have other problems.
    assert (easy.returncode, strict.returncode) == (int(last[1] != "0"), 1)


@pytest.mark.parametrize(("kind", "sort"), [("udp", socket.SOCK_DGRAM), ("tcp", socket.SOCK_STREAM)])
def test_doctor_reports_a_port_in_use_and_its_owner(kind: str, sort: int, free_port: Callable[[], int]) -> None:
    with socket.socket(socket.AF_INET, sort) as holder:
        holder.bind((ports.HOST, free_port()))
        if kind == "tcp":
            holder.listen(1)
        port = Port(holder.getsockname()[1], kind, "backbone")
        free, (taken,) = probe_ports([port])
        assert free == []
        assert taken.port == port
        if sys.platform == "linux":
            assert isinstance(taken.owner, PortOwner)
            assert taken.owner.process == os.getpid()
    assert probe_ports([port]) == ([port], [])


def test_doctor_probe_of_segmentation_offload_receives_every_datagram() -> None:
    trial = probe_offload()
    assert trial.intact == COUNT
    assert trial.errors == {}
    assert 1 <= trial.calls <= COUNT
    assert trial.sends == (1 if trial.segments > 1 else COUNT)
