"""systemd units: validity, sandboxing and options."""

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
from fyrehose_twisted.fyrehose.service.backbone_tap import LIMITS, Options
from fyrehose_twisted.process.boot_id import _BOOT_ID_PATH
from fyrehose_twisted.process.sighup import limit_checks, read_limits
from fyrehose_twisted.query.config import RELOADED as OF_QUERY
from fyrehose_twisted.query.config import QueryConfig

UNITS = Path(__file__).parents[1] / "deploy" / "systemd"
SERVICES = sorted(path.name for path in UNITS.glob("*.service"))

EXPOSED = 2.0
"""Maximum exposure of `systemd-analyze security`, out of 10; an unrestricted service has 9.6."""


@pytest.fixture
def analyze() -> Any:
    """Return a function that runs ``systemd-analyze``."""
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
def test_systemd_accepts_each_unit(analyze: Any, name: str) -> None:
    told = analyze("verify", f"./{name}")
    # The virtual environment of the unit does not exist on this machine.
    complaints = [line for line in told.stderr.splitlines() if "/opt/fyrehose/bin/twistd" not in line]
    # Some machines have warnings about other units.
    assert [line for line in complaints if "fyrehose" in line or "-node" in line] == []


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_unit_is_sandboxed(analyze: Any, name: str) -> None:
    told = analyze("security", "--offline=true", f"./{name}")
    found = re.search(r"Overall exposure level for \S+ (\d+\.\d)", told.stdout)
    assert found is not None, told
    assert float(found[1]) <= EXPOSED


@pytest.mark.parametrize("name", SERVICES)
def test_the_options_in_each_unit_are_known_to_the_service(name: str) -> None:
    words = shlex.split(settings(name)["ExecStart"])
    plugins = import_module("twisted.plugins.fyrehose_twisted_plugins")
    makers = {maker.tapname: maker for maker in vars(plugins).values() if isinstance(maker, ServiceMaker)}
    at = next(index for index, word in enumerate(words) if word in makers)
    options = makers[words[at]].options()
    known = {f"--{name}" for name in options.longOpt} if hasattr(options, "longOpt") else set()
    known |= {f"--{name.rstrip('=')}" for name in options.longOpt}
    for word in words[at + 1 :]:
        if word.startswith("$"):
            continue  # Options of the environment file.
        assert word.partition("=")[0] in known, word
    assert name.removesuffix(".service").removesuffix("@") == words[at]


def test_environment_file_has_each_variable_of_the_member_unit() -> None:
    text = (UNITS / "backbone-member.env").read_text()
    given = dict(re.findall(r"^([A-Z]+)=(.*)$", text, re.MULTILINE))
    used = re.findall(r"\$\{?([A-Z]+)\}?", settings("fyrehose-backbone@.service")["ExecStart"])
    assert sorted(given) == sorted(used)
    options = Options()
    known = {f"--{name.rstrip('=')}" for name in options.longOpt}
    words = [*given["PEERS"].split(), *re.findall(r"--[a-z-]+", text.partition("\nOPTIONS")[0])]
    assert {word.partition("=")[0] for word in words} <= known


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_unit_notifies_systemd(name: str) -> None:
    found = settings(name)
    assert found["Type"] == "notify"
    assert "AF_UNIX" in found["RestrictAddressFamilies"].split()
    assert "--nodaemon" in found["ExecStart"]
    # The main process notifies, so that it gets the reload signal.
    assert ("--limits" in found["ExecStart"]) == ("ExecReload" in found)


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_unit_can_read_the_boot_id(name: str) -> None:
    assert settings(name).get("ProcSubset", "all") == "all"
    assert str(_BOOT_ID_PATH).startswith("/proc/sys/")


def test_each_socket_unit_has_its_own_loopback_port() -> None:
    places: dict[str, str] = {}
    for path in UNITS.glob("*.socket"):
        for place in re.findall(r"^Listen\w+=(\S+)", path.read_text(), re.MULTILINE):
            assert place not in places, (path.name, places[place])
            assert place.startswith("127.0.0.1:")
            places[place] = path.name
    assert len(places) == 4


def test_socket_units_have_the_names_that_services_request() -> None:
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
def test_the_example_limits_are_the_defaults(name: str, known: Any) -> None:
    found = read_limits(UNITS / name, known)
    assert found
    defaults = {**vars(QueryConfig()), **vars(FrontendConfig()), "max_clients": 1_024}
    assert json.loads(json.dumps(found)) == {key: defaults[key.replace("-", "_")] for key in found}
