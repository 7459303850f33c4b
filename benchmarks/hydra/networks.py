"""Networks of hydra nodes, their IRC servers, and clients of both."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from parcels.nodes import Node, Unfit, free_ports
from race.servers import Missing

SIZE = 3
CHANNEL = "#hydra"
NICK = "bot"
PATIENCE = 60.0
"""Seconds within which a network must be complete again."""
_NGIRCD = """[Global]
Name=irc.example
Info=a benchmark
Listen=127.0.0.1
Ports={port}
[Limits]
MaxConnectionsIP=0
MaxJoins=0
MaxPenaltyTime=0
[Options]
DNS=no
Ident=no
PAM=no
[Operator]
Name=op
Password=op
"""

now = time.monotonic


async def until(true: Callable[[], Awaitable[Any]], what: str, patience: float = PATIENCE, every: float = 0.02) -> Any:
    """Return the first true value of ``true``. :raises Unfit: if it takes too long."""
    ends = now() + patience
    while True:
        with suppress(OSError, ValueError):
            if found := await true():
                return found
        if now() > ends:
            raise Unfit(f"not within {patience:g} s: {what}")
        await asyncio.sleep(every)


class IrcServer:
    """An ngircd without limits."""

    def __init__(self, name: str, directory: Path) -> None:
        program = shutil.which("ngircd", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        if program is None:
            raise Missing("ngircd is not installed: apt install ngircd")
        self.name, self.port = name, free_ports(1)[0]
        self._directory = directory
        config = directory / f"{name}.conf"
        config.write_text(_NGIRCD.format(port=self.port))
        self._command = [program, "-n", "-f", str(config)]
        self.start()

    def start(self) -> None:
        """Start or restart it."""
        self.process = Node(self.name, self._command, self._directory)


class IrcUser:
    """IRC client and operator.

    :ivar joins: time and name of each joining node.
    :ivar said: texts of PRIVMSGs.
    """

    def __init__(self, nick: str) -> None:
        self.nick = nick
        self.joins: list[tuple[float, str]] = []
        self.said: list[str] = []
        self.over = False
        self._codes: set[str] = set()

    async def connect(self, port: int) -> None:
        """Join the channel on the server with this port."""

        async def dial() -> Any:
            return await asyncio.open_connection("127.0.0.1", port)

        self._reader, self._writer = await until(dial, "the IRC server listens")
        self.over = False
        self._codes.clear()
        self._reading = asyncio.create_task(self._read())
        self.send(f"NICK {self.nick}", f"USER {self.nick} 0 * :somebody")
        await self._answered("376", "422")
        self.send("OPER op op", f"JOIN {CHANNEL}")
        await self._answered("381")
        await self._answered("366")

    async def _answered(self, *codes: str) -> None:
        async def answered() -> bool:
            return not self._codes.isdisjoint(codes)

        await until(answered, f"IRC answers {codes[0]}", 10.0)

    def send(self, *lines: str) -> None:
        """Send lines."""
        self._writer.write("".join(f"{line}\r\n" for line in lines).encode())

    def talk(self, text: str) -> None:
        """Say a line in the channel."""
        self.send(f"PRIVMSG {CHANNEL} :{text}")

    async def _read(self) -> None:
        with suppress(OSError):
            while data := await self._reader.readline():
                at, line = now(), data.decode(errors="replace").strip()
                words = line.split(" ", 3)
                if words[0] == "PING":
                    self.send("PONG" + line[4:])
                elif len(words) > 2 and words[1] == "JOIN" and words[0][1:].startswith(NICK):
                    self.joins.append((at, words[0][1:].partition("!")[0]))
                elif len(words) > 3 and words[1] == "PRIVMSG":
                    self.said.append(words[3][1:])
                elif len(words) > 1:
                    self._codes.add(words[1])
        self.over = True

    async def close(self) -> None:
        """Disconnect."""
        self._reading.cancel()
        with suppress(OSError):
            self._writer.close()
            await self._writer.wait_closed()


class Client:
    """Client of a node's control socket.

    :ivar lines: lines from IRC, while it follows.
    :ivar missed: number of lines reported as missed.
    :ivar outcomes: outcome of submitted lines, by number.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.missed = 0
        self.outcomes: dict[int, str] = {}

    async def connect(self, path: Path, *, follow: bool) -> None:
        """Connect to the control socket at ``path``."""
        self._reader, self._writer = await asyncio.open_unix_connection(str(path), limit=2**20)
        if follow:
            self._writer.write(b'{"ask": "follow"}\n')
            await self._reader.readline()
        self._reading = asyncio.create_task(self._read())

    def say(self, number: int, text: str) -> None:
        """Submit a line, at most once."""
        question = {"ask": "say", "line": f"PRIVMSG {CHANNEL} :{text}", "id": number}
        self._writer.write(json.dumps(question).encode() + b"\n")

    async def _read(self) -> None:
        with suppress(OSError):
            while data := await self._reader.readline():
                match json.loads(data):
                    case {"line": line}:
                        self.lines.append(line)
                    case {"missed": [first, last]}:
                        self.missed += last - first + 1
                    case {"said": outcome, "id": number}:
                        self.outcomes[number] = outcome
                    case {"error": error, "id": number}:
                        self.outcomes[number] = f"error: {error}"

    async def close(self) -> None:
        """Disconnect."""
        self._reading.cancel()
        with suppress(OSError):
            self._writer.close()
            await self._writer.wait_closed()


