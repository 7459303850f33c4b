"""Keys of messages, from publishers to subscribers and journals."""

from __future__ import annotations

import json
from pathlib import Path

from integration.running.backbone import RunningBackbone
from integration.running.journal import StartJournal
from integration.running.programs import Start

LINES = b"kitchen: 21\ncellar: 12\nkitchen: 22\nkettle: 90: hot\n"


def test_keys_reach_subscribers_and_journals(
    start: Start, backbone: RunningBackbone, start_journal: StartJournal
) -> None:
    journal = start_journal(backbone, "one")
    everything = start("fyrehose", "sub", "-b", backbone.text, "--count", 5, "--key-separator", "=")
    kitchen = start("fyrehose", "sub", "-b", backbone.text, "--count", 2, "--key", "kitchen", "--format", "json")
    prefixed = start("fyrehose", "sub", "-b", backbone.text, "--count", 3, "--key-prefix", "k")
    backbone.wait_for_clients(4)
    publisher = start("fyrehose", "pub", "-b", backbone.text, "--kept", 1, "--key-separator", ": ")
    assert publisher.finish(LINES) == 0, publisher
    publisher = start("fyrehose", "pub", "-b", backbone.text, "--kept", 1)
    assert publisher.finish(b"no key\n") == 0, publisher
    assert everything.finish() == kitchen.finish() == prefixed.finish() == 0
    assert everything.out == "kitchen=21\ncellar=12\nkitchen=22\nkettle=90: hot\n=no key\n"
    assert [(line["key"], line["data"]) for line in map(json.loads, kitchen.out.splitlines())] == [
        ("kitchen", "21"),
        ("kitchen", "22"),
    ]
    assert prefixed.out == "21\n22\n90: hot\n"
    latest = start("fyrehose", "journal", "cat", journal.path, "--latest")
    assert latest.finish() == 0, latest
    assert latest.out == "12\n22\n90: hot\n"


def test_a_line_without_a_key_fails_alone(start: Start, backbone: RunningBackbone) -> None:
    publisher = start("fyrehose", "pub", "-b", backbone.text, "--key-separator", ": ")
    assert publisher.finish(b"a: 1\nnothing\nb: 2\n") == 1
    assert "1 of 3 messages not published: line 2: the line has no key: the separator is missing" in publisher.err


def test_a_resumed_publisher_checks_the_keys_of_what_it_published(
    start: Start, backbone: RunningBackbone, tmp_path: Path
) -> None:
    def publish(lines: bytes, *key: str) -> tuple[int, str]:
        publisher = start("fyrehose", "pub", "-b", backbone.text, "--publisher-state", tmp_path / "state", *key)
        return publisher.finish(lines), publisher.err

    assert publish(b"a:1\nb:2\n", "--key-separator", ":")[0] == 0
    assert publish(b"a:1\nb:2\nc:3\n", "--key-separator", ":")[0] == 0
    status, err = publish(b"a:1\nb:2\nc:3\nd:4\n", "--key", "x")
    assert status == 1
    assert "the first 3 lines are not those that were published" in err
    status, err = publish(b"a:1\nb:2\nc:3\nd\ne:5\n", "--key-separator", ":")
    assert status == 1
    assert "line 4: the line has no key" in err
    assert publish(b"a:1\nb:2\nc:3\nd:4\ne:5\n", "--key-separator", ":")[0] == 0
