from __future__ import annotations

import json
import re
import subprocess
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fyrehose_twisted.sim.runs.html_report import write_page

Browser = Callable[..., list[str]]
Entry = dict[str, Any]
Browse = Callable[..., "Shown"]

SCREENSHOTS = Path(__file__).parents[3] / "build" / "screenshots"
HOSTILE = "</script><SCRIPT>document.documentElement.dataset.pwned=1</script><!-- \u2028\u2029 \ud800 \" ' & @TRACE@"
RUN = {"kind": "run", "scenario": "fyrehose.storm", "seed": 7, "start": 1_000_000.0, "nodes": ["a", "b"]}


def page(entries: Iterable[Entry], **options: Any) -> str:
    out = StringIO()
    write_page((json.dumps(entry) + "\n" for entry in entries), out, **options)
    return out.getvalue()


def embedded(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="trace">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


def sends(number: int, every: float = 1.0) -> Iterator[Entry]:
    for i in range(number):
        yield {"t": i * every, "kind": "send", "node": "a", "to": "b", "id": i, "size": 9, "what": f"DATA {i}"}


def test_the_html_report_is_self_contained() -> None:
    text = page([RUN, *sends(3)])
    assert text.isascii()
    assert re.findall(r'\b(?:src|href)="([^"]*)"', text) == ["data:,"]
    assert set(re.findall(r"\w+://[\w.]+", text)) == {"http://www.w3.org"}  # The SVG namespace, which is never fetched.
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", text)
    assert "default-src 'none'" in text


def test_the_html_report_of_an_empty_run_is_small() -> None:
    assert len(page([RUN])) < 120_000


def test_the_html_report_embeds_the_trace_in_order() -> None:
    entries = [{"t": 0.5, "kind": "start", "node": "a"}, *sends(3), {"t": 9.0, "kind": "end", "counts": {"sent": 3}}]
    data = embedded(page([RUN, *entries]))
    assert data["run"] == {**RUN, "seed": "7"}
    assert data["entries"] == entries
    assert data["left_out"] == 0


def test_a_large_seed_is_not_rounded_in_the_html_report() -> None:
    assert embedded(page([{**RUN, "seed": 2**64 - 1}]))["run"]["seed"] == "18446744073709551615"


@pytest.mark.parametrize("place", ["scenario", "node", "what", "key", "kind"])
def test_text_of_the_trace_is_escaped_in_the_html_report(place: str) -> None:
    entry: Entry = {"t": 1, "kind": "event", "node": "a", "what": "x"}
    run = {**RUN, "scenario": HOSTILE} if place == "scenario" else RUN
    if place == "key":
        entry[HOSTILE] = HOSTILE
    elif place != "scenario":
        entry[place] = HOSTILE
    text = page([run, entry])
    assert text.lower().count("</script") == page([RUN]).lower().count("</script")
    assert text.count("<") == page([RUN]).count("<")
    data = embedded(text)
    assert (data["run"], data["entries"]) == ({**run, "seed": "7"}, [entry])


def test_the_html_report_keeps_the_latest_entries_and_their_context() -> None:
    lasting = [
        {"t": 0.0, "kind": "start", "node": "a"},
        {"t": 0.1, "kind": "fault", "what": "cut", "nodes": ["a"]},
        {"t": 0.2, "kind": "stop", "node": "b", "what": "killed"},
        {"t": 0.3, "kind": "pause", "node": "a"},
        {"t": 0.4, "kind": "resume", "node": "a"},
    ]
    broken = {"t": 99.5, "kind": "broken", "invariant": "in order", "nodes": ["a"], "what": "no"}
    end = {"t": 100.0, "kind": "end", "counts": {}}
    some = list(sends(100))
    data = embedded(page([RUN, *lasting, *some, broken, end], limit=10))
    assert data["entries"] == [*lasting, *some[90:], broken, end]
    assert data["left_out"] == 90
    assert data["left_out_until"] == 89.0


def test_a_trace_exactly_at_the_limit_is_complete() -> None:
    data = embedded(page([RUN, *sends(10)], limit=10))
    assert (len(data["entries"]), data["left_out"]) == (10, 0)


def test_the_overview_counts_omitted_entries() -> None:
    drops = [{"t": 700.0, "kind": "drop", "node": "b", "from": "a", "id": 1, "why": "loss"}] * 3
    density = embedded(page([RUN, *sends(1000), *drops], limit=1))["density"]
    assert sum(density["send"]) == 1000
    assert sum(density["drop"]) == 3
    assert len(density["send"]) == len(density["drop"]) == 1024
    assert density["drop"][int(700 / density["width"])] == 3
    assert 999 / 1024 < density["width"] <= 2 * 999 / 1024
    # Every second in its own bucket, also after repeated halving.
    assert [int(i / density["width"]) for i in range(1000)] == [
        i for i, number in enumerate(density["send"]) for _ in range(number)
    ]


def test_the_memory_of_the_report_builder_is_bounded_by_the_limit() -> None:
    lines = (json.dumps(entry) for source in ([RUN], sends(4_000)) for entry in source)
    tracemalloc.start()
    try:
        write_page(lines, StringIO(), limit=10)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 800_000


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "3",
        '"run"',
        "{}",
        '{"t":1}',
        '{"t":1,"kind":2}',
        '{"kind":"event"}',
        '{"t":"1","kind":"event"}',
        '{"t":true,"kind":"event"}',
        '{"t":-0.1,"kind":"event"}',
        '{"t":1e10,"kind":"event"}',
        '{"t":NaN,"kind":"event"}',
        '{"t":1,"kind":"event","size":Infinity}',
        '{"t":1,"kind":"event","size":1e999}',
        '{"t":1,"kind":"event","id":' + "9" * 5000 + "}",
        "[" * 100_000,
        json.dumps(RUN),
    ],
)
def test_a_malformed_trace_line_is_reported_by_number(line: str) -> None:
    out = StringIO()
    good = '{"t":1,"kind":"event","node":"a","what":"x"}'
    with pytest.raises(ValueError, match=r"^line 4 of the trace: "):
        write_page([json.dumps(RUN), "\n", good, line, good], out)
    assert out.getvalue() == ""


