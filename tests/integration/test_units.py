"""systemd units of deploy/systemd: sandboxed, with passed sockets and notifications."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from ctypes.util import find_library
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.request import Request, urlopen

import pytest
from integration.running.programs import Program, Start

from fyrehose_twisted.effects import Address

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
STARTER = Path(__file__).with_name("as_systemd.py")
DEADLINE = 120.0

ENVIRONMENT = {
    "MEMBER": "a",
    "ADDRESS": "127.0.0.1",
    "PORT": "0",
    "PEERS": "--peer=127.0.0.1:9 --peer=127.0.0.1:19",
    "METRICS": "tcp:0",
    "OPTIONS": "--bootstrap",
}
"""Variables of the environment file of a member, whose peers are not there."""

NO_CONFINEMENT = shutil.which("systemd-analyze") is None or find_library("seccomp") is None


class RunningUnit:
    """A service started from its unit.

    :ivar program: process of the service.
    :ivar sockets: passed sockets, by name.
    """

    def __init__(self, program: Program, notified: socket.socket, sockets: dict[str, socket.socket]) -> None:
        self.program = program
        self.sockets = sockets
        self._notified = notified

    def address(self, name: str) -> Address:
        host, port = self.sockets[name].getsockname()
        return host, port

    def tells(self, *names: str) -> None:
        """Wait for exactly this notification."""
        end = monotonic() + DEADLINE
        while True:
            try:
                said = self._notified.recv(4_096).decode()
                if names == ("STATUS",) or not _is_status(said):
                    break
            except TimeoutError:
                ended = self.program.process.poll() is not None
                assert not ended, f"it has ended: {self.program}"
                assert monotonic() < end, f"it says nothing: {self.program}"
        assert tuple(line.partition("=")[0] for line in said.split("\n")) == names, self.program

    def tells_nothing(self) -> None:
        """Check that there was no further notification."""
        self._notified.setblocking(False)
        with pytest.raises(BlockingIOError):
            self._notified.recv(4_096)

    def reload(self) -> None:
        self.program.signal(signal.SIGHUP)
        self.tells("RELOADING", "MONOTONIC_USEC")
        self.tells("READY")

    def stop(self) -> None:
        self.program.signal(signal.SIGTERM)
        self.tells("STOPPING", "STATUS")
        assert self.program.finish() == -signal.SIGTERM, self.program
        # A forbidden system call fails with an error that a program may only log.
        for complaint in ("Traceback", "not permitted", "not supported"):
            assert complaint not in self.program.out, self.program


def _is_status(said: str) -> bool:
    """Return whether a notification only has a status, which a member changes at any time."""
    return [line.partition("=")[0] for line in said.split("\n")] == ["STATUS"]


StartUnit = Callable[..., RunningUnit]


def settings(name: str) -> list[tuple[str, str]]:
    text = (UNITS / name).read_text().replace("\\\n", " ")
    return re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE)


@pytest.fixture
def start_unit(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartUnit]:
    """Return a function that starts a service from its unit, with other files and free ports."""
    # The path of a Unix socket must be short.
    root = tmp_path_factory.mktemp("u")
    opened: list[socket.socket] = []

    def listening(of: str) -> dict[str, socket.socket]:
        found = {}
        for path in UNITS.glob("*.socket"):
            said = dict(settings(path.name))
            if said.get("Service", path.with_suffix(".service").name) == of:
                kind = socket.SOCK_DGRAM if "ListenDatagram" in said else socket.SOCK_STREAM
                made = found[said["FileDescriptorName"]] = socket.socket(socket.AF_INET, kind)
                opened.append(made)
                made.bind(("127.0.0.1", 0))
                if kind == socket.SOCK_STREAM:
                    made.listen()
        return found

    def started(name: str, *more: str, ready: bool = True) -> RunningUnit:
        said = settings(f"{name}.service")
        one = dict(said)
        for directory in shlex.split(one.get("StateDirectory", "")):
            (root / "lib" / directory).mkdir(parents=True, exist_ok=True)
        for directory in shlex.split(one.get("RuntimeDirectory", "").replace("%i", "i")):
            (root / "run" / directory).mkdir(parents=True, exist_ok=True)
        for key, value in said:
            if key == "LoadCredential":
                credential = root / value.partition(":")[0]
                credential.write_text("a secret that is long enough")
                credential.chmod(0o440)  # systemd grants the user access by an ACL.
        line = one["ExecStart"].replace("/opt/fyrehose/bin", str(Path(sys.executable).parent))
        line = line.replace("/var/lib/", f"{root}/lib/").replace("/run/", f"{root}/run/")
        line = line.replace("/etc/fyrehose", str(UNITS)).replace("%d", str(root))
        line = line.replace("%H", "host").replace("%i", "i")
        for variable, value in ENVIRONMENT.items():
            line = re.sub(rf"\$\{{?{variable}\b\}}?", value, line)
        line = re.sub(r"=tcp:\d+", "=tcp:0", line)
        sockets = listening(f"{name}.service")
        notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        opened.append(notified)
        notified.bind(str(root / f"notify-{name}"))
        notified.settimeout(0.5)
        unit = {
            "command": [*shlex.split(line), *more],
            "sockets": {name: made.fileno() for name, made in sockets.items()},
            "families": shlex.split(one["RestrictAddressFamilies"]),
            "filter": [] if NO_CONFINEMENT else [value for key, value in said if key == "SystemCallFilter"],
        }
        program = start(
            *(sys.executable, STARTER, json.dumps(unit)),
            of_ours=False,
            cwd=root,
            env={**os.environ, "NOTIFY_SOCKET": notified.getsockname(), "PYTHONUNBUFFERED": "1"},
            pass_fds=tuple(made.fileno() for made in sockets.values()),
            stderr=-2,
        )
        running = RunningUnit(program, notified, sockets)
        if ready:
            running.tells("READY", "STATUS")
        return running

    yield started
    for one in opened:
        one.close()


def test_member_unit_starts_reloads_and_stops(start_unit: StartUnit) -> None:
    unit = start_unit("fyrehose-backbone@")
    unit.reload()
    unit.stop()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("freenet-node", "there is nothing to reload"),
        ("hydra-node", "SIGHUP: no changes"),
        ("parcels-node", "there is nothing to reload"),
    ],
)
def test_node_unit_starts_reloads_and_stops(start_unit: StartUnit, name: str, told: str) -> None:
    unit = start_unit(name)
    unit.reload()
    unit.program.wait_for(told)
    unit.stop()


def test_unit_that_fails_to_start_is_never_ready(start_unit: StartUnit) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        place = f"--metrics=tcp:{taken.getsockname()[1]}"
        unit = start_unit("fyrehose-journal", "--backbone=127.0.0.1:9", place, ready=False)
        unit.tells("STATUS")
        assert unit.program.finish() == 1, unit.program
        unit.tells_nothing()


def test_units_of_fyrehose_work_together(start_unit: StartUnit) -> None:
    backbone = start_unit("fyrehose-backbone")
    place = ":".join(map(str, backbone.address("push")))
    journal = start_unit("fyrehose-journal", f"--backbone={place}")
    relay = start_unit("fyrehose-relay", f"--backbone={place}", "--port=0")
    query = start_unit("fyrehose-query")
    frontend = start_unit("fyrehose-frontend", f"--backbone={place}")

    def http(unit: RunningUnit, path: str, data: bytes | None = None) -> Any:
        host, port = unit.address("http")
        with urlopen(Request(f"http://{host}:{port}{path}", data), timeout=DEADLINE) as answer:
            return json.loads(answer.read())

    assert http(frontend, "/messages", b"hello") == {"sequence": 1}
    with closing(socket.create_connection(frontend.address("lines"), DEADLINE)) as lines:
        lines.sendall(b"hello again\n")
        assert lines.recv(100) == b"2\n"
    assert [one["stream"] for one in http(query, "/streams")] == ["fyrehose://default"]
    for unit in (backbone, journal, relay, query, frontend):
        unit.reload()
    for unit in (frontend, query, journal, backbone):
        unit.stop()
