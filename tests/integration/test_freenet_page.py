from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from html import unescape
from io import StringIO
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from fyrehose_twisted.experiments import Topology, TreeExperiment
from fyrehose_twisted.experiments.report.page import write_page
from fyrehose_twisted.experiments.report.trace_replay import Recording
from fyrehose_twisted.experiments.report.tree_state import TreeState

pytestmark = pytest.mark.extended

Browser = Callable[..., list[str]]
Browse = Callable[..., Any]

TESTS = Path(__file__).parents[1]
SCREENSHOTS = TESTS.parent / "build" / "screenshots"
DARK = "--blink-settings=preferredColorScheme=0"
FIGURES = ("edges", "members", "roots", "unrooted", "detached", "deepest", "subscribers", "alive", "down")
HOSTILE = "</script><img src=x onerror=complain(1)><b id=pwned>"

# Virtual time does not wait for frames, which arrive when the machine has drawn the previous one.
FRAMES = "<head><script>requestAnimationFrame = (call) => setTimeout(call, 16);</script>"
PROBE = """<script>(async () => {
  const wait = (ms = 100) => new Promise((done) => setTimeout(done, ms));
  const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  const shown = () => ({...byId("diagram").dataset, time: byId("figure-time").textContent});
  const moment = (t) => seek(t);
  const slide = (share) => {
    byId("slider").value = share;
    byId("slider").dispatchEvent(new Event("input", {bubbles: true}));
  };
  // How many curves the tree is drawn with, as the canvas is told.
  const curves = () => {
    const told = CanvasRenderingContext2D.prototype.quadraticCurveTo;
    let found = 0;
    CanvasRenderingContext2D.prototype.quadraticCurveTo = function (...points) { found++; told.apply(this, points); };
    ring.fresh.clear();
    ring.draw(performance.now());
    CanvasRenderingContext2D.prototype.quadraticCurveTo = told;
    return found;
  };
  let found;
  try { found = await (async () => { PROBE })(); } catch (error) { complain(error.stack); }
  const report = element("pre", {id: "report"});
  report.textContent = JSON.stringify(found ?? null);
  document.body.append(report);
  parent.postMessage(report.textContent + (byId("errors")?.textContent ?? ""), "*");
})();</script></body>"""
NARROW = """<!doctype html><style>body { margin: 0 } iframe { border: 0 }</style><pre id="report"></pre><script>
onmessage = ({data}) => { document.getElementById("report").textContent = data; };
</script><iframe width=360 height=700 src="PAGE"></iframe>"""


@pytest.fixture(scope="module")
def recording() -> Recording:
    lines = (TESTS / "experiments" / "report" / "data" / "tree.jsonl").read_text("ascii").splitlines()
    first = json.loads(lines[0])
    first["policy"][HOSTILE] = HOSTILE
    return Recording.read([json.dumps(first), *lines[1:]])


@pytest.fixture
def browse(browser: Browser, tmp_path: Path, recording: Recording) -> Browse:
    """Open the page in Chromium, run a script in it, and return its value."""

    def browsed(
        probe: str, *options: str, fragment: str = "", narrow: bool = False, shown: Recording = recording
    ) -> Any:
        out = StringIO()
        write_page(shown, next(iter(shown.streams)), out)
        file = tmp_path / "page.html"
        text = out.getvalue().replace("<head>", FRAMES, 1)
        file.write_text(text.replace("</body>", PROBE.replace("PROBE", probe)), "ascii")
        if narrow:
            # A window is never as narrow, but a frame is.
            frame = tmp_path / "frame.html"
            frame.write_text(NARROW.replace("PAGE", file.as_uri() + fragment), "ascii")
            file, fragment = frame, ""
        size = () if any(option.startswith("--window-size") for option in options) else ("--window-size=1280,900",)
        command = browser("--enable-logging=stderr", "--dump-dom", *size, *options, file.as_uri() + fragment)
        ran = subprocess.run(command, capture_output=True, timeout=120, text=True, check=True)
        # The content policy and the browser report what they block.
        assert "CONSOLE" not in ran.stderr, ran.stderr
        errors = re.search(r'<ul id="errors".*?</ul>', ran.stdout, re.DOTALL)
        assert errors is None, errors[0]
        assert 'id="pwned"' not in ran.stdout
        report = re.search(r'<pre id="report">(.*?)</pre>', ran.stdout, re.DOTALL)
        assert report, ran.stdout[-2_000:]
        return json.loads(unescape(report[1]))

    return browsed