@pytest.mark.parametrize("nodes", [None, "ab", [1], {"a": 1}])
def test_a_trace_without_node_names_is_malformed(nodes: Any) -> None:
    with pytest.raises(ValueError, match=r"^line 1 of the trace: .*nodes"):
        page([{**RUN, "nodes": nodes}])


def test_a_trace_that_does_not_start_with_a_run_is_malformed() -> None:
    with pytest.raises(ValueError, match=r"^line 1 of the trace: the first line, and only the first, must be a run"):
        page(sends(1))


@pytest.mark.parametrize("lines", [[], ["", " \n"]])
def test_an_empty_trace_is_an_error(lines: list[str]) -> None:
    with pytest.raises(ValueError, match="empty"):
        write_page(lines, StringIO())


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_an_error(limit: int) -> None:
    with pytest.raises(ValueError, match="limit"):
        page([RUN], limit=limit)


class Shown(HTMLParser):
    """Content of a page in a browser: attributes and text of elements with an id, and the probe's report.

    :ivar attributes: of each element, by its id.
    :ivar texts: of each element, by its id, with all that is in it.
    """

    void = frozenset({"meta", "link", "input", "br", "img", "path"})

    def __init__(self, dump: str) -> None:
        super().__init__()
        self.attributes: dict[str, dict[str, str]] = {}
        self.texts: dict[str, str] = {}
        self.rows: list[list[str]] = []
        self._open: list[tuple[str, str]] = []
        self.feed(dump)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name = given.get("id", "")
        if name:
            self.attributes[name] = given
            self.texts[name] = ""
        if tag not in self.void:
            self._open.append((tag, name))
        if any(part == "list" for _, part in self._open):
            if tag == "tr":
                self.rows.append([])
            elif tag == "td":
                self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        for _, name in self._open:
            if name:
                self.texts[name] += data
        if self.rows and self.rows[-1] and any(tag == "td" for tag, _ in self._open):
            self.rows[-1][-1] += data

    def number(self, name: str) -> int:
        """Return a count of the diagram in its window."""
        return int(self.attributes["diagram"][f"data-{name}"])

    @property
    def window(self) -> tuple[float, float]:
        diagram = self.attributes["diagram"]
        return float(diagram["data-from"]), float(diagram["data-to"])

    @property
    def report(self) -> Any:
        return json.loads(self.texts["report"])

    def hidden(self, name: str) -> bool:
        return "hidden" in self.attributes[name]


@pytest.fixture
def browse(browser: Browser, tmp_path: Path) -> Browse:
    """Open a page in Chromium and return its content; ``probe`` is a script that returns a report."""
    # Virtual time does not wait for animation frames.
    frames = "<script>requestAnimationFrame = (call) => setTimeout(call, 16);</script>"

    def browsed(text: str, fragment: str = "", probe: str = "", size: str = "1280,900") -> Shown:
        text = text.replace("<head>", "<head>" + frames)
        if probe:
            script = (
                "<script>(async () => { const wait = () => new Promise((done) => setTimeout(done, 400));"
                "const report = element('pre', {id: 'report'}); let found;"
                f"try {{ found = await (async () => {{ {probe} }})(); }} catch (error) {{ complain(error.stack); }}"
                "report.textContent = JSON.stringify(found ?? null); document.body.append(report); })();</script>"
            )
            text = text.replace("</body>", script + "</body>")
        file = tmp_path / "page.html"
        file.write_text(text, "ascii")
        ran = subprocess.run(
            browser(f"--window-size={size}", "--dump-dom", file.as_uri() + fragment),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=300,
            check=True,
        )
        shown = Shown(ran.stdout.decode())
        assert "errors" not in shown.texts, shown.texts["errors"]
        return shown

    return browsed


