"""Resumption of `fyrehose sub --state FILE`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from integration.running.backbone import MakePeer, RunningBackbone
from integration.running.programs import Program, Start

from fyrehose_twisted.fyrehose.service.position_file import PositionFile
from fyrehose_twisted.fyrehose.wire.envelope import wrap


@pytest.fixture
def keeper(start: Start, backbone: RunningBackbone) -> Any:
    """Return a subscriber that holds all messages for late subscribers."""
    keeper = start("fyrehose", "sub", "-b", backbone.text)
    backbone.wait_for_clients(1)
    return keeper


def publish(start: Start, backbone: RunningBackbone, first: int, last: int) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(first, last + 1))
    assert start("fyrehose", "pub", "-b", backbone.text).finish(lines) == 0


def publish_on(start: Start, backbone: RunningBackbone, path: Path, first: int, last: int) -> Any:
    """Publish as :func:`publish` does, without waiting."""
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(first, last + 1)))
    return start("fyrehose", "pub", "-b", backbone.text, path)


def numbers(program: Program) -> list[int]:
    whole = program.outputs[1].rpartition(b"\n")[0]
    return [int(line.split()[1]) for line in whole.splitlines()]


def test_sub_with_state_prints_each_message_once_after_clean_exits(
    start: Start, backbone: RunningBackbone, keeper: Program, tmp_path: Path
) -> None:
    command = ("fyrehose", "sub", "-b", backbone.text, "--from", "oldest", "--state", tmp_path / "state")
    publish(start, backbone, 1, 500)
    printed: list[int] = []
    for count in (1, 99, 250):
        subscriber = start(*command, "--count", count)
        assert subscriber.finish() == 0
        printed += numbers(subscriber)
    assert printed == list(range(1, 351))
    subscriber = start(*command)
    subscriber.wait_for("line 500\n")
    assert subscriber.signal(signal.SIGTERM).finish() == 0
    publish(start, backbone, 501, 510)
    last = start(*command, "--count", 10)
    assert last.finish() == 0
    assert printed + numbers(subscriber) + numbers(last) == list(range(1, 511))


@pytest.mark.extended
def test_repeatedly_killed_sub_with_state_prints_every_message(
    start: Start, backbone: RunningBackbone, keeper: Program, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    printed: set[int] = set()
    due = 1
    for turn in range(1, 6):
        subscriber = start("fyrehose", "sub", "-b", backbone.text, "--from", "oldest", "--state", state)
        publisher = publish_on(start, backbone, tmp_path / "lines", 1_000 * turn - 999, 1_000 * turn)
        subscriber.wait_for(f"line {1_000 * turn - 500}\n")
        subscriber.process.kill()
        subscriber.process.wait(60)
        assert publisher.finish() == 0
        found = numbers(subscriber)
        assert found == list(range(due, found[-1] + 1)), "it goes on where the state says"
        printed.update(found)
        file = PositionFile(state)
        due = 1 if file.position is None else file.position.next
        file.close()
        assert due <= found[-1] + 2, "what was not printed counts as printed; the last line may be cut"
    publish(start, backbone, 5_001, 5_001)
    rest = start("fyrehose", "sub", "-b", backbone.text, "--state", state, "--from", "oldest")
    rest.wait_for("line 5001\n")
    assert rest.signal(signal.SIGINT).finish() == 0
    assert printed | set(numbers(rest)) == set(range(1, 5_002))


def test_sub_with_state_omits_a_repeat_of_an_earlier_run(
    start: Start, backbone: RunningBackbone, peer: MakePeer, tmp_path: Path
) -> None:
    command = ("fyrehose", "sub", "-b", backbone.text, "--from", "oldest", "--state", tmp_path / "state")
    keeper = start("fyrehose", "sub", "-b", backbone.text)
    backbone.wait_for_clients(1)
    publisher = peer(backbone)
    publisher.publish(wrap(b"someones", 0, b"one"), wrap(b"someones", 1, b"two"))
    keeper.wait_for("two\n")
    assert start(*command, "--count", 2).finish() == 0
    publisher.publish(wrap(b"someones", 0, b"one"), wrap(b"someones", 2, b"three"))
    keeper.wait_for("three\n")
    later = start(*command, "--count", 1)
    assert later.finish() == 0
    assert later.out == "three\n"


def test_sub_refuses_the_state_of_another_stream(
    start: Start, backbone: RunningBackbone, keeper: Program, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    command = ("fyrehose", "sub", "-b", backbone.text, "--from", "oldest", "--state", state)
    publish(start, backbone, 1, 20)
    keeper.wait_for("line 20\n")
    assert start(*command, "--count", 10).finish() == 0
    file = PositionFile(state)
    assert file.position is not None
    file.write(file.position._replace(checksum=1))
    file.close()
    other = start(*command, "--count", 1)
    assert (other.finish(), other.out) == (1, "")
    assert f"state file {state} does not belong to the stream of " in other.err
    assert "message 10 is different" in other.err

    file = PositionFile(state)
    file.write(file.position._replace(next=1_000, checksum=None))
    file.close()
    ahead = start(*command, "--count", 1)
    assert (ahead.finish(), ahead.out) == (1, "")
    assert "its numbers end at 20, and 999 was printed before" in ahead.err


def test_two_subscribers_cannot_share_a_state_file(start: Start, backbone: RunningBackbone, tmp_path: Path) -> None:
    command = ("fyrehose", "sub", "-b", backbone.text, "--state", tmp_path / "state")
    first = start(*command)
    backbone.wait_for_clients(1)
    second = start(*command)
    assert second.finish() == 1
    assert (
        second.err
        == f"fyrehose: state file {tmp_path / 'state'} is in use by another subscriber; give each its own --state\n"
    )
    assert first.signal(signal.SIGTERM).finish() == 0
