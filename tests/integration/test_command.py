from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from integration.running.backbone import MakePeer, RunningBackbone
from integration.running.programs import Program, Start

from fyrehose_twisted.fyrehose.wire.packets import Flags, Keepalive

PROGRESS = re.compile(r"\s*published: +\d+ messages \[[^]]*\]\s*")

MESSAGES = [b"one", b"", b"\xff\x00\r binary", b"last, no newline", b"of a file", b"of a redirection"]


def complaints(program: Program) -> list[str]:
    """Return standard error without the progress bar."""
    return [line for line in re.split(r"[\r\n]", program.err) if line.strip() and not PROGRESS.fullmatch(line)]


@pytest.mark.extended
def test_published_messages_are_printed_by_all_subscribers(
    start: Start, backbone: RunningBackbone, tmp_path: Path
) -> None:
    to = ("-b", backbone.text)
    journal = start("fyrehose", "sub", *to)
    lines = start("fyrehose", "sub", *to, "--count", 6)
    objects = start("fyrehose", "sub", *to, "--count", 6, "--format", "json")
    backbone.wait_for_clients(3)
    file = tmp_path / "file"

    assert start("fyrehose", "pub", *to).finish(b"one\n\n\xff\x00\r binary\nlast, no newline") == 0
    file.write_bytes(b"of a file\n")
    assert start("fyrehose", "pub", *to, file).finish() == 0
    file.write_bytes(b"of a redirection")
    with file.open("rb") as redirected:
        publisher = start("fyrehose", "pub", *to, stdin=redirected)
        nothing = start("fyrehose", "pub", *to, stdin=subprocess.DEVNULL)
        assert publisher.finish() == nothing.finish() == 0
    for silent in (publisher, nothing):
        assert silent.out == ""
        assert complaints(silent) == []
        assert silent.err == ""

    assert lines.finish() == objects.finish() == 0
    assert lines.outputs[1] == b"".join(message + b"\n" for message in MESSAGES)
    assert lines.err == objects.err == ""
    found = [json.loads(line) for line in objects.out.splitlines()]
    assert [item["sequence"] for item in found] == [1, 2, 3, 4, 5, 6]
    assert [item["data"] for item in found] == ["one", "", "/wANIGJpbmFyeQ==", *(m.decode() for m in MESSAGES[3:])]
    assert [item.get("encoding") for item in found] == [None, None, "base64", None, None, None]

    # In sequence, since a subscriber that joins at the same time may be asked for repairs and holds less.
    oldest = start("fyrehose", "sub", *to, "--from", "oldest", "--count", 6)
    assert oldest.finish() == 0
    fifth = start("fyrehose", "sub", *to, "--from", 5, "--count", 2)
    assert fifth.finish() == 0
    assert oldest.outputs[1] == lines.outputs[1]
    assert fifth.out == "of a file\nof a redirection\n"
    assert journal.process.poll() is None


def test_ping_reports_round_trip_times(start: Start, backbone: RunningBackbone) -> None:
    pinger = start("fyrehose", "ping", "-b", backbone.text, "--count", 3, "--interval", 0.1)
    assert pinger.finish() == 0
    assert pinger.out.startswith(f"3 of 3 answered by {backbone.text}, round trip in ms: min ")
    assert pinger.err == ""


def test_sigint_ends_commands_cleanly(start: Start, backbone: RunningBackbone, peer: MakePeer) -> None:
    silent = peer(("127.0.0.1", 1))
    nowhere = f"127.0.0.1:{silent.address[1]}"
    joining = start("fyrehose", "sub", "-b", nowhere)
    assert isinstance(silent.receive(), Keepalive)
    assert joining.signal(signal.SIGINT).finish() == 1
    assert joining.err == "fyrehose: interrupted\n"

    subscriber = start("fyrehose", "sub", "-b", backbone.text)
    backbone.wait_for_clients(1)
    publisher = start("fyrehose", "pub", "-b", backbone.text)
    publisher.write(b"a\n")
    subscriber.wait_for("a\n")
    publisher.signal(signal.SIGINT).process.wait(120)
    assert publisher.finish() == 1
    assert len(complaints(publisher)) == 1
    assert complaints(publisher)[0].endswith(" of 1 message not published: interrupted")
    assert subscriber.signal(signal.SIGINT).finish() == 0
    assert subscriber.err == ""


def test_closed_output_ends_a_subscription(start: Start, backbone: RunningBackbone, peer: MakePeer) -> None:
    reading, writing = os.pipe()
    subscriber = start("fyrehose", "sub", "-b", backbone.text, stdout=writing)
    os.close(writing)
    backbone.wait_for_clients(1)
    publisher = peer(backbone)
    publisher.publish(b"first", b"second")
    with open(reading, "rb", buffering=0) as pipe:
        assert pipe.read(6) == b"first\n"
    publisher.publish(b"third")
    assert subscriber.finish() == 0
    assert subscriber.err == ""


def test_slow_output_reader_receives_every_message(start: Start, backbone: RunningBackbone, peer: MakePeer) -> None:
    reading, writing = os.pipe()
    subscriber = start("fyrehose", "sub", "-b", backbone.text, "--count", 64, stdout=writing)
    os.close(writing)
    backbone.wait_for_clients(1)
    publisher = peer(backbone)
    for number in range(64):
        publisher.publish(b"%02d" % number + bytes(8_000))
        publisher.keepalive(3)
    backbone.program.wait_for("joined", times=2)
    with open(reading, "rb") as pipe:
        found = pipe.read()
    assert [line[:2] for line in found.splitlines()] == [b"%02d" % number for number in range(64)]
    assert len(found) == 64 * 8_003
    assert subscriber.finish() == 0