def storm() -> list[Entry]:
    """A minute of a star topology with every kind of entry, and a violation at the end.

    Messages are sent at whole quarters of a second and take up to 40 ms, unless their receiver is paused.
    """
    rng = Random(7)
    names = ["backbone", *(f"sub-{i}" for i in range(1, 5))]
    entries: list[Entry] = [{"t": 0.0, "kind": "start", "node": name} for name in names]
    entries += [
        {"t": 10.0, "kind": "fault", "what": "pause sub-1 for 2 s", "nodes": ["sub-1"], "until": 12.0},
        {"t": 10.0, "kind": "pause", "node": "sub-1"},
        {"t": 12.0, "kind": "resume", "node": "sub-1"},
        {"t": 20.1, "kind": "fault", "what": "kill sub-2", "nodes": ["sub-2"]},
        {"t": 20.1, "kind": "stop", "node": "sub-2", "what": "killed"},
        {"t": 25.1, "kind": "start", "node": "sub-2"},
        {"t": 30.1, "kind": "fault", "what": "cut", "nodes": ["backbone", "sub-3"], "until": 35.1},
        {"t": 31.0, "kind": "link", "node": "sub-4", "to": "backbone", "what": "reset"},
        {"t": 40.0, "kind": "persist", "node": "backbone", "what": "Mark(last=3)"},
    ]

    def send(source: str, to: str, t: float, what: str) -> None:
        message = len(entries)
        entries.append({"t": t, "kind": "send", "node": source, "to": to, "id": message, "size": 60, "what": what})
        end = {"node": to, "from": source, "id": message}
        cut = 30.1 <= t < 35.1 and "sub-3" in (source, to)
        if cut or rng.random() < 0.05:
            entries.append({"t": t, "kind": "drop", "why": "cut" if cut else "loss", **end})
            return
        for _ in range(2 if rng.random() < 0.1 else 1):
            at = round(t + rng.uniform(0.005, 0.04), 6)
            if to == "sub-1" and 10 <= at < 12:
                at = 12.0
            dead = to == "sub-2" and 20.1 <= at < 25.1
            entries.append({"t": at, **({"kind": "drop", "why": "down"} if dead else {"kind": "arrive"}), **end})

    for i in range(4, 239):
        t = i / 4
        entries.append({"t": t, "kind": "operation", "node": "backbone", "what": f"publish {i}"})
        for name in names[1:]:
            send("backbone", name, t, f"MESSAGE {i}")
            if rng.random() < 0.3 and not (name == "sub-2" and 20.1 <= t < 25.1):
                send(name, "backbone", t, f"REQUEST {i - 2} to {i - 1}")
            entries.append({"t": t + 0.05, "kind": "event", "node": name, "what": f"Delivered {i}"})
    entries.append(
        {"t": 59.9, "kind": "broken", "invariant": "in order", "nodes": ["sub-3"], "what": "17 handed over after 18"}
    )
    entries.append({"t": 60.0, "kind": "end", "counts": {"sent": 1234, "lost": 50}})
    entries.sort(key=lambda entry: entry["t"])
    return [{**RUN, "nodes": names}, *entries]


def expected(entries: list[Entry], start: float, stop: float, text: str = "") -> tuple[int, int]:
    """Count arrows and drops in a window; no drop is within 50 ms of its edges."""
    sent = {entry["id"]: entry for entry in entries if entry["kind"] == "send" and text in entry["what"]}
    ends = [entry for entry in entries if entry["kind"] in ("arrive", "drop") and entry["id"] in sent]
    seen = [entry["kind"] for entry in ends if sent[entry["id"]]["t"] <= stop and entry["t"] >= start]
    return seen.count("arrive"), seen.count("drop")


def test_the_html_report_opens_at_the_violation(browse: Browse) -> None:
    entries = storm()
    shown = browse(page(entries))
    assert shown.texts["title"] == "fyrehose.storm seed 7"
    assert "60.000000 s (1:00.000) simulated" in shown.texts["facts"]
    assert "Invariant violated" in shown.texts["facts"]
    assert not shown.hidden("broken")
    assert shown.texts["broken-title"] == "Violated: in order"
    assert shown.texts["broken-what"] == "17 handed over after 18"
    assert shown.texts["broken-where"] == "at 59.900000 s (0:59.900) on sub-3"
    assert shown.texts["replay"] == "fyrehose simulate fyrehose.storm --seed 7"
    assert shown.texts["counts"] == "Countssent1,234lost50"
    assert shown.window == (58.9, 59.94)
    assert (shown.number("arrows"), shown.number("drops")) == expected(entries, 58.9, 59.94)
    assert shown.hidden("left-out")
    assert shown.hidden("crowded")
    times = [float(row[0]) for row in shown.rows[1:]]
    assert times == sorted(times)
    assert times == [entry["t"] for entry in entries[1:] if 58.9 <= entry["t"] <= 59.94]
    assert shown.rows[-1][1:5] == ["0:59.900", "sub-3", "broken", "in order: 17 handed over after 18"]


