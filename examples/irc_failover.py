"""A bot on IRC that outlives the process that is on IRC.

Three nodes run the bot of examples/karma.py; each is a ``twistd hydra-node`` of its own, and the one that they elected
is on the IRC server, an ngircd that this starts. Somebody who knows nothing of all this says ``tea++`` without end.
Then the node that is on IRC is killed with -9, twice, and in the end the bot is asked how often it saw that.

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
"""Seconds between two lines of whoever talks."""
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
    """Return what a condition returns once that is something."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise SystemExit(f"irc_failover: {what}, for {PATIENCE:g} s")


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody uses just now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def start(stack: ExitStack, command: list[str], directory: Path, log: str) -> subprocess.Popen[bytes]:
    """Start a process that is killed in the end, in a session of its own, so that Ctrl-C is for us alone."""
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
        self._options += ["--found"] if name == NAMES[0] else []
        self._options += [f"--irc=127.0.0.1:{irc}", f"--channel={CHANNEL}", "--nick=karma", "--bot=karma.KarmaBot"]
        self._options += [f"--state={name}.state", f"--journal={name}", f"--control=unix:{name}.socket"]
        self._options += [f"--timescale={scale:g}"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, stack: ExitStack) -> None:
        """Start it, again if it was killed."""
        twistd = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile="]
        self._process = start(stack, [*twistd, "hydra-node", *self._options], self.directory, f"{self.name}.log")

    def kill(self) -> None:
        """Kill it with -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def status(self) -> dict[str, Any]:
        """Return how it looks, as `fyrehose hydra status --json` does; nothing while it does not answer."""
        with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(PATIENCE)
            asking.connect(str(self.directory / f"{self.name}.socket"))
            asking.sendall(b'{"ask": "status"}\n')
            found: dict[str, Any] = json.loads(asking.makefile().readline())["status"]
            return found
        return {}

    def is_guarded(self) -> bool:
        """Return whether it would be missed at once: a process of its own watches over it, where the system can."""
        text = (self.directory / f"{self.name}.log").read_text(errors="replace")
        ready = f"stands by for node {self.status().get('id')}, {len(NAMES) - 1} of "
        return not hasattr(os, "pidfd_open") or ready in text


class Talker:
    """Somebody on IRC."""

    def __init__(self, port: int) -> None:
        self.lines: list[tuple[float, str]] = []
        self.said: list[float] = []
        self._over = threading.Event()
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        threading.Thread(target=self._read, daemon=True).start()
        self.send("NICK talker", "USER talker 0 * :somebody")
        self.wait_for(" 376 | 422 ")
        self.send(f"JOIN {CHANNEL}")
        self.wait_for(" 366 ")

    def send(self, *lines: str) -> None:
        """Send lines to the server."""
        self._socket.sendall("".join(f"{line}\r\n" for line in lines).encode())

    def wait_for(self, pattern: str, after: int = 0) -> tuple[float, str]:
        """Return when a line came that has a pattern, and the line."""

        def look() -> Any:
            return next((one for one in self.lines[after:] if re.search(pattern, one[1])), None)

        found: tuple[float, str] = wait_until(look, f"nothing like {pattern!r} came from IRC")
        return found

    def talk(self) -> threading.Thread:
        """Begin to talk."""

        def talk() -> None:
            while not self._over.wait(EVERY):
                self.said.append(time.monotonic())
                self.send(f"PRIVMSG {CHANNEL} :tea++")

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        return thread

    def lines_missed(self, after: int = 0) -> int:
        """Return about how much was said while nobody else was there, from some line on."""
        count, gone = 0, None
        for at, line in self.lines[after:]:
            if re.match("^:karma_*!.* QUIT", line):
                gone = at if gone is None else gone
            elif gone is not None and re.match("^:karma_*!.* JOIN", line):
                count += sum(gone <= said <= at for said in self.said)
                gone = None
        return count

    def stop(self) -> None:
        """Talk no more."""
        self._over.set()

    def _read(self) -> None:
        with suppress(OSError):
            for line in self._socket.makefile(errors="replace"):
                if line.startswith("PING"):
                    self.send("PONG" + line.strip()[4:])
                self.lines.append((time.monotonic(), line.strip()))


def all_in(nodes: list[Node]) -> Node | None:
    """Return the leader if all nodes belong to one network, and it is on IRC."""
    states = [node.status() for node in nodes]
    if not all(state and len(state["nodes"]) == len(NAMES) and state["leader"] is not None for state in states):
        return None
    leaders = [node for node, state in zip(nodes, states, strict=True) if state["irc"] == "open"]
    return leaders[0] if len(leaders) == 1 and len({state["leader"] for state in states}) == 1 else None


def main(stack: ExitStack, scale: float) -> None:
    """Run the example; exit with status 1 if anything is not as it should be."""
    ngircd = shutil.which("ngircd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if ngircd is None:
        raise SystemExit("irc_failover: ngircd is missing: apt install ngircd, or what your system calls it")
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    irc, *ports = free_ports(1 + len(NAMES))
    (directory / "ngircd.conf").write_text(NGIRCD.format(port=irc))
    start(stack, [ngircd, "-n", "-f", str(directory / "ngircd.conf")], directory, "ngircd.log")
    wait_until(lambda: _listens(irc), "ngircd does not listen")
    nodes = [Node(name, directory, dict(zip(NAMES, ports, strict=True)), irc, scale) for name in NAMES]
    for node in nodes:
        node.start(stack)
    talker = Talker(irc)
    leader: Node = wait_until(lambda: all_in(nodes), "the nodes do not find together")
    say(f"{', '.join(NAMES)} are one network; {leader.name} is in {CHANNEL} as karma")
    talking = talker.talk()

    gaps = []
    for _ in range(2):
        guarded = leader
        wait_until(guarded.is_guarded, f"nobody watches over {leader.name}")
        time.sleep(1.0)
        before = len(talker.lines)
        killed = time.monotonic()
        leader.kill()
        back, _ = talker.wait_for("^:karma_*!.* JOIN", before)
        gaps.append((back - killed, talker.lines_missed(before)))
        say(f"{leader.name} was killed with -9; somebody else is in {CHANNEL} after {back - killed:.2f} s")
        leader.start(stack)
        leader = wait_until(lambda: all_in(nodes), "the nodes do not find together")
        say(f"{leader.name} it is, and all three are one network again")

    talker.stop()
    talking.join()
    before = len(talker.lines)
    talker.send(f"PRIVMSG {CHANNEL} :!karma tea")
    _, answer = talker.wait_for("tea has karma", before)
    counted, said = int(answer.rsplit(" ", 1)[1]), len(talker.said)
    nobody = talker.lines_missed()
    print(f"\ntea++ was said {said:,} times, while the node that heard it was killed twice.")
    print(f"The bot, now on {leader.name}, answers {counted:,}; about {nobody:,} fell while nobody was in the channel:")
    for number, (seconds, lost) in enumerate(gaps, 1):
        print(f"  kill {number}: {seconds:.2f} s until somebody was there again, about {lost:,} lines unheard")
    # When exactly the server took a line the talker cannot know; some lines on either side of each gap are in doubt.
    if not said - nobody - 20 <= counted <= said:
        raise SystemExit("irc_failover: that does not add up")
    print("Nothing was counted twice, and nothing that was heard is forgotten.")


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