class HydraNode:
    """A ``twistd hydra-node``."""

    def __init__(self, name: str, directory: Path, options: Sequence[str]) -> None:
        self.name = name
        self._directory = directory
        self.socket = directory / f"{name}.socket"
        self._starts = 0
        self._options = [*options, f"--tag={name}", f"--state={name}.state", f"--control=unix:{self.socket}"]
        self.process: Node
        self._guarded: tuple[int, int] | None = None

    @property
    def log(self) -> Path:
        """Return its log since the last start."""
        return self._directory / f"{self.name}.{self._starts}.log"

    def start(self) -> None:
        """Start or restart it."""
        self._starts += 1
        command = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile=", "hydra-node", *self._options]
        self.process = Node(f"{self.name}.{self._starts}", command, self._directory)

    async def ended(self) -> None:
        """Wait for the exit of its process. Its guardian may exit later."""

        async def gone() -> bool:
            return self.process.process.poll() is not None

        await until(gone, f"{self.name} ends", 15.0)

    async def status(self) -> dict[str, Any]:
        """Return its status."""
        reader, writer = await asyncio.open_unix_connection(str(self.socket), limit=2**20)
        try:
            writer.write(b'{"ask": "status"}\n')
            found: dict[str, Any] = json.loads(await reader.readline())["status"]
            return found
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def is_guarded(self, number: int) -> bool:
        """Return whether all links of its guardian are bound to this id."""
        key = self._starts, number
        if self._guarded != key:
            text = self.log.read_text(errors="replace")
            if re.search(rf"stands by for node {number}, {SIZE - 1} of {SIZE - 1} ", text):
                self._guarded = key
        return self._guarded == key


class Network:
    """Three fully linked nodes, two IRC servers, and a client on each of these."""

    def __init__(self, name: str, directory: Path, scale: float, *, guardian: bool) -> None:
        self.name, self.scale, self.guardian = name, scale, guardian
        directory.mkdir()
        self.servers = [IrcServer(f"irc{number}", directory) for number in range(2)]
        self.users = [IrcUser("talker") for _ in self.servers]
        ports = free_ports(SIZE)
        self.nodes = []
        for number, port in enumerate(ports):
            options = [f"--network-size={SIZE}", f"--listen=tcp:{port}:interface=127.0.0.1", f"--timescale={scale:g}"]
            options += [f"--link=tcp:127.0.0.1:{other}" for other in ports if other != port]
            options += [f"--irc=127.0.0.1:{server.port}" for server in self.servers]
            options += [f"--channel={CHANNEL}", f"--nick={NICK}", "--irc-rate=1000", "--irc-burst=1000"]
            options += [] if guardian else ["--no-guardian", "--no-quick-lease"]
            options += ["--bootstrap"] if number == 0 else []
            self.nodes.append(HydraNode(f"n{number}", directory, options))
        self.numbers = 0
        """Lines that were talked or said so far, so that none is like another."""

    async def start(self) -> None:
        """Start everything, one node after another."""
        for server, user in zip(self.servers, self.users, strict=True):
            await user.connect(server.port)
        for count, node in enumerate(self.nodes, 1):
            node.start()

            async def belongs(node: HydraNode = node, count: int = count) -> bool:
                return len((await node.status()).get("nodes", ())) == count

            await until(belongs, f"{node.name} of network {self.name} is one of {count}", every=0.1)

    async def whole(self) -> tuple[int, int]:
        """Return the index of the leader and that of its server once all nodes agree on it and it is on IRC."""
        found: tuple[int, int] = await until(self._whole, f"network {self.name} is whole", every=0.1)
        return found

    async def _whole(self) -> Any:
        for node in self.nodes:
            node.process.check()
        states = [await node.status() for node in self.nodes]
        if any(len(state.get("nodes", ())) != SIZE or state["leader"] is None for state in states):
            return None
        leading = [index for index, state in enumerate(states) if state["irc"] == "open"]
        if len(leading) != 1 or len({state["leader"] for state in states}) != 1:
            return None
        index = leading[0]
        if states[index]["id"] != states[index]["leader"]:
            return None
        if self.guardian and not self.nodes[index].is_guarded(states[index]["id"]):
            return None
        port = states[index]["server"].rpartition(":")[2]
        return index, next(number for number, server in enumerate(self.servers) if str(server.port) == port)

    def trace(self) -> list[str]:
        """Return the logs of all nodes."""
        return [
            f"{node.log.name} {line}"
            for node in self.nodes
            if node.log.exists()
            for line in node.log.read_text(errors="replace").splitlines()
        ]

    async def stop(self) -> None:
        """Kill everything at once."""
        for user in self.users:
            with suppress(AttributeError):
                await user.close()
        for process in [server.process for server in self.servers] + [
            node.process for node in self.nodes if hasattr(node, "process")
        ]:
            process.stop()
