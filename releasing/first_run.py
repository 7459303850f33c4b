"""First run of an installed release: ``python first_run.py VERSION``, with the Python that it is installed in.

It needs nothing but the standard library and the installation, and no fixed port.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path

PROGRAMS = Path(sys.executable).parent

LINES = "hello\nworld\nagain\n"

HANGS = 120
"""Seconds after which a command has failed; nothing takes long."""


def check(fact: bool, text: str) -> None:
    """End with an error unless ``fact``."""
    if not fact:
        raise SystemExit(f"first run: {text}")


def run(*command: str, given: str = "") -> str:
    """Run a program of the installation and return its output."""
    done = subprocess.run(
        [PROGRAMS / command[0], *command[1:]], input=given, capture_output=True, text=True, timeout=HANGS
    )
    check(done.returncode == 0, f"{' '.join(command)} exited with status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def start(*command: str) -> subprocess.Popen[str]:
    """Start a program of the installation."""
    return subprocess.Popen([PROGRAMS / command[0], *command[1:]], stdout=subprocess.PIPE, text=True)


def service(name: str, *options: str) -> subprocess.Popen[str]:
    """Start a service in the foreground."""
    return start("twistd", "--nodaemon", "--pidfile=", f"--logfile={name}.log", name, *options)


def stop(process: subprocess.Popen[str], name: str) -> None:
    """Stop a service as an operator does. twistd ends by the same signal after its shutdown."""
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=HANGS)
    check(process.returncode == -signal.SIGTERM, f"{name} exited with status {process.returncode}")
    log = Path(f"{name}.log").read_text(encoding="utf-8")
    check("Server Shut Down" in log and "Traceback" not in log, f"the log of {name} is:\n{log}")


def free_port() -> int:
    """Return a UDP port that is free at present."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main(version: str) -> None:
    """Run services and clients of the installed release in the working directory."""
    found = metadata.version("fyrehose_twisted")
    check(found == version, f"version {found} is installed, not {version}")
    origin = util.find_spec("fyrehose_twisted")
    check(origin is not None and str(origin.origin).startswith(sys.prefix), f"{origin} is not that of the wheel")
    started: list[tuple[str, subprocess.Popen[str]]] = []
    try:
        port = free_port()
        backbone = f"--backbone=127.0.0.1:{port}"
        started.append(("fyrehose-backbone", service("fyrehose-backbone", f"--port={port}", "--state=numbers")))
        run("fyrehose", "ping", backbone, "--count", "1")
        started.append(("fyrehose-journal", service("fyrehose-journal", backbone, "--directory=kept")))
        live = start("fyrehose", "sub", backbone, "--from", "1", "--count", "3")
        started.append(("fyrehose sub", live))
        run("fyrehose", "pub", backbone, "--kept", "1", given=LINES)
        received, _ = live.communicate(timeout=HANGS)
        check(received == LINES, f"a subscriber received {received!r}")
        late = run("fyrehose", "sub", backbone, "--from", "oldest", "--count", "3")
        check(late == LINES, f"a late subscriber received {late!r}")
        for name, process in (started[1], started[0]):
            stop(process, name)
        [directory] = [path for path in Path("kept").iterdir() if path.is_dir()]
        kept = run("fyrehose", "journal", "cat", str(directory))
        check(all(line in kept for line in LINES.split()), f"the journal holds {kept!r}")
    finally:
        for _, process in started:
            if process.poll() is None:
                process.kill()
                process.communicate()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        # Services write their logs and files into the working directory.
        os.chdir(directory)
        main(*sys.argv[1:])
