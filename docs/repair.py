"""Draws the picture of README: a message that one subscriber misses, and its repair from a journal.

The backbone keeps nothing here, so that it passes the request on as it does for older messages.

The packets are those that the nodes exchange when they run in the simulator; ``make docs`` calls this.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import hypot
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig
from fyrehose_twisted.fyrehose.simulation.participants import BackboneHost, Participant
from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.packets import Deliver, Forward, Keepalive, KeepaliveAck, Push, Request, Status
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.observer import Observer, SimPacket

REPAIR = Path(__file__).with_name("repair.svg")

MISSED = 2
"""The number of the message that subscriber b misses; 1 and 3 show it that there is one."""

READER = ClientConfig(journal=False)
CLIENTS = {
    "publisher": ClientConfig(subscribe=False, journal=False),
    "subscriber-a": READER,
    "subscriber-b": READER,
    "journal": ClientConfig(),
}


class Step(NamedTuple):
    """A packet of the message that is missed, as one node sends it to another."""

    source: str
    target: str
    kind: str
    lost: bool


class _Watcher(Observer):
    """Collects the packets about one message."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.pushed = 0

    def arrived(self, packet: SimPacket, host: Any) -> None:
        self._note(packet, host.name, lost=False)

    def dropped(self, packet: SimPacket, reason: str) -> None:
        self._note(packet, packet.source.network.hosts[packet.to].name, lost=True)

    def _note(self, packet: SimPacket, target: str, *, lost: bool) -> None:
        match decode(packet.data):
            case Keepalive() | KeepaliveAck() | Status():
                return
            case Push():
                self.pushed += 1
                number = self.pushed
            case Deliver(number, _) | Request(_, number, _) | Forward(_, number, _):
                pass
            case other:
                raise RuntimeError(f"a packet that the picture does not know: {other}")
        if number == MISSED:
            kind = type(decode(packet.data)).__name__.upper()
            self.steps.append(Step(packet.source.name, target, kind, lost))


def follow() -> list[Step]:
    """Publish three messages, drop the second on its way to subscriber b, and return what the nodes do about it."""
    network = Network(seed=1)
    backbone = BackboneHost(network, BackboneConfig(retransmit=0), Random(1))
    clients = {
        name: Participant(network, name, (f"10.0.0.{number}", 2323), config, Random(number))
        for number, (name, config) in enumerate(CLIENTS.items(), 2)
    }
    backbone.host.start()
    for client in clients.values():
        client.host.start()
    network.run(5.0)
    watcher = _Watcher()
    network.add_observer(watcher)
    for number in (1, MISSED, 3):
        reader = clients["subscriber-b"].host.address
        link = network.override_links([backbone.host.address], [reader], loss=float(number == MISSED))
        clients["publisher"].host.perform(lambda node, now, data=b"%d" % number: node.publish(data, now))
        network.run(0.01)
        network.remove_override(link)
    network.run(1.0)
    handed = {name: list(client.application.handed) for name, client in clients.items() if client.config.subscribe}
    if any(ranges != [(1, 3)] for ranges in handed.values()):
        raise RuntimeError(f"subscribers did not get messages 1 to 3, each once: {handed}")
    return watcher.steps


Point = tuple[float, float]

PLACES: dict[str, Point] = {
    "publisher": (100, 140),
    "backbone": (350, 140),
    "subscriber-a": (640, 46),
    "subscriber-b": (640, 140),
    "journal": (640, 254),
}
"""Middles of the boxes."""
BOX = 132, 40
WIDTH, BELOW, LINE = 790, 318, 24
"""Of the sheet; where its text begins; from line to line."""
APART = 11
"""Half of the distance between two arrows that join the same boxes."""
RADIUS = 10
INK, SENT, LOST, REPAIRED = "#24292f", "#0969da", "#cf222e", "#1a7f37"

MEANINGS = {
    "PUSH": "The publisher sends a message to the backbone.",
    "DELIVER": "The backbone numbers it and sends it to all. The copy for subscriber b is lost.",
    "REQUEST": "Subscriber b sees a gap in the numbers and asks for what is missing.",
    "FORWARD": "The backbone, which has it no longer, passes the request to a client that has.",
    "repair": "The journal sends the missing message straight to subscriber b.",
}


def rounds_of(steps: Sequence[Step]) -> list[list[Step]]:
    """Return the steps in rounds: packets of one kind from one node, sent at once."""
    rounds: list[list[Step]] = []
    for step in steps:
        if rounds and (rounds[-1][0].source, rounds[-1][0].kind) == (step.source, step.kind):
            rounds[-1].append(step)
        else:
            rounds.append([step])
    return rounds


