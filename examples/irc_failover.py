"""An IRC bot that outlives the process that is on IRC.

Three ``twistd hydra-node`` processes run the bot of examples/karma.py. The elected leader is on an IRC server, an
ngircd that this program starts. An independent client says ``tea++`` all the time. The leader is killed with -9, twice.
Finally the client asks the bot for its count.

    python examples/irc_failover.py
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

NAMES = "Ada", "Boole", "Curie"
CHANNEL = "#tea"
EVERY = 0.02
"""Seconds between two lines of the client."""
PATIENCE = 30.0
STARTED = time.monotonic()
NGIRCD = """[Global]
Name=irc.example
Info=an example
Listen=127.0.0.1
Ports={port}
[Limits]
MaxConnectionsIP=0
MaxPenaltyTime=0
[Options]
DNS=no
Ident=no
PAM=no
"""


def say(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"{time.monotonic() - STARTED:6.2f} s  {text}", flush=True)


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until a condition returns a true value, and return that."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise SystemExit(f"irc_failover: {what}, for {PATIENCE:g} s")


def free_ports(count: int) -> list[int]:
    """Return free ports of the loopback interface."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def start(stack: ExitStack, command: list[str], directory: Path, log: str) -> subprocess.Popen[bytes]:
    """Start a process, to be killed at the end, in a session of its own, so that Ctrl-C does not reach it."""
    paths = [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with open(directory / log, "ab") as output:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


class Node:
    """A node in a process of its own."""

    def __init__(self, name: str, directory: Path, ports: dict[str, int], irc: int, scale: float) -> None:
        self.name, self.directory = name, directory
        self._options = [f"--tag={name}", f"--network-size={len(NAMES)}", f"--listen=tcp:{ports[name]}"]
        self._options += [f"--link=tcp:127.0.0.1:{port}" for other, port in ports.items() if other != name]
        self._options += ["--bootstrap"] if name == NAMES[0] else []
        self._options += [f"--irc=127.0.0.1:{irc}", f"--channel={CHANNEL}", "--nick=karma", "--bot=karma.KarmaBot"]
        self._options += [f"--state={name}.state", f"--journal={name}", f"--control=unix:{name}.socket"]
        self._options += [f"--timescale={scale:g}"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, stack: ExitStack) -> None:
        """Start the process; again after a kill."""
        twistd = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile="]
        self._process = start(stack, [*twistd, "hydra-node", *self._options], self.directory, f"{self.name}.log")

    def kill(self) -> None:
        """Kill the process with -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def status(self) -> dict[str, Any]:
        """Return the status of `fyrehose hydra status --json`; empty while the node does not answer."""
        with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(PATIENCE)
            asking.connect(str(self.directory / f"{self.name}.socket"))
            asking.sendall(b'{"ask": "status"}\n')
            found: dict[str, Any] = json.loads(asking.makefile().readline())["status"]
            return found
        return {}

    def is_guarded(self) -> bool:
        """Return whether the guardian is ready, so that a kill is noticed at once; true without pidfds."""
        text = (self.directory / f"{self.name}.log").read_text(errors="replace")
        ready = f"stands by for node {self.status().get('id')}, {len(NAMES) - 1} of "
        return not hasattr(os, "pidfd_open") or ready in text


class Talker:
    """IRC client that is no part of the network."""

    def __init__(self, port: int) -> None:
        self.lines: list[tuple[float, str]] = []
        self.said: list[float] = []
        self._over = threading.Event()
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        threading.Thread(target=self._read, daemon=True).start()
        self.send("NICK talker", "USER talker 0 * :talker")
        self.wait_for(" 376 | 422 ")
        self.send(f"JOIN {CHANNEL}")
        self.wait_for(" 366 ")

    def send(self, *lines: str) -> None:
        """Send lines to the server."""
        self._socket.sendall("".join(f"{line}\r\n" for line in lines).encode())

    def wait_for(self, pattern: str, after: int = 0) -> tuple[float, str]:
        """Wait for a line that matches a pattern; return its time and the line."""

        def look() -> Any:
            return next((line for line in self.lines[after:] if re.search(pattern, line[1])), None)

        found: tuple[float, str] = wait_until(look, f"no line from IRC matches {pattern!r}")
        return found

    def talk(self) -> threading.Thread:
        """Start the thread that talks."""

        def talk() -> None:
            while not self._over.wait(EVERY):
                self.said.append(time.monotonic())
                self.send(f"PRIVMSG {CHANNEL} :tea++")

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        return thread

    def lines_missed(self, after: int = 0) -> int:
        """Return about how many lines were said without a bot in the channel, counted from line ``after``."""
        count, gone = 0, None
        for at, line in self.lines[after:]:
            if re.match("^:karma_*!.* QUIT", line):
                gone = at if gone is None else gone
            elif gone is not None and re.match("^:karma_*!.* JOIN", line):
                count += sum(gone <= said <= at for said in self.said)
                gone = None
        return count

    def stop(self) -> None:
        """Stop talking."""
        self._over.set()

    def _read(self) -> None:
        with suppress(OSError):
            for line in self._socket.makefile(errors="replace"):
                if line.startswith("PING"):
                    self.send("PONG" + line.strip()[4:])
                self.lines.append((time.monotonic(), line.strip()))


def all_in(nodes: list[Node]) -> Node | None:
    """Return the leader if all nodes are in one network and it is on IRC, else ``None``."""
    states = [node.status() for node in nodes]
    if not all(state and len(state["nodes"]) == len(NAMES) and state["leader"] is not None for state in states):
        return None
    leaders = [node for node, state in zip(nodes, states, strict=True) if state["irc"] == "open"]
    return leaders[0] if len(leaders) == 1 and len({state["leader"] for state in states}) == 1 else None


def main(stack: ExitStack, scale: float) -> None:
    """Run the example; exit with status 1 if a check fails."""
    ngircd = shutil.which("ngircd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if ngircd is None:
        raise SystemExit("irc_failover: ngircd is missing; install it: apt install ngircd")
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    irc, *ports = free_ports(1 + len(NAMES))
    (directory / "ngircd.conf").write_text(NGIRCD.format(port=irc))
    start(stack, [ngircd, "-n", "-f", str(directory / "ngircd.conf")], directory, "ngircd.log")
    wait_until(lambda: _listens(irc), "ngircd does not listen")
    nodes = [Node(name, directory, dict(zip(NAMES, ports, strict=True)), irc, scale) for name in NAMES]
    for node in nodes:
        node.start(stack)
    talker = Talker(irc)
    leader: Node = wait_until(lambda: all_in(nodes), "the nodes do not form one network")
    say(f"{', '.join(NAMES)} are one network; {leader.name} is in {CHANNEL} as karma")
    talking = talker.talk()

    gaps = []
    for _ in range(2):
        guarded = leader
        wait_until(guarded.is_guarded, f"{leader.name} has no guardian")
        time.sleep(1.0)
        before = len(talker.lines)
        killed = time.monotonic()
        leader.kill()
        back, _ = talker.wait_for("^:karma_*!.* JOIN", before)
        gaps.append((back - killed, talker.lines_missed(before)))
        say(f"{leader.name} was killed with -9; another node is in {CHANNEL} after {back - killed:.2f} s")
        leader.start(stack)
        leader = wait_until(lambda: all_in(nodes), "the nodes do not form one network")
        say(f"{leader.name} leads, and all three nodes are one network again")

    talker.stop()
    talking.join()
    before = len(talker.lines)
    talker.send(f"PRIVMSG {CHANNEL} :!karma tea")
    _, answer = talker.wait_for("tea has karma", before)
    counted, said = int(answer.rsplit(" ", 1)[1]), len(talker.said)
    missed = talker.lines_missed()
    print(f"\ntea++ was said {said:,} times, while the node on IRC was killed twice.")
    print(
        f"The bot, now on {leader.name}, counted {counted:,}; about {missed:,} were said without a bot in the channel:"
    )
    for number, (seconds, lost) in enumerate(gaps, 1):
        print(f"  kill {number}: {seconds:.2f} s until another node was in the channel, about {lost:,} lines missed")
    # The client cannot know when the server accepted a line, so some lines around each gap are uncertain.
    if not said - missed - 20 <= counted <= said:
        raise SystemExit("irc_failover: the counts do not add up")
    print("No line was counted twice, and no received line is missing.")


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timescale", type=float, default=0.1, metavar="X", help="factor of all timers [%(default)g]")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        main(stack, arguments.timescale)
