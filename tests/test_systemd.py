"""The units for systemd: whether it takes them, what they allow, and whether the services know their options."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from twisted.application.service import ServiceMaker

from fyrehose_twisted.fyrehose.frontend.config import RELOADABLE as OF_FRONTEND
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.service.backbone_tap import LIMITS
from fyrehose_twisted.process.boot_id import _BOOT_ID_PATH
from fyrehose_twisted.process.sighup import limit_checks, read_limits
from fyrehose_twisted.query.config import RELOADED as OF_QUERY
from fyrehose_twisted.query.config import QueryConfig

UNITS = Path(__file__).parents[1] / "deploy" / "systemd"
SERVICES = sorted(path.name for path in UNITS.glob("*.service"))

EXPOSED = 2.0
"""Of the ten points that `systemd-analyze security` gives for what a service could do; 9.6 is one that says nothing."""


@pytest.fixture
def analyze() -> Any:
    """Run ``systemd-analyze`` where it is installed."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing: apt install systemd")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["systemd-analyze", *arguments]
        return subprocess.run(command, cwd=UNITS, capture_output=True, text=True, timeout=60, check=False)

    return run


def settings(name: str) -> dict[str, str]:
    text = (UNITS / name).read_text().replace("\\\n", " ")
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


@pytest.mark.parametrize("name", sorted(path.name for path in UNITS.glob("*.s[eo]*") if path.suffix != ".conf"))
def test_systemd_takes_it(analyze: Any, name: str) -> None:
    told = analyze("verify", f"./{name}")
    # The virtual environment that it names is not on this machine.
    complaints = [line for line in told.stderr.splitlines() if "/opt/fyrehose/bin/twistd" not in line]
    # Elsewhere there are complaints about other units.
    assert [line for line in complaints if "fyrehose" in line or "-node" in line] == []


@pytest.mark.parametrize("name", SERVICES)
def test_it_may_do_little(analyze: Any, name: str) -> None:
    told = analyze("security", "--offline=true", f"./{name}")
    found = re.search(r"Overall exposure level for \S+ (\d+\.\d)", told.stdout)
    assert found is not None, told
    assert float(found[1]) <= EXPOSED


@pytest.mark.parametrize("name", SERVICES)
def test_the_service_knows_its_options(name: str) -> None:
    words = shlex.split(settings(name)["ExecStart"])
    plugins = import_module("twisted.plugins.fyrehose_twisted_plugins")
    makers = {maker.tapname: maker for maker in vars(plugins).values() if isinstance(maker, ServiceMaker)}
    at = next(index for index, word in enumerate(words) if word in makers)
    options = makers[words[at]].options()
    known = {f"--{name}" for name in options.longOpt} if hasattr(options, "longOpt") else set()
    known |= {f"--{name.rstrip('=')}" for name in options.longOpt}
    for word in words[at + 1 :]:
        assert word.partition("=")[0] in known, word
    assert name.removesuffix(".service") == words[at]


@pytest.mark.parametrize("name", SERVICES)
def test_the_supervisor_is_told(name: str) -> None:
    found = settings(name)
    assert found["Type"] == "notify"
    assert "AF_UNIX" in found["RestrictAddressFamilies"].split()
    assert "--nodaemon" in found["ExecStart"]
    # The one process that stays tells it, so that the signal for a reload goes there.
    assert ("--limits" in found["ExecStart"]) == ("ExecReload" in found)


@pytest.mark.parametrize("name", SERVICES)
def test_the_id_of_the_boot_can_be_read(name: str) -> None:
    assert settings(name).get("ProcSubset", "all") == "all"
    assert str(_BOOT_ID_PATH).startswith("/proc/sys/")


def test_each_has_its_port_once() -> None:
    places: dict[str, str] = {}
    for path in UNITS.glob("*.socket"):
        for place in re.findall(r"^Listen\w+=(\S+)", path.read_text(), re.MULTILINE):
            assert place not in places, (path.name, places[place])
            assert place.startswith("127.0.0.1:")
            places[place] = path.name
    assert len(places) == 4


def test_sockets_have_the_names_that_services_ask_for() -> None:
    names = {re.findall(r"FileDescriptorName=(\S+)", path.read_text())[0] for path in UNITS.glob("*.socket")}
    asked = {
        name
        for path in UNITS.glob("*.service")
        for name in re.findall(r"(?:--systemd|systemd:domain=INET:name)=(\w+)", path.read_text())
    }
    assert names == asked == {"push", "http", "lines"}


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("backbone.toml", LIMITS),
        ("query.toml", limit_checks(QueryConfig(), *OF_QUERY)),
        ("frontend.toml", limit_checks(FrontendConfig(), *OF_FRONTEND)),
    ],
)
def test_limits_are_those_by_default(name: str, known: Any) -> None:
    found = read_limits(UNITS / name, known)
    assert found
    defaults = {**vars(QueryConfig()), **vars(FrontendConfig()), "max_clients": 1_024}
    assert json.loads(json.dumps(found)) == {key: defaults[key.replace("-", "_")] for key in found}
