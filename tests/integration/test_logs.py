"""``twistd --logger=fyrehose_twisted.process.logs.json_lines``: what a log shipper is given by a service that is lied
to."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from integration.running.programs import Start

DEADLINE = 120.0
LOGGER = "--logger=fyrehose_twisted.process.logs.json_lines"
GARBAGE = (
    b"",
    b"\n\x00\x1b[2J",
    b'"}\n{"level":"info"}\n',
    b"\xff" * 1_400,
    "\u2028\u0085".encode(),
    b"FYREHOSE" * 100,
)


def send_garbage(port: int) -> None:
    """Send malformed packets from several addresses; each is logged once per minute and reason."""
    for number in range(2, 10):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind((f"127.0.0.{number}", 0))
            for datagram in GARBAGE:
                sender.sendto(datagram, ("127.0.0.1", port))


def objects(text: str) -> list[dict[str, Any]]:
    """Parse the lines, all of which are JSON objects."""
    read = [json.loads(line) for line in text.splitlines()]
    assert all({"time", "level", "namespace", "message"} <= one.keys() for one in read)
    return read


def test_json_log_of_a_backbone_has_one_object_per_line(start: Start, tmp_path: Path) -> None:
    backbone = start("twistd", "-n", "--pidfile=", LOGGER, "fyrehose-backbone", "--port", 0, cwd=tmp_path)
    port = int(backbone.wait_for(r'"host":"127\.0\.0\.1","port":(\d+)')[1])
    send_garbage(port)
    backbone.wait_for(r'"reason":"[a-z_]+","host":"127\.0\.0\.9"')
    assert backbone.signal(signal.SIGTERM).finish() == -signal.SIGTERM
    assert backbone.err == ""
    read = objects(backbone.out)
    (listening,) = (one for one in read if one["message"].startswith("listening on"))
    assert (listening["level"], listening["port"], listening["number"]) == ("info", port, 1)
    drops = [one for one in read if "reason" in one]
    assert {one["host"] for one in drops} == {f"127.0.0.{number}" for number in range(2, 10)}
    for one in drops:
        assert one["level"] == "warn"
        assert one["message"] == f"dropped ({one['reason']}) from {one['host']}:{one['port']}: {one['detail']}"
    assert read[-1]["message"] == "Server Shut Down."


def test_exception_of_an_application_is_one_json_line(start: Start, tmp_path: Path) -> None:
    (tmp_path / "application.py").write_text(
        "from fyrehose_twisted.fyrehose.protocol import BackboneProtocol\n"
        "class Wrong(BackboneProtocol):\n"
        "    def startProtocol(self):\n"
        "        super().startProtocol()\n"
        "        self.reactor.callLater(0, self.fall)\n"
        "    def fall(self):\n"
        "        print('said\\nin passing')\n"
        "        raise RuntimeError('an application\\nmay be wrong')\n"
    )
    backbone = start(
        *("twistd", "-n", "--pidfile=", LOGGER, "fyrehose-backbone", "--port", 0, "--protocol", "application.Wrong"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    backbone.wait_for(r"may be wrong")
    assert backbone.signal(signal.SIGTERM).finish() == -signal.SIGTERM
    read = objects(backbone.out)
    (failed,) = (one for one in read if "failure" in one)
    assert failed["level"] == "critical"
    assert failed["failure"].rstrip().endswith("an application\nmay be wrong")
    assert {"said", "in passing"} <= {one["message"] for one in read}


def test_daemon_writes_and_rotates_its_json_log_file(tmp_path: Path) -> None:
    def wait_for(pattern: str) -> str:
        end, never = monotonic() + DEADLINE, threading.Event()
        while True:
            text = ""
            with suppress(FileNotFoundError):  # There is no file during its rotation.
                text = log.read_text()
            if re.search(pattern, text):
                return text
            assert monotonic() < end, text
            never.wait(0.02)

    log, pid = tmp_path / "backbone.log", tmp_path / "pid"
    twistd = Path(sys.executable).parent / "twistd"
    command = (twistd, f"--pidfile={pid}", f"--logfile={log}", LOGGER, "fyrehose-backbone", "--port=0")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    daemon = os.pidfd_open(
        int(pid.read_text())
    )  # It is no child of this process, so its exit is detected through a descriptor.
    try:
        wait_for("listening on")
        signal.pidfd_send_signal(daemon, signal.SIGUSR1)
        wait_for("^$")
    finally:
        signal.pidfd_send_signal(daemon, signal.SIGTERM)
        ended = select.poll()
        ended.register(daemon, select.POLLIN)
        assert ended.poll(DEADLINE * 1000), log.read_text()
        os.close(daemon)
    assert objects(wait_for("Server Shut Down"))
    assert objects((tmp_path / "backbone.log.1").read_text())


def test_daemon_that_logs_to_standard_output_does_not_start(start: Start, tmp_path: Path) -> None:
    backbone = start("twistd", "--logfile=-", LOGGER, "fyrehose-backbone", "--port", 0, cwd=tmp_path)
    assert backbone.finish() == 1
    assert backbone.err == (
        "fyrehose_twisted.process.logs.json_lines: a daemon cannot log to standard output; use --nodaemon\n"
    )