def expected(now: TreeState) -> dict[str, str]:
    values = {
        "edges": len(now.parents),
        "members": len(now.members),
        "roots": len(now.roots),
        "unrooted": len(now.unrooted),
        "detached": len(now.detached),
        "deepest": max(now.depths.values(), default=-1),
        "subscribers": len(now.subscribers),
        "alive": len(now.subscribers - now.down),
        "down": len(now.down),
    }
    return {name: str(value) for name, value in values.items()}


def odd() -> Recording:
    """Return a recording with a cycle, a non-member parent, a dead parent, and restarts with and without state."""
    key = bytes(20).hex()
    tree: list[tuple[str, int, dict[str, Any]]] = [
        ("subscribed", 4, {}),
        ("root", 0, {}),
        *(("attached", node, {"parent": node - 1}) for node in range(1, 7)),
        ("attached", 2, {"parent": 5}),
        ("attached", 2, {"parent": 9}),
        ("dropped", 4, {}),
        ("attached", 4, {"parent": 0}),
        ("root", 6, {}),
    ]
    network: list[tuple[str, int, dict[str, Any]]] = [
        *((what, node, more) for node in (6, 4, 0) for what, more in (("down", {}), ("up", {"kept": True}))),
        ("moved", 3, {"location": 0.999}),
        *(("down", node, {}) for node in (4, 3, 8)),
        ("up", 4, {}),
        ("up", 3, {"kept": True}),
        ("up", 3, {"kept": True}),
    ]
    entries: list[dict[str, Any]] = [
        {"t": 0.0, "what": "network", "locations": [node / 10 for node in range(10)], "links": [[0, 1]]},
        *({"what": what, "node": node, "key": key, **more} for what, node, more in tree),
        *({"what": what, "node": node, **more} for what, node, more in network),
        {"what": "detached", "key": key, "node": 5},
    ]
    return Recording.read(json.dumps({"t": float(t), **entry}) for t, entry in enumerate(entries))


def check(recording: Recording, key: bytes, shown: dict[str, str]) -> None:
    now = recording.state_at(key, float(shown["t"]))
    assert {name: shown[name] for name in FIGURES} == expected(now), shown["t"]
    reach = float(shown["reach"])
    assert isnan(reach) if isnan(now.reach) else reach == pytest.approx(now.reach), shown["t"]


def moments(recording: Recording, key: bytes) -> list[float]:
    return sorted({change.t for change in recording.changes(key) if change.kind != "delivered"})


def test_tree_page_draws_each_moment_like_the_recording(browse: Browse, recording: Recording) -> None:
    for key in recording.streams:
        times = moments(recording, key)
        found = browse(
            f"""
            const found = [];
            for (const t of {json.dumps(times)}) {{ moment(t); found.push({{...shown(), curves: curves()}}); }}
            for (const t of {json.dumps(times[::-7])}) {{ moment(t); found.push({{...shown(), curves: curves()}}); }}
            return found;
            """,
            fragment=f"#key={key.hex()[:8]}",
        )
        assert [float(one["t"]) for one in found] == times + times[::-7]
        for shown in found:
            check(recording, key, shown)
            assert str(shown["curves"]) == shown["edges"]


def legend_of(now: TreeState) -> dict[str, int]:
    """Return how many nodes have each mark of the legend, by the state that the page is compared with."""
    up = now.members - now.down
    parents = set(now.parents.values())
    counts = {
        "root, subscribed": len(now.roots & now.subscribers - now.down),
        "root, not subscribed": len(now.roots - now.subscribers - now.down),
        "subscriber": len(up & now.subscribers - now.roots),
        "relay": len(up - now.subscribers - now.roots),
        "subscriber without a parent": len(now.subscribers - now.members - now.down),
        "searches for a parent": len(now.detached - now.down),
        "not in the tree": len(set(range(len(now.locations))) - now.members - now.subscribers - now.down),
        "cut off from the root": sum(node in now.unrooted for node in now.parents),
        "down": len(now.down - parents),
        "down, not yet detected by its children": len(now.down & parents),
    }
    return {name: count for name, count in counts.items() if count}


