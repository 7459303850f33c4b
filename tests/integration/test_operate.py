"""Services under a supervisor: reloaded limits, and sockets that outlive the process."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from integration.running.backbone import MakePeer, StartBackbone
from integration.running.journal import Check, StartJournal, StartLoad
from integration.running.programs import Start

from fyrehose_twisted.fyrehose.wire.packets import Deliver

AS_SYSTEMD = """
import os, sys
descriptor, name, *command = sys.argv[1:]
os.dup2(int(descriptor), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES=name)
os.execv(command[0], command)
"""


def passed(descriptor: int, name: str) -> tuple[list[str], dict[str, Any]]:
    """Return a command that starts a program like systemd, with a socket as descriptor 3."""
    words = [sys.executable, "-c", AS_SYSTEMD, str(descriptor), name]
    return words, {"pass_fds": (descriptor,)}


def test_limits_are_reloaded_on_sighup(start_backbone: StartBackbone, peer: MakePeer, tmp_path: Path) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text("max-clients = 1\n")
    backbone = start_backbone("--limits", limits)
    first, second = peer(backbone), peer(backbone)
    first.keepalive()
    second.refused()
    backbone.program.wait_for(r"dropped \(table_full\)")
    limits.write_text("max-clients = 2\n")
    backbone.program.signal(signal.SIGHUP).wait_for("SIGHUP: max-clients 1 -> 2")
    second.keepalive()
    limits.write_text("max-clients = 0\n")
    backbone.program.signal(signal.SIGHUP).wait_for("SIGHUP: no setting changed: .* max-clients is a whole number")
    first.keepalive()
    second.keepalive()
    backbone.stop()


def test_sighup_without_a_limits_file_is_ignored(start_backbone: StartBackbone) -> None:
    backbone = start_backbone()
    backbone.program.signal(signal.SIGHUP).wait_for("SIGHUP: there is nothing to reload")
    backbone.stop()


def test_messages_pushed_during_a_restart_with_a_passed_socket_are_not_lost(
    start: Start, peer: MakePeer, tmp_path: Path
) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as bound:
        bound.bind(("127.0.0.1", 0))
        words, options = passed(bound.fileno(), "push")
        twistd = str(Path(sys.executable).with_name("twistd"))
        service = ["fyrehose-backbone", "--systemd=push", f"--state={tmp_path / 'state'}", "--settle-time=0"]

        def started() -> Any:
            program = start(*words, twistd, "--nodaemon", "--pidfile=", *service, of_ours=False, **options)
            place = program.wait_for(r"listening on 127.0.0.1:(\d+)")
            assert int(place[1]) == bound.getsockname()[1]
            return program

        def numbered(data: bytes) -> int:
            """Publish and return the sequence number."""
            client = peer(bound.getsockname())
            client.keepalive()
            client.publish(data)
            delivered = client.receive()
            assert isinstance(delivered, Deliver)
            return delivered.sequence

        program = started()
        assert numbered(b"one") == 1
        program.signal(signal.SIGTERM).finish()
        assert "Server Shut Down" in program.out + program.err
        pusher = peer(bound.getsockname())
        pusher.publish(*[b"while it is away"] * 5)
        program = started()
        assert numbered(b"two") == 7
        program.signal(signal.SIGTERM).finish()
        assert "Server Shut Down" in program.out + program.err


@pytest.mark.extended
def test_backbone_restarted_under_load_leaves_no_gap(
    start_backbone: StartBackbone,
    start_journal: StartJournal,
    load: StartLoad,
    check: Check,
    free_port: Callable[[], int],
) -> None:
    backbone = start_backbone("--metrics", "tcp:0", port=free_port())
    journal = start_journal(backbone, "journal")
    backbone.wait_for_clients(1)
    publishing = load(backbone)
    journal.wait_for(1_000)
    backbone.stop()
    before = journal.bounds().last
    backbone = start_backbone("--metrics", "tcp:0", port=backbone.address[1], settle=2)
    assert "the last stop left no exact record" not in backbone.program.out
    journal.wait_for(before + 1_000)
    publishing.finish()
    last = backbone.sequence
    journal.wait_for(last)
    journal.stop()
    assert [number for number, _ in journal.records()] == list(range(1, last + 1))
    publishing.check(journal.lines())
    check(journal)
    backbone.stop()


def test_missing_systemd_socket_is_reported(start: Start, tmp_path: Path) -> None:
    for option in ("--systemd=push", "--metrics=systemd:domain=INET:name=metrics"):
        program = start(
            "twistd",
            "--nodaemon",
            "--pidfile=",
            "fyrehose-backbone",
            "--port=0",
            f"--state={tmp_path / 'state'}",
            option,
        )
        assert program.finish() == 1
        said = program.out + program.err
        assert "systemd" in said
        assert "Traceback" not in said