@pytest.mark.extended
def test_the_url_fragment_selects_window_filter_nodes_and_kinds(browse: Browse) -> None:
    entries = storm()
    shown = browse(
        page(entries),
        "#from=28.9&to=33.4&filter=request",
        """
        const found = [];
        const open = async (fragment) => {
          history.replaceState(null, "", fragment);
          dispatchEvent(new Event("hashchange"));
          await wait();
          found.push({...byId("diagram").dataset, names: byId("names").innerText.split("\\n"),
                      rows: byId("list").dataset.rows, details: byId("details").innerText});
        };
        await open("#from=9.9&to=12.4");
        await open("#from=9.9&to=12.4&node=sub-1");
        await open("#from=19.9&to=25.9&hide=message,event,operation");
        await open("#from=0.9&to=58.9&without=MESSAGE");
        await open("#id=" + messages[0].id);
        await open("#from=28.9&to=33.4&filter=REQUEST");
        return found;
        """,
    )
    assert shown.window == (28.9, 33.4)
    assert (shown.number("arrows"), shown.number("drops")) == expected(entries, 28.9, 33.4, "REQUEST")
    assert shown.number("marks") == 1, "only the fault is left; events and operations are no requests"
    kinds = {row[3] for row in shown.rows[1:]}
    assert kinds == {"send", "arrive", "drop", "fault"}
    assert all("REQUEST" in row[4] for row in shown.rows[1:] if row[3] != "fault")

    paused, of_one, losses, whole, followed, _ = shown.report
    assert (int(paused["arrows"]), int(paused["drops"])) == expected(entries, 9.9, 12.4)
    ours = [entry for entry in entries if entry["kind"] == "run" or "sub-1" in (entry.get("node"), entry.get("to"))]
    assert (int(of_one["arrows"]), int(of_one["drops"])) == expected(
        [*ours, *(entry for entry in entries if entry.get("from") == "sub-1")], 9.9, 12.4
    )
    assert [name for name in of_one["names"] if name] == ["backbone", "sub-1"]
    assert (int(losses["arrows"]), int(losses["drops"])) == (0, expected(entries, 19.9, 25.9)[1])
    assert int(losses["marks"]) == 3
    assert (int(whole["arrows"]), int(whole["drops"])) == expected(entries, 0.9, 58.9, "REQUEST")
    first = next(entry for entry in entries if entry["kind"] == "send")
    assert first["what"] in followed["details"]
    assert "Stop following" in followed["details"]
    assert float(followed["from"]) < 1.0 < float(followed["to"]) < 1.2