LEGEND = """[...byId("legend").children].slice(0, -1).filter((item) => item.className !== "unused")
  .map((item) => [item.childNodes[1].textContent, +item.querySelector("b").textContent])"""


def test_tree_page_legend_counts_the_marks_on_the_ring(browse: Browse, recording: Recording) -> None:
    key = next(iter(recording.streams))
    times = moments(recording, key)
    found = browse(f"return {json.dumps(times)}.map((t) => {{ moment(t); return {LEGEND}; }});")
    assert [dict(legend) for legend in found] == [legend_of(recording.state_at(key, t)) for t in times]
    assert len({name for legend in found for name, _ in legend}) >= 6


def test_tree_page_legend_counts_unusual_marks(browse: Browse) -> None:
    shown = odd()
    (key,) = shown.streams
    times = moments(shown, key)
    found = browse(f"return {json.dumps(times)}.map((t) => {{ moment(t); return {LEGEND}; }});", shown=shown)
    for t, legend in zip(times, found, strict=True):
        assert dict(legend) == legend_of(shown.state_at(key, t)), t
    assert {"root, not subscribed", "relay"} <= {name for legend in found for name, _ in legend}


def test_tree_page_opens_at_the_end_of_growth(browse: Browse) -> None:
    experiment = TreeExperiment(Topology.kleinberg(60, 6, seed=3), seed=3)
    trace, key = StringIO(), bytes(20)
    experiment.trace(trace)
    for node in range(0, 60, 4):
        experiment.subscribe(node, key)
        experiment.run("quiet")
    grown = experiment.tree(key)
    entries = [json.loads(line) for line in trace.getvalue().splitlines()]
    last = max(entry["t"] for entry in entries if entry["what"] in {"attached", "root"})
    experiment.publish(0, key, b"x")
    experiment.run("quiet")
    for node in range(1, 60, 3):
        experiment.kill(node)
    experiment.run("quiet")
    trace.seek(0)
    shown = Recording.read(trace)
    first = browse("return shown();", shown=shown)
    assert (float(first["t"]), int(first["members"]), first["down"]) == (last, len(grown), "0")
    check(shown, key, first)
    # A moment in the address counts more, the start as well.
    assert float(browse("return shown();", shown=shown, fragment="#t=0")["t"]) == 0.0


def test_tree_page_draws_unusual_changes_like_the_recording(browse: Browse) -> None:
    recording = odd()
    found = browse(
        """
        const found = [];
        for (const t of [...replay.moments, ...replay.moments.toReversed()]) {
          moment(t);
          found.push({...shown(), curves: curves(), at: [...replay.locations]});
        }
        return found;
        """,
        shown=recording,
    )
    assert len(found) == 2 * (int(recording.finish) + 1)
    for shown in found:
        check(recording, bytes(20), shown)
        assert str(shown["curves"]) == shown["edges"]
        assert shown["at"] == list(recording.state_at(bytes(20), float(shown["t"])).locations)


def test_tree_page_draws_the_trees_of_an_experiment(browse: Browse) -> None:
    trace = StringIO()
    experiment = TreeExperiment(Topology.kleinberg(80, 6, 1), seed=1)
    experiment.trace(trace)
    keys = [bytes(20), bytes(range(20))]
    for key in keys:
        for node in range(0, 80, 5):
            experiment.subscribe(node, key)
            experiment.run()
    parents = [{node for node, up in experiment.tree(key).items() if up is not None} for key in keys]
    grown = experiment.now + 1.0
    experiment.run(grown + 1.0)
    for node in range(1, 80, 4):
        experiment.kill(node)
    experiment.run(experiment.now + 0.2)
    torn = experiment.now
    experiment.run()
    recording = Recording.read(trace.getvalue().splitlines())
    times = [0.0, grown / 3, grown, torn, recording.finish]
    for key, grown_edges in zip(keys, parents, strict=True):
        found = browse(
            f"""
            const found = [];
            for (const t of {times}) {{ slide(timeline.shareOf(t)); found.push({{...shown(), curves: curves()}}); }}
            return found;
            """,
            shown=recording,
            fragment=f"#key={key.hex()}",
        )
        assert int(found[2]["edges"]) == len(grown_edges)
        assert max(int(one["unrooted"]) for one in found) == int(found[3]["unrooted"]) > 0
        assert (found[4]["unrooted"], found[4]["down"]) == ("0", "20")
        for one in found:
            check(recording, key, one)


