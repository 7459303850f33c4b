"""Lines a second: from IRC through a line of three nodes, and from the last of them to IRC.

The leader is at one end and the application at the other, so that every node in between receives and sends each line.
Lines go in as fast as they come out, with a limited number in flight; none may be missing at the end.
"""

from __future__ import annotations

import json
import pstats
import re
import select
import socket
import sys
import time
from pathlib import Path
from typing import Any

from parcels.nodes import Node, Unfit, cpu_of, free_ports, wait_until

from fyrehose_twisted.hydra.wire.codec import HydraCodec
from fyrehose_twisted.hydra.wire.messages import Recv, Send
from hydra import fast_irc
from hydra.networks import CHANNEL, NICK, SIZE

LINE = 100
"""Bytes of a line from IRC."""
FLIGHT = 4_000
"""Lines from IRC in flight."""
SPEAKERS, SAYING = 4, 200
"""Clients that submit lines, and lines in flight of each; a node accepts 1,000."""

Figures = dict[str, float]


class Line:
    """Nodes a, b and c, of which a leads; a is linked with b, and b with c.

    :ivar given: number of lines that the IRC server was told to send.
    """

    def __init__(self, directory: Path, *, profiles: bool = False) -> None:
        directory.mkdir()
        self.directory = directory
        self.nodes: list[Node] = []
        self.given = 0
        *ports, irc = free_ports(SIZE + 1)
        script = str(Path(fast_irc.__file__))
        self.server = Node("fast_irc", [sys.executable, script, str(irc), str(LINE)], directory, pipes=True)
        twistd = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile="]
        try:
            for number, name in enumerate("abc"):
                profile = [f"--profile={name}.profile", "--profiler=cProfile", "--savestats"] if profiles else []
                command = [*twistd, *profile, "hydra-node", f"--tag={name}", f"--network-size={SIZE}"]
                command += [f"--listen=tcp:{ports[number]}:interface=127.0.0.1", "--no-guardian"]
                command += ["--bootstrap"] if number == 0 else [f"--link=tcp:127.0.0.1:{ports[number - 1]}"]
                command += [f"--irc=127.0.0.1:{irc}", f"--channel={CHANNEL}", f"--nick={NICK}"]
                command += ["--irc-rate=1000000", "--irc-burst=100000", f"--state={name}.state"]
                command += [f"--control=unix:{directory / name}.socket"]
                self.nodes.append(Node(name, command, directory))
            wait_until(self._whole, "three nodes are one network", [*self.nodes, self.server], 60.0)
        except BaseException:
            self.stop()
            raise

    def _whole(self) -> bool:
        states = [self.status(name) for name in "abc"]
        return states[0].get("irc") == "open" and all(
            len(state["nodes"]) == SIZE and state["leader"] == states[0]["id"] for state in states
        )

    def dial(self, name: str) -> socket.socket:
        """Return a connection to the control socket of a node."""
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(self.directory / f"{name}.socket"))
        return client

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of a node."""
        with self.dial(name) as client:
            client.sendall(b'{"ask": "status"}\n')
            found: dict[str, Any] = json.loads(client.makefile().readline())["status"]
            return found

    def give(self, count: int) -> None:
        """Let the IRC server send further lines."""
        assert self.server.input is not None
        self.server.input.write(b"give %d %d\n" % (self.given, count))
        self.server.input.flush()
        self.given += count

    def said(self) -> tuple[int, float]:
        """Return the number of lines that the IRC server received, and the time of the last one."""
        assert self.server.input is not None
        assert self.server.output is not None
        self.server.input.write(b"said\n")
        self.server.input.flush()
        count, last = self.server.output.readline().split()
        return int(count), float(last)

    def cpu(self) -> list[float]:
        """Return CPU seconds of each node."""
        return [cpu_of([node.pid]) for node in self.nodes]

    def stop(self) -> None:
        """Kill everything at once."""
        for node in [*self.nodes, self.server]:
            node.stop()

    def finish(self) -> None:
        """Stop the nodes so that they write their profiles."""
        for node in reversed(self.nodes):
            node.process.terminate()
            node.process.wait(20)
        self.server.stop()


def relay(line: Line, seconds: float) -> Figures:
    """Return the lines per second of node c, counted by a client that follows it."""
    first = line.given
    with line.dial("c") as client:
        client.sendall(b'{"ask": "follow"}\n')
        # The confirmation of following, and the leader.
        greeting = b""
        while greeting.count(b"\n") < 2:
            greeting += client.recv(65_536)
        came, cpu, began = first, line.cpu(), time.monotonic()
        ends = began + seconds
        last = began
        chunks = []
        line.give(FLIGHT)
        while came < line.given:
            if not select.select([client], [], [], 10.0)[0] or not (data := client.recv(1 << 20)):
                raise Unfit(f"{line.given - first:,} lines came from IRC, {came - first:,} came out of node c")
            chunks.append(data)
            last = time.monotonic()
            came += data.count(b"\n")
            if last < ends and line.given - came <= FLIGHT // 2:
                line.give(came + FLIGHT - line.given)
        used = [after - before for before, after in zip(cpu, line.cpu(), strict=True)]
    numbers = [int(number) for number in re.findall(rb"PRIVMSG #hydra :(\d+) ", b"".join(chunks))]
    if numbers != list(range(first, line.given)):
        raise Unfit("not all lines came out of node c once and in order")
    return _figures(came - first, last - began, used)


def speak(line: Line, seconds: float) -> Figures:
    """Return the lines per second that node c has said on IRC."""
    clients = [line.dial("c") for _ in range(SPEAKERS)]
    under_way = dict.fromkeys(clients, 0)
    answers = dict.fromkeys(clients, b"")
    number = 0
    before, _ = line.said()
    cpu, began = line.cpu(), time.monotonic()
    ends = began + seconds
    try:
        while time.monotonic() < ends or any(under_way.values()):
            for client, waits in under_way.items():
                if time.monotonic() < ends and waits <= SAYING // 2:
                    batch = range(number, number + SAYING - waits)
                    number = batch.stop
                    texts = [f"PRIVMSG {CHANNEL} :{one} {'x' * 60}" for one in batch]
                    asked = [json.dumps({"ask": "say", "line": text}).encode() + b"\n" for text in texts]
                    client.sendall(b"".join(asked))
                    under_way[client] += len(batch)
            readable = select.select(clients, [], [], 10.0)[0]
            if not readable:
                raise Unfit("what was to be said has no outcome")
            for client in readable:
                data = client.recv(1 << 20)
                under_way[client] -= data.count(b"\n")
                answers[client] += data
        used = [after - start for start, after in zip(cpu, line.cpu(), strict=True)]
        count, last = line.said()
    finally:
        for client in clients:
            client.close()
    said = sum(answer.count(b'"said":"said"') for answer in answers.values())
    if not count - before == said == number:
        raise Unfit(f"{number:,} lines were to be said, {count - before:,} were, and {said:,} are known to be")
    return _figures(number, last - began, used)


def _figures(count: int, seconds: float, used: list[float]) -> Figures:
    costs = {name: cpu / count * 1e6 for name, cpu in zip("abc", used, strict=True)}
    return {"count": count, "rate": count / seconds, **costs}


def codec(seconds: float) -> Figures:
    """Return the microseconds of the codec per line."""
    body = fast_irc.line(1, LINE).rstrip()
    wire = HydraCodec()
    figures: Figures = {}
    for name, message in (
        ("RECV", Recv(1_000_000, body)),
        ("SEND", Send(4_711, b"@+hydra/n=0123456789ab.77 " + body.partition(b" ")[2])),
    ):
        data = wire.encode(message) * 500
        for what, work in (
            ("encode", lambda message=message: [wire.encode(message) for _ in range(500)]),
            ("decode", lambda data=data: wire.decoder().feed(data)),
        ):
            rounds = 0
            began = time.process_time()
            while time.process_time() - began < seconds:
                if len(work()) != 500:
                    raise Unfit(f"the codec cannot {what} {name}")
                rounds += 1
            figures[f"{what} {name}"] = (time.process_time() - began) / rounds / 500 * 1e6
    return figures


def ngircd(port: int, count: int) -> float:
    """Return the lines per second from one client of an IRC server to another."""
    talker, listener = (
        wait_until(lambda: socket.create_connection(("127.0.0.1", port), 10.0), "ngircd listens") for _ in range(2)
    )
    with talker, listener:
        for nick, client in (("t", talker), ("l", listener)):
            client.sendall(f"NICK {nick}\r\nUSER {nick} 0 * :x\r\nJOIN #rate\r\n".encode())
            data = b""
            while b" 366 " not in data:
                data += client.recv(65_536)
        line = b"PRIVMSG #rate :" + b"x" * (LINE - 17) + b"\r\n"
        began = time.monotonic()
        talker.setblocking(False)
        waiting, came = memoryview(line * count), 0
        while came < count:
            ready, writable, _ = select.select([listener, talker], [talker] if waiting else [], [], 10.0)
            if writable:
                waiting = waiting[talker.send(waiting[:65_536]) :]
            if talker in ready and not talker.recv(65_536):
                raise Unfit("ngircd hung up")
            if listener in ready:
                came += listener.recv(1 << 18).count(b"\n")
            if not ready and not writable:
                raise Unfit("ngircd does not go on")
        return count / (time.monotonic() - began)


def profile(directory: Path, name: str, top: int = 12) -> list[str]:
    """Return the most expensive functions of a profiled node: own seconds, calls, function."""
    stats: Any = pstats.Stats(str(directory / f"{name}.profile"))
    rows = sorted(stats.stats.items(), key=lambda row: -row[1][2])
    total = sum(row[1][2] for row in rows if "poll" not in row[0][2])
    found = [
        f"{own / total:5.1%}  {calls:>9,}  {Path(where).name}:{number} {function}"
        for (where, number, function), (_, calls, own, _, _) in rows
        if "poll" not in function
    ]
    return found[:top]