@pytest.mark.extended
def test_the_html_report_responds_to_keys_wheel_pointer_and_buttons(browse: Browse) -> None:
    shown = browse(
        page(storm()),
        "#from=40&to=41",
        """
        const found = [];
        const keep = async (name) => {
          await wait();
          found.push([name, +view.from.toFixed(4), +view.to.toFixed(4), view.selected?.what ?? null]);
        };
        const key = async (name, more = {}) => {
          byId("diagram").dispatchEvent(new KeyboardEvent("keydown", {key: name, bubbles: true, ...more}));
          await keep(name);
        };
        const at = (box, x, y) => ({clientX: box.left + x, clientY: box.top + y, bubbles: true, cancelable: true,
                                    pointerId: 1, pointerType: "mouse", button: 0});
        const drag = (target, from, to) => {
          target.setPointerCapture = () => {};
          const box = target.getBoundingClientRect();
          target.dispatchEvent(new PointerEvent("pointerdown", at(box, from, 20)));
          target.dispatchEvent(new PointerEvent("pointermove", at(box, to, 20)));
          target.dispatchEvent(new PointerEvent("pointerup", at(box, to, 20)));
        };
        await key("ArrowRight", {shiftKey: true});
        await key("ArrowLeft");
        await key("+");
        await key("-");
        await key("0");
        await key("v");
        await key("Home");
        await key("f");
        await key("f");
        await key("ArrowDown");
        await key("Escape");
        setWindow(40, 41);
        const box = still.getBoundingClientRect();
        still.dispatchEvent(new WheelEvent("wheel", {deltaY: -100, ...at(box, box.width / 2, 9)}));
        await keep("wheel");
        setWindow(40, 41);
        drag(still, 0.75 * box.width, 0.25 * box.width);
        await keep("drag");
        drag(canvases.overview, 0.25 * size.overview, 0.5 * size.overview);
        await keep("overview");
        setWindow(40.49, 40.55);
        await wait();
        const leg = drawn.legs.find((one) => one.fate === "arrived" && one.x1 > 0);
        const point = at(still.getBoundingClientRect(), (leg.x1 + leg.x2) / 2, (leg.y1 + leg.y2) / 2);
        still.dispatchEvent(new PointerEvent("pointermove", point));
        await wait();
        const tip = byId("tip").hidden ? null : byId("tip").textContent;
        still.dispatchEvent(new PointerEvent("pointerdown", point));
        still.dispatchEvent(new PointerEvent("pointerup", point));
        await wait();
        const details = byId("details").innerText;
        const chosen = document.querySelectorAll("#list tr.selected").length;
        await key("Enter");
        const hash = location.hash;
        [...document.querySelectorAll("#groups button")].find((one) => one.innerText.startsWith("Messages")).click();
        await wait();
        const hidden = {...byId("diagram").dataset};
        return {found, tip, details, chosen, hash, hidden, what: leg.message.what, id: leg.message.id,
                tabs: byId("diagram").tabIndex};
        """,
    )
    report = shown.report
    steps = {name: (start, stop, chosen) for name, start, stop, chosen in report["found"]}
    windows = [(start, stop) for _, start, stop, _ in report["found"]]
    assert windows[:4] == [(41, 42), (40.85, 41.85), (41.05, 41.65), (40.85, 41.85)]
    assert steps["0"][0] < 0 < 60 < steps["0"][1]
    assert steps["v"] == (58.9, 59.94, None)
    assert steps["Home"] == (0, 1.04, None)
    first, second = (step for step in report["found"] if step[0] == "f")
    assert first[3] == "pause sub-1 for 2 s"
    assert first[1] < 10 < first[2]
    assert second[3] == "kill sub-2"
    assert second[1] < 20.1 < second[2]
    assert steps["ArrowDown"][2] == "killed"
    assert steps["Escape"][2] is None
    start, stop, _ = steps["wheel"]
    assert start == pytest.approx(41 - stop + 40, abs=0.01)
    assert stop - start == pytest.approx(0.8187, abs=0.001)
    assert steps["drag"][:2] == pytest.approx((40.5, 41.5), abs=0.001)
    assert steps["overview"][:2] == pytest.approx((15, 30), abs=0.1)
    assert report["what"] in report["tip"]
    assert report["what"] in report["details"]
    assert "Arrived" in report["details"]
    assert "60 bytes" in report["details"]
    assert report["chosen"] >= 2, "its sending and its arrival"
    assert f"&id={report['id']}" in report["hash"]
    assert report["hidden"]["arrows"] == "0"
    assert report["tabs"] == 0


