"""Metrics of real services as Prometheus scrapes them."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from integration.running.backbone import RunningBackbone
from integration.running.journal import StartJournal
from integration.running.programs import Program, Start

DEADLINE = 120.0
PUBLISHER = "fyrehose_twisted.fyrehose.protocol.publisher.PublisherProtocol"

Client = Callable[..., Any]


@pytest.fixture
def start_client(start: Start, tmp_path: Path) -> Client:
    """Start ``twistd fyrehose-client`` without waiting."""

    def started(backbone: RunningBackbone, *options: object) -> Any:
        return start(
            *("twistd", "-n", "--pidfile=", "fyrehose-client", "--protocol", PUBLISHER, "-b", backbone.text),
            *options,
            cwd=tmp_path,
            stderr=subprocess.STDOUT,
        )

    return started


def told_by(program: Program) -> dict[str, float]:
    """Return the metrics of a service, by name and labels."""
    with urlopen(program.wait_for(r"metrics at (http://127\.0\.0\.1:\d+/metrics)")[1], timeout=DEADLINE) as page:
        lines = page.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def test_metrics_of_backbone_journal_and_client_agree(
    start: Start, backbone: RunningBackbone, start_journal: StartJournal, start_client: Client
) -> None:
    journal = start_journal(backbone, "kept", "--metrics", "tcp:0")
    client = start_client(backbone, "--metrics", "tcp:0")
    backbone.wait_for_clients(2)
    publisher = start("fyrehose", "pub", "-b", backbone.text)
    assert publisher.finish(b"".join(b"%d\n" % number for number in range(100))) == 0, publisher
    last = backbone.sequence
    journal.wait_for(last)

    kept = told_by(journal.program)
    stream = '{stream="fyrehose://default"}'
    assert kept[f"fyrehose_journal_next{stream}"] == last + 1
    assert kept[f"fyrehose_journal_last{stream}"] == kept["fyrehose_client_sequence"] == last
    assert kept[f"fyrehose_journal_held{stream}"] == kept[f"fyrehose_journal_taken_total{stream}"] == last
    assert kept[f"fyrehose_journal_commits_total{stream}"] > 0
    assert kept[f"fyrehose_journal_lost{stream}"] == kept["fyrehose_client_lost_total"] == 0
    infos = [name for told in (kept, told_by(client)) for name in told if name.startswith("fyrehose_info{")]
    assert ["journal" if 'service="journal"' in name else "client" for name in infos] == ["journal", "client"]
    assert all('stream="fyrehose://default"' in name for name in infos)
    assert 'service="client"' in infos[1]
    assert f'backbone="{backbone.text}"' in infos[1]
    told = told_by(client)
    assert told["fyrehose_client_connected"] == 1
    assert 0 < told["fyrehose_client_round_trip_seconds"] < DEADLINE
    assert not [name for name in told if name.startswith("fyrehose_journal_")]

    journal.stop()
    assert client.signal(signal.SIGTERM).finish() == -signal.SIGTERM
    assert "Traceback" not in client.out


def test_client_that_cannot_serve_metrics_stops(backbone: RunningBackbone, start_client: Client) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        client = start_client(backbone, "--metrics", f"tcp:{port}")
        assert client.finish() == 1
    assert client.out.count(f"stopping: --metrics: cannot listen on tcp:{port}: Address already in use\n") == 1
    assert "Traceback" not in client.out
