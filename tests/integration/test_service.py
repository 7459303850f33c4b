"""Start, refused start and stop of the services."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import pytest_twisted
from integration.running.backbone import MakePeer, RunningBackbone, StartBackbone
from integration.running.programs import Start
from twisted.python.usage import UsageError

from fyrehose_twisted.fyrehose.service import backbone_tap, client_tap
from fyrehose_twisted.fyrehose.service.state_file import SequenceFile

SUBSCRIBER = "fyrehose_twisted.fyrehose.protocol.client.SubscriberProtocol"


@pytest.fixture
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "open").write_text("a secret that is long enough")
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "short").write_text("short")
    (tmp_path / "short").chmod(0o600)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--port banana", r"--port 'banana' is not a whole number"),
        ("--port 65536", r"--port 65536 is outside 0 to 65535"),
        ("--max-clients 0", r"--max-clients 0 is outside 1 to 1000000"),
        ("--start-at 0", r"--start-at 0 is outside 1 to 281474976710655"),
        ("--settle-time soon", r"--settle-time 'soon' is not a number"),
        ("--settle-time nan", r"--settle-time nan: choose 0 to 60 s"),
        ("--name A", r"--name 'A': use lower-case letters"),
        ("--forward all", r"--forward 'all': choose random or round-robin"),
        ("--interface localhost", r"--interface 'localhost' is not an IP address"),
        ("--interface [::1]", r"--interface '\[::1\]' is not an IP address, such as 127.0.0.1, ::1 or ::"),
        ("--interface ::", r"--interface :: is not loopback"),
        ("--interface 2001:db8::1", r"--interface 2001:db8::1 is not loopback"),
        (
            "--interface 0.0.0.0",
            r"--interface 0.0.0.0 is not loopback, .* --secret-file FILE, --allow CIDR, or --open to serve all clients",
        ),
        ("--allow 10.0.0.1/8", r"'10.0.0.1/8' is not a network such as 10.0.0.0/8 or fd00::/8"),
        ("--allow-push x", r"'x' is not a network"),
        ("--state no/where", r"/no is not a directory; create it, or choose another path for where"),
        ("--secret-file none", r"secret file none cannot be read: No such file"),
        ("--secret-file open", r"secret file open is accessible to all users; chmod 600 it"),
        ("--secret-file short", r"secret file short: the secret has 5 bytes; it needs at least 16"),
        ("--protocol no.Where", r"--protocol no.Where cannot be imported: .*; is its directory on PYTHONPATH\?"),
        ("--protocol os.path", r"--protocol os.path is not a subclass of fyrehose_twisted.*BackboneProtocol"),
        (f"--protocol {SUBSCRIBER}", r"--protocol .*SubscriberProtocol is not a subclass of .*BackboneProtocol"),
        ("--systemd push", r"--systemd: systemd passed no socket named push \(it passed none\)"),
        ("--systemd push --port 5", r"--port and --interface do not apply with --systemd"),
        ("--limits none", r"limits file .*none cannot be read: No such file"),
    ],
)
@pytest.mark.usefixtures("in_tmp_path")
def test_invalid_backbone_options_are_refused_in_one_line(arguments: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as refused:
        backbone_tap.Options().parseOptions(arguments.split())
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("", r"--protocol NAME is required: the dotted name of the class to run"),
        ("--protocol no.Where", r"--protocol no.Where cannot be imported"),
        (
            "--protocol fyrehose_twisted.fyrehose.protocol.backbone.BackboneProtocol",
            r"--protocol .*BackboneProtocol is not a subclass of .*ClientProtocol",
        ),
        (f"--protocol {SUBSCRIBER} --backbone here", r"'here' is not HOST:PORT, such as 127.0.0.1:2323"),
        (
            f"--protocol {SUBSCRIBER} --backbone ::1:2323",
            r"'::1:2323' is not HOST:PORT, such as 127.0.0.1:2323 or \[::1\]:2323",
        ),
        (f"--protocol {SUBSCRIBER} --from then", r"start position 'then' is not live, oldest or a number"),
        (f"--protocol {SUBSCRIBER} --from 0", r"start at number 0; numbers go from 1 to"),
        (f"--protocol {SUBSCRIBER} --secret-file short", r"secret file short: the secret has 5 bytes"),
    ],
)
@pytest.mark.usefixtures("in_tmp_path")
def test_invalid_client_options_are_refused_in_one_line(arguments: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as refused:
        client_tap.Options().parseOptions(arguments.split())
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("options", ["--open", "--allow 10.0.0.0/8", "--secret-file secret"])
def test_backbone_on_all_interfaces_accepts_each_protection_option(options: str, in_tmp_path: Path) -> None:
    (in_tmp_path / "secret").write_text("a secret that is long enough")
    (in_tmp_path / "secret").chmod(0o600)
    parsed = backbone_tap.Options()
    parsed.parseOptions(["--interface", "0.0.0.0", *options.split()])
    assert parsed["config"]


def test_secret_is_only_read_from_a_file(start: Start) -> None:
    helped = start("twistd", "fyrehose-backbone", "--help")
    assert helped.finish() == 0
    assert "--secret-file=" in helped.out
    assert "--secret=" not in helped.out


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--interface 0.0.0.0", r"--interface 0.0.0.0 is .* --allow CIDR, or --open to serve all clients"),
        ("--port banana", "--port 'banana' is not a whole number"),
        ("--banana", "option --banana not recognized"),
    ],
)
def test_invalid_option_is_reported_in_one_line_without_the_usage(launch: Start, options: str, problem: str) -> None:
    refused = launch(*options.split())
    assert refused.finish() == 1
    assert re.fullmatch(rf"fyrehose-backbone: {problem}; see twistd fyrehose-backbone --help\n", refused.out)


def test_bind_error_of_a_backbone_does_not_blame_another_backbone(launch: Start) -> None:
    refused = launch("--port", 0, "--interface", "192.0.2.1", "--open")
    assert refused.finish() == 1
    assert refused.out == "fyrehose-backbone: cannot listen on 192.0.2.1:0: Cannot assign requested address\n"


def test_max_subscribers_is_still_accepted_for_max_clients(start: Start, tmp_path: Path) -> None:
    limits = tmp_path / "limits"
    for arguments, limit in ((["--max-subscribers", "7"], 7), (["--max-subscribers=8"], 8), (["-m", "9"], 9)):
        parsed = backbone_tap.Options()
        parsed.parseOptions(arguments)
        assert parsed["config"].max_clients == limit
    limits.write_text("max-subscribers = 10")
    parsed = backbone_tap.Options()
    parsed.parseOptions(["--limits", str(limits)])
    assert parsed["config"].max_clients == 10
    limits.write_text("max-subscribers = 10\nmax-clients = 11")
    with pytest.raises(UsageError, match="max-subscribers is the former name of max-clients; leave it out"):
        backbone_tap.Options().parseOptions(["--limits", str(limits)])
    helped = start("twistd", "fyrehose-backbone", "--help")
    assert helped.finish() == 0
    assert "--max-clients=" in helped.out
    assert "max-subscribers" not in helped.out


@pytest.mark.extended
def test_unusable_state_file_or_port_is_refused_in_one_line(launch: Start, tmp_path: Path) -> None:
    advice = "; restore it, or move it away and start with --start-at N, where N is above every number ever assigned"
    (tmp_path / "empty").touch()
    (tmp_path / "garbage").write_bytes(bytes(range(256)) * 16)
    SequenceFile(tmp_path / "other", "fyrehose://other").close()
    used = SequenceFile(tmp_path / "used", "fyrehose://default")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        refusals = {
            f"state file {tmp_path}/empty is not usable: it is empty{advice}": launch("--port", 0, "--state", "empty"),
            f"state file {tmp_path}/garbage is not usable: it was not written by a backbone (4096 bytes){advice}": (
                launch("--port", 0, "--state", "garbage")
            ),
            f"state file {tmp_path}/other is not usable: it belongs to fyrehose://other, not to fyrehose://default": (
                launch("--port", 0, "--state", "other")
            ),
            f"state file {tmp_path}/used is in use by another backbone; give each its own --state": (
                launch("--port", 0, "--state", "used")
            ),
            "state file /proc/new cannot be created: No such file or directory": (
                launch("--port", 0, "--state", "/proc/new")
            ),
            f"cannot listen on 127.0.0.1:{port}: Address already in use; is another backbone running?": (
                launch("--port", port)
            ),
        }
        for refusal, program in refusals.items():
            assert program.finish() == 1, program
            assert program.out == f"fyrehose-backbone: {refusal}\n"
    used.close()


def test_two_backbones_cannot_share_a_state_file(start_backbone: StartBackbone, launch: Start, tmp_path: Path) -> None:
    start_backbone()
    second = launch("--port", 0)
    assert second.finish() == 1
    assert second.out == (
        f"fyrehose-backbone: state file {tmp_path}/fyrehose-default.state is in use by another backbone;"
        " give each its own --state\n"
    )


def test_backbone_that_cannot_serve_metrics_stops(launch: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        program = launch("--port", 0, "--metrics", f"tcp:{port}")
        assert program.finish() == 1
    assert f"stopping: --metrics: cannot listen on tcp:{port}: Address already in use\n" in program.out
    assert "Traceback" not in program.out


@pytest_twisted.ensureDeferred
async def test_metrics_listen_on_loopback_only(backbone: RunningBackbone) -> None:
    metrics = await backbone.metrics()
    assert metrics["fyrehose_backbone_sequence"] == 0
    url = backbone.program.wait_for(r"metrics at http://([0-9.]+):(\d+)/")
    assert url[1] == "127.0.0.1"
    with socket.socket() as elsewhere, pytest.raises(ConnectionRefusedError):
        elsewhere.connect(("127.0.0.2", int(url[2])))


def wait_for_end_of(running: int) -> None:
    """Wait for the exit of a process that is no child of this one: its descriptor becomes readable."""
    ended = select.poll()
    ended.register(running, select.POLLIN)
    assert ended.poll(120_000)
    os.close(running)


def test_daemon_writes_its_pid_file_and_stops_on_sigterm(
    start: Start, tmp_path: Path, peer: MakePeer, free_port: Callable[[], int]
) -> None:
    port = free_port()
    twistd = ("--pidfile=its.pid", "--logfile=its.log", "fyrehose-backbone", "--port", port, "--settle-time", 0)
    assert start("twistd", *twistd, cwd=tmp_path).finish() == 0
    pid = int((tmp_path / "its.pid").read_text())
    running = os.pidfd_open(pid)
    try:
        # It is bound before the parent exits, so this is answered.
        client = peer(("127.0.0.1", port))
        client.keepalive()
        client.publish(b"data")
        assert client.delivered(1) == [(1, b"data")]
        second = start("twistd", "--pidfile=another.pid", *twistd[1:], cwd=tmp_path)
        assert second.finish() == 1
        assert second.err == (
            f"fyrehose-backbone: cannot listen on 127.0.0.1:{port}: Address already in use;"
            " is another backbone running?\n"
        )
    finally:
        signal.pidfd_send_signal(running, signal.SIGTERM)
    wait_for_end_of(running)
    assert not (tmp_path / "its.pid").exists()
    state = SequenceFile(tmp_path / "fyrehose-default.state", "fyrehose://default")
    assert (state.last, state.hole) == (1, None)
    state.close()


def test_daemon_starts_with_closed_standard_descriptors(
    start: Start, tmp_path: Path, peer: MakePeer, free_port: Callable[[], int]
) -> None:
    port = free_port()
    # If standard input, output and error are closed, the next opened files get their numbers.
    script = 'exec "$@" <&- >&- 2>&-'
    words = (
        "sh",
        "-c",
        script,
        "sh",
        Path(sys.executable).with_name("twistd"),
        "--pidfile=its.pid",
        "--logfile=its.log",
    )
    service = ("fyrehose-backbone", "--port", port, "--settle-time", 0)
    assert start(*words, *service, of_ours=False, cwd=tmp_path).finish() == 0
    pid = int((tmp_path / "its.pid").read_text())
    running = os.pidfd_open(pid)
    try:
        assert [os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)] == ["/dev/null"] * 3
        client = peer(("127.0.0.1", port))
        client.keepalive()
        client.publish(b"data")
        assert client.delivered(1) == [(1, b"data")]
    finally:
        signal.pidfd_send_signal(running, signal.SIGTERM)
    wait_for_end_of(running)
    state = SequenceFile(tmp_path / "fyrehose-default.state", "fyrehose://default")
    assert (state.last, state.hole) == (1, None)
    state.close()


APPLICATION = """
from fyrehose_twisted.fyrehose.protocol import BackboneProtocol, PublisherProtocol

