"""Topology on the dashboard, in real browsers."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from integration.running.backbone import StartBackbone
from integration.running.browser import OpenPage, Page
from integration.running.journal import StartJournal
from integration.running.programs import Start
from integration.running.query import Canned, StartQuery

pytestmark = pytest.mark.extended

NODES = "[...document.querySelectorAll('#map g.node')]"
BOXES = f"""Object.fromEntries({NODES}.map((one) => {{
    const {{left, top, right, bottom}} = one.querySelector('.outline').getBoundingClientRect();
    return [one.dataset.id.split(' ').pop(), [left + 6, top + 6, right - 6, bottom - 6]];
}}))"""
"""Rectangles of the nodes by their names, without the outlines, which Firefox counts as part of them."""
ROWS = "[...document.querySelectorAll('#nodes tbody tr')].map((row) => [...row.cells].map((one) => one.textContent))"


def node(name: str) -> str:
    """Return a script whose value is the element of a node."""
    return f"{NODES}.find((one) => one.dataset.id.endsWith({json.dumps(' ' + name)}))"


def label(name: str) -> str:
    """Return a script whose value is what a screen reader says of a node."""
    return f"{node(name)}?.getAttribute('aria-label')"


def texts(page: Page, name: str) -> list[str]:
    """Return the lines of text in a node."""
    found: list[str] = page.run(f"[...{node(name)}.querySelectorAll('text')].map((one) => one.textContent)")
    return found


def overlapping(boxes: dict[str, list[float]]) -> list[tuple[str, str]]:
    """Return the pairs of nodes that overlap."""
    return [
        (one, other)
        for one, (left, top, right, bottom) in boxes.items()
        for other, box in boxes.items()
        if one < other and left < box[2] and box[0] < right and top < box[3] and box[1] < bottom
    ]


def focused(page: Page) -> str:
    """Return the name of the focused node."""
    return str(page.run("document.activeElement.dataset.id ?? ''")).rpartition(" ")[2]


def row(address: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"address": address, "kind": kind, "silent_seconds": 0.5, "connected_seconds": 60.0, **more}


def watch(services: dict[str, str]) -> Iterable[str]:
    return (f"--watch={name}={url}" for name, url in services.items())


def test_topology_shows_a_relay_between_a_backbone_and_a_client(
    open_page: OpenPage,
    start_query: StartQuery,
    start_backbone: StartBackbone,
    start_journal: StartJournal,
    start: Start,
    tmp_path: Path,
) -> None:
    page = open_page()
    backbone = start_backbone("--metrics=tcp:0")
    journal = start_journal(backbone, "kept", "--metrics=tcp:0")
    options = "--port=0", f"--backbone={backbone.text}", "--metrics=tcp:0"
    relay = start("twistd", "-n", "--pidfile=", "fyrehose-relay", *options)
    port = relay.wait_for(r"listening on 127.0.0.1:(\d+), relaying")[1]
    start("fyrehose", "sub", "-b", f"127.0.0.1:{port}")
    programs = {"top": backbone.program, "kept": journal.program, "branch": relay}
    watched = {name: one.wait_for(r"metrics at (http://\S+)")[1] for name, one in programs.items()}
    _, url = start_query(tmp_path / "kept", *watch(watched))
    page.size(1100, 900)
    page.go(url)
    page.until(f"{NODES}.length === 4 && document.querySelectorAll('#map .link path:not(.idle)').length === 3")

    boxes = page.run(BOXES)
    (subscriber,) = boxes.keys() - programs.keys()
    assert boxes["top"][3] < boxes["branch"][1] == boxes["kept"][1]
    assert boxes["branch"][3] < boxes[subscriber][1]
    assert overlapping(boxes) == []
    assert "relay, state OK, served by top" in page.run(label("branch"))
    assert "served by branch" in page.run(label(subscriber))
    page.until(f"{label('kept')}.includes('missing 0, lost 0, repaired 0')")

    # It follows what happens, in the same elements.
    message = tmp_path / "message"
    message.write_text("hello\n")
    page.run(f"window.before = {node('top')}; 0")
    start("fyrehose", "pub", "-b", backbone.text, message).finish()
    page.until(f"{label('top')}.includes('number 1,') && {label('kept')}.includes('number 1, lag 0,')")
    assert page.run(f"window.before === {node('top')}")
    relay.signal(signal.SIGKILL).finish()
    page.until(f"{node('branch')}.querySelector('.mark').textContent === '✗ '")
    page.until(f"{label(subscriber)}.includes('the list of its server is outdated')")
    assert page.run(f"{node(subscriber)}.querySelector('.mark').textContent") == "? "
    page.keep(f"topology-{type(page).__name__.lower()}")
    assert page.errors == []


def group_of_backbones(canned: Canned) -> dict[str, str]:
    """Return the metrics of a group with a relay, by service."""
    stream = 'stream="fyrehose://news"'
    listed = [
        row("10.0.0.7:1", "relay", delivered=5, requests=4, retransmitted=12, retransmitting=0),
        row("10.0.0.8:1", "journal", lag=70_000, requests=9, retransmitted=3_456, retransmitting=17),
        row("10.0.0.9:1", "subscriber", silent_seconds=4.4),
    ]

    def member(name: str, leads: int) -> str:
        figures = "backbone_clients 3", f"backbone_leading {leads}", "backbone_sequence 100000"
        return canned(f'info{{service="backbone",{stream},member="{name}"}} 1', *figures, clients=listed, total=3)

    def client(kind: str, address: str, *samples: str, **more: Any) -> str:
        own = f'client_info{{address="{address}",backbone="10.0.0.1:1"}} 1', "client_connected 1"
        return canned(f'info{{service="{kind}",{stream}}} 1', *own, *samples, **more)

    below = [row("10.0.1.1:1", "subscriber"), row("10.0.1.2:1", "subscriber")]
    return {
        "one": member("one", 1),
        "two": member("two", 0),
        "branch": client("relay", "10.0.0.7:1", "relay_clients 2", "client_sequence 99000", clients=below, total=2),
        "kept": client("journal", "10.0.0.8:1", "client_lost_total 3", "client_repaired_total 4444"),
    }


def test_topology_is_read_by_keyboard_and_screen_reader(
    open_page: OpenPage, start_query: StartQuery, canned: Canned, tmp_path: Path
) -> None:
    (tmp_path / "kept").mkdir()
    _, url = start_query(tmp_path / "kept", *watch(group_of_backbones(canned)))
    page = open_page()
    page.size(1100, 900)
    page.go(url)
    page.until(f"{NODES}.length === 7 && {label('kept')}?.includes('lag 70,000')")

    # State, kind and figures are text.
    assert texts(page, "one")[:3] == ["✓ one", "backbone, leads", "at 100,000, ? resent"]
    assert texts(page, "two")[:3] == ["✓ two", "backbone, stands by", "at 100,000, ? resent"]
    assert texts(page, "kept")[:3] == ["! kept", "journal, lag 70,000", "lost 3, repaired 4.4K"]
    assert texts(page, "10.0.0.9:1")[:2] == ["! 10.0.0.9:1", "subscriber, lag unknown"]
    assert page.run("document.querySelector('#map .frame').textContent") == "group fyrehose://news"
    paths = [f"{node(name)}.querySelector('path').getAttribute('d')" for name in ("one", "kept", "branch")]
    assert len({page.run(path) for path in paths}) == 3
    page.until("[...document.querySelectorAll('#map .link text')].some((one) => one.textContent === '3.5K resent')")

    # One stop for the Tab key, then arrows, in a tree.
    assert page.run("document.querySelector('#map svg').getAttribute('role')") == "tree"
    assert page.run(f"{NODES}.every((one) => one.getAttribute('role') === 'treeitem')")
    assert page.run(f"{NODES}.filter((one) => one.tabIndex === 0).length") == 1
    for _ in range(30):
        page.key("Tab")
        if focused(page):
            break
    seen = [focused(page)]
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowLeft", "End", "Home", "ArrowUp"):
        page.key(key)
        seen.append(focused(page))
    assert seen == ["one", "branch", "10.0.1.1:1", "10.0.1.2:1", "branch", "one", "two", "one", "one"]
    assert page.run("document.activeElement.getAttribute('aria-level')") == "1"
    page.key("ArrowRight")
    assert page.run("document.getElementById('node').textContent") == page.run(label("branch"))
    assert page.run(f"{NODES}.filter((one) => one.tabIndex === 0).length") == 1
    page.key("Tab")
    assert page.run("document.activeElement.tagName") == "SUMMARY"
    page.key("Enter")

    # The table says the same.
    page.until("document.getElementById('nodes').open")
    rows = {found[0]: found[1:] for found in page.run(ROWS)}
    assert rows.keys() == {"one", "two", "branch", "kept", "10.0.0.9:1", "10.0.1.1:1", "10.0.1.2:1"}
    assert rows["kept"][1:3] == ["journal", "one"]
    assert rows["kept"][5:8] == ["70,000", "\N{EN DASH}", "3"]
    assert rows["kept"][11:13] == ["3,456", "17"]
    assert rows["10.0.1.1:1"][1:3] == ["subscriber", "branch"]
    assert page.errors == []


@pytest.mark.parametrize("width", [360, 1440])
def test_topology_draws_200_nodes_and_counts_the_others(
    width: int, open_page: OpenPage, start_query: StartQuery, canned: Canned, tmp_path: Path
) -> None:
    (tmp_path / "kept").mkdir()
    listed = [row(f"[2001:db8:1234:5678:9abc:def0:1:{number:x}]:65535", "subscriber") for number in range(200)]
    info = 'info{service="backbone",stream="fyrehose://news"} 1'
    services = {"top": canned(info, "backbone_clients 1234", clients=listed, total=1_234), **group_of_backbones(canned)}
    _, url = start_query(tmp_path / "kept", *watch(services))
    page = open_page()
    page.size(width, 800, dark=True)
    page.go(url)
    page.until(
        f"{NODES}.length === 200 && document.getElementById('topology-count').textContent.includes('1,042 more')"
    )
    boxes = page.run(BOXES)
    assert len(boxes) == 200
    assert overlapping(boxes) == []
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("document.getElementById('map').clientHeight") <= 700
    assert "and 1,0" in texts(page, "top")[-1]
    # Labels stay in their nodes, however long a name is.
    outside = f"""{NODES}.filter((one) => {{
        const {{left, right}} = one.querySelector('.outline').getBoundingClientRect();
        return [...one.querySelectorAll('text:not(.more)')].some((text) => {{
            const box = text.getBoundingClientRect();
            return box.width > 0 && (box.left < left || box.right > right);
        }});
    }}).map((one) => one.dataset.id)"""
    assert page.run(outside) == []
    page.keep(f"topology-{type(page).__name__.lower()}-{width}")
    assert page.errors == []
