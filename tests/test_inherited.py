"""Independence of a test run from state inherited from its parent process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from suite.inherited import environment

PARENT = """
import os, resource, signal, sys
if sys.argv[1] == "hostile":
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGTERM})
    os.umask(0o077)
    os.close(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
os.execv(sys.executable, [sys.executable, "-c", sys.argv[2]])
"""
CHILD = """
import json, os, resource, signal, sys
from suite.inherited import normalize
normalize()
number = os.open("/dev/null", os.O_RDONLY)
print(json.dumps({
    "signals": [str(signal.getsignal(one)) for one in sorted(signal.valid_signals())],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "umask": os.umask(0),
    "a new descriptor is a standard stream": number <= 2,
    "stdin": sys.stdin.read(),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    "environment": dict(os.environ),
}))
"""


def state(parent: str, **variables: str) -> dict[str, object]:
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parent), **variables}
    command = [sys.executable, "-c", PARENT, parent, CHILD]
    ran = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(ran.stdout)
    return found


def test_the_suite_normalises_state_inherited_from_any_parent() -> None:
    hostile = state("hostile", LC_ALL="POSIX", http_proxy="http://127.0.0.1:9", NOTIFY_SOCKET="/x", TZ="Asia/Tokyo")
    assert hostile == state("friendly")
    assert hostile["files"] == 4_096
    assert hostile["blocked"] == []


def test_the_suite_keeps_needed_environment_variables() -> None:
    inherited = {"PATH": "/bin", "PIP_INDEX_URL": "x", "SOAK_SECONDS": "7", "PYTHONWARNINGS": "error", "MAKEFLAGS": "k"}
    kept = environment(inherited)
    assert kept == {"PATH": "/bin", "PIP_INDEX_URL": "x", "SOAK_SECONDS": "7", "LANG": "C.UTF-8", "TZ": "UTC"}
