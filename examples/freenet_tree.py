"""A stream whose tree repairs itself.

Twelve nodes on a ring run as ``twistd freenet-node`` processes that know three others each. Some subscribe to a stream,
and one publishes a packet every few milliseconds. Then the root of the tree is killed with SIGKILL, and its successor
too. At the end every subscriber has received every packet once.

    python examples/freenet_tree.py
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
STREAM = "name:weather"
EVERY = 0.02
"""Seconds between two packets."""
PATIENCE = 60.0
STARTED = time.monotonic()


def say(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"{time.monotonic() - STARTED:6.2f} s  {text}", flush=True)


def wait_until(condition: Callable[[], Any], problem: str) -> Any:
    """Return the result of a condition once it is true."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise SystemExit(f"freenet_tree: {problem}, for {PATIENCE:g} s")


def free_ports(count: int) -> list[int]:
    """Return free ports on loopback."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in sockets]


class Node:
    """Node in its own process."""

    def __init__(self, number: int, ports: list[int], directory: Path, stack: ExitStack, subscribed: bool) -> None:
        self.number = number
        self.socket = directory / f"{number}.socket"
        command = [BIN / "twistd", "-n", "--pidfile=", f"--logfile={number}.log", "freenet-node"]
        command += [f"--listen=tcp:{ports[number]}", f"--location={number / len(ports)}"]
        command += [f"--peer=127.0.0.1:{ports[number - step]}" for step in (1, 2, 5)]
        # A node that lost its parent receives the packets that it missed from those that others retain.
        command += [f"--control=unix:{self.socket}", "--keep=1000"]
        command += [f"--subscribe={STREAM}"] if subscribed else []
        self.process = subprocess.Popen(command, cwd=directory, start_new_session=True)
        stack.callback(self.process.wait)
        stack.callback(self.process.kill)

    def status(self) -> dict[str, Any]:
        """Return the status, as `fyrehose freenet status --json` prints it; empty while the node does not answer."""
        with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(PATIENCE)
            asking.connect(str(self.socket))
            asking.sendall(b'{"ask": "status"}\n')
            found: dict[str, Any] = json.loads(asking.makefile().readline())["status"]
            return found
        return {}

    def stream(self) -> dict[str, Any]:
        """Return the status of the stream; empty if the node does not have it."""
        streams: list[dict[str, Any]] = self.status().get("streams", [])
        return next(iter(streams), {})


class Subscriber:
    """Reader of the output of `fyrehose freenet subscribe`."""

    def __init__(self, node: Node, stack: ExitStack) -> None:
        self.node = node
        self.got: list[tuple[float, int]] = []
        command = [BIN / "fyrehose", "freenet", "subscribe", "--json", f"--control=unix:{node.socket}", STREAM]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        self._output = process.stdout
        stack.callback(process.wait)
        stack.callback(process.kill)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._output is not None
        for line in self._output:
            message = json.loads(line)
            if "data" in message:
                self.got.append((time.monotonic(), int(message["data"])))

    def pause(self) -> float:
        """Return the longest time without a packet."""
        times = [when for when, _ in self.got]
        return max((after - before for before, after in pairwise(times)), default=0.0)


class Publisher:
    """Writer of numbered lines to `fyrehose freenet publish`."""

    def __init__(self, node: Node, stack: ExitStack) -> None:
        command = [BIN / "fyrehose", "freenet", "publish", f"--control=unix:{node.socket}", STREAM]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        stack.callback(self.process.wait)
        stack.callback(self.process.kill)
        self.count = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._talk, daemon=True)
        self._thread.start()

    def _talk(self) -> None:
        assert self.process.stdin is not None
        while not self._over.wait(EVERY):
            self.process.stdin.write(b"%d\n" % self.count)
            self.process.stdin.flush()
            self.count += 1

    def finish(self) -> int:
        """Stop publishing; return the number of published packets."""
        self._over.set()
        self._thread.join()
        numbers, _ = self.process.communicate(timeout=PATIENCE)
        return len(numbers.split())


def root_of(nodes: list[Node]) -> Node | None:
    """Return the root of the only tree, ``None`` while there are several trees or members without a parent."""
    streams = [(node, stream) for node in nodes if (stream := node.stream())]
    roots = [node for node, stream in streams if stream["is_root"]]
    return roots[0] if len(roots) == 1 and all(stream["phase"] == "settled" for _, stream in streams) else None


def run(count: int, seconds: float) -> None:
    """Run the demonstration and print its progress."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = free_ports(count)
        nodes = [Node(number, ports, directory, stack, subscribed=number % 3 == 0) for number in range(count)]
        say(f"{count} nodes start; every third is subscribed to {STREAM}")
        readers = [node for node in nodes if node.number % 3 == 0]
        wait_until(lambda: all(node.stream() for node in readers), "a subscribed node does not have the stream")
        root = wait_until(lambda: root_of(nodes), "there is no tree with one root")
        members = sum(bool(node.stream()) for node in nodes)
        say(f"{members} nodes have grown a tree; node {root.number} is its root")
        publishing = readers[0] if readers[0] is not root else readers[1]
        publisher = Publisher(publishing, stack)
        say(f"node {publishing.number} publishes a packet every {EVERY * 1000:g} ms")
        subscribers = [Subscriber(node, stack) for node in readers]
        wait_until(lambda: all(subscriber.got for subscriber in subscribers), "a subscriber receives no packets")
        for _ in range(2):
            time.sleep(seconds)
            root = wait_until(lambda: root_of(nodes), "there is no tree with one root")
            if root is publishing:
                break
            root.process.kill()
            root.process.wait()
            nodes.remove(root)
            say(f"node {root.number}, the root, is killed")
            time.sleep(seconds)
            successor = wait_until(lambda: root_of(nodes), "there is no tree with one root")
            say(f"node {successor.number} is the root")
        alive = [subscriber for subscriber in subscribers if subscriber.node in nodes]
        published = publisher.finish()
        # A subscriber that connected a little late does not have the first packets.
        last = publisher.count - 1
        wait_until(lambda: all(reader.got[-1][1] == last for reader in alive), "a subscriber lacks the last packet")
        for subscriber in alive:
            numbers = [number for _, number in subscriber.got]
            missing = sorted(set(range(min(numbers), last + 1)) - set(numbers))
            if missing or len(set(numbers)) < len(numbers):
                twice = sorted({number for number in numbers if numbers.count(number) > 1})
                raise SystemExit(f"freenet_tree: node {subscriber.node.number} lacks {missing}, and got {twice} twice")
        pause = max(subscriber.pause() for subscriber in alive)
        say(
            f"{published:,} packets were published, and {len(alive)} subscribers received each of them once; after the"
            f" death of a root, the stream paused for at most {pause:.2f} s"
        )


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=12, metavar="N", help="number of nodes [%(default)s]")
    parser.add_argument("--seconds", type=float, default=2.0, metavar="S", help="seconds between events [%(default)g]")
    options = parser.parse_args()
    if options.nodes < 9:
        parser.error("--nodes must be at least 9, since two nodes are killed")
    run(options.nodes, options.seconds)


if __name__ == "__main__":
    main()
