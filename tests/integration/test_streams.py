"""Several streams in one backbone process."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest
from integration.running.programs import DEADLINE, Program, Start
from prometheus_client.parser import text_string_to_metric_families
from twisted.python.usage import UsageError

from fyrehose_twisted.fyrehose.service import backbone_tap
from fyrehose_twisted.query.monitoring.backbone_clients import clients_url

StartStreams = Callable[..., Program]


@pytest.fixture
def start_streams(start: Start, tmp_path: Path) -> StartStreams:
    """Return a function that runs a backbone with the streams ``ticks`` and ``news``."""

    def started(*options: object) -> Program:
        streams = ("--stream", "ticks:0", "--stream", "news:0", "--settle-time", 0, "--metrics", "tcp:0")
        command = ("twistd", "-n", "--pidfile=", "fyrehose-backbone", *streams, *options)
        program = start(*command, cwd=tmp_path, stderr=subprocess.STDOUT)
        program.wait_for(r"metrics at")
        return program

    return started


def address(program: Program, stream: str) -> str:
    return program.wait_for(rf"fyrehose://{stream} is at (127\.0\.0\.1:\d+)")[1]


def page(program: Program, path: str) -> str:
    url = program.wait_for(r"metrics at (http://[^/]+)/")[1]
    with build_opener(ProxyHandler({})).open(url + path, timeout=DEADLINE) as response:
        return str(response.read().decode())


def published(text: str) -> dict[str | None, float]:
    """Return the number of published messages by the label ``stream``."""
    return {
        sample.labels.get("stream"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "fyrehose_backbone_published_total"
    }


def publish(start: Start, place: str, text: bytes) -> None:
    publisher = start("fyrehose", "pub", "-b", place)
    assert publisher.finish(text) == 0, publisher


def test_streams_of_one_process_are_numbered_apart(start: Start, start_streams: StartStreams) -> None:
    backbone = start_streams()
    ticks, news = address(backbone, "ticks"), address(backbone, "news")
    readers = [start("fyrehose", "sub", "-b", place, "--count", 2) for place in (ticks, news)]
    backbone.wait_for(r"client [0-9.:]+ joined", times=2)
    publish(start, ticks, b"tick 1\ntick 2\ntick 3\n")
    publish(start, news, b"news 1\nnews 2\n")
    assert [reader.finish() for reader in readers] == [0, 0]
    assert [reader.out for reader in readers] == ["tick 1\ntick 2\n", "news 1\nnews 2\n"]
    assert published(page(backbone, "/metrics")) == {"fyrehose://ticks": 3, "fyrehose://news": 2}
    assert published(page(backbone, "/streams/news/metrics")) == {None: 2}
    assert json.loads(page(backbone, "/streams/ticks/clients"))["last"] == 3
    families = [line.split()[2] for line in page(backbone, "/metrics").splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families)) > 20


def test_each_stream_continues_after_a_restart(start: Start, start_streams: StartStreams, tmp_path: Path) -> None:
    (tmp_path / "states").mkdir()
    backbone = start_streams("--state", "states")
    publish(start, address(backbone, "ticks"), b"1\n2\n3\n")
    publish(start, address(backbone, "news"), b"1\n")
    assert backbone.signal(signal.SIGTERM).finish() == -signal.SIGTERM
    assert sorted(path.name for path in (tmp_path / "states").iterdir()) == [
        "fyrehose-news.state",
        "fyrehose-ticks.state",
    ]
    again = start_streams("--state", "states")
    last = {name: json.loads(page(again, f"/streams/{name}/clients"))["last"] for name in ("ticks", "news")}
    assert last == {"ticks": 3, "news": 1}
    assert "Traceback" not in backbone.out + again.out


def test_limits_are_reloaded_for_all_streams(start_streams: StartStreams, tmp_path: Path) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text("max-clients = 7\n")
    backbone = start_streams("--limits", limits)
    limits.write_text("max-clients = 9\n")
    backbone.signal(signal.SIGHUP)
    backbone.wait_for(r"SIGHUP: max-clients 7 -> 9", times=2)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--stream ticks", "--stream 'ticks' is not NAME:PORT"),
        ("--stream ticks:70000", "--stream 'ticks:70000' is not NAME:PORT"),
        ("--stream A:1", "--stream 'A': use lower-case letters"),
        ("--stream a:1 --stream a:2", "--stream a is given twice"),
        ("--stream a:1 --stream b:1", "--stream b:1: another stream has this port"),
        ("--stream a:1 --name b", "--name does not apply with --stream"),
        ("--stream a:1 --port 5", "--port does not apply with --stream"),
        ("--stream a:1 --start-at 5", "--start-at does not apply with --stream"),
        ("--stream a:1 --member b", "--member does not apply with --stream"),
        ("--stream a:1 --control tcp:1", "--control requires --member"),
        ("--stream a:1 --state nowhere", "nowhere is not a directory"),
        ("--stream a:1 --interface 0.0.0.0", "--secret-file"),
        (" ".join(f"--stream s{number}:0" for number in range(65)), "--stream is given more than 64 times"),
    ],
)
def test_options_for_streams_are_checked(
    arguments: str, complaint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=complaint):
        backbone_tap.Options().parseOptions(arguments.split())


def test_a_state_file_of_another_stream_is_refused(start_streams: StartStreams, start: Start, tmp_path: Path) -> None:
    backbone = start_streams()
    backbone.signal(signal.SIGTERM).finish()
    (tmp_path / "fyrehose-news.state").replace(tmp_path / "fyrehose-other.state")
    other = start("twistd", "-n", "--pidfile=", "fyrehose-backbone", "--stream", "other:0", cwd=tmp_path)
    assert other.finish() == 1
    assert "fyrehose://news" in other.err


def test_the_dashboard_finds_the_clients_of_a_stream_next_to_its_metrics() -> None:
    url = clients_url("http://127.0.0.1:9100/streams/ticks/metrics")
    assert url.partition("?")[0] == "http://127.0.0.1:9100/streams/ticks/clients"