@pytest.mark.extended
def test_arrows_drops_and_states_are_drawn_at_their_times(browse: Browse) -> None:
    def way(t: float, kind: str, message: int, **more: Any) -> Entry:
        ends = {"node": "a", "to": "d"} if kind == "send" else {"node": "d", "from": "a"}
        return {"t": t, "kind": kind, **ends, "id": message, **more}

    entries: list[Entry] = [
        {**RUN, "nodes": ["a", "b", "c", "d"]},
        way(1.0, "send", 1, size=9, what="DATA 1"),
        way(1.1, "arrive", 1),
        way(1.15, "arrive", 1),
        way(1.3, "send", 2, size=9, what="DATA 2"),
        way(1.3, "drop", 2, why="loss"),
        way(1.5, "send", 3, size=9, what="DATA 3"),
        way(1.6, "drop", 3, why="queue"),
        way(1.8, "send", 4, size=9, what="DATA 4"),
        {"t": 1.2, "kind": "stop", "node": "b", "what": "killed"},
        {"t": 1.4, "kind": "start", "node": "b"},
        {"t": 1.2, "kind": "pause", "node": "c"},
        {"t": 1.4, "kind": "resume", "node": "c"},
        {"t": 1.7, "kind": "weather", "node": "d", "what": "rain", "colour": "grey"},
        {"t": 1.7, "kind": "weather", "what": "rain that fell on nobody"},
        {"t": 1.45, "kind": "fault", "what": "clock jumps", "nodes": ["d"]},
        {"t": 5.0, "kind": "event", "node": "a", "what": "the last"},
    ]
    shown = browse(
        page(entries),
        "#from=0.9&to=1.9",
        """
        const scale = devicePixelRatio || 1;
        const pixels = (x, y) => [...contexts.lanes.getImageData((x - 3) * scale, (y - 3) * scale, 7, 7).data];
        // Whether there is anything of this colour around a point.
        const has = (x, y, colour, apart = 40) => {
          const wanted = colour.match(/\\w\\w/g).map((two) => parseInt(two, 16));
          const near = pixels(x, y);
          return near.some((_, i) => i % 4 === 0 && wanted.every((part, j) => Math.abs(near[i + j] - part) < apart));
        };
        const shades = (x, y) => {
          const near = pixels(x, y);
          return new Set(Array.from({length: 49}, (_, i) => near.slice(4 * i, 4 * i + 4).join())).size;
        };
        const found = {
          legs: drawn.legs.map((leg) => ({
            id: leg.message.id, fate: leg.fate, at: tOf(leg.x2), way: (leg.y2 - yOf(0)) / (yOf(3) - yOf(0)),
            line: has((leg.x1 + leg.x2) / 2, (leg.y1 + leg.y2) / 2, colours["type-0"]),
            cross: has(leg.x2, leg.y2, colours.drop)})),
          shades: [[1.33, 1], [1.33, 2], [1.75, 1], [1.75, 2]].map(([t, lane]) => shades(xOf(t), yOf(lane) + 12)),
          lines: [1.75, 1.33].map((t) => has(xOf(t), yOf(1), colours.lane, 20)),
          states: lanes.map((lane) => lane.states.map((state) => state.name)),
          counts: {...byId("diagram").dataset}, labels: document.querySelectorAll("#names button").length,
        };
        openAtBest();
        return {...found, best: [view.from, view.to]};
        """,
    )
    report = shown.report
    legs = {(leg["id"], round(leg["at"], 3)): leg for leg in report["legs"]}
    assert [leg["fate"] for leg in report["legs"]] == ["arrived", "arrived", "dropped", "dropped", "open"]
    assert all(leg["line"] for leg in report["legs"][:4])
    assert [leg["cross"] for leg in report["legs"]] == [False, False, True, True, False]
    assert legs[1, 1.1]["way"] > 0.97
    assert legs[1, 1.15]["way"] > 0.97
    assert legs[2, 1.35]["way"] == pytest.approx(0.5, abs=0.05), "lost half-way, half the usual time later"
    assert 0.8 < legs[3, 1.6]["way"] < 0.97, "dropped at the receiver's door"
    assert [report["counts"][name] for name in ("arrows", "drops", "open", "marks")] == ["2", "2", "1", "6"]
    assert report["states"] == [[], ["dead"], ["paused"], []]
    dead, paused, *alive = report["shades"]
    assert dead > 1
    assert paused > 1
    assert alive == [1, 1]
    assert report["lines"] == [True, False], "what is dead has no line"
    assert report["labels"] == 4
    assert report["best"] == pytest.approx([1.25, 2.25]), "around the first fault, as nothing broke"
    assert "rain that fell on nobody" in shown.texts["list"]
    assert "rain colour=grey" in shown.texts["list"]
    assert "loss: DATA 2" in shown.texts["list"]
    assert "Trace truncated" in shown.texts["facts"]
    assert shown.hidden("broken")


@pytest.mark.extended
def test_the_html_report_shows_the_replay_command_of_the_trace(browse: Browse) -> None:
    command = "fyrehose simulate my.module:Storm --seed 7 --split-seed 3 --faults 'my faults'"
    run, *entries = storm()
    shown = browse(page([{**run, "replay": command, "python": "3.11", "version": "0.1.0"}, *entries]))
    assert shown.texts["replay"] == command
    assert command not in shown.texts["facts"]
    assert "python 3.11" in shown.texts["facts"]


@pytest.mark.extended
def test_damaged_arrivals_are_marked_in_the_html_report(browse: Browse) -> None:
    entries: list[Entry] = [RUN]
    for i, more in enumerate([{}, {"damaged": True, "what": "ff00"}, {"truncated": True, "what": "DA"}]):
        message = {"id": i, "node": "a"}
        entries.append({"t": 1.0 + i, "kind": "send", "to": "b", "size": 9, "what": f"DATA {i}", **message})
        entries.append({"t": 1.5 + i, "kind": "arrive", "id": i, "node": "b", "from": "a", **more})
    shown = browse(
        page(entries),
        "#from=0.9&to=4.1",
        """
        const scale = devicePixelRatio || 1;
        const red = colours.drop.match(/\\w\\w/g).map((two) => parseInt(two, 16));
        const isMarked = (leg) => {
          const {data} = contexts.lanes.getImageData((leg.x2 - 14) * scale, (leg.y2 - 22) * scale, 28, 28);
          return data.some((_, i) => i % 4 === 0 && red.every((part, j) => Math.abs(data[i + j] - part) < 30));
        };
        const marked = drawn.legs.map(isMarked);
        const details = [];
        for (const message of messages) {
          select(message);
          details.push(byId("details").innerText);
        }
        return {marked, details, legend: byId("legend").innerText};
        """,
    )
    report = shown.report
    assert report["marked"] == [False, True, True]
    assert "damaged" not in report["details"][0]
    assert "damaged: ff00" in report["details"][1]
    assert "truncated: DA" in report["details"][2]
    assert "damaged or truncated" in report["legend"]
    assert "DATA 1 (after 500 ms), damaged: ff00" in shown.texts["list"]