class Backbone(BackboneProtocol):
    def client_joined(self, address):
        print("application: joined", flush=True)
        raise RuntimeError("an application may be wrong")

class Client(PublisherProtocol):
    def backbone_connected(self):
        self.publish(b"of an application")

    def messages_received(self, messages):
        for message in messages:
            print("application:", message.sequence, message.data, flush=True)
"""


def test_services_run_the_protocol_classes_of_an_application(
    start: Start, start_backbone: StartBackbone, tmp_path: Path
) -> None:
    (tmp_path / "application.py").write_text(APPLICATION)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    backbone = start_backbone("--protocol", "application.Backbone", env=environment)
    client = start(
        *("twistd", "-n", "--pidfile=", "fyrehose-client", "--protocol", "application.Client", "-b", backbone.text),
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.STDOUT,
    )
    client.wait_for(r"application: 1 b'of an application'")
    backbone.program.wait_for(r"application: joined")
    backbone.program.wait_for(r"RuntimeError: an application may be wrong")
    assert client.signal(signal.SIGTERM).finish() == -signal.SIGTERM
    assert "Traceback" not in client.out
    assert backbone.program.process.poll() is None


def test_client_with_a_port_in_use_fails_to_start(start: Start, tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        client = start(
            *("twistd", "-n", "--pidfile=", "fyrehose-client", "--protocol", SUBSCRIBER, "--port", port),
            cwd=tmp_path,
            stderr=subprocess.STDOUT,
        )
        assert client.finish() == 1
    assert client.out.count("stopping: ") == 1
    assert f"stopping: cannot listen on 127.0.0.1:{port}: Address already in use\n" in client.out
    assert "Traceback" not in client.out