def draw(steps: Sequence[Step] | None = None) -> str:
    """Return the packets between nodes as SVG, with a line of text for each round.

    The ground is white, so that it can be read on pages of any colour.
    """
    rounds = rounds_of(follow() if steps is None else steps)
    height = BELOW + LINE * len(rounds)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="sans-serif" font-size="14" role="img"'
        ' aria-label="A message that one subscriber misses, and its repair from a journal">',
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#fff"/>',
    ]
    arrows: dict[frozenset[str], list[tuple[int, Step]]] = {}
    for number, each in enumerate(rounds, 1):
        for step in each:
            arrows.setdefault(frozenset((step.source, step.target)), []).append((number, step))
    circles: list[str] = []
    for pair in arrows.values():
        for place, (number, step) in enumerate(pair):
            line, circle = _arrow(number, step, APART * (2 * place - len(pair) + 1))
            parts.append(line)
            circles.append(circle)
    parts += circles
    for name, (x, y) in PLACES.items():
        fill = "#fff8c5" if name == "backbone" else "#ddf4ff"
        parts.append(
            f'<rect x="{x - BOX[0] / 2:g}" y="{y - BOX[1] / 2:g}" width="{BOX[0]}" height="{BOX[1]}" rx="8"'
            f' fill="{fill}" stroke="{INK}" data-name="{name}"/>'
            f'<text x="{x:g}" y="{y + 5:g}" text-anchor="middle" font-weight="bold" fill="{INK}">'
            f"{name.replace('-', ' ')}</text>"
        )
    for number, each in enumerate(rounds, 1):
        y = BELOW + LINE * (number - 1)
        colour = _colour(each[-1])
        parts.append(_circle(number, 34, y - 5, colour))
        parts.append(f'<text x="54" y="{y}" fill="{colour}" font-weight="bold">{each[0].kind}</text>')
        meaning = MEANINGS["repair" if _repairs(each[0]) else each[0].kind]
        parts.append(f'<text x="146" y="{y}" fill="{INK}">{escape(meaning)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _repairs(step: Step) -> bool:
    return step.kind == "DELIVER" and step.source != "backbone"


def _colour(step: Step) -> str:
    return LOST if step.lost else REPAIRED if _repairs(step) else SENT


def _circle(number: int, x: float, y: float, colour: str) -> str:
    return (
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{RADIUS}" fill="{colour}"/>'
        f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle" font-size="12" fill="#fff">{number}</text>'
    )


def _arrow(number: int, step: Step, aside: float) -> tuple[str, str]:
    """Return the line of a packet, and the circle with its number; a lost packet ends at a cross on the way."""
    first, last = PLACES[step.source], PLACES[step.target]
    length = hypot(last[0] - first[0], last[1] - first[1])
    x, y = (last[0] - first[0]) / length, (last[1] - first[1]) / length
    # To the right of the line, seen from the node that comes first in the alphabet, whichever way the packet goes.
    side = aside if step.source < step.target else -aside
    shift = (-y * side, x * side)
    start, stop = _reach(shift, (x, y)), _reach(shift, (-x, -y))
    begin = (first[0] + shift[0] + x * start, first[1] + shift[1] + y * start)
    way = length - start - stop - 4
    if step.lost:
        way *= 0.6
    end = (begin[0] + x * way, begin[1] + y * way)
    colour = _colour(step)
    dashes = ' stroke-dasharray="6 4"' if step.lost else ""
    told = f"{step.source} {step.kind} {step.target}{' lost' * step.lost}"
    line = (
        f'<line x1="{begin[0]:.0f}" y1="{begin[1]:.0f}" x2="{end[0]:.0f}" y2="{end[1]:.0f}" stroke="{colour}"'
        f' stroke-width="2"{dashes} data-step="{told}"/>'
    )
    tip = _cross(end) if step.lost else _tip(end, (x, y))
    middle = (begin[0] + x * way * 0.45, begin[1] + y * way * 0.45)
    return f'{line}<path d="{tip}" stroke="{colour}" stroke-width="2" fill="none"/>', _circle(number, *middle, colour)


def _reach(shift: Point, way: Point) -> float:
    """Return how far it is to the edge of a box from a point beside its middle."""
    return min(
        (size / 2 - (offset if part > 0 else -offset)) / abs(part)
        for size, offset, part in zip(BOX, shift, way, strict=True)
        if abs(part) > 1e-9
    )


def _tip(end: Point, way: Point) -> str:
    x, y = way
    return " ".join(
        f"{'ML'[place > 0]}{end[0] - 9 * x * back - 5 * y * across:.1f} {end[1] - 9 * y * back + 5 * x * across:.1f}"
        for place, (back, across) in enumerate(((1, 1), (0, 0), (1, -1)))
    )


def _cross(end: Point) -> str:
    x, y = end
    return f"M{x - 6:.1f} {y - 6:.1f} L{x + 6:.1f} {y + 6:.1f} M{x - 6:.1f} {y + 6:.1f} L{x + 6:.1f} {y - 6:.1f}"


def write() -> None:
    """Write the picture if it has changed."""
    drawn = draw()
    if not REPAIR.exists() or REPAIR.read_text(encoding="utf-8") != drawn:
        REPAIR.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    write()