def test_tree_page_shows_the_links_at_the_selected_time(browse: Browse, recording: Recording) -> None:
    key = next(iter(recording.streams))
    times = [0.0, 75.5, 76.0, 76.5, 77.0, 109.0]
    found = browse(
        f"""
        const links = (t) => {{ moment(t); return [...replay.linksNow()].sort((a, b) => a - b); }};
        return [[109].map(links), {times}.map(links), {times}.reverse().map(links)];
        """
    )
    nodes = len(recording.locations)
    expected = [sorted(a * nodes + b for a, b in recording.state_at(key, t).links) for t in times]
    assert found == [expected[-1:], expected, expected[::-1]]
    assert len({str(one) for one in expected}) == 3


def test_tree_page_slider_maps_times_to_positions_and_back(browse: Browse, recording: Recording) -> None:
    found = browse(
        """
        const times = Array.from({length: 301}, (_, i) => i / 300 * recording.finish);
        const found = [];
        for (const scale of ["time", "changes"]) {
          timeline.scale = scale;
          found.push(times.map((t) => [t, timeline.shareOf(t), timeline.momentOf(timeline.shareOf(t))]));
        }
        return found;
        """
    )
    for one in found:
        assert [back for _, _, back in one] == pytest.approx([t for t, _, _ in one])
        shares = [share for _, share, _ in one]
        assert shares == sorted(shares)
        assert (shares[0], shares[-1]) == (0, 1)


def test_tree_page_slider_covers_the_recording_by_time_and_by_changes(browse: Browse, recording: Recording) -> None:
    key = next(iter(recording.streams))
    by_time, by_changes = browse(
        """
        const found = [];
        for (const scale of ["time", "changes"]) {
          byId("scale").value = scale;
          byId("scale").dispatchEvent(new Event("change"));
          const one = [];
          for (let i = 0; i <= 40; i++) { slide(i / 40); one.push({...shown(), curves: curves()}); }
          found.push(one);
        }
        return found;
        """
    )
    for shown in by_time + by_changes:
        check(recording, key, shown)
        assert str(shown["curves"]) == shown["edges"]
    finish = recording.finish
    assert [float(one["t"]) for one in by_time] == pytest.approx([finish * i / 40 for i in range(41)])
    assert len({one["edges"] for one in by_time}) > 5
    changed = [float(one["t"]) for one in by_changes]
    assert changed == sorted(set(changed))
    assert (changed[0], changed[-1]) == (0.0, finish)


def test_tree_page_keys_step_and_play(browse: Browse, recording: Recording) -> None:
    key = next(iter(recording.streams))
    found = browse(
        """
        const found = [];
        press("End"); found.push(shown());
        press("ArrowLeft"); found.push(shown());
        press("Home"); found.push(shown());
        for (let i = 0; i < 5; i++) press("ArrowRight");
        found.push(shown());
        press("ArrowLeft"); found.push(shown());
        byId("speed").value = "10";
        press(" "); await wait();
        const name = byId("play-name").textContent;
        await wait(); press(" "); found.push(shown());
        await wait(); found.push(shown());
        press(" ");
        for (let i = 0; i < 150; i++) await wait();
        found.push(shown());
        look(3);
        const focused = byId("focus-text").textContent;
        press("Escape");
        return {found, name, focused, after: byId("focus-text").textContent, last: byId("play-name").textContent};
        """,
    )
    end, before, home, fifth, fourth, paused, still, played = found["found"]
    listed = sorted({change.t for change in recording.changes(key) if change.kind != "delivered"})
    for shown in found["found"]:
        check(recording, key, shown)
    assert float(end["t"]) == float(played["t"]) == recording.finish
    assert float(before["t"]) in listed
    assert float(before["t"]) < recording.finish
    assert float(home["t"]) == 0.0
    assert float(fourth["t"]) < float(fifth["t"]) < 20.0
    assert float(fourth["t"]) < float(paused["t"]) < recording.finish
    assert still == paused
    assert (found["name"], found["last"]) == ("Pause", "Play")
    assert found["focused"].startswith("Node 3: location 0.")
    assert found["after"] == ""