def test_unreachable_backbone_is_reported_in_one_line(start: Start, peer: MakePeer) -> None:
    silent = peer(("127.0.0.1", 1))
    nowhere = f"127.0.0.1:{silent.address[1]}"
    commands = [start("fyrehose", name, "-b", nowhere, "--connect-timeout", 0.3) for name in ("pub", "sub", "ping")]
    for command in commands:
        assert command.finish() == 1
        assert command.err == (
            f"fyrehose: backbone {nowhere} did not answer within 0.3 s;"
            " is it running, does it need a secret, and does it admit this address?\n"
        )
        assert command.out == ""


def test_oversize_line_is_reported_and_not_published(start: Start, backbone: RunningBackbone) -> None:
    subscriber = start("fyrehose", "sub", "-b", backbone.text, "--count", 3)
    backbone.wait_for_clients(1)
    publisher = start("fyrehose", "pub", "-b", backbone.text)
    assert publisher.finish(b"a\n" + bytes(200_000) + b"\n" + b"x" * 65_478 + b"\n" + bytes(65_479) + b"\nb") == 1
    assert complaints(publisher) == [
        "fyrehose: 2 of 5 messages not published: line 2: message of 200,000 bytes is over the limit of 65,478 bytes;"
        " split it or send a reference"
    ]
    assert subscriber.finish() == 0
    assert subscriber.out == "a\n" + "x" * 65_478 + "\nb\n"


def test_killed_backbone_makes_pub_fail(start: Start, backbone: RunningBackbone, peer: MakePeer) -> None:
    publisher = start("fyrehose", "pub", "-b", backbone.text, "--timeout", 0.5)
    subscriber = peer(backbone)
    subscriber.keepalive()
    publisher.write(b"a\n")
    subscriber.delivered(1)
    backbone.kill()
    assert publisher.finish(b"b\nc\n") == 1
    (complaint,) = complaints(publisher)
    # It depends on the kernel whether the first message returned in time.
    assert re.fullmatch(
        r"fyrehose: [23] of 3 messages not published: the backbone did not confirm the message within 0.5 s",
        complaint,
    )


@pytest.mark.extended
def test_unusable_input_or_output_is_reported_in_one_line(
    start: Start, backbone: RunningBackbone, peer: MakePeer, tmp_path: Path
) -> None:
    to = ("-b", backbone.text)
    secret = tmp_path / "secret"
    secret.write_text("too short")
    secret.chmod(0o600)
    with open("/dev/full", "wb") as full:
        commands = {
            f"fyrehose: {tmp_path}: it is a directory": start("fyrehose", "pub", *to, tmp_path),
            "fyrehose: none: No such file or directory": start("fyrehose", "pub", *to, "none"),
            "fyrehose: secret file none cannot be read: No such file or directory": start(
                "fyrehose", "sub", *to, "--secret-file", "none"
            ),
            f"fyrehose: secret file {secret}: the secret has 9 bytes; it needs at least 16": start(
                "fyrehose", "ping", *to, "--secret-file", secret
            ),
            "fyrehose: 'nowhere' is not HOST:PORT, such as 127.0.0.1:2323 or [::1]:2323": start(
                "fyrehose", "sub", "-b", "nowhere"
            ),
            "fyrehose: standard output takes no more; is the disk full?": start("fyrehose", "sub", *to, stdout=full),
            "fyrehose: standard input: it is closed": start(
                "fyrehose", "pub", *to, stdin=None, preexec_fn=lambda: os.close(0)
            ),
            "fyrehose: standard output: it is closed": start(
                "fyrehose", "sub", *to, stdout=None, preexec_fn=lambda: os.close(1)
            ),
        }
    backbone.wait_for_clients(1)
    peer(backbone).publish(b"for /dev/full")
    for complaint, command in commands.items():
        assert command.finish() == 1, command
        assert complaints(command) == [complaint]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("sub --count 0", "argument --count: '0' is not a whole number above 0"),
        ("sub --count x", "argument --count: 'x' is not a whole number above 0"),
        ("sub --from x", "argument --from: start position 'x' is not live, oldest or a number"),
        ("pub --timeout nan", "argument --timeout: 'nan' is not a time above 0"),
        ("ping --interval 2", "argument --interval: '2' is outside 0.1 to 0.9"),
        ("ping --connect-timeout x", "argument --connect-timeout: 'x' is not a number of seconds"),
    ],
)
def test_invalid_arguments_are_refused_with_exit_status_2(
    arguments: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from fyrehose_twisted.cli.main import main

    with pytest.raises(SystemExit) as stopped:
        main(arguments.split())
    assert stopped.value.code == 2
    assert capsys.readouterr().err.splitlines()[0].partition(": ")[2].startswith(f"{complaint}; see fyrehose ")


def test_commands_send_a_keepalive_first(start: Start, peer: MakePeer) -> None:
    silent = peer(("127.0.0.1", 1))
    start("fyrehose", "ping", "-b", f"127.0.0.1:{silent.address[1]}")
    packet = silent.receive()
    assert isinstance(packet, Keepalive)
    assert packet.flags == Flags.NOSUBSCRIBE | Flags.NOJOURNAL | Flags.EXTENSIONS | Flags.IPV4
