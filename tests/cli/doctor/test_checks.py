from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from suite.doctor_checks import CHECKS

from fyrehose_twisted.cli.doctor import clock, disk, kernel, limits, offload, ports, software
from fyrehose_twisted.cli.doctor.checks import run_checks
from fyrehose_twisted.cli.doctor.finding import Level, ok

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "doctor.md"


def fail() -> None:
    raise KeyError("a /proc that nobody\nhas seen")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the checks by ones that return no findings."""
    monkeypatch.setattr(software, "check_software", lambda: [ok("python", "fine")])
    monkeypatch.setattr(kernel, "check_buffers", lambda: ok("kernel buffers", "fine"))
    monkeypatch.setattr(offload, "check_offload", list)
    monkeypatch.setattr(disk, "check_directory", lambda path: [ok("directory", str(path))])
    monkeypatch.setattr(ports, "check_ports", list)
    monkeypatch.setattr(limits, "check_open_files", lambda: ok("open files", "fine"))
    monkeypatch.setattr(clock, "check_synchronisation", lambda: ok("clock", "fine"))


@pytest.mark.usefixtures("quick")
def test_every_given_directory_is_checked() -> None:
    found = [finding.found for finding in run_checks([Path("a"), Path("b")]) if finding.check == "directory"]
    assert found == ["a", "b"]


@pytest.mark.usefixtures("quick")
def test_a_raising_check_is_reported_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "check_ports", fail)
    monkeypatch.setattr(kernel, "read_udp_counters", lambda: parse_nothing())
    found = {finding.check: finding for finding in run_checks([])}
    assert found["ports"].level == Level.WARN
    assert found["ports"].found.startswith("cannot be known: the check failed with KeyError")
    assert found["UDP drops"].found == "cannot be known: nothing there"
    assert found["clock runs"].level == Level.OK


def parse_nothing() -> kernel.UdpCounters:
    raise ValueError("nothing there")


def test_the_doctor_page_lists_all_checks_in_order() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| Check |")[2].partition("\n\n")[0]
    assert tuple(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)) == CHECKS


def test_the_doctor_page_lists_all_ports() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [str(port) for port in ports.DEFAULT_PORTS if f"{port.number}/{port.kind}" not in page] == []


def test_doctor_imports_only_needed_modules() -> None:
    code = (
        "import sys; from fyrehose_twisted.cli.doctor import command;"
        " print([name for name in ('ctypes', 'socket', 'twisted', 'subprocess') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_each_doctor_check_is_listed_once() -> None:
    assert len(set(CHECKS)) == len(CHECKS)
