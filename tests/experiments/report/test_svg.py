from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf, nan
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.report.svg import draw
from fyrehose_twisted.experiments.report.trace_replay import Recording

SVG = "{http://www.w3.org/2000/svg}"
MOMENTS = (0.0, 1.5, 10.0, 30.0, 40.15, 40.5, 43.3, 56.0, 60.0, 105.0, 1e6)


@pytest.fixture(scope="module")
def recording() -> Recording:
    return Recording.read((Path(__file__).parent / "data" / "tree.jsonl").read_text("ascii").splitlines())


def key_of(recording: Recording) -> bytes:
    return next(iter(recording.streams))


def group(root: ElementTree.Element, name: str) -> ElementTree.Element:
    return next(one for one in root.iter(f"{SVG}g") if one.get("class") == name)


def points(root: ElementTree.Element) -> Iterator[tuple[float, float]]:
    """Return all positions in coordinates of the whole drawing."""
    for path in group(root, "edges"):
        numbers = [float(one) for one in re.findall(r"-?[0-9.]+", path.get("d", ""))]
        yield from zip(numbers[::2], numbers[1::2], strict=True)
    for one in root.iter():
        moved = re.match(r"translate\((\S+) (\S+)\)", one.get("transform", ""))
        if moved:
            yield float(moved[1]), float(moved[2])
        if one.tag == f"{SVG}text":
            yield float(one.get("x", "nan")), float(one.get("y", "nan"))


@pytest.mark.parametrize("width", [240, 360, 720, 2000])
@pytest.mark.parametrize("t", MOMENTS)
def test_the_drawing_has_the_current_edges_within_its_bounds(recording: Recording, t: float, width: int) -> None:
    key = key_of(recording)
    now = recording.state_at(key, t)
    root = ElementTree.fromstring(draw(recording, key, t, width=width))
    edges = group(root, "edges")
    assert len(edges) == len(now.parents)
    dashed = [one for one in edges if one.get("stroke-dasharray")]
    assert len(dashed) == len(now.unrooted & now.parents.keys())
    assert len(group(root, "nodes")) == len(now.locations)
    left, top, wide, high = (float(one) for one in root.get("viewBox", "").split())
    assert (left, top, wide) == (0, 0, width)
    assert high >= width
    for x, y in points(root):
        assert 0 <= x <= wide
        assert 0 <= y <= high


def test_equal_states_produce_equal_drawings(recording: Recording) -> None:
    assert draw(recording, key_of(recording), 45.0) == draw(recording, key_of(recording), 45.0)


def test_the_drawing_is_self_contained_and_labelled(recording: Recording) -> None:
    key = key_of(recording)
    text = draw(recording, key, 43.3)
    assert text.isascii()
    assert not re.search(r"<script|<style|href|url\(|\bon\w+=|<!", text)
    assert set(re.findall(r"\w+://[\w.]+", text)) == {"http://www.w3.org"}
    now = recording.state_at(key, 43.3)
    title = ElementTree.fromstring(text).findtext(f"{SVG}title", "")
    assert title == (
        f"Key {key.hex()[:12]} after 43.3 s: {len(now.members)} members, {len(now.subscribers - now.down)} "
        f"subscribers, 0 roots, {len(now.unrooted)} cut off, reach 0.0%"
    )


def test_the_legend_has_only_shapes_in_use(recording: Recording) -> None:
    def legend(t: float) -> set[str]:
        root = ElementTree.fromstring(draw(recording, key_of(recording), t))
        return {one.text or "" for one in group(root, "legend").iter(f"{SVG}text")}

    whole, broken, noticed = legend(39.0), legend(40.5), legend(43.3)
    assert {"root", "subscriber", "relay", "depth 0 to 7"} <= whole
    assert not {"down", "searches for a parent", "cut off from the root"} & whole
    assert {
        "down",
        "down, not yet detected by its children",
        "searches for a parent",
        "cut off from the root",
    } <= broken
    assert not {"root", "down, not yet detected by its children"} & noticed


def test_kinds_of_nodes_differ_in_shape(recording: Recording) -> None:
    key = key_of(recording)
    for t in MOMENTS:
        now = recording.state_at(key, t)
        nodes = group(ElementTree.fromstring(draw(recording, key, t)), "nodes")
        marks = [one for one in nodes if one.tag == f"{SVG}g"]
        parts = [[(part.tag.removeprefix(SVG), part.get("fill")) for part in mark] for mark in marks]
        hollow = [one for one in parts if one[0] == ("circle", "#ffffff")]
        diamonds = [mark for mark in marks if (mark[0].get("d") or "").endswith("0Z") and "L0 " in mark[0].get("d", "")]
        assert len(diamonds) == len(now.roots)
        assert len(hollow) == len(now.members - now.roots - now.subscribers)
        assert sum(len(one) == 2 for one in parts) == len(now.detached)
        assert sum(one == [("path", "none")] for one in parts) == len(now.down)


def test_links_are_drawn_on_request(recording: Recording) -> None:
    root = ElementTree.fromstring(draw(recording, key_of(recording), 30.0, links=True))
    assert len(group(root, "links")) == len(recording.links)
    assert 'class="links"' not in draw(recording, key_of(recording), 30.0)


@pytest.mark.parametrize("t", [-1.0, inf, nan])
def test_an_invalid_time_is_refused(recording: Recording, t: float) -> None:
    with pytest.raises(ConfigurationError, match="the time must be 0 or more seconds"):
        draw(recording, key_of(recording), t)


@pytest.mark.parametrize("width", [239, 0, -5, 10_001])
def test_an_invalid_width_is_refused(recording: Recording, width: int) -> None:
    with pytest.raises(ConfigurationError, match=f"width={width} is outside 240 to 10,000"):
        draw(recording, key_of(recording), 1.0, width=width)


def test_an_unknown_stream_is_refused(recording: Recording) -> None:
    with pytest.raises(ConfigurationError, match="no stream with key 0000"):
        draw(recording, bytes(20), 1.0)
