"""Exactly-once publishing by `fyrehose pub --publisher-state FILE` across kills."""

from __future__ import annotations

import json
import signal
from base64 import b64decode
from pathlib import Path

import pytest
from integration.running.backbone import RunningBackbone
from integration.running.journal import RunningJournal, StartJournal
from integration.running.programs import Start

from fyrehose_twisted.fyrehose.wire.envelope import unwrap

NAME = "state"


def lines_of(*numbers: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(*numbers))


def printed(start: Start, journal: RunningJournal, *options: str) -> bytes:
    program = start("fyrehose", "journal", "cat", journal.path, *options)
    assert program.finish() == 0
    output: bytes = program.outputs[1]
    return output


@pytest.mark.extended
def test_repeatedly_killed_pub_with_state_publishes_each_line_once(
    start: Start, backbone: RunningBackbone, start_journal: StartJournal, tmp_path: Path
) -> None:
    journal = start_journal(backbone, "kept")
    file = tmp_path / "lines"
    state = tmp_path / NAME
    command = ("fyrehose", "pub", "-b", backbone.text, "--publisher-state", state)
    reader = start("fyrehose", "sub", "-b", backbone.text, "--raw")
    backbone.wait_for_clients(2)
    file.write_bytes(lines_of(10))
    assert start(*command, file).finish() == 0
    early = state.read_bytes()
    file.write_bytes(lines_of(20_000))
    for turn in range(1, 5):
        publisher = start(*command, file)
        reader.wait_for(f"line {turn * 3_000}\n")
        publisher.process.kill()
        publisher.process.wait(60)
    rest = start(*command, file)
    assert rest.finish() == 0
    state.write_bytes(early)  # As after a power failure.
    file.write_bytes(lines_of(20_010) + b"not yet a li")
    grown = start(*command, file)
    assert grown.finish() == 0
    assert grown.err.endswith("the input ends in an incomplete line, which was not published\n")
    subscriber = start("fyrehose", "sub", "-b", backbone.text, "--from", "oldest", "--count", 20_010)
    assert subscriber.finish() == 0
    shown = printed(start, journal)
    assert sorted(shown.splitlines()) == sorted(lines_of(20_010).splitlines())
    assert sorted(subscriber.outputs[1].splitlines()) == sorted(shown.splitlines())
    envelopes = [unwrap(line) for line in printed(start, journal, "--raw").split(b"\n") if line]
    assert len(envelopes) >= 2 * len(set(envelopes)) - 20 - 10, "nothing was published twice"


def test_pub_with_state_publishes_the_same_input_once(start: Start, backbone: RunningBackbone, tmp_path: Path) -> None:
    command = ("fyrehose", "pub", "-b", backbone.text, "--publisher-state", tmp_path / NAME)
    reader = start("fyrehose", "sub", "-b", backbone.text, "--raw", "--format", "json", "--count", 6)
    backbone.wait_for_clients(1)
    for end in (3, 3, 5, 6):
        assert start(*command).finish(lines_of(end)) == 0
    assert reader.finish() == 0
    envelopes = [unwrap(b64decode(json.loads(line)["data"])) for line in reader.out.splitlines()]
    assert [envelope.counter for envelope in envelopes if envelope is not None] == list(range(6))
    assert len({envelope.publisher for envelope in envelopes if envelope is not None}) == 1


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"line 0\nline one\nline 2\n", "the first 3 lines are not those that were published"),
        (lines_of(2), "the input has 2 lines, and 3 lines of it were published"),
    ],
)
def test_pub_with_state_refuses_another_input(
    start: Start, backbone: RunningBackbone, tmp_path: Path, data: bytes, complaint: str
) -> None:
    command = ("fyrehose", "pub", "-b", backbone.text, "--publisher-state", tmp_path / NAME)
    reader = start("fyrehose", "sub", "-b", backbone.text, "--count", 4)
    backbone.wait_for_clients(1)
    assert start(*command).finish(lines_of(3)) == 0
    other = start(*command)
    assert other.finish(data) == 1
    assert f"state file {tmp_path / NAME} does not fit the input: {complaint}" in other.err
    assert start(*command).finish(lines_of(4)) == 0
    assert reader.finish() == 0
    assert reader.outputs[1] == lines_of(4)


def test_pub_with_state_stops_at_a_line_it_cannot_publish(
    start: Start, backbone: RunningBackbone, tmp_path: Path
) -> None:
    command = ("fyrehose", "pub", "-b", backbone.text, "--publisher-state", tmp_path / NAME)
    reader = start("fyrehose", "sub", "-b", backbone.text, "--count", 3)
    backbone.wait_for_clients(1)
    stopped = start(*command)
    assert stopped.finish(lines_of(1) + b"x" * 70_000 + b"\n" + lines_of(2, 3)) == 1
    assert "line 2: " in stopped.err
    assert start(*command).finish(lines_of(3)) == 0
    assert reader.finish() == 0
    assert reader.outputs[1] == lines_of(3)


def test_two_publishers_cannot_share_a_state_file(start: Start, backbone: RunningBackbone, tmp_path: Path) -> None:
    command = ("fyrehose", "pub", "-b", backbone.text, "--publisher-state", tmp_path / NAME)
    first = start(*command)
    backbone.wait_for_clients(1)
    second = start(*command)
    assert second.finish() == 1
    assert "is in use by another publisher" in second.err
    assert first.signal(signal.SIGINT).process.wait(60) == 1
    raw = start(*command, "--raw")
    assert raw.finish() == 2
    assert "--raw: not allowed with argument --publisher-state" in raw.err
