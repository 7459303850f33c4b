"""Relays in processes of their own: trees, several parents, and clients that never hear of the backbone."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from integration.running.backbone import RunningBackbone, check_received, publish
from integration.running.journal import StartJournal
from integration.running.programs import Program, Start

COUNT = 3_000
LINES = b"".join(b"message %d\n" % number for number in range(COUNT))

StartRelayService = Callable[..., RunningBackbone]


@pytest.fixture
def start_relay(start: Start, free_port: Callable[[], int], tmp_path: Path) -> StartRelayService:
    """Start a relay of ``parents`` and wait until it follows one of them."""

    def started(
        *parents: RunningBackbone | str, options: tuple[object, ...] = (), waits: bool = True
    ) -> RunningBackbone:
        names = [one if isinstance(one, str) else one.text for one in parents]
        words = ("--listen", f"udp:{free_port()}", *(word for name in names for word in ("--backbone", name)), *options)
        program = start(
            *("twistd", "-n", "--pidfile=", "fyrehose-relay", *words), cwd=tmp_path, stderr=subprocess.STDOUT
        )
        relay = RunningBackbone(program)
        if waits:
            program.wait_for("following parent")
        return relay

    return started


def subscribe(start: Start, *backbones: RunningBackbone, options: tuple[object, ...] = ()) -> Program:
    program = start("fyrehose", "sub", "-b", ",".join(one.text for one in backbones), *options)
    backbones[0].wait_for_clients(1)
    return program


def test_a_chain_of_relays_passes_everything_up_and_down(
    start: Start, backbone: RunningBackbone, start_relay: StartRelayService
) -> None:
    first = start_relay(backbone)
    second = start_relay(first)
    third = start_relay(second)
    near = start("fyrehose", "sub", "-b", backbone.text)
    backbone.wait_for_clients(2)
    far = subscribe(start, third)
    publish(start, third, LINES)
    check_received(near, LINES)
    check_received(far, LINES)
    late = start("fyrehose", "sub", "-b", third.text, "--from", "oldest")
    check_received(late, LINES)
    for relay in (third, second, first):
        relay.stop()


@pytest.mark.extended
def test_a_subscriber_of_two_relays_misses_nothing_when_one_is_killed(
    start: Start, backbone: RunningBackbone, start_relay: StartRelayService
) -> None:
    relays = [start_relay(backbone), start_relay(backbone)]
    subscriber = start("fyrehose", "sub", "-b", ",".join(one.text for one in relays))
    for one in relays:
        one.wait_for_clients(1)
    publish(start, backbone, LINES)
    relays[0].kill()
    publish(start, backbone, LINES.replace(b"message", b"another"))
    relays[1].kill()
    survivor = start_relay(backbone, options=("--port", relays[1].address[1]), waits=False)
    survivor.program.wait_for("following parent")
    check_received(subscriber, LINES + LINES.replace(b"message", b"another"))


@pytest.mark.extended
def test_a_relay_of_two_others_takes_the_second_when_the_first_falls_silent(
    start: Start, backbone: RunningBackbone, start_relay: StartRelayService
) -> None:
    parents = [start_relay(backbone), start_relay(backbone)]
    relay = start_relay(*parents)
    subscriber = subscribe(start, relay)
    followed = relay.program.wait_for(r"following parent (\S+)")[1]
    publish(start, backbone, b"before\n")
    first, second = parents if followed == parents[0].text else parents[::-1]
    first.program.signal(signal.SIGSTOP)
    try:
        publish(start, backbone, b"during\n")
        relay.program.wait_for(f"following parent {second.text}")
        check_received(subscriber, b"before\nduring\n")
        publish(start, relay, b"after\n")
        check_received(subscriber, b"before\nduring\nafter\n")
    finally:
        first.program.signal(signal.SIGCONT)


def test_messages_of_a_relays_publisher_are_kept_by_journals_at_the_backbone(
    start: Start, backbone: RunningBackbone, start_relay: StartRelayService, start_journal: StartJournal
) -> None:
    journal = start_journal(backbone, "journal")
    backbone.wait_for_clients(1)
    relay = start_relay(start_relay(backbone))
    publish(start, relay, LINES, "--kept", 1)
    journal.kill()
    assert sorted(journal.lines()) == sorted(LINES.splitlines())


@pytest.mark.extended
def test_what_left_all_memories_comes_from_a_journal_at_the_backbone(
    start: Start,
    start_backbone: Callable[..., RunningBackbone],
    start_relay: StartRelayService,
    start_journal: StartJournal,
) -> None:
    backbone = start_backbone("--retransmit", 0)
    start_journal(backbone, "journal")
    backbone.wait_for_clients(1)
    relay = start_relay(start_relay(backbone, options=("--retransmit", 0)), options=("--retransmit", 0))
    publish(start, relay, LINES, "--kept", 1)
    check_received(start("fyrehose", "sub", "-b", relay.text, "--from", "oldest"), LINES)


@pytest.mark.extended
def test_a_journal_below_a_relay_serves_its_other_clients_through_it(
    start: Start,
    start_backbone: Callable[..., RunningBackbone],
    start_relay: StartRelayService,
    start_journal: StartJournal,
) -> None:
    backbone = start_backbone("--retransmit", 0)
    relay = start_relay(backbone, options=("--retransmit", 0, "--answer-repairs"))
    start_journal(relay, "journal")
    relay.wait_for_clients(1)
    publish(start, relay, LINES, "--kept", 1)
    check_received(start("fyrehose", "sub", "-b", relay.text, "--from", "1"), LINES)


def test_a_relay_has_a_secret_for_each_side(
    start: Start, start_backbone: Callable[..., RunningBackbone], start_relay: StartRelayService, tmp_path: Path
) -> None:
    for name in ("above", "below"):
        (tmp_path / name).write_text(f"{name}, and some more characters\n")
        (tmp_path / name).chmod(0o600)
    backbone = start_backbone("--secret-file", tmp_path / "above")
    options = ("--secret-file", tmp_path / "below", "--backbone-secret-file", tmp_path / "above")
    relay = start_relay(backbone, options=options)
    subscriber = subscribe(start, relay, options=("--secret-file", tmp_path / "below"))
    refused = start("fyrehose", "pub", "-b", relay.text, "--secret-file", tmp_path / "above", "--timeout", 1)
    assert refused.finish(b"no\n") == 1
    publish(start, relay, b"yes\n", "--secret-file", tmp_path / "below")
    check_received(subscriber, b"yes\n")


def test_a_relay_serves_clients_of_the_other_ip_version(
    start: Start, backbone: RunningBackbone, free_port: Callable[[], int], tmp_path: Path
) -> None:
    place = f"[::1]:{free_port()}"
    listen = rf"udp:{place.rpartition(':')[2]}:interface=\:\:1"
    program = start(
        *("twistd", "-n", "--pidfile=", "fyrehose-relay", "--backbone", backbone.text, "--listen", listen),
        cwd=tmp_path,
        stderr=subprocess.STDOUT,
    )
    program.wait_for("following parent")
    subscriber = start("fyrehose", "sub", "-b", place)
    program.wait_for("client .* joined")
    publisher = start("fyrehose", "pub", "-b", place)
    assert publisher.finish(LINES) == 0, publisher
    check_received(subscriber, LINES)


def test_a_relay_says_that_its_parent_does_not_answer(
    start_relay: StartRelayService, free_port: Callable[[], int]
) -> None:
    place = f"127.0.0.1:{free_port()}"
    relay = start_relay(place, waits=False)
    relay.program.wait_for(f"{place} has not answered for 5 s; is it running")
    relay.stop()