def test_tree_page_list_of_changes_follows_and_sets_the_time(browse: Browse, recording: Recording) -> None:
    key = next(iter(recording.streams))
    found = browse(
        """
        const rows = () => [...byId("rows").querySelectorAll("button")];
        moment(43); await wait();
        const current = byId("rows").querySelector("[aria-current]").textContent;
        const clicked = rows().find((row) => row.textContent.includes("has the parent"));
        const text = clicked.textContent;
        clicked.click(); await wait();
        const there = {...shown(), focus: byId("focus-text").textContent};
        const many = rows().length;
        for (const chip of byId("kinds").children) if (!chip.textContent.startsWith("nodes")) {
          if (chip.getAttribute("aria-pressed") === "true") chip.click();
        }
        await wait();
        const nodes = rows().map((row) => row.textContent);
        moment(0);
        const steps = [];
        for (let i = 0; i < 3; i++) { press("ArrowRight"); steps.push(Number(byId("diagram").dataset.t)); }
        return {current, text, there, many, nodes, steps, all: listing.rows.length};
        """
    )
    assert float(found["current"].split(" s")[0]) <= 43.0
    t, node = re.findall(r"([0-9.]+) s\W*(\d+) has the parent", found["text"])[0]
    assert float(found["there"]["t"]) == pytest.approx(float(t), abs=0.001)
    assert found["there"]["focus"].startswith(f"Node {node}: ")
    check(recording, key, found["there"])
    assert 5 < found["many"] < 60, "only what is in view is in the document"
    assert all(re.search("is (down|up)$", text) for text in found["nodes"])
    stream = recording.streams[key]
    part = {one.node for one in stream} | {int(one.value or 0) for one in stream if one.kind == "attached"}
    deaths = [one for one in recording.network if one.kind in ("down", "up") and one.node in part]
    assert found["all"] == len(deaths)
    assert found["steps"] == sorted({one.t for one in deaths})[:3]


def test_tree_page_lists_packets_with_their_deliveries(browse: Browse, recording: Recording) -> None:
    rows = browse("return replay.changes.filter(({group}) => group === 'packets').map(({t, long}) => [t, long]);")
    stream = next(iter(recording.streams.values()))
    published = [one for one in stream if one.kind == "published"]
    assert len(rows) >= len(published)
    for one in published:
        count = sum(other.kind == "delivered" and other.value == one.value for other in stream)
        assert any(f"{one.node} publishes {one.value}: received by {count}" in text for _, text in rows)


def test_tree_page_url_contains_the_selected_key_and_time(browse: Browse, recording: Recording) -> None:
    _, other = recording.streams
    found = browse(
        """
        const first = shown();
        byId("key").value = byId("key").options[1].value;
        byId("key").dispatchEvent(new Event("change"));
        await wait(500);
        return {first, second: shown(), hash: location.hash, name: byId("key-name").textContent,
                node: byId("focus-text").textContent, title: document.title};
        """,
        fragment="#t=42.5&node=7",
    )
    assert float(found["first"]["t"]) == float(found["second"]["t"]) == 42.5
    check(recording, next(iter(recording.streams)), found["first"])
    check(recording, other, found["second"])
    assert found["hash"] == f"#t=42.5&key={other.hex()[:12]}"
    assert found["name"] == other.hex()
    assert found["title"] == f"Tree of key {other.hex()[:12]}"


