"""Fixtures of freenet networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from integration.running.control import Asking
from integration.running.freenet import KEY, MakeNetwork, Network, Node
from integration.running.programs import AwaitTrue, Start


@pytest.fixture
def network(
    start: Start, await_true: AwaitTrue, asking: type[Asking], free_port: Callable[[], int], tmp_path: Path
) -> MakeNetwork:
    """Return a function that makes nodes evenly spread on the ring, each with its predecessor and chords as peers."""

    def made(count: int, *common: object, chords: Iterable[int] = (), subscribers: Iterable[int] = ()) -> Network:
        nodes = Network(
            Node(number, start, await_true, asking, (free_port(), free_port()), tmp_path) for number in range(count)
        )
        chosen = set(subscribers)
        for node in nodes:
            number = node.number
            known = {(number - step) % count for step in (1, *chords)} - {number}
            node.options = ["--location", number / count, *common]
            for peer in known:
                node.options += ["--peer", f"127.0.0.1:{nodes[peer].port}"]
            if number in chosen:
                node.options += ["--subscribe", KEY.hex(), "--journal", f"{number}.journal"]
        return nodes

    return made
