from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.report import page as page_module
from fyrehose_twisted.experiments.report.page import write_page
from fyrehose_twisted.experiments.report.trace_replay import Recording
from fyrehose_twisted.freenet.wire.location import key_location

DATA = Path(__file__).parent / "data"
HOSTILE = "</script><SCRIPT>document.documentElement.dataset.pwned=1</script><!-- \u2028 \ud800 \" ' & @@DATA $x"
KEY, OTHER = bytes(range(20)), bytes(range(100, 120))


def read(*entries: dict[str, Any], nodes: int = 4, **more: Any) -> Recording:
    locations = [node / nodes for node in range(nodes)]
    network = {"t": 0.0, "what": "network", "locations": locations, "links": [[0, 1], [1, 2]], **more}
    return Recording.read(json.dumps(entry) for entry in (network, *entries))


def change(t: float, what: str, node: int, key: bytes = KEY, **more: Any) -> dict[str, Any]:
    return {"t": t, "what": what, "key": key.hex(), "node": node, **more}


def page(recording: Recording, key: bytes = KEY) -> str:
    out = StringIO()
    write_page(recording, key, out)
    return out.getvalue()


def embedded(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="recording">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


@pytest.fixture(scope="module")
def grown() -> Recording:
    return Recording.read((DATA / "tree.jsonl").read_text("ascii").splitlines())


def test_the_page_is_self_contained(grown: Recording) -> None:
    text = page(grown, grown.key("6"))
    assert text.isascii()
    assert "@@" not in text
    assert re.findall(r'\b(?:src|href)="([^"]*)"', text) == ["data:,"]
    assert not re.findall(r"\w+://", text)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(|sendBeacon|WebSocket", text)
    assert "default-src 'none'" in text


def test_the_page_contains_all_changes(grown: Recording) -> None:
    key = grown.key("6")
    data = embedded(page(grown, key))
    assert data["locations"] == list(grown.locations)
    assert {tuple(link) for link in zip(data["links"][::2], data["links"][1::2], strict=True)} == grown.links
    assert data["finish"] == grown.finish
    assert [one["key"] for one in data["streams"]] == [key.hex(), *(one.hex() for one in grown.streams if one != key)]
    for stream in data["streams"]:
        changes = grown.streams[bytes.fromhex(stream["key"])]
        assert stream["location"] == key_location(bytes.fromhex(stream["key"]))
        kept = [one for one in changes if one.kind not in ("published", "delivered")]
        assert [(line, t, data["whats"][what], node) for line, t, what, node, _ in stream["changes"]] == [
            (one.line, one.t, one.kind, one.node) for one in kept
        ]
        assert [row[4] for row in stream["changes"]] == [-1 if one.value is None else one.value for one in kept]
        delivered = [one for one in changes if one.kind == "delivered"]
        assert sum(packet[4] for packet in stream["packets"]) == len(delivered)
    assert [row[:2] for row in data["network"]] == [[one.line, one.t] for one in grown.network]


def test_a_packet_is_one_row_with_its_number_of_deliveries() -> None:
    recording = read(
        change(1.0, "published", 3, number=2**62 + 1),
        change(1.5, "delivered", 1, number=2**62 + 1),
        change(2.5, "delivered", 2, number=2**62 + 1),
        change(3.0, "published", 3, number=5),
    )
    (stream,) = embedded(page(recording))["streams"]
    assert stream["changes"] == []
    assert stream["packets"] == [[2, 1.0, 3, str(2**62 + 1), 2, 2.5], [5, 3.0, 3, "5", 0, 3.0]]


def test_deliveries_may_precede_the_publication_in_a_trace() -> None:
    recording = read(
        change(1.0, "delivered", 1, number=5),
        change(1.5, "published", 3, number=5),
        change(2.0, "delivered", 2, number=5),
        change(3.0, "published", 2, number=5),
        change(3.5, "delivered", 3, number=5),
        change(4.0, "delivered", 3, number=6),
    )
    (stream,) = embedded(page(recording))["streams"]
    assert stream["packets"] == [[2, 1.0, 3, "5", 2, 2.0], [5, 3.0, 2, "5", 1, 3.5], [7, 4.0, -1, "6", 1, 4.0]]


def test_a_large_seed_is_not_rounded() -> None:
    assert embedded(page(read(change(1.0, "root", 0), seed=2**64 - 1)))["seed"] == "18446744073709551615"
    assert embedded(page(read(change(1.0, "root", 0))))["seed"] is None


def test_nothing_in_the_recording_becomes_markup() -> None:
    plain = page(read(change(1.0, "root", 0), policy={"a": "b"}))
    text = page(read(change(1.0, "root", 0), policy={HOSTILE: HOSTILE}))
    assert text.count("<") == plain.count("<")
    assert text.lower().count("</script") == plain.lower().count("</script")
    assert embedded(text)["policy"] == [[HOSTILE, json.dumps(HOSTILE)]]


def test_a_network_that_is_too_large_is_refused() -> None:
    out = StringIO()
    recording = read(change(1.0, "root", 0), nodes=page_module.MAX_PAGE_NODES + 1)
    with pytest.raises(ConfigurationError, match=r"has 5,001 nodes, but a page can show 5,000; draw it as SVG"):
        write_page(recording, KEY, out)
    assert out.getvalue() == ""
    assert page(read(change(1.0, "root", 0), nodes=page_module.MAX_PAGE_NODES))


def test_too_many_links_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MAX_PAGE_LINKS", 1)
    with pytest.raises(ConfigurationError, match=r"has 2 links, but a page can show 1; record a network of a lower"):
        page(read(change(1.0, "root", 0)))


def test_the_selected_stream_must_fit_on_the_page_and_others_may_be_omitted(monkeypatch: pytest.MonkeyPatch) -> None:
    third = bytes(range(200, 220))
    recording = read(
        {"t": 0.5, "what": "down", "node": 3},
        *(change(t, "root", 0, OTHER) for t in (1, 2)),
        change(5.0, "root", 0),
        change(5.0, "published", 0, number=1),
        change(5.0, "delivered", 1, number=1),
        change(5.0, "root", 0, third),
    )
    monkeypatch.setattr(page_module, "MAX_PAGE_CHANGES", 4)
    data = embedded(page(recording))
    assert [one["key"] for one in data["streams"]] == [KEY.hex(), third.hex()]
    assert data["left_out"] == [OTHER.hex()]
    monkeypatch.setattr(page_module, "MAX_PAGE_CHANGES", 2)
    with pytest.raises(ConfigurationError, match=r"stream 6465666768.. and the network have 3 changes.*can show 2;"):
        page(recording, OTHER)


def test_an_unknown_stream_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no stream with key 6465"):
        page(read(change(1.0, "root", 0)), OTHER)