def test_tree_page_shows_details_of_the_node_under_the_pointer(browse: Browse, recording: Recording) -> None:
    now = recording.state_at(next(iter(recording.streams)), 39.0)
    child = max(now.parents, key=lambda node: (now.depths[node], node))
    found = browse(
        f"""
        await wait();
        const at = (node, what) => {{
          const box = byId("ring").getBoundingClientRect();
          const [x, y] = ring.position(node);
          byId("tree").dispatchEvent(new PointerEvent(what, {{clientX: box.left + x, clientY: box.top + y,
                                                             pointerType: "mouse", bubbles: true}}));
        }};
        const before = curves();
        at({child}, "pointermove");
        const tip = byId("tip").textContent;
        at({child}, "click");
        const chosen = byId("focus-text").textContent;
        byId("tree").dispatchEvent(new PointerEvent("pointerleave"));
        byId("links").click();
        await wait(500);
        ring.groundOf = "";
        return {{tip, chosen, hidden: byId("tip").hidden, before, linked: curves(), hash: location.hash}};
        """,
        fragment="#t=39",
    )
    parent, depth = now.parents[child], now.depths[child]
    said = rf"location {now.locations[child]:.4f}, .*parent {parent}, depth {depth}, root {now.trees[child]}"
    assert re.match(rf"Node {child}{said}", found["tip"]), found["tip"]
    assert re.match(rf"Node {child}: {said}", found["chosen"])
    assert found["hidden"]
    assert found["hash"].endswith(f"&node={child}")
    assert found["before"] == len(now.parents)
    assert found["linked"] == len(now.parents) + len(now.links)


def test_tree_page_respects_reduced_motion(browse: Browse, recording: Recording) -> None:
    found = browse(
        """
        byId("speed").value = "10";
        let pictures = 0;
        const drawn = ring.draw.bind(ring);
        ring.draw = (now) => { pictures++; return drawn(now); };
        press(" ");
        for (let i = 0; i < 20; i++) await wait();
        return {pictures, fresh: ring.fresh.size, t: Number(byId("diagram").dataset.t)};
        """,
        "--force-prefers-reduced-motion",
        fragment="#t=5",
    )
    assert found["t"] > 5
    assert 2 <= found["pictures"] <= 8
    assert found["fresh"] == 0


@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
def test_tree_page_fits_the_window_width(browse: Browse, narrow: bool) -> None:
    found = browse(
        """
        await wait();
        byId("policy").open = true;
        look(3);
        await wait();
        const wide = [...document.querySelectorAll("body *:not(script):not(#tip)")].filter((one) => (
          one.getClientRects().length && one.getBoundingClientRect().right > innerWidth + 0.5));
        return {inner: innerWidth, whole: document.documentElement.scrollWidth, ring: ring.size,
                wide: wide.map((one) => one.id || one.outerHTML.slice(0, 80)),
                cut: [...document.querySelectorAll("#figures dd")]
                  .filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.id),
                out: [...document.querySelectorAll(".aside *")].filter((one) => one.getClientRects().length &&
                  one.getBoundingClientRect().right > one.closest(".stage").getBoundingClientRect().right)
                  .map((one) => one.id || one.outerHTML.slice(0, 80))};
        """,
        fragment="#t=44",
        narrow=narrow,
    )
    assert found["inner"] == (360 if narrow else 1280)
    assert found["whole"] <= found["inner"]
    assert found["wide"] == []
    assert found["cut"] == []
    assert found["out"] == []
    assert found["ring"] > (300 if narrow else 380)


@pytest.mark.parametrize("name", ["light", "dark", "phone"])
def test_tree_page_has_two_colour_schemes_and_fits_a_phone(
    browser: Browser, tmp_path: Path, recording: Recording, name: str
) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page = tmp_path / "page.html"
    with page.open("w") as file:
        write_page(recording, next(iter(recording.streams)), file)
    target, width, height = f"{page.as_uri()}#t=40.5", 1280, 900
    if name == "phone":
        frame = tmp_path / "frame.html"
        frame.write_text(NARROW.replace("PAGE", target).replace("height=700", "height=1500"), "ascii")
        target, width, height = frame.as_uri(), 500, 1500
    shot = SCREENSHOTS / f"freenet-tree-{name}.png"
    shot.unlink(missing_ok=True)
    options = [DARK] if name == "dark" else []
    command = browser(
        "--enable-logging=stderr", *options, f"--screenshot={shot}", f"--window-size={width},{height}", target
    )
    ran = subprocess.run(command, capture_output=True, timeout=120, text=True, check=True)
    assert "CONSOLE" not in ran.stderr
    png = shot.read_bytes()
    assert (int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")) == (width, height)
    assert len(png) > 40_000