@pytest.mark.parametrize(
    ("nodes", "opened"),
    [
        (["b"], (19.04, 20.08)),  # Its last message arrives at 20 s.
        (["c"], (39.8, 40.8)),  # A fault at 40 s and no messages.
        (["d"], (99.0, 100.04)),  # No entries at all.
        ([], (98.0, 99.04)),  # The last message of any node.
    ],
)
@pytest.mark.extended
def test_the_html_report_of_a_passing_run_opens_at_activity(
    nodes: list[str], opened: tuple[float, float], browse: Browse
) -> None:
    def message(i: int, t: float, source: str, to: str) -> list[Entry]:
        return [
            {"t": t - 0.01, "kind": "send", "node": source, "to": to, "id": i, "size": 9, "what": "DATA"},
            {"t": t, "kind": "arrive", "node": to, "from": source, "id": i},
        ]

    entries = [
        {**RUN, "nodes": ["a", *(f"e-{i}" for i in range(30)), "b", "c", "d"]},
        *message(1, 10.0, "b", "a"),
        *message(2, 20.0, "a", "b"),
        {"t": 30.0, "kind": "fault", "what": "clock", "nodes": ["c"]},
        {"t": 40.0, "kind": "fault", "what": "clock", "nodes": ["c"]},
        {"t": 50.0, "kind": "fault", "what": "clock", "nodes": ["a"]},
        *message(3, 98.96, "e-1", "e-2"),
        {"t": 100.0, "kind": "broken", "invariant": "at last", "nodes": nodes, "what": "no"},
        {"t": 100.0, "kind": "end", "counts": {}},
    ]
    shown = browse(
        page(entries),
        probe="""
        const seen = lanes.map((lane, number) => [lane.name, yOf(number)]).filter(([, y]) => y > 0 && y < size.height);
        return seen.map(([name]) => name);
        """,
    )
    assert shown.window == pytest.approx(opened)
    assert set(nodes) <= set(shown.report)


@pytest.mark.extended
def test_node_names_with_a_common_prefix_stay_distinguishable(browse: Browse) -> None:
    names = [f"subscriber-with-a-very-long-name-{kind}-1" for kind in ("raw", "small")]
    probe = """
        return {names: [...document.querySelectorAll("#names button")].map((button) => button.innerText.trim()),
                cut: [...document.querySelectorAll("#names span")].map((span) => span.scrollWidth - span.clientWidth),
                width: byId("names").offsetWidth,
                aligned: byId("ruler").getBoundingClientRect().left - still.getBoundingClientRect().left};
        """
    for size, widest in (("1280,900", 200), ("390,900", 84)):
        report = browse(page([{**RUN, "nodes": names}, *sends(3)]), probe=probe, size=size).report
        assert report["width"] <= widest
        assert report["aligned"] == 0
        assert report["cut"][:2] == [0, 0]
        assert len(set(report["names"][:2])) == 2
        assert all(name.startswith("sub") and name.endswith("-1") for name in report["names"][:2])
    report = browse(page([{**RUN, "nodes": ["subscriber-small-1"]}, *sends(3)]), probe=probe).report
    assert report["names"][0] == "subscriber-small-1"
    assert 136 < report["width"] <= 200
    assert browse(page([RUN, *sends(3)]), probe=probe).report["width"] == 136


@pytest.mark.extended
def test_a_hostile_trace_runs_no_script(browse: Browse) -> None:
    entries: list[Entry] = [
        {**RUN, "scenario": HOSTILE, "start": 1e300, "nodes": [HOSTILE, "__proto__"], "extra": {"a": ["<b>"]}},
        {"t": 0.1, "kind": "send", "node": HOSTILE, "to": "__proto__", "id": "__proto__", "what": HOSTILE},
        {"t": 0.2, "kind": "arrive", "node": "__proto__", "from": HOSTILE, "id": "__proto__"},
        {"t": 0.2, "kind": "constructor", "node": "nobody", "hasOwnProperty": HOSTILE},
        {"t": 0.2, "kind": "toString"},
        {"t": 0.3, "kind": "send", "node": "self", "to": "self", "id": 3, "what": 5},
        {"t": 0.3, "kind": "send", "node": "self", "id": 4},
        {"t": 0.3, "kind": "arrive", "node": "self"},
        {"t": 0.3, "kind": "drop", "id": 9},
        {"t": 0.3, "kind": "fault", "what": None, "nodes": "x", "until": "y"},
        {"t": 0.3, "kind": "pause"},
        {"t": 0.4, "kind": "broken", "invariant": HOSTILE, "nodes": ["__proto__", 5], "what": "`$(reboot)`"},
        {"t": 0.5, "kind": "end", "counts": {"<b>": "<i>", "__proto__": 3}},
    ]
    shown = browse(
        page(entries),
        probe="""
        const found = {pwned: document.documentElement.dataset.pwned ?? null, title: document.title,
                       wide: document.documentElement.scrollWidth, window: innerWidth,
                       canvases: Object.values(canvases).map((canvas) =>
                         canvas.getBoundingClientRect().width - canvas.parentElement.clientWidth)};
        for (const item of items) select(item);
        for (const box of document.querySelectorAll("#details, #list, #names, #counts, #broken, #types")) {
          if (box.querySelector("script, img, b, i, iframe")) found.pwned = box.id;
        }
        return found;
        """,
        size="400,800",
    )
    assert shown.report["pwned"] is None
    assert shown.report["wide"] <= shown.report["window"] < 600, "nothing sticks out where there is little room"
    assert max(shown.report["canvases"]) <= 0
    assert "</script>" in shown.report["title"]
    visible = HOSTILE.replace("\ud800", "\ufffd")
    assert shown.texts["broken-title"] == f"Violated: {visible}"
    assert shown.texts["replay"].startswith("fyrehose simulate '</script>")
    assert """'\\''""" in shown.texts["replay"]
    assert visible in shown.texts["list"]
    assert shown.number("arrows") == 2


