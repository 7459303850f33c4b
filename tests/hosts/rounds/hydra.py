"""Hydra rounds: three nodes, an IRC server, and a witness in the channel."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Lock

from hosts.bridge import Deadline, Process
from hosts.checkers import hydra as checker
from hosts.control import Control
from hosts.faults import ON_IRC, Fault, draw
from hosts.history import of_kind
from hosts.rounds.base import Round

from fyrehose_twisted.hydra.config import NodeConfig

NODES = ("a", "b", "c")
CONFIG = NodeConfig()
BEGUN = 90.0
"""Seconds within which a new network is connected to IRC."""
SAID = CONFIG.irc_patience + checker.RECOVERED
"""Seconds after healing within which each node has a line said. The leader's connection to IRC may have broken without
a sign. It then resigns, and there is another election."""
OUTCOME = CONFIG.max_wait + 2 * CONFIG.irc_patience
"""Seconds within which each line has an outcome: it is given up in a queue, or IRC does not answer for it."""
WAITING = 50
"""Largest number of lines in flight per client."""
NGIRCD = """[Global]
Name=irc.example
Info=example
Listen={address}
Ports=6667
[Limits]
MaxConnectionsIP=0
MaxPenaltyTime=0
[Options]
DNS=no
Ident=no
PAM=no
"""


class HydraRound(Round):
    """Nodes that are partitioned, paused and killed while each submits lines."""

    protocol = "hydra"
    check = staticmethod(checker.check)
    injects = frozenset(ON_IRC)
    kinds: tuple[str, ...] = (*ON_IRC, "deaf")
    bound = checker.RECOVERED

    def plan(self) -> list[Fault]:
        plan = draw(self.random, NODES, kinds=self.kinds, seconds=6, shortest=1, longest=9)
        # Longer, because TCP retransmits for a few seconds.
        return [replace(fault, lasts=round(3 * fault.lasts, 2)) if fault.kind == "deaf" else fault for fault in plan]

    def begin(self) -> None:
        irc = self.bridge.add("irc")
        self._nodes = {name: self.bridge.add(name) for name in NODES}
        (irc.directory / "ngircd.conf").write_text(NGIRCD.format(address=irc.address))
        program = shutil.which("ngircd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
        server = irc.start(program, "-n", "-f", "ngircd.conf", log="ngircd", ours=False)
        server.wait_for("ready")
        self._services: dict[str, Process] = {}
        self._said: set[str] = set()
        self._lock = Lock()
        self._number = 0
        self._ending = False
        self._waiting: dict[str, dict[int, str]] = {}
        self._joined: dict[str, int] = {}
        for name in NODES:
            self.restart(name)
        self._witness = irc.space.connect((irc.address, 6667), 10)
        self._witness.sendall(b"NICK witness\r\nUSER witness 0 * :witness\r\nJOIN #c\r\n")
        self.work(self._watch)
        for name in NODES:
            self._services[name].wait_for("inducted it|leads, term|on IRC")
        for name in NODES:
            self.work(self._ask_status, name)
            self.work(self._say, name)
        self.until(self._all_said, BEGUN, "each node has a line said")

    def service(self, host: str) -> Process:
        return self._services[host]

    def restart(self, host: str) -> None:
        here = self._nodes[host]
        links = [f"--link=tcp:{other.address}:6174" for name, other in self._nodes.items() if name != host]
        self._services[host] = here.start(
            *("twistd", "-n", "--pidfile=", "hydra-node", f"--tag={host}", "--bootstrap", "--network-size=3", "--open"),
            *(f"--listen=tcp:6174:interface={here.address}", *links, "--state=state", "--control=unix:control"),
            *(f"--irc={self.bridge.hosts['irc'].address}:6667", "--channel=#c", "--nick=bot"),
            *("--irc-rate=50", "--irc-burst=20"),
        )

    def inject(self, fault: Fault) -> None:
        if fault.kind != "deaf":
            super().inject(fault)
            return
        # Apply the fault to the node on IRC, if any.
        latest = {entry["client"]: entry["irc"] for entry in of_kind(list(self.history.entries), "status")}
        host = next((name for name in NODES if latest.get(name) == "open"), fault.host)
        self.bridge.cut([("irc", host)])
        self.wait(fault.lasts)
        self.bridge.cut(())

    def settle(self) -> None:
        calm = self.history.now

        def is_one() -> bool:
            answers = of_kind(list(self.history.entries), "status")
            latest = {entry["client"]: entry for entry in answers if entry["at"] > calm}
            return checker.is_one(list(latest.values()), len(NODES))

        self.until(is_one, self.bound + 5, "one network again")
        self._said.clear()
        self.until(self._all_said, SAID, "each node has a line said again")
        self._ending = True
        self.until(lambda: not any(self._waiting.values()), OUTCOME, "each line has an outcome")
        entries = list(self.history.entries)
        told = {entry["line"] for entry in of_kind(entries, "told") if entry["outcome"] == "said"}
        with suppress(Deadline):  # The checker reports missing lines.
            self.until(
                lambda: told <= {entry["line"] for entry in of_kind(list(self.history.entries), "seen")}, 3, "seen"
            )

    def _all_said(self) -> bool:
        return self._said == set(NODES)

    def _watch(self) -> None:
        """Record the lines that the witness sees in the channel."""
        self._witness.settimeout(0.2)
        rest = b""
        with self._witness:
            while not self.over.is_set():
                try:
                    rest += self._witness.recv(65_536)
                except TimeoutError:
                    continue
                *lines, rest = rest.split(b"\r\n")
                for line in lines:
                    text = line.decode(errors="replace")
                    if text.startswith("PING"):
                        self._witness.sendall(b"PONG" + line[4:] + b"\r\n")
                    elif found := re.match(r":(\S+) (JOIN|QUIT|PRIVMSG) :?(?:#c :)?(.*)", text):
                        self._seen(*found.groups())

    def _seen(self, prefix: str, command: str, text: str) -> None:
        # The JOIN count distinguishes connections with the same nick and address.
        if command == "PRIVMSG":
            self.history.add("witness", "seen", line=text, prefix=f"{prefix}/{self._joined.get(prefix, 0)}")
        elif command == "JOIN":
            self._joined[prefix] = self._joined.get(prefix, 0) + 1
            self.history.add("witness", "joined", prefix=f"{prefix}/{self._joined[prefix]}")
        else:
            self.history.add("witness", "quit", prefix=f"{prefix}/{self._joined.get(prefix, 0)}", why=text)

    def _ask_status(self, name: str) -> None:
        while not self.over.is_set():
            with suppress(OSError), self._control(name) as control:
                while not self.over.is_set():
                    control.ask("status")
                    for answer in control.answers(2):
                        status = answer["status"]
                        self.history.add(
                            *(name, "status"),
                            leader=status["leader"],
                            term=status["term"],
                            nodes=sorted(one["tag"] for one in status["nodes"]),
                            irc=status["irc"],
                        )
                    self.wait(0.2)
            self.wait(0.2)

    def _control(self, name: str) -> Control:
        return Control(self._nodes[name].directory / "control")

    def _say(self, name: str) -> None:
        while not self.over.is_set():
            with suppress(OSError), self._control(name) as control:
                self._converse(name, control)
            self.wait(0.2)

    def _converse(self, name: str, control: Control) -> None:
        waiting = self._waiting[name] = {}
        while not self.over.is_set():
            if not self._ending and len(waiting) < WAITING:
                with self._lock:
                    self._number += 1
                    number = self._number
                waiting[number] = line = f"{name}-{number}"
                self.history.add(name, "asked", line=line)
                self.result.operations += 1
                control.ask("say", line=f"PRIVMSG #c :{line}", id=number)
            self.wait(0.1)
            for answer in control.answers():
                outcome = answer.get("said", "error")
                self.history.add(
                    name, "told", line=waiting.get(answer["id"], ""), outcome=outcome, why=answer.get("why")
                )
                waiting.pop(answer["id"], None)
                if outcome == "said":
                    self.result.acknowledged += 1
                    self._said.add(name)


class HydraPartitionRound(HydraRound):
    """One partition between nodes that all still reach the IRC server."""

    protocol = "hydra-partitions"
    kinds = ("partition",)
    bound = checker.HEALED
    check = staticmethod(partial(checker.check, bound=bound))

    def plan(self) -> list[Fault]:
        return draw(self.random, NODES, kinds=self.kinds, seconds=1, shortest=2, longest=25)

    def isolated(self, host: str) -> list[tuple[str, str]]:
        return [pair for pair in super().isolated(host) if "irc" not in pair]
