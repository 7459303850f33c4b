"""How fast another node is on IRC after the leader's host vanishes without closing its connections.

PYTHONPATH=tests python -m hosts.vanishing --rounds 20
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

from hosts.bridge import Bridge, Host
from hosts.control import Control
from hosts.rounds.hydra import NGIRCD, NODES

ONE_AGAIN = 90.0
"""Seconds within which three nodes are one network with a connection to IRC."""


class Vanishing:
    """Three nodes and an IRC server, each on a host, of which the leader's vanishes again and again.

    :param options: options of each node.
    """

    def __init__(self, bridge: Bridge, options: Sequence[str], rng: Random) -> None:
        self._bridge = bridge
        self._rng = rng
        irc = bridge.add("irc")
        (irc.directory / "ngircd.conf").write_text(NGIRCD.format(address=irc.address))
        program = shutil.which("ngircd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
        irc.start(program or "ngircd", "-n", "-f", "ngircd.conf", log="ngircd", ours=False).wait_for("ready")
        self._hosts = {name: bridge.add(name) for name in NODES}
        self._controls: dict[str, Control] = {}
        for name, host in self._hosts.items():
            self._start(name, host, irc, options)

    def _start(self, name: str, here: Host, irc: Host, options: Sequence[str]) -> None:
        links = [f"--link=tcp:{host.address}:6174" for host in self._hosts.values() if host is not here]
        here.start(
            *("twistd", "-n", "--pidfile=", "hydra-node", f"--tag={name}", "--bootstrap", "--network-size=3", "--open"),
            *(f"--listen=tcp:6174:interface={here.address}", *links, "--state=state", "--control=unix:control"),
            *(f"--irc={irc.address}:6667", "--channel=#c", "--nick=bot", *options),
        ).wait_for("node . of network")

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of a node."""
        with Control(self._hosts[name].directory / "control") as control:
            control.ask("status")
            answer: dict[str, Any] = next(iter(control.answers(5)))["status"]
        return answer

    def leader(self) -> str | None:
        """Return the node that is on IRC, if the three nodes are one network."""
        states = {name: self.status(name) for name in NODES}
        if len({state["leader"] for state in states.values()}) > 1 or any(
            len(state["nodes"]) != len(NODES) for state in states.values()
        ):
            return None
        return next((name for name, state in states.items() if state["irc"] == "open"), None)

    def lose_leader(self) -> float:
        """Let the leader's host vanish; return the seconds until another node is on IRC, and let the host return."""
        leader = self._until(self.leader)
        # The first PING of a term claims no quick lease, and binds the others for 15 s.
        sleep(self._rng.uniform(10.0, 15.0))
        others = [name for name in NODES if name != leader]
        self._bridge.cut([(leader, name) for name in (*others, "irc")])
        began = monotonic()
        self._until(lambda: any(self.status(name)["irc"] == "open" for name in others))
        took = monotonic() - began
        self._bridge.cut(())
        return took

    @staticmethod
    def _until(look: Any) -> Any:
        end = monotonic() + ONE_AGAIN
        while not (found := look()):
            assert monotonic() < end, "the nodes are not one network"
            sleep(0.02)
        return found


def main() -> None:
    """Print the seconds of each round, with quick leases and without."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="times that the leader's host vanishes [%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="of the moments [%(default)s]")
    options = parser.parse_args()
    for title, more in (("quick leases", ()), ("timers of the document", ("--no-quick-lease",))):
        with tempfile.TemporaryDirectory() as directory:
            bridge = Bridge(Path(directory))
            try:
                vanishing = Vanishing(bridge, more, Random(options.seed))
                took = sorted(vanishing.lose_leader() for _ in range(options.rounds))
            finally:
                bridge.close()
        shown = ", ".join(f"{seconds:.1f}" for seconds in took)
        print(f"{title}: median {statistics.median(took):.1f} s of {shown}")


if __name__ == "__main__":
    main()