@pytest.mark.extended
def test_the_report_of_a_long_run_is_responsive_and_reports_omissions(browse: Browse) -> None:
    def long() -> Iterator[Entry]:
        yield {**RUN, "nodes": [f"node-{i}" for i in range(12)]}
        for i in range(16_000):
            t = round(i * 0.001, 6)
            way = {"node": f"node-{i % 11 + 1}", "from": "node-0"}
            what = ("DATA", "REQUEST", "TIDE")[i % 3]
            yield {"t": t, "kind": "send", "node": "node-0", "to": way["node"], "id": i, "size": 9, "what": what}
            yield {"t": t + 0.0005, "kind": "arrive", **way, "id": i}

    shown = browse(
        page(long(), limit=26_000),
        "#from=0&to=16",
        """
        let calls = 0;
        const canvas = CanvasRenderingContext2D.prototype;
        for (const [name, {value}] of Object.entries(Object.getOwnPropertyDescriptors(canvas))) {
          if (typeof value === "function") {
            canvas[name] = function (...given) { calls++; return value.apply(this, given); };
          }
        }
        const work = [16, 15, 14, 13, 12, 11].map((to) => { view.to = to; calls = 0; draw(); return calls; });
        const crowd = {...byId("diagram").dataset, note: byId("crowded").hidden};
        setWindow(10, 11);
        await wait();
        return {work, crowd, near: {...byId("diagram").dataset, note: byId("crowded").hidden},
                rows: document.querySelectorAll("#list tbody tr").length, caption: byId("list").innerText};
        """,
    )
    report = shown.report
    assert "6,000 earlier entries are left out" in shown.texts["left-out"]
    assert "complete after 2.999500 s" in shown.texts["left-out"]
    assert not shown.hidden("left-out")
    assert int(report["crowd"]["arrows"]) == 8_001
    assert report["crowd"]["drawn"] == "0"
    assert report["crowd"]["note"] is False
    # Dense arrows are drawn per pixel, so 13,001 need hardly more canvas calls than 8,001.
    most, *_, least = report["work"]
    assert 0 < most < 1.25 * least
    assert most < 8_001
    assert report["near"]["arrows"] == report["near"]["drawn"] == "1001"
    assert report["near"]["note"] is True
    assert report["rows"] == 300
    assert "The first 300 of 2,001 entries" in report["caption"]


def first_pixel(png: bytes) -> tuple[int, ...]:
    """Return the colour of the top left pixel of a PNG file."""
    data = b"".join(
        png[found.end() : found.end() + int.from_bytes(png[found.start() - 4 : found.start()], "big")]
        for found in re.finditer(b"IDAT", png)
    )
    return tuple(zlib.decompressobj().decompress(data, 4)[1:4])


@pytest.mark.extended
def test_the_html_report_supports_dark_mode_and_small_screens(browser: Browser, tmp_path: Path) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    file = tmp_path / "page.html"
    file.write_text(page(storm()), "ascii")
    dark = "--blink-settings=preferredColorScheme=0"
    kinds = {
        "light": ("", (1440, 1100), []),
        "dark": ("#from=9.5&to=13.5", (1440, 1100), [dark]),
        "phone": ("", (390, 1500), []),
    }
    running = {}
    for name, (fragment, (width, height), options) in kinds.items():
        shot = SCREENSHOTS / f"simulated-run-{name}.png"
        shot.unlink(missing_ok=True)
        options = [*options, f"--screenshot={shot}", f"--window-size={width},{height}", file.as_uri() + fragment]
        running[name] = subprocess.Popen(browser(*options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for process in running.values():
            assert process.wait(300) == 0
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    colours = {}
    for name, (_, size, _) in kinds.items():
        png = (SCREENSHOTS / f"simulated-run-{name}.png").read_bytes()
        assert (int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")) == size
        assert len(png) > 40_000
        colours[name] = first_pixel(png)
    assert colours == {"light": (0xF4, 0xF6, 0xF8), "dark": (0x0D, 0x12, 0x18), "phone": (0xF4, 0xF6, 0xF8)}
